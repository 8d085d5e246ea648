"""Read object logs, which record the durable data of unfinished copies."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dray import _native
from dray.checksums import Sums

if TYPE_CHECKING:
    from dray.transfer import Durability, StrOrBytesPath

__all__ = [
    "DoneRange",
    "LogDamage",
    "LogHeader",
    "LogReport",
    "LoggedFile",
    "LostBytes",
    "Tenure",
    "find_logs",
    "read_log",
]


@dataclass(frozen=True, slots=True)
class Tenure:
    """The period in which one holder had the lease of a log.

    :param epoch: number of the lease. Each later lease of the same log has a higher number.
    :param holder: the holder's program, process and host, as text.
    :param transfer_id: id of the holder's transfer.
    :param boot_id: boot id that the holder's host had while the holder ran.
    :param durability: durability of the ranges that the holder recorded as done.
    """

    epoch: int
    holder: str
    transfer_id: str
    boot_id: bytes
    durability: Durability


@dataclass(frozen=True, slots=True)
class LogHeader:
    """The first record of a log: its paths and its owner.

    :param claims: paths below the log's folder that the log covers. Empty if the log covers all
        paths below the folder.
    :param owner: user who may resume the copy.
    :param nonce: unique number of the log.
    :param software: program that created the log.
    :param tenure: the holder that created the log, and the lease of this holder.
    """

    claims: tuple[str, ...]
    owner: bytes
    nonce: int
    software: str
    tenure: Tenure


@dataclass(frozen=True, slots=True)
class DoneRange:
    """A range of durable bytes of a file. Adjacent ranges are merged.

    :param offset: offset of the first byte.
    :param length: number of bytes.
    :param sums: checksums of the bytes.
    """

    offset: int
    length: int
    sums: Sums


@dataclass(frozen=True, slots=True)
class LoggedFile:
    """An unfinished file.

    :param path: final path below the folder that holds ``.dray-log``.
    :param size: final size in bytes.
    :param modified_ns: modification time at the source, in nanoseconds since 1970.
    :param checksum: checksum that the caller required, such as ``adler32:024d0127``.
    :param identity: text that distinguishes contents with the same size, time and checksum:
        ``range:OFFSET:LENGTH`` for a copied range, ``source:PATH`` for a third-party copy that a
        client of an XRootD server requested, and empty otherwise.
    :param object_size: size of an object in bytes.
    :param partial_name: name of the partial file, in the folder in which the finished file will be.
    :param done: durable ranges, sorted by offset.
    :param is_weak: true if some ranges were written without a sync. These ranges are valid only
        until the host of the last holder reboots.
    """

    path: str
    size: int
    modified_ns: int
    checksum: str | None
    identity: bytes
    object_size: int
    partial_name: str
    done: tuple[DoneRange, ...]
    is_weak: bool

    @property
    def bytes_done(self) -> int:
        """Number of durable bytes."""
        return sum(part.length for part in self.done)


@dataclass(frozen=True, slots=True)
class LostBytes:
    """A range of a log that cannot be read although it was durable.

    :param offset: offset in the log.
    :param length: number of bytes.
    """

    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class LogDamage:
    """The effect of damage in a log.

    :param places: the first 16 damaged ranges.
    :param count: number of damaged ranges.
    :param files_forgotten: number of unfinished files that lost all their records.
    :param files_kept: number of unfinished files that lost some of their records.
    """

    places: tuple[LostBytes, ...]
    count: int
    files_forgotten: int
    files_kept: int


@dataclass(frozen=True, slots=True)
class LogReport:
    """The contents of a log.

    :param header: first record of the log.
    :param tenure: the last holder.
    :param files: the unfinished files by path. Finished files are no longer in a log.
    :param torn_bytes: number of bytes at the end that were never committed. They are normal after a
        crash.
    :param damage: other unreadable ranges. ``None`` if the log has no such damage.
    :param records_over_limit: number of records left out to limit memory.
    :param log_bytes: size of the log in bytes, including torn bytes.
    """

    header: LogHeader
    tenure: Tenure
    files: tuple[LoggedFile, ...]
    torn_bytes: int
    damage: LogDamage | None
    records_over_limit: int
    log_bytes: int

    @property
    def epoch(self) -> int:
        """Epoch of the last holder."""
        return self.tenure.epoch

    @property
    def bytes_done(self) -> int:
        """Number of durable bytes of all unfinished files."""
        return sum(file.bytes_done for file in self.files)


def find_logs(destination: StrOrBytesPath) -> tuple[Path, ...]:
    """Return the logs of unfinished copies to a folder, by name. Empty if all copies are finished.

    :param destination: the folder. Folders above it are not searched.
    """
    folder = Path(os.fsdecode(destination)) / ".dray-log"
    return tuple(sorted(folder.glob("*.log")))


def read_log(path: StrOrBytesPath) -> LogReport:
    """Read an object log without changing it. The log may be in use.

    :param path: path of the log, ``DESTINATION/.dray-log/*.log``.
    :raises DrayPermanentError: if the log does not exist, has another version, is not a log, or has
        a damaged header. Damage after the header is in the report.
    :raises DrayTemporaryError: if the storage fails.
    """
    fields = _native.read_log(os.fsencode(path))
    header = LogHeader(
        claims=tuple(fields["claims"]),
        owner=fields["owner"],
        nonce=fields["nonce"],
        software=fields["software"],
        tenure=Tenure(**fields["first_tenure"]),
    )
    return LogReport(
        header=header,
        tenure=Tenure(**fields["tenure"]),
        files=tuple(_file(file) for file in fields["files"]),
        torn_bytes=fields["torn_bytes"],
        damage=None if fields["damage"] is None else _damage(fields["damage"]),
        records_over_limit=fields["records_over_limit"],
        log_bytes=fields["log_bytes"],
    )


def _file(fields: _native.FileWords) -> LoggedFile:
    return LoggedFile(
        path=fields["path"],
        size=fields["size"],
        modified_ns=fields["modified_ns"],
        checksum=fields["checksum"],
        identity=fields["identity"],
        object_size=fields["object_size"],
        partial_name=fields["partial_name"],
        done=tuple(
            DoneRange(offset, length, Sums(*sums)) for offset, length, sums in fields["done"]
        ),
        is_weak=fields["is_weak"],
    )


def _damage(fields: _native.DamageWords) -> LogDamage:
    return LogDamage(
        places=tuple(LostBytes(*place) for place in fields["places"]),
        count=fields["count"],
        files_forgotten=fields["files_forgotten"],
        files_kept=fields["files_kept"],
    )
