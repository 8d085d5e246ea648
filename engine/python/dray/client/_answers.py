"""What an endpoint answers, as types. Times are aware and in UTC, sizes bytes, rates bytes/s."""

from __future__ import annotations

# The reader asks for the types of the fields while the program runs.
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
    :param done: safe under their final names, ``adopted`` and ``skipped`` included.
    :param failed: that failed.
    :param skipped: left as they were because they may not be replaced.
    :param adopted: that stood there already and were the same.
    :param listing_done: whether everything there is to send is known.
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
    :param durable: that are safe.
    :param resumed: of them, those that an earlier attempt had made safe, and those that this
        attempt sent without a count being kept: the endpoint was killed.
    :param sent: that travelled, some of them more than once.
    :param adopted: of the durable ones, those of files that stood there and were the same.
    :param read_back: read back from the storage and compared, where the endpoint that was asked
        is the destination; those of holes are not read.
    """

    listed: int = 0
    durable: int = 0
    resumed: int = 0
    sent: int = 0
    adopted: int = 0
    read_back: int = 0


@dataclass(frozen=True, slots=True)
class ObjectCounts:
    """Objects that travelled, and those an earlier attempt had made safe."""

    sent: int = 0
    resumed: int = 0


@dataclass(frozen=True, slots=True)
class Rates:
    """Bytes per second.

    :param now: just now.
    :param mean: on average.
    :param granted: at most; ``None``: no bound.
    :param planned: what is planned, so that a promise is kept.
    :param reason: why so much is planned, in a word (``planned``, ``spare``, ``short`` and so on).
    """

    now: float | None = None
    mean: float | None = None
    granted: float | None = None
    planned: float | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Profile:
    """Where the time went: seconds by stage, one stage of an end at a time.

    :param source: of the end that reads.
    :param sink: of the end that writes.
    """

    source: Mapping[str, float] = field(default_factory=dict)
    sink: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Eta:
    """Between which times a promised transfer will be done.

    :param early: if it gets all that is spare.
    :param late: if it gets what is planned; ``None`` when that is not enough.
    """

    early: datetime
    late: datetime | None = None


@dataclass(frozen=True, slots=True)
class Miss:
    """A promise that will be missed, or was.

    :param cause: why.
    :param deadline: what was promised.
    :param earliest_finish: when it can be done instead, all other promises kept.
    """

    cause: str
    deadline: datetime | None = None
    earliest_finish: datetime | None = None


@dataclass(frozen=True, slots=True)
class FileFailure:
    """A file that failed, below the destination, and why."""

    path: str
    error: DrayError


@dataclass(frozen=True, slots=True)
class Transfer:
    """A transfer as it stood when the endpoint answered.

    :param id: its name, the caller's or the endpoint's.
    :param state: see :attr:`is_terminal`.
    :param attempt: submissions of this id, and retries by hand.
    :param tries: sessions within the attempt.
    :param version: grows with each change.
    :param attached: of a submission: it was there already.
    :param owner: the account it belongs to.
    :param request: as submitted, tickets left out.
    :param submitted_at: when; so with the other times, ``None`` while it has not happened.
    :param next_try_at: of a waiting one.
    :param profile: where the time of the attempt went.
    :param bottleneck: the stage that held it up most (``read``, ``network``, ``write`` and so on).
    :param streams: of an active one: data connections that are given objects just now, where the
        endpoint knows: where it reads, or finds their number.
    :param held: of an active one: it keeps its session and moves nothing for now.
    :param eta: when it should be done at the rate of now; ``None`` while nobody can know.
    :param promised: whether its deadline, or its rate, is promised.
    :param eta_between: of a promised one, asked for by its id.
    :param miss: that its promise will be missed.
    :param error: of the transfer as a whole.
    :param failures: the first ten files that failed; all: :meth:`Client.files`.
    :param source: index of the replica in use.
    :param notices: the last ten things worth a word.
    :param silent_seconds: of an active one: for how long nothing has moved, from 10 on.
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

    @property
    def is_terminal(self) -> bool:
        """Whether nothing more happens to it unless somebody asks."""
        return self.state in TERMINAL_STATES

    def raise_for_failures(self) -> None:
        """Raise the transfer's error, or that of the first file that failed, if there is one.

        :raises DrayError: that one.
        """
        if self.error is not None:
            raise self.error
        for failure in self.failures:
            raise failure.error


@dataclass(frozen=True, slots=True)
class FileOutcome:
    """What became of one file.

    :param path: below the destination.
    :param state: ``done`` or ``failed``.
    :param size: bytes, where known.
    :param adler32: eight hexadecimal digits, where known.
    :param crc32c: eight hexadecimal digits, where known.
    :param error: of a failed one.
    """

    path: str
    state: Literal["done", "failed"]
    size: int | None = None
    adler32: str | None = None
    crc32c: str | None = None
    error: DrayError | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened.

    :param id: its number; the next event has a greater one.
    :param type: ``state``, ``progress``, ``file_failed``, ``notice``, ``planned``; ``gap``: older
        ones are gone, list instead; others may come.
    :param at: when.
    :param transfer: which one, if it is about one.
    :param state: of that transfer.
    :param fields: everything the event holds, as it came.
    """

    id: int
    type: str
    at: datetime | None = None
    transfer: str | None = None
    state: TransferState | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ticket:
    """Leave to open sessions of one transfer at the endpoint that minted it.

    :param id: its name; no secret.
    :param transfer: the transfer it is for.
    :param direction: what its holder may do here: ``read`` or ``write``.
    :param paths: where.
    :param owner: in whose name.
    :param peer_key: fingerprint of the only endpoint that may show it.
    :param sessions: live ones.
    :param weight: their part of what is shared at this end.
    :param rate_min: bytes per second that they should have there.
    :param rate_max: bytes per second that they must not exceed there.
    :param ticket: the secret, in the answer to minting alone; not in ``repr``.
    :param key: fingerprint of the endpoint that minted it.
    :param address: where its data port is.
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
    :param type: what it is.
    :param size: bytes.
    :param mode: permission bits in octal.
    :param link: where a symbolic link points.
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
    :param from_: ``attribute``: kept when it was written; ``read``: computed now.
    """

    path: str
    algorithm: str
    checksum: str
    size: int
    from_: str = "read"


@dataclass(frozen=True, slots=True)
class Space:
    """Bytes of a file system: in all, free, and free for the caller."""

    total: int
    free: int
    available: int


@dataclass(frozen=True, slots=True)
class Obstacle:
    """What is in a request's way.

    :param kind: ``resource``, ``rate_max``, ``deadline``, ``full`` or ``twice``.
    :param resource: ``link``, ``root:NAME``, ``peer:NAME`` or ``owner:NAME``.
    :param promises: how many others need it in the same time.
    :param transfers: those of them that are the caller's.
    """

    kind: str
    resource: str | None = None
    promises: int = 0
    transfers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AdmissionVerdict:
    """What would become of one request.

    :param promised: whether its deadline, or its rate, would be promised.
    :param rate: bytes per second by plan, where it begins.
    :param finish: when it would end by plan.
    :param latest: when it would end at the latest.
    :param earliest_finish: of one that is refused: the earliest deadline that could be promised.
    :param rate_needed: of one that is refused: bytes per second that it needs.
    :param rate_available: of one that is refused: what could be promised in its time.
    :param obstacle: of one that is refused: what is in its way.
    :param reasons: why, in words.
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
    """Whether requests could be carried as asked; nothing was changed."""

    decision: Literal["accept", "refuse"]
    transfers: tuple[AdmissionVerdict, ...] = ()


@dataclass(frozen=True, slots=True)
class Staged:
    """A copy between the slow and the fast tier: what was asked for, and how it stands.

    :param direction: to the fast tier, or from it.
    :param transfer: id of the transfer that makes it.
    :param state: ``queued``, ``moving``, ``staged``, ``failed`` or ``evicted``.
    :param pinned_until: the fast copy stays at least so long.
    :param expires_at: the fast copy may go then.
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
    """An exported root and what the caller may do there."""

    name: str
    read: bool = False
    write: bool = False
    stage: bool = False


@dataclass(frozen=True, slots=True)
class You:
    """Who the endpoint takes the caller for."""

    principal: str | None = None
    owner: str | None = None
    administrator: bool = False


@dataclass(frozen=True, slots=True)
class Scheduling:
    """Which transfers of an endpoint run, and which are held meanwhile.

    :param policy: ``fair``, ``fcfs``, ``priority``, ``round_robin``, ``pairs``.
    :param at_once: transfers side by side; ``None`` for what suits the policy.
    :param quota: bytes of one turn of ``round_robin``.
    :param turns_of: who takes turns there: ``owners`` or ``pairs``.
    :param aging_seconds: with ``priority`` what waits rises one step in each.
    :param patience_seconds: with ``fair`` one start in each goes to what has waited longest.
    :param held_max: held transfers that keep their sessions.
    """

    policy: str = "fair"
    at_once: int | None = None
    quota: int = 0
    turns_of: str = "owners"
    aging_seconds: int = 0
    patience_seconds: int = 0
    held_max: int = 0


@dataclass(frozen=True, slots=True)
class EndpointInfo:
    """An endpoint about itself.

    :param key: its fingerprint, ``sha256:`` and 64 hexadecimal digits; the ``pin`` of clients and
        the ``peer_key`` of tickets.
    :param address: where its data port is.
    :param limits: what it bounds, as it says it.
    :param scheduling: which transfers run there.
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
    """``ok``, or ``stopping``: it takes nothing new."""

    status: str
