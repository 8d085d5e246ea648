"""Tokens and tickets appear in no log, no argument, and no file that other users can read.

The test makes typical calls to an endpoint, and causes failures. It then searches all files and all
output of the endpoint for the secrets.
"""

from __future__ import annotations

import base64
import json
import os
import stat
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from dray.client import Place, Policy, Request, copy
from integration.endpoint.issuer import Issuer
from integration.endpoint.raw import ask, dray
from integration.harness import tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dray.testing.endpoints import Endpoint

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

Json: TypeAlias = Any
MIB = 1 << 20


class Watch:
    """Collects the arguments and the environments of all readable processes."""

    def __init__(self) -> None:
        """Start to collect."""
        self.seen: set[bytes] = set()
        self.is_over = False
        self.rounds = 0
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        own = os.getpid()
        while not self.is_over:
            for process in Path("/proc").glob("[0-9]*"):
                is_own = int(process.name) == own
                try:
                    self.seen.add((process / "cmdline").read_bytes())
                    # Users of the command may have their own token in its environment. A service
                    # must not have a token in its environment.
                    if not is_own and b"endpoint\0run" in (process / "cmdline").read_bytes():
                        self.seen.add((process / "environ").read_bytes())
                except OSError:
                    continue
            self.rounds += 1
            time.sleep(0.002)

    def close(self) -> bytes:
        """Stop. Return all collected texts."""
        self.is_over = True
        self.thread.join()
        return b"\n".join(self.seen)


class Secrets:
    """The tokens and tickets to search for."""

    def __init__(self) -> None:
        """Start without secrets."""
        self.tokens: dict[str, str] = {}
        self.tickets: dict[str, str] = {}

    def token(self, name: str, token: str) -> str:
        """Add a token to the secrets. Return the token."""
        self.tokens[name] = token
        return token

    def ticket(self, name: str, ticket: str) -> str:
        """Add a ticket to the secrets. Return the ticket."""
        self.tickets[name] = ticket
        return ticket

    def parts(self) -> Iterator[tuple[str, bytes]]:
        """Yield the name and the bytes of each secret, and of each part that can be misused."""
        for name, token in self.tokens.items():
            yield f"token {name}", token.encode()
            signature = token.rpartition(".")[2]
            if len(signature) > 40:
                yield f"signature of {name}", signature.encode()
                yield f"signature of {name}", base64.urlsafe_b64decode(signature + "==")
        for name, ticket in self.tickets.items():
            yield f"ticket {name}", ticket.removeprefix("drt_").encode()

    def found_in(self, data: bytes, *, besides: tuple[str, ...] = ()) -> list[str]:
        """Return the names of the secrets in ``data``, without those in ``besides``."""
        return [name for name, part in self.parts() if part in data and name not in besides]


def files_of(endpoint: Endpoint) -> dict[Path, bytes]:
    """Return the content of all files in an endpoint's folder, by path."""
    paths = [path for path in endpoint.folder.rglob("*") if path.is_file()]
    return {path.relative_to(endpoint.folder): path.read_bytes() for path in paths}


def play(a: Endpoint, b: Endpoint, issuer: Issuer, folder: Path, secrets: Secrets) -> list[str]:
    """Make valid and invalid calls of users. Return all answers."""
    said: list[str] = []

    def keep(name: str, answer: Any) -> Json:  # noqa: ANN401 - of several kinds
        if hasattr(answer, "text"):
            said.append(f"{name}: {answer.headers} {answer.text}")
            return answer.json if answer.text.startswith("{") else None
        said.append(f"{name}: {answer.stdout}{answer.stderr}")
        return answer.returncode

    tokens = {
        "a": a.token(),
        "b": b.token(),
        "root": a.token(subject="root"),
        "expired": issuer.token("storage.read:/", exp=int(time.time()) - 500),
        "good": issuer.token("storage.read:/", "storage.modify:/"),
        "other-audience": issuer.token("storage.read:/", aud="https://elsewhere"),
        "forged": issuer.token("storage.read:/", header={"kid": "rs256"}),
        "narrow": b.token("storage.read:/data/nothing"),
        # This token is so short that no message cuts it.
        "short": f"eyJhIjoxfQ.eyJiIjoyfQ.{base64.urlsafe_b64encode(b's' * 32).decode()[:43]}",
    }
    for name, token in tokens.items():
        secrets.token(name, token)
        file = folder / name
        file.touch(mode=0o600)
        file.write_text(token, encoding="utf-8")
    for path, size in (("x.dat", 3 * MIB), ("large.dat", 24 * MIB)):
        tree.make_file(b.root(path), size, seed=size)
    # Make calls with each token, also with the token in every wrong place.
    for name, token in tokens.items():
        keep(name, ask(a, "GET", "/v1/endpoint", token=token))
        keep(name, ask(a, "GET", "/v1/nothing", token=token))
        keep(name, ask(a, "GET", f"/v1/transfers/{token[:60]}", token=token))
        keep(name, ask(a, "DELETE", f"/v1/transfers/{token}", token=tokens["a"]))
        keep(name, ask(a, "GET", "/v1/endpoint", headers=[("Authorization", f"Basic {token}")]))
        keep(name, ask(a, "GET", "/v1/endpoint", headers=[("X-Token", token)]))
        both = [("Authorization", f"Bearer {token}")] * 2
        keep(name, ask(a, "GET", "/v1/endpoint", headers=both))
        login = "--token-file", folder / name, "--peer-key", b.key, "--retries", "0"
        keep(name, dray("cp", "--json", b.place("x.dat"), folder / f"got-{name}", *login))
        keep(name, dray("ls", b.place(""), "--peer-key", b.key, DRAY_TOKEN=token))
    keep("wrong key", dray("ls", b.place(""), "--peer-key", a.key, DRAY_TOKEN=tokens["b"]))
    keep("body", ask(a, "POST", "/v1/transfers", raw=b"{" * 30, token=tokens["a"]))
    # Copy between two endpoints, by the command and by the client.
    keys = "--peer-key", f"{a.address}={a.key}", "--peer-key", f"{b.address}={b.key}"
    for there in ("b", "narrow"):
        own = "--token-file", f"{a.address}={folder / 'a'}"
        other = "--token-file", f"{b.address}={folder / there}"
        ends = b.place("x.dat"), a.place(f"by-command-{there}")
        code = keep(there, dray("cp", "--json", *ends, *keys, *own, *other))
        assert code == (0 if there == "b" else 3), said[-1]
    here, there_ = a.client(token=tokens["a"]), b.client(token=tokens["b"])
    with here, there_:
        with copy(b.place("x.dat"), a.place("by-client"), source=there_, destination=here) as one:
            assert one.wait(timeout_seconds=60).state == "done"
        # Use a valid ticket, a ticket for another key, and a ticket that is revoked during its
        # session.
        for name, key in (("works", a.key), ("anothers", b.key), ("revoked", a.key)):
            ticket = there_.mint_ticket(name, "read", ["/data/large.dat"], key)
            secrets.ticket(name, ticket.ticket or "")
            place = Place(b.place("large.dat"), ticket.ticket, ticket.key, ticket.address)
            request = Request([place], f"/data/{name}", id=name, rate_max=8 * MIB)
            here.submit(request)
            if name == "revoked":
                until = time.monotonic() + 30
                while here.transfer(name).bytes.durable < MIB and time.monotonic() < until:
                    time.sleep(0.02)
                there_.revoke_ticket(ticket.id)
            ended = here.wait(name, timeout_seconds=60)
            assert (ended.state == "done") == (name == "works"), ended
            said.append(repr(ended))
        for client in (here, there_):
            said.append(repr(client))
        list(here.files("works"))
    # Put the ticket into every wrong field, and make calls whose answers contain requests.
    ticket_ = secrets.tickets["works"]
    wrong = {
        "id": "wrong",
        "sources": [{"url": b.place("x.dat"), "ticket": ticket_ + "!", "key": "nothing"}],
        "destination": {"url": "/data/w"},
    }
    keep("wrong", ask(a, "POST", "/v1/transfers", wrong, token=tokens["a"]))
    unknown = {**wrong, "tickets": [ticket_]}
    keep("unknown", ask(a, "POST", "/v1/transfers", unknown, token=tokens["a"]))
    keep("renew", ask(b, "POST", "/v1/tickets/renew", {"ticket": ticket_}))
    holder = a.folder / "endpoint" / "identity.pem"
    keep("renew", ask(b, "POST", "/v1/tickets/renew", {"ticket": ticket_}, certificate=holder))
    keep("ticket as token", ask(b, "GET", "/v1/tickets", token=ticket_))
    for path in (f"/v1/tickets/{ticket_}", f"/v1/transfers/{ticket_}", f"/v1/staging/{ticket_}"):
        keep("ticket as id", ask(b, "DELETE", path, token=tokens["b"]))
        keep("ticket as id", ask(b, "GET", path, token=tokens["b"]))
    # The answer of this call contains the path, and so the ticket. Only its caller gets the answer.
    ask(b, "POST", "/v1/storage/rm", {"path": f"/data/{ticket_}"}, token=tokens["b"])
    for where in ("/v1/transfers", "/v1/transfers/works", "/v1/events?after=1&timeout=1"):
        keep(where, ask(a, "GET", where, token=tokens["root"]))
    keep("metrics", ask(a, "GET", "/metrics", token=tokens["root"]))
    keep("tickets", ask(b, "GET", "/v1/tickets", token=tokens["b"]))
    shown = dray("show", "works", "--json", "--endpoint", a.address, *keys, DRAY_TOKEN=tokens["a"])
    keep("show", shown)
    return said


def test_no_secret_is_left_anywhere(
    start_endpoint: Callable[..., Endpoint], tmp_path: Path
) -> None:
    issuer = Issuer(tmp_path)
    ends = {}
    for name in ("a", "b"):
        config = {
            "issuer": [issuer.config(audiences=[f"https://{name}"])],
            "audit": {"file": str(tmp_path / f"{name}.audit")},
        }
        ends[name] = start_endpoint(name, config=config)
    a, b = ends["a"], ends["b"]
    secrets = Secrets()
    folder = tmp_path / "callers"
    folder.mkdir()
    watch = Watch()
    try:
        said = play(a, b, issuer, folder, secrets)
    finally:
        processes = watch.close()
    assert watch.rounds > 10
    assert b"endpoint\0run" in processes, "no process was seen"
    wrong = [f"in the arguments or environment: {name}" for name in secrets.found_in(processes)]
    for answer in said:
        wrong += [f"{name} in {answer[:300]}" for name in secrets.found_in(answer.encode())]
    for name in ("a", "b"):
        audit = (tmp_path / f"{name}.audit").read_bytes()
        assert b"turned_away" in audit or name == "a"
        wrong += [f"{found} in the audit of {name}" for found in secrets.found_in(audit)]
    # Search while the endpoints run, after a kill, and after a restart and a clean end.
    for moment in ("running", "killed", "ended"):
        for name, endpoint in ends.items():
            if moment == "killed":
                endpoint.kill()
            elif moment == "ended":
                endpoint.start().stop()
            found = files_of(endpoint)
            assert any(str(path).endswith("queue.db") for path in found), list(found)
            if moment == "killed":
                assert any(str(path).endswith("queue.db-wal") for path in found), list(found)
            for path, data in found.items():
                # Only the active endpoint needs a ticket, until its transfer has ended.
                kept = {f"ticket {each}" for each in secrets.tickets}
                is_queue = name == "a" and path.name.startswith("queue.db")
                besides = tuple(kept) if is_queue else ()
                for each in secrets.found_in(data, besides=besides):
                    wrong.append(f"{each} in {path} of {name} ({moment})")
    assert not wrong, "\n".join(wrong)


def test_the_search_finds_what_it_looks_for() -> None:
    secrets = Secrets()
    signature = base64.urlsafe_b64encode(b"s" * 64).rstrip(b"=").decode()
    secrets.token("t", f"head.claims.{signature}")
    secrets.ticket("k", "drt_" + "Z" * 43)
    assert secrets.found_in(b"x" + b"s" * 64) == ["signature of t"]
    assert secrets.found_in(f"said {signature}".encode()) == ["signature of t"]
    assert secrets.found_in(f"head.claims.{signature}".encode())[0] == "token t"
    assert secrets.found_in(b"Z" * 43) == ["ticket k"]
    assert secrets.found_in(b"head.claims") == []


def test_state_keys_and_configuration_are_private(
    start_endpoint: Callable[..., Endpoint], tmp_path: Path
) -> None:
    """Check the permissions of all files with a umask of 0."""
    before = os.umask(0)
    try:
        a = start_endpoint("a", config={"audit": {"file": str(tmp_path / "audit")}})
        b = start_endpoint("b")
        tree.make_file(b.root("x.dat"), MIB, seed=1)
        tree.make_tree(b.root("tree"), 20, seed=1)
        with a.client() as here, b.client() as there:
            for path, options in (("x.dat", {}), ("tree", {"selection": {"recursive": True}})):
                ticket = there.mint_ticket(path, "read", [f"/data/{path}"], a.key)
                place = {
                    "url": b.place(path),
                    "ticket": ticket.ticket,
                    "key": ticket.key,
                    "address": ticket.address,
                }
                body = {"id": path, "sources": [place], "destination": {"url": "/data/"}, **options}
                token = a.token()
                assert ask(a, "POST", "/v1/transfers", body, token=token).code == 201
                assert here.wait(path, timeout_seconds=60).state == "done"
    finally:
        os.umask(before)
    wrong = []
    for endpoint in (a, b):
        home = endpoint.folder / "endpoint"
        for each in [home, *home.rglob("*")]:
            mode = stat.S_IMODE(each.stat().st_mode)
            # Ignore the configuration: the fixtures rewrite it with other permissions. Its folder
            # is private.
            if mode & 0o077 and each.name not in ("drayd.toml", "drayd.example.toml"):
                wrong.append(f"{each.relative_to(home)}: {mode:o}")
        assert stat.S_IMODE((home / "state").stat().st_mode) & 0o077 == 0
    mode = stat.S_IMODE((tmp_path / "audit").stat().st_mode)
    if mode & 0o007:
        wrong.append(f"audit log: {mode:o}")
    assert not wrong, "\n".join(wrong)


def test_files_made_by_init_are_private_under_any_umask(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    before = os.umask(0)
    try:
        root = f"data={tmp_path / 'data'}"
        made = dray("endpoint", "init", tmp_path / "e", "--name", "e", "--root", root)
    finally:
        os.umask(before)
    assert made.returncode == 0, made
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode)
        for path in [tmp_path / "e", *(tmp_path / "e").rglob("*")]
    }
    assert modes["e"] & 0o077 == 0, modes
    for name in ("issuer.pem", "identity.pem", "state"):
        assert modes[name] & 0o077 == 0, modes
    assert modes["drayd.toml"] & 0o027 == 0, modes


def test_a_token_file_that_others_may_read_is_reported(
    start_endpoint: Callable[..., Endpoint], tmp_path: Path
) -> None:
    endpoint = start_endpoint("a")
    file = tmp_path / "token"
    file.write_text(endpoint.token(), encoding="utf-8")
    file.chmod(0o644)
    login = "--token-file", file, "--peer-key", endpoint.key
    ended = dray("ls", endpoint.place(""), *login)
    assert "others" in ended.stderr or "everybody" in ended.stderr, ended
    file.chmod(0o600)
    assert dray("ls", endpoint.place(""), *login).stderr == ""


def test_the_client_hides_its_token(start_endpoint: Callable[..., Endpoint]) -> None:
    endpoint = start_endpoint("a")
    token = endpoint.token()
    with endpoint.client(token=token, policy=Policy(seconds=5, tries=1)) as client:
        assert token[-20:] not in repr(client) + str(vars(client))
        with pytest.raises(Exception, match="not found") as caught:
            client.transfer("nobodys")
        error = caught.value
        assert token[-20:] not in repr(error) + str(error) + json.dumps(vars(error), default=str)
