"""Types of an endpoint's answers.

Times are in UTC with a zone, sizes in bytes, rates in bytes per second.
"""

from __future__ import annotations

# The reader of answers needs the types of the fields at run time.
from collections.abc import Mapping  # noqa: TC003
from dataclasses import dataclass, field
from datetime import datetime  # noqa: TC003
from typing import Any, Literal

from dray.errors import DrayError  # noqa: TC001

__all__ = [
    "Admission",
    "AdmissionVerdict",
    "ByteCounts",
    "Checksum",
    "Entry",
    "Eta",
    "Event",
    "FileCounts",
    "FileFailure",
    "FileOutcome",
    "Miss",
    "ObjectCounts",
    "Obstacle",
    "Profile",
    "Rates",
    "Space",
    "SpaceClaim",
    "Staged",
    "Ticket",
    "Transfer",
    "TransferState",
]

TransferState = Literal[
    "queued", "active", "waiting", "paused", "done", "incomplete", "failed", "cancelled"
]
TERMINAL_STATES = frozenset({"done", "incomplete", "failed", "cancelled"})


@dataclass(frozen=True, slots=True)
class FileCounts:
    """Number of files of a transfer.

    :param listed: files found so far.
    :param done: files that have their final names and are as durable as the request asks, including
        ``adopted`` and ``skipped``.
    :param failed: files that failed.
    :param skipped: files that were not copied, because the destination has a file of the same name,
        and the request does not permit its replacement.
    :param adopted: files that existed at the destination with the same content.
    :param listing_done: true if the listing is complete.
    """

    listed: int = 0
    done: int = 0
    failed: int = 0
    skipped: int = 0
    adopted: int = 0
    listing_done: bool = False


@dataclass(frozen=True, slots=True)
class ByteCounts:
    """Number of bytes of file content.

    :param listed: bytes of listed files.
    :param durable: durable bytes.
    :param resumed: durable bytes that an earlier attempt sent. An endpoint that is killed loses the
        count of the bytes that it sent in the last second. These bytes then also count here.
    :param sent: bytes sent, including repetitions.
    :param adopted: durable bytes of files that existed at the destination with the same content.
    :param read_back: bytes read back from the storage and compared. Holes of sparse files do not
        count. The number is 0 if the destination is at another endpoint than the called one.
    """

    listed: int = 0
    durable: int = 0
    resumed: int = 0
    sent: int = 0
    adopted: int = 0
    read_back: int = 0


@dataclass(frozen=True, slots=True)
class ObjectCounts:
    """Number of objects sent, and of objects that an earlier attempt made durable."""

    sent: int = 0
    resumed: int = 0


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates in bytes per second.

    :param now: current rate.
    :param mean: average rate.
    :param granted: upper bound of the rate. ``None`` means no bound.
    :param planned: rate that the endpoint has planned to keep the promise of the transfer.
    :param reason: a keyword for the reason of the planned rate (``planned``, ``spare``, ``short``
        and so on).
    """

    now: float | None = None
    mean: float | None = None
    granted: float | None = None
    planned: float | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class RateLimit:
    """Limit of the called endpoint that determines the permitted rate of a transfer.

    :param kind: ``request``, ``endpoint``, ``root``, ``owner``, ``peer`` or ``link``.
    :param rate: the limit in bytes per second, which several transfers may share.
    :param name: name of the root, the owner or the other endpoint.
    """

    kind: str
    rate: float
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Profile:
    """Profile of a transfer: the seconds that each end spent in each stage.

    :param source: seconds by stage of the end that reads.
    :param sink: seconds by stage of the end that writes.
    """

    source: Mapping[str, float] = field(default_factory=dict)
    sink: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Eta:
    """Earliest and latest expected end of a promised transfer.

    :param early: end if the transfer gets all spare rate.
    :param late: end with the planned rate. ``None`` if that rate is not enough.
    """

    early: datetime
    late: datetime | None = None


@dataclass(frozen=True, slots=True)
class Miss:
    """A promise that was missed or is expected to be missed.

    :param cause: the reason.
    :param deadline: the promised deadline.
    :param earliest_finish: earliest possible end if all other promises are kept.
    """

    cause: str
    deadline: datetime | None = None
    earliest_finish: datetime | None = None


@dataclass(frozen=True, slots=True)
class FileFailure:
    """A failed file: its path relative to the destination, and its error."""

    path: str
    error: DrayError


@dataclass(frozen=True, slots=True)
class SpaceClaim:
    """The claim of a transfer on the space of a tier.

    :param bytes: claimed bytes. ``None`` if the size is not known before the files are listed.
    :param admitted: false while the transfer waits for space.
    :param reason: reason for which the transfer waits.
    :param free_at: time at which the tier expects to have enough space. ``None`` while it is
        unknown.
    """

    tier: str
    bytes: int | None = None
    admitted: bool = True
    reason: str | None = None
    free_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ReceiptReference:
    """Reference to a receipt: its id, and its number in the endpoint's chain of receipts."""

    id: str
    sequence: int


@dataclass(frozen=True, slots=True)
class ReceiptKeys:
    """The public keys of an endpoint's receipts.

    :param keys: the keys as JWKs (RFC 8037), the present key last.
    :param last: the newest receipt, or ``None`` if the endpoint has written no receipt.
    """

    keys: tuple[Mapping[str, Any], ...] = ()
    last: ReceiptReference | None = None


@dataclass(frozen=True, slots=True)
class Transfer:
    """The state of a transfer at the time of the answer.

    :param id: id of the transfer, chosen by the caller or the endpoint.
    :param state: state of the transfer. See :attr:`is_terminal`.
    :param attempt: number of submissions of this id and of manual retries.
    :param tries: number of sessions in this attempt.
    :param version: number that grows with each change.
    :param attached: in the answer to a submission: true if the transfer existed already.
    :param owner: account that owns the transfer.
    :param request: the request as submitted, without tickets.
    :param submitted_at: time of the submission.
    :param started_at: start time, or ``None`` before the start.
    :param ended_at: end time, or ``None`` before the end.
    :param next_try_at: time of the next session of a waiting transfer.
    :param profile: seconds that each end has spent in each stage during this attempt.
    :param bottleneck: the stage that delayed the transfer most (``read``, ``network``, ``write``
        and so on).
    :param streams: number of data connections of an active transfer. ``None`` unless the called
        endpoint is the source or tunes this number.
    :param held: true if the transfer is active but moves no data, because the scheduling policy
        prefers other transfers.
    :param eta: expected end at the current rate. ``None`` while no data moves.
    :param promised: true if the deadline or the rate is promised.
    :param eta_between: earliest and latest end of a promised transfer. Only in the answer for a
        single transfer.
    :param miss: set if the endpoint predicts that it cannot keep the promise.
    :param purged: true if the transfer was cancelled and its partial data was removed.
    :param error: error of the transfer as a whole.
    :param failures: the first ten failed files. :meth:`Client.files` returns all of them.
    :param source: 0 if the transfer reads the source, 1 for the first replica, and so on.
    :param space: claim on the space of a tier, if the destination is in a fast root of a tier and
        the transfer has not ended.
    :param notices: the last ten notices.
    :param silent_seconds: seconds since an active transfer last moved data. ``None`` below 10
        seconds.
    :param trace_id: id of the trace to which the spans of the transfer belong.
    :param rate_limit: the limit that determines the permitted rate of an active transfer.
    :param interrupted_since: time at which a session broke off, if no later session has moved data.
        The endpoint tries again automatically.
    :param receipt: receipt of this attempt. ``None`` before the end, for a moment after the end,
        and if there is no receipt.
    """

    id: str
    state: TransferState
    attempt: int = 1
    tries: int = 0
    version: int = 0
    attached: bool = False
    owner: str = ""
    request: Mapping[str, Any] = field(default_factory=dict)
    submitted_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    next_try_at: datetime | None = None
    files: FileCounts = field(default_factory=FileCounts)
    bytes: ByteCounts = field(default_factory=ByteCounts)
    objects: ObjectCounts = field(default_factory=ObjectCounts)
    rate: Rates = field(default_factory=Rates)
    profile: Profile = field(default_factory=Profile)
    bottleneck: str | None = None
    streams: int | None = None
    held: bool = False
    eta: datetime | None = None
    promised: bool = False
    eta_between: Eta | None = None
    miss: Miss | None = None
    error: DrayError | None = None
    failures: tuple[FileFailure, ...] = ()
    source: int | None = None
    space: SpaceClaim | None = None
    notices: tuple[str, ...] = ()
    silent_seconds: int | None = None
    purged: bool = False
    trace_id: str | None = None
    rate_limit: RateLimit | None = None
    interrupted_since: datetime | None = None
    receipt: ReceiptReference | None = None

    @property
    def is_terminal(self) -> bool:
        """True if the transfer has ended. Only a call can then change the transfer."""
        return self.state in TERMINAL_STATES

    def raise_for_failures(self) -> None:
        """Raise the error of the transfer, or if it has none, the error of its first failed file.

        Return if there is no error.

        :raises DrayError: the error.
        """
        if self.error is not None:
            raise self.error
        for failure in self.failures:
            raise failure.error


@dataclass(frozen=True, slots=True)
class FileOutcome:
    """The outcome of a file.

    :param path: path below the destination.
    :param state: ``done`` or ``failed``.
    :param size: size in bytes, if known.
    :param adler32: eight hexadecimal digits, if known.
    :param crc32c: eight hexadecimal digits, if known.
    :param error: error of a failed file.
    """

    path: str
    state: Literal["done", "failed"]
    size: int | None = None
    adler32: str | None = None
    crc32c: str | None = None
    error: DrayError | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """An event.

    :param id: number of the event. Later events have greater numbers.
    :param type: ``state``, ``progress``, ``file_failed``, ``notice``, ``planned`` or ``gap``.
        ``gap`` means that older events are lost, so the caller should list the transfers. New types
        may be added.
    :param at: time of the event.
    :param transfer: id of the transfer, if the event is about a transfer.
    :param state: state of that transfer.
    :param fields: all fields of the event, unparsed.
    """

    id: int
    type: str
    at: datetime | None = None
    transfer: str | None = None
    state: TransferState | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ticket:
    """Permission to open sessions of one transfer at the endpoint that issued the ticket.

    :param id: id of the ticket, which is not secret.
    :param transfer: id of the transfer.
    :param direction: the right of the holder at the issuing endpoint: ``read`` or ``write``.
    :param paths: the permitted paths.
    :param owner: owner of the sessions.
    :param peer_key: fingerprint of the only endpoint that may use the ticket.
    :param sessions: number of live sessions that use the ticket.
    :param weight: weight of the sessions when the issuing endpoint divides its rate.
    :param rate_min: minimum rate of the sessions at the issuing endpoint in bytes per second.
    :param rate_max: maximum rate of the sessions at the issuing endpoint in bytes per second.
    :param space: the space of a tier that the ticket claims until the end of the transfer.
    :param ticket: the secret. Only in the answer to the call that minted the ticket, and not in
        ``repr``.
    :param key: fingerprint of the issuing endpoint.
    :param address: data port of the issuing endpoint.
    """

    id: str
    transfer: str = ""
    direction: Literal["read", "write"] = "read"
    paths: tuple[str, ...] = ()
    owner: str = ""
    peer_key: str = ""
    issued_at: datetime | None = None
    expires_at: datetime | None = None
    renewable_until: datetime | None = None
    revoked: bool = False
    sessions: int = 0
    weight: int = 100
    rate_min: int | None = None
    rate_max: int | None = None
    space: SpaceClaim | None = None
    ticket: str | None = field(default=None, repr=False)
    key: str | None = None
    address: str | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or folder.

    :param path: the API path, ``/ROOT/...``.
    :param name: last component of the path.
    :param type: type of the entry.
    :param size: size in bytes.
    :param mode: permission bits in octal.
    :param link: target of a symbolic link.
    """

    path: str
    name: str
    type: Literal["file", "directory", "symlink", "other"]
    size: int | None = None
    modified_at: datetime | None = None
    mode: str | None = None
    link: str | None = None


@dataclass(frozen=True, slots=True)
class Checksum:
    """The checksum of a file.

    :param algorithm: ``adler32`` or ``crc32c``.
    :param checksum: eight hexadecimal digits.
    :param size: size of the file in bytes.
    :param from_: ``attribute`` if the checksum was stored when the file was written, ``read`` if
        the endpoint has computed it now.
    """

    path: str
    algorithm: str
    checksum: str
    size: int
    from_: str = "read"


@dataclass(frozen=True, slots=True)
class Space:
    """Bytes of a file system: total, free, and available to the caller."""

    total: int
    free: int
    available: int


@dataclass(frozen=True, slots=True)
class Obstacle:
    """The conflict that prevents a promise.

    :param kind: ``resource``: the capacity of a resource does not suffice. ``rate_max``: the
        request's own maximum rate is too low. ``deadline``: the deadline is not after the start.
        ``full``: the plan of the endpoint already has the maximum number of transfers. ``twice``: a
        transfer with the same id exists.
    :param resource: ``link``, ``root:NAME``, ``tier:NAME``, ``peer:NAME`` or ``owner:NAME``.
    :param promises: number of promised transfers that need the resource at the same time.
    :param transfers: ids of those promised transfers that belong to the caller.
    """

    kind: str
    resource: str | None = None
    promises: int = 0
    transfers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AdmissionVerdict:
    """The decision about one request.

    :param promised: true if the deadline or the rate would be promised.
    :param rate: planned rate at the start, in bytes per second.
    :param finish: planned end of the transfer.
    :param latest: promised latest end, which is the deadline. ``None`` if no end is promised.
    :param earliest_finish: for a refused request: the earliest deadline that could be promised.
    :param rate_needed: for a refused request: the rate that the request needs, in bytes per second.
    :param rate_available: for a refused request: the rate that could be promised until the
        requested deadline, in bytes per second.
    :param obstacle: for a refused request: the conflict that prevents the promise.
    :param reasons: the reasons of the refusal as texts.
    """

    promised: bool = False
    rate: float | None = None
    finish: datetime | None = None
    latest: datetime | None = None
    earliest_finish: datetime | None = None
    rate_needed: float | None = None
    rate_available: float | None = None
    obstacle: Obstacle | None = None
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Admission:
    """Decisions about requests that were not submitted."""

    decision: Literal["accept", "refuse"]
    transfers: tuple[AdmissionVerdict, ...] = ()


@dataclass(frozen=True, slots=True)
class Staged:
    """A copy between the slow and the fast root: the request and its state.

    :param direction: direction of the copy, to or from the fast tier.
    :param transfer: id of the transfer that makes the copy.
    :param hit: true if the fast copy existed at the time of the request. Nothing is then copied,
        and ``transfer`` is ``None``.
    :param state: ``queued``, ``moving``, ``staged``, ``failed`` or ``evicted``.
    :param pinned_until: time until which the fast copy is pinned.
    :param expires_at: time after which the fast copy may be evicted.
    :param bytes: size of the copy in bytes.
    :param error: reason of a failure.
    """

    id: str
    path: str
    state: str
    to: str | None = None
    recursive: bool = False
    pin_seconds: int | None = None
    lifetime_seconds: int | None = None
    application: str | None = None
    version: int | None = None
    period_seconds: int | None = None
    mtbf_seconds: int | None = None
    nodes: int | None = None
    replicas: int = 1
    bypass: bool = False
    priority: int | None = None
    deadline: datetime | None = None
    admission: str | None = None
    bytes_expected: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    bound_seconds: int | None = None
    direction: Literal["in", "out"] | None = None
    transfer: str | None = None
    hit: bool = False
    pinned_until: datetime | None = None
    expires_at: datetime | None = None
    bytes: int | None = None
    error: DrayError | None = None
