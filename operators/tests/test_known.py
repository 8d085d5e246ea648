"""Tests of rates and sizes from a real endpoint, and of a first run planned with them."""

from __future__ import annotations

import datetime as dt
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from dray_airflow.deadlines import known
from dray_airflow.deadlines.dag import _with_known, task_from
from dray_airflow.deadlines.graph import plan_deadlines

if TYPE_CHECKING:
    from collections.abc import Callable

    from dray.testing.endpoints import Endpoint

Loose: TypeAlias = Any
pytestmark = pytest.mark.server

RATE = 10_000_000
START = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)


@pytest.fixture
def site(start_endpoint: Callable[..., Endpoint], connect: Callable[..., str]) -> Endpoint:
    endpoint = start_endpoint("a", config={"rate": RATE})
    connect("site_a", endpoint)
    return endpoint


def move(task_id: str, **words: Loose) -> Loose:
    from dray_airflow.operators.transfer import DrayTransferOperator

    ends = {"source_conn_id": "site_a", "destination_conn_id": "site_a"}
    given = {"sources": f"/data/{task_id}", "destination": f"/data/out/{task_id}", **ends, **words}
    return DrayTransferOperator(task_id=task_id, **given)


def test_an_endpoint_reports_its_rate_and_the_size_of_a_source(
    site: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = site.root("raw")
    (folder / "deep").mkdir(parents=True)
    (folder / "a").write_bytes(b"x" * 1000)
    (folder / "deep/b").write_bytes(b"x" * 234)
    context: Loose = {"ti": SimpleNamespace(task_id="raw"), "where": "raw"}
    asked = [
        move("raw", sources="/data/{{ where }}/"),
        move("some", sources="/data/raw/", include=["a"]),
        move("results"),
        move("two", sources=["/data/raw", "/data/results"]),
        move("broken", sources="/data/{{ nothing.there }}"),
        move("nowhere", destination_conn_id="no_such_connection"),
    ]
    found = known.known_of(asked, context)
    assert {name: each.bytes for name, each in found.items()} == {
        "raw": 1234,
        "some": None,
        "results": None,
        "two": None,
    }
    for name in ("raw", "some", "results"):
        assert found[name].rate == pytest.approx(RATE, rel=0.1)
    monkeypatch.setattr(known, "ENTRIES_MAX", 2)
    assert known.known_of(asked[:1], context)["raw"].bytes is None
    site.kill()
    monkeypatch.setattr(known, "SECONDS", 1.0)
    begun = time.monotonic()
    assert known.known_of(asked[:3], context) == {}
    assert time.monotonic() - begun < 10


def test_a_first_run_gives_the_large_transfer_the_time(site: Endpoint) -> None:
    from airflow.sdk import DAG

    site.root("raw").mkdir()
    with (site.root("raw") / "large").open("wb") as file:
        file.truncate(2_000_000_000)
    with DAG("first", schedule=None, start_date=START) as dag:
        move("raw", sources="/data/raw/") >> move("log", bytes_expected=1000)
    context: Loose = {"ti": SimpleNamespace(task_id="raw"), "dag": dag}
    tasks = _with_known([task_from(each, dag) for each in dag.tasks], dag, context)
    now = dt.datetime.now(dt.timezone.utc)
    plan = plan_deadlines(tasks, deadline=now + dt.timedelta(seconds=600), now=now)
    raw = plan.transfers["raw"]
    assert raw.bytes == 2_000_000_000
    assert (raw.latest_finish - now).total_seconds() > 500
    assert raw.rate_min is not None
    assert raw.rate_min < RATE
