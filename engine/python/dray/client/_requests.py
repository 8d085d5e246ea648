"""Requests of a caller, as types, and their JSON. ``None`` means: not set."""

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
"""In a change: leave this unchanged, whereas ``None`` removes a bound."""


@dataclass(frozen=True, slots=True)
class Place:
    """A file or folder at an endpoint.

    :param url: ``dray://HOST[:PORT]/ROOT/PATH``, or ``/ROOT/PATH`` at the called endpoint.
    :param ticket: the remote side's permission, a secret; not in ``repr``.
    :param key: fingerprint of the remote side.
    :param address: its data port, if it differs from the URL.
    :param size: bytes of the one file there, if known: replicas are compared by it.
    """

    url: str
    ticket: str | None = field(default=None, repr=False)
    key: str | None = None
    address: str | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Content:
    """Required properties of the one file.

    :param size: bytes.
    :param checksum: ``adler32:HHHHHHHH`` or ``crc32c:HHHHHHHH``.
    """

    size: int | None = None
    checksum: str | None = None


@dataclass(frozen=True, slots=True)
class Range:
    """A part of the one file, in bytes."""

    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Selection:
    """The selected files; as the options of ``dray cp``."""

    recursive: bool | None = None
    include: Sequence[str] | None = None
    exclude: Sequence[str] | None = None
    range: Range | None = None
    links: Literal["keep", "follow", "refuse"] | None = None


@dataclass(frozen=True, slots=True)
class Scitag:
    """The packet mark: numbers of the experiment and of its activity."""

    experiment: int
    activity: int


@dataclass(frozen=True, slots=True)
class Retry:
    """Retries of a temporary error without new durable data.

    :param tries: sessions.
    :param interval_seconds: between them.
    """

    tries: int | None = None
    interval_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """A transfer to be made. Only ``sources`` and ``destination`` are required.

    :param sources: 1 to 256 files or folders of one root, all of them are copied; a text is the URL
        of a :class:`Place`.
    :param destination: target; with a slash at its end, or with several sources, a folder.
    :param replicas: up to 15 equal copies of the one source, read when it fails; of one size.
    :param files_min: fail if fewer files are found, by default 1; 0: an empty source is no error.
    :param id: 1 to 64 characters of ``[A-Za-z0-9._:-]``; the client makes one if none is given.
    :param content: required properties of the one file.
    :param selection: the selected files.
    :param class_: ``realtime``, ``deadline`` or ``background``.
    :param deadline: when it should be done; aware.
    :param not_before: when it may start; aware.
    :param admission: whether it is refused (``required``, the default) or accepted without a
        promise (``best_effort``) if ``deadline`` or ``rate_min`` cannot be promised.
    :param bytes_expected: its size, if known: a deadline is promised for that size.
    :param priority: 0 to 9.
    :param weight: its weight among transfers that share a rate, 1 to 1000.
    :param rate_min: bytes per second it is promised.
    :param rate_max: bytes per second at most.
    :param activity: a key of the caller's, to find it by.
    :param labels: at most 32 texts of the caller's.
    :param scitag: packet mark.
    :param durability: ``none``, ``file`` or ``object``.
    :param overwrite: ``never``, ``if-different`` or ``always``.
    :param verify: read back before the final name.
    :param resume: ``verify`` or ``trust`` the durable data of an earlier run.
    :param xattrs: copy extended attributes.
    :param checksum_attributes: store checksums as extended attributes.
    :param order: ``layout`` or ``file``.
    :param object_size: bytes of an object.
    :param streams: data connections, 1 to 64; ``"auto"``: their number is tuned while it runs.
    :param clear_data: data without TLS.
    :param bind: local addresses of data connections.
    :param retry: retries of temporary errors.
    :param bound_seconds: cancel when no caller has asked for it in this time.
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


@dataclass(frozen=True, slots=True)
class StagingRequest:
    """A copy to be made between the slow and the fast tier.

    :param path: in the slow root for staging in, in the fast root for staging out.
    :param id: as of a transfer; the client makes one if none is given.
    :param to: by default the same path in the other tier.
    :param pin_seconds: how long the fast copy may not be evicted.
    :param lifetime_seconds: how long it is needed.
    :param application: the application that will use it.
    :param version: version of its data, a checkpoint's number.
    :param period_seconds: between checkpoints, with ``mtbf_seconds`` or ``nodes``.
    :param replicas: copies that the transfer makes: 1.
    :param bypass: bypass the fast root: copy between the slow root and another, given as ``to``
        (in) or ``path`` (out); there is no fast copy then.
    :param bound_seconds: as of a :class:`Request`; files that are staged by then stay.
    """

    path: str
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
    labels: Mapping[str, str] | None = None
    bound_seconds: int | None = None


def write(value: object) -> Json:
    """Return the JSON of a request or of a part of one; ``None`` is left out.

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
    """Write a time as the API does: UTC, milliseconds.

    :raises DrayUsageError: if it has no zone.
    """
    if time.tzinfo is None:
        raise usage(
            f"{time!r} does not say its time zone", "use datetime(..., tzinfo=timezone.utc)"
        )
    text = time.astimezone(timezone.utc).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def _fields(value: Json) -> dict[str, Any]:
    fields = {}
    for each in dataclasses.fields(value):
        inner = getattr(value, each.name)
        if inner is not None:
            # `class_` stands for `class`, a keyword of Python.
            fields[each.name.rstrip("_")] = write(inner)
    return fields


def _place(place: Place | str) -> dict[str, Any]:
    return {"url": place} if isinstance(place, str) else _fields(place)
