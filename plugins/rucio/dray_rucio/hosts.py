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

__all__ = ["AWAY_KINDS", "LATER_KINDS", "Hosts"]

AWAY_KINDS = ("unreachable", "timed_out")
"""Kinds of errors that say that nobody is there."""
LATER_KINDS = (*AWAY_KINDS, "busy", "no_place")
"""Kinds of errors after which the same request may succeed later."""
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
        """Ask an endpoint something, unless it was unreachable a moment ago.

        After ``away_seconds`` one short call looks for the endpoint before ``what`` is sent.

        :raises DrayError: of the call; or of the one a moment ago.
        """
        self.look_for(host)
        try:
            answer = what(self.of(host, hurried=hurried))
        except DrayError as error:
            if error.kind in AWAY_KINDS:
                self.note(host, error)
            raise
        self.note(host, None)
        return answer

    def look_for(self, host: str, *, always: bool = False) -> None:
        """Check that an endpoint answers.

        :param always: call it even if it answered the last call.
        :raises DrayError: if it does not; within ``away_seconds`` the error of the last call.
        """
        with self._lock:
            since, missed = self._missed.get(host, (0.0, None))
        if missed is None and not always:
            return
        if missed is not None and time.monotonic() - since < self.settings.away_seconds:
            raise missed
        try:
            # A host that was unreachable before gets a shorter wait than one that restarts.
            self.of(host, hurried=missed is not None).endpoint()
        except DrayError as error:
            # Any other error is an answer.
            if error.kind in AWAY_KINDS:
                self.note(host, error)
                raise
        self.note(host, None)

    def note(self, host: str, error: DrayError | None) -> None:
        """Record whether an endpoint was unreachable in the last call."""
        with self._lock:
            if error is None:
                self._missed.pop(host, None)
            else:
                self._missed[host] = (time.monotonic(), error)

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
