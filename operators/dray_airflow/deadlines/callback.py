"""Find the transfer that makes a run late.

Used by the callback of a deadline alert and by the notifier. The module asks endpoints for the
transfers that have the labels of the run. Endpoints report the promises that they expect to miss,
and the reasons.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Literal

from dray_airflow.deadlines.text import clock, span

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from airflow.sdk.definitions.deadline import DeadlineAlert

    from dray.client import Transfer

__all__ = [
    "RESERVATION_LABEL",
    "Reason",
    "deadline_alerts",
    "find_reason",
    "name_the_reason",
    "transfers_of_run",
]

log = logging.getLogger(__name__)

RESERVATION_LABEL = "airflow.reservation"
"""Label of a placeholder transfer.

:class:`dray_airflow.operators.admit.DrayAdmitOperator` makes placeholders, and they are never
    reported.
"""
TRANSFERS_MAX = 1000


@dataclass(frozen=True, slots=True)
class Reason:
    """The transfer that causes the delay, and the kind of problem.

    :param kind: ``foretold``: the endpoint predicts that the promise will be missed. ``failed``:
        the transfer has failed. ``slow``: the transfer is running, and is expected to end after
        its own deadline or the run's deadline. ``late``: the transfer ended after its deadline.
    :param by_seconds: the current or expected delay in seconds, if known.
    :param text: the whole reason in one line.
    """

    transfer: Transfer
    kind: Literal["foretold", "failed", "slow", "late"]
    by_seconds: float | None
    text: str

    @property
    def task(self) -> str:
        """The task of the transfer. For a mapped task, with the number of the instance."""
        labels = _labels(self.transfer)
        index = labels.get("map_index", "-1")
        name = str(labels.get("task_id", "?"))
        return name if index == "-1" else f"{name}[{index}]"


def find_reason(
    transfers: Iterable[Transfer], now: datetime, deadline: datetime | None = None
) -> Reason | None:
    """Choose the transfer of a run that delays the run most. Pure.

    The function chooses from the first kind in this list that has a transfer. Among transfers of
    one kind, it prefers the transfer with the largest delay.

    1. transfers whose promise will be missed
    2. failed transfers
    3. running transfers that exceed their own deadline or the deadline of the run
    4. transfers that ended after their deadline

    :param now: the current time, with a time zone.
    :param deadline: the deadline of the run, with a time zone.
    """
    found = [
        (rank, -(reason.by_seconds or 0.0), reason.transfer.id, reason)
        for each in transfers
        if RESERVATION_LABEL not in _labels(each)
        for rank, reason in _judge(each, now, deadline)
    ]
    return min(found, key=lambda one: one[:3])[3] if found else None


def _judge(
    transfer: Transfer, now: datetime, run_deadline: datetime | None
) -> list[tuple[int, Reason]]:
    due = _time(transfer.request.get("deadline"))
    miss = transfer.miss
    about = f"transfer {transfer.id} of task {Reason(transfer, 'slow', None, '').task}"
    if miss is not None and not transfer.is_terminal:
        late = _later(miss.earliest_finish, miss.deadline or due)
        text = f"{about} will miss its deadline{_time_text(miss.deadline or due)}: {miss.cause}"
        if miss.earliest_finish is not None:
            text += f"; it can be done at {clock(miss.earliest_finish)} at the earliest"
        return [(0, Reason(transfer, "foretold", late, f"{text}; {_progress(transfer)}"))]
    if transfer.state in {"failed", "incomplete", "cancelled"}:
        cause = transfer.error.message if transfer.error is not None else ""
        if not cause and transfer.failures:
            cause = f"{transfer.files.failed} files failed: {transfer.failures[0].error.message}"
        text = f"{about} is {transfer.state}{': ' if cause else ''}{cause}; {_progress(transfer)}"
        return [(1, Reason(transfer, "failed", _later(now, due), text))]
    if not transfer.is_terminal:
        limit = min((each for each in (due, run_deadline) if each is not None), default=None)
        done_by = max(transfer.eta or now, now)
        if limit is None or done_by <= limit:
            return []
        behind = f"will end after its deadline{_time_text(due)}"
        if due is None or done_by <= due:
            behind = f"will end after the run's deadline{_time_text(run_deadline)}"
        text = f"{about} {behind}; {_progress(transfer)}"
        if transfer.eta is not None:
            text += f", expected end {clock(transfer.eta)}"
        return [(2, Reason(transfer, "slow", _later(done_by, limit), text))]
    if due is not None and transfer.ended_at is not None and transfer.ended_at > due:
        late = _later(transfer.ended_at, due)
        text = f"{about} ended {span(late or 0.0)} after its deadline{_time_text(due)}"
        return [(3, Reason(transfer, "late", late, text))]
    return []


def _later(time: datetime | None, than: datetime | None) -> float | None:
    if time is None or than is None:
        return None
    return (time - than).total_seconds()


def _time_text(time: datetime | None) -> str:
    return "" if time is None else f" {clock(time)}"


def _progress(transfer: Transfer) -> str:
    # The total is unknown until the listing is complete, so the declared size is used if it is
    # larger.
    total = max(transfer.bytes.listed, int(transfer.request.get("bytes_expected") or 0))
    return f"{transfer.bytes.durable / 1e9:.3g} of {total / 1e9:.3g} GB are safe"


def _time(value: object) -> datetime | None:
    if not isinstance(value, str):
        return None
    return datetime.fromisoformat(value.replace("Z", "+00:00"))


def _labels(transfer: Transfer) -> dict[str, Any]:
    return dict(transfer.request.get("labels") or {})


# --- queries --------------------------------------------------------------------------------------


async def transfers_of_run(
    dag_id: str, run_id: str, conn_ids: Sequence[str]
) -> tuple[list[Transfer], list[str]]:
    """Ask endpoints for the transfers of a run.

    :param conn_ids: connections of the endpoints that drive the transfers.
    :returns: the transfers, and for each unreachable endpoint a line with the cause.
    """
    from dray.errors import DrayError
    from dray_airflow.errors import DrayTaskFailure
    from dray_airflow.hooks.dray import DrayHook
    from dray_airflow.values import label_text

    found: list[Transfer] = []
    silent = []
    for conn_id in conn_ids:
        try:
            client = await DrayHook(conn_id).get_async_conn()
            async with client:
                labels = {"dag_id": label_text(dag_id), "run_id": label_text(run_id)}
                async for each in client.transfers(labels=labels, limit=TRANSFERS_MAX):
                    found.append(each)
                    if len(found) >= TRANSFERS_MAX:
                        break
        except (DrayError, DrayTaskFailure) as error:
            silent.append(f"cannot ask the endpoint of connection {conn_id}: {error}")
    return found, silent


async def name_the_reason(
    context: dict[str, Any], dray_conn_ids: Sequence[str], *, is_early: bool = False
) -> str | None:
    """Return one line that says why a run is late or will be late.

    :param context: Airflow's context for the callback of a deadline: the run and the deadline.
    :param dray_conn_ids: connections of the endpoints that drive the run's transfers.
    :param is_early: true before the deadline. The function then ignores the run's deadline, and
        ignores transfers that ended late. It still reports a transfer that exceeds its own
        deadline.
    :returns: the line, or ``None`` if there is no delay to report yet.
    """
    run = context["dag_run"]
    dag_id, run_id = str(run["dag_id"]), str(run["dag_run_id"])
    now = datetime.now(timezone.utc)
    due = _deadline_of(context)
    transfers, silent = await transfers_of_run(dag_id, run_id, dray_conn_ids)
    reason = find_reason(transfers, now, None if is_early else due)
    head = f"run {run_id} of {dag_id} "
    if is_early:
        if reason is None or reason.kind == "late":
            return None
        head += "is expected to miss its deadline: "
    else:
        head += f"missed its deadline{_time_text(due)}: "
    if reason is not None:
        return head + "; ".join([reason.text, *silent])
    unfinished = await _unfinished(dag_id, run_id)
    live = sum(not each.is_terminal for each in transfers)
    rest = (
        f"no transfer explains the delay (transfers of the run: {len(transfers)}, not ended: "
        f"{live})"
    )
    if unfinished:
        rest += f"; unfinished tasks: {', '.join(unfinished)}"
    return head + "; ".join([rest, *silent])


def _deadline_of(context: dict[str, Any]) -> datetime | None:
    value = (context.get("deadline") or {}).get("deadline_time")
    return value if isinstance(value, datetime) else _time(value)


async def _unfinished(dag_id: str, run_id: str) -> list[str]:
    """Return the tasks of the run that have not ended, at most ten of them."""
    from asgiref.sync import sync_to_async

    try:
        from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

        ask = sync_to_async(RuntimeTaskInstance.get_task_states)
        states = (await ask(dag_id=dag_id, run_ids=[run_id])).get(run_id, {})
    except Exception as error:
        log.info("cannot read the states of the run's tasks: %s", error)
        return []
    ended = {"success", "skipped", "failed", "upstream_failed", "removed"}
    return sorted(name for name, state in states.items() if state not in ended)[:10]


def deadline_alerts(
    *,
    dray_conn_ids: Sequence[str] = ("dray_default",),
    looks: Sequence[timedelta] = (),
    key: str = "deadline",
    **notifier: Any,  # noqa: ANN401 - arguments of DrayNotifier
) -> list[DeadlineAlert]:
    """Return deadline alerts for a DAG whose runs have a deadline in their conf.

    One alert fires at the deadline, and always notifies. The other alerts fire before the deadline.
    An earlier alert notifies only if a transfer has failed, or is expected to miss its own
    deadline.

    :param dray_conn_ids: connections of the endpoints that drive the run's transfers.
    :param looks: times before the deadline at which the earlier alerts fire.
    :param key: key of the deadline in the conf.
    :param notifier: arguments of :class:`dray_airflow.notifications.dray.DrayNotifier`.
    :returns: the alerts. Before Airflow 3.2 an empty list, with a warning in the log.
    """
    from dray_airflow.version_compat import HAS_CUSTOM_DEADLINES

    if not HAS_CUSTOM_DEADLINES:
        log.warning(
            "the DAG gets no deadline alerts, because an alert for the deadline in a run's conf "
            "needs Airflow 3.2 or later"
        )
        return []
    from airflow.sdk.definitions.callback import AsyncCallback
    from airflow.sdk.definitions.deadline import DeadlineAlert

    from dray_airflow.deadlines.reference import ConfDeadline
    from dray_airflow.notifications.dray import DrayNotifier

    def alert(before: timedelta) -> DeadlineAlert:
        is_early = before > timedelta(0)
        words: dict[str, Any] = {"dray_conn_ids": list(dray_conn_ids), **notifier}
        if is_early:
            words["is_early"] = True
        return DeadlineAlert(
            reference=ConfDeadline(key),
            interval=-before,
            callback=AsyncCallback(DrayNotifier, kwargs=words),
            name=f"{span(before.total_seconds())} before the deadline" if is_early else "deadline",
        )

    return [alert(timedelta(0)), *(alert(each) for each in looks)]
