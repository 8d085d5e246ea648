"""Persistent state of an endpoint: kills, abandoned requests, changes of a running transfer."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

import pytest

import dray
from dray.client import Request, Retry
from integration.endpoint.scene import MOMENTS, RATE, Data, Scenes, Tally, words
from integration.harness import tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dray.client import Client, Transfer
    from dray.testing.endpoints import Endpoint
    from dray.testing.faults import Faults
    from integration.endpoint.scene import Scene

pytestmark = [pytest.mark.server, pytest.mark.timeout(1800)]

MIB = tree.MIB
ENTRIES = 20_000


def await_state(client: Client, id: str, *states: str, seconds: float = 60) -> Transfer:
    """Wait until a transfer has this state."""
    until = time.monotonic() + seconds
    while (transfer := client.transfer(id)).state not in states:
        assert time.monotonic() < until, f"not {states}: {words(transfer)}"
        time.sleep(0.02)
    return transfer


# --- many files ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Data]:
    """Make ``ENTRIES`` small files in many folders."""
    source = tmp_path_factory.mktemp("many") / "served" / "tree"
    for number in range(ENTRIES):
        folder = source / f"folder{number // 200:03}"
        if number % 200 == 0:
            folder.mkdir(parents=True)
        (folder / f"file{number:05}").write_bytes(b"%d\n" % number * (number % 40))
    data = Data(source, tree.describe(source))
    yield data
    data.remove()


@pytest.mark.full
@pytest.mark.parametrize("victim", ["active", "passive"])
def test_killed_while_a_tree_is_listed_nothing_is_lost_or_doubled(
    start_endpoint: Callable[..., Endpoint],
    many: Data,
    fault: Faults,
    tally: Tally,
    victim: str,
) -> None:
    scenes = Scenes(start_endpoint, many)
    for moment in range(MOMENTS):
        push = moment % 2 == 0
        whole = scenes.seconds(push=push)
        with scenes.make(push=push) as scene:
            scene.submit()
            wanted = fault.chance.randrange(1, ENTRIES)
            print(f"{'push' if push else 'pull'}: {victim} killed when {wanted} are listed")
            until = time.monotonic() + whole + 60
            while (transfer := scene.client().transfer("t")).files.listed < wanted:
                assert time.monotonic() < until, words(transfer)
                time.sleep(0.005)
            scene.end(victim).kill()
            scene.end(victim).start()
            done, excess = scene.check_done()
            assert (done.files.listed, done.files.failed) == (ENTRIES, 0), words(done)
            assert done.files.done == ENTRIES, words(done)
            outcomes = [each.path for each in scene.client().files("t", limit=1000)]
            assert len(outcomes) == len(set(outcomes)), "a file has two outcomes"
            tally.add(excess, has_resumed=done.tries > 1)


# --- states -------------------------------------------------------------------------------------


def summary(transfer: Transfer) -> tuple[object, ...]:
    """Return the fields that a restart must not change."""
    error = transfer.error and (transfer.error.kind, transfer.error.cause)
    counted = (transfer.files, transfer.bytes.durable, transfer.bytes.listed)
    times = (transfer.submitted_at, transfer.ended_at)
    return (transfer.state, transfer.attempt, transfer.request, error, *counted, *times)


def test_every_state_survives_a_kill(scenes: Scenes, fault: Faults) -> None:
    with scenes.make(push=False) as scene:
        client = scene.client()
        (scene.sink.root() / "small").write_bytes(b"small")
        later = datetime.now(timezone.utc) + timedelta(hours=1)
        client.submit(Request("/data/small", "/data/done", id="done", labels={"a": "b"}))
        client.submit(Request("/data/nothing", "/data/x", id="failed"))
        client.submit(Request("/data/small", "/data/queued", id="queued", not_before=later))
        client.submit(Request("/data/small", "/data/paused", id="paused", not_before=later))
        client.pause("paused")
        client.submit(Request("/data/small", "/data/x", id="cancelled", not_before=later))
        client.cancel("cancelled")
        states = ("done", "failed", "queued", "paused", "cancelled")
        before = {id: summary(await_state(client, id, id)) for id in states}
        scene.submit("active")
        # The endpoint of the source is killed below, so the transfer `waiting` waits for an hour,
        # which is longer than this test lasts. It has a separate destination folder. In the folder
        # of the transfer `active`, it could be refused because of the lease of `active`.
        patient = Retry(tries=3, interval_seconds=3600)
        waiting = scene.request("waiting", destination="/data/waiting/", retry=patient)
        await_state(client, "active", "active")
        time.sleep(fault.chance.uniform(0.0, 1.0))
        scene.passive.kill()
        client.submit(waiting)
        await_state(client, "waiting", "waiting")
        scene.active.kill()
        # Start the passive endpoint first. The active endpoint tries waiting transfers once when it
        # starts, and then not for an hour.
        scene.passive.start()
        scene.active.start()
        for id in states:
            transfer = client.transfer(id)
            assert summary(transfer) == before[id], words(transfer)
        # Running and waiting transfers are queued again, and run.
        for id in ("active", "waiting"):
            done = scene.wait(id)
            assert (done.state, done.attempt) == ("done", 1), words(done)
        for folder in (scene.folder, scene.sink.root("waiting")):
            tree.assert_same(scene.data.wanted, folder / "tree")
        assert tree.leftovers(scene.sink.root()) == []
        assert client.resume("paused").state == "queued"


# --- failed requests ----------------------------------------------------------------------------


def test_a_failed_request_is_kept_and_resumes_on_retry(
    scenes: Scenes, fault: Faults, tally: Tally
) -> None:
    for moment in range(MOMENTS):
        push = moment % 2 == 0
        part = fault.chance.uniform(0.1, 0.8)
        print(f"{'push' if push else 'pull'}: passive killed for good at {part:.3f}")
        scenes.seconds(push=push)
        with scenes.make(push=push) as scene, scene.watched():
            scene.submit(retry=Retry(tries=2, interval_seconds=1))
            scene.await_moment(part)
            scene.passive.kill()
            given_up = scene.wait()
            assert given_up.state == "failed", words(given_up)
            assert given_up.error is not None
            assert given_up.error.kind in {"unreachable", "timed_out"}, words(given_up)
            # The tries are the lost session, and two sessions without new durable data.
            assert given_up.tries >= 3, words(given_up)
            scene.active.restart()
            assert scene.client().transfer("t").state == "failed"
            scene.passive.start()
            assert scene.client().retry("t").attempt == 2
            done, excess = scene.check_done()
            assert (done.attempt, done.tries) == (2, 1), words(done)
            tally.add(excess, has_resumed=done.bytes.resumed > 0)


# --- changed while it runs ----------------------------------------------------------------------


def test_a_transfer_paused_and_resumed_at_any_moment_finishes(
    scenes: Scenes, fault: Faults, tally: Tally
) -> None:
    for moment in range(MOMENTS):
        push = moment % 2 == 0
        part = fault.chance.uniform(0.0, 0.8)
        print(f"{'push' if push else 'pull'}: paused at {part:.3f}")
        scenes.seconds(push=push)
        with scenes.make(push=push) as scene, scene.watched():
            client = scene.client()
            scene.submit()
            scene.await_moment(part)
            client.pause("t")
            await_state(client, "t", "paused")
            before = scene.carried()
            time.sleep(0.5)
            assert scene.carried() == before, "it is paused, and data travels"
            if moment % 2:
                scene.active.kill()
                scene.active.start()
                assert client.transfer("t").state == "paused"
            client.resume("t")
            done, excess = scene.check_done()
            assert done.attempt == 1
            tally.add(excess, has_resumed=done.tries > 1)


def test_a_transfer_resumed_before_it_has_paused_finishes(scenes: Scenes) -> None:
    for push in (True, False):
        scenes.seconds(push=push)
        with scenes.make(push=push) as scene, scene.watched():
            client = scene.client()
            scene.submit()
            await_state(client, "t", "active")
            for _ in range(5):
                client.pause("t")
                client.resume("t")
                time.sleep(0.1)
            done, _ = scene.check_done(faults=5)
            assert done.attempt == 1


@pytest.mark.parametrize("push", [True, False], ids=["push", "pull"])
def test_rate_priority_and_deadline_change_while_it_runs(scenes: Scenes, push: bool) -> None:
    scenes.seconds(push=push)
    with scenes.make(push=push) as scene, scene.watched():
        client = scene.client()
        scene.submit(rate_max=MIB)
        await_state(client, "t", "active")
        scene.await_carried(2 * MIB)
        deadline = datetime.now(timezone.utc).replace(microsecond=0) + timedelta(hours=1)
        changed = client.change("t", priority=9, deadline=deadline, class_="deadline")
        assert changed.request["priority"] == 9
        assert changed.request["class"] == "deadline"
        # The endpoint stores a change before it answers.
        scene.active.kill()
        scene.active.start()
        await_state(client, "t", "active")
        assert client.transfer("t").request["priority"] == 9
        assert client.transfer("t").request["rate_max"] == MIB
        # Without the change, the rest of the data would take two minutes at 1 MiB/s.
        client.change("t", rate_max=RATE, priority=1, deadline=None)
        done, _ = scene.check_done()
        assert "deadline" not in {k for k, v in done.request.items() if v is not None}
        assert done.attempt == 1
        with pytest.raises(dray.DrayPermanentError):
            client.change("t", priority=2)


def test_a_cancelled_transfer_keeps_its_data_and_a_purged_one_does_not(
    scenes: Scenes, fault: Faults
) -> None:
    for push in (True, False):
        scenes.seconds(push=push)
        for purge in (False, True):
            part = fault.chance.uniform(0.4, 0.8)
            with scenes.make(push=push) as scene, scene.watched():
                client = scene.client()
                scene.submit()
                scene.await_moment(part)
                client.cancel("t", purge=purge)
                await_state(client, "t", "cancelled")
                if not purge:
                    assert partial(scene)
                    client.retry("t")
                    scene.check_done()
                    continue
                until = time.monotonic() + 30
                while tree.leftovers(scene.sink.root()):
                    assert time.monotonic() < until, tree.leftovers(scene.sink.root())
                    time.sleep(0.05)


def partial(scene: Scene) -> list[str]:
    """List dray's own files at the sink: the log and the partial files."""
    return tree.leftovers(scene.sink.root())


def test_two_kills_in_one_moment_of_a_purge_leave_nothing(scenes: Scenes, fault: Faults) -> None:
    scenes.seconds(push=False)
    for _ in range(MOMENTS):
        with scenes.make(push=False) as scene:
            client = scene.client()
            scene.submit()
            scene.await_moment(fault.chance.uniform(0.4, 0.8))
            client.cancel("t", purge=True)
            time.sleep(fault.chance.uniform(0.0, 0.3))
            scene.active.kill()
            scene.active.start()
            await_state(client, "t", "cancelled")
            until = time.monotonic() + 30
            while partial(scene):
                assert time.monotonic() < until, partial(scene)
                time.sleep(0.05)


def test_a_session_that_its_ticket_no_longer_allows_ends(scenes: Scenes) -> None:
    scenes.seconds(push=False)
    with scenes.make(push=False) as scene, scene.watched():
        scene.submit(retry=Retry(tries=1, interval_seconds=1))
        scene.await_carried(8 * MIB)
        there = scene.client(scene.passive)
        (ticket,) = there.tickets(transfer="t")
        there.revoke_ticket(ticket.id)
        ended = scene.wait()
        assert ended.state == "failed", words(ended)
        assert ended.error is not None
        assert ended.error.kind in {"unauthorized", "permission_denied"}, words(ended)
        before = scene.carried()
        # With a new ticket for the same request, durable data is not sent again.
        scene.submit()
        done, _ = scene.check_done()
        assert scene.carried() - before < 129 * MIB - ended.bytes.durable
        assert done.attempt == 2
