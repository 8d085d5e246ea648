"""The interface between decisions and sockets.

A *flow* is a generator. It yields a step, receives the result of the step, and finally returns the
result of the call. It makes all decisions (the request to send, the retries, the time to give up)
and does no I/O. The blocking client and the asynchronous client execute the same steps, so they
behave the same. A test can run a flow without a socket or a clock.
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
"""Any JSON value. The reader of the answer checks it before use."""

Clock: TypeAlias = Callable[[], float]
"""A function that returns monotonic seconds."""


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request and read the answer.

    :param target: path and query, percent-encoded.
    :param seconds: time limit for request and answer.
    :param answer_bytes_max: maximum size of the body. A longer body is a fault.
    :param with_token: true if the token is sent.
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
    """Send a request and read its answer piece by piece. An earlier open answer is closed first.

    The time limit of the request applies to the start of the answer, and to each piece.
    """

    request: Send


@dataclass(frozen=True, slots=True)
class Read:
    """Read the next piece of the open answer. ``b""`` means the end."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait for a number of seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Emit:
    """Pass one item to the caller."""

    item: object


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer. Names of headers are in lower case."""

    code: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Opened:
    """The start of a successful answer, whose body is not read yet."""

    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Fault:
    """The reason for which a request got no usable answer.

    :param words: the cause as text, without any part of the request.
    :param was_sent: true if the endpoint may have received the request.
    :param error: the error to raise without a retry, such as a wrong key or an untrusted
        certificate.
    """

    kind: Literal["unreachable", "timed_out", "limit_exceeded"]
    words: str
    was_sent: bool
    error: DrayError | None = None


Step: TypeAlias = "Send | Open | Read | Pause | Emit"
Reply: TypeAlias = "Answer | Opened | Fault | bytes | None"
Flow: TypeAlias = Generator[Step, Reply, T]
