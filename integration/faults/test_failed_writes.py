"""A disk that fails writes for a while: files with final names are whole on the disk.

The oracle is a remount: the page cache shows bytes that were written after a failed write-back,
though ext4 keeps their blocks as unwritten, and a sync after the failed one succeeds.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from typing import TYPE_CHECKING

import pytest

from integration.harness import fuse_block, tree
from integration.harness.lossy import KINDS, Lossy, lossy, make_marked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from integration.harness.program import Bench, Process, Word

pytestmark = [pytest.mark.server, pytest.mark.timeout(1800)]

IS_FULL = os.environ.get("DRAY_FULL") == "1"
#: of each way on each file system
ROUNDS = 100 if IS_FULL else 2
#: of the everyday run: a file system that writes over unwritten blocks, and one that does not
FEW = ["ext4-ordered", "xfs"]
SEED = int(os.environ.get("DRAY_SEED", "1"))
SIZE = 24 * tree.MIB + 777
RUNS_MAX = 8
#: some seconds for the data, so that there is a middle to fail in
RATE = "10MiB"
DURABILITIES = ["file", "object"]
WAYS = ["cp", "serve"]


@pytest.fixture(params=KINDS if IS_FULL else FEW)
def volume(request: pytest.FixtureRequest, bench: Bench) -> Iterator[Lossy]:
    """Give a file system on a disk that can lose data."""
    if why := fuse_block.reason_to_skip(KINDS[request.param][0]):
        pytest.skip(why)
    with lossy(bench.folder / "disk", request.param) as made:
        yield made
        bench.close()


class Copy:
    """One file that goes to a disk that fails, by ``dray cp`` alone or by way of ``dray serve``."""

    def __init__(self, bench: Bench, volume: Lossy, way: str, seed: int) -> None:
        """Make the file, and an empty folder on the disk."""
        self.bench, self.volume, self.way = bench, volume, way
        self.source = bench.folder / f"source{seed}"
        make_marked(self.source, SIZE, seed)
        self.sink = volume.top / f"sink{seed}"
        self.sink.mkdir()
        self.server = bench.serve(self.sink) if way == "serve" else None

    def start(self, *words: Word) -> Process:
        """Start the command."""
        where: list[Word] = [f"{self.sink}/large"]
        if self.server is not None:
            where = [f"dray://{self.server.address}/large", *self.bench.peer(self.server)]
        return self.bench.start_cp("--progress", "json", *words, self.source, *where)

    def finish(self, *words: Word) -> int:
        """Run it until it says that it is done; say how many runs that took."""
        for run in range(1, RUNS_MAX + 1):
            ended = self.start("--retries", "0", *words).wait(120)
            if ended.code == 0:
                return run
        raise AssertionError(f"not done after {RUNS_MAX} runs\n{ended.out}\n{ended.words}")

    def check(self) -> None:
        """Compare what the disk has, and leave nothing."""
        wanted = tree.hash_file(self.source)
        before = tree.hash_file(self.sink / "large")
        if self.server is not None:
            self.server.kill()
        self.volume.remount()
        after = tree.hash_file(self.sink / "large")
        assert after == wanted, f"after the remount it differs; before it: {before == wanted}"
        assert [path.name for path in self.sink.rglob(".dray-*.part")] == []
        shutil.rmtree(self.sink)
        self.source.unlink()


@pytest.mark.parametrize(
    ("way", "durability"),
    [(way, durability) for way in WAYS for durability in DURABILITIES]
    if IS_FULL
    else [("cp", "file"), ("serve", "object")],
)
def test_what_is_written_after_a_failed_sync_is_on_the_disk(
    bench: Bench, volume: Lossy, way: str, durability: str
) -> None:
    copy = Copy(bench, volume, way, seed=1)
    words = ["--durability", durability, "--object-size", "256KiB"]
    first = copy.start("--rate", RATE, "--retries", "0", *words)
    first.await_durable()
    volume.fail()
    ended = first.wait(120)
    volume.recover()
    assert volume.lost > 0, "no write has met the fault"
    assert ended.code != 0, f"{ended.out}\n{ended.words}"
    if volume.is_read_only():
        # A journal that cannot be written ends the file system until it is mounted again.
        if copy.server is not None:
            copy.server.kill()
        volume.remount()
        if copy.server is not None:
            copy.server = bench.serve(copy.sink)
    copy.finish(*words)
    copy.check()


@pytest.mark.parametrize("way", WAYS if IS_FULL else ["cp"])
def test_at_random_moments_nothing_false_gets_its_name(
    bench: Bench, volume: Lossy, way: str
) -> None:
    chance = random.Random(SEED)
    said = []
    for number in range(ROUNDS):
        durability = chance.choice(DURABILITIES)
        words = ["--durability", durability, "--object-size", "256KiB"]
        copy = Copy(bench, volume, way, seed=SEED * 1000 + number)
        before = volume.lost
        first = copy.start("--rate", RATE, "--retries", "0", *words)
        time.sleep(chance.uniform(0.1, 2.0))
        volume.fail()
        time.sleep(chance.uniform(0.05, 1.2))
        kills = chance.random() < 0.5
        if kills:
            first.kill()
            if copy.server is not None:
                copy.server.kill()
        if chance.random() < 0.3:
            # A second run meets the fault too.
            copy.server = bench.serve(copy.sink) if way == "serve" and kills else copy.server
            copy.start("--retries", "0", *words).wait(120)
        volume.recover()
        first.wait(120)
        if volume.is_read_only() or (way == "serve" and kills):
            if copy.server is not None:
                copy.server.kill()
            if volume.is_read_only():
                volume.remount()
            if way == "serve":
                copy.server = bench.serve(copy.sink)
        runs = copy.finish(*words)
        lost = volume.lost - before
        said.append(f"{number}: {durability}, killed {kills}, {lost} writes lost, {runs} runs more")
        print(said[-1])
        copy.check()
