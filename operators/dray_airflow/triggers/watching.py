"""One watch for all transfers of a connection for which a triggerer waits.

If each deferred task waited separately, each would need its own connection. An endpoint permits
only 64 connections per address and owner (``limits.connections_per_owner``). The 65th task, or a
call to cancel a transfer, would get no connection. So one client queries all awaited transfers in
one call.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

from dray_airflow.hooks.dray import DrayHook

if TYPE_CHECKING:
    from dray.client import AsyncClient, Transfer

__all__ = ["Watch", "watch_of"]

log = logging.getLogger(__name__)

POLL_SECONDS = 2.0
IDS_MAX = 500
"""Maximum number of transfers in the first call. A larger answer may exceed the size limit."""
CALLS_AT_ONCE = 8
"""Maximum number of concurrent calls besides the watch, if a user ends hundreds of tasks together.
"""
REPORT_SECONDS = 60.0
IDS_A_SECOND = 200
"""Number of transfers that may be queried per second.

With many transfers the queries are less frequent: 1000 transfers are queried every five seconds.
"""

_Watches = MutableMapping[asyncio.AbstractEventLoop, "dict[str, Watch]"]
#: Watches by event loop, because a client belongs to the loop that opened it. A watch is removed
#: together with its loop.
_WATCHES: _Watches = WeakKeyDictionary()


class _Waiter(NamedTuple):
    """A wait for a transfer.

    :param is_awaited: wait even if no transfer has this id yet.
    :param patience_seconds: time for which a refused token is retried.
    """

    ended: asyncio.Future[Transfer]
    is_awaited: bool
    patience_seconds: float


def watch_of(conn_id: str) -> Watch:
    """Return the running event loop's watch of a connection."""
    watches = _WATCHES.setdefault(asyncio.get_running_loop(), {})
    return watches.setdefault(conn_id, Watch(conn_id))


class Watch:
    """Asks an endpoint which transfers have ended, while a trigger waits for a transfer.

    :param conn_id: connection of the endpoint.
    """

    def __init__(self, conn_id: str) -> None:
        """Create a watch without waits. No call is made yet."""
        self._conn_id = conn_id
        self._waiting: dict[str, list[_Waiter]] = {}
        self._task: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._seen: dict[str, Transfer] = {}
        self._ids_max = IDS_MAX
        self._reported_at = float("-inf")
        #: Limits the number of concurrent calls. The calls of the watch itself do not count.
        self.gate = asyncio.Semaphore(CALLS_AT_ONCE)

    async def ended(
        self, id: str, *, is_awaited: bool = False, patience_seconds: float = 0.0
    ) -> Transfer:
        """Wait until a transfer has ended. Restarts of the endpoint do not end the wait.

        :param is_awaited: wait even if no transfer has this id yet.
        :param patience_seconds: time for which to retry if the endpoint refuses the token, or if
            the Airflow connection cannot be read. Each check reads the connection again.
        :raises DrayError: if the endpoint was unreachable for longer than the connection's
            ``outage_seconds``, or refuses the call.
        :raises DrayTaskFailure: if the connection is invalid.
        """
        ended = asyncio.get_running_loop().create_future()
        waiter = _Waiter(ended, is_awaited, patience_seconds)
        self._waiting.setdefault(id, []).append(waiter)
        self._news.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        try:
            return await waiter.ended
        finally:
            waiters = self._waiting[id]
            waiters.remove(waiter)
            if not waiters:
                del self._waiting[id]
                self._seen.pop(id, None)
            # Wake the task that queries the endpoint. It ends if no trigger waits any more.
            self._news.set()

    def seen(self, id: str) -> Transfer | None:
        """Return the last known state of an awaited transfer."""
        return self._seen.get(id)

    async def _run(self) -> None:
        try:
            await self._ask()
        except Exception as error:
            # Report any error to the waits, even an error of the error handling, so that no wait
            # hangs.
            self._fail(error)
            raise

    async def _ask(self) -> None:
        """Ask the endpoint as long as there are waits."""
        from dray.errors import DrayError
        from dray_airflow.errors import DrayTaskFailure

        hook = DrayHook(self._conn_id)
        lost_at: float | None = None
        while self._waiting:
            try:
                # A new client after an error, because the connection may have changed.
                async with await hook.get_async_conn() as client:
                    while self._waiting:
                        await self._poll(client)
                        lost_at = None
                        await self._pause()
            except DrayError as error:
                now = time.monotonic()
                lost_at = lost_at or now
                if error.kind == "unauthorized":
                    why = await self._why_refused(hook, error)
                    if why is not None:
                        self._report(why, lost_at)
                        self._fail(why, now - lost_at)
                elif error.status == "permanent":
                    self._fail(error)
                elif now - lost_at >= hook.settings.outage_seconds:
                    self._fail(error)
                    lost_at = None
                await self._pause()
            except DrayTaskFailure as error:
                # Retry, because a job that renews the token may delete the Airflow connection, and
                # then create it again.
                lost_at = lost_at or time.monotonic()
                self._report(error, lost_at)
                self._fail(error, time.monotonic() - lost_at)
                await self._pause()
            except Exception as error:
                # Retry, because Airflow's own API, which returns the connection, may be
                # unreachable.
                lost_at = lost_at or time.monotonic()
                self._report(error, lost_at)
                self._fail(error, time.monotonic() - lost_at)
                if not self._waiting_still():
                    raise
                await self._pause()

    async def _poll(self, client: AsyncClient) -> None:
        """Ask once for all awaited transfers."""
        from dray.errors import DrayError

        ids = list(self._waiting)
        at = 0
        while at < len(ids):
            batch = ids[at : at + self._ids_max]
            try:
                transfers = await client.query(batch)
            except DrayError as error:
                if error.kind != "limit_exceeded" or len(batch) == 1:
                    raise
                # The answer was too large. An answer has at most 16 MiB, and contains the request
                # of each transfer. A request has up to 64 KiB.
                self._ids_max = len(batch) // 2
                continue
            at += len(batch)
            await self._resolve(client, transfers)

    async def _resolve(self, client: AsyncClient, found: Mapping[str, Transfer | None]) -> None:
        from dray.errors import DrayPermanentError

        for id, transfer in found.items():
            waiters = list(self._waiting.get(id, ()))
            if transfer is None:
                patient = [waiter for waiter in waiters if waiter.is_awaited]
                if len(patient) == len(waiters):
                    continue
                try:
                    transfer = await client.transfer(id)
                except DrayPermanentError as error:
                    for waiter in waiters:
                        if waiter not in patient and not waiter.ended.done():
                            waiter.ended.set_exception(error)
                    continue
            if waiters:
                self._seen[id] = transfer
            if transfer.is_terminal:
                for waiter in waiters:
                    if not waiter.ended.done():
                        waiter.ended.set_result(transfer)

    async def _pause(self) -> None:
        # Let the coroutines of ended transfers remove their waits first.
        await asyncio.sleep(0)
        self._news.clear()
        if not self._waiting:
            return
        seconds = max(POLL_SECONDS, len(self._waiting) / IDS_A_SECOND)
        try:
            await asyncio.wait_for(self._news.wait(), seconds)
        except asyncio.TimeoutError:
            return
        # Wait briefly, so that a thousand tasks that defer together need only one call.
        await asyncio.sleep(POLL_SECONDS / 10)

    async def _why_refused(self, hook: DrayHook, error: Exception) -> Exception | None:
        """Return why there is no new token. ``None`` if the connection has a new token."""
        try:
            return None if await self._is_renewed(hook) else error
        except Exception as other:
            # The connection cannot be read now. Airflow may raise an error of any type.
            return other

    async def _is_renewed(self, hook: DrayHook) -> bool:
        """Return true if the connection now has another token than the refused one."""
        refused = hook.settings.token
        return (await hook.asettings()).token != refused

    def _report(self, error: Exception, lost_at: float) -> None:
        """Log at intervals why the state of the awaited transfers is unknown."""
        now = time.monotonic()
        if now - self._reported_at < REPORT_SECONDS:
            return
        self._reported_at = now
        log.warning(
            "connection %s: the endpoint has not answered for %.0f s; its transfers continue: %s",
            self._conn_id,
            now - lost_at,
            error,
        )

    def _waiting_still(self) -> bool:
        return any(not each.ended.done() for waiters in self._waiting.values() for each in waiters)

    def _fail(self, error: Exception, lost_seconds: float | None = None) -> None:
        """End waits with an error.

        :param lost_seconds: time for which the endpoint has not answered. Waits whose
            ``patience_seconds`` is longer continue.
        """
        for waiters in self._waiting.values():
            for waiter in waiters:
                is_patient = lost_seconds is not None and lost_seconds < waiter.patience_seconds
                if not waiter.ended.done() and not is_patient:
                    waiter.ended.set_exception(error)
