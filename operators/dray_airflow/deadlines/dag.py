"""Collect the deadline and the graph of tasks of a DAG run, inside a task of that run.

An operator without its own deadline calls :func:`deadline_for`. Authors of DAGs declare the
duration of a task with :func:`expect`. This module only collects data: the pure module
:mod:`.graph` computes the plan.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from dray_airflow.deadlines.graph import DeadlinePlan, plan_deadlines
from dray_airflow.deadlines.published import publish_plan
from dray_airflow.deadlines.states import progress_of, whole_progress
from dray_airflow.deadlines.task import ENDED, Task
from dray_airflow.deadlines.times import read_deadline

if TYPE_CHECKING:
    from airflow.sdk import DAG, Context

    from dray_airflow.deadlines.history import Instances, Past

__all__ = [
    "CONF_KEY",
    "RunDeadline",
    "TaskDeadline",
    "deadline_for",
    "expect",
    "plan_for",
    "run_begin",
    "run_deadline",
    "tasks_of",
]

log = logging.getLogger(__name__)

CONF_KEY = "deadline"
"""Key of the deadline in a run's conf."""

_EXPECTED = "_dray_expected_seconds"

Node = TypeVar("Node")


@dataclass(frozen=True, slots=True)
class RunDeadline:
    """The deadline of the run.

    :param time: the deadline, with a time zone.
    :param source: text that names the origin of the deadline.
    """

    time: datetime
    source: str


@dataclass(frozen=True, slots=True)
class TaskDeadline:
    """The deadline of a task's transfer.

    :param latest_finish: the deadline, with a time zone.
    :param class_: class of the transfer, for the endpoint.
    :param rate_min: minimum rate in bytes per second, if the size is known. Only users see this
        rate: the endpoint itself computes the rate from the deadline and the size.
    :param is_possible: true if the deadline has not passed.
    :param why: explanation of the deadline in one line: the run's deadline, and the tasks after the
        transfer.
    """

    latest_finish: datetime
    class_: Literal["deadline"]
    rate_min: float | None
    is_possible: bool
    why: str


def expect(task: Node, duration: timedelta | float) -> Node:
    """Declare the duration of a task, or of one instance of a mapped task.

    For a DrayTransferOperator, use its argument ``expected_duration`` instead. For a task without a
    declared duration, the plan uses the median of past runs.

    :param task: an operator, or the result of a ``@task`` function. The task must be in a DAG.
    :param duration: a duration, or a number of seconds.
    :returns: the task, for chaining.
    :raises ValueError: for a negative duration.
    """
    seconds = _seconds(duration)
    if seconds is None or seconds < 0:
        raise ValueError(f"{duration!r} is not a duration of at least 0 seconds")
    operator: Any = getattr(task, "operator", task)
    declared = operator.dag.__dict__.setdefault(_EXPECTED, {})
    declared[operator.task_id] = seconds
    return task


def deadline_for(context: Context) -> TaskDeadline | None:
    """Return the deadline of the running task's transfer, derived from the run's deadline.

    Every call computes the plan again, so the plan accounts for tasks that ended early or late. The
    function never raises. It returns ``None`` if the run has no deadline. After an error, it logs
    the error and returns ``None``.
    """
    try:
        plan = plan_for(context)
    except Exception as error:
        log.warning("the deadline could not be computed, so the transfer has none: %s", error)
        return None
    if plan is None:
        return None
    found = plan.transfers.get(context["ti"].task_id)
    if found is None:
        return None
    finish = found.finish_of_next(plan.now)
    why = found.why
    if found.rounds > 1:
        why += (
            f"; until then, {found.rounds} instances of the task run one after another, each in "
            "an equal part of the time"
        )
    if plan.unknown:
        names = ", ".join(plan.unknown[:5])
        why += f" (tasks of unknown duration, which count as 0 s: {names})"
    if plan.estimated:
        names = ", ".join(plan.estimated[:5])
        why += f" (transfers of unknown size, which get equal shares of the time: {names})"
    left = (finish - plan.now).total_seconds()
    return TaskDeadline(
        latest_finish=finish,
        class_=found.class_,
        rate_min=found.bytes / left if found.bytes is not None and left > 0 else None,
        is_possible=finish > plan.now,
        why=why,
    )


def plan_for(context: Context, now: datetime | None = None) -> DeadlinePlan | None:
    """Plan the whole run in its current state. Return ``None`` if the run has no deadline.

    :raises ValueError: if the deadline in the run's conf is malformed.
    """
    due = run_deadline(context)
    if due is None:
        return None
    now = now or datetime.now(timezone.utc)
    tasks = tasks_of(context)
    publish_plan(context, tasks, deadline=due.time, source=due.source, now=now)
    return plan_deadlines(tasks, deadline=due.time, now=now)


# --- the run's deadline ---------------------------------------------------------------------------


def run_begin(run: object) -> datetime:
    """Return the time at which a run was due. A deadline given as a duration counts from it."""
    begin = getattr(run, "run_after", None) or getattr(run, "start_date", None)
    return begin if isinstance(begin, datetime) else datetime.now(timezone.utc)


def run_deadline(context: Context) -> RunDeadline | None:
    """Return the deadline of the run: from its conf, or else from the DAG's earliest alert.

    :raises ValueError: if the deadline in the conf is malformed.
    """
    run: Any = context.get("dag_run")
    conf = getattr(run, "conf", None) or {}
    if conf.get(CONF_KEY) is not None:
        time = read_deadline(conf[CONF_KEY], run_begin(run))
        return RunDeadline(time, f'dag_run.conf["{CONF_KEY}"]')
    dag: Any = context.get("dag") or context["task"].dag
    found = [
        due
        for alert in getattr(dag, "deadline", None) or ()
        # An alert of an early check fires before the deadline, so its time is not a deadline.
        if not getattr(alert.callback, "kwargs", {}).get("is_early")
        and (due := _alert_time(alert, run)) is not None
    ]
    return min(found, key=lambda due: due.time, default=None)


def _alert_time(alert: Any, run: Any) -> RunDeadline | None:  # noqa: ANN401 - Airflow's own
    """Return the time of an alert, if a worker can compute it."""
    interval = alert.interval
    if not isinstance(interval, timedelta):
        from airflow.sdk import Variable

        interval = timedelta(seconds=int(Variable.get(interval.key)))
    name = alert.reference.reference_name
    base: datetime | None = None
    if name == "DagRunLogicalDateDeadline":
        base = getattr(run, "logical_date", None)
    elif name == "FixedDatetimeDeadline":
        seconds = alert.reference.serialize_reference()["datetime"]
        base = datetime.fromtimestamp(seconds, timezone.utc)
    elif name == "DagRunQueuedAtDeadline":
        base = _queued_at(run, interval)
    elif name == "ConfDeadline":
        value = (getattr(run, "conf", None) or {}).get(alert.reference.key)
        base = None if value is None else read_deadline(value, run_begin(run))
    else:
        log.info(
            "only Airflow can compute the deadline %s, so the transfers are planned without "
            "this deadline",
            name,
        )
    return None if base is None else RunDeadline(base + interval, f"the DAG's {name}")


def _queued_at(run: Any, interval: timedelta) -> datetime | None:  # noqa: ANN401 - Airflow's own
    """Estimate the time at which a run was queued, which a worker cannot read.

    The estimate is the time at which the run was due. If the run started ``interval`` or more after
    that time, the estimate is the start instead: a run that catches up was due long before it was
    queued, and starts as soon as Airflow permits.
    """
    due = getattr(run, "run_after", None)
    start = getattr(run, "start_date", None)
    if not isinstance(due, datetime) or not isinstance(start, datetime):
        found = due if isinstance(due, datetime) else start
        return found if isinstance(found, datetime) else None
    return due if timedelta(0) <= start - due < max(interval, timedelta(0)) else start


# --- the graph ------------------------------------------------------------------------------------


def tasks_of(context: Context) -> list[Task]:
    """Return the DAG's tasks with their current state."""
    from dray_airflow.deadlines import history

    ti: Any = context["ti"]
    dag: Any = context.get("dag") or context["task"].dag
    states = history.states_of(context, dag.task_ids)
    wanted = [each.task_id for each in dag.tasks if _has_to_be_known(each, dag, states)]
    try:
        past = history.past_of(context, wanted)
    except Exception as error:
        log.warning("cannot read past runs, so only declared durations count: %s", error)
        past = {}
    found = []
    for operator in dag.tasks:
        before, now = past.get(operator.task_id), states.get(operator.task_id)
        task = task_from(operator, dag, before, now, context)
        if operator.task_id == ti.task_id:
            task = _as_running(task, ti)
        found.append(task)
    return _with_known(found, dag, context)


def _with_known(tasks: list[Task], dag: DAG, context: Context) -> list[Task]:
    """Add the sizes and rates that endpoints report for transfers that share the available time."""
    import dataclasses

    from dray_airflow.deadlines.known import Known, known_of

    shared = {
        task.id
        for task in tasks
        if task.is_transfer
        and task.is_counted
        and task.state not in ENDED
        and task.expected_seconds is None
        and task.median_seconds is None
    }
    # A single transfer gets all the time, so its size does not matter.
    if len(shared) < 2:
        return tasks
    operators = [
        each
        for each in dag.tasks
        if each.task_id in shared
        and hasattr(each, "sources")
        and not getattr(each, "is_mapped", False)
    ]
    known = known_of(operators, context)

    def add(task: Task) -> Task:
        known_values = known.get(task.id, Known())
        size = known_values.bytes if task.bytes is None else task.bytes
        return dataclasses.replace(task, bytes=size, rate=known_values.rate)

    return [add(task) for task in tasks]


def _has_to_be_known(
    operator: Any,  # noqa: ANN401 - an operator, mapped or not
    dag: DAG,
    states: Mapping[str, Instances],
) -> bool:
    """Return true if the task of an operator is unfinished, and the plan needs its history.

    The plan takes two values from the history: the duration if it is not declared, and the number
    of instances of a mapped task if the DAG does not state it.
    """
    task = task_from(operator, dag, None, states.get(operator.task_id))
    if not task.is_counted or task.state in ENDED:
        return False
    is_open = bool(getattr(operator, "is_mapped", False)) and task.instances <= 1
    return task.expected_seconds is None or (is_open and _literal_count(operator) is None)


def _as_running(task: Task, ti: Any) -> Task:  # noqa: ANN401 - Airflow's own
    """Mark the calling task as running. Its row in the database may not show this yet."""
    import dataclasses

    return dataclasses.replace(task, state="running", started_at=getattr(ti, "start_date", None))


def task_from(
    operator: Any,  # noqa: ANN401 - an operator, mapped or not
    dag: DAG,
    past: Past | None = None,
    instances: Instances | None = None,
    context: Context | None = None,
) -> Task:
    """Describe an operator as a task of the graph in :mod:`dray_airflow.deadlines.graph`.

    :param past: history of the operator in past runs.
    :param instances: instances of the operator in this run.
    :param context: context of the calling task, for templates of sizes.
    """
    declared = _seconds(_field(operator, "expected_duration"))
    if declared is None:
        declared = dag.__dict__.get(_EXPECTED, {}).get(operator.task_id)
    rows = [] if instances is None else [progress_of(state) for state in instances.states]
    is_mapped = bool(getattr(operator, "is_mapped", False)) or len(rows) > 1
    count, done = 1, 0
    if is_mapped:
        ended = [state for state in rows if state in ("done", "skipped", "failed")]
        count = len(rows) if len(rows) > 1 else _literal_count(operator) or 0
        count = count or (past.instances if past is not None else 1)
        done = min(len(ended), count)
    is_counted = True
    if getattr(operator, "is_teardown", False):
        is_counted = bool(getattr(operator, "on_failure_fail_dagrun", False))
    return Task(
        id=operator.task_id,
        upstream=tuple(sorted(operator.upstream_task_ids)),
        expected_seconds=declared,
        median_seconds=None if past is None else past.median_seconds,
        runs=0 if past is None else past.count,
        is_transfer=_is_transfer(operator),
        bytes=_bytes(operator, count, context),
        rule=str(getattr(operator.trigger_rule, "value", operator.trigger_rule)),
        is_counted=is_counted,
        instances=count,
        instances_done=done,
        at_once=_at_once(operator, dag) if is_mapped else None,
        state=whole_progress(rows),
    )


def _field(operator: Any, name: str) -> Any:  # noqa: ANN401 - as it was given
    if getattr(operator, "is_mapped", False):
        return operator.partial_kwargs.get(name)
    return getattr(operator, name, None)


def _is_transfer(operator: Any) -> bool:  # noqa: ANN401 - an operator, mapped or not
    operator_class = getattr(operator, "operator_class", type(operator))
    # A replication rule of Rucio has a deadline like a transfer, but is not admitted like one.
    names = ("is_dray_transfer", "is_rucio_rule")
    return any(getattr(operator_class, name, False) for name in names)


def _seconds(value: object) -> float | None:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    return None


def _expansions(operator: Any) -> list[Mapping[str, Any]] | None:  # noqa: ANN401 - mapped
    """Return each mapped instance's arguments, or ``None`` if the DAG file does not have them."""
    value = getattr(getattr(operator, "expand_input", None), "value", None)
    if isinstance(value, Sequence) and all(isinstance(each, Mapping) for each in value):
        return list(value)
    if isinstance(value, Mapping) and len(value) == 1:
        ((name, each),) = value.items()
        if isinstance(each, Sequence) and not isinstance(each, str):
            return [{name: one} for one in each]
    return None


def _literal_count(operator: Any) -> int | None:  # noqa: ANN401 - mapped
    try:
        count = operator.get_parse_time_mapped_ti_count()
    except Exception:
        # The arguments are known only at run time. Airflow raises different exceptions for this
        # case in different versions.
        expansions = _expansions(operator)
        return None if expansions is None else len(expansions)
    return int(count)


def _bytes(operator: Any, count: int, context: Context | None) -> int | None:  # noqa: ANN401
    """Return the total size of all instances, or None if the size is unknown before they run."""
    from dray_airflow import values

    def read(value: object) -> int | None:
        try:
            if context is not None and isinstance(value, str) and "{" in value:
                value = operator.render_template(value, context)
            return values.size("bytes_expected", value)
        except Exception:
            # The template refers to a value that does not exist yet.
            return None

    for name in ("bytes_expected", "size"):
        each = read(_field(operator, name))
        if each is not None:
            return each * max(count, 1)
    sizes = [read(one.get("bytes_expected")) for one in _expansions(operator) or ()]
    known = [size for size in sizes if size is not None]
    return sum(known) if sizes and len(known) == len(sizes) else None


def _at_once(operator: Any, dag: DAG) -> int | None:  # noqa: ANN401 - an operator
    limits = [
        limit
        for limit in (
            getattr(operator, "max_active_tis_per_dagrun", None),
            getattr(operator, "max_active_tis_per_dag", None),
            getattr(dag, "max_active_tasks", None),
        )
        if isinstance(limit, int) and limit > 0
    ]
    return min(limits, default=None)
