"""A disk that loses data for a while, like a storage network that loses and regains a path.

Only blocks that begin with :data:`MARK` are refused. So data is lost while metadata, the journal
and the object log are written: the case in which a file system continues without an error.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from integration.harness import fuse_block

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

MIB = 1 << 20
BLOCK = 4096
#: First bytes of each data block that such a disk may lose.
MARK = b"DRAYLOST"
#: File systems and their mount options, by name.
KINDS = {
    "ext4-ordered": ("ext4", "data=ordered"),
    "ext4-writeback": ("ext4", "data=writeback"),
    "ext4-journal": ("ext4", "data=journal"),
    "xfs": ("xfs", ""),
}


def make_marked(path: Path, size: int, seed: int) -> None:
    """Make a file in which each block begins with :data:`MARK`."""
    draw = random.Random(seed)
    with path.open("wb") as file:
        for _ in range(-(-size // BLOCK)):
            file.write(MARK + draw.randbytes(BLOCK - len(MARK)))
        file.truncate(size)


class Lossy:
    """A mounted file system whose disk can lose data on demand."""

    def __init__(self, disk: fuse_block.FaultyDisk) -> None:
        """Start with a disk that loses nothing."""
        self.disk = disk
        #: Number of refused writes.
        self.lost = 0
        self._loses = False
        disk.block.on_write = self._write

    @property
    def top(self) -> Path:
        """The mount point."""
        return self.disk.at

    def fail(self) -> None:
        """Lose data from now on."""
        self._loses = True

    def recover(self) -> None:
        """Lose no more data."""
        self._loses = False

    def write_back(self) -> None:
        """Write back dirty pages, as the kernel does by itself under load.

        The function does not report an error: the next sync of the affected file reports it.
        """
        libc = ctypes.CDLL(None, use_errno=True)
        folder = os.open(self.top, os.O_RDONLY | os.O_DIRECTORY)
        try:
            libc.syncfs(folder)
        finally:
            os.close(folder)

    def await_partial(self, seconds: float = 30.0) -> None:
        """Wait until a file is being written, or has been written."""
        until = time.monotonic() + seconds
        while not self._has_files():
            assert time.monotonic() < until, f"nothing was written within {seconds} s"
            time.sleep(0.01)

    def _has_files(self) -> bool:
        return any(
            name.endswith(".part") or not name.startswith(".dray-")
            for folder, _, names in os.walk(self.top)
            if ".dray-log" not in folder
            for name in names
        )

    def swallow(self) -> None:
        """Sync each partial file and ignore the error, which no later sync reports again."""
        for partial in self.top.rglob(".dray-*.part"):
            with contextlib.suppress(OSError), partial.open("rb") as file:
                os.fsync(file.fileno())

    def remount(self) -> None:
        """Remount the file system, so that the page cache has no data that the disk lacks."""
        self.disk.remount()

    def is_read_only(self) -> bool:
        """Return whether the write or the sync of a small file fails, as on a read-only mount."""
        probe = self.top / "probe"
        try:
            probe.write_bytes(b"probe")
            with probe.open("rb") as file:
                os.fsync(file.fileno())
            probe.unlink()
        except OSError:
            return True
        return False

    def _write(self, _offset: int, data: bytes) -> None:
        if self._loses and any(data.startswith(MARK, at) for at in range(0, len(data), BLOCK)):
            self.lost += 1
            raise OSError(errno.EIO, "lost by the test")


@contextlib.contextmanager
def lossy(folder: Path, name: str) -> Iterator[Lossy]:
    """Make a file system on a lossy disk in ``folder``. ``name`` is a key of :data:`KINDS`."""
    kind, options = KINDS[name]
    size = fuse_block.XFS_BYTES_MIN if kind == "xfs" else 160 * MIB
    words = [options] if options else []
    with fuse_block.faulty_disk(folder, kind, size, words) as disk:
        yield Lossy(disk)


@dataclass(frozen=True)
class Moment:
    """The start and duration of a disk failure during a copy, and the events during the failure."""

    durability: str
    #: Start of the failure, in seconds after the copy has started to write.
    begins: float
    #: Minimum seconds of the failure.
    lasts: float
    #: True if the sink is killed while the disk fails.
    kills: bool
    #: True if the kernel writes back while the disk fails.
    writes_back: bool
    #: True if this module syncs the partial file and ignores the error. This has the effect of a
    #: run that gets the error of a sync and is killed before it can record the error.
    is_swallowed: bool
    #: True if the disk also fails in a second run.
    is_met_again: bool

    @classmethod
    def draw(cls, chance: random.Random) -> Moment:
        """Draw a random moment."""
        kills = chance.random() < 0.5
        return cls(
            durability=chance.choice(["file", "object"]),
            begins=chance.uniform(0.0, 2.0),
            lasts=chance.uniform(0.05, 1.5),
            kills=kills,
            writes_back=chance.random() < 0.7,
            is_swallowed=kills and chance.random() < 0.3,
            is_met_again=chance.random() < 0.3,
        )

    def let_fail(self, volume: Lossy, kill: Callable[[], None]) -> None:
        """Let the disk fail, for at least ``lasts`` seconds. The disk still fails after the return.

        :param kill: function that kills the sink
        """
        volume.await_partial()
        time.sleep(self.begins)
        volume.fail()
        time.sleep(self.lasts)
        if self.kills:
            kill()
        if self.writes_back:
            volume.write_back()
        if self.is_swallowed:
            volume.swallow()


@dataclass
class Tally:
    """Counts of the results of a test's rounds."""

    name: str
    rounds: int = 0
    #: Number of rounds in which the disk refused a write. Other rounds prove nothing.
    hit: int = 0
    killed: int = 0
    remounted: int = 0
    #: Rounds with wrong bytes.
    wrong: list[str] = field(default_factory=list)
    #: Files that dray left behind, with their rounds.
    left: list[str] = field(default_factory=list)

    def add(self, moment: Moment, lost: int, *, is_wrong: bool, left: Sequence[str]) -> None:
        """Count a round, and print its result."""
        self.rounds += 1
        self.hit += lost > 0
        self.killed += moment.kills
        how = "WRONG BYTES" if is_wrong else "right bytes"
        print(f"{self.name} {self.rounds}: {lost} writes lost, {how}, {moment}", flush=True)
        said = f"round {self.rounds}, {moment}"
        self.wrong += [f"{said}: wrong bytes"] if is_wrong else []
        self.left += [f"{said}: {left} left"] if left else []

    def check(self) -> None:
        """Print the counts. Fail if bytes were wrong, or if no round had a lost write."""
        print(
            f"rounds of {self.name}: {self.rounds}, with lost writes {self.hit}, "
            f"killed {self.killed}, remounted read-only {self.remounted}, "
            f"wrong {len(self.wrong)}, with files left {len(self.left)}",
            *self.wrong,
            *self.left,
            sep="\n",
            flush=True,
        )
        assert self.wrong == []
        assert self.left == []
        assert self.hit > 0 or self.rounds < 10, "the disk never failed"
