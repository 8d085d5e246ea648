"""Tests of restarts, declared versions and evictions by application, with real tiers."""

from __future__ import annotations

import datetime as dt
import os
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from dray.client import StagingRequest
from dray_airflow.errors import DrayTaskFailure, DrayTaskRetry
from dray_airflow.operators.stage import (
    DrayEvictOperator,
    DrayStageInOperator,
    DrayStageOutOperator,
)
from dray_airflow.staging import check_agreement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dray.client import Client, TierVersion
    from dray.testing.endpoints import Endpoint
    from dray_airflow.staging import Direction

Loose: TypeAlias = Any
MIB = 1 << 20
SIZE = 3 * MIB
END_SECONDS = 60.0
START = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)


# --- arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("direction", "request_", "words", "wanted"),
    [
        ("in", StagingRequest(), {}, "neither a path nor an application to restart"),
        (
            "in",
            StagingRequest(application="sim", to="/fast/a", recursive=True, nodes=3),
            {},
            "to, recursive, nodes without path, although the version determines the paths",
        ),
        ("in", StagingRequest(application="sim"), {"transfer_id": "x"}, "transfer_id without path"),
        (
            "in",
            StagingRequest("/slow/a", version=3, period_seconds=60),
            {},
            "version, period without application",
        ),
        ("out", StagingRequest(application="sim", version=3), {}, "no path to stage out"),
        (
            "out",
            StagingRequest("/fast/a", application="sim", version=3, mtbf_seconds=60, nodes=2),
            {},
            "mtbf and nodes, which both give the time between failures",
        ),
        (
            "out",
            StagingRequest("/fast/a", bypass=True),
            {"is_evicted": True},
            "bypass with evict, although a bypass makes no fast copy",
        ),
    ],
)
def test_arguments_that_contradict_each_other_are_named(
    direction: Direction, request_: StagingRequest, words: dict[str, Any], wanted: str
) -> None:
    with pytest.raises(DrayTaskFailure) as failed:
        check_agreement(direction, request_, **words)
    said = str(failed.value)
    assert said.startswith(
        f"cannot stage {direction}: its arguments contradict each other or are incomplete: "
    )
    assert wanted in said


def test_all_contradictions_are_named_at_once() -> None:
    request = StagingRequest(to="/fast/a", version=3)
    with pytest.raises(DrayTaskFailure) as failed:
        check_agreement("in", request)
    for part in ("version without application", "neither a path", "to without path"):
        assert part in str(failed.value)


@pytest.mark.parametrize(
    "request_",
    [
        StagingRequest(application="sim"),
        StagingRequest(application="sim", version=0, pin_seconds=60, replicas=1, bypass=False),
        StagingRequest("/slow/a", recursive=True, application="sim", version=3, nodes=4),
        StagingRequest("/slow/a", bypass=True, to="/data/a", replicas=1),
    ],
)
def test_arguments_that_agree_are_accepted(request_: StagingRequest) -> None:
    check_agreement("in", request_)


# --- with an endpoint -----------------------------------------------------------------------------


@pytest.fixture
def buffer(start_endpoint: Callable[..., Endpoint], connect: Callable[..., str]) -> Endpoint:
    """Return an endpoint with a tier, and the connection ``dray_default``."""
    from dray.testing.endpoints import Root

    tier = {
        "name": "burst",
        "fast": ["fast"],
        "slow": "slow",
        "capacity": 64 * MIB,
        "period": 600,
        "write_max": "400MiB",
        "write_min": "300MiB",
        "read_max": "200MiB",
        "read_min": "10MiB",
        "versions": "{application}/{version}",
        "complete": "marker:COMPLETE",
        "owner": "alice",
    }
    roots = (Root("fast", {"tier": "fast"}), Root("slow", {"tier": "slow"}))
    endpoint = start_endpoint("bb", roots=roots, config={"tier": [tier]})
    connect("dray_default", endpoint)
    return endpoint


@pytest.fixture
def client(buffer: Endpoint) -> Iterator[Client]:
    with buffer.client() as client:
        yield client


def write(endpoint: Endpoint, application: str, version: int) -> bytes:
    """Write a version as an application does, with the marker at the end."""
    folder = endpoint.root(f"{application}/{version}", root="fast")
    folder.mkdir(parents=True)
    content = os.urandom(SIZE)
    (folder / "state.bin").write_bytes(content)
    (folder / "COMPLETE").write_bytes(b"")
    return content


def until(client: Client, look: Callable[[dict[int, TierVersion]], bool]) -> dict[int, TierVersion]:
    """Wait until the versions of the application ``sim`` are as wanted."""
    end = time.monotonic() + END_SECONDS
    while True:
        versions = client.tier("burst").versions
        found = {each.version: each for each in versions if each.application == "sim"}
        if look(found):
            return found
        assert time.monotonic() < end, found
        time.sleep(0.2)


def states(found: dict[int, TierVersion]) -> dict[int, str]:
    return {version: each.state for version, each in found.items()}


def context(try_id: str = "try1", task_id: str = "restart") -> Loose:
    task = SimpleNamespace(
        dag_id="d", run_id="r", task_id=task_id, map_index=-1, id=try_id, start_date=None
    )
    return {"ti": task, "dag": SimpleNamespace(tasks=[], deadline=None)}


def make_restart(**words: Loose) -> DrayStageInOperator:
    return DrayStageInOperator(
        **{"task_id": "restart", "application": "sim", "deferrable": False, **words}
    )


@pytest.mark.server
def test_each_try_of_a_restart_gets_the_newest_version(buffer: Endpoint, client: Client) -> None:
    content = {version: write(buffer, "sim", version) for version in (1, 2)}
    until(client, lambda found: states(found) == {1: "slow", 2: "demoted"})
    before = len(list(client.transfers()))
    result = make_restart(pin=3600).execute(context())
    assert (result["hit"], result["version"], result["to"]) == (True, 2, "/fast/sim/2")
    assert (result["bytes_sent"], result["bytes"], result["state"]) == (0, SIZE, "staged")
    assert result["pinned_until"] is not None
    # A later try, after the application has written another version.
    content[3] = write(buffer, "sim", 3)
    until(client, lambda found: states(found).get(3) == "demoted")
    again = make_restart().execute(context("try2"))
    assert (again["hit"], again["version"]) == (True, 3)
    assert again["id"] != result["id"]
    # Three demotions, and no restart has a transfer.
    assert len(list(client.transfers())) == before + 1
    # A version that is only on the slow root is copied.
    old = make_restart(version="{{ 1 }}")
    old.version = "1"
    result = old.execute(context("try3"))
    assert (result["hit"], result["version"], result["bytes_sent"]) == (False, 1, SIZE)
    there = buffer.root("sim/1/state.bin", root="fast")
    assert there.read_bytes() == content[1]


@pytest.mark.server
def test_a_restart_waits_for_another_restart_of_the_version(
    buffer: Endpoint, client: Client
) -> None:
    content = {version: write(buffer, "sim", version) for version in (1, 2)}
    until(client, lambda found: states(found) == {1: "slow", 2: "demoted"})
    other = client.stage_in(StagingRequest(application="sim", version=1))
    client.pause(other.id)
    assert not client.transfer(other.id).is_terminal
    timer = threading.Timer(2.0, lambda: client.resume(other.id))
    timer.start()
    begun = time.monotonic()
    result = make_restart(version=1, pin=60).execute(context())
    timer.join()
    assert time.monotonic() - begun > 1.5
    assert (result["hit"], result["version"]) == (True, 1)
    assert result["id"] != other.id
    assert result["pinned_until"] is not None
    assert buffer.root("sim/1/state.bin", root="fast").read_bytes() == content[1]


@pytest.mark.server
def test_an_application_without_a_version_starts_from_the_beginning(
    buffer: Endpoint, run_dag: Callable[..., Loose], capfd: pytest.CaptureFixture[str]
) -> None:
    from airflow.sdk import DAG

    with DAG("restarts", schedule=None, start_date=START, default_args={"retries": 0}) as dag:
        first: Loose = DrayStageInOperator(task_id="first", application="new", missing_ok=True)
        DrayEvictOperator(task_id="free", staged=first.output)
        DrayStageInOperator(task_id="required", application="new")
        DrayStageInOperator(task_id="named", application="new", version=3, missing_ok=True)
        DrayStageInOperator(task_id="wrong", application="new", to="/fast/x")
    ran = run_dag(dag)
    assert {name: str(ran.task(name).state) for name in dag.task_ids} == {
        "first": "success",
        "free": "success",
        "required": "failed",
        "named": "failed",
        "wrong": "failed",
    }
    result = ran.result("first")
    assert (result["version"], result["to"], result["hit"]) == (None, None, False)
    assert ran.result("free") == {"evicted": []}
    output = capfd.readouterr().out
    assert "cannot restart new: no tier of the endpoint has a complete version; " in output
    assert "cannot restart new: no tier of the endpoint has the version; " in output
    assert (
        "cannot stage in: its arguments contradict each other or are incomplete: to without "
        "path" in output
    )
    del buffer


@pytest.mark.server
def test_a_declared_version_is_demoted_restarted_and_evicted(
    buffer: Endpoint, client: Client, run_dag: Callable[..., Loose]
) -> None:
    from airflow.sdk import DAG

    folder = buffer.root("sim/run-a", root="fast")
    folder.mkdir(parents=True)
    content = os.urandom(SIZE)
    (folder / "state.bin").write_bytes(content)
    with DAG("declares", schedule=None, start_date=START, default_args={"retries": 0}) as dag:
        out = DrayStageOutOperator(
            task_id="out",
            path="/fast/sim/run-a",
            recursive=True,
            application="sim",
            version="{{ 7 }}",
            period=dt.timedelta(minutes=10),
            mtbf=1234,
        )
        restart = DrayStageInOperator(task_id="restart", application="sim", pin=3600)
        free = DrayEvictOperator(task_id="free", application="sim", version="{{ 7 }}")
        out >> restart >> free
    ran = run_dag(dag)
    assert ran.state == "success"
    kept = ran.result("out")
    assert (kept["application"], kept["version"], kept["to"]) == ("sim", 7, "/slow/sim/run-a")
    again = ran.result("restart")
    assert (again["hit"], again["version"], again["to"]) == (True, 7, "/fast/sim/run-a")
    assert again["pinned_until"] is not None
    # The pin of the restart was removed, because it held the fast copy.
    assert ran.result("free")["evicted"] == [kept["id"]]
    assert not folder.exists()
    found = until(client, lambda found: states(found) == {7: "slow"})[7]
    assert found.mtbf_seconds == 1234
    assert buffer.root("sim/run-a/state.bin", root="slow").read_bytes() == content


@pytest.mark.server
def test_an_eviction_by_application_names_what_it_cannot_evict(
    buffer: Endpoint, client: Client
) -> None:
    words: dict[str, Any] = {"task_id": "free"}
    for given, wanted in (
        (
            {"application": "sim"},
            "cannot evict a version of sim: no tier of the endpoint has such a version",
        ),
        (
            {"application": "sim", "staged": "x"},
            "needs either the argument staged, or the argument application",
        ),
        ({"version": 3}, "needs either the argument staged, or the argument application"),
    ):
        with pytest.raises(DrayTaskFailure, match=wanted):
            DrayEvictOperator(**words, **given).execute(context())
    for version in (1, 2):
        write(buffer, "sim", version)
    found = until(client, lambda found: states(found) == {1: "slow", 2: "demoted"})
    evicted = DrayEvictOperator(**words, application="sim").execute(context())
    assert evicted == {"evicted": [found[2].transfer]}
    until(client, lambda found: states(found) == {1: "slow", 2: "slow"})
    assert DrayEvictOperator(**words, application="sim").execute(context()) == {"evicted": []}
    # While a demotion waits, the slow copy is not complete.
    folder = buffer.root("sim/late", root="fast")
    folder.mkdir()
    (folder / "state.bin").write_bytes(os.urandom(SIZE))
    wish = StagingRequest(
        "/fast/sim/late",
        recursive=True,
        application="sim",
        version=9,
        # The transfer cannot start before the pause.
        deadline=dt.datetime.now(dt.timezone.utc) + dt.timedelta(hours=1),
    )
    staged = client.stage_out(wish)
    client.pause(staged.id)
    with pytest.raises(DrayTaskRetry, match="version 9 is demoting"):
        DrayEvictOperator(**words, application="sim", version=9).execute(context())
    client.resume(staged.id)
