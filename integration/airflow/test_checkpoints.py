"""The DAG `checkpoint_restart` restarts from the fast root of a tier, under a real scheduler."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from dray.testing.endpoints import Endpoint, Root
from integration.airflow.conftest import LIMITS, MIB, connected

if TYPE_CHECKING:
    from collections.abc import Iterator

    from integration.airflow.conftest import World

pytestmark = [pytest.mark.full, pytest.mark.slow, pytest.mark.server]

TIER = {
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


@pytest.fixture
def buffer(world: World) -> Iterator[Endpoint]:
    """Start an endpoint with a tier. Store a connection to it in Airflow's database."""
    folder = world.b.folder.parent / "buffer"
    roots = (Root("fast", {"tier": "fast"}), Root("slow", {"tier": "slow"}))
    config = {"limits": LIMITS, "tier": [TIER]}
    endpoint = Endpoint(folder, "buffer", roots=roots, program=world.b.program, config=config)
    with connected(world, endpoint):
        yield endpoint


def states_of(steps: int) -> list[bytes]:
    """Return the state after each step of an undisturbed simulation."""
    states = [b"the beginning"]
    for _ in range(steps):
        states.append(hashlib.shake_256(states[-1]).digest(MIB))
    return states


def test_a_failed_simulation_restarts_from_the_buffer(world: World, buffer: Endpoint) -> None:
    conf = {"steps": 8, "every": 2, "fail_at": 5, "mount": str(buffer.root(root="fast"))}
    run = world.airflow.trigger("checkpoint_restart", "checkpoints", conf).await_end()
    assert {each.task_id: each.state for each in run.tasks()} == {
        "restart_1": "success",
        "simulate_1": "failed",
        "restart_2": "success",
        "simulate_2": "success",
        "restart_3": "skipped",
        "simulate_3": "skipped",
        "keep": "success",
    }
    assert run.result("restart_1")["version"] is None
    again = run.result("restart_2")
    assert (again["hit"], again["version"], again["to"]) == (True, 4, "/fast/sim/4")
    assert again["bytes_sent"] == 0
    assert run.result("simulate_2") == 4
    wanted = states_of(8)
    with buffer.client() as client:

        def is_settled() -> bool:
            found = {each.version: each.state for each in client.tier("burst").versions}
            return sorted(found) == [2, 4, 6, 8] and set(found.values()) <= {"demoted", "slow"}

        world.airflow.wait_for(is_settled, "all versions are on the slow root")
        moved = list(client.transfers())
    # The transfers are four demotions and the stage-out of the result.
    assert len(moved) == 5
    assert all(str(each.request["destination"]["url"]).startswith("/slow/") for each in moved)
    for version in (2, 4, 6, 8):
        there = buffer.root(f"sim/{version}/state.bin", root="slow")
        assert there.read_bytes() == wanted[version], version
    # The newest version is also on the fast root.
    assert buffer.root("sim/8/state.bin", root="fast").read_bytes() == wanted[8]
    assert buffer.root("sim-result/state.bin", root="slow").read_bytes() == wanted[8]
    assert not buffer.root("sim-result/state.bin", root="fast").exists()
