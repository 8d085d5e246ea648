"""The running sessions and the promises of an endpoint."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime  # noqa: TC003 - the reader of answers resolves the types

from dray.client._answers import Miss  # noqa: TC001 - as above

__all__ = ["EndpointLoad", "HiddenLoad", "Promise", "Session"]


@dataclass(frozen=True, slots=True)
class Session:
    """A session that runs at the endpoint.

    :param transfer: id of the transfer.
    :param peer: name or address of the other end. ``None`` for a transfer within the endpoint.
    :param direction: ``out`` if the endpoint reads the bytes, ``in`` if it writes them, ``within``
        if it does both.
    :param is_own: false if another end drives the session with a ticket.
    :param granted: rate that the session may use, in bytes per second. ``None`` means no limit.
    :param held: true while one of the ends holds the session, so that it moves no data.
    :param moved: bytes that the session has moved.
    :param listed: bytes that the session has listed.
    :param files_done: number of files that are at the destination.
    :param files_listed: number of files that the session has listed.
    """

    transfer: str
    owner: str
    peer: str | None = None
    direction: str = ""
    is_own: bool = True
    roots: tuple[str, ...] = ()
    granted: int | None = None
    held: bool = False
    moved: int = 0
    listed: int = 0
    files_done: int = 0
    files_listed: int = 0


@dataclass(frozen=True, slots=True)
class Promise:
    """A promise of the endpoint.

    :param transfer: id of the transfer.
    :param bytes: promised bytes. ``None`` for a promise of a rate alone.
    :param rate_min: promised rate in bytes per second.
    :param latest_start: latest time at which the remaining bytes must start to move.
    :param resources: names of the resources that the bytes pass, such as ``link``.
    :param planned: rate that is planned now, in bytes per second.
    :param reason: a keyword for the reason of the planned rate.
    :param miss: the expected miss. ``None`` if the endpoint expects to keep the promise.
    """

    transfer: str
    owner: str
    latest_start: datetime
    bytes: int | None = None
    deadline: datetime | None = None
    rate_min: int | None = None
    resources: tuple[str, ...] = ()
    planned: int | None = None
    reason: str | None = None
    miss: Miss | None = None


@dataclass(frozen=True, slots=True)
class HiddenLoad:
    """Numbers of the sessions and promises that the answer does not contain."""

    sessions: int = 0
    promises: int = 0


@dataclass(frozen=True, slots=True)
class EndpointLoad:
    """The running sessions and the promises, as far as the caller may see them."""

    sessions: tuple[Session, ...] = ()
    promises: tuple[Promise, ...] = ()
    hidden: HiddenLoad = HiddenLoad()
