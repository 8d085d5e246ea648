"""Clients of endpoints, by what Rucio notes as the external host; opened when first asked for."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, TypeVar

from dray import DrayError
from dray.client import DISCOVER, Client, Policy
from dray_rucio import settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from dray_rucio.settings import Settings

__all__ = ["AWAY_KINDS", "Hosts"]

AWAY_KINDS = ("unreachable", "timed_out")
"""Kinds of errors that say that nobody is there."""
T = TypeVar("T")


class Hosts:
    """Clients, each by one endpoint's ``dray://HOST:PORT[#PIN]``. Used by many threads."""

    def __init__(self, how: Settings | None = None) -> None:
        """Ask by these settings; by default those of Rucio's configuration, when first needed."""
        self._how = how
        self._clients: dict[str, Client] = {}
        self._missed: dict[str, tuple[float, DrayError]] = {}
        self._lock = threading.Lock()

    @property
    def settings(self) -> Settings:
        """How endpoints are asked."""
        if self._how is None:
            self._how = settings.read()
        return self._how

    def of(self, host: str) -> Client:
        """Give the client of an endpoint."""
        with self._lock:
            client = self._clients.get(host)
            if client is None:
                client = self._clients[host] = self._open(host)
            return client

    def ask(self, host: str, what: Callable[[Client], T]) -> T:
        """Ask an endpoint something, unless it was not reached a moment ago.

        :raises DrayError: of the call; or the one of a moment ago.
        """
        client = self.of(host)
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

    def _open(self, host: str) -> Client:
        url, _, pin = host.partition("#")
        how = self.settings
        token = how.token_of(url.removeprefix("dray://"))
        # With a certificate alone nobody's token is looked for.
        usual = DISCOVER if how.certificate is None else None
        return Client(
            url,
            token=usual if token is None else token,
            ca=None if pin or how.ca is None else str(how.ca),
            certificate=None if how.certificate is None else str(how.certificate),
            key=None if how.key is None else str(how.key),
            pin=pin or None,
            policy=Policy(seconds=how.call_seconds),
        )
