"""The trigger that waits for a transfer.

The trigger only waits. It may run twice, or again after the triggerer was killed. It changes the
transfer in only one case: if a user ends the deferred task, the trigger cancels the transfer.
Durable data is kept. If no process queries the transfer for ``bound_seconds``, the endpoint cancels
the transfer. Each check of the trigger starts this time again. So if the triggerer stops, the
transfer continues for at most this time.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from dray_airflow.hooks.dray import DrayHook
from dray_airflow.triggers.fields import OfFields
from dray_airflow.triggers.watching import watch_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dray.client import Transfer
    from dray.errors import DrayError
    from dray_airflow.triggers.watching import Watch

__all__ = ["DrayTransferTrigger"]

SETTLE_SECONDS = 5.0
"""Minimum time in seconds between the deferral and the event of the trigger.

If the event comes earlier, the scheduler may not have seen the deferral yet, and then it fails the
task. This was seen in one of two runs at 3 s (Airflow 3.3.2 with PostgreSQL).
"""

AWAY_PAUSE_SECONDS = 2.0
"""Seconds between two checks of an unreachable endpoint. Each check also retries its call."""
LOOK_SECONDS = 5.0
"""Seconds between two log lines about a waiting transfer."""
#: Keeps references, because a task without a reference may be collected before its end.
_ENDINGS: set[asyncio.Task[None]] = set()


class DrayTransferTrigger(OfFields, BaseTrigger):
    """Fires when a transfer has ended, or when it cannot be queried.

    :param dray_conn_id: connection of the endpoint that drives the transfer.
    :param transfer_id: id of the transfer.
    :param mark: label of the try that waits (see :mod:`dray_airflow.submission`). With an empty
        mark, the trigger never cancels the transfer.
    :param settle_seconds: minimum time between the start of the trigger and its event.
    :param is_awaited: wait even if no transfer has this id yet.
    :param patience_seconds: time for which the trigger retries if the endpoint refuses the token,
        or if the connection cannot be read. The job that renews the token may be late.
    """

    FIELDS = (
        "dray_conn_id",
        "transfer_id",
        "mark",
        "settle_seconds",
        "is_awaited",
        "patience_seconds",
    )

    def __init__(
        self,
        dray_conn_id: str,
        transfer_id: str,
        mark: str = "",
        settle_seconds: float = SETTLE_SECONDS,
        is_awaited: bool = False,
        patience_seconds: float = 0.0,
    ) -> None:
        """Store the arguments."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.dray_conn_id = dray_conn_id
        self.transfer_id = transfer_id
        self.mark = mark
        self.settle_seconds = settle_seconds
        self.is_awaited = is_awaited
        self.patience_seconds = patience_seconds

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait for the end of the transfer and fire once.

        Restarts of the endpoint do not end the wait.
        """
        begun = time.monotonic()
        words: dict[str, Any] = {
            "dray_conn_id": self.dray_conn_id,
            "transfer_id": self.transfer_id,
        }
        words.update(await self._outcome())
        await asyncio.sleep(max(0.0, begun + self.settle_seconds - time.monotonic()))
        yield TriggerEvent(words)  # type: ignore[no-untyped-call]

    async def _outcome(self) -> dict[str, Any]:
        from dray.errors import DrayError
        from dray_airflow.errors import DrayTaskFailure

        watch = watch_of(self.dray_conn_id)
        try:
            transfer = await self._ended(watch)
        except DrayTaskFailure as error:
            return {"error": str(error), "kind": error.kind}
        except DrayError as error:
            return self._failed(error)
        return {"state": transfer.state}

    async def _ended(self, watch: Watch) -> Transfer:
        """Wait for the end, and log the reason for which the transfer waits."""
        from dray_airflow.stories import waits_for

        ended = asyncio.ensure_future(
            watch.ended(
                self.transfer_id,
                is_awaited=self.is_awaited,
                patience_seconds=self.patience_seconds,
            )
        )
        said: str | None = None
        try:
            while True:
                await asyncio.wait({ended}, timeout=LOOK_SECONDS)
                if ended.done():
                    return ended.result()
                seen = watch.seen(self.transfer_id)
                why = None if seen is None else waits_for(seen)
                if why != said and seen is not None:
                    self.log.info("transfer %s %s", self.transfer_id, why or "moves")
                    said = why
        finally:
            ended.cancel()

    def _failed(self, error: DrayError) -> dict[str, Any]:
        self.log.warning("transfer %s cannot be waited for: %s", self.transfer_id, error)
        return {"error": error.message, "kind": error.kind}

    async def on_kill(self) -> None:
        """Cancel the transfer because a user has ended the task. Durable data is kept.

        If a later try has attached to the transfer, the transfer continues. If the endpoint is
        unreachable, the trigger retries for the connection's ``outage_seconds``.
        """
        if not self.mark:
            return
        ending = asyncio.create_task(self._end())
        _ENDINGS.add(ending)
        ending.add_done_callback(_ENDINGS.discard)
        # Shield ``ending``, so that the cancellation of the transfer continues in the background.
        # The triggerer cancels this coroutine about one second later, at its next check for ended
        # triggers (seen in Airflow 3.3.2, with every value of on_kill_timeout).
        await asyncio.shield(ending)

    async def _end(self) -> None:
        from dray.errors import DrayError
        from dray_airflow.errors import DrayTaskFailure
        from dray_airflow.submission import cancel_own_async

        hook, gate = DrayHook(self.dray_conn_id), watch_of(self.dray_conn_id).gate
        begun = time.monotonic()
        while True:
            try:
                async with gate, await hook.get_async_conn() as client:
                    said = await cancel_own_async(client, self.transfer_id, self.mark)
            except (DrayError, DrayTaskFailure) as error:
                is_over = (
                    isinstance(error, DrayTaskFailure)
                    # An expired token may be renewed, so it is retried like an unreachable
                    # endpoint.
                    or (error.status == "permanent" and error.kind != "unauthorized")
                    or time.monotonic() - begun >= hook.settings.outage_seconds
                )
                if is_over:
                    self.log.warning(
                        "transfer %s continues, because it could not be cancelled: %s",
                        self.transfer_id,
                        error,
                    )
                    return
            else:
                self.log.info("transfer %s: %s", self.transfer_id, said)
                return
            await asyncio.sleep(AWAY_PAUSE_SECONDS)

    async def cleanup(self) -> None:
        """Do not touch the transfer, because Airflow calls this also when a triggerer stops."""
