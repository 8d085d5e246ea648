"""Clients of endpoints, by endpoint and owner. A client is opened on first use."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from typing import TYPE_CHECKING

from dray import DrayError
from dray.client import Client, Policy

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dray.client import Ticket
    from dray.client import You as Caller
    from dray_fts.settings import Endpoint
    from dray_fts.sites import Place

__all__ = ["LATER_KINDS", "OVER_KINDS", "Endpoints"]

LATER_KINDS = ("unreachable", "timed_out", "busy", "no_place")
"""Kinds of errors after which the same request may succeed later."""
OVER_KINDS = ("not_found", "already_exists")
"""Kinds of errors for a transfer that has ended, or whose record is deleted."""
KEY_SECONDS = 600.0
CALL_SECONDS = 20.0
CHECK_SECONDS = 60
PATHS_MAX = 100


class Endpoints:
    """Clients of endpoints. Many threads may use one instance."""

    def __init__(self, known: Mapping[str, Endpoint]) -> None:
        """Store the configured endpoints."""
        self._known = known
        self._clients: dict[tuple[str, str], Client] = {}
        self._keys: dict[str, tuple[float, str]] = {}
        self._lock = threading.Lock()

    def client(self, name: str, owner: str) -> Client:
        """Return the client of an endpoint with the credential for an owner.

        :raises DrayError: if the configuration no longer has the endpoint, or if a credential is
            not usable.
        """
        with self._lock:
            client = self._clients.get((name, owner))
            if client is None:
                client = self._clients[name, owner] = self._open(name, owner)
            return client

    def key(self, name: str, owner: str) -> str:
        """Return the fingerprint of an endpoint. Tickets are minted for this key."""
        with self._lock:
            since, key = self._keys.get(name, (0.0, ""))
        if not key or time.monotonic() - since > KEY_SECONDS:
            key = self.client(name, owner).endpoint().key
            with self._lock:
                self._keys[name] = (time.monotonic(), key)
        return key

    def url(self, place: Place) -> str:
        """Return the URL of a place in the form that another endpoint can use."""
        return f"{self._known[place.endpoint].url.rstrip('/')}{place.path}"

    def knows(self, name: str) -> bool:
        """Return true if the configuration has this endpoint."""
        return name in self._known

    def mint(self, place: Place, owner: str, transfer: str, peer_key: str) -> Ticket:
        """Mint a ticket to read a file, for the endpoint with the given key."""
        return self.client(place.endpoint, owner).mint_ticket(
            transfer, "read", [place.path], peer_key
        )

    def whose(self, name: str, token: str) -> Caller:
        """Return the identity of a bearer token, which the endpoint checks."""
        with self._with_token(name, token) as client:
            return client.endpoint().you

    def check(self, name: str, token: str, paths: Iterable[str], *, writes: bool) -> None:
        """Ask an endpoint if a token may read or write files.

        The endpoint issues a ticket for the files, which is revoked immediately.

        :raises DrayError: if the endpoint refuses the ticket.
        """
        several = list(paths)
        direction = "write" if writes else "read"
        with self._with_token(name, token) as client:
            key = client.endpoint().key
            for first in range(0, len(several), PATHS_MAX):
                ticket = client.mint_ticket(
                    f"fts-check-{uuid.uuid4()}",
                    direction,  # type: ignore[arg-type]
                    several[first : first + PATHS_MAX],
                    key,
                    lifetime_seconds=CHECK_SECONDS,
                    renewable_seconds=CHECK_SECONDS,
                )
                with contextlib.suppress(DrayError):
                    client.revoke_ticket(ticket.id)

    def close(self) -> None:
        """Close all clients."""
        with self._lock:
            for client in self._clients.values():
                client.close()
            self._clients.clear()

    def _open(self, name: str, owner: str) -> Client:
        how = self._known[name]
        token = None if how.token_file is None else _TokenFile(how.token_file, owner)
        return Client(
            how.url,
            token=None if token is None else token.path,
            ca=None if how.pin else how.ca,
            certificate=how.certificate,
            key=how.key,
            pin=how.pin,
            policy=Policy(seconds=CALL_SECONDS),
        )

    def _with_token(self, name: str, token: str) -> Client:
        how = self._known[name]
        return Client(
            how.url,
            token=token,
            ca=None if how.pin else how.ca,
            pin=how.pin,
            policy=Policy(seconds=CALL_SECONDS, tries=2),
        )


class _TokenFile:
    """The path of a token file, with the owner in place of ``{owner}``."""

    def __init__(self, pattern: str, owner: str) -> None:
        from pathlib import Path

        # Owners of certificates are names (settings.py). The owner of a token comes from an
        # endpoint, and must not lead out of the folder.
        if "{owner}" in pattern and ("/" in owner or owner in ("", ".", "..")):
            raise ValueError(f"the owner {owner!r} cannot be part of a file name")
        self.path = Path(pattern.replace("{owner}", owner))
