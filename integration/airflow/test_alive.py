"""The harness's Airflow runs DAGs, and the provider moves data in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from integration.harness.tree import MIB

if TYPE_CHECKING:
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
