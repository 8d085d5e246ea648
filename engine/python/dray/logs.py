"""Read object logs: the durable data of unfinished copies."""

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
    """The tenure of one holder of a log.

    :param epoch: of the lease; each holder's is higher than all before.
    :param holder: program, process and host in words.
    :param transfer_id: the holder's transfer.
    :param boot_id: the boot it ran in.
    :param durability: meaning of "done" in its records.
    """

    epoch: int
    holder: str
    transfer_id: str
    boot_id: bytes
    durability: Durability


@dataclass(frozen=True, slots=True)
class LogHeader:
    """A log's first record: its paths and its owner.

    :param claims: paths below the log's own folder that it covers; empty for all of them.
    :param owner: the user who may resume.
    :param nonce: a unique number of the log.
    :param software: the program that created the log.
    :param tenure: its holder at that moment.
    """

    claims: tuple[str, ...]
    owner: bytes
    nonce: int
    software: str
    tenure: Tenure


@dataclass(frozen=True, slots=True)
class DoneRange:
    """Durable bytes of a file; adjacent ranges are merged.

    :param offset: of the first byte.
    :param length: number of bytes.
    :param sums: their checksums.
    """

    offset: int
    length: int
    sums: Sums


@dataclass(frozen=True, slots=True)
class LoggedFile:
    """An unfinished file.

    :param path: its final path, below the folder that holds ``.dray-log``.
    :param size: its final size in bytes.
    :param modified_ns: modification time at the source, nanoseconds since 1970.
    :param checksum: the checksum that the caller required, such as ``adler32:024d0127``.
    :param identity: the source's own name of this version; empty for plain files.
    :param object_size: bytes of an object.
    :param partial_name: name of the partial file, in the file's own folder.
    :param done: durable ranges, in order of offset.
    :param is_weak: whether some of it was written without a sync, and so counts only until the host
        of the last holder reboots.
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
    """Bytes of a log that cannot be read although they were once durable.

    :param offset: in the log.
    :param length: number of bytes.
    """

    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class LogDamage:
    """The cost of damage in a log.

    :param places: the first 16 places.
    :param count: number of places.
    :param files_forgotten: unfinished files without any valid record.
    :param files_kept: unfinished files whose other records are still valid.
    """

    places: tuple[LostBytes, ...]
    count: int
    files_forgotten: int
    files_kept: int


@dataclass(frozen=True, slots=True)
class LogReport:
    """The contents of a log.

    :param header: its first record.
    :param tenure: the last holder.
    :param files: the unfinished files, by path; finished files are no longer in a log.
    :param torn_bytes: bytes at the end that were never committed; normal after a crash.
    :param damage: other unreadable places; ``None`` for a sound log.
    :param records_over_limit: records left out to bound memory.
    :param log_bytes: bytes of the log, including torn ones.
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
        """The last holder's epoch."""
        return self.tenure.epoch

    @property
    def bytes_done(self) -> int:
        """Number of durable bytes of all unfinished files."""
        return sum(file.bytes_done for file in self.files)


def find_logs(destination: StrOrBytesPath) -> tuple[Path, ...]:
    """Return the logs of unfinished copies to a folder, by name; empty if all are finished.

    :param destination: the folder; folders above it are not searched.
    """
    folder = Path(os.fsdecode(destination)) / ".dray-log"
    return tuple(sorted(folder.glob("*.log")))


def read_log(path: StrOrBytesPath) -> LogReport:
    """Read an object log without changing it; it may be in use.

    :param path: the log, ``DESTINATION/.dray-log/*.log``.
    :raises DrayPermanentError: if it does not exist, has another version, is no log, or has a
        damaged header. Damage after the header is in the report.
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
