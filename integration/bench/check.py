"""Compare the copy with the source: every file's content, by SHA-256."""

from __future__ import annotations

import hashlib
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from integration.harness import tree

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

#: Number of threads. More threads than processors do not help.
THREADS = os.cpu_count() or 1
#: The main thread reads files below this size itself. Handing such a file to another thread would
#: take longer than reading the file.
SMALL_BYTES = 64 << 10


@dataclass(frozen=True)
class Content:
    """The contents of a folder: the hash of each file, and the target of each symbolic link."""

    files: dict[bytes, bytes]
    links: dict[bytes, bytes]
    #: For each link to a file: the hash of that file.
    behind: dict[bytes, bytes]
    #: Files whose inode has more than one name.
    linked: frozenset[bytes]

    @staticmethod
    def of(top: Path) -> Content:
        """Read all files and links of a folder, and each inode only once."""
        base = os.fsencode(top)
        # Store only this much for each file, because there may be a million files.
        inodes: dict[bytes, int] = {}
        first: dict[int, bytes] = {}
        large: list[int] = []
        small: list[int] = []
        links: set[bytes] = set()
        linked: set[bytes] = set()
        for path, state in tree.walk(base):
            if stat.S_ISLNK(state.st_mode):
                links.add(path)
            elif stat.S_ISREG(state.st_mode):
                inodes[path] = state.st_ino
                if state.st_nlink > 1:
                    linked.add(path)
                if first.setdefault(state.st_ino, path) is path:
                    (large if state.st_size > SMALL_BYTES else small).append(state.st_ino)
        hashes = {inode: _hash_small(os.path.join(base, first[inode])) for inode in small}
        paths = [os.path.join(base, first[inode]) for inode in large]
        with ThreadPoolExecutor(THREADS) as threads:
            hashes |= dict(zip(large, threads.map(tree.hash_file, paths), strict=True))
        behind = {}
        for path in links:
            whole = os.path.join(base, path)
            if os.path.isfile(whole):
                behind[path] = tree.hash_file(whole)
        return Content(
            files={path: hashes[inode] for path, inode in inodes.items()},
            links={path: os.readlink(os.path.join(base, path)) for path in links},
            behind=behind,
            linked=frozenset(linked),
        )


@dataclass(frozen=True)
class Verdict:
    """The result of a comparison of a copy with its source."""

    #: The fault. Empty if the copy is correct.
    fault: str
    #: Permitted omissions of the copy.
    notes: tuple[str, ...] = ()


def compare(wanted: Content, found: Content, *, hides_dots: bool, drops_links: bool) -> Verdict:
    """Compare a copy with its source.

    :param wanted: content of the source.
    :param found: content of the copy.
    :param hides_dots: the tool that copied may leave out names that begin with a dot.
    :param drops_links: the tool may follow symbolic links, or leave them out.
    """
    if found.linked:
        return Verdict(f"{len(found.linked)} files are hard links: not every file was copied")
    wrong = [path for path, sum in wanted.files.items() if found.files.get(path, sum) != sum]
    if wrong:
        return Verdict(f"{len(wrong)} files differ: {_some(wrong)}")
    notes = []
    missing = wanted.files.keys() - found.files.keys()
    hidden = {path for path in missing if _is_hidden(path)}
    if hidden and hides_dots:
        missing -= hidden
        notes.append(f"leaves out {len(hidden)} dot files")
    if missing and drops_links:
        strays = _under_links(wanted, found, missing)
        if strays:
            missing -= strays
            notes.append(f"puts {len(strays)} files under links to their folders only")
    if missing:
        return Verdict(f"{len(missing)} files are missing: {_some(missing)}")
    links = {path for path, to in wanted.links.items() if found.links.get(path) != to}
    if links and not drops_links:
        return Verdict(f"{len(links)} links are missing: {_some(links)}")
    extra = found.files.keys() - wanted.files.keys()
    followed = {path for path in extra if found.files[path] == wanted.behind.get(path)}
    # A followed link to a folder copies the folder's files a second time.
    below = {path for path in extra - followed if any(_is_below(path, link) for link in links)}
    if followed or below:
        notes.append(f"follows links: {len(followed | below)} files more")
    elif links:
        notes.append("leaves out links")
    strange = extra - followed - below
    if strange:
        return Verdict(f"{len(strange)} files nobody sent: {_some(strange)}")
    return Verdict("", tuple(notes))


def _under_links(wanted: Content, found: Content, missing: set[bytes]) -> set[bytes]:
    """Find missing files that were copied only through a link to their folder.

    GridFTP's client follows links, and copies a folder once, by the first path to it.
    """
    strays = set()
    for link, target in wanted.links.items():
        folder = os.path.normpath(os.path.join(os.path.dirname(link), target))
        for path in missing:
            if _is_below(path, folder):
                there = link + path[len(folder) :]
                if found.files.get(there) == wanted.files[path]:
                    strays.add(path)
    return strays


def _hash_small(path: bytes) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return hashlib.sha256(file.readall()).digest()


def _is_hidden(path: bytes) -> bool:
    return any(part.startswith(b".") for part in path.split(b"/"))


def _is_below(path: bytes, folder: bytes) -> bool:
    return path.startswith(folder + b"/")


def _some(paths: Iterable[bytes]) -> str:
    return ", ".join(os.fsdecode(path) for path in sorted(paths)[:3])
