"""Copies that run in this process."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from dray import _native
from dray.checksums import Sums

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from dray.errors import DrayError

__all__ = [
    "Durability",
    "Event",
    "FailedFile",
    "FileDone",
    "Links",
    "Notice",
    "Overwrite",
    "Profile",
    "Progress",
    "ResumeMode",
    "Stage",
    "StrOrBytesPath",
    "TransferResult",
    "TransferState",
    "copy",
]

StrOrBytesPath: TypeAlias = "str | bytes | os.PathLike[str] | os.PathLike[bytes]"
"""A path. Names are bytes. Text is encoded as :func:`os.fsencode` does."""

Overwrite = Literal["never", "if-different", "always"]
Durability = Literal["none", "file", "object"]
ResumeMode = Literal["verify", "trust"]
Links = Literal["keep", "follow", "refuse"]
TransferState = Literal["done", "failed"]
Stage = Literal[
    "list",
    "decide",
    "rate",
    "read",
    "network",
    "credit",
    "retry",
    "verdict",
    "arrival",
    "write",
    "sync",
    "publish",
]
"""The stage of an end: its current work, or the reason for which it waits."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The counters of a running copy. All numbers of bytes count file content.

    :param seconds: seconds since the copy started.
    :param is_listing_done: true if the listing is complete.
    :param files_listed: files found so far.
    :param bytes_listed: bytes of those files.
    :param files_done: finished files. Failed files do not count.
    :param files_adopted: finished files that existed at the destination with the same content.
    :param files_skipped: finished files that were not copied, because the destination has a file of
        the same name, and ``overwrite`` does not permit its replacement.
    :param files_failed: entries that failed.
    :param bytes_durable: bytes of finished files, and bytes of unfinished files in objects that are
        as durable as ``durability`` demands.
    :param bytes_resumed: bytes that an earlier copy made durable, and that are not sent again.
    :param bytes_read_back: bytes read back from the destination's storage and compared.
    :param objects_sent: objects sent. An object that was sent twice counts twice.
    :param objects_resumed: objects that an earlier copy made durable.
    :param bytes_sent: bytes passed from source to sink.
    :param bytes_read: bytes read at the source.
    """

    seconds: float
    is_listing_done: bool
    files_listed: int
    bytes_listed: int
    files_done: int
    files_adopted: int
    files_skipped: int
    files_failed: int
    bytes_durable: int
    bytes_resumed: int
    bytes_read_back: int
    objects_sent: int
    objects_resumed: int
    bytes_sent: int
    bytes_read: int

    @property
    def files_remaining(self) -> int:
        """Number of listed files neither done nor failed. May grow until the listing is done."""
        return max(0, self.files_listed - self.files_done - self.files_failed)

    @property
    def bytes_remaining(self) -> int:
        """Number of listed bytes that are not durable yet. May grow until the listing is done."""
        return max(0, self.bytes_listed - self.bytes_durable)

    @property
    def bytes_per_second(self) -> float:
        """Average rate of sending since the copy started. 0 at the start."""
        return self.bytes_sent / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_remaining(self) -> float | None:
        """Time left at the average rate. ``None`` until the listing is done and a byte is sent."""
        if not self.is_listing_done or self.bytes_per_second == 0:
            return None
        return self.bytes_remaining / self.bytes_per_second


@dataclass(frozen=True, slots=True)
class FileDone:
    """Event: a file has its final name and is as durable as requested.

    :param path: path relative to the destination folder, as :func:`os.fsdecode` decodes it.
    :param size: size in bytes.
    :param sums: checksums of the whole file. ``None`` if this copy does not know them.
    """

    path: str
    size: int
    sums: Sums | None


@dataclass(frozen=True, slots=True)
class FailedFile:
    """Event: an entry could not be copied. The copy of other entries continues.

    :param path: path relative to the destination folder, as :func:`os.fsdecode` decodes it.
    :param error: the error.
    """

    path: str
    error: DrayError


@dataclass(frozen=True, slots=True)
class Notice:
    """Event: a notice that is not a failure, such as a log that no longer fits the source.

    :param error: the notice in the form of an error. It was not raised.
    """

    error: DrayError


Event: TypeAlias = FileDone | FailedFile | Notice


@dataclass(frozen=True, slots=True)
class Profile:
    """Number of seconds that each end spent in each stage.

    Stages that took no time are left out.

    :param source: seconds by stage of the end that reads.
    :param sink: seconds by stage of the end that writes.
    """

    source: Mapping[Stage, float]
    sink: Mapping[Stage, float]


@dataclass(frozen=True, slots=True)
class TransferResult:
    """The result of a copy, with the fields of the last JSON object of ``dray cp --json``.

    :param transfer_id: id of the transfer.
    :param state: ``failed`` if entries failed, otherwise ``done``. All entries that did not fail
        are complete and as durable as ``durability`` demands, in both cases.
    :param files: complete files under their final names, including adopted files.
    :param bytes: durable bytes.
    :param objects: objects sent or resumed.
    :param objects_sent: objects sent by this copy. An object that was sent twice counts twice.
    :param objects_resumed: objects that an earlier copy made durable, and that were not sent again.
    :param files_skipped: files that were not copied, because the destination has a file of the same
        name, and ``overwrite`` does not permit its replacement.
    :param files_adopted: files that existed at the destination with the same content.
    :param bytes_sent: bytes passed from source to sink.
    :param bytes_read: bytes read at the source.
    :param bytes_resumed: bytes that an earlier copy made durable, and that were not sent again.
    :param bytes_read_back: bytes read back from the destination's storage and compared. Holes of
        sparse files do not count.
    :param seconds: duration of the copy.
    :param files_failed: the failed entries, at most the first 1000.
    :param files_failed_total: number of all failed entries.
    :param profile: seconds that each end spent in each stage.
    :param bottleneck: the stage that delayed the copy most. ``None`` if no stage took a third of
        the time.
    """

    transfer_id: str
    state: TransferState
    files: int
    bytes: int
    objects: int
    objects_sent: int
    objects_resumed: int
    files_skipped: int
    files_adopted: int
    bytes_sent: int
    bytes_read: int
    bytes_resumed: int
    bytes_read_back: int
    seconds: float
    files_failed: tuple[FailedFile, ...]
    files_failed_total: int
    profile: Profile
    bottleneck: Stage | None

    def raise_for_failures(self) -> None:
        """Raise the error of the first failed entry. Return if no entry failed.

        :raises DrayError: the error.
        """
        for failed in self.files_failed:
            raise failed.error


def copy(
    sources: StrOrBytesPath | Iterable[StrOrBytesPath],
    destination: StrOrBytesPath,
    *,
    recursive: bool = False,
    overwrite: Overwrite = "if-different",
    durability: Durability = "file",
    order: str = "layout",
    object_size: int | None = None,
    verify: bool = False,
    resume: ResumeMode = "verify",
    checksum: str | None = None,
    include: str | Iterable[str] = (),
    exclude: str | Iterable[str] = (),
    rate: int | None = None,
    transfer_id: str | None = None,
    links: Links = "keep",
    xattrs: bool = False,
    stripe: str | None = None,
    checksum_attributes: bool = False,
    pool_bytes: int | None = None,
    progress: Callable[[Progress], object] | None = None,
    on_event: Callable[[Event], object] | None = None,
) -> TransferResult:
    """Copy files and folders on this host. The same call resumes the copy after any fault.

    The meaning of the destination depends on the arguments, and never on existing files. The
    destination is a folder with ``recursive``, with several sources, or if it ends in a slash.
    Otherwise it is the new name of the file. A source folder ``run`` becomes ``destination/run``,
    and the source ``run/`` means the contents of the folder. (:class:`pathlib.Path` drops a slash
    at the end: use ``f"{path}/"``.)

    Other threads can run during the copy. Callbacks run in the calling thread. If a callback raises
    an exception, the copy stops and keeps durable data, and the function raises that exception.
    Ctrl-C in Python's main thread does the same with :class:`KeyboardInterrupt`; Ctrl-C has no
    effect on a copy in another thread. After a second Ctrl-C, the function does not wait until the
    copy has stopped.

    :param sources: one path or several.
    :param destination: the target of the copy.
    :param recursive: copy folders with all their contents.
    :param overwrite: handling of existing files: keep them, replace those that differ in size, time
        or known checksum, or replace all.
    :param durability: condition under which data counts as durable. ``none``: the data is written.
        ``file``: the whole file is on stable storage before it gets its final name. ``object``:
        each object is on stable storage before its buffer is reused.
    :param order: order in which objects are sent: ``layout`` (by storage target, avoiding busy
        targets), ``file`` (file after file) or ``random:SEED``.
    :param object_size: size in bytes of an object, the unit of transfer and of resuming: 4 KiB to
        64 MiB. The default is 1 MiB, and 4 MiB if an end is a Ceph pool.
    :param verify: read every file back before it gets its final name.
    :param resume: read back and compare the durable data of an earlier run, or trust its log.
    :param checksum: required checksum of a single file: ``adler32:HHHHHHHH`` or
        ``crc32c:HHHHHHHH``.
    :param include: patterns of files to select, by name (``*.root``) or by path (``run?/**``).
    :param exclude: patterns of files and folders to leave out.
    :param rate: maximum rate in bytes per second, at least 1.
    :param transfer_id: 1 to 64 characters of ``[A-Za-z0-9._:-]``. By default the id is derived from
        the arguments, so that two calls with the same arguments are the same transfer.
    :param links: recreate symbolic links, copy their targets, or fail them.
    :param xattrs: copy extended attributes.
    :param stripe: stripes of new files at a destination on Lustre: ``source`` (needs ``xattrs``),
        ``COUNT`` or ``COUNT:SIZE``.
    :param checksum_attributes: store checksums of written files as extended attributes.
    :param pool_bytes: memory in bytes for the buffers of both ends, at least sixteen objects, by
        default 256 MiB.
    :param progress: function that is called at most ten times per second, and once at the end.
    :param on_event: function that is called for each file that is done or failed, and for each
        notice. The copy waits for a slow function.
    :returns: the result. It contains failed entries, which are not raised.
    :raises DrayUsageError: if the arguments are invalid. The copy has then not started.
    :raises DrayTemporaryError: if the copy was refused or interrupted, and a later copy may resume.
    :raises DrayPermanentError: if the copy was refused or interrupted, and a person must remove the
        cause.
    """
    asked: _native.Asked = {
        "sources": _paths(sources),
        "destination": os.fsencode(destination),
        "recursive": recursive,
        "overwrite": overwrite,
        "durability": durability,
        "order": order,
        "object_size": object_size,
        "verify": verify,
        "resume": resume,
        "checksum": checksum,
        "include": _patterns(include),
        "exclude": _patterns(exclude),
        "rate": rate,
        "transfer_id": transfer_id,
        "links": links,
        "xattrs": xattrs,
        "stripe": stripe,
        "checksum_attributes": checksum_attributes,
        "pool_bytes": pool_bytes,
    }
    report = _native.copy(
        asked,
        None if progress is None else lambda counters: progress(Progress(**counters)),
        None if on_event is None else lambda *words: on_event(_event(*words)),
    )
    return TransferResult(
        transfer_id=report["transfer_id"],
        state=report["state"],
        files=report["files"],
        bytes=report["bytes"],
        objects=report["objects"],
        objects_sent=report["objects_sent"],
        objects_resumed=report["objects_resumed"],
        files_skipped=report["files_skipped"],
        files_adopted=report["files_adopted"],
        bytes_sent=report["bytes_sent"],
        bytes_read=report["bytes_read"],
        bytes_resumed=report["bytes_resumed"],
        bytes_read_back=report["bytes_read_back"],
        seconds=report["seconds"],
        files_failed=tuple(FailedFile(path, error) for path, error in report["files_failed"]),
        files_failed_total=report["files_failed_total"],
        profile=Profile(**report["profile"]),
        bottleneck=report["bottleneck"],
    )


def _paths(sources: StrOrBytesPath | Iterable[StrOrBytesPath]) -> list[bytes]:
    if isinstance(sources, (str, bytes, os.PathLike)):
        return [os.fsencode(sources)]
    return [os.fsencode(source) for source in sources]


def _patterns(patterns: str | Iterable[str]) -> list[str]:
    return [patterns] if isinstance(patterns, str) else list(patterns)


def _event(
    kind: Literal["done", "failed", "notice"],
    path: str,
    size: int,
    sums: tuple[int, int] | None,
    error: DrayError,
) -> Event:
    if kind == "done":
        return FileDone(path, size, None if sums is None else Sums(*sums))
    return FailedFile(path, error) if kind == "failed" else Notice(error)
