"""Policies in effect: which transfer runs, which is held, and what a held transfer moves.

The tests use scaled copies of two data sets of Liu et al. A is submitted first and is larger. B is
submitted later and is urgent.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from dray.errors import DrayError
from integration.simulation.scaled import KIB, MIB, OBJECT_BYTES, stage, unheld_bytes

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from dray.client import Transfer
    from dray.testing.endpoints import Endpoint
    from integration.simulation.scaled import Stage

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(90)]

#: Rate of the link in bytes per second.
RATE = 6 * MIB
A_BYTES, B_BYTES = 16 * MIB, 6 * MIB


def begin(start: Callable[..., Endpoint], **rules: object) -> tuple[Endpoint, Endpoint]:
    """Start the driving endpoint, with this configuration, and the source."""
    # Each end bounds the rate, and divides it among running transfers.
    sink = start("a", config={"rate": RATE, "scheduling": rules})
    return sink, start("b", config={"rate": RATE})


def moment(at: datetime | None) -> datetime:
    """Return a time that must be known."""
    assert at is not None
    return at


def seconds(first: Transfer, second: Transfer) -> float:
    """Return the seconds from the submission of ``first`` to the end of both transfers."""
    end = max(moment(first.ended_at), moment(second.ended_at))
    return (end - moment(first.submitted_at)).total_seconds()


def both(on: Stage, ids: tuple[str, str]) -> tuple[Transfer, Transfer]:
    """Submit A, then B of another owner, and wait for both."""
    on.submit(ids[0], "A", "alice")
    on.submit(ids[1], "B", "bob")
    return on.done(ids[0], "A"), on.done(ids[1], "B")


def test_a_policy_change_lets_an_urgent_transfer_preempt(
    start_endpoint: Callable[..., Endpoint],
) -> None:
    """Change the policy from order of submission to priority while A runs and B waits."""
    sink, source = begin(start_endpoint, policy="fcfs", max_running=1)
    with stage(sink, source) as on:
        on.make("A", A_BYTES)
        on.make("B", B_BYTES)
        on.submit("a", "A", priority=2)
        on.await_sent("a", MIB)
        on.submit("b", "B", "bob", priority=9)
        time.sleep(0.5)
        assert (on.show("a").held, on.show("b").state) == (False, "queued")
        with pytest.raises(DrayError, match="administrators"):
            on.client("bob").change_scheduling(policy="priority")
        changed = time.monotonic()
        assert (
            on.client("root").change_scheduling(policy="priority", max_running=None).max_running
            is None
        )
        assert on.client("bob").endpoint().scheduling.policy == "priority"
        held = on.until("a", lambda a: a.held)
        print(f"held after {time.monotonic() - changed:.3f} s")
        assert held.state == "active"
        at_most = held.bytes.sent + unheld_bytes(RATE)
        on.await_sent("b", 2 * MIB)
        settled = on.show("a")
        assert settled.held
        print(f"moved after it was held: {settled.bytes.sent - held.bytes.sent} bytes")
        assert settled.bytes.sent <= at_most
        assert (settled.rate.now, settled.rate.granted) == (0, 0)
        b = on.done("b", "B")
        # This transfer sent no byte while the other transfer ran.
        assert on.show("a").bytes.sent <= settled.bytes.sent + unheld_bytes(RATE)
        a = on.done("a", "A")
        assert a.tries == b.tries == 1, "the same session continued"
        assert moment(a.ended_at) > moment(b.ended_at)
        assert a.bytes.sent <= A_BYTES + OBJECT_BYTES, "nothing is sent twice"


def test_round_robin_takes_as_long_as_first_come_first_served(
    start_endpoint: Callable[..., Endpoint],
) -> None:
    quota = 1536 * KIB
    sink, source = begin(start_endpoint, policy="fcfs", max_running=1)
    with stage(sink, source) as on:
        on.make("A", 12 * MIB)
        on.make("B", 12 * MIB)
        first, second = both(on, ("a1", "b1"))
        assert moment(second.started_at) >= moment(first.ended_at), "in the order of submission"
        in_order = seconds(first, second)
        on.client("root").change_scheduling(policy="round_robin", quota=quota, max_running=None)
        on.submit("a2", "A", "alice")
        on.submit("b2", "B", "bob")
        apart, turns, last = 0, 0, ""
        while True:
            now = [on.show(id) for id in ("a2", "b2")]
            if any(each.is_terminal for each in now):
                break
            sent = [each.bytes.sent for each in now]
            if all(sent):
                apart = max(apart, abs(sent[0] - sent[1]))
            held = "".join(each.id for each in now if each.held)
            if held and held != last:
                turns, last = turns + 1, held
            time.sleep(0.02)
        a, b = on.done("a2", "A"), on.done("b2", "B")
        in_turns = seconds(a, b)
        print(f"in order {in_order:.2f} s, in turns {in_turns:.2f} s, {turns} turns, {apart} apart")
        assert a.tries == b.tries == 1
        assert turns >= 6
        # One transfer may have sent one quota more than the other. In addition, the shown counts
        # may be out of date.
        assert apart <= quota + 2 * unheld_bytes(RATE)
        # If each turn lost 0.1 seconds, the total would exceed this limit. A pause of a busy host
        # is shorter.
        assert in_turns <= 1.2 * in_order + 0.5


def test_different_pairs_run_concurrently_and_one_transfer_of_each(
    start_endpoint: Callable[..., Endpoint],
) -> None:
    sink, source = begin(start_endpoint, policy="pairs")
    with stage(sink, source) as on:
        on.make("A", B_BYTES)
        on.make("B", B_BYTES, at=sink)
        for id in ("a1", "a2"):
            on.submit(id, "A")
        on.push("b", "B", "bob")
        on.await_sent("a1", MIB)
        on.await_sent("b", MIB)
        states = [on.show(id).state for id in ("a1", "a2", "b")]
        assert states == ["active", "queued", "active"]
        first, then = on.done("a1", "A"), on.done("a2", "A")
        on.done("b", "B", at=source)
        assert moment(then.started_at) >= moment(first.ended_at)


def test_a_kill_in_the_middle_of_a_hold_loses_nothing(
    start_endpoint: Callable[..., Endpoint],
) -> None:
    """Limit the held transfers. The longest held one loses its session, which costs no try."""
    sink, source = begin(start_endpoint, policy="priority", held_max=1)
    with stage(sink, source) as on:
        for name in ("A", "B", "C"):
            on.make(name, B_BYTES)
        on.submit("a", "A", priority=1)
        on.await_sent("a", MIB)
        on.submit("b", "B", "bob", priority=5)
        on.await_sent("b", MIB)
        assert on.show("a").held
        on.submit("c", "C", priority=9)
        let_go = on.until("a", lambda a: a.state == "queued")
        assert "gave up its session" in " ".join(let_go.notices)
        on.await_sent("c", MIB)
        assert on.show("b").held
        sink.kill()
        sink.start()
        on.close()
        ended = {id: on.done(id, id.upper()) for id in ("a", "b", "c")}
        times = [moment(ended[id].ended_at) for id in ("c", "b", "a")]
        assert times == sorted(times)
        # Durable data is not sent again, but data in flight at the kill is sent again.
        for transfer in ended.values():
            assert transfer.bytes.sent <= B_BYTES + 2 * MIB + RATE // 2, transfer.bytes


def test_a_held_transfer_obeys_changes_and_the_endpoints_stop(
    start_endpoint: Callable[..., Endpoint],
) -> None:
    """Hold a push. The endpoint that drives the transfer is also its source."""
    sink, source = begin(start_endpoint, policy="priority")
    with stage(sink, source) as on:
        on.make("A", B_BYTES, at=sink)
        on.make("B", A_BYTES)
        on.make("C", B_BYTES)
        on.push("a", "A", priority=1)
        on.await_sent("a", MIB)
        # The rate is low, so that the transfer lasts until the end of this test.
        on.submit("b", "B", "bob", priority=9, rate_max=2 * MIB)
        held = on.until("a", lambda a: a.held)
        on.await_sent("b", MIB)
        assert on.show("a").bytes.sent <= held.bytes.sent + unheld_bytes(RATE)
        on.submit("c", "C", priority=2)
        # A held transfer can be paused like a running transfer. Pausing ends its session.
        on.client().pause("a")
        paused = on.until("a", lambda a: a.state == "paused")
        assert not paused.held
        on.client().resume("a")
        on.until("a", lambda a: a.state == "queued")
        on.client().change("c", priority=9)
        assert on.show("c").state == "queued", "it came later"
        began = time.monotonic()
        sink.restart()
        print(f"drained and started in {time.monotonic() - began:.1f} s")
        on.close()
        on.client("bob").change("b", rate_max=None)
        first, second = on.done("b", "B"), on.done("c", "C")
        last = on.done("a", "A", at=source)
        assert moment(first.ended_at) < moment(last.ended_at)
        assert moment(second.ended_at) < moment(last.ended_at)
        assert last.bytes.sent <= B_BYTES + 2 * MIB


def test_a_lower_credit_turn_waits_for_realtime_transfers(
    start_endpoint: Callable[..., Endpoint],
) -> None:
    sink, source = begin(start_endpoint, policy="round_robin", quota=MIB)
    with stage(sink, source) as on:
        on.make("A", B_BYTES)
        on.make("B", B_BYTES)
        on.submit("a", "A", class_="realtime")
        on.await_sent("a", MIB // 2)
        on.submit("b", "B", "bob")
        seen = []
        while not (a := on.show("a")).is_terminal:
            seen.append(a.held)
            time.sleep(0.02)
        assert seen
        assert not any(seen)
        assert moment(on.done("b", "B").started_at) >= moment(on.done("a", "A").ended_at)
