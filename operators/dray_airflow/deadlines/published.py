"""The tasks of a planned run as an XCom, from which the user interface computes the plan again.

The API server of Airflow has no DAG file, so it knows neither declared durations nor sizes. Each
transfer task that plans its run therefore publishes the tasks of the graph. The reader replaces the
states by the current ones, and computes the plan for the current time.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from dray_airflow.deadlines.states import progress_of, whole_progress
from dray_airflow.deadlines.task import ENDED, Task

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from airflow.sdk import Context

__all__ = ["PLAN_KEY", "TASKS_MAX", "PublishedPlan", "publish_plan", "read_plan", "written"]

log = logging.getLogger(__name__)

PLAN_KEY = "dray_plan"
"""Key of the XCom with the tasks of the planned run."""

TASKS_MAX = 500
"""Maximum number of tasks of a published graph. 500 tasks take about 64 KiB of JSON."""

NUMBER_MAX = 10**18
"""Maximum of a number of a published task: an exabyte, or an exabyte per second."""

_NUMBERS = ("expected_seconds", "median_seconds", "bytes", "rate", "at_once")
_COUNTS = {"runs": 0, "instances": 1, "instances_done": 0}


@dataclass(frozen=True, slots=True)
class PublishedPlan:
    """The tasks of a run at the time of a plan.

    :param deadline: deadline of the run, with a time zone.
    :param source: text that names the origin of the deadline.
    :param as_of: time of the plan, with a time zone.
    :param tasks: all tasks of the DAG.
    """

    deadline: datetime
    source: str
    as_of: datetime
    tasks: tuple[Task, ...]

    def with_states(
        self,
        states: Mapping[str, Sequence[str | None]],
        starts: Mapping[str, datetime],
    ) -> tuple[Task, ...]:
        """Return the tasks with other states.

        :param states: Airflow's states of the instances of each task.
        :param starts: start of each task, with a time zone.
        """

        def renew(task: Task) -> Task:
            rows = [progress_of(state) for state in states.get(task.id, ())]
            count = max(task.instances, len(rows))
            ended = sum(row in ENDED for row in rows)
            return replace(
                task,
                state=whole_progress(rows),
                started_at=starts.get(task.id),
                instances=count,
                instances_done=min(ended, count) if count > 1 else 0,
            )

        return tuple(renew(task) for task in self.tasks)


def written(
    tasks: Iterable[Task], *, deadline: datetime, source: str, now: datetime
) -> dict[str, Any]:
    """Return the tasks of a plan as JSON, without their states."""
    return {
        "deadline": deadline.isoformat(),
        "source": source,
        "as_of": now.isoformat(timespec="seconds"),
        "tasks": [_task(task) for task in tasks],
    }


def _task(task: Task) -> dict[str, Any]:
    found: dict[str, Any] = {"id": task.id, "upstream": list(task.upstream)}
    found |= {name: value for name in _NUMBERS if (value := getattr(task, name)) is not None}
    found |= {
        name: getattr(task, name) for name, usual in _COUNTS.items() if getattr(task, name) != usual
    }
    if task.is_transfer:
        found["is_transfer"] = True
    if not task.is_counted:
        found["is_counted"] = False
    if task.rule != "all_success":
        found["rule"] = task.rule
    return found


def read_plan(value: object) -> PublishedPlan:
    """Return a published plan.

    :raises ValueError: if the value is not a published plan. Any task can write such an XCom.
    """
    try:
        if not isinstance(value, dict) or len(value["tasks"]) > TASKS_MAX:
            raise ValueError(f"it is not an object with at most {TASKS_MAX} tasks")
        return PublishedPlan(
            _time(value["deadline"]),
            str(value["source"]),
            _time(value["as_of"]),
            tuple(_read_task(each) for each in value["tasks"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"a field is missing or has another type: {error}") from None


def _time(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError(f"the time {text} has no time zone")
    return found


def _read_task(value: Mapping[str, Any]) -> Task:
    words: dict[str, Any] = {}
    for name in (*_NUMBERS, *_COUNTS):
        number = value.get(name)
        if number is None:
            continue
        is_number = isinstance(number, (int, float)) and not isinstance(number, bool)
        # The comparison also refuses NaN.
        if not is_number or not 0 <= number <= NUMBER_MAX:
            raise ValueError(f"{name} is not a number from 0 to {NUMBER_MAX:.0e}")
        words[name] = number
    return Task(
        id=str(value["id"]),
        upstream=tuple(str(each) for each in value["upstream"]),
        is_transfer=value.get("is_transfer") is True,
        is_counted=value.get("is_counted") is not False,
        rule=str(value.get("rule", "all_success")),
        **words,
    )


def publish_plan(
    context: Context, tasks: Sequence[Task], *, deadline: datetime, source: str, now: datetime
) -> None:
    """Store the tasks for the user interface. An error is only logged, so that no task fails.

    Of the instances of a mapped task, only the first one stores them, because they are equal.
    """
    ti: Any = context["ti"]
    if (ti.map_index or 0) > 0:
        return
    if len(tasks) > TASKS_MAX:
        log.info("the DAG has more than %d tasks, so Airflow's pages show no plan", TASKS_MAX)
        return
    try:
        value = written(tasks, deadline=deadline, source=source, now=now)
        ti.xcom_push(key=PLAN_KEY, value=value)
    except Exception as error:
        log.warning("Airflow's pages do not show the plan of this run: %s", error)
