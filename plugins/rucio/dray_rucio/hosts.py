"""Clients of endpoints, by what Rucio notes as the external host; opened when first asked for."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, TypeVar

from dray import DrayError
from dray.client import Client, Policy
from dray_rucio import settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from dray_rucio.settings import Settings

__all__ = ["AWAY_KINDS", "Hosts"]

AWAY_KINDS = ("unreachable", "timed_out")
"""Kinds of errors that say that nobody is there."""
KEY_SECONDS = 600.0
"""How long an endpoint's key is taken to be the same."""
HURRIED_SECONDS = 5.0
"""For one call, once, where Rucio holds a transaction open meanwhile."""
T = TypeVar("T")


class Hosts:
    """Clients, each by one endpoint's ``dray://HOST:PORT[#PIN]``. Used by many threads."""

    def __init__(self, how: Settings | None = None) -> None:
        """Ask by these settings; by default those of Rucio's configuration, when first needed."""
        self._how = how
        self._clients: dict[tuple[str, bool], Client] = {}
        self._keys: dict[str, tuple[float, str]] = {}
        self._missed: dict[str, tuple[float, DrayError]] = {}
        self._lock = threading.Lock()

    @property
    def settings(self) -> Settings:
        """How endpoints are asked."""
        if self._how is None:
            self._how = settings.read()
        return self._how

    def of(self, host: str, *, hurried: bool = False) -> Client:
        """Give the client of an endpoint; a ``hurried`` one tries once, and not for long."""
        with self._lock:
            client = self._clients.get((host, hurried))
            if client is None:
                client = self._clients[host, hurried] = self._open(host, hurried)
            return client

    def key(self, host: str) -> str:
        """Give the fingerprint of an endpoint, for which tickets are minted.

        :raises DrayError: if it has to be asked, and is not reached.
        """
        _, _, pin = host.partition("#")
        with self._lock:
            since, known = self._keys.get(host, (0.0, ""))
        if pin or (known and time.monotonic() - since < KEY_SECONDS):
            return pin or known
        key = self.ask(host, Client.endpoint).key
        with self._lock:
            self._keys[host] = (time.monotonic(), key)
        return key

    def ask(self, host: str, what: Callable[[Client], T], *, hurried: bool = False) -> T:
        """Ask an endpoint something, unless it was not reached a moment ago.

        :raises DrayError: of the call; or the one of a moment ago.
        """
        client = self.of(host, hurried=hurried)
        with self._lock:
            since, error = self._missed.get(host, (0.0, None))
        if error is not None and time.monotonic() - since < self.settings.away_seconds:
            raise error
        try:
            answer = what(client)
        except DrayError as error:
            if error.kind in AWAY_KINDS:
                with self._lock:
                    self._missed[host] = (time.monotonic(), error)
            raise
        with self._lock:
            self._missed.pop(host, None)
        return answer

    def _open(self, host: str, hurried: bool) -> Client:
        url, _, pin = host.partition("#")
        how = self.settings
        return Client(
            url,
            # Nobody's token is looked for elsewhere: a daemon's is not meant for whoever is named.
            token=how.token_of(url.removeprefix("dray://")),
            ca=None if pin or how.ca is None else str(how.ca),
            certificate=None if how.certificate is None else str(how.certificate),
            key=None if how.key is None else str(how.key),
            pin=pin or None,
            policy=Policy(seconds=min(how.call_seconds, HURRIED_SECONDS), tries=1)
            if hurried
            else Policy(seconds=how.call_seconds),
        )
