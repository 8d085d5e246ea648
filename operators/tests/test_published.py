"""Tests of the tasks that a planned run publishes."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from dray_airflow.deadlines.graph import plan_deadlines
from dray_airflow.deadlines.published import (
    PLAN_KEY,
    TASKS_MAX,
    publish_plan,
    read_plan,
    written,
)
from dray_airflow.deadlines.task import Task

NOW = datetime(2026, 11, 28, 12, tzinfo=timezone.utc)
DEADLINE = NOW + timedelta(hours=1)
TASKS = (
    Task("stage_in", is_transfer=True, bytes=10**10, rate=1e8, at_once=2),
    Task("compute", upstream=("stage_in",), expected_seconds=600.0),
    Task("out", upstream=("compute",), is_transfer=True, median_seconds=60.0, runs=4, instances=3),
    Task("clean", upstream=("out",), is_counted=False, rule="all_done"),
)


def again(**words: Any) -> Any:  # noqa: ANN401 - JSON
    found = written(TASKS, deadline=DEADLINE, source="conf", now=NOW)
    return json.loads(json.dumps({**found, **words}))


def test_the_plan_of_a_published_run_equals_the_plan_of_the_task() -> None:
    found = read_plan(again())
    assert found.tasks == TASKS
    assert (found.deadline, found.source, found.as_of) == (DEADLINE, "conf", NOW)
    here = plan_deadlines(TASKS, deadline=DEADLINE, now=NOW)
    assert plan_deadlines(found.tasks, deadline=found.deadline, now=NOW) == here


def test_a_reader_replaces_the_states() -> None:
    start = NOW + timedelta(minutes=5)
    tasks = read_plan(again()).with_states(
        {"stage_in": ["success"], "compute": ["running"], "out": ["success", None, "deferred"]},
        {"compute": start},
    )
    by_name = {task.id: task for task in tasks}
    assert [task.state for task in tasks] == ["done", "running", "running", "waiting"]
    assert by_name["compute"].started_at == start
    assert (by_name["out"].instances, by_name["out"].instances_done) == (3, 1)


def test_the_times_of_each_unfinished_task_are_known() -> None:
    tasks = read_plan(again()).with_states({"stage_in": ["success"]}, {})
    plan = plan_deadlines(tasks, deadline=DEADLINE, now=NOW)
    # The teardown is not waited for, and the first task has ended.
    assert set(plan.times) == {"compute", "out"}
    assert plan.times["out"].latest_finish == DEADLINE
    assert plan.times["out"].latest_start == DEADLINE - timedelta(minutes=1)
    assert plan.times["compute"].slack_seconds == pytest.approx(plan.slack_seconds)


@pytest.mark.parametrize(
    "words",
    [
        {"tasks": None},
        {"tasks": [{"id": "a"}]},
        {"tasks": [{"id": "a", "upstream": [], "bytes": "many"}]},
        {"tasks": [{"id": "a", "upstream": [], "runs": -1}]},
        {"tasks": [{"id": "a", "upstream": [], "rate": float("nan")}]},
        {"tasks": [{"id": "a", "upstream": [], "rate": float("inf")}]},
        {"tasks": [{"id": "a", "upstream": [], "bytes": 10**400}]},
        {"tasks": [{"id": "a", "upstream": []}] * (TASKS_MAX + 1)},
        {"deadline": "soon"},
        {"deadline": "2026-11-28T12:00:00"},
        {"as_of": 7},
    ],
)
def test_another_value_is_refused(words: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_plan(again(**words))
    others: tuple[object, ...] = (None, [], "text", {})
    for value in others:
        with pytest.raises(ValueError, match=r".+"):
            read_plan(value)


def test_only_one_instance_publishes_a_graph_of_bounded_size() -> None:
    pushed: list[str] = []

    def push(key: str, value: object) -> None:
        assert value is not None
        pushed.append(key)

    def publish(map_index: int | None, tasks: tuple[Task, ...]) -> int:
        ti = SimpleNamespace(map_index=map_index, xcom_push=push)
        context: Any = {"ti": ti}
        publish_plan(context, tasks, deadline=DEADLINE, source="conf", now=NOW)
        return len(pushed)

    assert [publish(index, TASKS) for index in (None, -1, 0, 1)] == [1, 2, 3, 3]
    assert publish(-1, TASKS * TASKS_MAX) == 3
    assert set(pushed) == {PLAN_KEY}
