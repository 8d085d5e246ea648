"""Clients of endpoints, by endpoint and owner. A client is opened on first use."""

from __future__ import annotations

import contextlib
import itertools
import posixpath
import threading
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from dray import DrayError
from dray.client import Client, Policy, TapeFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dray.client import Ticket
    from dray.client import You as Caller
    from dray_fts.settings import Endpoint
    from dray_fts.sites import Place

__all__ = ["AWAY_KINDS", "LATER_KINDS", "OVER_KINDS", "Endpoints"]

AWAY_KINDS = ("unreachable", "timed_out")
"""Kinds of errors that mean an unreachable endpoint."""
LATER_KINDS = (*AWAY_KINDS, "busy", "no_place")
"""Kinds of errors after which the same request may succeed later."""
OVER_KINDS = ("not_found", "already_exists")
"""Kinds of errors for a transfer that has ended, or whose record is deleted."""
KEY_SECONDS = 600.0
CALL_SECONDS = 20.0
AWAY_SECONDS = 2.0
CHECK_SECONDS = 60
PATHS_MAX = 100
T = TypeVar("T")


class Endpoints:
    """Clients of endpoints. Many threads may use one instance."""

    def __init__(self, known: Mapping[str, Endpoint]) -> None:
        """Store the configured endpoints."""
        self._known = known
        self._clients: dict[tuple[str, str], Client] = {}
        self._keys: dict[str, tuple[float, str]] = {}
        self._away: dict[str, tuple[float, DrayError]] = {}
        self._lock = threading.Lock()

    @property
    def names(self) -> Sequence[str]:
        """The names of all endpoints."""
        return list(self._known)

    def ask(self, name: str, owner: str, what: Callable[[Client], T]) -> T:
        """Call an endpoint with the credential for an owner.

        If a call found the endpoint unreachable less than two seconds ago, its error is raised
        again without a call. Otherwise many files would wait for the same endpoint, one after the
        other.

        :raises DrayError: the error of the call.
        """
        with self._lock:
            since, error = self._away.get(name, (0.0, None))
            if error is not None and time.monotonic() - since < AWAY_SECONDS:
                raise error
            client = self._clients.get((name, owner))
            if client is None:
                client = self._clients[name, owner] = self._open(name, owner)
        try:
            answer = what(client)
        except DrayError as caught:
            if caught.kind in AWAY_KINDS:
                with self._lock:
                    self._away[name] = (time.monotonic(), caught)
            raise
        with self._lock:
            self._away.pop(name, None)
        return answer

    def key(self, name: str, owner: str) -> str:
        """Return the fingerprint of an endpoint. Tickets are minted for this key."""
        with self._lock:
            since, key = self._keys.get(name, (0.0, ""))
        if not key or time.monotonic() - since > KEY_SECONDS:
            key = self.ask(name, owner, Client.endpoint).key
            with self._lock:
                self._keys[name] = (time.monotonic(), key)
        return key

    def url(self, place: Place) -> str:
        """Return the URL of a place in the form that another endpoint can use."""
        return f"{self._known[place.endpoint].url.rstrip('/')}{place.path}"

    def mint(self, place: Place, owner: str, transfer: str, peer_key: str) -> Ticket:
        """Mint a ticket to read a file, for the endpoint with the given key."""
        return self.ask(
            place.endpoint,
            owner,
            lambda client: client.mint_ticket(transfer, "read", [place.path], peer_key),
        )

    def revoke(self, place: Place, owner: str, ticket: str) -> None:
        """Revoke a ticket that no transfer uses. An error is ignored, because tickets expire."""
        with contextlib.suppress(DrayError):
            self.ask(place.endpoint, owner, lambda client: client.revoke_ticket(ticket))

    def cancel(self, name: str, owner: str, id: str) -> None:
        """Cancel a transfer, unless it has ended or does not exist.

        :raises DrayError: if the endpoint does not answer, or refuses the call.
        """
        try:
            self.ask(name, owner, lambda client: client.cancel(id))
        except DrayError as error:
            if error.kind not in OVER_KINDS:
                raise

    def whose(self, name: str, token: str) -> Caller:
        """Return the identity of a bearer token, which the endpoint checks."""
        with self._with_token(name, token) as client:
            return client.endpoint().you

    def check(self, name: str, token: str, paths: Iterable[str], *, writes: bool) -> None:
        """Ask an endpoint if a token may read or write files.

        The endpoint issues a ticket for the files. The call revokes the ticket immediately.

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

    def check_stage(self, name: str, token: str, paths: Iterable[str]) -> None:
        """Ask an endpoint if a token may stage files.

        The tape API has no call for this question. So this function requests to stage a file that
        does not exist, in the deepest folder that contains all the files, and then releases the
        request. If the endpoint refuses this request, the token may still have a scope for each
        subfolder. So the function repeats the request for the subfolders, down to single files.

        :raises DrayError: if the endpoint refuses to stage one of the files.
        """
        with self._with_token(name, token) as client:
            groups = _parts(sorted(set(paths)), "/")
            while groups:
                several = groups.pop()
                folder = posixpath.commonpath(several)
                try:
                    _try_to_stage(client, folder)
                except DrayError as error:
                    if error.kind != "permission_denied" or len(several) == 1:
                        raise
                    groups += _parts(several, folder)

    def close(self) -> None:
        """Close all clients."""
        with self._lock:
            for client in self._clients.values():
                client.close()
            self._clients.clear()

    def _open(self, name: str, owner: str) -> Client:
        how = self._known[name]
        # The names of owners are checked (people.py), so they do not lead out of the folder.
        path = None if how.token_file is None else how.token_file.replace("{owner}", owner)
        return Client(
            how.url,
            token=None if path is None else Path(path),
            ca=None if how.pin else how.ca,
            certificate=how.certificate,
            key=how.key,
            pin=how.pin,
            policy=Policy(seconds=CALL_SECONDS, tries=2),
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


def _try_to_stage(client: Client, path: str) -> None:
    """Request to stage a missing file below a path, and release the request.

    A scope for a path includes everything below the path.
    """
    missing = f"{path}/fts-check-{uuid.uuid4()}"
    id = client.tape_stage([TapeFile(missing)])
    with contextlib.suppress(DrayError):
        client.tape_release(id, [missing])


def _parts(paths: Sequence[str], folder: str) -> list[list[str]]:
    """Divide sorted paths in a folder by their next name."""
    depth = len(folder.rstrip("/").split("/"))
    parts = itertools.groupby(paths, lambda path: path.split("/")[depth : depth + 1])
    return [list(part) for _, part in parts]
