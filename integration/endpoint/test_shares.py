"""Rates: changed from either end while data moves, shared by weight, within floors and limits.

The host may be busy, so the tests permit large deviations.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dray.client import Place, Request, Retry
from dray.testing.endpoints import Root
from integration.harness import tree

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dray.client import Client, Ticket
    from dray.testing.endpoints import Endpoint

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(120)]

MIB = tree.MIB
#: Size of the file, which is more than any test here moves.
FILE_BYTES = 192 * MIB
#: Seconds within which a change takes effect.
CHANGED_SECONDS = 2.0
MEASURED_SECONDS = 3.0
PATIENT = Retry(tries=30, interval_seconds=1)


def make_file(endpoint: Endpoint) -> None:
    """Make the source file from a repeated block. No test checks the content."""
    block = bytes(range(256)) * (MIB // 256)
    with endpoint.root("x").open("wb") as file:
        for _ in range(FILE_BYTES // len(block)):
            file.write(block)


def request(
    id: str,
    active: Endpoint,
    passive: Endpoint,
    there: Client,
    *,
    push: bool = False,
    **more: Any,  # noqa: ANN401 - the fields of a request
) -> tuple[Request, Ticket]:
    """Return a request for the file, and the ticket for it from the other endpoint."""
    direction, path = ("write", f"from-{id}") if push else ("read", "x")
    ticket = there.mint_ticket(id, direction, [f"/data/{path}"], active.key)  # type: ignore[arg-type]
    far = Place(passive.place(path), ticket.ticket, ticket.key, ticket.address)
    ends: dict[str, Any] = {"sources": [far], "destination": f"/data/to-{id}"}
    if push:
        ends = {"sources": ["/data/x"], "destination": far}
    # Objects are small and durable immediately, so that measurements of seconds are precise.
    fields = {"durability": "object", "object_size": MIB // 4, "retry": PATIENT, **more}
    return Request(**ends, id=id, **fields), ticket


def measure(clients: Mapping[str, Client], seconds: float = MEASURED_SECONDS) -> dict[str, float]:
    """Return the durable bytes per second of each transfer."""

    def durable(id: str, client: Client) -> tuple[float, int]:
        transfer = client.transfer(id)
        assert transfer.state == "active", (id, transfer.state, transfer.error)
        return time.monotonic(), transfer.bytes.durable

    before = {id: durable(id, client) for id, client in clients.items()}
    time.sleep(seconds)
    after = {id: durable(id, client) for id, client in clients.items()}
    return {id: (count - before[id][1]) / (at - before[id][0]) for id, (at, count) in after.items()}


def await_moving(client: Client, *ids: str, bytes_: int = 2 * MIB, seconds: float = 30) -> None:
    """Wait until each transfer has ``bytes_`` durable bytes."""
    until = time.monotonic() + seconds
    while any(client.transfer(id).bytes.durable < bytes_ for id in ids):
        assert time.monotonic() < until, [client.transfer(id) for id in ids]
        time.sleep(0.05)


@pytest.mark.full
def test_the_lower_rate_of_both_ends_applies_after_any_change(
    start_endpoint: Callable[..., Endpoint],
) -> None:
    """Pull and push concurrently."""
    a, b = start_endpoint("a"), start_endpoint("b")
    make_file(a)
    make_file(b)
    with a.client() as here, b.client() as there:
        tickets = {}
        for id in ("pull", "push"):
            wanted, ticket = request(id, a, b, there, push=id == "push", rate_max=8 * MIB)
            here.submit(wanted)
            tickets[id] = ticket.id
        await_moving(here, *tickets)

        def kept(rate: float, why: str) -> None:
            time.sleep(CHANGED_SECONDS)
            for id, found in measure(dict.fromkeys(tickets, here)).items():
                said = f"{why}: {id} moves {found / MIB:.2f} MiB/s, not {rate / MIB:g}"
                print(said)
                assert 0.6 * rate <= found <= 1.3 * rate, said

        kept(8 * MIB, "as submitted")
        for id in tickets:
            here.change(id, rate_max=3 * MIB)
        kept(3 * MIB, "lowered where it is driven")
        for id in tickets.values():
            there.change_ticket(id, rate_max=MIB)
        kept(MIB, "lowered at the other end")
        for id in tickets:
            here.change(id, rate_max=None)
        kept(MIB, "the bound where it is driven taken away")
        for id in tickets.values():
            there.change_ticket(id, rate_max=6 * MIB)
        kept(6 * MIB, "raised at the other end")
        for id in tickets:
            here.cancel(id, purge=True)


def test_owners_share_by_weight_and_a_floor_is_held(
    start_endpoint: Callable[..., Endpoint],
) -> None:
    rate = 12 * MIB
    shares = [
        {"owner": "alice", "weight": 300},
        {"owner": "bob", "weight": 100},
        {"owner": "carol@a", "weight": 1, "rate_min": rate // 3},
    ]
    a = start_endpoint("a", config={"rate": rate, "share": shares})
    b = start_endpoint("b")
    make_file(b)
    clients = {name: a.client(subject=name) for name in ("alice", "bob", "carol")}
    with b.client() as there:

        def begin(name: str) -> None:
            clients[name].submit(request(name, a, b, there)[0])
            await_moving(clients[name], name, bytes_=MIB)

        begin("alice")
        begin("bob")
        time.sleep(CHANGED_SECONDS)
        two = measure({name: clients[name] for name in ("alice", "bob")}, seconds=4)
        print({name: f"{found / MIB:.2f} MiB/s" for name, found in two.items()})
        assert 0.75 * 3 <= two["alice"] / two["bob"] <= 1.25 * 3, two
        assert 0.75 * rate <= sum(two.values()) <= 1.15 * rate, two
        begin("carol")
        time.sleep(CHANGED_SECONDS)
        three = measure(clients, seconds=4)
        print({name: f"{found / MIB:.2f} MiB/s" for name, found in three.items()})
        assert three["carol"] >= 0.85 * rate / 3, three
        assert 0.75 * 3 <= three["alice"] / three["bob"] <= 1.25 * 3, three
        assert 0.75 * rate <= sum(three.values()) <= 1.15 * rate, three
    for name, client in clients.items():
        client.cancel(name, purge=True)
        client.close()


STREAMS = 2
SESSIONS = 2


def connections(to: Endpoint) -> int:
    """Return the number of established connections to an endpoint's port."""
    port = f"{int(to.address.rpartition(':')[2]):04X}"
    lines = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    fields = (line.split() for line in lines)
    return sum(each[2].endswith(f":{port}") and each[3] == "01" for each in fields)


def resident(endpoint: Endpoint) -> int:
    """Return the resident memory of an endpoint's process in bytes."""
    for line in Path(f"/proc/{endpoint.pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise AssertionError("no memory")


def test_an_owner_is_limited_in_sessions_connections_and_memory(
    start_endpoint: Callable[..., Endpoint],
) -> None:
    memory = 48 * MIB
    limits = {"transfers_active": 4, "per_owner_active": SESSIONS, "memory": memory}
    a = start_endpoint("a", config={"limits": limits})
    # `per_owner_active = 1` at the other end permits 2 sessions that other endpoints drive.
    b = start_endpoint("b", config={"limits": {"per_owner_active": 1}})
    make_file(b)
    before = resident(a)
    many = [f"t{number}" for number in range(6)]
    with a.client() as alice, a.client(subject="bob") as bob, b.client() as there:
        more: dict[str, Any] = {"streams": STREAMS, "rate_max": 3 * MIB, "object_size": 4 * MIB}
        for id in many:
            alice.submit(request(id, a, b, there, **more)[0])
        await_moving(alice, *many[:SESSIONS])
        with b.client(subject="bob") as his:
            bob.submit(request("bobs", a, b, his, **more)[0])
        # Bob's transfer starts, however many transfers alice has queued.
        await_moving(bob, "bobs")
        most = 0
        until = time.monotonic() + 5
        while time.monotonic() < until:
            active = [each.id for each in alice.transfers() if each.state == "active"]
            assert len(active) <= SESSIONS, active
            # Each session has a control connection and its streams. Do not count Bob's session.
            # The allowed number below includes the connections of this test's own calls.
            most = max(most, connections(b) - (1 + STREAMS))
            used = resident(a) - before
            assert used <= memory + 24 * MIB, f"{used / MIB:.1f} MiB"
            time.sleep(0.1)
        allowed = SESSIONS * (1 + STREAMS) + 2
        print(f"at most {most} connections of {allowed}, {used / MIB:.1f} MiB")
        assert SESSIONS * (1 + STREAMS) <= most <= allowed
        for id in many:
            alice.cancel(id, purge=True)
        bob.cancel("bobs", purge=True)


def test_the_other_end_bounds_an_owners_sessions_too(
    start_endpoint: Callable[..., Endpoint],
) -> None:
    """Let transfers without a slot at the other endpoint wait until they get a slot."""
    a = start_endpoint("a")
    b = start_endpoint("b", config={"limits": {"per_owner_active": 1}})
    tree.make_file(b.root("x"), 6 * MIB, seed=3)
    ids = [f"t{number}" for number in range(4)]
    with a.client() as here, b.client() as there:
        tickets = {}
        for id in ids:
            wanted, ticket = request(id, a, b, there, rate_max=2 * MIB)
            here.submit(wanted)
            tickets[id] = ticket.id
        most, has_waited = 0, False
        until = time.monotonic() + 60
        while True:
            sessions = sum(there.ticket(id).sessions for id in tickets.values())
            most = max(most, sessions)
            states = {id: here.transfer(id) for id in ids}
            has_waited |= any(
                each.state == "waiting" and "sessions of alice" in str(each.error)
                for each in states.values()
            )
            if all(each.state == "done" for each in states.values()):
                break
            assert time.monotonic() < until, states
            time.sleep(0.05)
    # With `per_owner_active = 1`, an owner has three slots in total: one for any transfer, one for
    # promised transfers, and one for sessions that other endpoints drive.
    assert most == 3, most
    assert has_waited
    for id in ids:
        assert tree.hash_file(a.root(f"to-{id}")) == tree.hash_file(b.root("x"))


@pytest.mark.parametrize("way", ["pull", "push", "within"])
@pytest.mark.parametrize("bound", ["root", "endpoint", "owner", "peer"])
def test_the_sum_of_many_short_transfers_keeps_to_every_bound(
    start_endpoint: Callable[..., Endpoint], way: str, bound: str
) -> None:
    """Run transfers that are shorter than the interval at which shares are computed."""
    if (way, bound) == ("within", "peer"):
        pytest.skip("a copy within an endpoint has no peer")
    rate, each, count = 4 * MIB, MIB, 20
    config: dict[str, Any] = {"limits": {"transfers_active": count, "per_owner_active": count}}
    root: dict[str, Any] = {}
    said = "4MiB/s"
    match bound:
        case "root":
            root["rate"] = said
        case "endpoint":
            config["rate"] = said
        case "owner":
            config["share"] = [{"owner": "alice", "rate_max": said}]
        case _:
            config["share"] = [{"peer": "127.0.0.1", "rate_max": said}]
    b = start_endpoint("b")
    a = start_endpoint("a", roots=[Root("data", root)], config=config)
    block = bytes(range(256)) * (each // 256)
    for number in range(count):
        for endpoint in (a, b):
            endpoint.root(f"x{number}").write_bytes(block)
    with a.client() as here, b.client() as there:
        begun = time.monotonic()
        for number in range(count):
            id = f"t{number}"
            ends: dict[str, Any] = {"sources": [f"/data/x{number}"], "destination": f"/data/{id}/x"}
            if way != "within":
                direction, path = ("read", f"x{number}") if way == "pull" else ("write", f"{id}/x")
                ticket = there.mint_ticket(id, direction, [f"/data/{path}"], a.key)  # type: ignore[arg-type]
                far = Place(b.place(path), ticket.ticket, ticket.key, ticket.address)
                ends["sources" if way == "pull" else "destination"] = (
                    [far] if way == "pull" else far
                )
            here.submit(Request(**ends, id=id, retry=PATIENT))
        for number in range(count):
            done = here.wait(f"t{number}", timeout_seconds=90)
            assert done.state == "done", done.error
        seconds = time.monotonic() - begun
    found = count * each / seconds
    print(f"{way}, {bound}: {found / MIB:.1f} MiB/s of {rate / MIB:g}")
    assert found <= 1.05 * rate, f"{found / MIB:.1f} MiB/s"
    # A busy host starts and ends sessions all the time, so this minimum is low.
    assert found >= 0.4 * rate, f"{found / MIB:.1f} MiB/s"
