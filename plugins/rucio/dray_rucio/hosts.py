"""Clients of endpoints by Rucio's external host. A client is opened on first use."""

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

__all__ = ["AWAY_KINDS", "LATER_KINDS", "QUERY_MAX", "Hosts"]

AWAY_KINDS = ("unreachable", "timed_out")
"""Kinds of errors that mean an unreachable endpoint."""
LATER_KINDS = (*AWAY_KINDS, "busy", "no_place")
"""Kinds of errors after which the same request may succeed later."""
QUERY_MAX = 200
"""Maximum number of ids in one query. An answer has at most 16 MiB, and a transfer of many files
64 KiB."""
KEY_SECONDS = 600.0
"""Seconds for which the key of an endpoint is cached."""
HURRIED_SECONDS = 5.0
"""Time limit in seconds of a call without retries, made while Rucio holds a transaction open."""
T = TypeVar("T")


class Hosts:
    """Clients by endpoint, ``dray://HOST:PORT[#PIN]``. Many threads may use one instance."""

    def __init__(self, how: Settings | None = None) -> None:
        """Use these settings. By default, those of Rucio's configuration are read on first use."""
        self._how = how
        self._clients: dict[tuple[str, bool], Client] = {}
        self._keys: dict[str, tuple[float, str]] = {}
        self._missed: dict[str, tuple[float, DrayError]] = {}
        self._lock = threading.Lock()

    @property
    def settings(self) -> Settings:
        """The settings of calls to endpoints."""
        if self._how is None:
            self._how = settings.read()
        return self._how

    def of(self, host: str, *, hurried: bool = False) -> Client:
        """Return the client of an endpoint.

        A ``hurried`` client tries once, with a short timeout.
        """
        with self._lock:
            client = self._clients.get((host, hurried))
            if client is None:
                client = self._clients[host, hurried] = self._open(host, hurried)
            return client

    def key(self, host: str) -> str:
        """Return the fingerprint of an endpoint's key. Tickets are minted for this fingerprint.

        :raises DrayError: if the endpoint must be called and is unreachable.
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
        """Call an endpoint, unless its last call failed a short time ago.

        If the last call found the endpoint unreachable, no call is made for ``away_seconds``. After
        this time, a short call first checks that the endpoint answers. Then ``what`` is called.

        :raises DrayError: the error of the call, or the cached error of an earlier call.
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

        :param always: call the endpoint even if it answered the last call.
        :raises DrayError: if the endpoint does not answer. For ``away_seconds`` after a call that
            found the endpoint unreachable, the error of that call is raised without another call.
        """
        with self._lock:
            since, missed = self._missed.get(host, (0.0, None))
        if missed is None and not always:
            return
        if missed is not None and time.monotonic() - since < self.settings.away_seconds:
            raise missed
        try:
            # If the endpoint was already unreachable, use a shorter timeout than for one that may
            # be restarting.
            self.of(host, hurried=missed is not None).endpoint()
        except DrayError as error:
            # Any other error is an answer, so the endpoint is reachable.
            if error.kind in AWAY_KINDS:
                self.note(host, error)
                raise
        self.note(host, None)

    def note(self, host: str, error: DrayError | None) -> None:
        """Record if the last call found the endpoint unreachable."""
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
            # Only the configured token is used. The daemon's own token must not be sent to every
            # host that an RSE names.
            token=how.token_of(url.removeprefix("dray://")),
            ca=None if pin or how.ca is None else str(how.ca),
            certificate=None if how.certificate is None else str(how.certificate),
            key=None if how.key is None else str(how.key),
            pin=pin or None,
            policy=Policy(seconds=min(how.call_seconds, HURRIED_SECONDS), tries=1)
            if hurried
            else Policy(seconds=how.call_seconds),
        )
