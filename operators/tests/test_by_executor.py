"""The transfer operator with `globus://` URLs and the local service, run by Airflow."""

from __future__ import annotations

import datetime as dt
import json
import threading
import time
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from integration.globus.service import CLIENT_ID, CLIENT_SECRET, Fault, Service
from integration.globus.tasks import Behaviour

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

Loose: TypeAlias = Any
pytestmark = pytest.mark.server
HERE = "11111111-1111-4111-8111-111111111111"
THERE = "22222222-2222-4222-8222-222222222222"
SOON = "{{ macros.datetime.now(macros.dateutil.tz.UTC) + macros.timedelta(seconds=4) }}"
START = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """Yield a service with two collections, and its connection `globus_default`."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    (here / "f").write_bytes(b"data")
    sites = tmp_path / "sites.toml"
    sites.write_text(
        f'[[site]]\nroot = "dray://dtn.example.org/data"\ncollection = "{THERE}"\npath = "/"\n'
    )
    with Service({HERE: here, THERE: there}) as found:
        extra = {
            "base_url": found.url,
            "auth_url": found.url,
            "state": str(tmp_path / "state"),
            "sites": str(sites),
        }
        words = {"login": CLIENT_ID, "password": CLIENT_SECRET, "extra": extra}
        connection = json.dumps({"conn_type": "generic", **words})
        monkeypatch.setenv("AIRFLOW_CONN_GLOBUS_DEFAULT", connection)
        monkeypatch.setattr("dray_airflow.by_executor.POLL_SECONDS_DEFERRED", 0.1)
        yield found


def make_dag(dag_id: str) -> Loose:
    from airflow.sdk import DAG

    return DAG(dag_id, schedule=None, start_date=START)


def move(**words: Loose) -> Loose:
    from dray_airflow.operators.transfer import DrayTransferOperator

    given: dict[str, Any] = {
        "task_id": "move",
        "sources": f"globus://{HERE}/f",
        "destination": f"globus://{THERE}/" + "{{ dag.dag_id }}/f",
        "retries": 0,
        "retry_delay": dt.timedelta(0),
    }
    return DrayTransferOperator(**{**given, **words})


@pytest.mark.parametrize("is_deferred", [False, True])
def test_a_file_arrives(service: Service, run_dag: Callable[..., Loose], is_deferred: bool) -> None:
    dag_id = f"globus_{is_deferred}"
    if is_deferred:
        service.behaviour = Behaviour(pause_seconds=1)
    with make_dag(dag_id) as dag:
        move(deferrable=is_deferred, grace_seconds=0, options={"label": "night"})
    ran = run_dag(dag)
    assert ran.state == "success"
    assert (service.folders[THERE] / dag_id / "f").read_bytes() == b"data"
    result = ran.result("move")
    assert (result["files"], result["bytes"], result["bytes_durable"]) == (1, 4, 4)
    shown = ran.result("move", key="dray_transfer")
    assert (shown["state"], shown["id"]) == ("done", result["id"])
    assert shown["show"].startswith("https://app.globus.org/activity/")
    (asked,) = service.submissions
    assert asked["label"] == "night"
    # The record is removed after the report. A cleared task then submits again.
    assert run_dag(dag).state == "success"
    assert len(service.submissions) == 2


def test_a_retry_finds_the_task_of_a_lost_answer(
    service: Service, run_dag: Callable[..., Loose]
) -> None:
    # All repetitions of the SDK lose their answers too.
    service.faults.append(Fault("POST /v0.10/transfer", is_done=True, count=6))
    with make_dag("globus_retry") as dag:
        move(retries=1)
    assert run_dag(dag).state == "success"
    assert len(service.tasks) == 1


@pytest.mark.parametrize("is_deferred", [False, True])
def test_a_late_task_is_cancelled(
    service: Service, run_dag: Callable[..., Loose], is_deferred: bool
) -> None:
    service.behaviour = Behaviour(paused=threading.Event())
    with make_dag(f"globus_late_{is_deferred}") as dag:
        move(
            deferrable=is_deferred,
            grace_seconds=0,
            deadline=SOON,
        )
    assert run_dag(dag).state == "failed"
    (task,) = service.tasks.values()
    assert task.status == "FAILED"
    assert service.submissions[0]["deadline"]


def test_an_outage_ends_the_try_and_not_the_task(
    service: Service, run_dag: Callable[..., Loose], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dray_airflow.by_executor.OUTAGE_SECONDS", 0.0)
    monkeypatch.setattr("dray_airflow.by_executor.LOG_SECONDS", 0.1)
    service.behaviour = Behaviour(paused=threading.Event())
    with make_dag("globus_outage") as dag:
        move(deferrable=False)

    def fail() -> None:
        while not service.tasks:
            time.sleep(0.01)
        time.sleep(0.5)
        service.busy("GET /v0.10/task/", seconds=1, count=1000, status=503)

    threading.Thread(target=fail, daemon=True).start()
    assert run_dag(dag).state == "failed"
    (task,) = service.tasks.values()
    assert task.status == "ACTIVE"
    assert not task.is_cancelled.is_set()


def test_a_path_of_an_endpoint_uses_the_site_map(
    service: Service, run_dag: Callable[..., Loose], monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = {"conn_type": "dray", "host": "dtn.example.org", "password": "unused"}
    monkeypatch.setenv("AIRFLOW_CONN_SITE_B", json.dumps(connection))
    with make_dag("globus_site") as dag:
        move(destination="/data/in/f", destination_conn_id="site_b")
    assert run_dag(dag).state == "success"
    assert (service.folders[THERE] / "in/f").read_bytes() == b"data"


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        ({"rate_min": "1MB"}, "globus has no such option"),
        ({"sources": "gopher://h/f"}, "schemes globus, gopher"),
        ({"options": {"labels": "x"}}, "there is no such option"),
        ({"executor_conn_id": "missing"}, "does not exist"),
        ({"sources": f"globus://{START:%Y}/f"}, "not the UUID"),
    ],
)
def test_bad_input_fails_without_a_retry(
    service: Service,
    run_dag: Callable[..., Loose],
    words: dict[str, Loose],
    cause: str,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with make_dag("globus_bad") as dag:
        move(retries=3, **words)
    ran = run_dag(dag)
    assert ran.state == "failed"
    assert ran.task("move").try_number == 1
    assert service.submissions == []
    assert cause in caplog.text + "".join(capfd.readouterr())
