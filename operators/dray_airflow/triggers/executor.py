"""The trigger that waits for a task of an executor, such as Globus.

The trigger only polls. It cancels the task in one case: if a user ends the deferred Airflow task.
"""

from __future__ import annotations

import asyncio
import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from dray_airflow.triggers.fields import OfFields
from dray_airflow.triggers.transfer import SETTLE_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dray.executors import Executor

__all__ = ["DrayExecutorTrigger"]


class DrayExecutorTrigger(OfFields, BaseTrigger):
    """Fires when a task has ended, when its deadline has passed, or when it cannot be queried.

    :param scheme: scheme of the executor.
    :param conn_id: connection with the settings of the executor.
    :param remote_id: id of the task at the service.
    :param deadline: time at which the trigger fires even if the task still runs.
    :param poll_seconds: time between two queries.
    :param settle_seconds: minimum time between the start of the trigger and its event.
    """

    FIELDS = ("scheme", "conn_id", "remote_id", "deadline", "poll_seconds", "settle_seconds")

    def __init__(
        self,
        scheme: str,
        conn_id: str,
        remote_id: str,
        deadline: str | None = None,
        poll_seconds: float = 30.0,
        settle_seconds: float = SETTLE_SECONDS,
    ) -> None:
        """Store the arguments."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.scheme = scheme
        self.conn_id = conn_id
        self.remote_id = remote_id
        self.deadline = deadline
        self.poll_seconds = poll_seconds
        self.settle_seconds = settle_seconds

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll until the end of the task, and fire once."""
        begun = time.monotonic()
        words = {"executor": self.scheme, "remote_id": self.remote_id, **await self._outcome()}
        await asyncio.sleep(max(0.0, begun + self.settle_seconds - time.monotonic()))
        yield TriggerEvent(words)  # type: ignore[no-untyped-call]

    async def _outcome(self) -> dict[str, Any]:
        from dray.errors import DrayError
        from dray_airflow.by_executor import OUTAGE_SECONDS
        from dray_airflow.errors import DrayTaskFailure

        lost_at: float | None = None
        while True:
            try:
                executor = await asyncio.to_thread(self._open)
                found = await asyncio.to_thread(executor.transfer, self.remote_id)
            except DrayTaskFailure as error:
                return {"error": str(error), "kind": error.kind}
            except DrayError as error:
                now = time.monotonic()
                lost_at = now if lost_at is None else lost_at
                if error.status == "permanent" or now - lost_at >= OUTAGE_SECONDS:
                    return {"error": error.message, "kind": error.kind}
                self.log.warning("cannot query task %s: %s", self.remote_id, error)
            else:
                lost_at = None
                if found.is_terminal:
                    return {"state": found.state}
            left = self._seconds_left()
            if left is not None and left <= 0:
                return {"state": "late"}
            await asyncio.sleep(self.poll_seconds if left is None else min(self.poll_seconds, left))

    def _open(self) -> Executor:
        from dray_airflow.by_executor import open_at

        return open_at(self.scheme, self.conn_id)

    def _seconds_left(self) -> float | None:
        if self.deadline is None:
            return None
        return (datetime.fromisoformat(self.deadline) - datetime.now(timezone.utc)).total_seconds()

    async def on_kill(self) -> None:
        """Cancel the task because a user has ended the Airflow task."""
        from dray.errors import DrayError

        try:
            executor = await asyncio.to_thread(self._open)
            await asyncio.shield(asyncio.to_thread(executor.cancel, self.remote_id))
        except DrayError as error:
            self.log.warning(
                "cannot cancel task %s, so the task continues: %s", self.remote_id, error
            )
