"""Tests of the admission of staging: copies between two tiers are reserved as transfers are."""

from __future__ import annotations

import datetime as dt
import os
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from dray.testing.endpoints import Endpoint

Loose: TypeAlias = Any
pytestmark = [pytest.mark.server, pytest.mark.slow]

START = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
MEGA = 1_000_000
LINK = 10 * MEGA


@pytest.fixture
def site(start_endpoint: Callable[..., Endpoint], connect: Callable[..., str]) -> Endpoint:
    """Return an endpoint with a slow and a fast root that can promise 10 MB/s."""
    from dray.testing.endpoints import Root

    roots = (Root("tape", {"tier": "slow"}), Root("nvme", {"tier": "fast"}))
    endpoint = start_endpoint("t", roots=roots, config={"rate": LINK})
    connect("dray_default", endpoint)
    return endpoint


def make_dag(dag_id: str) -> Loose:
    from airflow.sdk import DAG

    return DAG(dag_id, schedule=None, start_date=START, default_args={"retries": 0})


@pytest.mark.full
def test_staging_uses_the_reservation_of_its_run(
    site: Endpoint, run_dag: Callable[..., Loose]
) -> None:
    """Between admission and staging, another caller asks for the whole rate and is refused."""
    from airflow.providers.standard.operators.python import PythonOperator

    from dray.client import Request
    from dray_airflow.deadlines.dag import expect
    from dray_airflow.operators.admit import DrayAdmitOperator, reservation_id
    from dray_airflow.operators.stage import DrayStageInOperator, DrayStageOutOperator

    content = os.urandom(4 * MEGA)
    site.root("in.dat", root="tape").write_bytes(content)
    seen: dict[str, Any] = {}

    def asked(size: int, seconds: float) -> str:
        due = dt.datetime.now(dt.timezone.utc) + dt.timedelta(seconds=seconds)
        wanted = Request("/tape/q", "/nvme/p", bytes_expected=size, deadline=due)
        with site.client() as client:
            return client.admission([wanted]).decision

    def compute() -> None:
        with site.client() as client:
            seen["live"] = {
                each.id: (each.state, each.promised, each.request["labels"])
                for each in client.transfers(state="live")
            }
        seen["decision"] = asked(160 * LINK, 180)
        source = site.root("in.dat", root="nvme")
        source.with_name("out.dat").write_bytes(source.read_bytes()[::-1])

    with make_dag("reserves_staging") as dag:
        bring = DrayStageInOperator(
            task_id="bring", path="/tape/in.dat", to="/nvme/in.dat", bytes_expected="4MB"
        )
        work = PythonOperator(task_id="compute", python_callable=compute)
        # 40 s of the rate are reserved, although less data is written later.
        keep = DrayStageOutOperator(
            task_id="keep",
            path="/nvme/out.dat",
            to="/tape/out.dat",
            bytes_expected=40 * LINK,
            expected_duration=2,
        )
        DrayAdmitOperator(task_id="admit") >> bring >> expect(work, 2) >> keep
    ran = run_dag(dag, run_conf={"deadline": "180s"})
    assert ran.state == "success"
    result = ran.result("admit")
    assert (result["promised"], result["left_out"]) == (2, {})
    ids = {name: result["transfers"][name]["id"] for name in ("bring", "keep")}
    # The first copy has replaced its reservation, and the second reservation is held.
    assert set(seen["live"]) == {reservation_id(ids["keep"])}
    state, is_promised, labels = seen["live"][reservation_id(ids["keep"])]
    assert (state, is_promised, labels["task_id"]) == ("queued", True, "keep")
    assert seen["decision"] == "refuse"
    assert site.root("out.dat", root="tape").read_bytes() == content[::-1]
    with site.client() as client:
        known = {each.id: each for each in client.transfers()}
        assert set(known) == set(ids.values()), "no reservation is left"
        # The transfers that replaced the reservations were promised.
        assert {each.notices for each in known.values()} == {()}
        assert known[ids["keep"]].request["bytes_expected"] == 40 * LINK
        assert ran.result("keep")["id"] == ids["keep"]
    assert asked(160 * LINK, 180) == "accept"


def test_staging_that_does_not_fit_is_refused_before_the_run_starts(
    site: Endpoint, run_dag: Callable[..., Loose], capsys: pytest.CaptureFixture[str]
) -> None:
    from airflow.providers.standard.operators.empty import EmptyOperator

    from dray_airflow.operators.admit import DrayAdmitOperator
    from dray_airflow.operators.stage import DrayStageInOperator

    with make_dag("stages_too_much") as dag:
        # Each copy needs 30 s at the full rate. Only one of them fits before the deadline.
        big = [
            DrayStageInOperator(
                task_id=f"big{n}",
                path=f"/tape/{n}",
                to=f"/nvme/{n}",
                bytes_expected=30 * LINK,
            )
            for n in range(2)
        ]
        stop = EmptyOperator(task_id="stop", trigger_rule="all_skipped")
        DrayAdmitOperator(task_id="admit") >> stop >> big
    ran = run_dag(dag, run_conf={"deadline": "50s"})
    assert str(ran.task("admit").state) == "failed"
    lines = capsys.readouterr().out.splitlines()
    line = next(each for each in lines if each.startswith("dray_airflow.errors"))
    assert "cannot promise the 2 transfers of the run by its deadline" in line
    assert "if triggered again within a minute, the run could be promised by" in line, line
    with site.client() as client:
        assert list(client.transfers(state="live")) == []
    # With the offered deadline the run is admitted.
    offered = line.split('{"deadline": "')[1].split('"')[0]
    ran = run_dag(dag, run_conf={"deadline": offered})
    assert ran.result("admit")["promised"] == 2
