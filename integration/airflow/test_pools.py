"""The transfer operator in a real Airflow moves files into a pool of a Ceph cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dray.testing.endpoints import Endpoint, Root
from integration.airflow.conftest import LIMITS, MIB, RESENT_BYTES_MAX, connected
from integration.storage.conftest import ceph
from integration.storage.pool_root import Pool, make_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from integration.airflow.conftest import Scene, World
    from integration.storage.ceph import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.server]

#: The fixture that starts the cluster.
__all__ = ["ceph"]

#: Name of the endpoint. The DAG uses its connection ``dray_pool``.
NAME = "pool"


@pytest.fixture
def pool(world: World, request: pytest.FixtureRequest, folder: Path) -> Iterator[Pool]:
    """Make a pool as the root of an endpoint. Store a connection to it in Airflow's database."""
    cluster: Cluster = request.getfixturevalue("ceph")
    made = Pool(cluster, folder)
    made.write("seed", make_file(folder / "seed", MIB, 1))
    roots = [Root("data", {"store": made.url})]
    program, config = world.b.program, {"limits": LIMITS}
    end = Endpoint(folder / NAME, NAME, program=program, roots=roots, config=config)
    with connected(world, end):
        yield made


def test_a_dag_moves_files_into_a_pool(scene: Scene, pool: Pool) -> None:
    sizes = {"large": 24 * MIB + 5, "in/small": 10, "in/none": 0}
    scene.make(sizes)
    run = scene.begin("move_pool").await_end()
    assert run.result("move")["bytes_durable"] == sum(sizes.values())
    for name in sizes:
        pool.expect(f"{scene.name}/{name}", scene.here / name)
    assert pool.leftovers() == []
    assert scene.excess() < RESENT_BYTES_MAX
