"""Build possible contents of a disk after a power loss, mount them, and check from outside."""

from __future__ import annotations

import json
import os
import random
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from integration.crash_replay.record import Copier, Data, Recording, Way, Write
from integration.harness import fuse_block, tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

#: Bytes that the disk writes as a whole, so that a torn write ends at a multiple of this size. With
#: units of 512 bytes, XFS cannot replay its own journal.
SECTOR = 4096
#: An interval between two flushes is long if it has at least this many writes.
WIDE = 3
#: Ways to draw a subset of the writes after the last flush.
SHAPES = ("none", "all", "some", "reordered", "torn")


@dataclass
class Outcome:
    """The result of one replayed power loss."""

    way: str
    point: int
    shape: str
    seed: int
    #: Number of writes after the last flush.
    unflushed: int
    #: Number of these writes that are in the image.
    kept: int
    #: Bytes that the copy had reported as durable before the power loss.
    bytes_durable: int = 0
    #: Bytes that the second run of the copy sent.
    bytes_sent: int = 0
    faults: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The name of the image, with which ``--image`` replays it."""
        return f"{self.way}/{self.point}/{self.shape}/{self.seed}"

    def line(self) -> str:
        """Return the outcome as one line of JSON."""
        return json.dumps({"image": self.name, **asdict(self)})


def survivors(writes: list[Write], shape: str, chance: random.Random) -> list[Write]:
    """Draw the unflushed writes that the disk has kept, and their order."""
    if shape == "none":
        return []
    if shape == "all":
        return list(writes)
    kept = [each for each in writes if chance.random() < chance.choice((0.2, 0.5, 0.9))]
    if shape == "reordered":
        chance.shuffle(kept)
    if shape == "torn" and kept:
        # One write was in flight at the power loss, so the disk has only some of its sectors.
        torn = chance.randrange(len(kept))
        offset, data = kept[torn]
        kept[torn : torn + 1] = [
            Write(offset + at, data[at : at + SECTOR])
            for at in range(0, len(data), SECTOR)
            if chance.random() < 0.5
        ]
    return kept


class Builder:
    """Makes images for ascending points, so that each flushed write is executed only once."""

    def __init__(self, recording: Recording, folder: Path) -> None:
        """Start with the file system before the copy."""
        self.recording = recording
        self.stable = folder / "stable"
        self.image = folder / "crashed"
        fuse_block.copy_image(recording.base, self.stable)
        self.done = 0

    def build(self, point: int, shape: str, seed: int) -> tuple[Path, int, int]:
        """Make the image of a power loss before the recording's entry ``point``.

        Return the image, the number of writes since the last flush, and the number of these writes
        in the image.
        """
        entries = self.recording.entries
        flushed = max((at for at in self.recording.flushes() if at < point), default=0)
        assert flushed >= self.done or flushed == 0, "points must ascend"
        _apply(self.stable, (each for each in entries[self.done : flushed] if each is not None))
        self.done = max(self.done, flushed)
        waiting = [each for each in entries[flushed:point] if each is not None]
        kept = survivors(waiting, shape, random.Random(f"{seed} {point} {shape}"))
        fuse_block.copy_image(self.stable, self.image)
        _apply(self.image, kept)
        return self.image, len(waiting), len(kept)


def _apply(image: Path, writes: Iterable[Write]) -> None:
    with image.open("r+b", buffering=0) as file:
        for offset, data in writes:
            os.pwrite(file.fileno(), data, offset)


def points(recording: Recording, count: int, seed: int) -> list[tuple[int, str]]:
    """Draw points: half from all points, and half from long intervals between flushes."""
    chance = random.Random(f"{seed} points")
    last = len(recording.entries)
    ends = [*recording.flushes(), last]
    begins = [0, *(at + 1 for at in ends[:-1])]
    wide = [(begin, end) for begin, end in zip(begins, ends, strict=True) if end - begin >= WIDE]
    drawn = []
    for number in range(count):
        if number % 2 and wide:
            begin, end = chance.choice(wide)
            point = chance.randint((begin + end) // 2, end)
        else:
            point = chance.randint(1, last)
        drawn.append((point, SHAPES[number % len(SHAPES)]))
    return sorted(drawn)


def judge(data: Data, recording: Recording, point: int, at: Path) -> list[str]:
    """Return the faults of the files under final names after a power loss."""
    copied = at / data.source.name
    entries = tree.describe(copied)
    faults = []
    for path, entry in entries.items():
        if entry.kind not in ("file", "link"):
            continue
        allowed = data.allowed.get(path)
        if allowed is None or (entry.size, entry.content) not in allowed:
            faults.append(f"{os.fsdecode(path)!r} stands there with wrong content")
    if recording.ended is not None and point >= recording.ended:
        lost = tree.differences(data.wanted, entries)
        faults += [f"the copy was done, but {each}" for each in lost]
    return faults


def replay(
    disk: fuse_block.FaultyDisk,
    recording: Recording,
    copier: Copier,
    folder: Path,
    chosen: Iterable[tuple[int, str]],
    seed: int,
) -> Iterator[Outcome]:
    """Replay a power loss at each chosen point, in ascending order.

    For each image: check the files, run the copy again, and check the files again.
    """
    data = copier.data
    builder = Builder(recording, folder)
    for point, shape in chosen:
        image, unflushed, kept = builder.build(point, shape, seed)
        outcome = Outcome(str(copier.way), point, shape, seed, unflushed, kept)
        disk.replace(image)
        try:
            disk.mount()
        except OSError as error:
            # A file system that does not mount shows a fault of this test or of the kernel.
            outcome.faults.append(f"the image cannot be mounted: {error}")
            yield outcome
            continue
        outcome.faults += judge(data, recording, point, disk.at)
        outcome.bytes_durable = recording.durable_at(point)
        _run_again(disk, copier, outcome)
        disk.unmount()
        yield outcome


def _run_again(disk: fuse_block.FaultyDisk, copier: Copier, outcome: Outcome) -> None:
    data = copier.data
    ended = copier.rerun(disk.at)
    if ended.code != 0:
        outcome.faults.append(f"the second copy ended with {ended.code}: {ended.words}")
        return
    outcome.bytes_sent = ended.report["bytes_sent"]
    if outcome.bytes_sent > data.size - outcome.bytes_durable:
        outcome.faults.append(
            f"{outcome.bytes_durable} of {data.size} bytes were called durable, "
            f"yet the second copy sent {outcome.bytes_sent}"
        )
    # Remount, so that files are read from the device and not from the page cache.
    disk.remount()
    entries = tree.describe(disk.at / data.source.name)
    outcome.faults += [
        f"after the second copy: {each}" for each in tree.differences(data.wanted, entries)
    ]
    outcome.faults += [
        f"left behind: {os.path.relpath(each, disk.at)}" for each in tree.leftovers(disk.at)
    ]
    logs = [path.relative_to(disk.at) for path in disk.at.rglob(".dray-log/*")]
    outcome.faults += [f"left behind: {path}" for path in logs]


WAYS = tuple(
    Way(kind, durability, is_served)
    for kind in ("ext4", "xfs")
    for durability in ("file", "object")
    for is_served in (False, True)
)
