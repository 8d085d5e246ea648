"""Tickets: their rights, holder and lifetime. Stolen, expired and revoked tickets are refused."""

from __future__ import annotations

import json
import time
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

import dray as package
from dray.client import Place, Request
from dray.testing.endpoints import Root
from integration.endpoint.raw import ask, dray
from integration.harness import tree
from integration.wire.peer import Peer, connect, hello

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dray.client import Client, Ticket, Transfer
    from dray.testing.endpoints import Endpoint
    from dray.testing.plugin import Two

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

Json: TypeAlias = Any
KIB = 1 << 10
MIB = 1 << 20
GET_ANOTHER = "get another ticket with POST /v1/tickets"
SOURCE, SINK = 0, 1


def mint(here: Endpoint, there: Endpoint, id: str = "t", **more: Json) -> Json:
    """Get a ticket of ``there`` that is valid for the key of ``here``."""
    body = {
        "transfer": id,
        "direction": "read",
        "paths": ["/data/x.dat"],
        "peer_key": here.key,
        **more,
    }
    answer = ask(there, "POST", "/v1/tickets", body, token=there.token())
    assert answer.code == 201, answer.text
    return answer.json


def pull(there: Endpoint, ticket: Json, id: str = "t", path: str = "x.dat", **more: Json) -> Json:
    """Return a request that fetches a file of ``there`` with a ticket."""
    place = {name: ticket[name] for name in ("ticket", "key", "address")}
    place["url"] = there.place(path)
    return {"id": id, "sources": [place], "destination": {"url": f"/data/got-{id}"}, **more}


def carry(here: Endpoint, request: Json, seconds: int = 60) -> Json:
    """Submit a request, and wait until its transfer has ended."""
    token = here.token()
    answer = ask(here, "POST", "/v1/transfers", request, token=token)
    assert answer.code == 201, answer.text
    return await_end(here, request["id"], seconds)


def await_end(here: Endpoint, id: str, seconds: int = 60) -> Json:
    until = time.monotonic() + seconds
    token = here.token()
    while True:
        answer = ask(here, "GET", f"/v1/transfers/{id}/wait?timeout=10", token=token).json
        if answer["state"] in ("done", "incomplete", "failed", "cancelled"):
            return answer
        assert time.monotonic() < until, answer


def assert_refused(transfer: Json, kind: str, words: str, remedy: str) -> None:
    assert transfer["state"] == "failed", transfer
    error = transfer["error"]
    assert error["kind"] == kind, error
    assert words in error["cause"], error
    assert remedy in error["remedy"], error
    assert "drt_" not in json.dumps(transfer)


def make(endpoint: Endpoint, size: int = MIB, name: str = "x.dat") -> Path:
    path = endpoint.root(name)
    tree.make_file(path, size, seed=size)
    return path


WRONG: dict[str, tuple[Json, Json, str, str, str]] = {
    "other-transfer": (
        {"transfer": "another"},
        {},
        "permission_denied",
        "the ticket was issued for transfer another, not for transfer t",
        "get a ticket that permits the paths",
    ),
    "other-direction": (
        {"direction": "write"},
        {},
        "permission_denied",
        "the ticket's direction (read or write) is the opposite of the direction that the "
        "session needs",
        "get a ticket that permits the paths",
    ),
    "other-path": (
        {},
        {"path": "y.dat"},
        "permission_denied",
        "the ticket does not allow the path /data/y.dat",
        "get a ticket that permits the paths",
    ),
    "alike-path": (
        {},
        {"path": "x.dat2"},
        "permission_denied",
        "the ticket does not allow the path /data/x.dat2",
        "get a ticket that permits the paths",
    ),
    "folder-above": (
        {},
        {"path": "", "selection": {"recursive": True}},
        "permission_denied",
        "the ticket does not allow the path /data",
        "get a ticket that permits the paths",
    ),
    "other-key": (
        {"peer_key": "sha256:" + "0" * 64},
        {},
        "unauthorized",
        "the ticket is bound to a key that differs from the key of the other end of the connection",
        GET_ANOTHER,
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_ticket_opens_only_its_own_paths(two_endpoints: Two, name: str) -> None:
    a, b = two_endpoints
    for each in ("x.dat", "y.dat", "x.dat2"):
        make(b, name=each)
    minted, asked, kind, words, remedy = WRONG[name]
    ticket = mint(a, b, **minted)
    ended = carry(a, pull(b, ticket, **asked))
    assert_refused(ended, kind, words, remedy)
    assert not a.root("got-t").exists()


@pytest.mark.parametrize("name", ["stolen", "none", "unknown", "garbage", "secret-of-another"])
def test_a_ticket_of_another_holder_opens_nothing(
    two_endpoints: Two, start_endpoint: Callable[..., Endpoint], name: str
) -> None:
    """Refuse a ticket for another endpoint's key, and a ticket that another endpoint issued."""
    a, b = two_endpoints
    make(b)
    ticket = mint(a, b)
    thief = start_endpoint("c")
    used = {
        "stolen": ticket["ticket"],
        "unknown": "drt_" + "A" * 43,
        "garbage": "drt_",
        "secret-of-another": mint(b, a, direction="write")["ticket"],
    }.get(name)
    request = pull(b, {**ticket, "ticket": used})
    if used is None:
        del request["sources"][0]["ticket"]
    answer = ask(thief, "POST", "/v1/transfers", request, token=thief.token())
    if answer.code == 400:
        assert name in ("garbage", "none"), answer.text
        return
    ended = await_end(thief, "t")
    assert ended["error"]["kind"] == "unauthorized", ended
    assert "POST /v1/tickets" in ended["error"]["remedy"], ended
    assert not thief.root("got-t").exists()
    # The ticket is still valid for its holder.
    assert carry(a, pull(b, ticket))["state"] == "done"


def test_a_client_without_a_key_gets_nothing_for_a_ticket(
    two_endpoints: Two, tmp_path: Path
) -> None:
    a, b = two_endpoints
    make(b)
    ticket = mint(a, b)
    file = tmp_path / "token"
    file.write_text(ticket["ticket"], encoding="utf-8")
    file.chmod(0o600)
    options = "--token-file", file, "--peer-key", b.key, "--transfer-id", "t", "--retries", "0"
    ended = dray("cp", "--json", b.place("x.dat"), tmp_path / "got", *options)
    assert ended.returncode == 3, ended
    error = json.loads(ended.stdout.splitlines()[-1])["error"]
    assert error["kind"] == "unauthorized"
    no_key = "the ticket is bound to a key, but the other end of the connection presented no key"
    assert no_key in error["cause"], error
    assert GET_ANOTHER in error["remedy"], error
    # The API does not accept the ticket as a credential. Only a caller with the ticket's key can
    # renew the ticket.
    ask(b, "GET", "/v1/transfers", token=ticket["ticket"]).refused(401, "unauthorized")
    body = {"ticket": ticket["ticket"], "lifetime_seconds": 3600}
    ask(b, "POST", "/v1/tickets/renew", body).refused(401, "unauthorized")
    thief = b.folder / "endpoint" / "identity.pem"
    answer = ask(b, "POST", "/v1/tickets/renew", body, certificate=thief)
    assert "bound to a key that differs" in answer.refused(401, "unauthorized")["cause"]
    holder = a.folder / "endpoint" / "identity.pem"
    answer = ask(b, "POST", "/v1/tickets/renew", body, certificate=holder)
    assert answer.code == 200, answer.text
    assert "ticket" not in answer.json


@pytest.mark.parametrize("fault", ["", "away", "other-key"])
def test_a_copy_that_cannot_be_submitted_leaves_no_ticket(
    two_endpoints: Two, tmp_path: Path, fault: str
) -> None:
    a, b = two_endpoints
    make(b)
    options: list[str | Path] = []
    for each in (a, b):
        file = tmp_path / f"{each.name}.token"
        file.write_text(each.token(), encoding="utf-8")
        file.chmod(0o600)
        is_other = fault == "other-key" and each is a
        key = "sha256:" + "0" * 64 if is_other else each.key
        options += ["--token-file", f"{each.address}={file}", "--peer-key", f"{each.address}={key}"]
    ends = b.place("x.dat"), a.place("got")
    if fault == "away":
        a.stop()
    ended = dray("cp", "--json", *ends, *options)
    tickets = ask(b, "GET", "/v1/tickets", token=b.token()).json["tickets"]
    if fault:
        assert ended.returncode == {"away": 4, "other-key": 3}[fault], ended
        assert [each for each in tickets if not each["revoked"]] == []
        return
    assert ended.returncode == 0, ended
    assert a.root("got").read_bytes() == b.root("x.dat").read_bytes()
    assert [each["peer_key"] for each in tickets] == [a.key]


def test_a_session_on_a_ticket_writes_only_to_the_tickets_paths(two_endpoints: Two) -> None:
    a, b = two_endpoints
    ticket = mint(a, b, direction="write", paths=["/data/in/x"])["ticket"]
    key = a.folder / "endpoint" / "identity.pem"
    for paths in (
        (b"data/in", b"y"),
        (b"data/in",),
        (b"data", b"in/xy"),
        (b"data", b"in/../y"),
        (b"data/in", b"x", b"y"),
        (b"data/in", b"x/../../y"),
    ):
        peer = Peer(b.address, key)
        peer.tls.sendall(hello(ticket.encode()))
        peer.expect("HELLO")
        peer.tls.sendall(connect(SINK, *paths, transfer=b"t"))
        error = peer.expect("REFUSE")["error"]
        assert error["status"] == "permanent", (paths, error)
        assert error["remedy"], (paths, error)
        peer.tls.close()
    assert [path.name for path in b.root().rglob("*") if path.is_file()] == []
    peer = Peer(b.address, key)
    peer.tls.sendall(hello(ticket.encode()))
    peer.expect("HELLO")
    peer.tls.sendall(connect(SINK, b"data/in", b"x", transfer=b"t"))
    peer.expect("ACCEPT")
    peer.tls.close()


def test_a_ticket_needs_the_permissions_of_its_owner(two_endpoints: Two) -> None:
    a, b = two_endpoints
    make(b)
    ticket = mint(a, b, direction="write", paths=["/data/x.dat"], overwrite="never")
    make(a, 2 * MIB)
    place = {name: ticket[name] for name in ("ticket", "key", "address")}
    request = {
        "id": "t",
        "sources": [{"url": "/data/x.dat"}],
        "destination": {**place, "url": b.place("x.dat")},
        "overwrite": "always",
    }
    before = tree.hash_file(b.root("x.dat"))
    ended = carry(a, request)
    # A ticket that permits only new files replaces no file, even if the request asks for it.
    assert tree.hash_file(b.root("x.dat")) == before
    assert ended["files"]["skipped"] == 1 or ended["state"] in ("failed", "incomplete"), ended


# --- time -----------------------------------------------------------------------------------------


def test_an_expired_ticket_is_refused_with_its_expiry(two_endpoints: Two) -> None:
    a, b = two_endpoints
    make(b)
    ticket = mint(a, b, lifetime_seconds=1)
    time.sleep(1.2)
    ended = carry(a, pull(b, ticket))
    assert_refused(ended, "unauthorized", "the ticket expired", GET_ANOTHER)
    # The same request with another ticket resumes the copy, because the ticket is no part of a
    # request's identity.
    again = pull(b, mint(a, b))
    assert carry(a, again)["state"] == "done"
    shown = dray(
        *("show", "t", "--endpoint", a.address, "--wait", "--peer-key", a.key), DRAY_TOKEN=a.token()
    )
    assert shown.returncode == 0, shown


def test_a_ticket_that_is_revoked_while_its_transfer_is_queued_refuses_it(
    two_endpoints: Two,
) -> None:
    a, b = two_endpoints
    make(b)
    ticket = mint(a, b)
    later = (datetime.now(timezone.utc) + timedelta(seconds=3)).isoformat()
    request = pull(b, ticket, not_before=later)
    assert ask(a, "POST", "/v1/transfers", request, token=a.token()).code == 201
    revoked = ask(b, "DELETE", f"/v1/tickets/{ticket['id']}", token=b.token())
    assert revoked.json["revoked"] is True, revoked.text
    ended = await_end(a, "t")
    assert_refused(ended, "unauthorized", "the ticket was revoked", GET_ANOTHER)
    shown = dray(
        *("show", "t", "--endpoint", a.address, "--wait", "--peer-key", a.key), DRAY_TOKEN=a.token()
    )
    assert shown.returncode == 3, shown
    assert "the ticket was revoked" in shown.stdout + shown.stderr


def test_a_ticket_that_is_revoked_while_its_transfer_moves_ends_it(two_endpoints: Two) -> None:
    a, b = two_endpoints
    make(b, 32 * MIB)
    ticket = mint(a, b)
    request = pull(b, ticket, rate_max=2 * MIB)
    token = a.token()
    assert ask(a, "POST", "/v1/transfers", request, token=token).code == 201
    await_moving(a, token, MIB)
    shown = ask(b, "GET", f"/v1/tickets/{ticket['id']}", token=b.token()).json
    assert shown["sessions"] == 1, shown
    assert ask(b, "DELETE", f"/v1/tickets/{ticket['id']}", token=b.token()).code == 200
    began = time.monotonic()
    ended = await_end(a, "t", seconds=30)
    assert_refused(ended, "unauthorized", f"ticket {ticket['id']} was revoked", GET_ANOTHER)
    # Without the revocation, the session would have run for more than ten further seconds.
    assert time.monotonic() - began < 10
    assert ended["bytes"]["durable"] > 0
    shown = ask(b, "GET", f"/v1/tickets/{ticket['id']}", token=b.token()).json
    assert (shown["sessions"], shown["revoked"]) == (0, True), shown
    assert not a.root("got-t").exists()
    # Durable data stays safe for a request with another ticket.
    done = carry(a, pull(b, mint(a, b)))
    assert done["state"] == "done", done
    assert done["bytes"]["resumed"] > 0, done
    assert a.root("got-t").read_bytes() == b.root("x.dat").read_bytes()


def await_moving(endpoint: Endpoint, token: str, count: int) -> Json:
    until = time.monotonic() + 60
    while True:
        answer = ask(endpoint, "GET", "/v1/transfers/t", token=token).json
        if answer["bytes"]["durable"] >= count:
            return answer
        assert time.monotonic() < until, answer
        time.sleep(0.05)


def test_a_ticket_may_be_renewable_for_less_than_the_maximum(two_endpoints: Two) -> None:
    a, b = two_endpoints
    ticket = mint(a, b, lifetime_seconds=3600, renewable_seconds=60)
    assert ticket["expires_at"] == ticket["renewable_until"]
    body = {"ticket": ticket["ticket"], "lifetime_seconds": 3600}
    key = a.folder / "endpoint" / "identity.pem"
    renewed = ask(b, "POST", "/v1/tickets/renew", body, certificate=key).json
    assert renewed["expires_at"] == ticket["expires_at"]
    # A ticket cannot be renewable for more than the maximum.
    long = mint(a, b, renewable_seconds=1_000_000)
    assert long["renewable_until"] <= mint(a, b)["renewable_until"]
    wrong = {"transfer": "t", "direction": "read", "paths": ["/data/x"], "peer_key": a.key}
    none = {**wrong, "renewable_seconds": 0}
    ask(b, "POST", "/v1/tickets", none, token=b.token()).refused(400, "invalid_request")


@pytest.mark.slow
def test_a_ticket_is_renewed_while_its_transfer_is_queued(
    two_endpoints: Two, start_endpoint: Callable[..., Endpoint]
) -> None:
    a = two_endpoints.a
    b = start_endpoint("short", config={"tickets": {"lifetime": 12}})
    make(b)
    ticket = mint(a, b)
    later = (datetime.now(timezone.utc) + timedelta(seconds=20)).isoformat()
    request = pull(b, ticket, not_before=later)
    ended = carry(a, request)
    assert ended["state"] == "done", ended
    shown = ask(b, "GET", f"/v1/tickets/{ticket['id']}", token=b.token()).json
    assert shown["expires_at"] > ticket["expires_at"], shown
    assert shown["expires_at"] <= shown["renewable_until"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("away_seconds", "is_kept"), [(5, True), pytest.param(12, False, marks=pytest.mark.full)]
)
def test_a_ticket_outlives_a_short_outage_of_its_endpoint(
    two_endpoints: Two, start_endpoint: Callable[..., Endpoint], away_seconds: float, is_kept: bool
) -> None:
    """Renew a ticket in the middle of its lifetime, then make its endpoint unreachable."""
    a = two_endpoints.a
    b = start_endpoint("short", config={"tickets": {"lifetime": 12}})
    make(b)
    ticket = mint(a, b)
    began = time.monotonic()
    later = (datetime.now(timezone.utc) + timedelta(seconds=24)).isoformat()
    request = pull(b, ticket, not_before=later)
    assert ask(a, "POST", "/v1/transfers", request, token=a.token()).code == 201
    time.sleep(4)
    b.stop()
    time.sleep(max(0.0, began + 4 + away_seconds - time.monotonic()))
    b.start()
    ended = await_end(a, "t", 60)
    if is_kept:
        assert ended["state"] == "done", ended
    else:
        assert_refused(ended, "unauthorized", "the ticket expired", GET_ANOTHER)


@pytest.mark.parametrize("direction", ["read", "write"])
def test_a_ticket_follows_the_current_rules_of_the_root(
    start_endpoint: Callable[..., Endpoint], direction: str
) -> None:
    rules: dict[str, Json] = {}
    a = start_endpoint("a")
    b = start_endpoint("b", roots=[Root("data", rules)])
    make(a)
    make(b)
    is_read = direction == "read"
    path = "x.dat" if is_read else "new.dat"
    ticket = mint(a, b, direction=direction, paths=[f"/data/{path}"])
    place = {name: ticket[name] for name in ("ticket", "key", "address")}
    place["url"] = b.place(path)
    request: Json = {"id": "t", "sources": [place], "destination": {"url": "/data/got"}}
    if not is_read:
        request = {"id": "t", "sources": [{"url": "/data/x.dat"}], "destination": place}
    b.stop()
    rules[direction] = ["bob"]
    b.start()
    ended = carry(a, request)
    words = f"the root data does not permit alice to {direction}"
    assert_refused(ended, "permission_denied", words, "ask the endpoint's administrator")
    assert ended["tries"] == 1, ended
    assert not b.root("new.dat").exists()
    # After the old configuration is restored, the same ticket has its rights again.
    b.stop()
    rules[direction] = ["alice"]
    b.start()
    assert carry(a, request)["state"] == "done"


@pytest.mark.slow
def test_a_ticket_is_renewed_while_its_transfer_moves(
    two_endpoints: Two, start_endpoint: Callable[..., Endpoint]
) -> None:
    """Move data for five times the lifetime of the ticket, which is a few seconds."""
    a = two_endpoints.a
    b = start_endpoint("short", config={"tickets": {"lifetime": 5}})
    make(b, 12 * MIB)
    ticket = mint(a, b)
    ended = carry(a, pull(b, ticket, rate_max=512 * KIB), seconds=90)
    assert ended["state"] == "done", ended
    assert ended["tries"] == 1, ended
    assert a.root("got-t").read_bytes() == b.root("x.dat").read_bytes()


@pytest.mark.slow
def test_no_ticket_is_renewed_beyond_its_last_day(
    two_endpoints: Two, start_endpoint: Callable[..., Endpoint]
) -> None:
    a = two_endpoints.a
    b = start_endpoint("short", config={"tickets": {"lifetime": 5, "lifetime_max": 10}})
    make(b, 32 * MIB)
    ticket = mint(a, b)
    asked = mint(a, b, lifetime_seconds=3600)
    assert asked["expires_at"] <= asked["renewable_until"]
    began = time.monotonic()
    ended = carry(a, pull(b, ticket, rate_max=512 * KIB), seconds=90)
    assert_refused(ended, "unauthorized", "the ticket expired", GET_ANOTHER)
    assert 8 < time.monotonic() - began < 40
    shown = ask(b, "GET", f"/v1/tickets/{ticket['id']}", token=b.token()).json
    assert shown["expires_at"] <= shown["renewable_until"] == ticket["renewable_until"]
    body = {"ticket": ticket["ticket"], "lifetime_seconds": 3600}
    key = a.folder / "endpoint" / "identity.pem"
    answer = ask(b, "POST", "/v1/tickets/renew", body, certificate=key)
    assert "the ticket expired" in answer.refused(401, "unauthorized")["cause"]
    # Durable data stays safe.
    done = carry(a, pull(b, mint(a, b)), seconds=60)
    assert done["state"] == "done"
    assert done["bytes"]["resumed"] > 0


def test_the_command_copies_between_endpoints_and_names_the_refuser(
    two_endpoints: Two, tmp_path: Path
) -> None:
    a, b = two_endpoints
    make(b)
    files = {}
    for name, token in (
        ("a", a.token()),
        ("b", b.token()),
        ("b-narrow", b.token("storage.read:/data/other")),
        ("a-reads", a.token("storage.read:/")),
        ("strange", a.token(audience="https://elsewhere")),
    ):
        files[name] = tmp_path / name
        files[name].write_text(token, encoding="utf-8")
        files[name].chmod(0o600)

    def copy(here: str, there: str, name: str) -> Json:
        keys = "--peer-key", f"{a.address}={a.key}", "--peer-key", f"{b.address}={b.key}"
        tokens = (
            *("--token-file", f"{a.address}={files[here]}"),
            *("--token-file", f"{b.address}={files[there]}"),
        )
        ends = b.place("x.dat"), a.place(name)
        return dray("cp", "--json", *ends, *keys, *tokens)

    for here, there, words in (
        ("a", "b-narrow", "storage.read:/data/x.dat"),
        ("a-reads", "b", "storage.modify:/data/"),
        ("strange", "b", "audience"),
        ("a", "a", "issuer"),
    ):
        ended = copy(here, there, "got")
        assert ended.returncode == 3, (here, there, ended)
        assert words in ended.stdout + ended.stderr, (here, there, ended)
        assert not a.root("got").exists()
    assert copy("a", "b", "got").returncode == 0
    assert a.root("got").read_bytes() == b.root("x.dat").read_bytes()


def test_the_client_raises_the_refusal_of_a_ticket(two_endpoints: Two) -> None:
    a, b = two_endpoints
    make(b)
    with a.client() as here, b.client() as there:
        ticket: Ticket = there.mint_ticket("t", "read", ["/data/x.dat"], "sha256:" + "0" * 64)
        place = Place(b.place("x.dat"), ticket.ticket, ticket.key, ticket.address)
        ended = wait(here, Request([place], "/data/got", id="t"))
        with pytest.raises(package.DrayPermanentError) as caught:
            ended.raise_for_failures()
        assert caught.value.kind == "unauthorized"
        assert "differs from the key" in str(caught.value)
        with pytest.raises(package.DrayPermanentError) as caught:
            there.ticket("nobodys")
        assert caught.value.kind == "not_found"


def wait(client: Client, request: Request) -> Transfer:
    client.submit(request)
    return client.wait("t", timeout_seconds=60)
