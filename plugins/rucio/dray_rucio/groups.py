"""Divide files into transfers of several files. Pure functions.

A transfer of several files copies a list of files below a folder of the source to the same paths
below a folder of the destination.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

__all__ = ["Member", "divide", "find_name", "folder_of", "group_id", "is_group"]

T = TypeVar("T")

PREFIX = "rucio-"
REQUEST_BYTES_MAX = 56_000
"""Bytes of the list of files in one request. An endpoint accepts 64 KiB for the whole request."""
ENTRY_BYTES = 80
"""Bytes of a file in the list, in addition to its path."""


class Member(NamedTuple, Generic[T]):
    """A file that may share a transfer with others.

    :param key: files with equal keys may share a transfer. ``None`` for a file that may not.
    :param name: path of the file below the folders of both RSEs.
    :param item: the object that the caller gets back.
    """

    key: Hashable | None
    name: str
    item: T


def divide(members: Iterable[Member[T]], files_max: int) -> list[list[T]]:
    """Return the files of each transfer, in the order of the first file of each transfer."""
    found: list[list[T]] = []
    open_groups: dict[Hashable, tuple[list[T], int]] = {}
    for member in members:
        if member.key is None:
            found.append([member.item])
            continue
        bytes = ENTRY_BYTES + len(json.dumps(member.name))
        group, used = open_groups.get(member.key, (None, 0))
        if group is None or len(group) >= files_max or used + bytes > REQUEST_BYTES_MAX:
            group, used = [], 0
            found.append(group)
        group.append(member.item)
        open_groups[member.key] = (group, used + bytes)
    return found


def group_id(request_ids: Iterable[str]) -> str:
    """Return the id of the transfer of these requests. A repeated submission gets the same id."""
    joined = "\n".join(sorted(request_ids))
    return PREFIX + hashlib.sha256(joined.encode()).hexdigest()[:32]


def is_group(id: str) -> bool:
    """Return true if a transfer carries several requests."""
    return id.startswith(PREFIX)


def folder_of(names: Sequence[str]) -> str:
    """Return the deepest folder that contains all files. Empty, or with a slash at its end."""
    folders = [name.split("/")[:-1] for name in names]
    shared: list[str] = []
    for parts in zip(*folders, strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return "".join(f"{part}/" for part in shared)


def find_name(pfn: str, names_by_end: dict[str, list[str]]) -> str | None:
    """Return the longest of the given names with which a PFN ends. ``None`` if there is none.

    :param names_by_end: the names of a transfer's files, grouped by the last component of the name.
    """
    candidates = names_by_end.get(pfn.rsplit("/", 1)[-1], [])
    ending = [name for name in candidates if pfn.endswith(f"/{name}")]
    return max(ending, key=len, default=None)
