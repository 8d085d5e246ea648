"""Mapped shards of one dataset write concurrently into one folder.

docs/how-to/airflow-transfer.md describes this behaviour.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from integration.airflow.conftest import MIB, RESENT_BYTES_MAX, files
from integration.harness import tree

if TYPE_CHECKING:
    from dray.client import Transfer
    from integration.airflow.conftest import Scene
    from integration.harness.airflow import Run

pytestmark = [pytest.mark.slow, pytest.mark.server]

SHARDS = ("a", "b", "c")
PARTS = 3
PART_BYTES = 8 * MIB
SHARD_BYTES = PARTS * PART_BYTES
#: Rate of each shard in bytes per second. A shard takes about twelve seconds.
RATE = 2 * MIB


def make(scene: Scene) -> None:
    """Write a folder whose files have the names of the shards as prefixes."""
    scene.make({f"{name}{part}.dat": PART_BYTES for name in SHARDS for part in range(PARTS)})


def begin(scene: Scene, run_id: str, *names: str) -> Run:
    """Start a run that moves some shards."""
    patterns = [f"{name}*.dat" for name in names]
    return scene.begin("move_shards", run_id, rate=RATE, patterns=patterns)


def shards(scene: Scene, run: Run) -> dict[int, Transfer]:
    """Return the transfers of a run by their shards."""
    with scene.client() as client:
        found = client.transfers(labels={"run_id": run.run_id})
        return {int(each.request["labels"]["map_index"]): each for each in found}


def seconds_of(transfers: dict[int, Transfer]) -> float:
    """Return the seconds from the first submission to the end of the last transfer."""
    begun = [each.submitted_at for each in transfers.values() if each.submitted_at]
    ended = [each.ended_at for each in transfers.values() if each.ended_at]
    return (max(ended) - min(begun)).total_seconds()


@pytest.mark.full
def test_shards_move_side_by_side(scene: Scene) -> None:
    make(scene)
    alone = begin(scene, f"{scene.name}-alone", "a").await_end()
    one = seconds_of(shards(scene, alone))
    for path in scene.there.glob("*"):
        path.unlink()
    scene.before = scene._counted()
    run = begin(scene, scene.name, *SHARDS)
    together = 0
    with scene.watched():
        while run.state not in ("success", "failed"):
            moving = [each for each in shards(scene, run).values() if not each.is_terminal]
            together += len([each for each in moving if each.bytes.durable]) == len(SHARDS)
            time.sleep(0.5)
        run.await_end()
    found = shards(scene, run)
    three = seconds_of(found)
    each = [seconds_of({0: transfer}) for transfer in found.values()]
    print(
        f"{scene.name}: one shard {one:.1f} s, three {three:.1f} s ({three / one:.2f} times,"
        f" each {max(each) / one:.2f}), all three moved at {together} looks"
    )
    # Count concurrent transfers instead of seconds, because a busy host is slow. Transfers that run
    # one after the other never run three at a time.
    assert together >= 3
    assert [(each.attempt, each.tries) for each in found.values()] == [(1, 1)] * 3
    scene.check()


def test_a_shard_that_failed_sends_only_what_was_missing(scene: Scene) -> None:
    make(scene)
    run = begin(scene, scene.name, *SHARDS)
    with scene.watched():

        def is_moving() -> bool:
            found = shards(scene, run)
            return 1 in found and found[1].bytes.durable >= 8 * MIB

        scene.airflow.wait_for(is_moving, "the second shard moves")
        run.mark("move", "failed", map_index=1)
        run.await_end("failed")
        stopped = shards(scene, run)
        assert {at: each.state for at, each in stopped.items()} == {
            0: "done",
            1: "cancelled",
            2: "done",
        }
        safe = stopped[1].bytes.durable
        # The other two shards have sent all their data. The rest of the carried bytes belongs to
        # the cancelled shard. Its bytes that are not durable must be sent again.
        unsafe = scene.carried() - 2 * SHARD_BYTES - safe + MIB
        run.clear("move", 1)
        run.await_end()
    result = run.result("move", 1)
    resumed = result["bytes_resumed"]
    print(f"{scene.name}: {safe / MIB:.1f} MiB were safe, resumed {resumed / MIB:.1f}")
    assert resumed >= safe
    assert resumed + result["bytes_sent"] == SHARD_BYTES
    assert {at: each.attempt for at, each in shards(scene, run).items()} == {0: 1, 1: 2, 2: 1}
    assert unsafe <= RESENT_BYTES_MAX
    assert tree.differences(files(scene.wanted), files(tree.describe(scene.there))) == []
    scene.check(max(unsafe, 0))
