"""The common base class of all operators that submit a transfer and wait for it.

The task first waits itself, for as long as a short transfer takes. Then the task defers, and the
triggerer waits. The task reads the result from the endpoint, and not from the trigger.

Invariant owned here: if a task ends, its transfer ends at most ``bound_seconds`` later. This value
is the time after which the endpoint cancels a transfer that no process has queried. Each waiting
process queries the transfer, and each query starts the time again. If no process waits any more
(for example, a task was ended before its trigger started, or the triggerer is down), the endpoint
cancels the transfer.
"""

from __future__ import annotations

import contextlib
import functools
import time
from abc import abstractmethod
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseOperator

from dray_airflow import values
from dray_airflow.errors import (
    DrayTaskFailure,
    DrayTaskRetry,
    bad_input,
    is_unattended,
    of_error,
    of_transfer,
    translated,
)
from dray_airflow.hooks.dray import DrayHook
from dray_airflow.identity import key_of, transfer_id
from dray_airflow.links.transfer import DrayTransferLink, page_of, publish
from dray_airflow.stories import story
from dray_airflow.submission import Clients, begin
from dray_airflow.version_compat import (
    TaskDeferralTimeout,
    default_deferrable,
    task_state,
    task_state_store,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from airflow.sdk import BaseSensorOperator, Context

    from dray.client import Client, FileOutcome, Transfer
    from dray_airflow.deadlines.dag import TaskDeadline
    from dray_airflow.hooks.dray import Settings
    from dray_airflow.submission import Wish
    from dray_airflow.triggers.transfer import DrayTransferTrigger

__all__ = [
    "WaitingOperator",
    "check_choice",
    "reserved_submit",
    "some_failures",
    "story",
    "time_allowed",
]

GRACE_SECONDS = 30.0
"""Time in seconds for which the task waits before it defers.

A deferral to the triggerer takes about six seconds (measured, Airflow 3.3.2, two cores).
"""
LOG_SECONDS = 60.0
"""Seconds between two log lines of a task that waits in its own process."""
AWAY_PAUSE_SECONDS = 2.0
"""Seconds between two checks of an unreachable endpoint. Each check also retries its call."""
BOUND_SECONDS = 900
"""Minimum bound in seconds, after which the endpoint cancels a transfer that no caller asks for.

Airflow treats a task as dead after 300 s without a heartbeat, and a triggerer may have to be
restarted on another host. The value is estimated, not measured.
"""
BOUND_RETRY_DELAY_MAX = timedelta(hours=1)
"""Maximum part of a task's ``retry_delay`` that is added to the bound.

With this addition the transfer continues until the next try attaches to it.
"""
FAILURES_LOOKED_AT_MAX = 1000
UNREPORTED_KEY = "dray_unreported"
ENDED_STATES = frozenset({"failed", "success", "skipped", "removed"})
"""States to which a user, or the time limit of the run, can set a task that is still running."""


class WaitingOperator(BaseOperator):
    """A base class that submits a transfer and waits for it.

    :param deferrable: wait in the triggerer and free the worker. The default is ``[operators]
        default_deferrable`` if it is set, otherwise ``True``.
    :param grace_seconds: time for which the task itself waits before it defers.
    :param bound_seconds: time after which the endpoint cancels the transfer if no caller has
        queried it. Durable data is kept. The default is 900 (or the connection's
        ``outage_seconds``, if that is longer) plus the task's ``retry_delay`` (at most an hour).
        With 0, the transfer continues when the task ends.
    """

    is_dray_transfer: ClassVar[bool] = True
    #: Name of the request in the log.
    asked_for: ClassVar[str] = "transfer"
    #: Arguments of derived operators that this class uses.
    deadline: datetime | timedelta | str | None
    transfer_id: str | None
    operator_extra_links = (DrayTransferLink(),)

    def __init__(
        self,
        *,
        deferrable: bool | None = None,
        grace_seconds: float = GRACE_SECONDS,
        bound_seconds: timedelta | float | None = None,
        **kwargs: Any,  # noqa: ANN401 - as Airflow's own operators
    ) -> None:
        """Store the common arguments. They are not checked yet."""
        super().__init__(**kwargs)
        self.deferrable = default_deferrable() if deferrable is None else deferrable
        self.grace_seconds = grace_seconds
        self.bound_seconds = bound_seconds
        #: Start of this try, before all its deferrals.
        self._begun_at: datetime | None = None
        #: True if the endpoint has accepted this task's token before.
        self._was_believed = False
        #: Connection, id and mark of this task's transfer, for :meth:`on_kill`.
        self._begun: tuple[str, str, str] | None = None
        self._is_told_to_end = False
        #: URL for the link on the task's page.
        self.transfer_url = ""

    # --- for derived operators --------------------------------------------------------------------

    @property
    @abstractmethod
    def active_conn_id(self) -> str:
        """The connection of the called endpoint, with templates rendered."""

    @abstractmethod
    def _wish(self, context: Context, settings: Settings) -> Wish:
        """Return the current request, with the deadline that follows from the run's deadline.

        :param settings: settings of the called endpoint.
        :raises DrayTaskFailure: if a field is invalid. The message names the field.
        """

    @abstractmethod
    def _complete(
        self, context: Context, client: Client, settings: Settings, transfer: Transfer
    ) -> Any:  # noqa: ANN401 - the XCom
        """Return the task's result for a transfer that has ended.

        :raises DrayTaskFailure: or :class:`DrayTaskRetry`, if the transfer has failed.
        """

    # --- calls ------------------------------------------------------------------------------------

    def _id(self, context: Context, settings: Settings, given: str | None = None) -> str:
        if not values.is_empty(given):
            return values.text("transfer_id", given)
        return transfer_id(*key_of(context), namespace=settings.namespace)

    def _remember(self, context: Context, settings: Settings, id: str) -> None:
        """Store the transfer to cancel if the task is killed, and the target of the link."""
        self._begun = (settings.conn_id, id, str(context["ti"].id))
        self.transfer_url = settings.link_to(id) or page_of(key_of(context))
        store = task_state_store(context)
        if store is None:
            return
        try:
            # Only for users. The endpoint has the state of the transfer, and the id can be derived.
            store.set("dray_transfer", {"id": id, "endpoint": settings.url})
        except Exception as error:
            self.log.warning("cannot store transfer %s for the task's page: %s", id, error)

    # An attempt of the transfer is unreported if a try of the task has started it, and no try has
    # reported its end yet. The next three methods read, store and remove the unreported attempt. A
    # retry uses the result of this attempt. If a user clears a task that has reported the end,
    # there is no unreported attempt, so the endpoint checks all files again. Without Airflow's
    # store, every try checks all files again.

    def _unreported(self, context: Context, wish: Wish) -> int | None:
        """Return the attempt for this request that earlier tries have started and not reported."""
        from dray_airflow.submission import fingerprint

        store = task_state_store(context)
        if store is None:
            return None
        try:
            found = store.get(UNREPORTED_KEY)
        except Exception as error:
            self.log.warning("cannot read the attempt, so a done transfer starts again: %s", error)
            return None
        if not isinstance(found, dict) or found.get("id") != wish.id:
            return None
        attempt = found.get("attempt")
        is_same = found.get("body") == fingerprint(wish)
        return attempt if is_same and isinstance(attempt, int) else None

    def _note(self, context: Context, wish: Wish, transfer: Transfer) -> None:
        """Store the attempt of this try for later tries."""
        from dray_airflow.submission import fingerprint

        store = task_state_store(context)
        if store is None:
            return
        words = {"id": wish.id, "body": fingerprint(wish), "attempt": transfer.attempt}
        try:
            store.set(UNREPORTED_KEY, words)
        except Exception as error:
            self.log.warning(
                "cannot store the attempt, so a later retry starts the transfer again: %s", error
            )

    def _forget(self, context: Context) -> None:
        """Remove the stored attempt.

        If a user then clears the task, the next try makes the endpoint check all files again.
        """
        store = task_state_store(context)
        if store is None:
            return
        try:
            store.delete(UNREPORTED_KEY)
        except Exception as error:
            words = "cannot remove the stored attempt, so after a clear no file is checked: %s"
            self.log.warning(words, error)

    def _end_if_told(self, context: Context, id: str) -> None:
        """Cancel the transfer if a user has ended the task and the task has had no heartbeat since.

        Airflow does not accept a deferral of such a task, so no other code would cancel the
        transfer.
        """
        state = task_state(context)
        if state in ENDED_STATES:
            self.on_kill()
            raise DrayTaskFailure(f"transfer {id} is cancelled: the task was marked {state}")

    def _wait(
        self, context: Context, client: Client, settings: Settings, transfer: Transfer
    ) -> Transfer:
        """Wait in this process. If the task is deferrable, defer after ``grace_seconds``.

        :raises DrayTaskRetry: if ``execution_timeout`` has passed. The transfer is then cancelled.
        """
        id = transfer.id
        if self.deferrable:
            left = self._seconds_left()
            grace = self.grace_seconds if left is None else min(self.grace_seconds, left)
            ended = self._wait_for(client, settings, transfer, grace)
            if ended is None:
                self._end_if_told(context, id)
                left = self._seconds_left()
                if left is not None and left <= 0:
                    raise self._timed_out()
                self.log.info("transfer %s continues; the triggerer waits for it", id)
                self.defer(
                    trigger=self._trigger(settings, id),
                    method_name="execute_complete",
                    # ``execution_timeout`` limits the task as a whole, so each deferral gets only
                    # the time that is left.
                    timeout=None if left is None else timedelta(seconds=left),
                    kwargs={"begun_at": self._begun_at.isoformat() if self._begun_at else None},
                )
            return ended
        while True:
            ended = self._wait_for(client, settings, transfer, LOG_SECONDS)
            if ended is not None:
                return ended
            transfer = self._look_for(client, settings, id)
            self.log.info("transfer %s: %s", id, story(transfer))
            publish(context, settings, transfer)

    def _wait_for(
        self, client: Client, settings: Settings, transfer: Transfer, seconds: float
    ) -> Transfer | None:
        """Wait at most ``seconds`` for the end of a transfer.

        Return ``None`` if the transfer still runs or its endpoint is unreachable.
        """
        from dray.errors import DrayError

        if transfer.is_terminal:
            return transfer
        if seconds <= 0:
            return None
        try:
            return client.wait(transfer.id, timeout_seconds=seconds)
        except DrayError as error:
            if error.status == "permanent" and error.kind != "unauthorized":
                raise of_error(error, settings.about(f"transfer {transfer.id}")) from None
            if error.kind != "timed_out":
                self.log.warning("the state of transfer %s is unknown: %s", transfer.id, error)
            return None

    def _look_for(
        self, client: Client, settings: Settings, id: str, *, is_brief: bool = False
    ) -> Transfer:
        """Ask for a transfer, and retry while its endpoint does not answer.

        If the endpoint is unreachable, retry for ``outage_seconds``. If the endpoint refuses the
        token, retry for the time after which the endpoint cancels a transfer that nobody asks for,
        because the job that renews the token may be late.

        :param is_brief: if the endpoint refuses the token, retry for only ``outage_seconds``.
        """
        from dray.errors import DrayError

        lost_at = time.monotonic()
        patience = settings.outage_seconds if is_brief else float(self._bound(settings) or 0)
        while True:
            try:
                return client.transfer(id)
            except DrayError as error:
                lost = time.monotonic() - lost_at
                is_refused = error.kind == "unauthorized"
                is_over = lost >= (patience if is_refused else settings.outage_seconds)
                if is_over or (error.status == "permanent" and not is_refused):
                    raise of_error(error, settings.about(f"transfer {id}"), settings) from None
                if is_refused:
                    self.log.warning("transfer %s continues; its state is unknown: %s", id, error)
            time.sleep(AWAY_PAUSE_SECONDS)

    def _trigger(self, settings: Settings, id: str) -> DrayTransferTrigger:
        from dray_airflow.triggers.transfer import DrayTransferTrigger

        mark = self._begun[2] if self._begun is not None else ""
        return DrayTransferTrigger(
            dray_conn_id=settings.conn_id,
            transfer_id=id,
            mark=mark,
            patience_seconds=float(self._bound(settings) or BOUND_SECONDS),
        )

    def _bound(self, settings: Settings) -> int | None:
        """Return the seconds without a query after which an endpoint cancels the transfer.

        :returns: the time, or ``None`` if the endpoint never cancels it.
        """
        given = values.seconds("bound_seconds", self.bound_seconds)
        if given is not None:
            return given or None
        delay = values.seconds("retry_delay", min(self.retry_delay, BOUND_RETRY_DELAY_MAX))
        outage = values.seconds("outage_seconds", settings.outage_seconds)
        return max(BOUND_SECONDS, outage or 0) + (delay or 0)

    # --- time limits ------------------------------------------------------------------------------

    def _seconds_left(self) -> float | None:
        """Return the seconds that ``execution_timeout`` leaves for this try.

        ``None`` means no limit.
        """
        limit: timedelta | None = self.execution_timeout
        if limit is None or self._begun_at is None:
            return None if limit is None else limit.total_seconds()
        return (self._begun_at + limit - datetime.now(timezone.utc)).total_seconds()

    def _timed_out(self) -> DrayTaskRetry:
        """Cancel the transfer, and return the error with which the task fails."""
        self.on_kill()
        within: timedelta | None = self.execution_timeout
        return DrayTaskRetry(
            f"the transfer did not end within execution_timeout ({within}); durable data is "
            "kept, and a retry resumes",
            "timed_out",
        )

    def _time_left(self, context: Context) -> TaskDeadline | None:
        """Return the deadline of the transfer, derived from the deadline of the DAG run.

        Return ``None`` if the task has its own deadline, or if the run has none.
        """
        if not values.is_empty(self.deadline):
            return None
        from dray_airflow.deadlines.dag import deadline_for

        found = deadline_for(context)
        if found is not None:
            self.log.info("deadline of the run: %s", found.why)
        return found

    # --- called by Airflow ------------------------------------------------------------------------

    def execute(self, context: Context) -> Any:  # noqa: ANN401 - as Airflow's own operators
        """Submit the transfer or resume it, and wait for its end.

        :raises DrayTaskFailure: for a permanent error.
        :raises DrayTaskRetry: for other errors.
        """
        self._begun_at = datetime.now(timezone.utc)
        with self._believed():
            return self._ask(context)

    def _ask(self, context: Context) -> Any:  # noqa: ANN401 - the XCom
        settings = DrayHook(self.active_conn_id).settings
        wish = self._wish(context, settings)
        with Clients() as clients:
            self._remember(context, settings, wish.id)
            unreported = self._unreported(context, wish)
            self._was_believed = self._was_believed or unreported is not None
            begun = begin(wish, clients, unreported)
            self._was_believed = True
            client = clients.of(wish.conn_id)
            while True:
                self._note(context, wish, begun.transfer)
                self.log.info(
                    "%s %s %s at %s: %s",
                    self.asked_for,
                    wish.id,
                    begun.story,
                    settings.url,
                    story(begun.transfer),
                )
                publish(context, settings, begun.transfer)
                ended = self._wait(context, client, settings, begun.transfer)
                if not is_unattended(ended) or self._is_told_to_end:
                    break
                self._log_unattended(wish.id)
                begun = begin(wish, clients)
            publish(context, settings, ended)
            result = self._complete(context, client, settings, ended)
            self._forget(context)
            return result

    def _log_unattended(self, id: str) -> None:
        self.log.warning(
            "transfer %s was cancelled because no caller asked the endpoint about it within"
            " bound_seconds; it starts again and resumes; check that the triggerer runs",
            id,
        )

    @contextlib.contextmanager
    def _believed(self) -> Iterator[None]:
        """Treat a refused token as a temporary error if the endpoint has accepted this task."""
        try:
            yield
        except DrayTaskFailure as error:
            if error.kind != "unauthorized" or not self._was_believed:
                raise
            raise DrayTaskRetry(
                f"{error}; the transfer continues, and a retry attaches to it", error.kind
            ) from None

    def execute_complete(
        self, context: Context, event: Mapping[str, Any], begun_at: str | None = None
    ) -> Any:  # noqa: ANN401 - as Airflow's own operators
        """Continue after the trigger has fired, and read the result from the endpoint.

        :param event: connection and id of the transfer.
        :param begun_at: start of the try, before its deferral.
        """
        self._begun_at = _time(begun_at) or getattr(context["ti"], "start_date", None)
        self._was_believed = True
        with self._believed():
            transfer = self._after_trigger(context, event)
            if is_unattended(transfer):
                self._log_unattended(transfer.id)
                return self._ask(context)
            hook = DrayHook(str(event["dray_conn_id"]))
            publish(context, hook.settings, transfer)
            with hook.get_conn() as client:
                result = self._complete(context, client, hook.settings, transfer)
            self._forget(context)
            return result

    def _after_trigger(self, context: Context, event: Mapping[str, Any]) -> Transfer:
        """Return the ended transfer for which the trigger has waited."""
        hook = DrayHook(str(event["dray_conn_id"]))
        id = str(event["transfer_id"])
        self._remember(context, hook.settings, id)
        with hook.get_conn() as client:
            if "error" in event:
                # No retries here, because the trigger has already waited for the endpoint.
                with translated(hook.settings.about(f"transfer {id}"), hook.settings):
                    transfer = client.transfer(id)
            else:
                transfer = self._look_for(client, hook.settings, id, is_brief=True)
        if not transfer.is_terminal:
            # Either the trigger gave up, or another caller has started the transfer again. The next
            # try attaches to the transfer.
            message = event.get("error") or f"it is {transfer.state} again"
            raise DrayTaskRetry(f"transfer {id}: {message}", str(event.get("kind", "other")))
        return transfer

    def _check(self, client: Client, transfer: Transfer) -> None:
        """Raise an error if the transfer has not succeeded."""
        for notice in transfer.notices:
            self.log.warning("transfer %s: %s", transfer.id, notice)
        if transfer.state == "cancelled" and self._is_told_to_end:
            # Retry, because the task may have been ended for a reason that does not concern the
            # transfer. For example, the tasks of a host that is drained are ended. If a user has
            # ended the task, Airflow makes no retry.
            raise DrayTaskRetry(
                f"transfer {transfer.id} was cancelled because this task was ended; durable "
                "data is kept, and a retry resumes",
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
        """Cancel the transfer, unless a later try has attached to it. Durable data is kept."""
        from dray_airflow.submission import cancel_own

        self._is_told_to_end = True
        if self._begun is None:
            return
        conn_id, id, mark = self._begun
        try:
            # A separate client, because this method may interrupt a call of the task's client.
            with DrayHook(conn_id).get_conn() as client:
                said = cancel_own(client, id, mark)
        except Exception as error:
            self.log.warning(
                "transfer %s continues, because it could not be cancelled: %s", id, error
            )
        else:
            self.log.info("transfer %s: %s", id, said)

    def resume_execution(
        self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context
    ) -> Any:  # noqa: ANN401 - as Airflow has it
        """Continue after a deferral.

        If the deferral exceeded ``execution_timeout``, cancel the transfer.
        """
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except TaskDeferralTimeout:
            self._recall(context)
            raise self._timed_out() from None

    def _recall(self, context: Context) -> None:
        """Restore the id of this task's transfer in another process."""
        settings = DrayHook(self.active_conn_id).settings
        self._remember(context, settings, self._id(context, settings, self.transfer_id))


def _time(text: str | None) -> datetime | None:
    """Read a time that was stored before a deferral."""
    return None if text is None else datetime.fromisoformat(text)


def time_allowed(sensor: BaseSensorOperator) -> timedelta:
    """Return the maximum deferral of a sensor.

    It is the smaller of ``timeout`` and ``execution_timeout``.
    """
    limits = [timedelta(seconds=sensor.timeout), sensor.execution_timeout]
    return min(limit for limit in limits if limit is not None)


def some_failures(client: Client, id: str) -> list[FileOutcome]:
    """Return some of the failed files of a transfer. There may be a million failed files."""
    found = []
    for outcome in client.files(id, state="failed"):
        found.append(outcome)
        if len(found) >= FAILURES_LOOKED_AT_MAX:
            break
    return found


def reserved_submit(context: Context, settings: Settings) -> Callable[..., Transfer]:
    """Return a function that submits a transfer or a staged copy in place of its reservation.

    If the submission is refused because of reservations of ended runs, the function cancels these
    reservations, and submits again.
    """
    from dray_airflow.reservations import (
        ended_runs,
        is_reserved,
        submit_past_ended,
        submit_reserved,
    )

    submit = submit_reserved if is_reserved(context) else submit_past_ended
    return functools.partial(submit, is_ended=ended_runs(context, settings.namespace))


def check_choice(name: str, value: str | None, choices: Sequence[str]) -> None:
    """Check that the argument ``name`` is None or one of the choices.

    :raises DrayTaskFailure: if the argument has another value.
    """
    if value is not None and value not in choices:
        raise bad_input(
            f"use {name}",
            f"{value!r} is not an allowed value",
            f"write one of {', '.join(choices)}",
        )
