"""Replicas: reports and shares are those of the replica in use, not of the first."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from dray.client import Place, Request, Retry
from integration.harness import tree

if TYPE_CHECKING:
    from collections.abc import Callable

    from dray.client import Client
    from dray.testing.endpoints import Endpoint

pytestmark = [pytest.mark.server, pytest.mark.timeout(120)]

Json: TypeAlias = Any
MIB = tree.MIB
AGAIN = Retry(tries=10, interval_seconds=1)


def place(there: Client, at: Endpoint, id: str, active: Endpoint) -> Place:
    """Return the place of the file at an endpoint, for ``active``."""
    ticket = there.mint_ticket(id, "read", ["/data/x"], active.key)
    return Place(at.place("x"), ticket.ticket, ticket.key, ticket.address)


def sessions(endpoint: Endpoint, id: str) -> list[Json]:
    """Return the audit lines of a transfer's sessions."""
    found = []
    for line in endpoint.log_text().splitlines():
        message = json.loads(line)["fields"].get("message", "")
        if message.startswith('{"at"'):
            said = json.loads(message)
            found += [said] * (said["audit"] == "session" and said["transfer"] == id)
    return found


def test_shares_and_audit_lines_use_the_replica_in_use(
    start_endpoint: Callable[..., Endpoint],
) -> None:
    dead, good = start_endpoint("dead"), start_endpoint("good")
    tree.make_file(good.root("x"), 8 * MIB, seed=4)
    # With the share of the dead replica, the transfer would take two minutes.
    shares = [
        {"peer": dead.address, "rate_max": 64 << 10},
        {"peer": good.address, "rate_max": 2 * MIB},
    ]
    a = start_endpoint("a", config={"share": shares})
    with a.client() as here, dead.client() as gone, good.client() as there:
        places = [place(gone, dead, "t", a), place(there, good, "t", a)]
        dead.stop()
        more: Json = {"replicas": places[1:], "retry": AGAIN, "durability": "object"}
        request = Request(places[0], "/data/to", id="t", **more)
        here.submit(request)
        until = time.monotonic() + 30
        while (transfer := here.transfer("t")).state != "active" or transfer.source != 1:
            assert time.monotonic() < until, transfer
            time.sleep(0.02)
        start = time.monotonic()
        shown = list(here.transfers(source=good.url))
        done = here.wait("t", timeout_seconds=60)
        taken = time.monotonic() - start
    assert done.state == "done", done
    assert 2.5 < taken < 20, f"8 MiB in {taken:.1f} s at 2 MiB/s"
    assert (done.source, [each.id for each in shown]) == (1, [])
    audited = sessions(a, "t")
    assert [(each["peer"], each["error"] is None) for each in audited] == [
        (dead.address, False),
        (good.address, True),
    ], audited
    assert [each["paths"][0] for each in audited] == [dead.place("x"), good.place("x")]
    assert tree.hash_file(a.root("to")) == tree.hash_file(good.root("x"))


def test_a_replica_that_is_local_is_a_copy_within_the_endpoint(
    start_endpoint: Callable[..., Endpoint],
) -> None:
    dead, a = start_endpoint("dead"), start_endpoint("a")
    tree.make_file(a.root("x"), MIB, seed=5)
    with a.client() as here, dead.client() as gone:
        far = place(gone, dead, "t", a)
        dead.stop()
        here.submit(Request(far, "/data/to", id="t", replicas=["/data/x"], retry=AGAIN))
        done = here.wait("t", timeout_seconds=60)
    assert done.state == "done", done
    audited = [(each["what"], each["peer"]) for each in sessions(a, "t")]
    assert audited == [("pull", dead.address), ("copy", "")], audited


def test_the_partial_data_of_a_lost_source_can_be_purged(
    start_endpoint: Callable[..., Endpoint],
) -> None:
    """The first replica is dead from the start, the second when the transfer is cancelled."""
    dead, lost, a = (start_endpoint(name) for name in ("dead", "lost", "a"))
    tree.make_file(lost.root("x"), 16 * MIB, seed=6)
    with a.client() as here, dead.client() as gone, lost.client() as there:
        places = [place(gone, dead, "t", a), place(there, lost, "t", a)]
        dead.stop()
        more: Json = {"retry": AGAIN, "durability": "object", "rate_max": 2 * MIB}
        here.submit(Request(places[0], "/data/to", id="t", replicas=places[1:], **more))
        until = time.monotonic() + 30
        while here.transfer("t").bytes.durable < 2 * MIB:
            assert time.monotonic() < until, here.transfer("t")
            time.sleep(0.05)
        lost.kill()
        while here.transfer("t").state == "active":
            assert time.monotonic() < until, here.transfer("t")
            time.sleep(0.05)
        assert tree.leftovers(a.root()) != []
        here.cancel("t", purge=True)
        assert here.wait("t", timeout_seconds=30).state == "cancelled"
        until = time.monotonic() + 15
        while left := tree.leftovers(a.root()):
            assert time.monotonic() < until, (left, here.transfer("t").notices)
            time.sleep(0.1)
    assert list(a.root().iterdir()) == []
