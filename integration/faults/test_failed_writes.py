"""A disk fails writes for a while: each file with its final name must be whole on the disk.

The tests read the files only after a remount, because the page cache hides the loss: after a failed
write-back, ext4 marks the new blocks as unwritten. Later writes to these blocks are visible in the
page cache, and a second sync succeeds. But after a remount, ext4 reads zeros from these blocks.
"""

from __future__ import annotations

import os
import random
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from integration.harness import fuse_block, tree
from integration.harness.lossy import KINDS, Lossy, Moment, Tally, lossy, make_marked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from integration.harness.program import Bench, Process, Server, Word

pytestmark = [pytest.mark.server, pytest.mark.timeout(1800)]

IS_FULL = os.environ.get("DRAY_FULL") == "1"
#: Number of rounds of each way on each file system.
ROUNDS = int(os.environ.get("DRAY_ROUNDS") or (100 if IS_FULL else 2))
#: File systems of the short run: one that writes over unwritten blocks, and one that does not.
FEW = ["ext4-ordered", "xfs"]
SEED = int(os.environ.get("DRAY_SEED", "1"))
SIZE = 24 * tree.MIB + 777
RUNS_MAX = 8
#: Maximum seconds of one run, on a busy host.
WAIT_SECONDS = 600
#: Rate at which the data takes some seconds, so that the disk can fail in the middle.
RATE = "10MiB"
DURABILITIES = ["file", "object"]
WAYS = ["cp", "push", "pull"]


@pytest.fixture(params=KINDS if IS_FULL else FEW)
def volume(request: pytest.FixtureRequest, bench: Bench) -> Iterator[Lossy]:
    """Yield a file system on a disk that can lose data."""
    if why := fuse_block.reason_to_skip(KINDS[request.param][0]):
        pytest.skip(why)
    with lossy(bench.folder / "disk", request.param) as made:
        try:
            yield made
        finally:
            bench.close()


class Copy:
    """A copy of one file to a failing disk, locally, or to or from ``dray serve``."""

    def __init__(self, bench: Bench, volume: Lossy, way: str, seed: int) -> None:
        """Make the file, and an empty folder on the disk."""
        self.bench, self.volume, self.way = bench, volume, way
        self.source = bench.folder / f"from{seed}" / "large"
        self.source.parent.mkdir()
        make_marked(self.source, SIZE, seed)
        self.sink = volume.top / f"sink{seed}"
        self.sink.mkdir()
        self.server: Server | None = None
        self.serve()

    def serve(self) -> None:
        """Restart the server at its old address, so that the same command resumes the transfer."""
        where = "127.0.0.1:0"
        if self.server is not None:
            self.server.kill()
            where = self.server.address
        if self.way != "cp":
            top = self.sink if self.way == "push" else self.source.parent
            self.server = self.bench.serve(top, listen=where)

    def start(self, *words: Word) -> Process:
        """Start the copy with further options."""
        source, sink, peer = f"{self.source}", f"{self.sink}/large", list[Any]()
        if self.server is not None:
            peer = self.bench.peer(self.server)
            far = f"dray://{self.server.address}/large"
            source, sink = (source, far) if self.way == "push" else (far, sink)
        return self.bench.start_cp("--progress", "json", *words, source, sink, *peer)

    def finish(self, *words: Word) -> int:
        """Run the copy until it reports success, and return the number of runs."""
        for run in range(1, RUNS_MAX + 1):
            ended = self.start("--retries", "0", *words).wait(WAIT_SECONDS)
            if ended.code == 0:
                return run
        raise AssertionError(f"not done after {RUNS_MAX} runs\n{ended.out}\n{ended.words}")

    def remount_if_read_only(self) -> bool:
        """Remount the file system if a failed write of its journal has made it read-only."""
        if not self.volume.is_read_only():
            return False
        if self.server is not None:
            self.server.kill()
        self.volume.remount()
        self.serve()
        return True

    def close(self) -> tuple[bool, list[str]]:
        """Remove all files. Return whether the copy has wrong bytes, and the names of leftovers."""
        wanted = tree.hash_file(self.source)
        if self.server is not None:
            self.server.stop()
        self.volume.remount()
        is_wrong = tree.hash_file(self.sink / "large") != wanted
        left = sorted(f"{path.relative_to(self.sink)}" for path in self.sink.rglob("*"))
        shutil.rmtree(self.sink)
        shutil.rmtree(self.source.parent)
        return is_wrong, [name for name in left if name != "large"]


@pytest.mark.parametrize(
    ("way", "durability"),
    [(way, durability) for way in WAYS for durability in DURABILITIES]
    if IS_FULL
    else [("cp", "file"), ("push", "object")],
)
def test_data_written_after_a_failed_sync_reaches_the_disk(
    bench: Bench, volume: Lossy, way: str, durability: str
) -> None:
    copy = Copy(bench, volume, way, seed=1)
    words = ["--durability", durability, "--object-size", "256KiB"]
    first = copy.start("--rate", RATE, "--retries", "0", *words)
    first.await_durable()
    volume.fail()
    ended = first.wait(WAIT_SECONDS)
    volume.recover()
    assert volume.lost > 0, "no write has met the fault"
    assert ended.code != 0, f"{ended.out}\n{ended.words}"
    copy.remount_if_read_only()
    copy.finish(*words)
    assert copy.close() == (False, [])


@pytest.mark.timeout(7200 if IS_FULL else 1800)
@pytest.mark.parametrize("way", WAYS if IS_FULL else ["cp"])
def test_at_random_moments_nothing_false_gets_its_name(
    request: pytest.FixtureRequest, bench: Bench, volume: Lossy, way: str
) -> None:
    tally = Tally(request.node.name.partition("[")[2].rstrip("]"))
    chance = random.Random(f"{tally.name} {SEED}")
    for number in range(ROUNDS):
        moment = Moment.draw(chance)
        words = ["--durability", moment.durability, "--object-size", "256KiB"]
        copy = Copy(bench, volume, way, seed=SEED * 1000 + number)
        before = volume.lost
        first = copy.start("--rate", RATE, "--retries", "0", *words)

        def kill(first: Process = first, copy: Copy = copy) -> None:
            first.kill()
            if way == "push":
                copy.serve()

        moment.let_fail(volume, kill)
        if moment.is_met_again:
            copy.start("--retries", "0", *words).wait(WAIT_SECONDS)
        volume.recover()
        first.wait(WAIT_SECONDS)
        tally.remounted += copy.remount_if_read_only()
        copy.finish(*words)
        lost = volume.lost - before
        is_wrong, left = copy.close()
        tally.add(moment, lost, is_wrong=is_wrong, left=left)
    tally.check()
