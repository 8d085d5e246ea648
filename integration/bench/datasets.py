"""Makes the data sets: one large file, large files, a source tree, or many files of one size."""

from __future__ import annotations

import os
import stat
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from integration.harness import tree

if TYPE_CHECKING:
    from collections.abc import Callable

LINUX = Path("/usr/src/linux-source-6.1.tar.xz")
#: Total size of the files of the Linux sources in bytes.
LINUX_BYTES = 1_298_681_992
#: Number and mean size in bytes of the small files: 554 MB in total, as mdtmFTP's authors used.
SMALL_FILES, SMALL_MEAN_BYTES = 50_000, 11_080
#: A file of Linux's sources is left out if the N files selected so far and this file are together
#: larger than N + SLACK_FILES files of the mean size. Without this slack, large files would be left
#: out.
SLACK_FILES = 50
#: Exponents of ten: the numbers of almost empty files.
POWERS = (3, 4, 5, 6)
FOLDER_FILES = 1000
SIZES_GIB = (1, 4, 16)
#: Numbers of concurrent jobs. Each job has one file.
JOBS = (1, 2, 4, 8)
JOB_BYTES = 1 << 30
#: Memory of an almost empty file in bytes.
PAGE = 4096


@dataclass(frozen=True)
class Data:
    """One data set, and the folder that contains it."""

    name: str
    title: str
    path: Path
    files: int
    size: int

    @property
    def is_one_file(self) -> bool:
        """True if there is one file only."""
        return self.files == 1

    @property
    def room(self) -> int:
        """Bytes of memory that one copy of the data set takes."""
        return self.size + self.files * PAGE

    @property
    def workers(self) -> int:
        """Number of files that a tool copies concurrently if it has an option for this number."""
        return 4 if self.files < 1000 else 8


def _one(path: Path, scale: float) -> str:
    tree.make_file(path / "one.bin", round(4 * tree.GIB * scale), seed=1)
    return "one file"


def _large(path: Path, scale: float) -> str:
    _linked(path, 30, 6, round(200 * tree.MIB * scale))
    return "large files"


def _many(files: int) -> Callable[[Path, float], str]:
    def make(path: Path, scale: float) -> str:
        _linked(path, max(10, round(files * scale)), 10, tree.MIB)
        return "files of 1 MiB"

    return make


def _linked(path: Path, files: int, names: int, size: int) -> None:
    """Make files that share inodes as hard links, ``names`` files for each inode, to save memory.

    A tool must copy each file separately. The check at the destination verifies this.
    """
    for at in range(files):
        first = path / f"{at // names:04}-0.bin"
        if at % names == 0:
            tree.make_file(first, size, seed=at + 2)
        else:
            os.link(first, path / f"{at // names:04}-{at % names}.bin")


def _linux(path: Path, scale: float) -> str:
    """Unpack Linux's sources, or a part with the fraction ``scale`` of their bytes."""
    left = LINUX_BYTES * scale if scale < 1 else float("inf")
    with tarfile.open(LINUX, "r|xz") as archive:
        for member in archive:
            archive.extract(member, path, filter="tar")
            left -= member.size
            if left <= 0:
                break
    for link in path.rglob("*"):
        # A part of the tree has broken links. Some tools follow links, and fail at a broken link.
        if link.is_symlink() and not link.exists():
            link.unlink()
    return "Linux's sources"


def _few(path: Path, scale: float) -> str:
    tree.make_file(path / "one.bin", round(2 * tree.GIB * scale), seed=1)
    return "one file"


def _small(path: Path, scale: float) -> str:
    """Unpack the first files of Linux's sources that keep the mean size of the set."""
    files, size = 0, 0
    wanted = round(SMALL_FILES * scale)
    with tarfile.open(LINUX, "r|xz") as archive:
        for member in archive:
            if files == wanted:
                break
            if member.isreg() and size + member.size <= (files + SLACK_FILES) * SMALL_MEAN_BYTES:
                archive.extract(member, path, filter="tar")
                files += 1
                size += member.size
    return "files of Linux's sources"


def _almost_empty(files: int) -> Callable[[Path, float], str]:
    def make(path: Path, scale: float) -> str:
        for at in range(max(1, round(files * scale))):
            folder = path / f"{at // FOLDER_FILES:04}"
            if at % FOLDER_FILES == 0:
                folder.mkdir()
            (folder / f"{at % FOLDER_FILES:03}").write_bytes(at.to_bytes(8, "little"))
        return "files of 8 bytes"

    return make


def _of_size(gib: int) -> Callable[[Path, float], str]:
    def make(path: Path, scale: float) -> str:
        tree.make_file(path / "one.bin", round(gib * tree.GIB * scale), seed=gib)
        return "one file"

    return make


def _jobs(jobs: int) -> Callable[[Path, float], str]:
    def make(path: Path, scale: float) -> str:
        for at in range(jobs):
            (path / f"job{at}").mkdir()
            file = path / f"job{at}" / "one.bin"
            if at == 0:
                tree.make_file(file, round(JOB_BYTES * scale), seed=1)
            else:
                # A hard link saves memory.
                os.link(path / "job0" / "one.bin", file)
        return "a file for each job"

    return make


MAKERS: dict[str, Callable[[Path, float], str]] = {
    "a": _one,
    "b": _large,
    "c": _linux,
    "d": _many(5000),
    "h": _many(100),
    "w": _few,
    "l": _small,
    **{f"f{power}": _almost_empty(10**power) for power in POWERS},
    **{f"g{gib}": _of_size(gib) for gib in SIZES_GIB},
    **{f"j{jobs}": _jobs(jobs) for jobs in JOBS},
}


#: Sets for the comparison on the loopback. Other parts of the benchmark use the other sets.
USUAL = ("a", "b", "c", "d")
LINUX_SETS = ("c", "l")
#: Bytes that the source and one copy take together, by set.
ROOM = {
    "a": 8 * tree.GIB,
    "b": 7 * tree.GIB,
    "c": 3 * tree.GIB,
    "d": 6 * tree.GIB,
    "h": tree.GIB // 4,
    "w": 4 * tree.GIB,
    "l": 2 * tree.GIB,
    # A page, and 1500 bytes of the kernel's memory for a name and an inode.
    **{f"f{power}": 2 * 10**power * (PAGE + 1500) for power in POWERS},
    **{f"g{gib}": 2 * gib * tree.GIB for gib in SIZES_GIB},
    **{f"j{jobs}": (1 + jobs) * JOB_BYTES for jobs in JOBS},
}


def missing(name: str, scale: float, memory: int) -> str:
    """Return why a data set cannot be made, or an empty text if it can.

    :param memory: available bytes
    """
    if name in LINUX_SETS and not LINUX.exists():
        return f"no {LINUX}: apt-get install linux-source-6.1"
    room = round(ROOM[name] * min(scale, 1.0 if name in LINUX_SETS else scale))
    if room > memory:
        return f"it takes {room >> 20} MiB of memory, and {memory >> 20} are free: --scale"
    return ""


def make(place: Path, name: str, scale: float) -> Data:
    """Make a data set, readable for all users: some servers do not run as root.

    :param scale: fraction of the data set to make. 1.0 means the whole data set.
    """
    path = place / name
    path.mkdir()
    title = MAKERS[name](path, scale)
    files = size = 0
    path.chmod(0o755)
    for below, state in tree.walk(os.fsencode(path)):
        if stat.S_ISLNK(state.st_mode):
            continue
        is_folder = stat.S_ISDIR(state.st_mode)
        wanted = stat.S_IMODE(state.st_mode) | (0o755 if is_folder else 0o644)
        os.chmod(os.path.join(os.fsencode(path), below), wanted)
        if not is_folder:
            files += 1
            size += state.st_size
    mib = size / tree.MIB
    words = f"{title}: {files} file{'s' if files != 1 else ''}, {mib:.0f} MiB"
    return Data(name, words, path, files, size)
