"""Rules of a real Rucio move files into a pool of a Ceph cluster, and out of the pool."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dray.testing.endpoints import Endpoint, Root
from integration.endpoint.raw import shipped_program
from integration.rucio.test_rules import MIB, adler32
from integration.storage.conftest import ceph
from integration.storage.pool_root import TOP, Pool, make_file

if TYPE_CHECKING:
    from pathlib import Path

    from integration.rucio.conftest import Scene
    from integration.storage.ceph import Cluster

pytestmark = [pytest.mark.server, pytest.mark.full, pytest.mark.timeout(300)]

#: The fixture that starts the cluster.
__all__ = ["ceph"]

SITE = "p"


@pytest.fixture
def pool(scene: Scene, request: pytest.FixtureRequest, folder: Path) -> Pool:
    """Start an endpoint with the RSE ``P-DATA``, and return the pool behind this RSE."""
    cluster: Cluster = request.getfixturevalue("ceph")
    made = Pool(cluster, folder)
    made.write("seed", make_file(folder / "seed", MIB, 1))
    roots = [Root("data", {"store": made.url})]
    end = Endpoint(folder / SITE, name="p.example", program=shipped_program(), roots=roots)
    scene.join(SITE, end)
    pairs = [["A-DATA", "P-DATA"], ["P-DATA", "B-DATA"]]
    scene.do("make_rses", rses=[scene.rse(SITE, "data")], distances=pairs)
    return made


def test_a_rule_moves_files_into_a_pool_and_another_out_of_it(scene: Scene, pool: Pool) -> None:
    dataset, sums = scene.dataset("A-DATA", {"large": 24 * MIB, "small": 10, "other": 70_000})
    rule = scene.do("add_rule", name=dataset, rse="P-DATA")
    assert scene.carry(SITE, rule, *sums)["state"] == "OK"
    for name, sum in sums.items():
        first = f"/{name}.{0:016x}"
        (found,) = [each for each in pool.objects() if each.endswith(first)]
        path = found.removeprefix(f"{TOP}/").removesuffix(f".{0:016x}")
        content = pool.read(path)
        assert content is not None
        assert adler32(content) == sum
        # Leave the pool as the only source for the next rule.
        scene.file("a", "data", name).unlink()
    assert pool.leftovers() == []
    out = scene.do("add_rule", name=dataset, rse="B-DATA")
    while scene.carry("b", out, *sums)["state"] == "REPLICATING":
        assert len(scene.requests(*sums)) < 24
    for name, sum in sums.items():
        request = scene.requests(name)[-1]
        assert (request["state"], request["source"]) == ("DONE", "P-DATA"), request
        assert adler32(scene.file("b", "data", name).read_bytes()) == sum
