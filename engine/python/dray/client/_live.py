"""The files under way of a transfer, and sums for its folders."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FolderSums", "LiveFile", "LiveFiles"]


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A file that the session has found and not finished.

    :param path: path relative to the transfer's root, in the form of the API.
    :param size: size in bytes.
    :param bytes_done: durable bytes. If the destination discards the data: discarded bytes.
    :param state: ``waiting``, ``moving``, ``verifying`` or ``publishing``. If the destination is
        at another endpoint, a file that is verified has the state ``publishing``.
    """

    path: str
    size: int
    bytes_done: int = 0
    state: str = ""


@dataclass(frozen=True, slots=True)
class FolderSums:
    """Counters of a folder, including everything below it.

    :param path: path relative to the transfer's root, in the form of the API. Empty for the root.
    :param files: number of files that the session has found so far.
    :param bytes: total size of these files in bytes.
    :param files_done: number of files that were published, adopted or skipped.
    :param bytes_done: bytes of these files, and durable bytes of files under way.
    :param failed: number of entries that failed. An entry that could not be listed counts only in
        the root.
    :param bytes_failed: total size of the failed files in bytes.
    :param folders_more: number of folders below this folder that have no sums of their own.
    """

    path: str
    files: int = 0
    bytes: int = 0
    files_done: int = 0
    bytes_done: int = 0
    failed: int = 0
    bytes_failed: int = 0
    folders_more: int = 0


@dataclass(frozen=True, slots=True)
class LiveFiles:
    """The files under way of a transfer, and sums for its folders.

    :param is_reported: true if a running session of the transfer has reported its files. Otherwise
        the lists are empty.
    :param files: at most 100 files: first those that have begun to move, and among equals those
        that were found first.
    :param files_more: number of files under way that are not in ``files``.
    :param folders: the root and the folders below it, to a depth of 4. A folder follows its parent.
    """

    is_reported: bool = False
    files: tuple[LiveFile, ...] = ()
    files_more: int = 0
    folders: tuple[FolderSums, ...] = ()
