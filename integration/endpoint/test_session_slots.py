"""Session slots of promised transfers. A plan counts only bytes, but moving them needs a session.

A promised transfer gets a slot when it has to start, even if another transfer holds the slot.
However many transfers are promised, some slots stay free for sessions that other endpoints drive.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from dray.client import Place, Request, Retry
from integration.endpoint.test_deadlines import MEGA, Pair, done, in_seconds, make_file, now

if TYPE_CHECKING:
    from collections.abc import Callable

    from dray.client import Client, Transfer
    from dray.testing.endpoints import Endpoint

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(120)]

#: Limits with one slot for the policy and one additional slot for promises.
ONE = {"transfers_active": 1, "per_owner_active": 1}
#: Rate in bytes per second of transfers that keep their sessions for long.
SLOW = 500_000


def until(client: Client, id: str, is_so: Callable[[Transfer], bool]) -> Transfer:
    """Wait until a condition holds for a transfer."""
    end = time.monotonic() + 20
    while not is_so(transfer := client.transfer(id)):
        assert time.monotonic() < end, transfer
        time.sleep(0.05)
    return transfer


def in_time(pair: Pair, here: Client, there: Client, id: str) -> None:
    """Submit a transfer that is due soon. Fail unless it meets its deadline."""
    deadline = in_seconds(12)
    wanted = pair.request(id, 6 * MEGA, there, deadline=deadline)
    assert here.submit(wanted).promised
    ended = done(here, id)
    assert ended.ended_at is not None
    assert ended.ended_at <= deadline, (ended.ended_at, deadline)
    assert ended.miss is None


def was_preempted(transfer: Transfer) -> bool:
    """Return whether the transfer gave up its session to another transfer."""
    return any("gave up its session" in notice for notice in transfer.notices)


def test_an_urgent_promise_preempts_a_transfer_with_slack(
    start_endpoint: Callable[..., Endpoint],
) -> None:
    pair = Pair(start_endpoint, limits=ONE)
    with pair.a.client() as here, pair.b.client() as there:

        def occupy(id: str, **more: Any) -> None:  # noqa: ANN401
            here.submit(pair.request(id, 60 * MEGA, there, rate_max=SLOW, **more))
            until(here, id, lambda each: each.bytes.sent > 0)

        occupy("plain")
        occupy("later", deadline=in_seconds(3_600))
        in_time(pair, here, there, "soon")
        assert [was_preempted(here.transfer(id)) for id in ("plain", "later")] == [True, False]
        here.cancel("plain", purge=True)
        occupy("more", deadline=in_seconds(3_600))
        in_time(pair, here, there, "sooner")
        assert sorted(was_preempted(here.transfer(id)) for id in ("later", "more")) == [False, True]
        # A preempted transfer continues.
        for id in ("later", "more"):
            until(here, id, lambda each: each.state == "active")
            here.cancel(id, purge=True)


def test_a_transfer_without_a_session_is_predicted_to_miss(
    start_endpoint: Callable[..., Endpoint],
) -> None:
    pair = Pair(start_endpoint, limits=ONE)
    with pair.a.client() as here, pair.b.client() as there:
        deadline = in_seconds(30)
        for id in ("one", "two", "three"):
            wanted = pair.request(id, 20 * MEGA, there, rate_max=MEGA, deadline=deadline)
            assert here.submit(wanted).promised
        last = until(here, "three", lambda each: each.miss is not None)
        assert last.miss is not None
        print(last.miss)
        assert last.state == "queued"
        assert "the transfer has no session" in last.miss.cause
        assert "per_owner_active" in last.miss.cause
        assert now() < deadline
        assert [here.transfer(id).miss for id in ("one", "two")] == [None, None]
        for id in ("one", "two", "three"):
            here.cancel(id, purge=True)


def test_two_fully_promised_endpoints_accept_each_others_sessions(
    start_endpoint: Callable[..., Endpoint],
) -> None:
    limits = {"transfers_active": 2, "per_owner_active": 2}
    ends = [start_endpoint(name, config={"rate": 6 * MEGA, "limits": limits}) for name in "ab"]
    clients = [end.client() for end in ends]
    begin, deadline = in_seconds(4), in_seconds(45)
    ids: dict[int, list[str]] = {0: [], 1: []}
    for at, (end, other) in enumerate(zip(ends, reversed(ends), strict=True)):
        for number in range(4):
            id = f"{end.name}{number}"
            make_file(other, 8 * MEGA, f"from-{id}")
            ticket = clients[1 - at].mint_ticket(id, "read", [f"/data/from-{id}"], end.key)
            far = Place(other.place(f"from-{id}"), ticket.ticket, ticket.key, ticket.address)
            fields: dict[str, Any] = {
                "bytes_expected": 8 * MEGA,
                "object_size": 256 << 10,
                "retry": Retry(tries=2, interval_seconds=1),
                "deadline": deadline,
                "not_before": begin,
            }
            taken = clients[at].submit(Request(far, f"/data/to-{id}", id=id, **fields))
            assert taken.promised
            ids[at].append(id)
    tries = []
    for at, client in enumerate(clients):
        for id in ids[at]:
            ended = done(client, id)
            assert ended.ended_at is not None
            assert ended.ended_at <= deadline, (id, ended.ended_at, deadline)
            tries.append(ended.tries)
        client.close()
    print(f"tries {tries}")
