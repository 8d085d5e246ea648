"""Tests of staging, comparing and waiting for files, with real endpoints and Airflow."""

from __future__ import annotations

import datetime as dt
import os
import threading
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from dray.testing.endpoints import Endpoint
    from dray.testing.plugin import Two

Loose: TypeAlias = Any
pytestmark = pytest.mark.server

START = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)


def make_dag(dag_id: str) -> Loose:
    from airflow.sdk import DAG

    return DAG(dag_id, schedule=None, start_date=START, default_args={"retries": 0})


@pytest.fixture
def tiers(start_endpoint: Callable[..., Endpoint], connect: Callable[..., str]) -> Endpoint:
    """Return an endpoint with a slow and a fast root, and the connection ``dray_default``."""
    from dray.testing.endpoints import Root

    roots = (Root("tape", {"tier": "slow"}), Root("nvme", {"tier": "fast"}))
    endpoint = start_endpoint("t", roots=roots)
    connect("dray_default", endpoint)
    return endpoint


def test_staging_in_work_and_out_frees_the_fast_tier(
    tiers: Endpoint, run_dag: Callable[..., Loose]
) -> None:
    from airflow.sdk import task

    from dray_airflow.operators.stage import (
        DrayEvictOperator,
        DrayStageInOperator,
        DrayStageOutOperator,
    )

    content = os.urandom(2_000_000)
    folder = tiers.root("run1", root="tape")
    folder.mkdir()
    (folder / "raw.dat").write_bytes(content)

    with make_dag("stages") as dag:
        stage_in = DrayStageInOperator(
            task_id="stage_in",
            path="/tape/run1",
            recursive=True,
            pin=dt.timedelta(hours=1),
            lifetime=7200,
            application="reconstruct",
        )

        @task
        def work(staged: dict[str, Any]) -> str:
            assert staged["to"] == "/nvme/run1"
            there = tiers.root("run1", root="nvme")
            (there.parent / "out.dat").write_bytes((there / "raw.dat").read_bytes()[::-1])
            return "/nvme/out.dat"

        copy: Loose = stage_in.output
        done = work(copy)
        out = DrayStageOutOperator(task_id="stage_out", path=done, to="/tape/out.dat", evict=True)
        free = DrayEvictOperator(task_id="free", staged=copy)
        setup: Loose = stage_in
        setup.as_setup() >> done >> out >> free.as_teardown()

    ran = run_dag(dag)
    assert ran.state == "success"
    result = ran.result("stage_in")
    assert (result["bytes"], result["state"]) == (len(content), "staged")
    assert result["pinned_until"] is not None
    with tiers.client() as client:
        assert client.staging(result["id"]).application == "reconstruct"
        assert client.staging(result["id"]).state == "evicted"
        assert client.staging(ran.result("stage_out")["id"]).state == "evicted"
    assert tiers.root("out.dat", root="tape").read_bytes() == content[::-1]
    assert not list(tiers.root(root="nvme").rglob("*.dat"))


def test_a_stage_out_that_has_freed_its_copy_may_be_run_again(tiers: Endpoint) -> None:
    from types import SimpleNamespace

    from dray_airflow.errors import DrayTaskFailure
    from dray_airflow.hooks.dray import DrayHook
    from dray_airflow.operators.stage import DrayStageOutOperator
    from dray_airflow.submission import Clients, begin

    there = tiers.root("out.dat", root="nvme")
    there.write_bytes(b"first")
    one = DrayStageOutOperator(task_id="out", path="/nvme/out.dat", to="/tape/out.dat", evict=True)

    def again() -> tuple[str, str]:
        ti = SimpleNamespace(dag_id="d", run_id="r", task_id="out", map_index=-1, id="a-try")
        context: Any = {"ti": ti}
        settings = DrayHook("dray_default").settings
        with Clients() as clients:
            begun = begin(one.errand(context, settings), clients)
            client = clients.of("dray_default")
            ended = client.wait(begun.transfer.id, timeout_seconds=30)
            one._complete(context, client, settings, ended)
            return begun.story, ended.state

    assert again() == ("submitted", "done")
    assert not there.exists()
    assert again() == ("was done, and its staged source was freed already", "done")
    # A file that has changed is staged out again.
    there.write_bytes(b"second")
    assert again() == ("started again after it was done", "done")
    assert tiers.root("out.dat", root="tape").read_bytes() == b"second"
    # A copy counts as done only if its slow copy exists.
    tiers.root("out.dat", root="tape").unlink()
    with pytest.raises(DrayTaskFailure):
        again()


def test_an_impossible_stage_in_fails_with_one_line(
    tiers: Endpoint, run_dag: Callable[..., Loose], capfd: pytest.CaptureFixture[str]
) -> None:
    from dray_airflow.operators.stage import DrayStageInOperator

    tiers.root("a.dat", root="tape").write_bytes(b"x")
    with make_dag("stages_badly") as dag:
        DrayStageInOperator(task_id="missing", path="/tape/nothing.dat")
        DrayStageInOperator(task_id="bypass", path="/tape/a.dat", bypass=True)
        DrayStageInOperator(task_id="relative", path="a.dat")
    ran = run_dag(dag)
    assert {ran.task(name).state for name in ("missing", "bypass", "relative")} == {"failed"}
    output = capfd.readouterr().out
    assert "DrayTaskFailure: transfer af-missing-" in output
    assert "No such file or directory" in output
    assert "or omit `bypass`" in output
    assert "'a.dat' is not a path of the endpoint; write /ROOT/PATH" in output


def test_an_unpromised_staging_deadline_is_refused_unless_late_is_allowed(
    start_endpoint: Callable[..., Endpoint],
    connect: Callable[..., str],
    run_dag: Callable[..., Loose],
    capfd: pytest.CaptureFixture[str],
) -> None:
    from dray.testing.endpoints import Root
    from dray_airflow.operators.stage import DrayStageInOperator

    roots = (Root("tape", {"tier": "slow"}), Root("nvme", {"tier": "fast"}))
    site = start_endpoint("t", roots=roots, config={"rate": 1_000_000})
    connect("dray_default", site)
    site.root("a.dat", root="tape").write_bytes(b"x" * 1000)
    # At the full rate, the copy takes 90 s.
    words: dict[str, Any] = {"path": "/tape/a.dat", "bytes_expected": "90MB"}
    by = dt.datetime.now(dt.timezone.utc)
    soon, late = (by + dt.timedelta(seconds=seconds) for seconds in (40, 900))
    with make_dag("stages_by") as dag:
        DrayStageInOperator(task_id="first", to="/nvme/1.dat", deadline=soon, **words)
        required = {**words, "admission": "required"}
        DrayStageInOperator(task_id="required", to="/nvme/2.dat", deadline=soon, **required)
        DrayStageInOperator(task_id="in_time", to="/nvme/3.dat", deadline=late, **required)
        best = {**words, "admission": "{{ 'best_effort' }}"}
        DrayStageInOperator(task_id="best", to="/nvme/4.dat", deadline=soon, **best)
        DrayStageInOperator(task_id="past", to="/nvme/5.dat", deadline=START, **best)
        DrayStageInOperator(task_id="wrong", admission="perhaps", **words)
    ran = run_dag(dag)
    states = {name: str(ran.task(name).state) for name in dag.task_ids}
    assert states == {
        "first": "failed",
        "required": "failed",
        "in_time": "success",
        "best": "success",
        "past": "success",
        "wrong": "failed",
    }
    assert sorted(path.name for path in site.root(root="nvme").glob("*.dat")) == [
        "3.dat",
        "4.dat",
        "5.dat",
    ]
    output = capfd.readouterr().out
    refused = [
        line for line in output.splitlines() if "cannot promise staging af-required-" in line
    ]
    assert refused
    offered = refused[0].split("set the deadline to ")[1].split(" ")[0]
    assert (dt.datetime.fromisoformat(offered.replace("Z", "+00:00")) - by).total_seconds() > 80
    assert "'perhaps' is not an allowed value; write one of required, best_effort" in output
    # The offered deadline is accepted.
    with make_dag("stages_as_offered") as dag:
        DrayStageInOperator(task_id="required", to="/nvme/2.dat", deadline=offered, **required)
    assert run_dag(dag).state == "success"


class Pair(NamedTuple):
    """Two ends to compare, and the arguments for ``/data/set`` at both ends."""

    a: Endpoint
    b: Endpoint
    words: dict[str, Any]


@pytest.fixture
def pair(two_endpoints: Two, connect: Callable[..., str]) -> Pair:
    a, b = two_endpoints
    ends = {"source_conn_id": connect("site_a", a), "destination_conn_id": connect("site_b", b)}
    return Pair(a, b, {"source": "/data/set", "destination": "/data/set", **ends})


def test_differing_files_are_named(
    pair: Pair, run_dag: Callable[..., Loose], capfd: pytest.CaptureFixture[str]
) -> None:
    from dray_airflow.operators.verify import DrayVerifyOperator

    a, b, words = pair
    for end in (a, b):
        for name in ("same.dat", "sub/same.dat", "sub/rotten.dat", "short.dat", "gone.dat"):
            place = end.root(f"set/{name}")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(name.encode() * 1000)
    with make_dag("verifies_well") as dag:
        DrayVerifyOperator(task_id="all", **words)
        one = {"source": a.place("set/same.dat"), "destination": "/data/set/same.dat"}
        DrayVerifyOperator(task_id="one", **{**words, **one, "algorithm": "crc32c"})
    ran = run_dag(dag)
    assert ran.state == "success"
    bytes_of = sum(path.stat().st_size for path in a.root("set").rglob("*.dat"))
    assert ran.result("all") == {"files": 5, "bytes": bytes_of, "checksums": 5, "read": 10}
    assert ran.result("one")["files"] == 1

    rotten = b.root("set/sub/rotten.dat")
    rotten.write_bytes(b"\0" + rotten.read_bytes()[1:])
    b.root("set/short.dat").write_bytes(b"short")
    b.root("set/gone.dat").unlink()
    b.root("set/more.dat").write_bytes(b"does not matter")
    with make_dag("verifies_badly") as dag:
        DrayVerifyOperator(task_id="all", **words)
        DrayVerifyOperator(task_id="sizes", algorithm="none", **words)
    ran = run_dag(dag)
    assert ran.state == "failed"
    output = capfd.readouterr().out
    assert "3 of 5 files differ from the source: /data/set/gone.dat: the file is missing" in output
    assert "/data/set/short.dat: it has 5 bytes, but the source has 9000 bytes; " in output
    assert "/data/set/sub/rotten.dat: its adler32 is " in output
    assert "2 of 5 files differ from the source" in output


def test_an_empty_set_and_a_kept_checksum_prove_nothing(
    pair: Pair, run_dag: Callable[..., Loose], capfd: pytest.CaptureFixture[str]
) -> None:
    from dray_airflow.operators.verify import DrayVerifyOperator

    a, b, words = pair
    for end in (a, b):
        (end.root("set") / "empty").mkdir(parents=True)
    with make_dag("verifies_nothing") as dag:
        DrayVerifyOperator(task_id="nothing", **words)
        DrayVerifyOperator(task_id="is_fine", files_min=0, **words)
    ran = run_dag(dag)
    assert (ran.task("nothing").state, ran.task("is_fine").state) == ("failed", "success")
    assert "has 0 files, fewer than files_min=1" in capfd.readouterr().out
    for end in (a, b):
        end.root("set/x.dat").write_bytes(b"x" * 1000)
    with make_dag("verifies_by_reading") as dag:
        DrayVerifyOperator(task_id="reads", is_read_required=True, **words)
        DrayVerifyOperator(task_id="two", files_min="2", **words)
        DrayVerifyOperator(task_id="none", is_read_required=True, algorithm="none", **words)
    ran = run_dag(dag)
    assert [ran.task(name).state for name in ("reads", "two", "none")] == [
        "success",
        "failed",
        "failed",
    ]
    assert ran.result("reads")["read"] == 2
    # This transfer stores a checksum beside the file.
    from dray.client import Request

    with b.client() as client:
        wish = Request(
            "/data/set/x.dat",
            "/data/kept/x.dat",
            id="kept",
            checksum_attributes=True,
        )
        client.submit(wish)
        assert client.wait("kept", timeout_seconds=30).state == "done"
        assert client.checksum("/data/kept/x.dat").from_ == "attribute"
    capfd.readouterr()
    words = {**words, "destination": "/data/kept"}
    with make_dag("verifies_what_is_kept") as dag:
        DrayVerifyOperator(task_id="agrees", **words)
        DrayVerifyOperator(task_id="reads", is_read_required=True, **words)
    ran = run_dag(dag)
    assert (ran.task("agrees").state, ran.task("reads").state) == ("success", "failed")
    assert ran.result("agrees")["read"] == 1
    assert "1 of 2 checksums are stored checksums" in capfd.readouterr().out


def test_sensors_wait_for_files_and_transfers_of_others(
    one_endpoint: Endpoint, connect: Callable[..., str], run_dag: Callable[..., Loose]
) -> None:
    from dray.client import Request
    from dray_airflow.sensors.file import DrayFileSensor
    from dray_airflow.sensors.transfer import DrayTransferSensor

    connect("dray_default", one_endpoint)
    with make_dag("waits") as dag:
        words: dict[str, Any] = {"poke_interval": 0.2, "timeout": 60}
        DrayFileSensor(task_id="file", path="/data/y.dat", size_min="1kB", **words)
        DrayFileSensor(task_id="poked", path="/data/y.dat", deferrable=False, **words)
        DrayTransferSensor(task_id="transfer", transfer_id="others", is_awaited=True, **words)
        DrayTransferSensor(task_id="unknown", transfer_id="nobodys", **words)
    one_endpoint.root("x.dat").write_bytes(b"x" * 1000)

    def later() -> None:
        with one_endpoint.client() as client:
            client.submit(Request(sources="/data/x.dat", destination="/data/y.dat", id="others"))

    timer = threading.Timer(1.0, later)
    timer.start()
    ran = run_dag(dag)
    timer.join()
    states = {name: ran.task(name).state for name in ("file", "poked", "transfer", "unknown")}
    assert states == {
        "file": "success",
        "poked": "success",
        "transfer": "success",
        "unknown": "failed",
    }
    assert ran.result("file") == {"path": "/data/y.dat", "size": 1000}
    assert ran.result("transfer")["bytes"] == 1000
