"""What all operators share that ask an endpoint for a transfer and wait for it.

First the task waits itself, for as long as a short transfer takes; then the triggerer does. What
became of the transfer the task asks the endpoint, not the trigger.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseOperator

from dray_airflow import values
from dray_airflow.errors import (
    DrayTaskFailure,
    DrayTaskRetry,
    bad_input,
    of_error,
    of_transfer,
    translated,
)
from dray_airflow.hooks.dray import DrayHook
from dray_airflow.identity import key_of, transfer_id
from dray_airflow.links.transfer import DrayTransferLink
from dray_airflow.submission import Clients, begin
from dray_airflow.version_compat import TaskDeferralTimeout, task_state, task_state_store

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime, timedelta

    from airflow.sdk import Context

    from dray.client import Client, FileOutcome, Transfer
    from dray_airflow.deadlines.dag import TaskDeadline
    from dray_airflow.hooks.dray import Settings
    from dray_airflow.submission import Submit, Wish
    from dray_airflow.triggers.transfer import DrayTransferTrigger

__all__ = [
    "WaitingOperator",
    "check_choice",
    "reserved_submit",
    "some_failures",
    "story",
]

GRACE_SECONDS = 30.0
"""Waited in the task before it is handed to the triggerer, which costs about six seconds
(measured, Airflow 3.3.2, two cores)."""
TELL_SECONDS = 60.0
AWAY_PAUSE_SECONDS = 2.0
"""Between looks for an endpoint that is away; each look has tries of its own."""
FAILURES_LOOKED_AT_MAX = 1000
UNREPORTED_KEY = "dray_unreported"
ENDED_STATES = frozenset({"failed", "success", "skipped", "removed"})
"""Of a task that still runs: by a user, or because its run's time is over."""


class WaitingOperator(BaseOperator):
    """Asks for a transfer and waits for it; a base, no operator of its own.

    :param deferrable: hand the waiting to the triggerer, so that no worker is held.
    :param grace_seconds: how long the task waits itself before that.
    """

    is_dray_transfer: ClassVar[bool] = True
    #: what is asked for, in the log
    asked_for: ClassVar[str] = "transfer"
    #: those of the operators' own arguments that are used here
    deadline: datetime | timedelta | str | None
    transfer_id: str | None
    operator_extra_links = (DrayTransferLink(),)

    def __init__(
        self,
        *,
        deferrable: bool = True,
        grace_seconds: float = GRACE_SECONDS,
        **kwargs: Any,  # noqa: ANN401 - as Airflow's own operators
    ) -> None:
        """Take what is the same for all; nothing is looked at yet."""
        super().__init__(**kwargs)
        self.deferrable = deferrable
        self.grace_seconds = grace_seconds
        #: connection, id and mark of what this task has begun, for :meth:`on_kill`
        self._begun: tuple[str, str, str] | None = None
        self._is_told_to_end = False
        #: for the link on the task's page
        self.transfer_url = ""

    # --- what an operator says --------------------------------------------------------------------

    @property
    @abstractmethod
    def active_conn_id(self) -> str:
        """The connection of the endpoint that is asked, behind templates."""

    @abstractmethod
    def _wish(self, context: Context, settings: Settings) -> Wish:
        """Give what is asked for now, with what the run's deadline leaves of time.

        :param settings: of the endpoint that is asked.
        :raises DrayTaskFailure: if a field makes no sense; the message names it.
        """

    @abstractmethod
    def _complete(
        self, context: Context, client: Client, settings: Settings, transfer: Transfer
    ) -> Any:  # noqa: ANN401 - the XCom
        """Say what the task gives, of a transfer that has ended.

        :raises DrayTaskFailure: or :class:`DrayTaskRetry`, if it has not ended well.
        """

    # --- asking -----------------------------------------------------------------------------------

    def _id(self, context: Context, settings: Settings, given: str | None = None) -> str:
        if not values.is_empty(given):
            return values.text("transfer_id", given)
        return transfer_id(*key_of(context), namespace=settings.namespace)

    def _remember(self, context: Context, settings: Settings, id: str) -> None:
        """Know what to cancel when somebody kills the task, and where its page leads."""
        self._begun = (settings.conn_id, id, str(context["ti"].id))
        self.transfer_url = settings.link_to(id)
        store = task_state_store(context)
        if store is None:
            return
        try:
            # A pointer for people; the truth is at the endpoint, and the id is known without it.
            store.set("dray_transfer", {"id": id, "endpoint": settings.url})
        except Exception as error:
            self.log.warning("the task's page will not lead to transfer %s: %s", id, error)

    # What was begun and not reported yet. A retry takes its end as it is; who clears a task that
    # has reported wants it looked at again. Without the store all is looked at again.

    def _unreported(self, context: Context, wish: Wish) -> int | None:
        """Give the attempt that earlier tries have begun for this wish, and not reported."""
        from dray_airflow.submission import fingerprint

        store = task_state_store(context)
        if store is None:
            return None
        try:
            found = store.get(UNREPORTED_KEY)
        except Exception as error:
            self.log.warning("what earlier tries have begun is not known: %s", error)
            return None
        if not isinstance(found, dict) or found.get("id") != wish.id:
            return None
        attempt = found.get("attempt")
        is_same = found.get("body") == fingerprint(wish)
        return attempt if is_same and isinstance(attempt, int) else None

    def _note(self, context: Context, wish: Wish, transfer: Transfer) -> None:
        """Remember, for later tries, what this one has begun."""
        from dray_airflow.submission import fingerprint

        store = task_state_store(context)
        if store is None:
            return
        words = {"id": wish.id, "body": fingerprint(wish), "attempt": transfer.attempt}
        try:
            store.set(UNREPORTED_KEY, words)
        except Exception as error:
            self.log.warning("a retry after its end would begin it again: %s", error)

    def _forget(self, context: Context) -> None:
        """Let the next try, if somebody clears the task, look again."""
        store = task_state_store(context)
        if store is None:
            return
        try:
            store.delete(UNREPORTED_KEY)
        except Exception as error:
            self.log.warning("the task, if cleared, would take its transfer as it is: %s", error)

    def _end_if_told(self, context: Context, id: str) -> None:
        """End the transfer if a user has ended the task and the heartbeat has not said so yet.

        Airflow takes no deferral of such a task, and nobody would be left to cancel.
        """
        state = task_state(context)
        if state in ENDED_STATES:
            self.on_kill()
            raise DrayTaskFailure(f"transfer {id} is cancelled: the task was marked {state}")

    def _wait(
        self, context: Context, client: Client, settings: Settings, transfer: Transfer
    ) -> Transfer:
        """Wait in this process, at first; then hand over."""
        id = transfer.id
        if self.deferrable:
            ended = self._wait_for(client, settings, transfer, self.grace_seconds)
            if ended is None:
                self._end_if_told(context, id)
                self.log.info("transfer %s goes on; the triggerer waits for it", id)
                self.defer(
                    trigger=self._trigger(settings, id),
                    method_name="execute_complete",
                    timeout=self.execution_timeout,
                )
            return ended
        while True:
            ended = self._wait_for(client, settings, transfer, TELL_SECONDS)
            if ended is not None:
                return ended
            transfer = self._look_for(client, settings, id)
            self.log.info("transfer %s: %s", id, story(transfer))

    def _wait_for(
        self, client: Client, settings: Settings, transfer: Transfer, seconds: float
    ) -> Transfer | None:
        """Wait for so long; ``None``: it goes on, or its endpoint is away, which may be short."""
        from dray.errors import DrayError

        if transfer.is_terminal:
            return transfer
        if seconds <= 0:
            return None
        try:
            return client.wait(transfer.id, timeout_seconds=seconds)
        except DrayError as error:
            if error.status == "permanent":
                raise of_error(error, settings.about(f"transfer {transfer.id}")) from None
            if error.kind != "timed_out":
                self.log.warning("transfer %s cannot be asked for: %s", transfer.id, error)
            return None

    def _look_for(self, client: Client, settings: Settings, id: str) -> Transfer:
        """Look at a transfer; an endpoint that is away is looked for, ``outage_seconds`` long."""
        from dray.errors import DrayError

        lost_at = time.monotonic()
        while True:
            try:
                return client.transfer(id)
            except DrayError as error:
                is_over = time.monotonic() - lost_at >= settings.outage_seconds
                if error.status == "permanent" or is_over:
                    raise of_error(error, settings.about(f"transfer {id}")) from None
            time.sleep(AWAY_PAUSE_SECONDS)

    def _trigger(self, settings: Settings, id: str) -> DrayTransferTrigger:
        from dray_airflow.triggers.transfer import DrayTransferTrigger

        mark = self._begun[2] if self._begun is not None else ""
        return DrayTransferTrigger(dray_conn_id=settings.conn_id, transfer_id=id, mark=mark)

    def _time_left(self, context: Context) -> TaskDeadline | None:
        """Give the deadline of the run, carried back to this task, if it has none of its own."""
        if not values.is_empty(self.deadline):
            return None
        from dray_airflow.deadlines.dag import deadline_for

        found = deadline_for(context)
        if found is not None:
            self.log.info("deadline of the run: %s", found.why)
        return found

    # --- what Airflow calls -----------------------------------------------------------------------

    def execute(self, context: Context) -> Any:  # noqa: ANN401 - as Airflow's own operators
        """Ask for the transfer, or go on with it, and wait.

        :raises DrayTaskFailure: for what will not go away by itself.
        :raises DrayTaskRetry: for the rest.
        """
        settings = DrayHook(self.active_conn_id).settings
        wish = self._wish(context, settings)
        with Clients() as clients:
            self._remember(context, settings, wish.id)
            begun = begin(wish, clients, self._unreported(context, wish))
            self._note(context, wish, begun.transfer)
            self.log.info(
                "%s %s %s at %s: %s",
                self.asked_for,
                wish.id,
                begun.story,
                settings.url,
                story(begun.transfer),
            )
            client = clients.of(wish.conn_id)
            ended = self._wait(context, client, settings, begun.transfer)
            result = self._complete(context, client, settings, ended)
            self._forget(context)
            return result

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """Go on when the trigger has fired: ask the endpoint what became of the transfer.

        :param event: where to ask for what.
        """
        hook = DrayHook(str(event["dray_conn_id"]))
        id = str(event["transfer_id"])
        self._remember(context, hook.settings, id)
        with hook.get_conn() as client:
            if "error" in event:
                # The trigger has waited for the endpoint already.
                with translated(hook.settings.about(f"transfer {id}")):
                    transfer = client.transfer(id)
            else:
                transfer = self._look_for(client, hook.settings, id)
            if not transfer.is_terminal:
                # The trigger gave up, or somebody began it again: the retry attaches to it.
                message = event.get("error") or f"it is {transfer.state} again"
                raise DrayTaskRetry(f"transfer {id}: {message}", str(event.get("kind", "other")))
            result = self._complete(context, client, hook.settings, transfer)
            self._forget(context)
            return result

    def _check(self, client: Client, transfer: Transfer) -> None:
        """Raise what the transfer's end means for the task."""
        for notice in transfer.notices:
            self.log.warning("transfer %s: %s", transfer.id, notice)
        if transfer.state == "cancelled" and self._is_told_to_end:
            # Not somebody's decision about the transfer: a host that is emptied, for instance, ends
            # its tasks. Where a user has ended this one Airflow knows, and makes no retry.
            raise DrayTaskRetry(
                f"transfer {transfer.id} was cancelled because this task was told to end; what is "
                "safe is kept, and a retry goes on from there",
                "cancelled",
            )
        failed: Sequence[FileOutcome] = ()
        if transfer.state == "incomplete":
            with translated(f"transfer {transfer.id}"):
                failed = some_failures(client, transfer.id)
        error = of_transfer(transfer, failed)
        if error is not None:
            raise error

    def on_kill(self) -> None:
        """Cancel the transfer and keep what is safe, unless a later try goes on with it."""
        from dray_airflow.submission import cancel_own

        self._is_told_to_end = True
        if self._begun is None:
            return
        conn_id, id, mark = self._begun
        try:
            # A client of its own: this is called in the middle of whatever the task's does.
            with DrayHook(conn_id).get_conn() as client:
                said = cancel_own(client, id, mark)
        except Exception as error:
            self.log.warning("transfer %s goes on, it could not be cancelled: %s", id, error)
        else:
            self.log.info("transfer %s: %s", id, said)

    def resume_execution(
        self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context
    ) -> Any:  # noqa: ANN401 - as Airflow has it
        """Go on behind a deferral; one that took longer than ``execution_timeout`` is cancelled."""
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except TaskDeferralTimeout:
            self._recall(context)
            self.on_kill()
            within: timedelta | None = self.execution_timeout
            raise DrayTaskRetry(
                f"the transfer did not end within execution_timeout ({within}); what is safe is "
                "kept, and a retry goes on from there",
                "timed_out",
            ) from None

    def _recall(self, context: Context) -> None:
        """Know again, in another process, what this task has begun."""
        settings = DrayHook(self.active_conn_id).settings
        self._remember(context, settings, self._id(context, settings, self.transfer_id))


def some_failures(client: Client, id: str) -> list[FileOutcome]:
    """Give files of a transfer that failed; not all of a million."""
    found = []
    for outcome in client.files(id, state="failed"):
        found.append(outcome)
        if len(found) >= FAILURES_LOOKED_AT_MAX:
            break
    return found


def story(transfer: Transfer) -> str:
    """Say in one line where a transfer stands."""
    words = [f"{transfer.state}", f"{transfer.bytes.durable} of {transfer.bytes.listed} bytes safe"]
    if transfer.rate.now:
        words.append(f"{transfer.rate.now / (1 << 20):.1f} MiB/s")
    if transfer.eta is not None:
        words.append(f"done about {transfer.eta.isoformat(timespec='seconds')}")
    if transfer.miss is not None:
        words.append(f"its deadline will be missed: {transfer.miss.cause}")
    if transfer.state == "paused":
        words.append("somebody has paused it: dray resume lets it go on")
    return ", ".join(words)


def reserved_submit(context: Context) -> Submit | None:
    """Give what submits in the place of a reservation; ``None`` where the DAG makes none."""
    from dray_airflow.operators.admit import is_reserved, submit_reserved

    return submit_reserved if is_reserved(context) else None


def check_choice(name: str, value: str | None, choices: Sequence[str]) -> None:
    """Refuse a word that is none of those there are.

    :raises DrayTaskFailure: for such.
    """
    if value is not None and value not in choices:
        raise bad_input(f"use {name}", f"{value!r} is none", f"write one of {', '.join(choices)}")
