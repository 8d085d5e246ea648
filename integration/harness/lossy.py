"""A disk that loses data for a while, as a storage network that loses a path and finds it again.

Only blocks that begin with :data:`MARK` are refused. So data is lost while metadata, the journal
and the object log arrive: the case in which a file system goes on as if nothing had happened.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
from typing import TYPE_CHECKING

from integration.harness import fuse_block

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MIB = 1 << 20
BLOCK = 4096
#: how each block of the data begins that such a disk may lose
MARK = b"DRAYLOST"
#: file systems, and how they are mounted
KINDS = {
    "ext4-ordered": ("ext4", "data=ordered"),
    "ext4-writeback": ("ext4", "data=writeback"),
    "ext4-journal": ("ext4", "data=journal"),
    "xfs": ("xfs", ""),
}


def make_marked(path: Path, size: int, seed: int) -> None:
    """Make a file whose every block begins with the mark."""
    draw = random.Random(seed)
    with path.open("wb") as file:
        for _ in range(-(-size // BLOCK)):
            file.write(MARK + draw.randbytes(BLOCK - len(MARK)))
        file.truncate(size)


class Lossy:
    """A mounted file system whose disk can be told to lose data."""

    def __init__(self, disk: fuse_block.FaultyDisk) -> None:
        """Begin with a disk that loses nothing."""
        self.disk = disk
        #: writes that were refused
        self.lost = 0
        self._loses = False
        disk.block.on_write = self._write

    @property
    def top(self) -> Path:
        """Name the folder it is mounted at."""
        return self.disk.at

    def fail(self) -> None:
        """Lose data from now on."""
        self._loses = True

    def recover(self) -> None:
        """Lose nothing more."""
        self._loses = False

    def remount(self) -> None:
        """Let the kernel forget everything that is not on the disk."""
        self.disk.remount()

    def is_read_only(self) -> bool:
        """Say whether the file system has given up, as one does that cannot write its journal."""
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
    """Give a file system by its name in :data:`KINDS`; ``folder`` is made for it."""
    kind, options = KINDS[name]
    size = fuse_block.XFS_BYTES_MIN if kind == "xfs" else 160 * MIB
    words = [options] if options else []
    with fuse_block.faulty_disk(folder, kind, size, words) as disk:
        yield Lossy(disk)
