"""The live state of transfers, for any number of open pages.

Invariant: for each connection, one process of the API server starts at most one call a second, and
has at most one call in flight. A page never waits longer than :data:`WAIT_SECONDS` for a call.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import logging
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from datetime import datetime, timezone
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from dray.client import Client, Transfer
    from dray_airflow.hooks.dray import Settings

    SettingsOf = Callable[[str, str | None], Settings]
    ClientOf = Callable[[Settings], Client]

__all__ = ["Problem", "Reading", "Watch", "Watches", "open_client"]

log = logging.getLogger(__name__)

CALL_SECONDS = 5.0
"""Time limit of one call to an endpoint, including its retries."""
INTERVAL_SECONDS = 1.0
"""Minimum time from the end of a call to the start of the next one."""
PAUSE_SECONDS = 5.0
"""Minimum time after a failed call."""
WAIT_SECONDS = 1.0
"""Time for which a page waits for a call. Afterwards it shows the last known state."""
KEPT_SECONDS = 30.0
"""Time for which a watch asks about a transfer after the last request for this transfer."""
IDS_MAX = 200
"""Ids in one call. An answer has at most 16 MiB, and a request of a transfer at most 64 KiB."""
WANTED_MAX = 2000
"""Maximum number of transfers that one watch asks about."""
WATCHES_MAX = 50
"""Maximum number of watched connections."""
CONNECTIONS_MAX = 10
"""Maximum number of connections in one answer.

A task can publish any connection names. With this bound, one run cannot take all watches.
"""
THREADS = 4
"""Threads that call endpoints. The number is estimated: a call to a live endpoint takes
milliseconds, and four unreachable endpoints occupy the threads for half of the time."""


class Problem(NamedTuple):
    """The reason why the state of transfers is unknown.

    :param kind: a word of :data:`dray.errors.ErrorKind`, or ``connection``.
    :param message: the cause, in one line.
    :param remedy: the action that helps.
    """

    kind: str
    message: str
    remedy: str


FULL = Problem(
    "busy",
    f"open pages already show {WATCHES_MAX} other connections",
    "close pages that nobody needs; the next try is in a few seconds",
)
"""The problem of a connection for which there is no watch left."""
LEFT_OUT = Problem(
    "busy",
    f"the page shows the live state through {CONNECTIONS_MAX} connections, and this run has more",
    "open the page of one task",
)
"""The problem of a connection that is left out of an answer."""


class Reading(NamedTuple):
    """The last known state of transfers.

    :param transfers: the transfers by id. ``None``: the endpoint shows this caller no such
        transfer. An id without an entry is not known yet.
    :param as_of: time of the last answer.
    :param problem: why newer calls have failed.
    :param link: URL of a page about a transfer, with ``{id}``. Empty if the connection has none.
    """

    transfers: Mapping[str, Transfer | None]
    as_of: datetime | None = None
    problem: Problem | None = None
    link: str = ""


class Watch:
    """Asks one endpoint about the transfers that pages show.

    :param conn_id: name of the connection.
    :param team: team of the DAG, if this Airflow has teams.
    """

    def __init__(
        self,
        conn_id: str,
        team: str | None,
        *,
        settings_of: SettingsOf,
        client_of: ClientOf,
        pool: ThreadPoolExecutor,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create a watch. No call is made yet."""
        self._conn_id = conn_id
        self._team = team
        self._settings_of = settings_of
        self._client_of = client_of
        self._pool = pool
        self._clock = clock
        self._lock = threading.Lock()
        self._wanted: dict[str, float] = {}
        self._seen: dict[str, Transfer | None] = {}
        self._reading = Reading({})
        self._flight: Future[None] | None = None
        self._flight_at = 0.0
        self._next_at = float("-inf")
        self._client: tuple[Settings, Client] | None = None
        #: Time of the last look.
        self.used_at = clock()

    @property
    def is_idle(self) -> bool:
        """True if no page has looked for a while, and no call is in flight."""
        with self._lock:
            return self._flight is None and self._clock() - self.used_at > KEPT_SECONDS

    def begin(self, ids: Iterable[str]) -> None:
        """Start a call if the last one is old enough. Never waits."""
        with self._lock:
            now = self._clock()
            self.used_at = now
            for id in ids:
                # Insert again, so that the order is that of the last request.
                self._wanted.pop(id, None)
                self._wanted[id] = now
            self._forget(now)
            if self._flight is None and now >= self._next_at:
                self._flight_at = now
                self._flight = self._pool.submit(self._ask, list(self._wanted))

    def reading(self) -> Reading:
        """Wait for the call in flight, and return the state of the wanted transfers."""
        with self._lock:
            flight, left = self._flight, self._flight_at + WAIT_SECONDS - self._clock()
        if flight is not None and left > 0:
            wait([flight], timeout=left)
        with self._lock:
            return self._reading._replace(transfers=dict(self._seen))

    def _forget(self, now: float) -> None:
        for id, at in list(self._wanted.items()):
            if now - at > KEPT_SECONDS or len(self._wanted) > WANTED_MAX:
                del self._wanted[id]
                self._seen.pop(id, None)

    def _ask(self, ids: list[str]) -> None:
        """Ask the endpoint, in a thread of the pool. Never raises."""
        calls = 0
        found: dict[str, Transfer | None] = {}
        problem: Problem | None = None
        link = ""
        try:
            settings = self._settings_of(self._conn_id, self._team)
            link = settings.link
            client = self._connected(settings)
            for at in range(0, len(ids), IDS_MAX):
                calls += 1
                found |= client.query(ids[at : at + IDS_MAX])
        except Exception as error:
            problem = problem_of(self._conn_id, error)
            self._disconnect()
        with self._lock:
            self._seen |= {id: each for id, each in found.items() if id in self._wanted}
            as_of = self._reading.as_of if problem else datetime.now(timezone.utc)
            self._reading = Reading({}, as_of, problem, link or self._reading.link)
            # A watch that needs several calls pauses longer, so that the mean rate is the same.
            pause = INTERVAL_SECONDS * max(calls, 1)
            self._next_at = self._clock() + (max(pause, PAUSE_SECONDS) if problem else pause)
            self._flight = None

    def _connected(self, settings: Settings) -> Client:
        if self._client is None or self._client[0] != settings:
            self._disconnect()
            self._client = settings, self._client_of(settings)
        return self._client[1]

    def _disconnect(self) -> None:
        if self._client is not None:
            _, client = self._client
            self._client = None
            # A broken connection can fail to close. It is not used again.
            with contextlib.suppress(Exception):
                client.close()

    def close(self) -> None:
        """Close the connection to the endpoint. No call may be in flight."""
        self._disconnect()


class Watches:
    """The watches of one process.

    :param settings_of: looks the settings of a connection up, for a team.
    :param client_of: makes a client.
    """

    def __init__(self, settings_of: SettingsOf, client_of: ClientOf) -> None:
        """Create no watch yet."""
        self._settings_of = settings_of
        self._client_of = client_of
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="dray-ui")
        self._lock = threading.Lock()
        self._watches: dict[tuple[str, str | None], Watch] = {}

    def look(self, wanted: Mapping[str, Iterable[str]], team: str | None) -> dict[str, Reading]:
        """Return the state of transfers at the endpoints of connections.

        All calls start before the first wait, so that a page with many silent endpoints waits no
        longer than a page with one.

        :param wanted: ids of transfers by connection.
        :param team: team of the DAG, if this Airflow has teams.
        """
        shown = dict(itertools.islice(wanted.items(), CONNECTIONS_MAX))
        begun = {conn_id: self._begin(conn_id, team, ids) for conn_id, ids in shown.items()}
        readings = {
            conn_id: Reading({}, problem=FULL) if watch is None else watch.reading()
            for conn_id, watch in begun.items()
        }
        left_out = Reading({}, problem=LEFT_OUT)
        return {conn_id: readings.get(conn_id, left_out) for conn_id in wanted}

    def _begin(self, conn_id: str, team: str | None, ids: Iterable[str]) -> Watch | None:
        with self._lock:
            watch = self._watches.get((conn_id, team))
            if watch is None:
                self._drop_idle()
                if len(self._watches) >= WATCHES_MAX:
                    return None
                watch = Watch(
                    conn_id,
                    team,
                    settings_of=self._settings_of,
                    client_of=self._client_of,
                    pool=self._pool,
                )
                self._watches[conn_id, team] = watch
            # Set the time under the lock, so that no other request drops this watch as idle.
            watch.used_at = time.monotonic()
        watch.begin(ids)
        return watch

    def _drop_idle(self) -> None:
        for key, watch in list(self._watches.items()):
            if watch.is_idle:
                del self._watches[key]
                watch.close()


def open_client(settings: Settings) -> Client:
    """Return a client with a short time limit."""
    from dray.client import Client

    seconds = min(settings.seconds, CALL_SECONDS)
    return Client(**dataclasses.replace(settings, seconds=seconds).arguments())


def problem_of(conn_id: str, error: Exception) -> Problem:
    """Describe a failed call, without the traceback and without fields of the connection."""
    from dray.errors import DrayError
    from dray_airflow.errors import DrayTaskFailure, one_line

    if isinstance(error, DrayError):
        if error.kind in ("unreachable", "timed_out", "busy"):
            remedy = (
                "check that drayd runs, and that the host of the API server can reach it; the"
                " page asks again every few seconds"
            )
        elif error.kind in ("unauthorized", "permission_denied"):
            remedy = (
                f"renew the token of the connection {conn_id!r}, or give its owner the right to"
                " see the transfers of the task"
            )
        else:
            remedy = f"test the connection {conn_id!r} under Admin > Connections"
        return Problem(error.kind, one_line(str(error)), remedy)
    if isinstance(error, DrayTaskFailure):
        remedy = f"correct the connection {conn_id!r} under Admin > Connections"
        return Problem("connection", str(error), remedy)
    # An unexpected error may contain secrets, so only the log of the API server has it.
    log.warning("cannot ask the endpoint of the connection %r", conn_id, exc_info=error)
    return Problem(
        "connection",
        f"the API server cannot use the connection {conn_id!r}: {type(error).__name__}",
        "read the log of the API server",
    )
