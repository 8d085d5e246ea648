"""The triggers that wait for rules and datasets of Rucio.

A trigger calls Rucio's client in a thread, because the client blocks. A trigger changes a rule in
only one case: if a user ends the deferred task, the trigger ends the rule that this task has
created.
"""

from __future__ import annotations

import asyncio
import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from dray_airflow import datasets, rules
from dray_airflow.errors import DrayTaskFailure, DrayTaskRetry
from dray_airflow.hooks.rucio import RucioHook
from dray_airflow.triggers.fields import OfFields

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["POLL_SECONDS", "RucioDatasetTrigger", "RucioRuleTrigger"]

POLL_SECONDS = 30.0
"""Default seconds between two checks. A rule changes only when a daemon of Rucio has run."""
SETTLE_SECONDS = 5.0
"""Minimum seconds before the event, as in :mod:`dray_airflow.triggers.transfer`."""


class _Polling(OfFields, BaseTrigger):
    """Checks in a thread until there is an answer. A short outage does not end the wait."""

    rucio_conn_id: str
    poll_seconds: float

    def _check(self, hook: RucioHook, client: Any) -> dict[str, Any] | None:  # noqa: ANN401
        """Return the payload of the event, or ``None`` to check again later."""
        raise NotImplementedError

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Check until there is an answer, and fire once."""
        begun = time.monotonic()
        words = await self._outcome()
        await asyncio.sleep(max(0.0, begun + SETTLE_SECONDS - time.monotonic()))
        yield TriggerEvent(words)  # type: ignore[no-untyped-call]

    async def _outcome(self) -> dict[str, Any]:
        hook = RucioHook(self.rucio_conn_id)
        client: Any = None
        lost_at: float | None = None
        while True:
            try:
                if client is None:
                    # Each new login reads the connection again, because the password may have
                    # been changed.
                    await hook.asettings()
                    client = await asyncio.to_thread(hook.get_conn)
                found = await asyncio.to_thread(self._check, hook, client)
                lost_at = None
            except DrayTaskFailure as error:
                return {"error": str(error), "kind": error.kind, "status": "permanent"}
            except DrayTaskRetry as error:
                client = None
                now = time.monotonic()
                lost_at = now if lost_at is None else lost_at
                if now - lost_at >= hook.settings.outage_seconds:
                    return {"error": str(error), "kind": error.kind, "status": "temporary"}
                self.log.warning(
                    "Rucio does not answer, and the trigger continues to wait: %s", error
                )
            else:
                if found is not None:
                    return found
            await asyncio.sleep(self.poll_seconds)


class RucioRuleTrigger(_Polling):
    """Fires when a rule is OK, suspended, or stuck for too long, or when it cannot be read.

    :param rucio_conn_id: connection of the Rucio server.
    :param rule_id: id of the rule.
    :param poll_seconds: time between two checks.
    :param stuck_seconds: time for which the rule may be stuck.
    :param begun_at: begin of the try, RFC 3339.
    :param try_id: Airflow's id of the try that created the rule. If a user ends the task, the
        trigger ends the rule of this try. With an empty id, the trigger never ends the rule.
    """

    FIELDS = ("rucio_conn_id", "rule_id", "poll_seconds", "stuck_seconds", "begun_at", "try_id")

    def __init__(
        self,
        rucio_conn_id: str,
        rule_id: str,
        poll_seconds: float = POLL_SECONDS,
        stuck_seconds: float = 0.0,
        begun_at: str | None = None,
        try_id: str = "",
    ) -> None:
        """Store the arguments."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.rucio_conn_id = rucio_conn_id
        self.rule_id = rule_id
        self.poll_seconds = poll_seconds
        self.stuck_seconds = stuck_seconds
        self.begun_at = begun_at or datetime.now(timezone.utc).isoformat()
        self.try_id = try_id
        self._said = ""

    def _check(self, hook: RucioHook, client: Any) -> dict[str, Any] | None:  # noqa: ANN401
        rule = rules.rule_of(client, hook.settings, self.rule_id)
        story = rules.story_of(rule)
        if story != self._said:
            self.log.info("%s", story)
            self._said = story
        begun_at = datetime.fromisoformat(self.begun_at)
        if not rules.is_settled(rule, begun_at, self.stuck_seconds):
            return None
        return {"rule_id": self.rule_id, "state": rule["state"]}

    async def on_kill(self) -> None:
        """End the rule because a user has ended the task, if the task has created the rule."""
        if not self.try_id:
            return
        hook = RucioHook(self.rucio_conn_id)

        def end() -> str:
            return rules.cancel_own_rule(hook.get_conn(), hook.settings, self.rule_id, self.try_id)

        await hook.asettings()
        try:
            # The thread continues if the triggerer cancels this coroutine.
            said = await asyncio.shield(asyncio.to_thread(end))
        except (DrayTaskFailure, DrayTaskRetry) as error:
            self.log.warning("cannot end rule %s, so the rule continues: %s", self.rule_id, error)
        else:
            self.log.info("rule %s %s", self.rule_id, said)


class RucioDatasetTrigger(_Polling):
    """Fires when a dataset is complete at enough RSEs, or when Rucio cannot be queried.

    :param rucio_conn_id: connection of the Rucio server.
    :param did: ``SCOPE:NAME`` of the dataset.
    :param rse_expression: RSEs at which the trigger looks for the files.
    :param copies: required number of RSEs with all files.
    :param is_closed_required: wait until the dataset is closed, so that it can get no more files.
    :param poll_seconds: time between two checks.
    """

    FIELDS = (
        "rucio_conn_id",
        "did",
        "rse_expression",
        "copies",
        "is_closed_required",
        "poll_seconds",
    )

    def __init__(
        self,
        rucio_conn_id: str,
        did: str,
        rse_expression: str,
        copies: int = 1,
        is_closed_required: bool = False,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        """Store the arguments."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.rucio_conn_id = rucio_conn_id
        self.did = did
        self.rse_expression = rse_expression
        self.copies = copies
        self.is_closed_required = is_closed_required
        self.poll_seconds = poll_seconds

    def _check(self, hook: RucioHook, client: Any) -> dict[str, Any] | None:  # noqa: ANN401
        scope, name = datasets.split_did(self.did)
        found = datasets.completeness_of(client, hook.settings, scope, name, self.rse_expression)
        if not found.is_enough(self.copies, is_closed_required=self.is_closed_required):
            return None
        return found.result()
