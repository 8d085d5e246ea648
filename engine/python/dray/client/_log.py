"""The object log of a transfer, and the treatment of its unfinished files by the next session."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LogFile", "LogRange", "ObjectLog", "TransferLog"]


@dataclass(frozen=True, slots=True)
class LogRange:
    """A range of bytes of a file."""

    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class LogFile:
    """An unfinished file in an object log.

    :param path: path relative to the destination folder, in the form of the API.
    :param partial: name of the partial file.
    :param size: size of the file in bytes.
    :param bytes_logged: bytes in the log.
    :param bytes_trusted: bytes that the next session need not send.
    :param verdict: ``trusted`` if the next session continues the file, ``not_trusted`` if the next
        session begins the file again, ``refused`` if the file will fail.
    :param why: reason for the verdict.
    :param trusted: the first 32 trusted ranges.
    :param ranges_more: number of trusted ranges that are not in ``trusted``.
    """

    path: str
    partial: str = ""
    size: int = 0
    bytes_logged: int = 0
    bytes_trusted: int = 0
    verdict: str = ""
    why: str = ""
    trusted: tuple[LogRange, ...] = ()
    ranges_more: int = 0


@dataclass(frozen=True, slots=True)
class ObjectLog:
    """An object log.

    :param path: path of the log at the endpoint.
    :param form: form of the log, as ``dray cp --log`` takes it.
    :param mechanism: the mechanism of the form, in words.
    :param method: the method of the form.
    :param is_async: true if a thread of its own writes the log.
    :param has_sums: true if the log contains checksums of the ranges.
    :param transfer: id of the transfer that has written to the log last.
    :param epoch: number of tenures of the log.
    :param files: number of unfinished files.
    :param bytes: size of the log in bytes.
    :param torn_bytes: bytes at the end of the log that are ignored, because their write was not
        completed.
    :param damage: the damage of the log. ``None`` if the log is intact.
    """

    path: str
    form: str = ""
    mechanism: str = ""
    method: str = ""
    is_async: bool = False
    has_sums: bool = True
    transfer: str = ""
    epoch: int = 0
    files: int = 0
    bytes: int = 0
    torn_bytes: int = 0
    damage: str | None = None


@dataclass(frozen=True, slots=True)
class TransferLog:
    """The object log of a transfer, with one page of its unfinished files.

    :param endpoint: address of the endpoint of the destination, which has the log. ``None`` if the
        destination is at this endpoint.
    :param log: ``None`` if the log is at another endpoint, or if there is no log.
    :param files: unfinished files, sorted by path.
    :param next: cursor of the next page. ``None`` on the last page.
    """

    endpoint: str | None = None
    log: ObjectLog | None = None
    files: tuple[LogFile, ...] = ()
    next: str | None = None
