"""Trees: generated from a seed, described independently of dray, compared with names as bytes."""

from __future__ import annotations

import errno
import hashlib
import os
import random
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MIB = 1 << 20
GIB = 1 << 30
#: Prefix of the names of dray's partial files and log folders.
OWN = b".dray-"


@dataclass(frozen=True)
class Entry:
    """One entry of a tree."""

    kind: str
    mode: int
    mtime_ns: int
    #: Size of a file in bytes.
    size: int = 0
    #: SHA-256 of a file, or target of a link.
    content: bytes = b""


def hash_file(path: bytes | Path) -> bytes:
    """Return the SHA-256 of a file."""
    total = hashlib.sha256()
    block = memoryview(bytearray(MIB))
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(block):
            total.update(block[:count])
    return total.digest()


def walk(top: bytes) -> Iterator[tuple[bytes, os.stat_result]]:
    """Yield every entry below ``top`` that is not dray's own, by its relative path."""
    waiting = [b""]
    while waiting:
        folder = waiting.pop()
        try:
            found = list(os.scandir(os.path.join(top, folder)))
        except FileNotFoundError:
            continue
        for entry in found:
            if entry.name.startswith(OWN):
                continue
            try:
                state = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            path = os.path.join(folder, entry.name)
            yield path, state
            if stat.S_ISDIR(state.st_mode):
                waiting.append(path)


def hole_bytes(path: str | bytes | Path) -> int:
    """Return the total size of the holes that the file system reports for a file, in bytes."""
    holes = 0
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        at = 0
        while at < size:
            start = os.lseek(file.fileno(), at, os.SEEK_HOLE)
            try:
                at = os.lseek(file.fileno(), start, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                at = size
            holes += at - start
    return holes


def describe(top: Path) -> dict[bytes, Entry]:
    """Describe a tree: each entry's kind, mode, time, and content. The top itself is ``b""``."""
    base = os.fsencode(top)
    state = os.lstat(base)
    found = {b"": Entry("directory", stat.S_IMODE(state.st_mode), state.st_mtime_ns)}
    if not stat.S_ISDIR(state.st_mode):
        return {b"": _entry(base, state)}
    for path, state in walk(base):
        found[path] = _entry(os.path.join(base, path), state)
    return found


def _entry(path: bytes, state: os.stat_result) -> Entry:
    mode, mtime = stat.S_IMODE(state.st_mode), state.st_mtime_ns
    if stat.S_ISLNK(state.st_mode):
        # Linux ignores the mode of a link.
        return Entry("link", 0, mtime, 0, os.readlink(path))
    if stat.S_ISDIR(state.st_mode):
        return Entry("directory", mode, mtime)
    if stat.S_ISREG(state.st_mode):
        return Entry("file", mode, mtime, state.st_size, hash_file(path))
    return Entry("other", mode, mtime)


def differences(wanted: dict[bytes, Entry], found: dict[bytes, Entry]) -> list[str]:
    """Return the differences of two descriptions, at most 20 lines."""
    lines = [f"missing: {path!r}" for path in wanted.keys() - found.keys()]
    lines += [f"not asked for: {path!r}" for path in found.keys() - wanted.keys()]
    lines += [
        f"{path!r}: wanted {wanted[path]}, found {found[path]}"
        for path in wanted.keys() & found.keys()
        if wanted[path] != found[path]
    ]
    return sorted(lines)[:20]


def assert_same(wanted: dict[bytes, Entry], top: Path) -> None:
    """Fail unless the tree at ``top`` matches the description and has no files of dray."""
    assert differences(wanted, describe(top)) == []


def leftovers(top: Path) -> list[str]:
    """List dray's own files and folders below a folder."""
    return sorted(
        os.path.join(folder, name)
        for folder, folders, files in os.walk(top)
        for name in [*folders, *files]
        if name.startswith(os.fsdecode(OWN))
    )


def make_file(path: Path, size: int, seed: int) -> None:
    """Write ``size`` random bytes, which do not compress."""
    chance = random.Random(seed)
    with path.open("wb") as file:
        left = size
        while left > 0:
            piece = chance.randbytes(min(left, MIB))
            file.write(piece)
            left -= len(piece)


def make_tree(top: Path, files: int, seed: int) -> None:
    """Make a tree like an unpacked source tree: many folders, mostly small files, odd names.

    The file sizes are similar to those in Linux's source tree: the median is 5 KiB, and some files
    are larger than one object.
    """
    chance = random.Random(seed)
    top.mkdir(parents=True)
    pool = chance.randbytes(4 * MIB)
    folders = [top]
    for index in range(max(4, files // 16)):
        folder = chance.choice(folders[-64:]) / f"folder{index:05}"
        folder.mkdir()
        folders.append(folder)
    for index in range(files):
        size = min(int(chance.lognormvariate(8.6, 1.3)), 3 * MIB)
        if index % 50 == 0:
            size = 0
        start = chance.randrange(len(pool) - size)
        path = chance.choice(folders) / f"file{index:06}.c"
        path.write_bytes(pool[start : start + size])
        path.chmod(chance.choice((0o644, 0o600, 0o755, 0o444)))
        times = chance.randrange(1, 2**31) * 10**9 + chance.randrange(10**9)
        os.utime(path, ns=(times, times))
    odd = os.fsencode(folders[1])
    for name in (b"not-utf8-\xff\xfe\x80", b"n" * 255, b"back\\slash", b"new\nline", b"-r", b" "):
        with open(os.path.join(odd, name), "wb") as file:
            file.write(name)
    # Make files with holes that are smaller, and one that is larger, than an object.
    for hole_name, size, places in (
        ("hole", 300_000, ()),
        ("holes", 700_001, (0, 350_000)),
        ("large-holes", 5 * MIB + 1, (MIB, 5 * MIB - 9)),
    ):
        with (top / hole_name).open("wb") as file:
            file.truncate(size)
            for place in places:
                file.seek(place)
                file.write(pool[:20_000])
            file.truncate(size)
    (top / "a-link").symlink_to("folder00000")
    (top / "a-broken-link").symlink_to("../nothing/there")
    os.symlink(b"\xff not utf-8", os.path.join(odd, b"odd-link"))
    deep = top
    for level in range(40):
        deep = deep / f"deep{level}"
    deep.mkdir(parents=True)
    (deep / "bottom").write_bytes(b"reached")
    (top / "empty").mkdir()
    # Set the times of folders last, the deepest folder first, because a new entry changes the
    # time of its folder.
    for folder in sorted(folders[1:], key=lambda path: -len(path.parts)):
        times = chance.randrange(1, 2**31) * 10**9 + chance.randrange(10**9)
        folder.chmod(chance.choice((0o755, 0o750, 0o700)))
        os.utime(folder, ns=(times, times))
