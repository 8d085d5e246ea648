"""Tests of the deadlines of transfers, compared with an enumeration of all paths."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray_airflow.deadlines.graph import (
    RESCUE_RULES,
    DeadlinePlan,
    plan_deadlines,
)
from dray_airflow.deadlines.task import ENDED, Task
from dray_airflow.deadlines.text import span

NOON = datetime(2026, 11, 21, 12, tzinfo=timezone.utc)
RULES = ["all_success", "one_success", "one_done", "none_failed", "always", "one_failed"]


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


# --- brute force --------------------------------------------------------------------------------


def waits_for(task: Task, tasks: dict[str, Task]) -> list[str]:
    states = [tasks[each].state for each in task.upstream]
    if task.state != "waiting" or task.rule == "always":
        return []
    if task.rule == "one_success" and "done" in states:
        return []
    if task.rule == "one_done" and ("done" in states or "failed" in states):
        return []
    return list(task.upstream)


def all_paths(tasks: dict[str, Task]) -> list[list[str]]:
    """Return every chain of tasks that wait for each other, of every length, from every start."""
    found = [[name] for name in tasks]
    grown = found
    while grown:
        grown = [
            [*path, task.id]
            for path in grown
            for task in tasks.values()
            if path[-1] in waits_for(task, tasks)
        ]
        found = found + grown
    return found


def counts(task: Task) -> bool:
    return task.state not in ENDED and task.is_counted and task.rule not in RESCUE_RULES


def cost(task: Task, byte_seconds: float, overhead: float) -> tuple[float, float]:
    """Return the seconds of the task's work, and of the overhead before it."""
    if not counts(task):
        return 0.0, 0.0
    before = overhead if task.state == "waiting" else 0.0
    left = task.instances - task.instances_done
    rounds = 0
    while left > 0:
        left -= min(task.at_once or left, left)
        rounds += 1
    for seconds in (task.expected_seconds, task.median_seconds):
        if seconds is not None:
            spent = 0.0
            if task.state == "running" and task.started_at and task.instances == 1:
                spent = (NOON - task.started_at).total_seconds()
            return max(0.0, seconds * rounds - spent), before
    if task.is_transfer and task.bytes is not None:
        part = (task.instances - task.instances_done) / task.instances
        return task.bytes * part * byte_seconds, before
    return 0.0, before


def longest(paths: list[list[str]], tasks: dict[str, Task], per_byte: float, gap: float) -> float:
    return max((sum(sum(cost(tasks[n], per_byte, gap)) for n in path) for path in paths), default=0)


# --- random graphs ------------------------------------------------------------------------------


@st.composite
def graphs(draw: st.DrawFn, *, known: bool = True) -> list[Task]:
    count = draw(st.integers(1, 7))
    seconds = st.integers(0, 1000).map(float)
    tasks = []
    for number in range(count):
        upstream = draw(st.sets(st.integers(0, number - 1), max_size=3)) if number else set()
        state = draw(st.sampled_from(["waiting", "waiting", "waiting", "running", *sorted(ENDED)]))
        instances = draw(st.sampled_from([1, 1, 1, 4, 7]))
        is_transfer = draw(st.booleans())
        has_bytes = not known and is_transfer and draw(st.booleans())
        started = at(-draw(st.integers(0, 500)))
        tasks.append(
            Task(
                f"t{number}",
                tuple(f"t{each}" for each in sorted(upstream)),
                expected_seconds=None if has_bytes else draw(st.none() | seconds),
                median_seconds=None if has_bytes else draw(seconds),
                runs=3,
                is_transfer=is_transfer,
                bytes=draw(st.integers(1, 10**9)) if has_bytes else None,
                rule=draw(st.sampled_from(RULES)),
                is_counted=draw(st.sampled_from([True, True, True, False])),
                instances=instances,
                instances_done=draw(st.integers(0, instances)) if state == "running" else 0,
                at_once=draw(st.none() | st.integers(1, 5)),
                state=state,  # type: ignore[arg-type]
                started_at=started if state == "running" else None,
            )
        )
    return draw(st.permutations(tasks))


@given(graphs(), st.integers(-100, 20_000), st.sampled_from([0.0, 5.0]))
@settings(max_examples=150, deadline=None)
def test_latest_finish_is_the_deadline_minus_the_longest_path_after(
    tasks: list[Task], left: int, gap: float
) -> None:
    named = {task.id: task for task in tasks}
    paths = all_paths(named)
    plan = plan_deadlines(tasks, deadline=at(left), now=NOON, overhead_seconds=gap)
    expected = {task.id for task in tasks if task.is_transfer and counts(task)}
    assert set(plan.transfers) == expected
    for name, found in plan.transfers.items():
        after = longest([path[1:] for path in paths if path[0] == name], named, 0.0, gap)
        before = longest([path[:-1] for path in paths if path[-1] == name], named, 0.0, gap)
        works, waits = cost(named[name], 0.0, gap)
        assert found.latest_finish == at(left) - timedelta(seconds=after)
        assert found.earliest_start == NOON + timedelta(seconds=before + waits)
        assert found.slack_seconds == pytest.approx(left - after - before - waits - works)
        chain = sum(step.seconds for step in found.chain)
        assert chain + gap * len(found.chain) >= after - 1e-6
        assert found.is_possible == (left - after > before + waits)
    whole = longest(paths, named, 0.0, gap)
    assert plan.expected_finish == NOON + timedelta(seconds=whole)


@given(graphs(known=False), st.integers(1, 20_000))
@settings(max_examples=150, deadline=None)
def test_the_common_rate_is_the_least_at_which_every_path_fits(
    tasks: list[Task], left: int
) -> None:
    named = {task.id: task for task in tasks}
    paths = all_paths(named)
    plan = plan_deadlines(tasks, deadline=at(left), now=NOON)
    fixed = longest(paths, named, 0.0, 5.0)
    sizes = any(cost(task, 1.0, 5.0) != cost(task, 0.0, 5.0) for task in tasks)
    limits = []
    for path in paths:
        needs = sum(sum(cost(named[n], 0.0, 5.0)) for n in path)
        size = sum(sum(cost(named[n], 1.0, 5.0)) for n in path) - needs
        if size > 0.5:
            limits.append((left - needs) / size)
    if plan.rate_common is None:
        assert not sizes or fixed >= left
        return
    # No path is longer than the available time, and one path has exactly that length.
    assert 1 / plan.rate_common == pytest.approx(min(limits), rel=1e-6)
    assert longest(paths, named, 1 / plan.rate_common, 5.0) == pytest.approx(left, rel=1e-6)
    assert plan.slack_seconds == pytest.approx(0, abs=1e-3 + left * 1e-6)


@given(graphs(known=False), st.integers(1, 20_000), st.integers(1, 500))
@settings(max_examples=80, deadline=None)
def test_a_task_in_time_leaves_enough_for_later_tasks(
    tasks: list[Task], left: int, more: int
) -> None:
    """No transfer is late if the run is in time. More time gives no transfer less slack."""
    plan = plan_deadlines(tasks, deadline=at(left), now=NOON)
    later = plan_deadlines(tasks, deadline=at(left + more), now=NOON)
    for name, found in plan.transfers.items():
        slack = later.transfers[name].slack_seconds
        if found.slack_seconds is not None and slack is not None:
            assert slack >= found.slack_seconds - 1e-3
    if plan.slack_seconds >= 0:
        for found in plan.transfers.values():
            assert found.slack_seconds is None or found.slack_seconds >= -1e-3


@given(graphs(), st.integers(2_000, 20_000), st.data())
@settings(max_examples=80, deadline=None)
def test_an_early_task_moves_no_transfer_deadline_earlier(
    tasks: list[Task], left: int, data: st.DataObject
) -> None:
    first = plan_deadlines(tasks, deadline=at(left), now=NOON)
    ended = data.draw(st.sampled_from([task.id for task in tasks]))
    again = [
        dataclasses.replace(task, state="done") if task.id == ended else task for task in tasks
    ]
    then = plan_deadlines(again, deadline=at(left), now=NOON)
    for name, found in then.transfers.items():
        assert found.latest_finish >= first.transfers[name].latest_finish
        assert found.earliest_start <= first.transfers[name].earliest_start


# --- stories ------------------------------------------------------------------------------------

DAY = [
    Task("stage_in", is_transfer=True, bytes=200_000_000_000, expected_seconds=600),
    Task("calibrate", ("stage_in",), median_seconds=300, runs=7),
    Task("reconstruct", ("stage_in",), expected_seconds=3600),
    Task("stage_out", ("calibrate", "reconstruct"), is_transfer=True, bytes=50_000_000_000),
    Task("archive", ("reconstruct",), is_transfer=True, bytes=200_000_000_000),
    Task("report", ("stage_out",), median_seconds=115, runs=4),
    Task("evict", ("report",), rule="all_done", is_counted=False, is_transfer=True),
    Task("alarm", ("stage_out",), rule="one_failed", expected_seconds=9999),
]


def test_the_worked_graph_of_the_manual() -> None:
    plan = plan_deadlines(DAY, deadline=at(2 * 3600), now=NOON, rate=100e6)
    first = plan.transfers["stage_in"]
    # 2 h - (5 s + 3600 s) for reconstruct - (5 s + 2000 s) for archive. This path is longer than
    # stage_out (500 s) and report (115 s).
    assert first.latest_finish == at(7200 - 3605 - 2005)
    assert [step.task_id for step in first.chain] == ["reconstruct", "archive"]
    assert first.slack_seconds == 1590 - 5 - 600
    out = plan.transfers["stage_out"]
    assert out.latest_finish == at(7200 - 120)
    assert out.earliest_start == at(605 + 3605 + 5)
    assert out.rate_min == pytest.approx(50e9 / (7080 - 4215))
    assert "evict" not in plan.transfers
    assert [step.task_id for step in plan.critical] == ["stage_in", "reconstruct", "archive"]
    assert plan.reason is not None
    assert plan.reason.task_id == "archive"
    assert first.why == (
        "stage_in must be done by 2026-11-21T12:26:30Z: the run's deadline "
        "2026-11-21T14:00:00Z minus 93.5 min for reconstruct 60 min (declared), archive "
        "33.3 min (200000 MB at 100.0 MB/s), and for 5 s of overhead before each of these "
        "tasks"
    )


def test_mapped_instances_share_what_is_left_in_rounds() -> None:
    tasks = [
        Task("samples", is_transfer=True, bytes=96 * 10**9, instances=96, at_once=4),
        Task("merge", ("samples",), expected_seconds=395),
    ]
    plan = plan_deadlines(tasks, deadline=at(5205), now=NOON)
    found = plan.transfers["samples"]
    assert (found.rounds, found.bytes) == (24, 10**9)
    assert found.latest_finish == at(4805)
    assert found.rate_min == pytest.approx(24 * 10**9 / 4800)
    assert found.finish_of_next(at(5)) == at(205)
    half = [dataclasses.replace(tasks[0], instances_done=48, state="running"), tasks[1]]
    later = plan_deadlines(half, deadline=at(5205), now=at(1000)).transfers["samples"]
    assert later.finish_of_next(at(1000)) == at(1000 + 3805 / 12)


def test_transfers_of_unknown_duration_share_the_time_by_bytes() -> None:
    tasks = [
        Task("in", is_transfer=True, bytes=30 * 10**9),
        Task("compute", ("in",), expected_seconds=585),
        Task("out", ("compute",), is_transfer=True, bytes=10 * 10**9),
    ]
    plan = plan_deadlines(tasks, deadline=at(1000), now=NOON)
    assert plan.rate_common == pytest.approx(100e6)
    # 400 s are left for both transfers. The transfer with three quarters of the bytes gets three
    # quarters of the time.
    assert plan.transfers["in"].latest_finish == at(5 + 300)
    assert plan.transfers["out"].latest_finish == at(1000)
    # The second transfer can start when the first is done, which may be immediately.
    assert plan.transfers["out"].earliest_start == at(5 + 5 + 585 + 5)
    assert plan.slack_seconds == pytest.approx(0, abs=1e-3)


def test_an_infeasible_deadline_is_reported() -> None:
    plan = plan_deadlines(DAY, deadline=at(3000), now=NOON, rate=100e6)
    assert not plan.transfers["stage_in"].is_possible
    assert plan.slack_seconds == 3000 - (605 + 3605 + 2005)
    nothing = plan_deadlines(DAY, deadline=at(3000), now=NOON)
    assert nothing.rate_common is None
    assert nothing.transfers["archive"].expected_seconds is None


@pytest.mark.parametrize(
    ("tasks", "words"),
    [
        ([Task("a", ("b",))], "task a waits for the task b, which does not exist"),
        ([Task("a", ("b",)), Task("b", ("a",))], "these tasks wait for each other: a, b"),
        ([Task("a"), Task("a")], "two tasks are named a"),
    ],
)
def test_an_invalid_graph_is_refused(tasks: list[Task], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        plan_deadlines(tasks, deadline=at(1), now=NOON)


def test_times_without_a_zone_are_refused() -> None:
    with pytest.raises(ValueError, match="time zone"):
        plan_deadlines([], deadline=datetime(2026, 1, 1), now=NOON)  # noqa: DTZ001


def test_an_empty_run_has_an_empty_plan() -> None:
    plan = plan_deadlines([], deadline=at(10), now=NOON)
    assert (plan.transfers, plan.critical, plan.reason) == ({}, (), None)
    assert plan.slack_seconds == 10


def test_time_spans_are_written_readably() -> None:
    assert [span(5), span(600), span(9000), span(-30)] == ["5 s", "10 min", "2.5 h", "-30 s"]


# --- unknown durations --------------------------------------------------------------------------

GB = 10**9


def chain(*transfers: Task) -> list[Task]:
    return [
        dataclasses.replace(each, upstream=(transfers[at - 1].id,) if at else ())
        for at, each in enumerate(transfers)
    ]


def window(plan: DeadlinePlan, name: str, before: str | None = None) -> float:
    """Return the seconds from the end of the transfer ``before`` to the deadline of ``name``."""
    begin = plan.now if before is None else plan.transfers[before].latest_finish
    return (plan.transfers[name].latest_finish - begin).total_seconds() - 5


def test_a_small_transfer_leaves_time_to_an_unknown_one_before_it() -> None:
    tasks = chain(Task("raw", is_transfer=True), Task("log", is_transfer=True, bytes=1000))
    plan = plan_deadlines(tasks, deadline=at(3600), now=NOON)
    assert plan.estimated == ("raw",)
    assert plan.unknown == ()
    assert plan.transfers["raw"].is_possible
    assert window(plan, "raw") > 3500
    assert 10 <= window(plan, "log", "raw") < 60
    assert plan.transfers["raw"].expected_seconds is None
    assert "log 19.9 s (0 MB at 0.0 MB/s)" in plan.transfers["raw"].why
    # The order of the two transfers makes no difference.
    plan = plan_deadlines(chain(*tasks[::-1]), deadline=at(3600), now=NOON)
    assert 10 <= window(plan, "log") < 60
    assert window(plan, "raw", "log") > 3500


def test_transfers_of_unknown_size_share_the_time_evenly() -> None:
    names = ("a", "b", "c")
    tasks = chain(*(Task(name, is_transfer=True) for name in names))
    tasks.insert(0, Task("first", expected_seconds=285))
    tasks[1] = dataclasses.replace(tasks[1], upstream=("first",))
    plan = plan_deadlines(tasks, deadline=at(1205), now=NOON)
    assert [plan.transfers[name].latest_finish for name in names] == [
        at(595),
        at(900),
        at(1205),
    ]
    assert "b 5 min (size unknown, an equal share of the time)" in plan.transfers["a"].why


def test_no_transfer_is_planned_faster_than_its_endpoint() -> None:
    tasks = chain(
        Task("in", is_transfer=True, bytes=30 * GB, rate=100e6),
        Task("out", is_transfer=True, bytes=10 * GB, rate=100e6),
    )
    # The transfers take 400 s at full rate, and have twice that time.
    plan = plan_deadlines(tasks, deadline=at(810), now=NOON)
    assert plan.rate_common == pytest.approx(50e6)
    assert plan.transfers["in"].latest_finish == at(605)
    # The time is too short. The plan does not assume a higher rate than the endpoint has.
    late = plan_deadlines(tasks, deadline=at(300), now=NOON)
    assert late.rate_common == pytest.approx(100e6)
    assert late.slack_seconds == pytest.approx(300 - 410)
    assert late.transfers["in"].slack_seconds == pytest.approx(-110)
    slow = dataclasses.replace(tasks[1], rate=10e6)
    plan = plan_deadlines([tasks[0], slow], deadline=at(2610), now=NOON)
    assert window(plan, "in") == pytest.approx(600)
    assert window(plan, "out", "in") == pytest.approx(2000)


def test_known_durations_stay_and_unknown_ones_share_the_rest() -> None:
    tasks = chain(
        Task("big", is_transfer=True, bytes=80 * GB, rate=100e6),
        Task("open", is_transfer=True),
    )
    plan = plan_deadlines(tasks, deadline=at(1010), now=NOON)
    assert window(plan, "big") == pytest.approx(800)
    assert window(plan, "open", "big") == pytest.approx(200)
    # A transfer of unknown rate gets an even share of the time.
    bare = [dataclasses.replace(tasks[0], rate=None), tasks[1]]
    plan = plan_deadlines(bare, deadline=at(1010), now=NOON)
    assert window(plan, "big") == pytest.approx(500)


@given(graphs(known=False), st.integers(100, 20_000), st.data())
@settings(max_examples=100, deadline=None)
def test_with_sizes_and_rates_partly_known_every_path_fits_if_it_can(
    tasks: list[Task], left: int, data: st.DataObject
) -> None:
    rates = st.sampled_from([None, 1e5, 1e7])
    partly = []
    for task in tasks:
        if task.is_transfer and task.bytes is not None:
            is_known = data.draw(st.booleans())
            change = {"rate": data.draw(rates)} if is_known else {"bytes": None}
            task = dataclasses.replace(task, **change)
        partly.append(task)
    plan = plan_deadlines(partly, deadline=at(left), now=NOON)
    named = {task.id: task for task in partly}
    paths = all_paths(named)
    # The longest path in seconds at full rates. Tasks of unknown duration count as 0 s.
    least = max(
        sum(
            sum(cost(named[n], 0.0, 5.0))
            + (cost(named[n], 1.0, 0.0)[0] / r if (r := named[n].rate) and named[n].bytes else 0.0)
            for n in path
        )
        for path in paths
    )
    if least <= left * 0.999:
        assert plan.slack_seconds >= -1e-3 * left - 70
    for name, found in plan.transfers.items():
        for step in found.chain:
            size, rate = named[step.task_id].bytes, named[step.task_id].rate
            if size and rate and named[step.task_id].state == "waiting":
                parts = cost(named[step.task_id], 1.0, 0.0)[0]
                assert step.seconds >= parts / rate * (1 - 1e-6), name
