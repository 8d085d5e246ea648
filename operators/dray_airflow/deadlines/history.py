"""How long tasks took in past runs, and how far those of this run are.

A worker of Airflow 3 has no way to the metadata database, and this uses none: it asks through the
task's own supervisor (the execution API), as ``ti.get_task_states`` does. That gives for any run
of the DAG which tasks have ended, how, and how long they took; of what has not ended only the
state. What the API does not have is not guessed: no history is an answer.
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
"""Past runs that are looked at. As many as Airflow's own AVERAGE_RUNTIME."""
RUNS_ENOUGH = 3
"""Runs in which a task ended well, after which no more is asked for its sake: each costs up to two
questions, of every transfer task that starts. The median of three is none of the extremes; guess,
revisit."""


@dataclass(frozen=True, slots=True)
class Past:
    """What past runs show of a task.

    :param median_seconds: of the instances that ended well.
    :param count: how many those are.
    :param instances: of a mapped task, the median of how many there were in a run; else 1.
    """

    median_seconds: float
    count: int
    instances: int = 1


@dataclass(slots=True)
class Instances:
    """The instances of a task in this run, by state.

    :param states: one for each that is there.
    """

    states: list[str | None] = field(default_factory=list)


def past_of(
    context: Context, wanted: Collection[str] | None = None, runs_max: int = RUNS_MAX
) -> dict[str, Past]:
    """Look past runs up, newest first, this one left out, until they are enough.

    :param context: of the task that runs.
    :param wanted: the tasks whose past is needed; of none nothing is asked. ``None``: all, and all
        of ``runs_max`` runs are looked at.
    :returns: by task; empty where the API has nothing, or is older than this needs.
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
    """Give the medians of what runs had: of each instance ``task_id``, ``state``, ``duration``.

    Only what succeeded counts: what failed took as long as failing takes.
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
    """Name the newest runs before this one; each is asked for when it is wanted."""
    ti: Any = context["ti"]
    run: Any = context.get("dag_run")
    logical = getattr(run, "logical_date", None)
    if logical is None:
        # Runs without a logical date have no order that the API could follow; their rows come as
        # they were written, oldest first.
        # One row of a run, also of a task with a thousand instances.
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
    """Ask for the successful run before a logical date."""
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.comms import GetPreviousDagRun

    question = GetPreviousDagRun(dag_id=dag_id, logical_date=logical, state="success")
    answer: Any = task_runner.SUPERVISOR_COMMS.send(question)
    return getattr(answer, "dag_run", None)


def states_of(context: Context, task_ids: Iterable[str]) -> dict[str, Instances]:
    """Ask how far the tasks of this run are.

    :param task_ids: those there are in the DAG.
    :returns: by task; one that has no row yet is left out.
    """
    ti: Any = context["ti"]
    answer = ti.get_task_states(dag_id=ti.dag_id, run_ids=[ti.run_id])
    return sort_states(answer.get(ti.run_id, {}), task_ids)


def sort_states(rows: Mapping[str, str | None], task_ids: Iterable[str]) -> dict[str, Instances]:
    """Put rows by the task they are of: the API writes ``task`` or, of a mapped one, ``task_3``."""
    known = set(task_ids)
    found: dict[str, Instances] = defaultdict(Instances)
    for row, state in rows.items():
        name, mark, index = row.rpartition("_")
        is_mapped = row not in known and mark and index.isdigit() and name in known
        task_id = name if is_mapped else row
        if task_id in known:
            found[task_id].states.append(state)
    return dict(found)
