"""Answers of an endpoint, as types. Times are aware and in UTC, sizes bytes, rates bytes/s."""

from __future__ import annotations

# The reader needs the types of the fields at run time.
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
    "EndpointInfo",
    "Entry",
    "Eta",
    "Event",
    "FileCounts",
    "FileFailure",
    "FileOutcome",
    "Health",
    "Miss",
    "ObjectCounts",
    "Obstacle",
    "Profile",
    "Rates",
    "RootInfo",
    "Scheduling",
    "Space",
    "Staged",
    "Ticket",
    "Transfer",
    "TransferState",
    "You",
]

TransferState = Literal[
    "queued", "active", "waiting", "paused", "done", "incomplete", "failed", "cancelled"
]
TERMINAL_STATES = frozenset({"done", "incomplete", "failed", "cancelled"})


@dataclass(frozen=True, slots=True)
class FileCounts:
    """Files of a transfer.

    :param listed: found so far.
    :param done: safe under their final names, including ``adopted`` and ``skipped``.
    :param failed: failed.
    :param skipped: kept because they may not be replaced.
    :param adopted: existed already and were the same.
    :param listing_done: whether the listing is complete.
    """

    listed: int = 0
    done: int = 0
    failed: int = 0
    skipped: int = 0
    adopted: int = 0
    listing_done: bool = False


@dataclass(frozen=True, slots=True)
class ByteCounts:
    """Bytes of file content.

    :param listed: of listed files.
    :param durable: durable bytes.
    :param resumed: durable bytes of an earlier attempt, and those that this attempt sent without a
        recorded count because the endpoint was killed.
    :param sent: sent bytes, some of them more than once.
    :param adopted: durable bytes of files that existed and were the same.
    :param read_back: read back from the storage and compared, if the called endpoint is the
        destination; without holes.
    """

    listed: int = 0
    durable: int = 0
    resumed: int = 0
    sent: int = 0
    adopted: int = 0
    read_back: int = 0


@dataclass(frozen=True, slots=True)
class ObjectCounts:
    """Objects sent, and objects that an earlier attempt made durable."""

    sent: int = 0
    resumed: int = 0


@dataclass(frozen=True, slots=True)
class Rates:
    """Bytes per second.

    :param now: current rate.
    :param mean: average rate.
    :param granted: upper bound; ``None``: no bound.
    :param planned: planned rate that keeps a promise.
    :param reason: reason of the planned rate, a keyword (``planned``, ``spare``, ``short`` and so
        on).
    """

    now: float | None = None
    mean: float | None = None
    granted: float | None = None
    planned: float | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Profile:
    """Profile of a transfer: seconds by stage, one stage of an end at a time.

    :param source: of the end that reads.
    :param sink: of the end that writes.
    """

    source: Mapping[str, float] = field(default_factory=dict)
    sink: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Eta:
    """Bounds of the time when a promised transfer will be done.

    :param early: with all spare rate.
    :param late: with the planned rate; ``None`` if that is not enough.
    """

    early: datetime
    late: datetime | None = None


@dataclass(frozen=True, slots=True)
class Miss:
    """A promise that will be missed, or was.

    :param cause: the reason.
    :param deadline: the promised deadline.
    :param earliest_finish: earliest possible end that keeps all other promises.
    """

    cause: str
    deadline: datetime | None = None
    earliest_finish: datetime | None = None


@dataclass(frozen=True, slots=True)
class FileFailure:
    """A failed file, below the destination, and its error."""

    path: str
    error: DrayError


@dataclass(frozen=True, slots=True)
class Transfer:
    """The state of a transfer when the endpoint answered.

    :param id: its id, chosen by the caller or the endpoint.
    :param state: see :attr:`is_terminal`.
    :param attempt: number of submissions of this id, and of manual retries.
    :param tries: sessions within the attempt.
    :param version: grows with each change.
    :param attached: of a submission: the transfer existed already.
    :param owner: the account it belongs to.
    :param request: as submitted, without tickets.
    :param submitted_at: time of submission; as the other times, ``None`` until it has happened.
    :param next_try_at: of a waiting transfer.
    :param profile: seconds of the attempt by stage.
    :param bottleneck: the stage that delayed it most (``read``, ``network``, ``write`` and so on).
    :param streams: of an active transfer: data connections in use now, if the endpoint reads, or
        tunes their number.
    :param held: of an active transfer: it keeps its session but moves no data.
    :param eta: expected end at the current rate; ``None`` while it is unknown.
    :param promised: whether its deadline, or its rate, is promised.
    :param eta_between: of a promised transfer that was requested by its id.
    :param miss: its promise will be missed.
    :param purged: of a cancelled transfer: its partial data was removed, as requested.
    :param error: of the transfer as a whole.
    :param failures: the first ten failed files; all: :meth:`Client.files`.
    :param source: index of the replica in use.
    :param notices: the last ten notices.
    :param silent_seconds: of an active transfer: seconds without progress, from 10 on.
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
    notices: tuple[str, ...] = ()
    silent_seconds: int | None = None
    purged: bool = False

    @property
    def is_terminal(self) -> bool:
        """True if it has ended, so that only a call can change it."""
        return self.state in TERMINAL_STATES

    def raise_for_failures(self) -> None:
        """Raise the transfer's error, or that of the first failed file, if there is one.

        :raises DrayError: that error.
        """
        if self.error is not None:
            raise self.error
        for failure in self.failures:
            raise failure.error


@dataclass(frozen=True, slots=True)
class FileOutcome:
    """The outcome of a file.

    :param path: below the destination.
    :param state: ``done`` or ``failed``.
    :param size: bytes, if known.
    :param adler32: eight hexadecimal digits, if known.
    :param crc32c: eight hexadecimal digits, if known.
    :param error: of a failed file.
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

    :param id: its number; the next event has a greater one.
    :param type: ``state``, ``progress``, ``file_failed``, ``notice``, ``planned``; ``gap``: older
        events are lost, list instead; new types may be added.
    :param at: its time.
    :param transfer: the transfer, if it is about one.
    :param state: of that transfer.
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
    """Permission to open sessions of one transfer at the endpoint that issued it.

    :param id: its id; no secret.
    :param transfer: its transfer.
    :param direction: the holder's right here: ``read`` or ``write``.
    :param paths: the permitted paths.
    :param owner: the owner of the sessions.
    :param peer_key: fingerprint of the only endpoint that may use it.
    :param sessions: live sessions.
    :param weight: their weight in the division of the rate at this end.
    :param rate_min: bytes per second that they should get there.
    :param rate_max: bytes per second that they must not exceed there.
    :param ticket: the secret, only in the answer to the minting call; not in ``repr``.
    :param key: fingerprint of the endpoint that issued it.
    :param address: its data port.
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
    ticket: str | None = field(default=None, repr=False)
    key: str | None = None
    address: str | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or folder.

    :param path: the API path, ``/ROOT/...``.
    :param name: its last part.
    :param type: its type.
    :param size: bytes.
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
    :param size: bytes.
    :param from_: ``attribute``: stored when the file was written; ``read``: computed now.
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

    :param kind: ``resource``, ``rate_max``, ``deadline``, ``full`` or ``twice``.
    :param resource: ``link``, ``root:NAME``, ``peer:NAME`` or ``owner:NAME``.
    :param promises: number of other transfers that need it in the same time.
    :param transfers: the caller's own among them.
    """

    kind: str
    resource: str | None = None
    promises: int = 0
    transfers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AdmissionVerdict:
    """The decision about one request.

    :param promised: whether its deadline, or its rate, would be promised.
    :param rate: planned bytes per second at its start.
    :param finish: planned end.
    :param latest: latest end.
    :param earliest_finish: of a refused request: the earliest deadline that could be promised.
    :param rate_needed: of a refused request: bytes per second that it needs.
    :param rate_available: of a refused request: bytes per second that could be promised in its
        time.
    :param obstacle: of a refused request: the conflict.
    :param reasons: the reasons, in words.
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
    """Decision on requests, without a change: each could be promised, or not."""

    decision: Literal["accept", "refuse"]
    transfers: tuple[AdmissionVerdict, ...] = ()


@dataclass(frozen=True, slots=True)
class Staged:
    """A copy between the slow and the fast tier: the request and its state.

    :param direction: to the fast tier, or from it.
    :param transfer: id of the transfer that makes it.
    :param state: ``queued``, ``moving``, ``staged``, ``failed`` or ``evicted``.
    :param pinned_until: the fast copy stays at least until then.
    :param expires_at: the fast copy may be evicted after that.
    :param bytes: its size.
    :param error: why it failed.
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
    labels: Mapping[str, str] = field(default_factory=dict)
    bound_seconds: int | None = None
    direction: Literal["in", "out"] | None = None
    transfer: str | None = None
    pinned_until: datetime | None = None
    expires_at: datetime | None = None
    bytes: int | None = None
    error: DrayError | None = None


@dataclass(frozen=True, slots=True)
class RootInfo:
    """An exported root and the caller's permissions there."""

    name: str
    read: bool = False
    write: bool = False
    stage: bool = False


@dataclass(frozen=True, slots=True)
class You:
    """The identity of the caller at the endpoint."""

    principal: str | None = None
    owner: str | None = None
    administrator: bool = False


@dataclass(frozen=True, slots=True)
class Scheduling:
    """The policy that decides which transfers of an endpoint run, and which are held.

    :param policy: name of a policy; the endpoint's configuration lists them.
    :param max_running: concurrent transfers; ``None`` for the policy's default.
    :param quota: bytes of one turn of ``round_robin``.
    :param round_robin_by: parties of the turns: ``owners`` or ``pairs``.
    :param aging_seconds: with ``priority``: a waiting transfer rises one step in this time.
    :param patience_seconds: with ``fair``: once in this time the transfer that has waited longest
        starts.
    :param held_max: held transfers that keep their sessions.
    """

    policy: str = "fair"
    max_running: int | None = None
    quota: int = 0
    round_robin_by: str = "owners"
    aging_seconds: int = 0
    patience_seconds: int = 0
    held_max: int = 0


@dataclass(frozen=True, slots=True)
class EndpointInfo:
    """An endpoint's description of itself.

    :param key: its fingerprint, ``sha256:`` and 64 hexadecimal digits; the ``pin`` of clients and
        the ``peer_key`` of tickets.
    :param address: its data port.
    :param limits: its limits, unparsed.
    :param scheduling: the policy in force.
    """

    name: str
    version: str
    key: str
    address: str | None = None
    roots: tuple[RootInfo, ...] = ()
    you: You = field(default_factory=You)
    limits: Mapping[str, Any] = field(default_factory=dict)
    scheduling: Scheduling = field(default_factory=Scheduling)


@dataclass(frozen=True, slots=True)
class Health:
    """``ok``, or ``stopping``: it accepts no new work."""

    status: str
