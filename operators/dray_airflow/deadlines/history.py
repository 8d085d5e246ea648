"""Durations of tasks in past runs, and the progress of the tasks in this run.

A worker of Airflow 3 cannot reach the metadata database. So this module asks the task's own
supervisor (the execution API), as ``ti.get_task_states`` does. For any run of the DAG, the API
returns the ended tasks with their results and durations. For unfinished tasks it returns only the
state. Missing data is not guessed, and an empty history is a valid answer.
"""

from __future__ import annotations

import logging
import statistics
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from airflow.sdk import Context

__all__ = ["RUNS_MAX", "Instances", "Past", "past_of", "states_of"]

log = logging.getLogger(__name__)

RUNS_MAX = 10
"""Maximum number of past runs to read. Airflow's own AVERAGE_RUNTIME uses the same number."""
RUNS_ENOUGH = 3
"""Number of successful runs of a task that are enough for its history.

Every transfer task that starts reads the history, with up to two calls for each run. One extreme
value does not affect the median of three values. The number is estimated, not measured.
"""


@dataclass(frozen=True, slots=True)
class Past:
    """The history of a task in past runs.

    :param median_seconds: median duration of one successful instance.
    :param count: number of successful instances.
    :param instances: for a mapped task, the median number of instances in a run. Otherwise 1.
    """

    median_seconds: float
    count: int
    instances: int = 1


@dataclass(slots=True)
class Instances:
    """The instances of a task in this run.

    :param states: the state of each existing instance.
    """

    states: list[str | None] = field(default_factory=list)


def past_of(
    context: Context, wanted: Collection[str] | None = None, runs_max: int = RUNS_MAX
) -> dict[str, Past]:
    """Return the history of tasks from past runs.

    Runs are read from the newest one on, until each wanted task has :data:`RUNS_ENOUGH` successes.

    :param context: context of the running task.
    :param wanted: the tasks whose history is needed. If it is empty, no call is made. ``None``
        means all tasks, and then all of ``runs_max`` runs are read.
    :returns: the history by task. Empty if no past run has data, or if this version of Airflow
        cannot return the tasks of past runs.
    """
    ti: Any = context["ti"]
    ask = getattr(ti, "get_task_breadcrumbs", None)
    if ask is None or (wanted is not None and not wanted):
        return {}
    found: list[list[Mapping[str, Any]]] = []
    seen: dict[str, int] = dict.fromkeys(wanted or (), 0)
    for run_id in _runs_before(context, runs_max):
        found.append(list(ask(ti.dag_id, run_id)))
        for task_id in {each["task_id"] for each in found[-1] if each.get("state") == "success"}:
            if task_id in seen:
                seen[task_id] += 1
        if wanted is not None and min(seen.values()) >= RUNS_ENOUGH:
            break
    return summarise(found)


def summarise(runs: Iterable[Iterable[Mapping[str, Any]]]) -> dict[str, Past]:
    """Return the medians over runs. Each instance has ``task_id``, ``state`` and ``duration``.

    Only successful instances count, because the duration of a failed instance has no meaning.
    """
    seconds: dict[str, list[float]] = defaultdict(list)
    counts: dict[str, list[int]] = defaultdict(list)
    for run in runs:
        here: dict[str, int] = defaultdict(int)
        for each in run:
            if each.get("state") != "success" or each.get("duration") is None:
                continue
            seconds[each["task_id"]].append(float(each["duration"]))
            here[each["task_id"]] += 1
        for task_id, count in here.items():
            counts[task_id].append(count)
    return {
        task_id: Past(
            statistics.median(each), len(each), int(statistics.median_high(counts[task_id]))
        )
        for task_id, each in seconds.items()
    }


def _runs_before(context: Context, runs_max: int) -> Iterator[str]:
    """Yield the runs before this one, newest first. Each run is requested only when needed."""
    ti: Any = context["ti"]
    run: Any = context.get("dag_run")
    logical = getattr(run, "logical_date", None)
    if logical is None:
        # The API cannot order runs without a logical date, so take the task states of all runs.
        # Their order is the order of the rows in the database, oldest first. Request the state of
        # only one instance per run, because a mapped task may have a thousand instances.
        index = -1 if ti.map_index is None or ti.map_index < 0 else 0
        states = ti.get_task_states(dag_id=ti.dag_id, task_ids=[ti.task_id], map_index=index)
        names = [run_id for run_id in states if run_id != ti.run_id]
        yield from names[::-1][:runs_max]
        return
    for _ in range(runs_max):
        before = _previous(ti.dag_id, logical)
        if before is None or before.logical_date is None:
            return
        yield before.run_id
        logical = before.logical_date


def _previous(dag_id: str, logical: Any) -> Any | None:  # noqa: ANN401 - Airflow's own
    """Return the last successful run before a logical date."""
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.comms import GetPreviousDagRun

    question = GetPreviousDagRun(dag_id=dag_id, logical_date=logical, state="success")
    answer: Any = task_runner.SUPERVISOR_COMMS.send(question)
    return getattr(answer, "dag_run", None)


def states_of(context: Context, task_ids: Iterable[str]) -> dict[str, Instances]:
    """Return the states of the tasks of this run.

    :param task_ids: ids of tasks of the DAG.
    :returns: the instances by task. Tasks without a row are missing.
    """
    ti: Any = context["ti"]
    answer = ti.get_task_states(dag_id=ti.dag_id, run_ids=[ti.run_id])
    return sort_states(answer.get(ti.run_id, {}), task_ids)


def sort_states(rows: Mapping[str, str | None], task_ids: Iterable[str]) -> dict[str, Instances]:
    """Group the API's rows by task.

    A row is named ``task``, or ``task_3`` for an instance of a mapped task.
    """
    known = set(task_ids)
    found: dict[str, Instances] = defaultdict(Instances)
    for row, state in rows.items():
        name, mark, index = row.rpartition("_")
        is_mapped = row not in known and mark and index.isdigit() and name in known
        task_id = name if is_mapped else row
        if task_id in known:
            found[task_id].states.append(state)
    return dict(found)
