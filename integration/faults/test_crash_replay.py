"""Power loss at random moments of a copy onto ext4 and XFS: no wrong file, no durable byte lost."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from integration.crash_replay.record import OPTIONS, SIZES, Copier, Data, Way, record
from integration.crash_replay.replay import WAYS, Outcome, points, replay
from integration.harness import fuse_block
from integration.harness.program import Process

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from integration.harness.program import Bench, Word

pytestmark = [pytest.mark.server, pytest.mark.timeout(1200)]

FULL = os.environ.get("DRAY_FULL") == "1"
IMAGES = 40 if FULL else 5
SEED = int(os.environ.get("DRAY_SEED", "1106"))
#: Ways of `make test`: each file system, each durability and each writing process occurs once.
FAST = (Way("ext4", "object", is_served=False), Way("xfs", "file", is_served=True))


class Careless(Copier):
    """Copies with ``cp``, which syncs nothing and writes under the final names."""

    def start(self, at: Path, *words: Word) -> Process:
        """Start ``cp`` and print a report, as ``dray cp`` does."""
        del words
        script = 'cp -r "$0" "$1" && echo \'{"bytes_sent": 0}\''
        whole: list[Word] = ["sh", "-c", script, self.data.source, at]
        process = Process(whole, self.bench.logs, self.bench._name("careless"))
        self.bench.processes.append(process)
        return process


def _lose_power(
    bench: Bench, way: Way, images: int, make: Callable[[Bench, Data, Way], Copier] = Copier
) -> list[Outcome]:
    reason = fuse_block.reason_to_skip(way.kind)
    if reason is not None:
        pytest.skip(reason)
    print(f"\nseed {SEED} (DRAY_SEED replays it), {images} images")
    copier = make(bench, Data(bench.folder / "data"), way)
    where = bench.folder / "disk"
    with fuse_block.faulty_disk(where, way.kind, SIZES[way.kind], OPTIONS[way.kind]) as disk:
        recording = record(disk, where, copier)
        chosen = points(recording, images, SEED)
        return list(replay(disk, recording, copier, where, chosen, SEED))


@pytest.mark.parametrize("way", WAYS if FULL else FAST, ids=str)
def test_after_a_power_loss_files_are_whole_and_durable_data_is_kept(
    bench: Bench, way: Way
) -> None:
    outcomes = _lose_power(bench, way, IMAGES)
    assert len(outcomes) == IMAGES
    bad = [f"{outcome.name}: {outcome.faults}" for outcome in outcomes if outcome.faults]
    assert bad == []
    # The second runs must send different amounts. Otherwise all moments are alike.
    assert len({outcome.bytes_sent for outcome in outcomes}) > 1


def test_the_replay_finds_what_a_copy_without_syncs_loses(bench: Bench) -> None:
    outcomes = _lose_power(bench, Way("ext4"), 10, Careless)
    said = [fault for outcome in outcomes for fault in outcome.faults]
    assert any("wrong content" in each or "the copy was done" in each for each in said)
