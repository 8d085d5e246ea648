"""Tests of events: assembled from pieces of any length, continued after a lost connection."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dray
from dray.client import Policy
from dray.client._reader import ShapeError
from dray.client._sse import MESSAGE_BYTES_MAX, Message, Messages
from dray.testing.scripted import Reply, ScriptedEndpoint, error, event, events

if TYPE_CHECKING:
    from collections.abc import Callable

Face: TypeAlias = Any

PLACE = ("GET", "/v1/events")


def test_a_broken_stream_resumes_after_the_last_event(
    endpoint: ScriptedEndpoint, face: Face
) -> None:
    cut = event(3, transfer="t1", state="active")
    endpoint.then(
        *PLACE,
        events(event(1), event(2), cut[:20], is_dropped=True),
        Reply(is_unanswered=True),
        error(503, "busy", "temporary", retry_after="0"),
        events(cut, event(4)),
        events(event(5)),
    )
    found = face.take(5, "events", transfer="t1", after=0)
    assert [each.id for each in found] == [1, 2, 3, 4, 5]
    assert (found[2].transfer, found[2].state) == ("t1", "active")
    assert found[2].fields["at"] == "2026-11-21T17:00:00.000Z"
    shown = [asked.headers.get("last-event-id") for asked in endpoint.asked]
    assert shown == ["0", "2", "2", "2", "4"]
    assert {asked.query for asked in endpoint.asked} == {"transfer=t1"}


def test_a_gap_is_reported_and_only_a_numbered_one_moves_the_position(
    endpoint: ScriptedEndpoint, face: Face
) -> None:
    gap = b'data: {"type": "gap"}\n\n'
    endpoint.then(*PLACE, events(gap, is_dropped=True), events(event(80, "gap"), is_dropped=True))
    endpoint.then(*PLACE, events(event(90), is_dropped=True), events(event(91)))
    found = face.take(4, "events", after=5)
    assert [each.type for each in found] == ["gap", "gap", "state", "state"]
    shown = [asked.headers["last-event-id"] for asked in endpoint.asked]
    assert shown == ["5", "5", "80", "90"]


def test_a_refusal_ends_the_stream(endpoint: ScriptedEndpoint, face: Face) -> None:
    endpoint.then(*PLACE, error(401, "unauthorized"))
    with pytest.raises(dray.DrayPermanentError):
        face.take(1, "events")


def test_an_answer_of_another_type_is_a_clear_error(endpoint: ScriptedEndpoint, face: Face) -> None:
    endpoint.then(*PLACE, Reply(200, {"content-type": "text/html"}, (b"<html>",)))
    with pytest.raises(dray.DrayPermanentError, match="text/html"):
        face.take(1, "events")


def test_an_endpoint_that_stays_unreachable_ends_the_stream(
    endpoint: ScriptedEndpoint, make_face: Callable[..., Any]
) -> None:
    policy = Policy(first_pause=0.02, longest_pause=0.05, outage_seconds=0.3)
    face = make_face(endpoint.url, policy=policy)
    endpoint.then(*PLACE, events(event(1), is_dropped=True))
    endpoint.always(*PLACE, Reply(is_unanswered=True))
    with pytest.raises(dray.DrayTemporaryError):
        face.take(2, "events")


def test_leaving_the_iteration_closes_the_connection(
    endpoint: ScriptedEndpoint, face: Face
) -> None:
    endpoint.always(*PLACE, events(event(1), b": still here\n\n" * 99, between=0.2))
    for _ in range(40):
        assert len(face.take(1, "events")) == 1


STREAM = (
    b": a comment\r\n\r\nid: 1\ndata: {\ndata: }\n\nretry: 5\revent: x\rdata:one\r\r"
    b"id: 2\r\ndata: \xe2\x82\xac\r\n\r\ndata\n\nnonsense\n\ndata: unfinished\n"
)
WANTED = [
    Message("1", "{\n}"),
    Message("1", "one"),
    Message("2", "€"),
    Message("2", ""),
]


@given(cuts=st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_messages_do_not_depend_on_the_pieces(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    messages = Messages()
    found = []
    for begin, end in itertools.pairwise(places):
        found += messages.feed(STREAM[begin:end])
    assert found == WANTED


@pytest.mark.parametrize("piece", [b"x" * 65536, b"data: " + b"x" * 65530 + b"\n"])
def test_a_message_without_end_is_refused(piece: bytes) -> None:
    messages = Messages()
    for _ in range(MESSAGE_BYTES_MAX // 65536 - 1):
        messages.feed(piece)
    with pytest.raises(ShapeError):
        messages.feed(piece * 2)
