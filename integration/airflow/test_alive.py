"""The harness's Airflow runs DAGs, and the provider moves data in it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from dray_airflow.hooks.dray import EXTRAS
from integration.airflow.conftest import LINEAGE
from integration.harness.tree import MIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from integration.airflow.conftest import Scene, World

STORIES = ("night_run", "shared_dataset", "beamline_day")
pytestmark = [pytest.mark.slow, pytest.mark.server]


def test_plain_dag_runs(world: World) -> None:
    world.airflow.await_dags("plain", "move_waiting", "move_deferred", "move_mapped", *STORIES)
    run = world.airflow.trigger("plain", "r1").await_end()
    assert run.result("add") == 42


@pytest.mark.parametrize("dag_id", ["move_waiting", "move_deferred"])
def test_transfer_arrives(scene: Scene, dag_id: str) -> None:
    scene.make({"a.dat": 3 * MIB + 1, "deep/b.dat": 5, "deep/empty": 0})
    run = scene.begin(dag_id).await_end()
    scene.check()
    result = run.result("move")
    assert (result["files"], result["bytes"]) == (3, scene.size)
    assert scene.transfer().id == result["id"]
    assert run.task("move").tries == 1


def test_the_page_of_connections_has_the_form(world: World) -> None:
    """Check the description of the connection form, and the button that tests a connection."""
    airflow = world.airflow
    answer = airflow.client.get(f"{airflow.url}/ui/connections/hook_meta")
    assert answer.is_success, answer.text
    (form,) = [each for each in answer.json() if each["connection_type"] == "dray"]
    assert form["hook_name"] == "dray endpoint"
    assert set(form["extra_fields"]) == set(EXTRAS)
    outage = form["extra_fields"]["outage_seconds"]
    assert (outage["value"], outage["schema"]["type"]) == (300, ["number", "null"])
    assert outage["schema"]["title"] == "Outage"
    standard = form["standard_fields"]
    assert standard["login"]["hidden"]
    assert (standard["password"]["title"], standard["url_schema"]["title"]) == ("Token", "Scheme")
    assert standard["host"]["placeholder"] == "dtn.example.org"
    said: dict[str, Any] = {
        "connection_id": "typed",
        "conn_type": "dray",
        "host": world.a.address,
        "password": world.a.token(),
        "extra": json.dumps({"pin": world.a.key}),
    }
    tested = airflow.ask("POST", "connections/test", said)
    assert tested["status"], tested
    assert tested["message"].startswith("endpoint a, version ")
    tested = airflow.ask("POST", "connections/test", {**said, "password": "no-token-at-all"})
    assert not tested["status"]
    assert "no-token-at-all" not in tested["message"]


@pytest.fixture
def staged(scene: Scene) -> Iterator[str]:
    """Yield the name of a file on the slow tier, which is removed after the test."""
    name = f"{scene.name}.dat"
    slow, fast = (scene.world.a.root(name, root=root) for root in ("tape", "nvme"))
    slow.write_bytes(b"x" * 1000)
    yield name
    slow.unlink()
    fast.unlink(missing_ok=True)


def test_lineage_events_are_emitted(scene: Scene, staged: str) -> None:
    scene.make({"x.dat": 3 * MIB + 1})
    world = scene.world
    scene.airflow.await_dags("lineage")
    scene.begin("lineage").await_end()
    events: dict[tuple[str, str], dict[str, Any]] = {}

    def is_complete() -> bool:
        path = scene.airflow.folder.parent / LINEAGE
        for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
            event = json.loads(line)
            _, _, task_id = event["job"]["name"].partition(".")
            events[task_id, event["eventType"]] = event
        tasks = ("move", "deferred", "verify", "stage")
        return all((task_id, "COMPLETE") in events for task_id in tasks)

    scene.airflow.wait_for(is_complete, "all tasks have reported their lineage", 60)
    assert {event["job"]["namespace"] for event in events.values()} == {"tests"}
    assert all(event["job"]["name"].startswith("lineage") for event in events.values())

    def places(task_id: str, which: str) -> list[tuple[str, str]]:
        found = events[task_id, "COMPLETE"][which]
        return [(each["namespace"], each["name"]) for each in found]

    def size(task_id: str) -> int:
        (output,) = events[task_id, "COMPLETE"]["outputs"]
        return int(output["outputFacets"]["outputStatistics"]["size"])

    a, b = world.a.url, world.b.url
    assert places("move", "inputs") == [(a, f"/data/{scene.name}/x.dat")]
    assert places("move", "outputs") == [(b, f"/data/{scene.name}/x.dat")]
    assert places("deferred", "outputs") == [(b, f"/data/{scene.name}/x.dat.2")]
    assert size("move") == size("deferred") == 3 * MIB + 1
    assert sorted(places("verify", "inputs")) == sorted(
        [(a, f"/data/{scene.name}/x.dat"), (b, f"/data/{scene.name}/x.dat")]
    )
    assert places("verify", "outputs") == []
    assert places("stage", "outputs") == [(a, f"/nvme/{staged}")]
    assert size("stage") == 1000
