"""The transfer operator against real endpoints, run by Airflow in one process."""

from __future__ import annotations

import datetime as dt
import os
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from dray.testing.plugin import Two

Loose: TypeAlias = Any
pytestmark = pytest.mark.server

START = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)


@pytest.fixture
def sites(two_endpoints: Two, connect: Callable[..., str]) -> Two:
    """Give two endpoints with connections ``site_a`` and ``site_b``."""
    connect("site_a", two_endpoints.a)
    connect("site_b", two_endpoints.b)
    return two_endpoints


def make_dag(dag_id: str) -> Loose:
    from airflow.sdk import DAG

    return DAG(dag_id, schedule=None, start_date=START)


def move(**words: Loose) -> Loose:
    from dray_airflow.operators.transfer import DrayTransferOperator

    given: dict[str, Any] = {
        "task_id": "move",
        "sources": "/data/x.dat",
        "destination": "/data/y.dat",
        "source_conn_id": "site_a",
        "destination_conn_id": "site_b",
        "retries": 0,
        "retry_delay": dt.timedelta(0),
    }
    return DrayTransferOperator(**{**given, **words})


def test_a_file_arrives_and_the_result_says_how(sites: Two, run_dag: Callable[..., Any]) -> None:
    content = os.urandom(3_000_000)
    sites.a.root("x.dat").write_bytes(content)
    with make_dag("arrives") as dag:
        move(destination="/data/{{ dag.dag_id }}/x.dat")
        move(task_id="deferred", rate_max="1MB", grace_seconds=0)
    ran = run_dag(dag)
    assert ran.state == "success"
    assert sites.b.root("arrives/x.dat").read_bytes() == content
    assert sites.b.root("y.dat").read_bytes() == content
    for task_id in ("move", "deferred"):
        result = ran.result(task_id)
        with sites.b.client() as client:
            seen = client.transfer(result["id"])
        assert result == {
            "id": seen.id,
            "files": 1,
            "bytes": 3_000_000,
            "bytes_sent": 3_000_000,
            "bytes_resumed": 0,
            "bytes_durable": 3_000_000,
            "seconds": result["seconds"],
            "checksum": result["checksum"],
        }
        assert seen.request["labels"]["task_id"] == task_id
        assert seen.request["activity"] == "arrives"
        assert ran.result(task_id, "_link_DrayTransferLink").endswith(f"/v1/transfers/{seen.id}")
