"""Waits for a transfer, in the triggerer.

A pure waiter: it may run twice, or again after the triggerer was killed, and changes nothing. Only
when a user ends the deferred task the transfer is cancelled, and what is safe is kept; when the
triggerer stops it goes on.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from dray_airflow.hooks.dray import DrayHook

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dray.errors import DrayError

__all__ = ["DrayTransferTrigger"]

SETTLE_SECONDS = 5.0
"""A trigger that fires sooner after the deferral can meet a scheduler that has not seen the
deferral yet and fails the task (one of two runs at 3 s, Airflow 3.3.2 with PostgreSQL)."""


class DrayTransferTrigger(BaseTrigger):
    """Fires when a transfer has ended, or cannot be asked for.

    :param dray_conn_id: connection of the endpoint that carries it.
    :param transfer_id: which one.
    :param mark: the try that waits; see :mod:`dray_airflow.submission`. Empty: never cancels.
    :param settle_seconds: fire no sooner than so long after the start.
    :param is_awaited: wait also while there is no transfer of that id.
    :param poll_seconds: between looks whether there is one.
    """

    def __init__(
        self,
        dray_conn_id: str,
        transfer_id: str,
        mark: str = "",
        settle_seconds: float = SETTLE_SECONDS,
        is_awaited: bool = False,
        poll_seconds: float = 15.0,
    ) -> None:
        """Remember what to wait for."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.dray_conn_id = dray_conn_id
        self.transfer_id = transfer_id
        self.mark = mark
        self.settle_seconds = settle_seconds
        self.is_awaited = is_awaited
        self.poll_seconds = poll_seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Give what makes another one like it, in any triggerer."""
        return (
            "dray_airflow.triggers.transfer.DrayTransferTrigger",
            {
                "dray_conn_id": self.dray_conn_id,
                "transfer_id": self.transfer_id,
                "mark": self.mark,
                "settle_seconds": self.settle_seconds,
                "is_awaited": self.is_awaited,
                "poll_seconds": self.poll_seconds,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, through restarts of the endpoint; fire once."""
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

        hook = DrayHook(self.dray_conn_id)
        while True:
            try:
                client = await hook.get_async_conn()
                async with client:
                    transfer = await client.wait(self.transfer_id)
            except DrayTaskFailure as error:
                return {"error": str(error), "kind": error.kind}
            except DrayError as error:
                if error.kind == "not_found" and self.is_awaited:
                    await asyncio.sleep(self.poll_seconds)
                    continue
                if error.kind == "unauthorized" and await self._is_renewed(hook):
                    continue
                return self._failed(error)
            return {"state": transfer.state}

    async def _is_renewed(self, hook: DrayHook) -> bool:
        """Whether the connection has another token by now than the one that was refused."""
        refused = hook.settings.token
        return (await hook.asettings()).token != refused

    def _failed(self, error: DrayError) -> dict[str, Any]:
        self.log.warning("transfer %s cannot be waited for: %s", self.transfer_id, error)
        return {"error": error.message, "kind": error.kind}

    async def on_kill(self) -> None:
        """Cancel the transfer and keep what is safe: a user has ended the task.

        Not when a later try goes on with it already.
        """
        from dray_airflow.submission import cancel_own_async

        if not self.mark:
            return
        client = await DrayHook(self.dray_conn_id).get_async_conn()
        async with client:
            said = await cancel_own_async(client, self.transfer_id, self.mark)
        self.log.info("transfer %s: %s", self.transfer_id, said)

    async def cleanup(self) -> None:
        """Leave the transfer alone: this is called whenever a triggerer stops, too."""
