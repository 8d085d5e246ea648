"""Types of a caller's requests, and their JSON. ``None`` means that a field is not set."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final, Literal

from dray.client._errors import usage

if TYPE_CHECKING:
    from dray.client._steps import Json

__all__ = [
    "KEEP",
    "Content",
    "Keep",
    "ListedFile",
    "Place",
    "Range",
    "Request",
    "Retry",
    "Scitag",
    "Selection",
    "StagingRequest",
    "write",
]


class Keep(enum.Enum):
    """The type of :data:`KEEP`."""

    KEEP = "keep"


KEEP: Final = Keep.KEEP
"""In a change: leave the field unchanged. ``None`` removes a bound instead."""


@dataclass(frozen=True, slots=True)
class Place:
    """A file or folder at an endpoint.

    :param url: ``dray://HOST[:PORT]/ROOT/PATH``, or ``/ROOT/PATH`` at the called endpoint.
    :param ticket: ticket of a remote endpoint, which is secret and not in ``repr``.
    :param key: fingerprint of the remote endpoint.
    :param address: data port of the remote endpoint, if it differs from the URL.
    :param size: size in bytes, if the place is one file and the size is known. A source and its
        replicas must have the same size.
    """

    url: str
    ticket: str | None = field(default=None, repr=False)
    key: str | None = None
    address: str | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Content:
    """Required properties of a single file.

    :param size: size in bytes.
    :param checksum: ``adler32:HHHHHHHH`` or ``crc32c:HHHHHHHH``.
    """

    size: int | None = None
    checksum: str | None = None


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file in the list of files of a transfer. It fails if it lacks the given size or checksum.

    :param path: path below the source and below the destination.
    :param size: size in bytes.
    :param checksum: ``adler32:HHHHHHHH`` or ``crc32c:HHHHHHHH``.
    """

    path: str
    size: int | None = None
    checksum: str | None = None


@dataclass(frozen=True, slots=True)
class Range:
    """A range of a single file, in bytes."""

    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Selection:
    """The selection of files, with the meaning of the options of ``dray cp``."""

    recursive: bool | None = None
    include: Sequence[str] | None = None
    exclude: Sequence[str] | None = None
    range: Range | None = None
    links: Literal["keep", "follow", "refuse"] | None = None


@dataclass(frozen=True, slots=True)
class Scitag:
    """The packet mark (scitag): the numbers of an experiment and of its activity."""

    experiment: int
    activity: int


@dataclass(frozen=True, slots=True)
class Retry:
    """Retries of a transfer after temporary errors.

    :param tries: maximum number of consecutive sessions that make no new data durable.
    :param interval_seconds: time between two sessions.
    """

    tries: int | None = None
    interval_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """A request for a transfer. Only ``sources`` and ``destination`` are required.

    :param sources: 1 to 256 files or folders of one root, which are all copied. A text is the URL
        of a :class:`Place`.
    :param destination: target of the copy. The target is a folder if its URL ends with a slash, or
        if there are several sources.
    :param replicas: up to 15 copies of the source, if the request has one source. All copies have
        the same content and size. The endpoint reads a replica if it cannot read the source.
    :param files_min: minimum number of source files, by default 1, or the number of ``files``. The
        transfer fails if the sources contain fewer files. With 0, an empty source is no error.
    :param id: 1 to 64 characters of ``[A-Za-z0-9._:-]``. By default the client creates an id.
    :param content: required properties of a single file.
    :param files: files to copy from the source, which is a folder. The source, the replicas and the
        destination must end with a slash, and the selection must be recursive, without patterns.
        The called endpoint must be that of the destination. At most 1024 files.
    :param selection: the selection of files.
    :param class_: ``realtime``, ``deadline`` or ``background``.
    :param deadline: time by which the transfer should be done, with a time zone.
    :param not_before: earliest start time, with a time zone.
    :param admission: ``required`` (the default): refuse the transfer if ``deadline`` or
        ``rate_min`` cannot be promised. ``best_effort``: accept it without a promise.
    :param bytes_expected: size of the transfer, if known. The promise of a deadline covers this
        size.
    :param priority: 0 to 9.
    :param weight: weight among transfers that share a rate, 1 to 1000.
    :param rate_min: promised minimum rate in bytes per second.
    :param rate_max: maximum rate in bytes per second.
    :param activity: key by which the caller can find the transfer.
    :param labels: at most 32 texts chosen by the caller.
    :param scitag: packet mark.
    :param durability: ``none``, ``file`` or ``object``.
    :param overwrite: ``never``, ``if-different`` or ``always``.
    :param verify: read each file back before it gets its final name.
    :param resume: ``verify`` or ``trust`` the durable data of an earlier run.
    :param xattrs: copy extended attributes.
    :param stripe: stripes of new files at a destination on Lustre: ``source`` (needs ``xattrs``),
        ``COUNT`` or ``COUNT:SIZE``. The count ``all`` means all object storage targets.
    :param checksum_attributes: store checksums as extended attributes.
    :param order: ``layout`` or ``file``.
    :param object_size: size of an object in bytes. The endpoint chooses the default.
    :param streams: number of data connections, 1 to 64. With ``"auto"`` the number is tuned during
        the transfer.
    :param clear_data: send data without TLS.
    :param bind: local addresses of data connections.
    :param retry: retries after temporary errors.
    :param bound_seconds: cancel the transfer if no caller has queried it for this number of
        seconds.
    """

    sources: Sequence[Place | str] | Place | str
    destination: Place | str
    id: str | None = None
    content: Content | None = None
    selection: Selection | None = None
    class_: Literal["realtime", "deadline", "background"] | None = None
    deadline: datetime | None = None
    not_before: datetime | None = None
    admission: Literal["required", "best_effort"] | None = None
    bytes_expected: int | None = None
    priority: int | None = None
    weight: int | None = None
    rate_min: int | None = None
    rate_max: int | None = None
    activity: str | None = None
    labels: Mapping[str, str] | None = None
    scitag: Scitag | None = None
    durability: Literal["none", "file", "object"] | None = None
    overwrite: Literal["never", "if-different", "always"] | None = None
    verify: bool | None = None
    resume: Literal["verify", "trust"] | None = None
    xattrs: bool | None = None
    stripe: str | None = None
    checksum_attributes: bool | None = None
    order: Literal["layout", "file"] | None = None
    object_size: int | None = None
    streams: int | Literal["auto"] | None = None
    clear_data: bool | None = None
    bind: Sequence[str] | None = None
    retry: Retry | None = None
    bound_seconds: int | None = None
    replicas: Sequence[Place | str] | None = None
    files_min: int | None = None
    files: Sequence[ListedFile] | None = None


@dataclass(frozen=True, slots=True)
class StagingRequest:
    """A request for a copy between the slow and the fast root.

    :param path: path in the slow root for staging in, and in the fast root for staging out. Without
        a path, staging in selects the newest complete version of ``application`` on a tier, or the
        version ``version``.
    :param id: as for a :class:`Request`. By default the client creates an id.
    :param to: path in the other root, by default the same path.
    :param pin_seconds: time for which the fast copy must not be evicted.
    :param lifetime_seconds: time for which the fast copy is needed.
    :param application: application that will use the copy.
    :param version: version of the application's data, such as the number of a checkpoint.
    :param period_seconds: time between two checkpoints.
    :param replicas: minimum number of durable copies. Only a tier with a replication group makes
        more than 1.
    :param bypass: copy between the slow root and a third root, without a fast copy. The path in the
        third root is ``to`` for staging in, and ``path`` for staging out.
    :param bytes_expected: size of the copy. With it, the endpoint promises or refuses ``deadline``
        immediately.
    :param bound_seconds: as for a :class:`Request`. Files that are already staged are kept.
    """

    path: str | None = None
    id: str | None = None
    to: str | None = None
    recursive: bool | None = None
    pin_seconds: int | None = None
    lifetime_seconds: int | None = None
    application: str | None = None
    version: int | None = None
    period_seconds: int | None = None
    mtbf_seconds: int | None = None
    nodes: int | None = None
    replicas: int | None = None
    bypass: bool | None = None
    priority: int | None = None
    deadline: datetime | None = None
    admission: Literal["required", "best_effort"] | None = None
    bytes_expected: int | None = None
    labels: Mapping[str, str] | None = None
    bound_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """A request for a turn to write a version of an application to a tier.

    :param bytes: size of the version.
    :param id: as for a :class:`Request`. By default the client creates an id.
    :param files: number of files of the version. The write cannot be completed if the version has
        another number of files.
    :param period_seconds: time between two versions.
    :param lease_seconds: time without a call about the job after which the job expires.
    """

    application: str
    version: int
    bytes: int
    id: str | None = None
    files: int | None = None
    period_seconds: int | None = None
    mtbf_seconds: int | None = None
    nodes: int | None = None
    lease_seconds: int | None = None


def write(value: object) -> Json:
    """Return the JSON of a request or of a part of a request. ``None`` is left out.

    :raises DrayUsageError: for a time without a zone.
    """
    if isinstance(value, Request):
        fields = _fields(value)
        sources = value.sources
        several = [sources] if isinstance(sources, (str, Place)) else sources
        fields["sources"] = [_place(source) for source in several]
        fields["destination"] = _place(value.destination)
        if value.replicas is not None:
            fields["replicas"] = [_place(replica) for replica in value.replicas]
        return fields
    if isinstance(value, datetime):
        return write_time(value)
    if isinstance(value, Mapping):
        return {str(key): write(each) for key, each in value.items()}
    if isinstance(value, (str, int, float)) or value is None:
        return value
    if isinstance(value, Sequence):
        return [write(each) for each in value]
    return _fields(value)


def write_time(time: datetime) -> str:
    """Write a time in the form of the API: in UTC, with milliseconds.

    :raises DrayUsageError: if the time has no zone.
    """
    if time.tzinfo is None:
        raise usage(f"{time!r} has no time zone", "use datetime(..., tzinfo=timezone.utc)")
    text = time.astimezone(timezone.utc).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def _fields(value: Json) -> dict[str, Any]:
    fields = {}
    for each in dataclasses.fields(value):
        inner = getattr(value, each.name)
        if inner is not None:
            # The field is called `class_`, because `class` is a keyword of Python.
            fields[each.name.rstrip("_")] = write(inner)
    return fields


def _place(place: Place | str) -> dict[str, Any]:
    return {"url": place} if isinstance(place, str) else _fields(place)
