"""Looking into object logs: what is safe of unfinished copies."""

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
    """One holder's time with a log.

    :param epoch: of the lease; each holder's is higher than all before.
    :param holder: program, process and host in words.
    :param transfer_id: the transfer it works or worked for.
    :param boot_id: the boot it ran in.
    :param durability: what "done" means in its records.
    """

    epoch: int
    holder: str
    transfer_id: str
    boot_id: bytes
    durability: Durability


@dataclass(frozen=True, slots=True)
class LogHeader:
    """A log's first record: what it is about and to whom it belongs.

    :param claims: paths beneath the log's own folder that it speaks for; empty for all of them.
    :param owner: who may resume.
    :param nonce: a number that no other log has.
    :param software: what made the log.
    :param tenure: its holder at that moment.
    """

    claims: tuple[str, ...]
    owner: bytes
    nonce: int
    software: str
    tenure: Tenure


@dataclass(frozen=True, slots=True)
class DoneRange:
    """Bytes of a file that are safe; neighbours are merged.

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

    :param path: where it will stand, beneath the folder that holds ``.dray-log``.
    :param size: bytes it will have.
    :param modified_ns: modification time at the source, nanoseconds since 1970.
    :param checksum: what the caller demanded of it, such as ``adler32:024d0127``.
    :param identity: the source's own name of this version; empty for plain files.
    :param object_size: bytes of an object.
    :param partial_name: name of the partial file, in the file's own folder.
    :param done: what is safe, in order of offset.
    :param is_weak: whether some of it was written without a sync, and so counts only until the
        host of the last holder boots again.
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
        """Bytes that are safe."""
        return sum(part.length for part in self.done)


@dataclass(frozen=True, slots=True)
class LostBytes:
    """Bytes of a log that cannot be read although they were durable once.

    :param offset: in the log.
    :param length: number of bytes.
    """

    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class LogDamage:
    """What damage in a log costs.

    :param places: the first 16 places.
    :param count: number of places.
    :param files_forgotten: unfinished files of which nothing counts any more.
    :param files_kept: unfinished files whose other records still count.
    """

    places: tuple[LostBytes, ...]
    count: int
    files_forgotten: int
    files_kept: int


@dataclass(frozen=True, slots=True)
class LogReport:
    """Everything a log says.

    :param header: its first record.
    :param tenure: the last holder.
    :param files: the unfinished files, by path; those that are finished are no longer in a log.
    :param torn_bytes: bytes at the end that were never committed; normal after a crash.
    :param damage: what else is unreadable; ``None`` for a sound log.
    :param records_over_limit: records left out because there are too many to hold in memory.
    :param log_bytes: bytes of the log, torn ones included.
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
        """Bytes that are safe, of all unfinished files."""
        return sum(file.bytes_done for file in self.files)


def find_logs(destination: StrOrBytesPath) -> tuple[Path, ...]:
    """Return the logs of unfinished copies to a folder, by name; none when all are finished.

    :param destination: the folder; folders above it are not looked at.
    """
    folder = Path(os.fsdecode(destination)) / ".dray-log"
    return tuple(sorted(folder.glob("*.log")))


def read_log(path: StrOrBytesPath) -> LogReport:
    """Read an object log, changing nothing; one that is being written may be read as well.

    :param path: the log, ``DESTINATION/.dray-log/*.log``.
    :raises DrayPermanentError: if there is none, if it is of another version or something else
        than a log, or if its header is damaged. Damage behind the header is in the report.
    :raises DrayTemporaryError: if the storage fails.
    """
    words = _native.read_log(os.fsencode(path))
    header = LogHeader(
        claims=tuple(words["claims"]),
        owner=words["owner"],
        nonce=words["nonce"],
        software=words["software"],
        tenure=Tenure(**words["first_tenure"]),
    )
    return LogReport(
        header=header,
        tenure=Tenure(**words["tenure"]),
        files=tuple(_file(file) for file in words["files"]),
        torn_bytes=words["torn_bytes"],
        damage=None if words["damage"] is None else _damage(words["damage"]),
        records_over_limit=words["records_over_limit"],
        log_bytes=words["log_bytes"],
    )


def _file(words: _native.FileWords) -> LoggedFile:
    return LoggedFile(
        path=words["path"],
        size=words["size"],
        modified_ns=words["modified_ns"],
        checksum=words["checksum"],
        identity=words["identity"],
        object_size=words["object_size"],
        partial_name=words["partial_name"],
        done=tuple(
            DoneRange(offset, length, Sums(*sums)) for offset, length, sums in words["done"]
        ),
        is_weak=words["is_weak"],
    )


def _damage(words: _native.DamageWords) -> LogDamage:
    return LogDamage(
        places=tuple(LostBytes(*place) for place in words["places"]),
        count=words["count"],
        files_forgotten=words["files_forgotten"],
        files_kept=words["files_kept"],
    )
