"""Records the writes of a copy to a disk, and how many bytes the copy reports as durable."""

from __future__ import annotations

import re
import shutil
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from integration.harness import fuse_block, tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from integration.harness.program import Bench, Ended, Process, Server, Word

SIZES = {"ext4": 96 << 20, "xfs": fuse_block.XFS_BYTES_MIN}
#: Mount options. ext4 writes its journal every second instead of every five seconds, so that the
#: content of the disk changes more often during a copy.
OPTIONS = {"ext4": ["commit=1"], "xfs": []}
OBJECT_BYTES = 256 << 10
#: Rate in bytes per second, so low that writes, syncs and the file system's own write-back overlap.
RATE = 6 * tree.MIB
LARGE_BYTES = 4 * tree.MIB + 777
COPY_SECONDS = 60.0
POLL_SECONDS = 0.002


class Write(NamedTuple):
    """A write that the device has executed."""

    offset: int
    data: bytes


class Claim(NamedTuple):
    """A report of the copy: the durable bytes, and the number of entries recorded before it."""

    entries: int
    bytes_durable: int


@dataclass(frozen=True)
class Way:
    """A way to copy to the disk."""

    #: Type of the file system: ``ext4`` or ``xfs``.
    kind: str = "ext4"
    durability: str = "file"
    #: True if a client pushes to ``dray serve`` on the disk. Otherwise one process copies.
    is_served: bool = False

    def __str__(self) -> str:
        """Return the name of the way."""
        return f"{self.kind}-{self.durability}-{'serve' if self.is_served else 'cp'}"


@dataclass
class Recording:
    """The operations of the device during a copy, from a clean file system."""

    base: Path
    #: The writes in order, with None for each flush.
    entries: list[Write | None] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    #: Number of entries when the copy ended with exit code 0. None if it ended otherwise.
    ended: int | None = None

    def durable_at(self, point: int) -> int:
        """Return the bytes that had been reported as durable before entry ``point``."""
        return max((each.bytes_durable for each in self.claims if each.entries <= point), default=0)

    def flushes(self) -> list[int]:
        """Return the indices of the entries that are flushes."""
        return [index for index, entry in enumerate(self.entries) if entry is None]


@dataclass
class Data:
    """The tree to copy, and an older version of it for the destination."""

    folder: Path
    source: Path = field(init=False)
    older: Path = field(init=False)
    wanted: dict[bytes, tree.Entry] = field(init=False)
    allowed: dict[bytes, set[tuple[int, bytes]]] = field(init=False)
    size: int = field(init=False)

    def __post_init__(self) -> None:
        """Make the tree and its older version."""
        self.source, self.older = self.folder / "tree", self.folder / "older"
        _make(self.source, seed=1, files=30)
        _make(self.older, seed=2, files=10)
        self.wanted = tree.describe(self.source)
        self.size = sum(entry.size for entry in self.wanted.values())
        self.allowed = {}
        for described in (self.wanted, tree.describe(self.older)):
            for path, entry in described.items():
                self.allowed.setdefault(path, set()).add((entry.size, entry.content))


def _make(top: Path, seed: int, files: int) -> None:
    for name in ("a", "b", "m"):
        (top / name).mkdir(parents=True)
    for number in range(files):
        where = top / "ab"[number % 2] / f"small{number:02}"
        tree.make_file(where, 700 * number + 13, seed=100 * seed + number)
    for number in range(3):
        size = LARGE_BYTES // (number + 1)
        tree.make_file(top / "m" / f"large{number}", size, seed=1000 * seed + number)
    (top / "link").symlink_to(f"m/large{seed}")


class Copier:
    """Runs the copy of ``data`` into ``tree`` on a disk. All runs use the same command."""

    def __init__(self, bench: Bench, data: Data, way: Way) -> None:
        """Store the arguments. No process runs yet."""
        self.bench, self.data, self.way = bench, data, way
        self.server: Server | None = None
        self.listen = "127.0.0.1:0"

    def start(self, at: Path, *words: Word) -> Process:
        """Start the copy into the file system that is mounted at ``at``."""
        into: Word = f"{at}/"
        if self.way.is_served:
            self.server = self.bench.serve(at, listen=self.listen)
            # Use the same address for each server, because all runs must use the same command.
            self.listen = self.server.address
            into = f"dray://{self.server.address}/"
            words = (*words, *self.bench.peer(self.server), "--retries", "0")
        more: list[Word] = ["--durability", self.way.durability]
        more += ["--object-size", str(OBJECT_BYTES), *words]
        return self.bench.start_cp("-r", self.data.source, into, *more)

    def stop(self) -> None:
        """Kill the running processes, as a power loss would."""
        if self.server is not None:
            self.server.kill()
            self.server = None

    def rerun(self, at: Path) -> Ended:
        """Run the copy to its end."""
        try:
            return self.start(at).wait(COPY_SECONDS)
        finally:
            self.stop()


def record(disk: fuse_block.FaultyDisk, folder: Path, copier: Copier) -> Recording:
    """Run the copy on a disk with an older version of the tree; record the disk's operations."""
    shutil.copytree(copier.data.older, disk.at / copier.data.source.name, symlinks=True)
    disk.unmount()
    base = folder / "base"
    fuse_block.copy_image(disk.image, base)
    recording = Recording(base)
    entries = recording.entries
    disk.block.on_write = lambda offset, data: entries.append(Write(offset, data))
    disk.block.on_flush = lambda: entries.append(None)
    disk.mount()
    process = copier.start(disk.at, "--progress", "json", "--rate", str(RATE))
    with Follower(process.log_path, recording):
        ended = process.wait(COPY_SECONDS)
    recording.ended = len(entries) if ended.code == 0 else None
    assert ended.code == 0, f"the recorded copy ended with {ended.code}: {ended.words}"
    copier.stop()
    # Later writes of the file system itself, and those at the unmount, are recorded too.
    disk.unmount()
    disk.block.on_write = disk.block.on_flush = None
    return recording


class Follower:
    """Reads the reports of durable bytes while a copy runs."""

    def __init__(self, path: Path, recording: Recording) -> None:
        """Follow the feed at ``path``."""
        self.path, self.recording = path, recording
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> None:
        """Start following."""
        self.thread.start()

    def __exit__(self, *_: object) -> None:
        """Read the remaining reports, and stop."""
        self.is_over.set()
        self.thread.join()

    def _follow(self) -> None:
        most = 0
        with self.path.open("r", encoding="utf-8", errors="replace") as file:
            while True:
                is_last = self.is_over.is_set()
                for line in _lines(file.readline):
                    match = re.search(r'"bytes_durable":(\d+)', line)
                    if match and int(match[1]) > most:
                        most = int(match[1])
                        # The report was read before the length of the recording. So the claim
                        # covers only writes that the recording contains.
                        self.recording.claims.append(Claim(len(self.recording.entries), most))
                if is_last:
                    return
                time.sleep(POLL_SECONDS)


def _lines(read: Callable[[], str]) -> Iterator[str]:
    while line := read():
        yield line
