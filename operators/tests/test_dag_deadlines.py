"""Tests of the run's deadline and graph, with real DAGs and real runs in one process."""

from __future__ import annotations

import datetime as dt
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

Loose: TypeAlias = Any
START = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
NOON = dt.datetime(2026, 11, 21, 12, tzinfo=dt.timezone.utc)


def make_dag(dag_id: str, **words: Loose) -> Loose:
    from airflow.sdk import DAG

    return DAG(dag_id, schedule=None, start_date=START, **words)


def move(task_id: str, **words: Loose) -> Loose:
    from dray_airflow.operators.transfer import DrayTransferOperator

    given = {"sources": "/data/x", "destination": "/data/y", **words}
    return DrayTransferOperator(task_id=task_id, **given)


# --- input in a conf ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("2026-11-21T14:00:00Z", 7200),
        ("2026-11-21T15:00:00+01:00", 7200),
        ("90m", 5400),
        ("+2h", 7200),
        ("1.5h", 5400),
        ("30 s", 30),
        ("1d", 86400),
        (45, 45),
        (0.5, 0.5),
    ],
)
def test_a_deadline_is_a_time_or_a_length_of_time(value: object, seconds: float) -> None:
    from dray_airflow.deadlines.times import read_deadline

    assert read_deadline(value, NOON) == NOON + dt.timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("soon", "'soon' is not a deadline"),
        ("", "is not a deadline"),
        (True, "True is not a deadline"),
        ("2026-11-21T14:00:00", "has no time zone"),
        ("9" * 40 + "d", "is not a deadline"),
        ([1], "is not a deadline"),
    ],
)
def test_an_invalid_deadline_is_refused(value: object, words: str) -> None:
    from dray_airflow.deadlines.times import read_deadline

    with pytest.raises(ValueError, match=words):
        read_deadline(value, NOON)


def test_mapped_task_rows_differ_from_names_that_end_in_a_number() -> None:
    from dray_airflow.deadlines.history import sort_states

    rows = {"a": "success", "a_0": "running", "b_0": "success", "b_1": None, "c_x": "failed"}
    found = sort_states(rows, ["a", "a_0", "b", "c_x"])
    assert {name: each.states for name, each in found.items()} == {
        "a": ["success"],
        "a_0": ["running"],
        "b": ["success", None],
        "c_x": ["failed"],
    }


def test_medians_cover_successful_runs_only() -> None:
    from dray_airflow.deadlines.history import Past, summarise

    def row(task_id: str, duration: float | None, state: str = "success") -> dict[str, Any]:
        return {"task_id": task_id, "duration": duration, "state": state}

    runs = [
        [row("a", 10), row("m", 1), row("m", 3), row("m", 100)],
        [row("a", 12), row("m", 2), row("m", 2)],
        [row("a", 999, "failed"), row("b", None)],
    ]
    assert summarise(runs) == {"a": Past(11, 2, 1), "m": Past(2, 5, 3)}


# --- the graph ------------------------------------------------------------------------------------


def test_the_graph_is_read_from_operators_mapped_or_not(database: Loose) -> None:
    from airflow.providers.standard.operators.empty import EmptyOperator
    from airflow.sdk import task

    from dray_airflow.deadlines.dag import expect, task_from
    from dray_airflow.deadlines.history import Instances, Past
    from dray_airflow.operators.transfer import DrayTransferOperator

    with make_dag("graph", max_active_tasks=3) as dag:

        @task
        def compute() -> None: ...

        first = move("first", bytes_expected="200GB", expected_duration=dt.timedelta(minutes=3))
        shards = DrayTransferOperator.partial(
            task_id="shards", destination="/data/", max_active_tis_per_dagrun=2
        ).expand_kwargs([{"sources": f"/data/{n}", "bytes_expected": 10 * n} for n in range(1, 6)])
        unknown = DrayTransferOperator.partial(
            task_id="unknown", destination="/data/", bytes_expected=7
        ).expand(sources=compute.override(task_id="list")())
        clean = EmptyOperator(task_id="clean", trigger_rule="all_done").as_teardown()
        first >> expect(compute(), dt.timedelta(minutes=5)) >> [shards, unknown] >> clean
    found = {each.task_id: task_from(each, dag, Past(42.0, 9, 4)) for each in dag.tasks}
    assert found["first"].is_transfer
    assert (found["first"].bytes, found["first"].expected_seconds) == (200_000_000_000, 180)
    assert (found["compute"].expected_seconds, found["compute"].upstream) == (300, ("first",))
    assert not found["compute"].is_transfer
    assert (found["shards"].instances, found["shards"].bytes) == (5, 150)
    assert (found["shards"].at_once, found["shards"].rounds) == (2, 3)
    # Before the instances exist, their number is that of past runs. Afterwards it is the real
    # number.
    assert (found["unknown"].instances, found["unknown"].bytes, found["unknown"].at_once) == (
        4,
        28,
        3,
    )
    now = task_from(dag.get_task("unknown"), dag, None, Instances(["success", "running", None]))
    assert (now.instances, now.instances_done, now.state) == (3, 1, "running")
    assert not found["clean"].is_counted
    assert (found["clean"].rule, found["clean"].median_seconds) == (
        "all_done_setup_success",
        42.0,
    )


def test_a_length_below_zero_is_refused(database: Loose) -> None:
    from dray_airflow.deadlines.dag import expect

    with make_dag("below"), pytest.raises(ValueError, match="not a duration"):
        expect(move("one"), -1)


# --- the run's deadline ---------------------------------------------------------------------------


def run_of(**words: Loose) -> SimpleNamespace:
    given = {"conf": {}, "run_after": NOON, "start_date": NOON, "logical_date": None}
    return SimpleNamespace(**{**given, **words})


async def on_missed(context: object) -> None:
    """A callback for a missed deadline."""


def test_the_deadline_comes_from_the_conf_then_the_first_alert(database: Loose) -> None:
    from airflow.sdk.definitions.callback import AsyncCallback
    from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference

    from dray_airflow.deadlines.callback import deadline_alerts
    from dray_airflow.deadlines.dag import run_deadline

    def alert(reference: Loose, minutes: float) -> Loose:
        return DeadlineAlert(reference, dt.timedelta(minutes=minutes), AsyncCallback(on_missed))

    def due(run: Loose, *alerts: Loose) -> Loose:
        dag = make_dag("due", deadline=list(alerts))
        found = run_deadline({"dag": dag, "dag_run": run})
        return None if found is None else (found.time - NOON).total_seconds() / 60

    queued = alert(DeadlineReference.DAGRUN_QUEUED_AT, 60)
    fixed = alert(DeadlineReference.FIXED_DATETIME(NOON + dt.timedelta(minutes=30)), 15)
    logical = alert(DeadlineReference.DAGRUN_LOGICAL_DATE, 10)
    average = alert(DeadlineReference.AVERAGE_RUNTIME(), 1)
    assert due(run_of()) is None
    assert due(run_of(), queued) == 60
    assert due(run_of(), queued, fixed, logical, average) == 45
    assert due(run_of(logical_date=NOON), queued, logical) == 10
    assert due(run_of(conf={"deadline": "2h"}), queued, fixed) == 120
    # A run that catches up was due long ago, but is queued at about its start.
    late = run_of(start_date=NOON + dt.timedelta(days=3))
    assert due(late, queued) == 3 * 24 * 60 + 60
    early = deadline_alerts(looks=[dt.timedelta(minutes=30)])
    assert len(early) == 2
    assert due(run_of(), *early) is None
    assert due(run_of(conf={"deadline": "3h"}), *early) == 180


@pytest.mark.slow
def test_a_worker_plans_with_past_medians_and_finished_tasks(
    run_dag: Callable[..., Any],
) -> None:
    """The third of three runs plans with the medians of the first two and its own progress."""
    from airflow.sdk import task

    from dray_airflow.deadlines.dag import deadline_for, expect, plan_for

    with make_dag("history") as dag:

        @task
        def work() -> None:
            time.sleep(0.3)

        @task
        def look(ti: Loose = None) -> dict[str, Any]:
            context = ti.get_template_context()
            plan = plan_for(context)
            assert plan is not None
            later = plan.transfers["later"]
            assert deadline_for(context) is None, "it is no transfer"
            return {
                "chain": [[step.task_id, step.seconds, step.basis] for step in later.chain],
                "critical": [[step.task_id, step.basis] for step in plan.critical],
                "unknown": list(plan.unknown),
                "bytes": later.bytes,
                "after": (plan.deadline - later.latest_finish).total_seconds(),
            }

        @task.branch
        def choose() -> str:
            return "report"

        @task
        def report() -> None:
            time.sleep(0.2)

        first, seen = work(), look()
        expected = expect(report.override(task_id="publish")(), 600)
        chosen = choose()
        later = move("later", bytes_expected="{{ dag_run.conf['size'] }}")
        first >> seen >> chosen >> [report(), later]
        later >> [report.override(task_id="index")(), expected]
    found = [run_dag(dag, run_conf={"deadline": "2h", "size": "1kB"}) for _ in range(3)]
    assert [ran.state for ran in found] == ["success"] * 3
    fresh, _, third = (ran.result("look") for ran in found)
    assert set(fresh["unknown"]) == {"look", "choose", "report", "index"}
    assert fresh["chain"] == [["publish", 600.0, "declared"]]
    assert third["chain"] == [["publish", 600.0, "declared"]]
    assert third["after"] == 605
    assert third["bytes"] == 1000
    # The branch skips `later` in each run, and with it `index`. So `index` has no median.
    assert "report" not in third["unknown"]
    assert "index" in third["unknown"]
    assert ["work", "median of 2 runs"] not in third["critical"], "it has ended"
    assert third["critical"][0][0] == "look"
    assert third["critical"][1] == ["choose", "median of 2 runs"]


class Asked:
    """A task instance that counts calls of the API and has one run per day."""

    dag_id, run_id, task_id, map_index, start_date = "many", "now", "later", 7, NOON

    def __init__(self, states: dict[str, str | None]) -> None:
        """Store the states of this run."""
        self.states = states
        self.runs: list[str] = []
        self.whole: list[dict[str, Any]] = []

    def get_task_states(self, **words: Loose) -> dict[str, Any]:
        """Return the states of this run, or one row for each past run."""
        if words.get("run_ids"):
            return {self.run_id: self.states}
        self.whole.append(words)
        return {f"r{n}": {"later": "success"} for n in range(50)}

    def get_task_breadcrumbs(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        """Return the durations of a run's tasks."""
        assert dag_id == self.dag_id
        self.runs.append(run_id)
        names = ("before", "later", "after")
        return [{"task_id": name, "state": "success", "duration": 9.0} for name in names]


def test_past_runs_are_queried_only_for_undeclared_values(
    database: Loose,
) -> None:
    from airflow.providers.standard.operators.empty import EmptyOperator

    from dray_airflow.deadlines.dag import expect, tasks_of

    def ask(*declared: str) -> tuple[Asked, dict[str, float | None]]:
        with make_dag("many") as dag:
            before, after = EmptyOperator(task_id="before"), EmptyOperator(task_id="after")
            before >> move("later") >> after
        for name in declared:
            expect(dag.get_task(name), 5)
        ti = Asked({"before": "success", "later": "running", "after": None})
        context: Any = {"ti": ti, "dag": dag, "dag_run": run_of()}
        return ti, {each.id: each.median_seconds for each in tasks_of(context)}

    # The history of an ended task is not requested.
    ti, medians = ask("later", "after")
    assert (ti.runs, ti.whole) == ([], [])
    assert set(medians.values()) == {None}
    ti, medians = ask("later")
    assert ti.runs == ["r49", "r48", "r47"]
    assert medians["after"] == 9
    assert [each["map_index"] for each in ti.whole] == [0], "one row of a run, not a thousand"


@pytest.mark.slow
def test_an_invalid_deadline_in_the_conf_is_logged_without_a_query(
    run_dag: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    from airflow.sdk import task

    from dray_airflow.deadlines.dag import deadline_for

    with make_dag("wrong_conf") as dag:

        @task
        def look(ti: Loose = None) -> bool:
            return deadline_for(ti.get_template_context()) is None

        look() >> move("later", trigger_rule="all_failed")
    ran = run_dag(dag, run_conf={"deadline": "soon"})
    assert ran.result("look") is True
    assert "'soon' is not a deadline: write a time with its time zone" in caplog.text
