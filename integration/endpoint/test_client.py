"""Every method of the client against real endpoints, checked by the files on the disks."""

from __future__ import annotations

import asyncio
import time
import zlib
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

import pytest

import dray
from dray.client import Content, Place, Policy, Request, Selection, StagingRequest, copy, copy_async
from dray.testing.endpoints import Root
from integration.harness import tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dray.client import Client, Transfer
    from dray.testing.endpoints import Endpoint
    from dray.testing.faults import Faults
    from dray.testing.plugin import Two

pytestmark = pytest.mark.server

MIB = 1 << 20
#: Rate in bytes per second at which a test finds a transfer of several MiB running.
SLOW = 4 * MIB


@pytest.fixture
def a(two_endpoints: Two) -> Iterator[Client]:
    with two_endpoints.a.client() as client:
        yield client


@pytest.fixture
def b(two_endpoints: Two) -> Iterator[Client]:
    with two_endpoints.b.client() as client:
        yield client


def pull(ends: Two, b: Client, name: str, id: str, **more: object) -> Request:
    """Return a request with which ``a`` fetches a file of ``b``."""
    ticket = b.mint_ticket(id, "read", [f"/data/{name}"], ends.a.key)
    place = Place(ends.b.place(name), ticket.ticket, ticket.key, ticket.address)
    return Request([place], f"/data/{name}", id=id, **more)  # type: ignore[arg-type]


def make(endpoint: Endpoint, name: str, size: int = MIB) -> Path:
    path = endpoint.root(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    tree.make_file(path, size, seed=size)
    return path


def same(one: Path, other: Path) -> bool:
    return tree.hash_file(one) == tree.hash_file(other)


def test_an_endpoint_reports_itself_and_the_caller(two_endpoints: Two, a: Client) -> None:
    info = a.endpoint()
    assert (info.name, info.key) == ("a", two_endpoints.a.key)
    assert [(root.name, root.read, root.write) for root in info.roots] == [("data", True, True)]
    assert (info.you.owner, info.you.administrator) == ("alice", False)
    assert a.health().status == "ok"


def test_a_submission_arrives_and_a_second_one_attaches(
    two_endpoints: Two, a: Client, b: Client
) -> None:
    source = make(two_endpoints.b, "x.dat", 16 * MIB)
    request = pull(two_endpoints, b, "x.dat", "once", rate_max=SLOW)
    first = a.submit(request)
    assert (first.id, first.attempt, first.attached) == ("once", 1, False)
    again = a.submit(request)
    assert (again.attempt, again.attached) == (1, True)
    # While the transfer is live, its id belongs to this request.
    with pytest.raises(dray.DrayPermanentError) as caught:
        a.submit(Request([two_endpoints.b.place("y.dat")], "/data/other", id="once"))
    assert caught.value.kind == "already_exists"
    done = a.wait("once", timeout_seconds=60)
    done.raise_for_failures()
    assert (done.state, done.files.done, done.bytes.durable) == ("done", 1, 16 * MIB)
    assert same(source, two_endpoints.a.root("x.dat"))
    assert "drt_" not in str(done.request)


def test_a_copy_goes_straight_from_one_to_the_other(
    two_endpoints: Two, a: Client, b: Client
) -> None:
    source = make(two_endpoints.b, "x.dat")
    ends = two_endpoints
    for active, target in (("destination", "pulled.dat"), ("source", "pushed.dat")):
        with copy(
            ends.b.place("x.dat"),
            ends.a.place(target),
            source=b,
            destination=a,
            active=active,  # type: ignore[arg-type]
        ) as handle:
            assert handle.wait(timeout_seconds=60).state == "done"
        assert same(source, ends.a.root(target))


def test_an_awaited_copy_goes_straight_too(two_endpoints: Two) -> None:
    source = make(two_endpoints.b, "x.dat")

    async def go() -> str:
        async with two_endpoints.a.async_client() as a, two_endpoints.b.async_client() as b:
            places = two_endpoints.b.place("x.dat"), two_endpoints.a.place("y.dat")
            handle = await copy_async(*places, source=b, destination=a)
            return (await handle.wait(timeout_seconds=60)).state

    assert asyncio.run(go()) == "done"
    assert same(source, two_endpoints.a.root("y.dat"))


def test_a_local_folder_is_copied_and_its_files_are_listed(two_endpoints: Two, a: Client) -> None:
    for name in ("run/a", "run/b", "run/deep/c"):
        make(two_endpoints.a, name, 1000)
    selection = Selection(recursive=True)
    transfer = a.submit(Request("/data/run/", "/data/copy/", selection=selection))
    assert a.wait(transfer.id, timeout_seconds=60).files.done == 3
    outcomes = list(a.files(transfer.id, state="done", limit=2))
    assert sorted(each.path for each in outcomes) == ["a", "b", "deep/c"]
    wanted, found = (tree.describe(two_endpoints.a.root(name)) for name in ("run", "copy"))
    # Only the contents of the folder were requested, so the folder itself is not compared.
    del wanted[b""], found[b""]
    assert tree.differences(wanted, found) == []


def test_a_failed_file_raises_and_is_not_published(two_endpoints: Two, a: Client) -> None:
    make(two_endpoints.a, "there.dat", 1000)
    wanted = Content(size=1000, checksum="adler32:00000001")
    request = Request("/data/there.dat", "/data/copy.dat", content=wanted)
    transfer = a.wait(a.submit(request).id, timeout_seconds=60)
    assert transfer.state in ("failed", "incomplete")
    with pytest.raises(dray.DrayPermanentError):
        transfer.raise_for_failures()
    assert not two_endpoints.a.root("copy.dat").exists()


def test_batches_queries_and_lists(two_endpoints: Two, a: Client) -> None:
    make(two_endpoints.a, "x.dat", 1000)
    requests = [
        Request("/data/x.dat", f"/data/out{at}", id=f"batch-{at}", labels={"set": "one"})
        for at in range(5)
    ]
    wrong = Request("/data/x.dat", "/nowhere/x", id="batch-wrong")
    results = a.submit_batch([*requests, wrong])
    assert isinstance(results[-1], dray.DrayError)
    for request in requests:
        a.wait(request.id or "", timeout_seconds=60)
    transfers = a.query(["batch-0", "batch-4", "nothing"])
    assert transfers["nothing"] is None
    assert transfers["batch-0"] is not None
    assert transfers["batch-0"].state == "done"
    listed = list(a.transfers(labels={"set": "one"}, state="done", limit=2))
    assert sorted(each.id for each in listed) == [f"batch-{at}" for at in range(5)]
    a.forget("batch-0")
    assert a.query(["batch-0"])["batch-0"] is None
    with pytest.raises(dray.DrayPermanentError) as caught:
        a.transfer("batch-0")
    assert caught.value.kind == "not_found"


def settled(client: Client, id: str, state: str) -> Transfer:
    """Wait until a transfer has this state."""
    until = time.monotonic() + 20
    while True:
        transfer = client.transfer(id)
        if transfer.state == state:
            return transfer
        assert time.monotonic() < until, f"{transfer.state}, not {state}"
        time.sleep(0.05)


def test_pause_change_resume_cancel_and_retry(two_endpoints: Two, a: Client, b: Client) -> None:
    source = make(two_endpoints.b, "x.dat", 32 * MIB)
    a.submit(pull(two_endpoints, b, "x.dat", "long", rate_max=SLOW))
    for _ in range(2):
        assert a.pause("long").id == "long"
        settled(a, "long", "paused")
    changed = a.change("long", priority=7, labels={"a": "b"})
    assert (changed.request["priority"], changed.request["labels"]) == (7, {"a": "b"})
    assert a.resume("long").state in ("queued", "active")
    for _ in range(2):
        assert a.cancel("long").id == "long"
        settled(a, "long", "cancelled")
    assert not two_endpoints.a.root("x.dat").exists()
    assert a.retry("long").attempt == 2
    assert a.change("long", rate_max=None).request.get("rate_max") is None
    assert a.wait("long", timeout_seconds=60).state == "done"
    assert same(source, two_endpoints.a.root("x.dat"))
    # An ended transfer does not change.
    with pytest.raises(dray.DrayPermanentError):
        a.change("long", priority=1)


def test_events_report_a_transfer_in_order(two_endpoints: Two, a: Client) -> None:
    make(two_endpoints.a, "x.dat", 1000)
    a.submit(Request("/data/x.dat", "/data/y.dat", id="story"))
    a.wait("story", timeout_seconds=60)
    states = []
    for event in a.events(transfer="story", after=0):
        assert event.transfer == "story" or event.type == "gap"
        if event.type == "state":
            states.append(event.state)
        if event.state == "done":
            break
    assert states[-1] == "done"
    assert states[0] == "queued"


def test_a_wait_and_a_listener_survive_a_restart(
    two_endpoints: Two, a: Client, b: Client, fault: Faults
) -> None:
    source = make(two_endpoints.b, "x.dat", 32 * MIB)
    request = pull(two_endpoints, b, "x.dat", "hard", rate_max=2 * SLOW, durability="object")
    a.submit(request)
    before = fault.kill_after(two_endpoints.a, a, "hard", 4 * MIB)
    two_endpoints.a.start()
    assert a.submit(request).attempt == 1
    a.change("hard", rate_max=None)
    done = a.wait("hard", timeout_seconds=120)
    assert done.state == "done"
    assert done.bytes.resumed >= before.bytes.durable - 8 * MIB
    assert same(source, two_endpoints.a.root("x.dat"))


def test_a_cut_network_is_survived(two_endpoints: Two, a: Client, b: Client, fault: Faults) -> None:
    source = make(two_endpoints.b, "x.dat", 32 * MIB)
    proxy = fault.between(two_endpoints.b)
    ticket = b.mint_ticket("cut", "read", ["/data/x.dat"], two_endpoints.a.key)
    place = Place(two_endpoints.b.place("x.dat"), ticket.ticket, ticket.key, proxy.address)
    a.submit(Request([place], "/data/x.dat", id="cut", rate_max=2 * SLOW))
    proxy.await_bytes(8 * MIB)
    assert proxy.cut() > 0
    a.change("cut", rate_max=None)
    assert a.wait("cut", timeout_seconds=120).state == "done"
    assert same(source, two_endpoints.a.root("x.dat"))


def test_a_transfer_ends_with_the_caller_it_is_bound_to(
    two_endpoints: Two, a: Client, b: Client
) -> None:
    make(two_endpoints.b, "x.dat", 64 * MIB)
    a.submit(pull(two_endpoints, b, "x.dat", "bound", rate_max=MIB, bound_seconds=2))
    time.sleep(5)
    assert a.transfer("bound").state == "cancelled"


def test_tickets_are_listed_without_their_secret_and_revoked(two_endpoints: Two, b: Client) -> None:
    make(two_endpoints.b, "x.dat")
    made = b.mint_ticket("t1", "read", ["/data/x.dat"], two_endpoints.a.key, lifetime_seconds=600)
    assert made.ticket is not None
    assert made.ticket.startswith("drt_")
    assert made.key == two_endpoints.b.key
    assert [each.id for each in b.tickets(transfer="t1")] == [made.id]
    shown = b.ticket(made.id)
    assert (shown.ticket, shown.revoked, shown.owner) == (None, False, "alice")
    assert shown.expires_at is not None
    left = shown.expires_at - datetime.now(timezone.utc)
    assert timedelta(seconds=500) < left <= timedelta(seconds=601)
    assert b.change_ticket(made.id, rate_max=1 << 20, weight=7).rate_max == 1 << 20
    assert b.change_ticket(made.id, rate_max=None).rate_max is None
    assert b.ticket(made.id).weight == 7
    b.revoke_ticket(made.id)
    assert b.ticket(made.id).revoked
    # Without the certificate of the peer's key no renewal is possible.
    with pytest.raises(dray.DrayPermanentError) as caught:
        b.renew_ticket(made.ticket)
    assert caught.value.kind == "unauthorized"


def test_storage_calls_work(two_endpoints: Two, a: Client) -> None:
    path = make(two_endpoints.a, "x.dat", 1000)
    entry = a.stat("/data/x.dat")
    assert (entry.type, entry.size, entry.name) == ("file", 1000, "x.dat")
    assert a.mkdir("/data/deep/er").type == "directory"
    assert a.mkdir("/data/deep/er").type == "directory"
    a.rename("/data/x.dat", "/data/deep/y.dat")
    assert not path.exists()
    assert [each.name for each in a.list("/data", limit=1)] == ["deep"]
    assert [each.name for each in a.list("/data/deep", limit=1)] == ["er", "y.dat"]
    content = two_endpoints.a.root("deep/y.dat").read_bytes()
    found = a.checksum("/data/deep/y.dat", "adler32")
    assert (found.checksum, found.size) == (f"{zlib.adler32(content):08x}", 1000)
    assert a.space("/data").available > 0
    assert a.rm("/data/deep", recursive=True) == 3
    with pytest.raises(dray.DrayPermanentError) as caught:
        a.rm("/data/deep", recursive=True)
    assert caught.value.kind == "not_found"


def test_names_that_are_no_text_are_percent_encoded(two_endpoints: Two, a: Client) -> None:
    top = bytes(two_endpoints.a.root())
    with open(top + b"/100%\xff?#", "wb") as file:
        file.write(b"odd")
    (entry,) = a.list("/data")
    assert entry.path == "/data/100%25%FF%3F%23"
    assert a.stat(entry.path).size == 3
    assert a.rm(entry.path) == 1


def test_a_token_reaches_as_far_as_its_scopes(two_endpoints: Two) -> None:
    make(two_endpoints.a, "x.dat")
    make(two_endpoints.a, "other/y.dat")
    with two_endpoints.a.client(scopes=["storage.read:/data/other"]) as client:
        assert client.stat("/data/other/y.dat").size == MIB
        for call in (
            lambda: client.stat("/data/x.dat"),
            lambda: client.rm("/data/other/y.dat"),
            lambda: client.mkdir("/data/other/new"),
        ):
            with pytest.raises(dray.DrayPermanentError) as caught:
                call()
            assert caught.value.kind == "permission_denied"
    # Nonsense, and the other endpoint's token, which this endpoint does not accept.
    for token in ("nonsense", two_endpoints.b.token()):
        with (
            two_endpoints.a.client(token=token) as client,
            pytest.raises(dray.DrayPermanentError) as caught,
        ):
            client.endpoint()
        assert caught.value.kind == "unauthorized"


def test_an_owner_neither_sees_nor_changes_transfers_of_others(
    two_endpoints: Two, a: Client
) -> None:
    make(two_endpoints.a, "x.dat", 1000)
    a.submit(Request("/data/x.dat", "/data/y.dat", id="mine"))
    with two_endpoints.a.client(subject="bob") as bob:
        assert list(bob.transfers()) == []
        assert bob.query(["mine"])["mine"] is None
        with pytest.raises(dray.DrayPermanentError):
            bob.cancel("mine")
        with pytest.raises(dray.DrayPermanentError) as caught:
            bob.submit(Request("/data/x.dat", "/data/z.dat", id="mine"))
        assert "y.dat" not in str(caught.value)
    with two_endpoints.a.client(subject="root") as root:
        assert "mine" in {each.id for each in root.transfers(owner="alice")}


def test_admission_changes_nothing(two_endpoints: Two, a: Client) -> None:
    make(two_endpoints.a, "x.dat")
    request = Request(
        "/data/x.dat",
        "/data/y.dat",
        content=Content(size=MIB),
        class_="deadline",
        deadline=datetime.now(timezone.utc) + timedelta(hours=1),
    )
    assert a.admission([request]).decision in ("accept", "refuse")
    assert list(a.transfers()) == []


def test_staging_goes_to_the_fast_tier_and_back(
    start_endpoint: Callable[..., Endpoint],
) -> None:
    roots = (Root("slow", {"tier": "slow"}), Root("fast", {"tier": "fast"}))
    endpoint = start_endpoint("s", roots=roots)
    (endpoint.root("x.dat", root="slow")).write_bytes(b"x" * MIB)
    with endpoint.client() as client:
        staged = client.stage_in(StagingRequest("/slow/x.dat", pin_seconds=600, application="app"))
        assert client.wait(staged.transfer or "", timeout_seconds=60).state == "done"
        shown = client.staging(staged.id)
        assert (shown.state, shown.to) == ("staged", "/fast/x.dat")
        assert [each.id for each in client.stagings(application="app")] == [staged.id]
        with pytest.raises(dray.DrayError):
            client.evict_staging(staged.id)
        assert client.pin_staging(staged.id, 60).pinned_until is not None
        assert client.pin_staging(staged.id, 0).pinned_until is None
        assert client.evict_staging(staged.id).state == "evicted"
        assert not endpoint.root("x.dat", root="fast").exists()
        (endpoint.root("y.dat", root="fast")).write_bytes(b"y" * MIB)
        out = client.stage_out(StagingRequest("/fast/y.dat"))
        assert client.wait(out.transfer or "", timeout_seconds=60).state == "done"
        assert endpoint.root("y.dat", root="slow").stat().st_size == MIB


def test_bypassing_the_fast_root_leaves_nothing_there(
    start_endpoint: Callable[..., Endpoint],
) -> None:
    tiers = (Root("slow", {"tier": "slow"}), Root("fast", {"tier": "fast"}))
    endpoint = start_endpoint("s", roots=(*tiers, Root("scratch")))
    endpoint.root("in", root="slow").mkdir()
    tree.make_file(endpoint.root("in/x", root="slow"), MIB, seed=1)
    with endpoint.client() as client:
        wish = StagingRequest("/slow/in", recursive=True, to="/scratch/in", bypass=True)
        staged = client.stage_in(wish)
        assert client.wait(staged.transfer or "", timeout_seconds=60).state == "done"
        wish = StagingRequest("/scratch/in", recursive=True, to="/slow/back", bypass=True)
        out = client.stage_out(wish)
        assert client.wait(out.transfer or "", timeout_seconds=60).state == "done"
        whole = tree.hash_file(endpoint.root("in/x", root="slow"))
        for arrived in (
            endpoint.root("in/x", root="scratch"),
            endpoint.root("back/x", root="slow"),
        ):
            assert tree.hash_file(arrived) == whole
        assert list(endpoint.root("", root="fast").iterdir()) == []
        with pytest.raises(dray.DrayPermanentError, match="staged with `bypass`"):
            client.pin_staging(staged.id, 60)
        assert client.evict_staging(staged.id).state == "evicted"
        assert endpoint.root("in/x", root="scratch").exists()
        with pytest.raises(
            dray.DrayUsageError, match="the request asks for 2 replicas, but at most 1 can be made"
        ):
            client.stage_in(StagingRequest("/slow/in", recursive=True, replicas=2))


def test_a_stopping_endpoint_reports_it_and_drains(two_endpoints: Two, a: Client) -> None:
    with two_endpoints.a.client(policy=Policy(seconds=2, tries=1)) as hasty:
        two_endpoints.a.stop()
        with pytest.raises(dray.DrayTemporaryError) as caught:
            hasty.health()
        assert caught.value.kind in ("unreachable", "busy")
    two_endpoints.a.start()
    assert a.health().status == "ok"
