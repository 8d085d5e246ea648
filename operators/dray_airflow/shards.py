"""A dataset in parts for mapped tasks: even in bytes, in files and over storage targets. Pure.

For: :func:`plan_shards`, whose parts go to ``DrayTransferOperator.partial(...).expand(...)``.
Not for: looking at storage; who calls it says which files there are.

Invariant owned here: every file is in exactly one shard, and the same files give the same shards,
in whatever order they come, so that a task that is tried again has the part it had.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["FILE_COST_BYTES", "Shard", "ShardFile", "plan_shards"]

FILE_COST_BYTES = 1 << 20
"""What a file costs besides its bytes, said in bytes: opening, naming and syncing it takes about as
long as one object. Guess, revisit with measured small files."""

SHARDS_MAX = 1000
"""Airflow's own limit of a task's instances (``[core] max_map_length``) is 1024 by default."""


@dataclass(frozen=True, slots=True, order=True)
class ShardFile:
    """A file of the dataset.

    :param path: relative to the dataset's top.
    :param size: bytes.
    :param target: the storage target it lies on, where known.
    """

    path: str
    size: int
    target: str = ""


@dataclass(frozen=True, slots=True)
class Shard:
    """A part of the dataset.

    :param index: its number, from 0.
    :param files: in order of their paths.
    """

    index: int
    files: tuple[ShardFile, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        """Where they are, relative to the dataset's top."""
        return tuple(file.path for file in self.files)

    @property
    def bytes(self) -> int:
        """How much it is; a transfer's ``bytes_expected``."""
        return sum(file.size for file in self.files)

    @property
    def targets(self) -> dict[str, int]:
        """How many bytes lie on each storage target."""
        found: Counter[str] = Counter()
        for file in self.files:
            found[file.target] += file.size
        return dict(sorted(found.items()))


def plan_shards(
    files: Iterable[ShardFile | tuple[str, int] | tuple[str, int, str]],
    shards: int,
    *,
    file_cost_bytes: int = FILE_COST_BYTES,
) -> tuple[Shard, ...]:
    """Part a dataset evenly.

    A file costs its bytes and ``file_cost_bytes``. The costliest goes first, each to a shard that
    has no more than the file's own cost above the least; among these to the one that has least of
    the file's storage target, so that all shards together keep all targets busy from first to last.
    So no shard costs more than the least one and twice the costliest file.

    :param files: each once: a :class:`ShardFile`, or path, bytes and, where known, storage target.
    :param shards: how many parts, 1 to 1000; there are fewer if there are fewer files.
    :param file_cost_bytes: what a file costs besides its bytes.
    :returns: shards that are not empty, by number; none without files.
    :raises ValueError: for a path that is there twice, a negative size, or such a number of shards.
    """
    if not 1 <= shards <= SHARDS_MAX:
        raise ValueError(f"{shards} shards: it must be 1 to {SHARDS_MAX}")
    all_files = [file if isinstance(file, ShardFile) else ShardFile(*file) for file in files]
    seen: set[str] = set()
    for file in all_files:
        if file.size < 0:
            raise ValueError(f"{file.path} has {file.size} bytes")
        if file.path in seen:
            raise ValueError(f"{file.path} is there twice")
        seen.add(file.path)
    count = min(shards, len(all_files))
    if not count:
        return ()
    parts: list[list[ShardFile]] = [[] for _ in range(count)]
    costs = [0] * count
    of_target: dict[str, list[int]] = {}
    for file in sorted(all_files, key=lambda each: (-each.size, each.target, each.path)):
        cost = file.size + file_cost_bytes
        limit = min(costs) + cost
        here = of_target.setdefault(file.target, [0] * count)
        index = min(
            (each for each in range(count) if costs[each] <= limit),
            key=lambda each: (here[each], costs[each], each),
        )
        parts[index].append(file)
        costs[index] += cost
        here[index] += cost
    held = [part for part in parts if part]
    return tuple(
        Shard(index, tuple(sorted(part, key=lambda each: each.path)))
        for index, part in enumerate(held)
    )
