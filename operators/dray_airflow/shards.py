"""Divide a dataset into parts of about equal cost for mapped tasks. Pure.

:func:`plan_shards` divides the groups of :func:`group_files` into parts for
``DrayTransferOperator.partial(...).expand_kwargs(...)``. A part needs only a few patterns, however
many files it has. The caller lists the files, because this module reads no storage. An endpoint
does not report the storage target of a file. If the caller knows the targets, the bytes on each
target are divided evenly too. The cost of a part grows with its bytes and with its number of files.

Invariant owned here: every file is in exactly one shard. The same files give the same shards, in
any order, so that a retried task gets the same part.
"""

from __future__ import annotations

import heapq
import itertools
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["FILE_COST_BYTES", "PATTERNS_MAX", "Shard", "ShardFile", "group_files", "plan_shards"]

FILE_COST_BYTES = 1 << 20
"""Cost of a file in addition to its size, in bytes.

Opening, naming and syncing a file takes about as long as moving one object. The value is
estimated. Measurements with small files should replace the estimate.
"""

SHARDS_MAX = 1000
"""Maximum number of shards. Airflow allows 1024 instances of a task by default.

Airflow's limit is ``[core] max_map_length``.
"""

PATTERNS_MAX = 256
"""Maximum number of patterns of a transfer (docs/reference/api.md)."""

PATTERN_BYTES_MAX = 1_024
"""Maximum number of bytes of one pattern."""

PATTERNS_BYTES_MAX = 48 << 10
"""Maximum number of bytes of all patterns together. A whole request has at most 64 KiB."""

GROUPS_PER_SHARD = 64
"""Maximum average number of groups per shard.

It is far below the limit of 256 patterns, so that a shard with small groups may have more.
"""

FINENESS = 16
"""A group of less than 1/16 of a shard is not split.

So the sizes of shards differ by about 1/16.
"""


@dataclass(frozen=True, slots=True, order=True)
class ShardFile:
    """A file of the dataset, or a group of files that stay together.

    :param path: path relative to the top of the dataset. For a group, its pattern.
    :param size: size in bytes.
    :param target: storage target, if known.
    :param files: number of files.
    """

    path: str
    size: int
    target: str = ""
    files: int = 1


@dataclass(frozen=True, slots=True)
class Shard:
    """A part of the dataset.

    :param index: number of the part, from 0.
    :param files: the files, ordered by path.
    """

    index: int
    files: tuple[ShardFile, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths relative to the top of the dataset. For groups, their patterns."""
        return tuple(file.path for file in self.files)

    @property
    def bytes(self) -> int:
        """Total size in bytes, for the ``bytes_expected`` of a transfer."""
        return sum(file.size for file in self.files)

    @property
    def targets(self) -> dict[str, int]:
        """Bytes on each storage target."""
        found: Counter[str] = Counter()
        for file in self.files:
            found[file.target] += file.size
        return dict(sorted(found.items()))


def plan_shards(
    files: Iterable[ShardFile | tuple[str, int] | tuple[str, int, str]],
    shards: int,
    *,
    file_cost_bytes: int = FILE_COST_BYTES,
    paths_max: int | None = None,
) -> tuple[Shard, ...]:
    """Divide a dataset evenly.

    The cost of a file is its number of bytes plus ``file_cost_bytes``. Files are assigned in the
    order of decreasing cost. The candidates for a file are the shards whose cost exceeds the lowest
    cost of a shard by no more than the cost of the file. The candidate with the least cost of files
    of the same storage target is chosen. Files without a target count as files of one target. So no
    shard costs more than the cheapest shard plus twice the cost of the costliest file, unless a
    shard has reached ``paths_max``.

    :param files: each file once: a :class:`ShardFile`, or path, bytes and, if known, storage
        target. Or the result of :func:`group_files`.
    :param shards: number of shards, 1 to 1000. The result never has more shards than files.
    :param file_cost_bytes: cost of a file in addition to its bytes.
    :param paths_max: maximum number of paths in a shard. If it is given, the paths of a shard also
        have at most 48 KiB together. By default there is no limit. Use ``PATTERNS_MAX`` if the
        paths become the argument ``include`` of a transfer.
    :returns: the non-empty shards by number. Empty if there are no files.
    :raises ValueError: for a duplicate path, a negative size, an invalid number of shards, or more
        paths than these shards may have.
    """
    if not 1 <= shards <= SHARDS_MAX:
        raise ValueError(f"{shards} shards: the number must be 1 to {SHARDS_MAX}")
    all_files = [file if isinstance(file, ShardFile) else ShardFile(*file) for file in files]
    seen: set[str] = set()
    for file in all_files:
        if file.size < 0:
            raise ValueError(f"{file.path} has a negative size: {file.size} bytes")
        if file.path in seen:
            raise ValueError(f"{file.path} is listed twice")
        seen.add(file.path)
    count = min(shards, len(all_files))
    if not count:
        return ()
    parts: list[list[ShardFile]] = [[] for _ in range(count)]
    costs = [0] * count
    texts = [0] * count
    of_target: dict[str, list[int]] = {}

    def cost_of(file: ShardFile) -> int:
        return file.size + file.files * file_cost_bytes

    order = [(-cost_of(file), -file.size, file.target, file.path, file) for file in all_files]
    for _, _, _, _, file in sorted(order):
        cost, text = cost_of(file), len(file.path.encode()) + 4
        with_room = [
            each
            for each in range(count)
            if paths_max is None
            or (len(parts[each]) < paths_max and texts[each] + text <= PATTERNS_BYTES_MAX)
        ]
        if not with_room:
            raise ValueError(f"{len(all_files)} paths are too many for {count} shards")
        limit = min(costs[each] for each in with_room) + cost
        here = of_target.setdefault(file.target, [0] * count)
        index = min(
            (each for each in with_room if costs[each] <= limit),
            key=lambda each: (here[each], costs[each], each),
        )
        parts[index].append(file)
        texts[index] += text
        costs[index] += cost
        here[index] += cost
    held = [part for part in parts if part]
    return tuple(
        Shard(index, tuple(sorted(part, key=lambda each: each.path)))
        for index, part in enumerate(held)
    )


# --- groups ---------------------------------------------------------------------------------------


class _File(NamedTuple):
    #: Names of the file's folders, and its own name.
    names: tuple[str, ...]
    size: int


class _Group(NamedTuple):
    """Files that one pattern matches. The pattern matches no other file of the dataset.

    :param folder: common folder of the files.
    :param prefix: common start of the names directly in the folder. ``None`` means everything below
        the folder.
    :param is_deep: true if the names with the prefix are folders, whose contents are included.
        False if they are files.
    """

    folder: tuple[str, ...]
    prefix: str | None
    is_deep: bool
    files: list[_File]

    @property
    def pattern(self) -> str:
        """Pattern of the group, with a leading slash, so that it is compared with whole paths."""
        top = "".join(f"/{_escape(name)}" for name in self.folder)
        if self.prefix is None:
            return f"{top}/**"
        if not self.is_deep and len(self.files) == 1 and _is_text(self.files[0].names[-1]):
            return f"{top}/{_escape(self.files[0].names[-1])}"
        return f"{top}/{_escape(self.prefix)}*" + ("/**" if self.is_deep else "")

    def split(self) -> list[_Group]:
        """Split the group. If it cannot be split, return a list with only this group."""
        depth = len(self.folder)
        if self.prefix is None:
            files = [each for each in self.files if len(each.names) == depth + 1]
            deep = [each for each in self.files if len(each.names) > depth + 1]
            halves = [(False, files), (True, deep)]
            return [_Group(self.folder, "", is_deep, half) for is_deep, half in halves if half]
        names = sorted({each.names[depth] for each in self.files})
        if len(names) == 1:
            name = names[0]
            if self.is_deep and _is_text(name):
                return [_Group((*self.folder, name), None, True, self.files)]
            return [self]
        # The names are sorted, so all names share the common prefix of the first and the last name.
        letters = zip(names[0], names[-1], strict=False)
        at = sum(1 for _ in itertools.takewhile(lambda two: two[0] == two[1], letters))
        prefix = names[0][:at]
        if not _is_text(prefix + "".join(name[at : at + 1] for name in names)):
            return [self]
        parts: defaultdict[str, list[_File]] = defaultdict(list)
        for each in self.files:
            parts[each.names[depth][at : at + 1]].append(each)
        found = []
        for letter, part in sorted(parts.items()):
            if letter:
                found.append(_Group(self.folder, prefix + letter, self.is_deep, part))
            elif self.is_deep:
                found.append(_Group((*self.folder, prefix), None, True, part))
            else:
                # This group has one file. The name of the file is the prefix of the other names.
                found.append(_Group(self.folder, prefix, False, part))
        return found


def _read(name: str) -> str:
    """Convert an escaped name from a listing of the endpoint to the name on disk."""
    if "\\" not in name:
        return name
    raw = re.sub(
        rb"\\(?:\\|x([0-9a-f]{2}))",
        lambda found: bytes.fromhex(found[1].decode()) if found[1] else b"\\",
        name.encode(),
    )
    return raw.decode("utf-8", "surrogateescape")


def _is_text(name: str) -> bool:
    """Return true if a pattern, which is text, can express the name."""
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


def _escape(name: str) -> str:
    """Escape the characters that have a meaning in patterns."""
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", name)


def group_files(
    files: Iterable[tuple[str, int]],
    shards: int,
    *,
    file_cost_bytes: int = FILE_COST_BYTES,
) -> tuple[ShardFile, ...]:
    """Divide files into groups by folders and by name prefixes, until the groups are small enough.

    The costliest group is split first. A folder is split into its files and its subfolders. Files
    and subfolders are then split by the first letters of their names. So a few patterns match any
    number of files, and each file matches only one pattern. Names may have any characters. But a
    name that is not UTF-8 cannot be in a pattern, so its file stays in the group of its prefix.

    :param files: each file once: its path as the endpoint lists it, and its bytes. The path is
        relative to the root of the patterns. For a source without a slash at its end, the path
        starts with the name of the source.
    :param shards: number of shards, 1 to 1000. The result has at most 64 groups for each shard.
    :param file_cost_bytes: cost of a file in addition to its bytes.
    :returns: groups whose ``path`` is a pattern for ``include``, as input of :func:`plan_shards`.
    :raises ValueError: for a duplicate path.
    """
    all_files = [
        _File(tuple(_read(name) for name in path.split("/")), size) for path, size in files
    ]
    if not all_files:
        return ()
    if len({each.names for each in all_files}) < len(all_files):
        raise ValueError("a file is listed twice")

    def cost(group: _Group) -> int:
        return sum(each.size for each in group.files) + len(group.files) * file_cost_bytes

    def entry(group: _Group) -> tuple[int, str, _Group]:
        return -cost(group), group.pattern, group

    whole = _Group((), None, True, all_files)
    small = cost(whole) // (shards * FINENESS)
    heap = [entry(whole)]
    kept: list[tuple[int, str, _Group]] = []
    while heap:
        found = heapq.heappop(heap)
        parts = found[2].split() if -found[0] > small and len(found[2].files) > 1 else []
        is_kept = (
            not parts
            or parts == [found[2]]
            or len(heap) + len(kept) + len(parts) > shards * GROUPS_PER_SHARD
            or any(len(part.pattern.encode()) > PATTERN_BYTES_MAX for part in parts)
        )
        if is_kept:
            kept.append(found)
        else:
            for part in parts:
                heapq.heappush(heap, entry(part))
    return tuple(
        ShardFile(pattern, sum(each.size for each in group.files), files=len(group.files))
        for _, pattern, group in sorted(kept, key=lambda each: each[1])
    )
