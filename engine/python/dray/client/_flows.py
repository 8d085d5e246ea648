"""Retries and time limits of single calls, pages, waits and event streams.

Invariants: a request that must not be sent twice (:class:`Safety`) is repeated only if the endpoint
cannot have started the call. No try takes longer than its time limit.
"""

from __future__ import annotations

import email.utils
import json
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from dray.client import _calls as calls
from dray.client._answers import Event, Transfer
from dray.client._calls import Call, Page, Safety
from dray.client._errors import error_object, make, refusal
from dray.client._reader import ShapeError, read
from dray.client._sse import Messages
from dray.client._steps import (
    Answer,
    Clock,
    Emit,
    Fault,
    Flow,
    Open,
    Opened,
    Pause,
    Read,
    Reply,
    Send,
)
from dray.client._trace import traceparent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dray.errors import DrayError, Status

__all__ = ["Policy", "carry", "events", "pages", "wait"]

T = TypeVar("T")

ANSWER_BYTES_MAX = 256 << 20
"""Maximum size of an answer in bytes. A page of 1000 transfers with large requests is smaller."""
POLL_SECONDS = 30.0
RETRY_AFTER_SECONDS_MAX = 3600.0
#: If an endpoint sends nothing for this time, not even a comment, the connection counts as dead.
SILENCE_SECONDS = 90.0
#: Status codes with which a proxy reports that the endpoint is unreachable.
_PROXY_CODES = frozenset({502, 503, 504})


@dataclass(frozen=True, slots=True)
class Policy:
    """Time limits and retries of a client.

    :param seconds: time for one call with all its retries. The hold time of long polls is added.
    :param tries: maximum number of requests for one call.
    :param first_pause: seconds before the second try. The pause doubles before each further try. A
        random part, up to half, is subtracted from each pause. So clients that were refused at the
        same time retry at different times.
    :param longest_pause: maximum pause in seconds, unless ``Retry-After`` asks for a longer pause.
    :param outage_seconds: time for which waits and event streams retry an unreachable endpoint.
    :param clock: function that returns monotonic seconds.
    :param chance: function that returns a random number from 0 to 1.
    :param wall: function that returns seconds since 1970.
    """

    seconds: float = 60.0
    tries: int = 6
    first_pause: float = 0.25
    longest_pause: float = 15.0
    outage_seconds: float = 300.0
    clock: Clock = time.monotonic
    chance: Callable[[], float] = random.random
    wall: Clock = time.time

    def pause(self, tries: int, asked: float) -> float:
        """Return the pause before the next request, at least the endpoint's ``Retry-After``."""
        longest = min(self.longest_pause, self.first_pause * 2.0 ** min(tries - 1, 30))
        return max(asked, longest * (1.0 - self.chance() / 2))


def carry(
    call: Call[T], policy: Policy, *, until: float | None = None, tries: int | None = None
) -> Flow[T]:
    """Send a call until it is answered or must not be repeated.

    :param until: time on the policy's clock at which tries end. By default, tries end
        ``policy.seconds`` from now, plus ``call.hold_seconds``.
    :param tries: maximum number of requests, instead of the policy's.
    """
    payload = call.payload
    if until is None:
        until = policy.clock() + policy.seconds + call.hold_seconds
    tries = policy.tries if tries is None else tries
    tried = 0
    may_be_done = False
    before: DrayError | None = None
    while True:
        left = max(0.001, until - policy.clock())
        # Limit each try, so that a call that hangs does not use up the time for an outage.
        total_seconds = call.hold_seconds + policy.seconds
        reply = yield _send(call, payload, min(left, total_seconds))
        tried += 1
        if isinstance(reply, Answer) and 200 <= reply.code < 300:
            return _result(call, reply)
        if may_be_done and call.is_gone_done and isinstance(reply, Answer) and reply.code == 404:
            return _result(call, Answer(204, {}, b""))
        error, asked = _why(call, reply, policy)
        if error.kind == "timed_out" and before is not None and left < total_seconds:
            # The last try had too little time, so the error of the previous try tells more.
            raise before
        if not _may_repeat(call, reply):
            raise error
        before = error
        may_be_done = may_be_done or _may_be_done(reply)
        pause = policy.pause(tried, asked)
        if tried >= tries or policy.clock() + pause >= until:
            raise error
        yield Pause(pause)


def _send(call: Call[T], payload: bytes | None, seconds: float) -> Send:
    headers = {"accept": "application/json"}
    if payload is not None:
        headers["content-type"] = "application/json"
    if (span := traceparent()) is not None:
        headers["traceparent"] = span
    return Send(
        call.method,
        call.target,
        seconds,
        ANSWER_BYTES_MAX,
        payload,
        headers,
        call.with_token,
    )


def _result(call: Call[T], answer: Answer) -> T:
    try:
        if call.is_text:
            return call.read(answer.body.decode())
        value = json.loads(answer.body) if answer.body.strip() else None
        return call.read(value)
    except (ValueError, RecursionError) as error:
        message = str(error) if isinstance(error, ShapeError) else "it is not valid JSON"
        raise make(
            "protocol",
            "permanent",
            "network",
            call.operation,
            f"the answer cannot be read: {message}",
            "check the version of the endpoint, and which program listens at this address",
        ) from None


def _why(call: Call[T], reply: Reply, policy: Policy) -> tuple[DrayError, float]:
    """Return the error, and the seconds that the endpoint asked the client to wait."""
    if isinstance(reply, Answer):
        kind = reply.headers.get("content-type", "")
        asked = _retry_after(reply.headers.get("retry-after"), policy.wall())
        return refusal(reply.code, reply.body, kind, call.operation), asked
    if not isinstance(reply, Fault):
        raise TypeError("a request is answered or not")
    if reply.error is not None:
        return reply.error, 0.0
    if call.safety is Safety.ONCE and reply.was_sent:
        remedy = "check whether the call took effect; the client does not repeat it automatically"
    elif reply.kind == "limit_exceeded":
        remedy = "request fewer items in one call"
    else:
        remedy = "check that the endpoint runs, then try again"
    status: Status = "permanent" if reply.kind == "limit_exceeded" else "temporary"
    error = make(reply.kind, status, "network", call.operation, reply.words, remedy)
    return error, 0.0


def _may_repeat(call: Call[T], reply: Reply) -> bool:
    if isinstance(reply, Fault):
        if reply.error is not None or reply.kind == "limit_exceeded":
            return False
        return call.safety is Safety.REPEATABLE or not reply.was_sent
    if not isinstance(reply, Answer):
        return False
    if not _may_be_done(reply):
        return True
    fields = error_object(reply.body)
    if fields is None:
        # The code is that of a proxy, which may have passed the request to the endpoint.
        is_temporary = reply.code in _PROXY_CODES
    else:
        is_temporary = reply.code >= 500 and fields.get("status") != "permanent"
    return is_temporary and call.safety is Safety.REPEATABLE


def _may_be_done(reply: Reply) -> bool:
    """Return true if the endpoint may have started the call: it was reached and was not busy."""
    if isinstance(reply, Fault):
        return reply.was_sent
    if not isinstance(reply, Answer) or reply.code == 429:
        return False
    fields = error_object(reply.body) if reply.code == 503 else None
    return fields is None or fields.get("kind") != "busy"


def _retry_after(text: str | None, now: float) -> float:
    """Parse ``Retry-After``, which has seconds or a date. Return 0 if it is malformed."""
    if not text:
        return 0.0
    try:
        seconds = float(text) if text.strip().isdigit() else _until(text, now)
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return min(max(0.0, seconds), RETRY_AFTER_SECONDS_MAX)


def _until(text: str, now: float) -> float:
    return email.utils.parsedate_to_datetime(text).timestamp() - now


def pages(call: Call[Page[T]], policy: Policy) -> Flow[None]:
    """Emit the items of a list, page after page."""
    seen: set[str] = set()
    while True:
        page = yield from carry(call, policy)
        for item in page.items:
            yield Emit(item)
        if page.next is None:
            return
        if page.next in seen:
            raise make(
                "protocol",
                "permanent",
                "network",
                call.operation,
                "the endpoint returned the same page of the list twice",
            )
        seen.add(page.next)
        call = calls.after(call, page.next)


def wait(id: str, policy: Policy, seconds: float | None) -> Flow[Transfer]:
    """Poll until the transfer is terminal. Restarts of the endpoint do not end the wait.

    :param seconds: time after which to give up. ``None`` means never.
    """
    end = None if seconds is None else policy.clock() + seconds
    while True:
        hold = POLL_SECONDS if end is None else min(POLL_SECONDS, end - policy.clock())
        call = calls.wait(id, hold=hold)
        begun = policy.clock()
        # The limit is up to 5 s after the caller's, so that a late last answer is not reported as
        # an outage.
        limit = begun + call.hold_seconds + policy.outage_seconds
        if end is not None:
            limit = min(limit, max(end, begun + 1.0) + min(5.0, policy.seconds))
        found = yield from carry(call, policy, until=limit, tries=1 << 30)
        if found.is_terminal:
            return found
        if end is not None and policy.clock() >= end:
            raise make(
                "timed_out",
                "temporary",
                "here",
                call.operation,
                f"the transfer is {found.state} after {seconds:g} s",
                "wait longer, or cancel the transfer",
            )
        if policy.clock() - begun < 1.0:
            # The endpoint has answered early and the transfer is not terminal. A pause avoids a
            # busy loop.
            yield Pause(1.0)


def events(transfer: str | None, after: int | None, policy: Policy) -> Flow[None]:
    """Emit events for ever. A new connection continues after the last event."""
    call: Call[None] = Call(
        "listen to events",
        "GET",
        "/v1/events",
        lambda words: None,
        () if transfer is None else (("transfer", transfer),),
    )
    last = after
    failures = 0
    lost_at = policy.clock()
    while True:
        headers = {"accept": "text/event-stream", "cache-control": "no-store"}
        if last is not None:
            headers["last-event-id"] = str(last)
        request = Send("GET", call.target, SILENCE_SECONDS, ANSWER_BYTES_MAX, headers=headers)
        reply = yield Open(request)
        asked = 0.0
        if isinstance(reply, Opened):
            _check_stream(call, reply.headers)
            messages = Messages()
            while True:
                piece = yield Read()
                if not isinstance(piece, bytes) or not piece:
                    break
                for event in _events_of(call, messages, piece):
                    # An event of the type `gap` reports lost events. If this event has an id, the
                    # stream continues from this id.
                    last = event.id or last
                    yield Emit(event)
                failures = 0
            lost_at = policy.clock()
            error = make(
                "unreachable", "temporary", "network", call.operation, "the connection was lost"
            )
        else:
            error, asked = _why(call, reply, policy)
            if not _may_repeat(call, reply):
                raise error
        failures += 1
        pause = policy.pause(failures, asked)
        if policy.clock() + pause >= lost_at + policy.outage_seconds:
            raise error
        yield Pause(pause)


def _check_stream(call: Call[None], headers: Mapping[str, str]) -> None:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "text/event-stream":
        raise make(
            "protocol",
            "permanent",
            "network",
            call.operation,
            f"the content type of the answer is {kind[:80] or 'missing'}, not text/event-stream",
            "check which program listens at this address, and whether a proxy is between "
            "the client and the endpoint",
        )


def _events_of(call: Call[None], messages: Messages, piece: bytes) -> list[Event]:
    try:
        return [_event(message.data, message.id) for message in messages.feed(piece)]
    except (ValueError, RecursionError) as error:
        said = str(error) if isinstance(error, ShapeError) else "it is not valid JSON"
        raise make(
            "protocol", "permanent", "network", call.operation, f"an event cannot be read: {said}"
        ) from None


def _event(data: str, id: str | None) -> Event:
    fields = json.loads(data)
    if not isinstance(fields, dict):
        raise ShapeError("event is not an object")
    number = fields.get("id", id)
    if isinstance(number, str) and number.isdigit():
        number = int(number)
    # A gap reports lost events and may have no number.
    return read(Event, {**fields, "id": 0 if number is None else number, "fields": fields}, "event")
