"""What a caller asks for, as types, and their JSON. ``None`` means: not said."""

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
"""Of a change: leave this as it is, where ``None`` takes a bound away."""


@dataclass(frozen=True, slots=True)
class Place:
    """A file or folder at an endpoint.

    :param url: ``dray://HOST[:PORT]/ROOT/PATH``, or ``/ROOT/PATH`` at the endpoint that is asked.
    :param ticket: the remote side's leave, a secret; not in ``repr``.
    :param key: fingerprint of the remote side.
    :param address: where its data port is, if not where the URL says.
    :param size: bytes of the one file there, where known: replicas are compared by it.
    """

    url: str
    ticket: str | None = field(default=None, repr=False)
    key: str | None = None
    address: str | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Content:
    """What the one file must be.

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
    """What to take of what is there; as the options of ``dray cp``."""

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
    """How often a temporary error is tried again without anything new being safe.

    :param tries: sessions.
    :param interval_seconds: between them.
    """

    tries: int | None = None
    interval_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """A transfer to be made. Only ``sources`` and ``destination`` are needed.

    :param sources: what is copied, 1 to 256 files or folders of one root, all of them; a text is
        the URL of a :class:`Place`.
    :param destination: where to; with a slash at its end, or with several sources, a folder.
    :param replicas: up to 15 equal copies of the one source, read when it fails; of one size.
    :param files_min: fail when fewer files are found, 1 where it is not said; 0: nothing to copy
        is no error.
    :param id: 1 to 64 characters of ``[A-Za-z0-9._:-]``; the client makes one if none is given.
    :param content: what the one file must be.
    :param selection: which files.
    :param class_: ``realtime``, ``deadline`` or ``background``.
    :param deadline: when it should be done; aware.
    :param not_before: when it may begin; aware.
    :param admission: whether it is refused (``required``, the default) or taken without a promise
        (``best_effort``) when ``deadline`` or ``rate_min`` cannot be promised.
    :param bytes_expected: how much it will be, where known: a deadline is promised for so much.
    :param priority: 0 to 9.
    :param weight: its part of what is shared, 1 to 1000.
    :param rate_min: bytes per second it is promised.
    :param rate_max: bytes per second at most.
    :param activity: a word of the caller's, to find it by.
    :param labels: at most 32 texts of the caller's.
    :param scitag: packet mark.
    :param durability: ``none``, ``file`` or ``object``.
    :param overwrite: ``never``, ``if-different`` or ``always``.
    :param verify: read back before the final name.
    :param resume: ``verify`` or ``trust`` what an earlier run made durable.
    :param xattrs: carry extended attributes.
    :param checksum_attributes: keep checksums as extended attributes.
    :param order: ``layout`` or ``file``.
    :param object_size: bytes of an object.
    :param streams: data connections, 1 to 64; ``"auto"``: their number is found while it runs.
    :param clear_data: data without TLS.
    :param bind: local addresses of data connections.
    :param retry: how often to try again.
    :param bound_seconds: cancel when nobody has asked for it for so long.
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
    :param pin_seconds: how long the fast copy may not be freed.
    :param lifetime_seconds: how long it is wanted.
    :param application: who will use it.
    :param version: which version of its data, a checkpoint's number.
    :param period_seconds: between checkpoints, with ``mtbf_seconds`` or ``nodes``.
    :param replicas: copies that the transfer makes: 1.
    :param bypass: past the fast root: between the slow one and another, given as ``to`` (in) or
        ``path`` (out); there is no fast copy then.
    :param bound_seconds: as of a :class:`Request`; what is staged by then stays.
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
    """Give the JSON of a request or of a part of one; what is ``None`` is left out.

    :raises DrayUsageError: for a time that does not say its zone.
    """
    if isinstance(value, Request):
        words = _fields(value)
        sources = value.sources
        several = [sources] if isinstance(sources, (str, Place)) else sources
        words["sources"] = [_place(source) for source in several]
        words["destination"] = _place(value.destination)
        if value.replicas is not None:
            words["replicas"] = [_place(replica) for replica in value.replicas]
        return words
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

    :raises DrayUsageError: if it does not say its zone.
    """
    if time.tzinfo is None:
        raise usage(
            f"{time!r} does not say its time zone", "use datetime(..., tzinfo=timezone.utc)"
        )
    text = time.astimezone(timezone.utc).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def _fields(value: Json) -> dict[str, Any]:
    words = {}
    for each in dataclasses.fields(value):
        inner = getattr(value, each.name)
        if inner is not None:
            # `class_` stands for `class`, which Python keeps to itself.
            words[each.name.rstrip("_")] = write(inner)
    return words


def _place(place: Place | str) -> dict[str, Any]:
    return {"url": place} if isinstance(place, str) else _fields(place)
