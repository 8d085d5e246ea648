"""Tests of retries and their limits, without sockets and without waiting."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dray
from dray.client import KEEP, Place, RateLimit, Request, Retry, Selection
from dray.client import _calls as calls
from dray.client import _flows as flows
from dray.client._answers import Transfer
from dray.client._calls import Call, Safety
from dray.client._reader import ShapeError, read, read_time
from dray.client._requests import write
from dray.client._steps import Answer, Fault, Flow, Pause, Reply, Send

if TYPE_CHECKING:
    from collections.abc import Iterator

Loose: TypeAlias = Any

OK = Answer(200, {}, b'{"status": "ok"}')
LOST = Fault("unreachable", "lost", was_sent=True)
AWAY = Fault("unreachable", "away", was_sent=False)
BUSY = Answer(503, {}, b'{"error": {"kind": "busy", "status": "temporary"}}')
PROXY = Answer(502, {}, b"<html>")


@dataclass
class Play:
    """The other side of a flow: gives replies and keeps the time."""

    replies: Iterator[Reply]
    now: float = 0.0
    #: Seconds that each request takes.
    takes: float = 0.0
    sent: list[Send] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)

    def policy(self, **options: Loose) -> flows.Policy:
        """Return a policy with the time of this object, without random pauses."""
        return flows.Policy(clock=lambda: self.now, chance=lambda: 0.0, **options)

    def run(self, flow: Flow[Any]) -> Loose:
        reply: Reply = None
        while True:
            try:
                step = flow.send(reply)
            except StopIteration as end:
                return end.value
            reply = None
            if isinstance(step, Pause):
                self.pauses.append(step.seconds)
                self.now += step.seconds
            else:
                assert isinstance(step, Send)
                self.sent.append(step)
                self.now += min(self.takes, step.seconds)
                reply = next(self.replies)


def forever(*replies: Reply) -> Iterator[Reply]:
    while True:
        yield from replies


def test_pauses_grow_to_a_limit_and_tries_are_counted() -> None:
    play = Play(forever(AWAY))
    with pytest.raises(dray.DrayTemporaryError):
        play.run(flows.carry(calls.health(), play.policy(tries=7, first_pause=1, longest_pause=8)))
    assert play.pauses == [1, 2, 4, 8, 8, 8]
    assert len(play.sent) == 7


def test_nothing_is_retried_after_the_time_limit() -> None:
    play = Play(forever(LOST), takes=4.0)
    with pytest.raises(dray.DrayTemporaryError):
        play.run(flows.carry(calls.health(), play.policy(seconds=10, tries=99, first_pause=1)))
    assert play.now <= 10
    assert all(step.seconds <= 10 for step in play.sent)


def test_a_last_try_without_time_does_not_hide_the_first_error() -> None:
    late = Fault("timed_out", "late", was_sent=True)
    play = Play(iter([AWAY, late]), takes=0.5)
    with pytest.raises(dray.DrayTemporaryError, match="away"):
        play.run(flows.carry(calls.health(), play.policy(seconds=1.6, first_pause=1, tries=9)))


@given(
    chance=st.floats(0, 1),
    tries=st.integers(1, 10_000),
    asked=st.floats(0, 3600),
)
def test_a_pause_is_half_to_whole_and_never_less_than_asked(
    chance: float, tries: int, asked: float
) -> None:
    policy = flows.Policy(first_pause=0.5, longest_pause=20, chance=lambda: chance)
    pause = policy.pause(tries, asked)
    longest = min(20, 0.5 * 2 ** min(tries - 1, 30))
    assert pause == max(asked, pause)
    assert max(asked, longest / 2) <= pause <= max(asked, longest)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7", 7),
        (" 7 ", 7),
        ("0", 0),
        ("99999999", 3600),
        ("Thu, 01 Jan 1970 00:20:00 GMT", 200),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
        ("-5", 0),
        ("soon", 0),
        ("", 0),
        (None, 0),
    ],
)
def test_retry_after_is_seconds_or_a_date(text: str | None, seconds: float) -> None:
    assert flows._retry_after(text, 1000.0) == seconds


CALLS: dict[str, tuple[Call[Any], Safety]] = {
    "health": (calls.health(), Safety.REPEATABLE),
    "submit": (calls.submit(Request("a", "b", id="t")), Safety.REPEATABLE),
    "cancel": (calls.act("t", "cancel", purge=True), Safety.REPEATABLE),
    "pause": (calls.act("t", "pause"), Safety.REPEATABLE),
    "resume": (calls.act("t", "resume"), Safety.REPEATABLE),
    "retry": (calls.act("t", "retry"), Safety.ONCE),
    "change": (calls.change("t", priority=1), Safety.REPEATABLE),
    "forget": (calls.forget("t"), Safety.REPEATABLE),
    "mkdir": (calls.mkdir("/d/x", parents=True), Safety.REPEATABLE),
    "rm": (calls.rm("/d/x", recursive=False), Safety.ONCE),
    "rename": (calls.rename("/d/x", "/d/y", replace=False), Safety.ONCE),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("reply", [LOST, AWAY, BUSY, PROXY], ids=["lost", "away", "busy", "proxy"])
def test_the_retry_table_decides_each_error(name: str, reply: Answer | Fault) -> None:
    call, safety = CALLS[name]
    play = Play(forever(reply))
    with pytest.raises(dray.DrayTemporaryError):
        play.run(flows.carry(call, play.policy(tries=2)))
    is_again = safety is Safety.REPEATABLE or reply in (AWAY, BUSY)
    assert len(play.sent) == (2 if is_again else 1)


def test_a_wait_does_not_spin_and_ends_at_its_timeout() -> None:
    active = Answer(200, {}, b'{"id": "t", "state": "active"}')
    play = Play(forever(active))
    with pytest.raises(dray.DrayTemporaryError, match="active after 60 s"):
        play.run(flows.wait("t", play.policy(), 60))
    assert 60 <= play.now <= 62
    assert len(play.sent) <= 61


def test_a_wait_survives_an_outage_up_to_the_limit() -> None:
    done = Answer(200, {}, b'{"id": "t", "state": "done"}')

    def outage(count: int) -> Iterator[Reply]:
        yield from [AWAY] * count
        yield done

    play = Play(outage(20))
    policy = play.policy(first_pause=1, longest_pause=10, outage_seconds=300)
    assert play.run(flows.wait("t", policy, None)).state == "done"
    assert play.now > 100
    play = Play(outage(1000))
    policy = play.policy(first_pause=1, longest_pause=10, outage_seconds=300)
    with pytest.raises(dray.DrayTemporaryError, match="away"):
        play.run(flows.wait("t", policy, None))
    assert 250 < play.now <= 330


def test_an_endpoint_that_hangs_is_asked_again_within_an_outage() -> None:
    play = Play(forever(Fault("timed_out", "late", was_sent=True)), takes=1e9)
    with pytest.raises(dray.DrayTemporaryError):
        play.run(flows.wait("t", play.policy(seconds=20, outage_seconds=200), None))
    assert len(play.sent) >= 4


def test_a_request_is_written_as_the_api_names_it() -> None:
    at = datetime(2026, 11, 21, 18, 0, 0, 123456, tzinfo=timezone(timedelta(hours=1)))
    request = Request(
        [Place("dray://b/x/y", ticket="drt_x", key="sha256:1", address="b:1"), "/z"],
        "/data/",
        class_="deadline",
        deadline=at,
        selection=Selection(recursive=True, include=("*.root",)),
        retry=Retry(tries=2),
        verify=False,
        labels={"a": "b"},
    )
    assert write(request) == {
        "sources": [
            {"url": "dray://b/x/y", "ticket": "drt_x", "key": "sha256:1", "address": "b:1"},
            {"url": "/z"},
        ],
        "destination": {"url": "/data/"},
        "class": "deadline",
        "deadline": "2026-11-21T17:00:00.123Z",
        "selection": {"recursive": True, "include": ["*.root"]},
        "retry": {"tries": 2},
        "verify": False,
        "labels": {"a": "b"},
    }
    assert "drt_x" not in repr(request)
    with pytest.raises(dray.DrayUsageError, match="time zone"):
        write(Request("a", "b", deadline=datetime(2026, 1, 1)))  # noqa: DTZ001 - the point


def test_a_change_distinguishes_kept_and_cleared_fields() -> None:
    call = calls.change("t", priority=KEEP, rate_max=None, deadline=KEEP, class_="realtime")
    assert call.body == {"rate_max": None, "class": "realtime"}
    with pytest.raises(dray.DrayUsageError):
        calls.change("t", priority=KEEP)


@pytest.mark.parametrize("id", ["a/b", "../x", "a?b", "ü", "a%2Fb", "."])
def test_ids_are_escaped_in_the_path(id: str) -> None:
    if id == ".":
        with pytest.raises(dray.DrayUsageError):
            calls.transfer(id)
        return
    path = calls.transfer(id).path
    assert path.count("/") == 3
    assert "?" not in path


def test_an_answer_of_a_later_version_is_read() -> None:
    words = {
        "id": "t",
        "state": "polishing",
        "new": {"field": 1},
        "files": {"listed": 2.0, "newer": 1},
        "error": {"kind": "newest", "status": "sometimes", "end": "moon", "message": "m"},
        "notices": ["plain", {"kind": "io", "message": "worth a word"}],
        "rate": {"now": 5, "granted": None},
        "rate_limit": {"kind": "root", "name": "data", "rate": 9, "newer": 1},
        "interrupted_since": "2026-01-02T03:04:05Z",
        "eta": None,
    }
    found = read(Transfer, words)
    assert found.rate_limit == RateLimit("root", 9.0, "data")
    assert found.interrupted_since == datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
    assert (found.state, found.is_terminal, found.files.listed) == ("polishing", False, 2)
    assert found.notices == ("plain", "worth a word")
    assert found.rate.now == 5.0
    assert found.error is not None
    assert (found.error.kind, found.error.status, found.error.end) == ("other", "permanent", "here")
    assert "newest" in str(found.error)
    with pytest.raises(dray.DrayPermanentError):
        found.raise_for_failures()


@pytest.mark.parametrize(
    "words",
    [
        {"id": "t", "state": "done", "version": "4"},
        {"id": "t", "state": "done", "version": True},
        {"id": "t", "state": "done", "files": []},
        {"id": "t", "state": "done", "failures": {}},
        {"id": "t", "state": "done", "submitted_at": "yesterday"},
        {"id": "t", "state": None},
        {"id": "t", "state": "done", "notices": [1]},
        {"id": "t", "state": "done", "attached": 1},
    ],
)
def test_a_malformed_answer_names_the_field(words: dict[str, Any]) -> None:
    with pytest.raises(ShapeError, match=r"answer\."):
        read(Transfer, words)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("2026-11-21T17:00:00.000Z", datetime(2026, 11, 21, 17, tzinfo=timezone.utc)),
        ("2026-11-21T17:00:00z", datetime(2026, 11, 21, 17, tzinfo=timezone.utc)),
        ("2026-11-21T18:30:00+01:30", datetime(2026, 11, 21, 17, tzinfo=timezone.utc)),
        (
            "2026-11-21T17:00:00.1234567891Z",
            datetime(2026, 11, 21, 17, 0, 0, 123456, tzinfo=timezone.utc),
        ),
    ],
)
def test_times_are_read(text: str, wanted: datetime) -> None:
    assert read_time(text) == wanted


@pytest.mark.parametrize(
    "text", ["", "2026-11-21", "2026-13-21T17:00:00Z", "2026-11-21T17:00:00", "x" * 99]
)
def test_a_malformed_time_is_refused(text: str) -> None:
    with pytest.raises(ShapeError):
        read_time(text)
