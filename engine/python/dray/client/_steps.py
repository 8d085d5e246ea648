"""The interface between decisions and sockets.

A *flow* is a generator: it yields the next step, is sent the result of the step, and returns the
result of the call. It decides everything (what to send, whether to retry, when to give up) and does
no I/O. A client executes the steps, blocking or awaiting. So both clients behave the same, and a
test can drive a flow without a socket or a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

if TYPE_CHECKING:
    from dray.errors import DrayError

__all__ = [
    "Answer",
    "Clock",
    "Emit",
    "Fault",
    "Flow",
    "Json",
    "Open",
    "Opened",
    "Pause",
    "Read",
    "Reply",
    "Send",
    "Step",
]

T = TypeVar("T")

Json: TypeAlias = Any
"""Any JSON value; the reader checks it before use."""

Clock: TypeAlias = Callable[[], float]
"""Monotonic seconds."""


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request and read the answer.

    :param target: path and query, percent-encoded.
    :param seconds: for all of it.
    :param answer_bytes_max: a longer body is a fault.
    :param with_token: send the token.
    """

    method: str
    target: str
    seconds: float
    answer_bytes_max: int
    body: bytes | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)
    with_token: bool = True


@dataclass(frozen=True, slots=True)
class Open:
    """Send a request whose answer is read piece by piece. An open answer is closed first.

    The request's seconds apply to the start of the answer, and to each piece of it.
    """

    request: Send


@dataclass(frozen=True, slots=True)
class Read:
    """Read the next piece of the open answer; ``b""``: the end."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Do nothing for so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Emit:
    """Give the caller one item."""

    item: object


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer; header names in lower case."""

    code: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Opened:
    """A success whose body is still to come."""

    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Fault:
    """There is no answer.

    :param words: the cause, for people; without any part of the request.
    :param was_sent: whether the endpoint may have got the request.
    :param error: an error that no retry fixes: a wrong key, an untrusted certificate.
    """

    kind: Literal["unreachable", "timed_out", "limit_exceeded"]
    words: str
    was_sent: bool
    error: DrayError | None = None


Step: TypeAlias = "Send | Open | Read | Pause | Emit"
Reply: TypeAlias = "Answer | Opened | Fault | bytes | None"
Flow: TypeAlias = Generator[Step, Reply, T]
