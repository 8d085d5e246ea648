"""Airflow as in production: PostgreSQL, Redis, and independent workers.

``make test-celery`` runs this test with the PostgreSQL and Redis packages of Debian.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING

import pytest

from dray.testing.endpoints import Endpoint, Root
from integration.airflow.conftest import LIMITS, MIB, Scene, make_world
from integration.harness.airflow import connection
from integration.harness.services import start_postgresql, start_redis

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Iterator
    from pathlib import Path

    from dray.client import Client, Transfer
    from integration.airflow.conftest import World
    from integration.harness.airflow import Airflow

pytestmark = [pytest.mark.celery, pytest.mark.timeout(1200)]

WORKERS = ("one", "two")
SHARDS = [f"s{number}" for number in range(6)]
FILES = 8
RATE = 2 * MIB


def servers(stack: contextlib.ExitStack, folder: Path) -> dict[str, str]:
    """Start PostgreSQL and Redis. Return the options with which Airflow uses them."""
    postgresql = start_postgresql(folder / "postgresql", "airflow")
    stack.callback(postgresql.close)
    redis = start_redis(folder / "redis")
    stack.callback(redis.close)
    where = f"postgres@127.0.0.1:{postgresql.port}/airflow"
    return {
        "AIRFLOW__CORE__EXECUTOR": "CeleryExecutor",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"postgresql+psycopg2://{where}",
        "AIRFLOW__CELERY__BROKER_URL": f"redis://127.0.0.1:{redis.port}/0",
        "AIRFLOW__CELERY__RESULT_BACKEND": f"db+postgresql+psycopg2://{where}",
        # A worker gets one task at a time, so that a free worker takes the next task.
        "AIRFLOW__CELERY__WORKER_PREFETCH_MULTIPLIER": "1",
        "AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT": "60",
    }


def begin(airflow: Airflow) -> None:
    """Start Airflow's components and two workers of two slots each."""
    airflow.start()
    for name in WORKERS:
        airflow.start_worker(name, slots=2)


@pytest.fixture(scope="module")
def others() -> list[Endpoint]:
    """Return a list for ``c``, the second endpoint on ``b``'s storage, which ``site`` starts."""
    return []


@pytest.fixture(scope="module")
def site(request: pytest.FixtureRequest, others: list[Endpoint]) -> Iterator[World]:
    def services(stack: contextlib.ExitStack, folder: Path) -> dict[str, str]:
        shared = Root("data", {"path": str(folder / "b" / "roots" / "data")})
        c = Endpoint(folder / "c", "c", roots=(shared,), config={"limits": LIMITS})
        stack.callback(c.kill)
        c.start()
        others.append(c)
        return {**servers(stack, folder), "AIRFLOW_CONN_DRAY_C": connection(c)}

    with make_world(request, begin, services) as world:
        for name in WORKERS:
            world.airflow.wait_for(
                lambda name=name: (
                    f"celery@{name} ready" in world.airflow.said(name, 1000)  # type: ignore[misc]
                    or f"{name} ready" in world.airflow.said(name, 1000)
                ),
                f"worker {name} is ready",
            )
        yield world


@pytest.fixture
def scene(site: World, request: pytest.FixtureRequest) -> Scene:
    scene = Scene(site, request.node.name)
    scene.make({f"{name}/{number}": MIB + number for name in SHARDS for number in range(FILES)})
    return scene


def finished(site: World, name: str) -> int:
    """Return the number of tasks that a worker has finished, according to its log."""
    return site.airflow.said(name, 1_000_000).count(" succeeded in ")


def check_each_once(scene: Scene) -> None:
    """Fail unless every file has been moved by exactly one transfer."""
    moved: list[str] = []
    with scene.client() as client:
        for transfer in scene.transfers():
            shard = transfer.request["labels"]["map_index"]
            done = client.files(transfer.id, state="done")
            moved += [f"s{shard}/{outcome.path}" for outcome in done]
    assert sorted(moved) == sorted(f"{name}/{number}" for name in SHARDS for number in range(FILES))
    scene.check()


def test_two_workers_share_a_dataset(scene: Scene, site: World) -> None:
    site.airflow.await_dags("move_mapped")
    before = {name: finished(site, name) for name in WORKERS}
    with scene.watched():
        scene.begin("move_mapped", rate=RATE, shards=SHARDS).await_end(seconds=400)
    for name in WORKERS:
        assert finished(site, name) > before[name], f"worker {name} has done nothing"
    check_each_once(scene)


def refusals(client: Client, id: str) -> list[str]:
    """Return the kind of the error of each refused try of a finished transfer."""
    kinds = []
    for event in client.events(transfer=id, after=0):
        if event.type == "state" and event.fields.get("error"):
            kinds.append(str(event.fields["error"]["kind"]))
        if event.state == "done":
            break
    return kinds


def test_two_endpoints_of_one_storage_never_write_at_the_same_time(
    scene: Scene, site: World, others: list[Endpoint]
) -> None:
    """Two tasks move each shard concurrently, each through its own endpoint."""
    (other,) = others
    site.airflow.await_dags("move_contended")
    before = {name: finished(site, name) for name in WORKERS}
    begun = datetime.now(timezone.utc)
    with scene.watched():
        scene.begin("move_contended", rate=RATE, shards=SHARDS).await_end(seconds=500)
    for name in WORKERS:
        assert finished(site, name) > before[name], f"worker {name} has done nothing"
    moved: dict[str, list[Transfer]] = {}
    refused: list[str] = []
    for endpoint in (site.b, other):
        with endpoint.client() as client:
            place = f"/data/{scene.name}"
            for transfer in client.transfers(destination=place, submitted_after=begun):
                shard = str(transfer.request["destination"]["url"]).rpartition("/")[2]
                moved.setdefault(shard, []).append(transfer)
                refused += refusals(client, transfer.id)
    assert sorted(moved) == SHARDS
    for shard, pair in moved.items():
        assert [each.state for each in pair] == ["done", "done"], shard
        assert {each.request["labels"]["map_index"] for each in pair} == {
            str(2 * SHARDS.index(shard)),
            str(2 * SHARDS.index(shard) + 1),
        }
        # One transfer of the pair has sent every file. The other has adopted all files.
        sent = sorted(each.bytes.sent for each in pair)
        assert sent == [0, sum(MIB + number for number in range(FILES))], shard
        assert sum(each.files.adopted for each in pair) == FILES, shard
    print(f"{len(refused)} times one met the other")
    assert set(refused) == {"lease_held"}
    scene.check()


def test_another_worker_resumes_the_shards_of_a_killed_one(scene: Scene, site: World) -> None:
    site.airflow.await_dags("move_mapped")
    with scene.watched():
        run = scene.begin("move_mapped", rate=RATE // 2, shards=SHARDS)
        site.airflow.wait_for(
            lambda: sum(each.state == "running" for each in run.tasks()) == 4, "four shards move"
        )
        site.airflow.kill("one")
        run.await_end(seconds=400)
        site.airflow.start_worker("one", slots=2)
    tries = sorted(each.tries for each in run.tasks() if each.task_id == "move")
    assert tries == [1, 1, 1, 1, 2, 2]
    # Each shard has one transfer, although a second worker has repeated some of the tasks.
    assert sorted(each.request["labels"]["map_index"] for each in scene.transfers()) == list(
        "012345"
    )
    check_each_once(scene)
