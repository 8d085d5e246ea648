"""Pushes into a fast root of a tier: a ticket claims the bytes that another endpoint will write."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

import pytest

from dray import DrayError
from dray.client import Place, Request
from dray.testing.endpoints import Root
from integration.endpoint import tier_scene as scene
from integration.endpoint.tier_scene import MIB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dray.client import Client, Ticket
    from dray.testing.endpoints import Endpoint

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]


class Push:
    """An endpoint with a tier, and an endpoint that pushes files to the tier."""

    def __init__(self, tier: Endpoint, source: Endpoint, client: Client, driver: Client) -> None:
        """Store both endpoints, and a client of each endpoint."""
        self.tier, self.source, self.client, self.driver = tier, source, client, driver

    def ticket(self, name: str, size: int, **more: Any) -> Ticket:  # noqa: ANN401 - of mint_ticket
        """Write a file to the source, and mint a ticket for its push."""
        (self.source.root(name)).write_bytes(scene.content(size, name))
        options = {"overwrite": "always", **more}
        return self.client.mint_ticket(name, "write", [f"/fast/{name}"], self.source.key, **options)

    def start(self, name: str, ticket: Ticket, **more: Any) -> None:  # noqa: ANN401 - of a request
        """Submit the push of a file with a ticket."""
        place = Place(self.tier.place(name, root="fast"), ticket.ticket, ticket.key, ticket.address)
        self.driver.submit(Request(f"/data/{name}", place, id=name, **more))

    def claimed(self, ticket: Ticket, *, is_admitted: bool) -> Ticket:
        """Wait until the claim of a ticket is admitted, or has a reason to wait."""
        end = time.monotonic() + scene.END_SECONDS
        while True:
            found = self.client.ticket(ticket.id)
            assert found.space is not None, found
            if found.space.admitted == is_admitted and (is_admitted or found.space.reason):
                return found
            assert time.monotonic() < end, found
            time.sleep(0.1)

    def check(self, name: str, size: int) -> None:
        """Fail unless the fast root has the pushed file."""
        assert self.tier.root(name, root="fast").read_bytes() == scene.content(size, name)


@pytest.fixture
def push(start_endpoint: Callable[..., Endpoint]) -> Iterator[Push]:
    """Start an endpoint with a tier, and an endpoint that pushes to it."""
    tier = scene.start_tier(start_endpoint)
    source = start_endpoint("src", roots=[Root("data")])
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(one.client()) for one in (tier, source)]
        yield Push(tier, source, clients[0], clients[1])


def test_a_ticket_claims_its_bytes_until_its_transfer_ends(push: Push) -> None:
    first = push.ticket("a", 20 * MIB, bytes=20 * MIB)
    push.claimed(first, is_admitted=True)
    # The bytes count although no session has started, so a write job waits.
    scene.until(push.client, "counted", lambda tier: tier.incoming == 20 * MIB)
    second = push.ticket("b", 16 * MIB, bytes=16 * MIB)
    found = push.claimed(second, is_admitted=False)
    assert found.space is not None
    assert f"{16 * MIB} bytes do not fit" in (found.space.reason or "")
    assert f"{20 * MIB} reserved for other transfers" in (found.space.reason or "")
    push.start("b", second)
    push.start("a", first)
    done = push.driver.wait("a", timeout_seconds=scene.END_SECONDS)
    assert done.state == "done", done
    push.check("a", 20 * MIB)
    # The claim has ended with the transfer. The file is no version, so it does not count.
    done = push.driver.wait("b", timeout_seconds=scene.END_SECONDS)
    assert done.state == "done", done
    assert done.failures == ()
    push.check("b", 16 * MIB)
    assert push.client.ticket(first.id).space is None
    scene.until(push.client, "free", lambda tier: tier.incoming == 0 and tier.waiting == 0)


def test_a_push_waits_without_losing_a_try(push: Push) -> None:
    scene.until(push.client, "known", lambda tier: tier.capacity == 32 * MIB)
    holder = push.ticket("holder", MIB, bytes=30 * MIB)
    push.claimed(holder, is_admitted=True)
    waits = push.ticket("waits", 8 * MIB, bytes=8 * MIB)
    push.start("waits", waits)
    end = time.monotonic() + scene.END_SECONDS
    while True:
        error = push.driver.transfer("waits").error
        if error is not None:
            break
        assert time.monotonic() < end
        time.sleep(0.1)
    assert "waits for space on the tier burst" in str(error), error
    time.sleep(3.0)
    assert not push.driver.transfer("waits").is_terminal
    assert not push.tier.root("waits", root="fast").exists()
    # The claim of a revoked ticket ends.
    push.client.revoke_ticket(holder.id)
    done = push.driver.wait("waits", timeout_seconds=scene.END_SECONDS)
    assert done.state == "done", done
    push.check("waits", 8 * MIB)


def test_a_ticket_for_more_than_the_tier_is_refused(push: Push) -> None:
    with pytest.raises(DrayError, match=f"{33 * MIB} bytes exceed the capacity") as refused:
        push.ticket("big", MIB, bytes=33 * MIB)
    assert refused.value.kind == "no_space"
    with pytest.raises(DrayError, match="ticket with the direction `write` can reserve space"):
        push.client.mint_ticket("t", "read", ["/fast/x"], push.source.key, bytes=1)
    # An expired ticket claims nothing.
    short = push.ticket("short", MIB, bytes=30 * MIB, lifetime_seconds=4, renewable_seconds=4)
    push.claimed(short, is_admitted=True)
    after = push.ticket("after", MIB, bytes=30 * MIB)
    push.claimed(after, is_admitted=True)


def test_claims_survive_a_restart_of_the_endpoint(push: Push) -> None:
    first = push.ticket("a", 20 * MIB, bytes=20 * MIB)
    push.claimed(first, is_admitted=True)
    push.tier.kill()
    push.tier.start()
    with push.tier.client() as client:
        scene.until(client, "counted", lambda tier: tier.incoming == 20 * MIB)


def test_a_push_without_a_number_of_bytes_counts_what_it_lists(push: Push) -> None:
    ticket = push.ticket("a", 12 * MIB)
    assert ticket.space is None
    push.start("a", ticket, rate_max=2 * MIB)
    tier = scene.until(push.client, "counted", lambda tier: tier.incoming > 0)
    assert tier.incoming <= 12 * MIB
    # These bytes are not free for later claims.
    big = push.ticket("big", MIB, bytes=24 * MIB)
    found = push.claimed(big, is_admitted=False)
    assert found.space is not None
    assert "reserved for other transfers" in (found.space.reason or "")
    done = push.driver.wait("a", timeout_seconds=scene.END_SECONDS)
    assert done.state == "done", done
    push.claimed(big, is_admitted=True)
