"""Tests of the transfer operator with real endpoints, run by Airflow in one process."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import threading
import time
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from dray.testing.endpoints import Endpoint
    from dray.testing.plugin import Two

Loose: TypeAlias = Any
pytestmark = pytest.mark.server

START = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
SIZE = 3_000_000
SHORT = dt.timedelta(seconds=5)


@pytest.fixture
def sites(two_endpoints: Two, connect: Callable[..., str]) -> Two:
    """Return two endpoints with connections ``site_a`` and ``site_b``."""
    connect("site_a", two_endpoints.a)
    connect("site_b", two_endpoints.b)
    two_endpoints.a.root("x.dat").write_bytes(os.urandom(SIZE))
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


def pointer(dag_id: str, task_id: str) -> Loose:
    """Return the entry for users in the task's state store."""
    from airflow.models.task_state_store import TaskStateStoreModel
    from airflow.utils.session import create_session

    with create_session() as session:
        rows = session.query(TaskStateStoreModel).filter_by(dag_id=dag_id, task_id=task_id)
        return {row.key: json.loads(row.value) for row in rows}["dray_transfer"]


def test_a_file_arrives_and_the_result_describes_it(
    sites: Two, run_dag: Callable[..., Loose]
) -> None:
    with make_dag("arrives") as dag:
        move(destination="/data/{{ dag.dag_id }}/x.dat")
        move(task_id="deferred", rate_max="1MB", grace_seconds=0)
    ran = run_dag(dag)
    assert ran.state == "success"
    content = sites.a.root("x.dat").read_bytes()
    assert sites.b.root("arrives/x.dat").read_bytes() == content
    assert sites.b.root("y.dat").read_bytes() == content
    for task_id in ("move", "deferred"):
        result = ran.result(task_id)
        with sites.b.client() as client:
            seen = client.transfer(result["id"])
        assert result == {
            "id": seen.id,
            "files": 1,
            "bytes": SIZE,
            "bytes_sent": SIZE,
            "bytes_resumed": 0,
            "bytes_adopted": 0,
            "bytes_durable": SIZE,
            "bytes_read_back": 0,
            "seconds": result["seconds"],
            "checksum": result["checksum"],
            "receipt": seen.receipt.id if seen.receipt is not None else "missing",
        }
        assert seen.request["labels"]["task_id"] == task_id
        assert seen.request["activity"] == "arrives"
        # The link leads to a page of Airflow, because an endpoint has no page for a browser.
        page = f"/dags/arrives/runs/{quote(ran.run.run_id, safe='')}/tasks/{task_id}/xcom"
        assert ran.result(task_id, "_link_DrayTransferLink") == page
        standing = ran.result(task_id, "dray_transfer")
        assert (standing["id"], standing["state"]) == (seen.id, "done")
        assert (standing["bytes_durable"], standing["files_done"]) == (SIZE, 1)
        assert pointer("arrives", task_id) == {"id": seen.id, "endpoint": sites.b.url}


@pytest.mark.parametrize("resume", ["verify", "trust"])
def test_a_retry_resumes_from_durable_data(
    sites: Two, run_dag: Callable[..., Loose], capfd: pytest.CaptureFixture[str], resume: str
) -> None:
    from dray_airflow.operators.transfer import DrayTransferOperator

    class Terminated(DrayTransferOperator):
        """An operator whose first try is ended, as by the worker's signal, midway."""

        def _wait(self, context: Loose, client: Loose, settings: Loose, transfer: Loose) -> Loose:
            def end_midway() -> None:
                with sites.b.client() as other:
                    while other.transfer(transfer.id).bytes.durable < SIZE // 3:
                        time.sleep(0.01)
                self.on_kill()

            if not self.rate_max:
                return super()._wait(context, client, settings, transfer)
            ending = threading.Thread(target=end_midway)
            ending.start()
            try:
                return super()._wait(context, client, settings, transfer)
            finally:
                ending.join()

    with make_dag("retries") as dag:
        Terminated(
            task_id="move",
            sources="/data/x.dat",
            destination="/data/y.dat",
            source_conn_id="site_a",
            destination_conn_id="site_b",
            retries=1,
            retry_delay=dt.timedelta(0),
            rate_max="{{ '1MB' if ti.try_number == 1 else '' }}",
            resume=resume,
        )
    ran = run_dag(dag)
    assert ran.state == "success"
    assert ran.task("move").try_number == 2
    result = ran.result("move")
    assert result["bytes_resumed"] >= SIZE // 3
    assert result["bytes_sent"] + result["bytes_resumed"] == SIZE
    # Resumed data is read back unless it is trusted. New data is always read back.
    assert result["bytes_read_back"] == (result["bytes_sent"] if resume == "trust" else SIZE)
    output = capfd.readouterr().out
    assert "bytes are safe and kept" in output
    assert "was cancelled because this task was ended" in output
    assert sites.b.root("y.dat").read_bytes() == sites.a.root("x.dat").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("deferrable", [pytest.param(True, marks=pytest.mark.full), False])
def test_a_waiting_task_honours_the_outage_limit_of_its_connection(
    sites: Two,
    run_dag: Callable[..., Loose],
    monkeypatch: pytest.MonkeyPatch,
    deferrable: bool,
) -> None:
    # Each wait of the client has a timeout of 2 s, and the client gives up 5 s after it. Only the
    # operator retries for the whole outage of 14 s.
    monkeypatch.setattr("dray_airflow.operators.waiting.LOG_SECONDS", 2.0)
    dag_id = f"away_{deferrable}".lower()
    safe: list[int] = []

    def take_away() -> None:
        with sites.b.client() as client:
            while not safe:
                for seen in client.transfers(labels={"dag_id": dag_id}):
                    safe.extend([seen.bytes.durable] if seen.bytes.durable else [])
                time.sleep(0.05)
        sites.b.kill()
        time.sleep(14)
        sites.b.start()

    with make_dag(dag_id) as dag:
        move(rate_max="1MB", grace_seconds=2, deferrable=deferrable)
    thread = threading.Thread(target=take_away)
    thread.start()
    ran = run_dag(dag)
    thread.join()
    assert safe[0] < SIZE
    assert (ran.state, ran.task("move").try_number) == ("success", 1)
    assert sites.b.root("y.dat").read_bytes() == sites.a.root("x.dat").read_bytes()


@pytest.mark.slow
def test_a_transfer_that_takes_too_long_is_cancelled(
    sites: Two, run_dag: Callable[..., Loose], capfd: pytest.CaptureFixture[str]
) -> None:
    with make_dag("times_out") as dag:
        move(task_id="itself", rate_max="10kB", deferrable=False, execution_timeout=SHORT)
    ran = run_dag(dag)
    assert ran.task("itself").state == "failed"
    assert "bytes are safe and kept" in capfd.readouterr().out
    with sites.b.client() as client:
        (seen,) = client.transfers(labels={"dag_id": "times_out"})
        assert client.wait(seen.id, timeout_seconds=30).state == "cancelled"


def test_a_deferral_that_takes_too_long_is_cancelled_in_the_next_process(sites: Two) -> None:
    from types import SimpleNamespace

    from airflow.sdk.bases.operator import TRIGGER_FAIL_REPR, TriggerFailureReason

    from dray_airflow.errors import DrayTaskRetry
    from dray_airflow.hooks.dray import DrayHook
    from dray_airflow.submission import Clients, begin

    task = SimpleNamespace(dag_id="d", run_id="r", task_id="move", map_index=-1, id="this-try")
    context: Loose = {"ti": task}
    begun = move(rate_max="100kB")
    errand = begun.errand(context, DrayHook("site_b").settings)
    with Clients() as clients:
        begin(errand, clients)
        # When the timeout of a trigger has passed, Airflow calls ``resume_execution`` of a new
        # operator in another process.
        words = {"error": TriggerFailureReason.TRIGGER_TIMEOUT}
        with pytest.raises(DrayTaskRetry, match="a retry resumes"):
            move(rate_max="100kB").resume_execution(TRIGGER_FAIL_REPR, words, context)
        ended = clients.of("site_b").wait(errand.id, timeout_seconds=30)
    assert ended.state == "cancelled"


def test_a_retry_after_the_end_sends_nothing_twice(
    sites: Two, run_dag: Callable[..., Loose], capfd: pytest.CaptureFixture[str]
) -> None:
    from dray_airflow.operators.transfer import DrayTransferOperator

    class Unlucky(DrayTransferOperator):
        """An operator whose first try fails after all data has arrived, before it reports this."""

        def _complete(self, context: Loose, *rest: Loose) -> dict[str, Any]:
            result = super()._complete(context, *rest)
            if context["ti"].try_number == 1:
                raise RuntimeError("it is killed")
            return result

    with make_dag("after_the_end") as dag:
        Unlucky(
            task_id="move",
            sources="/data/x.dat",
            destination="/data/y.dat",
            source_conn_id="site_a",
            destination_conn_id="site_b",
            overwrite="always",
            retries=1,
            retry_delay=dt.timedelta(0),
        )
    ran = run_dag(dag)
    assert (ran.state, ran.task("move").try_number) == ("success", 2)
    assert "was done before this try, and no try had recorded this" in capfd.readouterr().out
    with sites.b.client() as client:
        (seen,) = client.transfers(labels={"dag_id": "after_the_end"})
        assert (client.transfer(seen.id).attempt, seen.bytes.sent) == (1, SIZE)
    assert unreported("after_the_end") == []


def unreported(dag_id: str) -> list[str]:
    """Return the tasks of a DAG whose transfers have not been reported by any try."""
    from airflow.models.task_state_store import TaskStateStoreModel
    from airflow.utils.session import create_session

    with create_session() as session:
        rows = session.query(TaskStateStoreModel).filter_by(dag_id=dag_id, key="dray_unreported")
        return [row.task_id for row in rows]


class Broken:
    """The state store of a task in an Airflow whose API is unreachable."""

    def get(self, key: str) -> Loose:
        raise RuntimeError(f"no API for {key}")

    def set(self, key: str, value: object) -> None:
        raise RuntimeError(f"no API for {key}={value}")

    def delete(self, key: str) -> None:
        raise RuntimeError(f"no API for {key}")


def test_a_failed_state_store_fails_no_task(
    sites: Two, run_dag: Callable[..., Loose], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dray_airflow.operators.waiting.task_state_store", lambda context: Broken())
    with make_dag("no_pointer") as dag:
        move()
    assert run_dag(dag).state == "success"
    assert sites.b.root("y.dat").read_bytes() == sites.a.root("x.dat").read_bytes()


def test_shards_of_a_dataset_are_tasks_of_their_own(
    sites: Two, run_dag: Callable[..., Loose]
) -> None:
    from dray_airflow.operators.transfer import DrayTransferOperator

    names = [f"{at:02}.dat" for at in range(6)]
    sites.a.root("set").mkdir()
    for name in names:
        (sites.a.root("set") / name).write_bytes(os.urandom(100_000))
    with make_dag("mapped") as dag:
        DrayTransferOperator.partial(
            task_id="shard",
            sources="/data/set/",
            destination="/data/set/",
            source_conn_id="site_a",
            destination_conn_id="site_b",
            recursive=True,
            retries=0,
        ).expand(include=[names[0:2], names[2:4], names[4:6]])
    ran = run_dag(dag)
    assert ran.state == "success"
    results = [ran.result("shard", map_index=at) for at in range(3)]
    assert len({result["id"] for result in results}) == 3
    assert [result["files"] for result in results] == [2, 2, 2]
    assert sum(result["bytes_sent"] for result in results) == 600_000
    assert sorted(path.name for path in sites.b.root("set").glob("*.dat")) == names


def test_assets_record_the_transfer(sites: Two, run_dag: Callable[..., Loose]) -> None:
    from airflow.models.asset import AssetEvent, AssetModel
    from airflow.sdk import AssetAlias
    from airflow.utils.session import create_session

    from dray_airflow.assets import create_asset

    asset = create_asset(host=sites.b.address, path="/data/y.dat")
    with make_dag("tells") as dag:
        move(outlets=[asset, AssetAlias("what_came")])
    ran = run_dag(dag)
    assert ran.state == "success"
    with create_session() as session:
        rows = session.query(AssetEvent).filter(AssetEvent.source_dag_id == "tells").all()
        uris = {
            row.id: session.query(AssetModel).filter(AssetModel.id == row.asset_id).one().uri
            for row in rows
        }
        found = [(uris[row.id], row.extra) for row in rows]
    assert {uri for uri, _ in found} == {f"dray://{sites.b.address}/data/y.dat"}
    for _, extra in found:
        assert extra["bytes"] == SIZE
        assert extra["id"] == ran.result("move")["id"]


def test_lineage_names_both_ends(sites: Two) -> None:
    lineage = move(sources=["/data/x.dat", "/data/replica.dat"]).get_openlineage_facets_on_start()
    assert [(each.namespace, each.name) for each in lineage.inputs] == [
        (f"dray://{sites.a.address}", "/data/x.dat"),
        (f"dray://{sites.a.address}", "/data/replica.dat"),
    ]
    assert [(each.namespace, each.name) for each in lineage.outputs] == [
        (f"dray://{sites.b.address}", "/data/y.dat")
    ]


def test_lineage_reports_the_bytes(sites: Two) -> None:
    from types import SimpleNamespace

    del sites
    result = {"bytes": 7, "files": 1}
    task = SimpleNamespace(task_id="move", xcom_pull=lambda task_ids: result)
    lineage = move().get_openlineage_facets_on_complete(task)
    facet = lineage.outputs[0].outputFacets["outputStatistics"]
    assert (facet.size, facet.fileCount) == (7, 1)


def errors_said(text: str) -> dict[str, str]:
    """Return the last line of each exception in task logs, by the first word of its message."""
    found = re.findall(r"^dray_airflow\.errors\.(DrayTask\w+): (.*)$", text, re.MULTILINE)
    return {line: kind for kind, line in found}


def test_bad_input_is_one_clear_line_each(
    sites: Two,
    start_endpoint: Callable[..., Endpoint],
    connect: Callable[..., str],
    run_dag: Callable[..., Loose],
    capfd: pytest.CaptureFixture[str],
) -> None:
    gone = start_endpoint("gone")
    connect("gone", gone, extra={"pin": gone.key, "seconds": 1})
    gone.kill()
    narrow = start_endpoint("narrow", config={"rate": "1MB"})
    connect("narrow", narrow)
    connect("bad_token", sites.b, password="abc.def.ghi")  # noqa: S106
    connect("no_right", sites.a, password=sites.a.token("storage.read:/elsewhere"))
    past = (dt.datetime.now(dt.timezone.utc) - dt.timedelta(hours=1)).isoformat()
    with make_dag("bad_input") as dag:
        move(task_id="no_connection", destination_conn_id="nowhere")
        move(task_id="unreachable", destination_conn_id="gone")
        move(task_id="token", destination_conn_id="bad_token")
        move(task_id="right", source_conn_id="no_right")
        move(task_id="late", deadline=past)
        move(
            task_id="impossible",
            destination_conn_id="narrow",
            deadline=dt.timedelta(minutes=5),
            bytes_expected="200GB",
        )
        move(task_id="empty", destination="{{ dag_run.conf.get('nothing', '') }}")
        move(task_id="missing", sources="/data/nothing.dat")
        move(task_id="relative", sources="data/x.dat")
        move(task_id="elsewhere", sources="dray://elsewhere.example.org/data/x.dat")
        move(task_id="word", overwrite="sometimes")
        move(task_id="option", options={"stream": 4})
        move(task_id="rate", rate_max="fast")
        move(task_id="root", destination="/nothing/y.dat")
    ran = run_dag(dag)
    assert {ran.task(task_id).state for task_id in dag.task_ids} == {"failed"}
    output = errors_said(capfd.readouterr().out)
    expected = {
        "the connection does not exist; create it: airflow connections add nowhere": "Failure",
        f"at dray://{gone.address} (connection 'gone'): cannot look up": "Retry",
        ": Connection refused; check that the endpoint runs": "Retry",
        f"at dray://{sites.a.address} (connection 'no_right'): cannot ": "Failure",
        "not authorized (the token's header is not a JSON object); ask the issuer": "Failure",
        "has passed; give a later deadline": "Failure",
        "submit the transfer with the deadline ": "Failure",
        "cannot use destination: its value is '' after its templates were rendered; ": "Failure",
        "nothing.dat: No such file or directory); check the path": "Failure",
        "the text is not a path of an endpoint; write /ROOT/PATH": "Failure",
        f"connection 'site_a' is for {sites.a.address}; use a connection for": "Failure",
        "cannot use overwrite: 'sometimes' is not an allowed value; write one of never": "Failure",
        "cannot use options: options has the unknown field 'stream'; use one of bind, ": "Failure",
        "cannot use rate_max: its value is 'fast' after its templates were rendered": "Failure",
        "nothing": "Failure",
    }
    for words, kind in expected.items():
        lines = [line for line in output if words in line]
        assert lines, (words, output)
        assert {output[line] for line in lines} == {f"DrayTask{kind}"}, words
    assert len(output) == len(dag.task_ids)


def test_a_task_marked_failed_during_a_wait_is_cancelled_not_deferred(
    sites: Two, run_dag: Callable[..., Loose], capfd: pytest.CaptureFixture[str]
) -> None:
    """Airflow does not defer such a task, so no other code would cancel the transfer."""
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session

    from dray_airflow.operators.transfer import DrayTransferOperator

    class Marked(DrayTransferOperator):
        """An operator that a user marks as failed at the end of its wait, between heartbeats."""

        def _wait_for(
            self, client: Loose, settings: Loose, transfer: Loose, seconds: float
        ) -> Loose:
            ended = super()._wait_for(client, settings, transfer, seconds)
            with create_session() as session:
                asked = session.query(TaskInstance).filter_by(dag_id=self.dag_id)
                asked.update({"state": "failed"})
            return ended

    with make_dag("marked") as dag:
        Marked(
            task_id="move",
            sources="/data/x.dat",
            destination="/data/y.dat",
            source_conn_id="site_a",
            destination_conn_id="site_b",
            grace_seconds=1,
            rate_max="500KB",
        )
    ran = run_dag(dag)
    assert ran.state == "failed"
    with sites.b.client() as client:
        [transfer] = client.transfers()
        assert client.wait(transfer.id, timeout_seconds=30).state == "cancelled"
    assert "the task was marked failed" in capfd.readouterr().out
