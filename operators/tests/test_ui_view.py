"""Tests of the answers of the API."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from dray.client import Transfer
from dray_airflow.deadlines.published import PublishedPlan
from dray_airflow.deadlines.task import Task
from dray_airflow_ui.live import Problem, Reading
from dray_airflow_ui.view import plan_view, read_standing, safe_link, transfer_view

NOW = datetime(2026, 11, 28, 12, tzinfo=timezone.utc)
STANDING: dict[str, Any] = {
    "id": "t",
    "endpoint": "dray://a:1",
    "connection": "a",
    "state": "active",
    "as_of": "2026-11-28T11:00:00+00:00",
    "bytes_durable": 7,
    "bytes_listed": 10,
}


def shown(reading: Reading | None, **words: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    standing = read_standing({**STANDING, **words})
    assert standing is not None
    return transfer_view(
        standing, dag_id="d", task_id="x", map_index=-1, task_state="running", reading=reading
    )


def live(dag_id: str) -> Reading:
    return Reading({"t": Transfer("t", "done", request={"labels": {"dag_id": dag_id}})})


def test_a_transfer_of_the_dag_is_shown_live() -> None:
    found = shown(live("d"))
    assert (found["origin"], found["state"]) == ("live", "done")


def test_a_lost_endpoint_leaves_its_last_answer_with_its_time() -> None:
    lost = live("d")._replace(as_of=NOW, problem=Problem("unreachable", "m", "r"))
    found = shown(lost)
    assert (found["origin"], found["state"]) == ("endpoint", "done")
    assert found["as_of"] == NOW.isoformat()


def test_a_transfer_of_another_dag_is_not_shown() -> None:
    found = shown(live("other"))
    assert (found["origin"], found["state"]) == ("task", "active")
    assert "Another DAG" in found["why"]


@pytest.mark.parametrize(
    ("reading", "why"),
    [
        (None, "Another service"),
        (Reading({}), "not answered yet"),
        (Reading({"t": None}), "shows no transfer"),
        (Reading({}, problem=Problem("unreachable", "m", "r")), "did not answer"),
    ],
)
def test_without_a_live_state_the_state_of_the_task_is_shown(
    reading: Reading | None, why: str
) -> None:
    found = shown(reading)
    assert found["bytes"] == {"durable": 7, "listed": 10}
    assert why in found["why"]


@pytest.mark.parametrize(
    "value", [None, "t", [], {}, *({"id": id} for id in ("", 7, "a b", "t" * 65))]
)
def test_another_xcom_is_no_transfer(value: object) -> None:
    assert read_standing(value) is None


def test_each_id_that_an_endpoint_accepts_is_an_id() -> None:
    found = read_standing({"id": "run:7_a.b-C"})
    assert found is not None
    assert found.id == "run:7_a.b-C"


def test_fields_of_other_types_are_dropped() -> None:
    found = read_standing({"id": "t", "state": ["x"], "bytes_durable": True, "files_done": -3})
    assert found is not None
    assert (found.state, found.bytes_durable, found.files_done) == ("", 0, 0)


@pytest.mark.parametrize(
    ("template", "link"),
    [
        ("https://a/ui/#/transfers/{id}", "https://a/ui/#/transfers/t"),
        ("javascript:alert(1)//{id}", ""),
        ("data:text/html,{id}", ""),
        ("//a/{id}", ""),
        ("https://[/{id}", ""),
        ("", ""),
    ],
)
def test_only_web_addresses_are_links(template: str, link: str) -> None:
    assert safe_link(template, "t") == link


def test_the_plan_uses_the_expected_end_of_the_endpoint() -> None:
    published = PublishedPlan(
        NOW + timedelta(hours=1),
        "conf",
        NOW,
        (
            Task("move", is_transfer=True, bytes=10, started_at=NOW, state="running"),
            Task("report", upstream=("move",), expected_seconds=60.0),
        ),
    )
    promise = {
        "eta": (NOW + timedelta(minutes=20)).isoformat(),
        "deadline": "2026-11-28T12:58:55Z",
        "promised": True,
        "state": "active",
        "miss": "",
    }
    found = plan_view("r", published, published.tasks, now=NOW, promises={"move": [promise]})
    move, report = found["tasks"]
    assert (move["seconds"], move["basis"]) == (1200, "end expected by the endpoint")
    assert (move["promised"], move["promised_finish"]) == (True, "2026-11-28T12:58:55Z")
    assert report["slack_seconds"] == pytest.approx(3600 - 1200 - 60 - 5)
    assert found["critical"] == ["move", "report"]
    assert "promised" not in report


@pytest.mark.parametrize(
    ("deadline", "seconds"),
    [(NOW, 1e18), (datetime.min.replace(tzinfo=timezone.utc), 60.0)],
)
def test_a_plan_outside_the_calendar_has_one_kind_of_error(
    deadline: datetime, seconds: float
) -> None:
    tasks = (Task("a", expected_seconds=seconds), Task("b", upstream=("a",), expected_seconds=9.0))
    with pytest.raises(ArithmeticError):
        plan_view("r", PublishedPlan(deadline, "conf", NOW, tasks), tasks, now=NOW, promises={})
