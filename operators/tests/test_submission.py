"""Tests that all tries of a task have one transfer, with real endpoints."""

from __future__ import annotations

import datetime as dt
import hashlib
import os
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from dray_airflow.errors import DrayTaskFailure
from dray_airflow.submission import Clients, End, Errand, begin, cancel_own

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dray.client import Client
    from dray.testing.endpoints import Endpoint
    from dray.testing.faults import Faults
    from dray.testing.plugin import Two

Loose: TypeAlias = Any
pytestmark = pytest.mark.server

SIZE = 6_000_000
#: A rate so low that a test finds the transfer running.
SLOW = 3_000_000


@pytest.fixture
def sites(two_endpoints: Two, connect: Callable[..., str]) -> Two:
    connect("site_a", two_endpoints.a)
    connect("site_b", two_endpoints.b)
    two_endpoints.a.root("x.dat").write_bytes(os.urandom(SIZE))
    return two_endpoints


@pytest.fixture
def clients(sites: Two) -> Iterator[Clients]:
    del sites
    with Clients() as made:
        yield made


@pytest.fixture
def client(clients: Clients) -> Client:
    return clients.of("site_b")


def errand(mark: str = "try1", destination: str = "/data/y.dat", **words: Loose) -> Errand:
    from dray.client import Request

    own = {name: words.pop(name) for name in ("is_id_own", "active") if name in words}
    return Errand(
        (End("site_a", "/data/x.dat"),),
        End("site_b", destination),
        Request(sources=(), destination="", id="af-t", **words),
        mark=mark,
        **own,
    )


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_later_try_attaches_to_the_live_transfer(clients: Clients, client: Client) -> None:
    first = begin(errand(rate_max=SLOW), clients)
    again = begin(errand("try2", rate_max=SLOW), clients)
    assert (first.story, again.story) == ("submitted", "attached")
    assert again.transfer.attempt == 1
    ended = client.wait("af-t", timeout_seconds=60)
    assert (ended.state, ended.attempt, ended.bytes.sent) == ("done", 1, SIZE)


def test_two_concurrent_tries_share_one_transfer(
    clients: Clients, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = client.query
    rivals: list[str] = []

    def overtaken(ids: list[str]) -> Loose:
        seen = look(ids)
        if not rivals:
            rivals.append("try1")
            rivals.append(begin(errand("try1", rate_max=SLOW), clients).story)
        return seen

    monkeypatch.setattr(client, "query", overtaken)
    again = begin(errand("try2", rate_max=SLOW), clients)
    assert rivals == ["try1", "submitted"]
    assert (again.story, again.transfer.attempt) == ("attached", 1)
    assert (
        cancel_own(client, "af-t", "try1")
        == "not cancelled, because a later try has attached to this transfer"
    )


def test_only_the_last_try_cancels(clients: Clients, client: Client) -> None:
    begin(errand(rate_max=SLOW), clients)
    begin(errand("try2", rate_max=SLOW), clients)
    assert (
        cancel_own(client, "af-t", "try1")
        == "not cancelled, because a later try has attached to this transfer"
    )
    assert not client.transfer("af-t").is_terminal
    assert cancel_own(client, "af-t", "try2").startswith("cancelled")
    assert client.wait("af-t", timeout_seconds=30).state == "cancelled"
    assert cancel_own(client, "af-t", "try2") == "the transfer has ended already"


def test_only_the_submitting_try_may_cancel(clients: Clients, client: Client) -> None:
    begin(errand(rate_max=SLOW), clients)
    assert (
        cancel_own(client, "af-t", "another")
        == "not cancelled, because a later try has attached to this transfer"
    )
    assert cancel_own(client, "af-t", "try1").startswith("cancelled")


def test_another_deadline_or_priority_changes_the_live_transfer(
    clients: Clients, client: Client
) -> None:
    soon = dt.datetime.now(dt.timezone.utc) + dt.timedelta(hours=1)
    begin(errand(rate_max=SLOW, deadline=soon, labels={"try": "1"}), clients)
    later = soon + dt.timedelta(minutes=5)
    words: dict[str, Loose] = {
        "deadline": later,
        "priority": 7,
        "labels": {"try": "2"},
        "activity": "other",
    }
    again = begin(errand("try2", rate_max=SLOW, **words), clients)
    assert (again.story, again.transfer.attempt) == ("attached", 1)
    seen = client.transfer("af-t").request
    assert seen["priority"] == 7
    assert seen["labels"]["try"] == "2"
    assert dt.datetime.fromisoformat(seen["deadline"].replace("Z", "+00:00")) == later.replace(
        microsecond=later.microsecond // 1000 * 1000
    )
    # A third try behaves as the second.
    third = begin(errand("try3", rate_max=SLOW, **words), clients)
    assert (third.story, third.transfer.attempt) == ("attached", 1)
    assert client.wait("af-t", timeout_seconds=60).bytes.sent == SIZE


def test_a_refused_promise_does_not_stop_the_other_transfers(
    start_endpoint: Callable[..., Endpoint],
    connect: Callable[..., str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    from dray.client import Request

    narrow = start_endpoint("narrow", config={"rate": "1MB"})
    connect("narrow", narrow)
    narrow.root("x.dat").write_bytes(os.urandom(SIZE))
    now = dt.datetime.now(dt.timezone.utc)

    def wish(mark: str, minutes: int, **words: Loose) -> Errand:
        deadline = now + dt.timedelta(minutes=minutes)
        ends = ((End("narrow", "/data/x.dat"),), End("narrow", "/data/y.dat"))
        more: dict[str, Loose] = {"bytes_expected": 100_000_000, "deadline": deadline, **words}
        return Errand(*ends, Request((), "", id="af-t", **more), mark=mark)

    with Clients() as clients:
        begin(wish("try1", 60), clients)
        again = begin(wish("try2", 1, priority=7, rate_max=300_000), clients)
        client = clients.of("narrow")
        seen = client.transfer("af-t").request
        client.cancel("af-t")
    assert again.story == "attached"
    assert (seen["priority"], seen["rate_max"]) == (7, 300_000)
    kept = dt.datetime.fromisoformat(seen["deadline"].replace("Z", "+00:00"))
    assert abs(kept - now - dt.timedelta(minutes=60)) < dt.timedelta(seconds=1)
    assert "keeps its promise" in caplog.text


def test_after_success_a_try_checks_and_sends_nothing(
    sites: Two, clients: Clients, client: Client
) -> None:
    begin(errand(), clients)
    client.wait("af-t", timeout_seconds=60)
    again = begin(errand("try2"), clients)
    assert again.story == "started again after it was done"
    ended = client.wait("af-t", timeout_seconds=60)
    assert (ended.state, ended.attempt, ended.bytes.sent, ended.files.adopted) == ("done", 2, 0, 1)
    # A missing file is sent again.
    sites.b.root("y.dat").unlink()
    begin(errand("try3"), clients)
    assert client.wait("af-t", timeout_seconds=60).bytes.sent == SIZE


def test_a_finished_transfer_that_was_not_reported_is_accepted(
    sites: Two, clients: Clients, client: Client
) -> None:
    begin(errand(overwrite="always"), clients)
    client.wait("af-t", timeout_seconds=60)
    # The owner removes the source after the transfer.
    sites.a.root("x.dat").unlink()
    again = begin(errand("try2", overwrite="always"), clients, 1)
    assert again.story == "was done before this try, and no try had recorded this"
    assert (again.transfer.state, again.transfer.attempt) == ("done", 1)
    # Another request, or an attempt that was already reported, is started again.
    other = begin(errand("try3", overwrite="if-different"), clients, 1)
    assert other.transfer.attempt == 2
    assert client.wait("af-t", timeout_seconds=60).state == "failed"


def test_after_a_cancel_only_the_rest_is_sent(
    sites: Two, clients: Clients, client: Client, fault: Faults
) -> None:
    begin(errand(rate_max=SLOW), clients)
    fault.await_durable(client, "af-t", SIZE // 3)
    cancel_own(client, "af-t", "try1")
    # The retry comes immediately, while the session is still ending.
    again = begin(errand("try2"), clients)
    assert again.story.startswith("started again")
    assert again.transfer.attempt == 2
    ended = client.wait("af-t", timeout_seconds=60)
    assert ended.state == "done"
    assert ended.bytes.resumed >= SIZE // 3
    assert ended.bytes.sent + ended.bytes.resumed == SIZE
    assert digest(sites.b.root("y.dat")) == digest(sites.a.root("x.dat"))


def test_a_killed_endpoint_resumes_the_transfer(
    sites: Two, clients: Clients, client: Client, fault: Faults
) -> None:
    begin(errand(rate_max=SLOW), clients)
    fault.kill_after(sites.b, client, "af-t", SIZE // 3)
    sites.b.start()
    assert begin(errand("try2", rate_max=SLOW), clients).story == "attached"
    ended = client.wait("af-t", timeout_seconds=60)
    assert (ended.state, ended.attempt) == ("done", 1)
    assert digest(sites.b.root("y.dat")) == digest(sites.a.root("x.dat"))


def test_an_older_request_of_the_same_task_is_replaced(
    sites: Two, clients: Clients, client: Client
) -> None:
    begin(errand(rate_max=SLOW), clients)
    begin(errand("try2", "/data/z.dat", rate_max=SLOW * 100), clients)
    ended = client.wait("af-t", timeout_seconds=60)
    assert (ended.state, ended.attempt) == ("done", 2)
    assert sites.b.root("z.dat").exists()
    assert not sites.b.root("y.dat").exists()


def test_a_given_id_replaces_no_other_transfer(clients: Clients, client: Client) -> None:
    begin(errand(rate_max=SLOW), clients)
    with pytest.raises(DrayTaskFailure, match="another transfer with this id has not ended"):
        begin(errand("other", "/data/z.dat", is_id_own=False), clients)
    assert not client.transfer("af-t").is_terminal


def test_a_past_deadline_is_refused_only_on_the_first_try(
    clients: Clients, client: Client, fault: Faults
) -> None:
    past = dt.datetime.now(dt.timezone.utc) - dt.timedelta(minutes=1)
    with pytest.raises(DrayTaskFailure, match="has passed; give a later deadline"):
        begin(errand(deadline=past), clients)
    assert client.query(["af-t"]) == {"af-t": None}
    begin(errand(rate_max=SLOW), clients)
    fault.await_durable(client, "af-t", SIZE // 3)
    cancel_own(client, "af-t", "try1")
    client.wait("af-t", timeout_seconds=30)
    begin(errand("try2", deadline=past), clients)
    assert client.wait("af-t", timeout_seconds=60).state == "done"


def test_the_source_endpoint_may_drive(sites: Two, clients: Clients) -> None:
    begin(errand(active="source"), clients)
    assert clients.of("site_a").wait("af-t", timeout_seconds=60).state == "done"
    assert clients.of("site_b").query(["af-t"]) == {"af-t": None}
    assert digest(sites.b.root("y.dat")) == digest(sites.a.root("x.dat"))


def test_an_id_of_another_owner_is_refused(
    sites: Two, clients: Clients, connect: Callable[..., str]
) -> None:
    begin(errand(rate_max=SLOW), clients)
    connect("site_b", sites.b, password=sites.b.token(subject="bob"))
    with Clients() as others, pytest.raises(DrayTaskFailure, match="the transfer id is in use"):
        begin(errand(), others)


def test_shards_move_side_by_side_into_one_folder(sites: Two, clients: Clients) -> None:
    from dray.client import Request, Selection

    names = [f"{at:02}.dat" for at in range(6)]
    sites.a.root("set").mkdir()
    for name in names:
        (sites.a.root("set") / name).write_bytes(os.urandom(1_000_000))
    client = clients.of("site_b")
    for at in range(3):
        part = Selection(recursive=True, include=names[2 * at : 2 * at + 2])
        begin(
            Errand(
                (End("site_a", "/data/set/"),),
                End("site_b", "/data/set/"),
                Request((), "", id=f"af-{at}", selection=part, rate_max=1_000_000),
                mark="try1",
            ),
            clients,
        )
    ended = [client.wait(f"af-{at}", timeout_seconds=60) for at in range(3)]
    assert [(each.state, each.tries, each.files.done) for each in ended] == [("done", 1, 2)] * 3
    assert sum(each.bytes.sent for each in ended) == 6_000_000
    begun = max(each.started_at for each in ended if each.started_at)
    assert begun < min(each.ended_at for each in ended if each.ended_at)
