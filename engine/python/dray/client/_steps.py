"""The language between decisions and sockets.

A *flow* is a generator: it yields what is to be done, is sent what came of it, and returns the
result. It decides everything (what to send, whether to try again, when to give up) and touches
nothing; a *face* does as told, blocking or awaiting. So both faces behave the same, and a test can
play the other side of a flow without a socket or a clock.
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
"""What a JSON text may hold; whoever reads it looks before it believes."""

Clock: TypeAlias = Callable[[], float]
"""Seconds that only grow."""


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request and read the answer.

    :param target: path and query, percent-encoded.
    :param seconds: for all of it.
    :param answer_bytes_max: a longer body is a fault.
    :param with_token: show the token.
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
    """Send a request whose answer is read bit by bit. What is open already is closed first.

    The request's seconds are for the beginning of the answer, and for each bit of it.
    """

    request: Send


@dataclass(frozen=True, slots=True)
class Read:
    """Read what comes next of what was opened; ``b""``: that was all."""


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

    :param words: why, for people; never with anything of the request.
    :param was_sent: whether the endpoint may have got the request.
    :param error: what no repetition mends: a wrong key, a certificate that nobody vouches for.
    """

    kind: Literal["unreachable", "timed_out", "limit_exceeded"]
    words: str
    was_sent: bool
    error: DrayError | None = None


Step: TypeAlias = "Send | Open | Read | Pause | Emit"
Reply: TypeAlias = "Answer | Opened | Fault | bytes | None"
Flow: TypeAlias = Generator[Step, Reply, T]
