"""Bearer tokens: which are believed, what each allows, and what happens when one ends."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import pytest

from dray.client import Place, Request
from dray.testing.endpoints import Endpoint, Root
from integration.endpoint.issuer import Issuer, encode
from integration.endpoint.raw import ask, dray, query, shipped_program
from integration.harness import tree

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

Json: TypeAlias = Any
KIB = 1 << 10
MIB = 1 << 20


class House(NamedTuple):
    """An endpoint that believes an issuer of the tests' own."""

    endpoint: Endpoint
    issuer: Issuer
    #: its keys are nowhere believed
    stranger: Issuer


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    """Give one endpoint for all that only asks, or tidies up behind itself."""
    folder = Path(tempfile.mkdtemp(prefix="dray-tokens-"))
    issuer = Issuer(folder)
    stranger = Issuer(folder, name="stranger")
    config = {
        "issuer": [issuer.config()],
        "map": {
            "rules": [
                {"issuer": issuer.url, "subject": who, "owner": who} for who in ("alice", "bob")
            ]
        },
    }
    endpoint = Endpoint(
        folder / "endpoint",
        roots=(Root(), Root("data2")),
        config=config,
        program=shipped_program(),
    )
    try:
        yield House(endpoint.start(), issuer, stranger)
    finally:
        endpoint.close()
        shutil.rmtree(folder, ignore_errors=True)


# --- which are believed ---------------------------------------------------------------------------


def good(house: House, **more: Json) -> str:
    return house.issuer.token("storage.read:/", **more)


def signed(house: House, algorithm: str, secret: bytes = b"", **header: Json) -> str:
    head = {"alg": algorithm, "kid": "rs256", "typ": "JWT", **header}
    claims = house.issuer.claims("storage.read:/")
    return house.issuer.sign(head, claims, algorithm, secret)


def changed(house: House) -> str:
    head, _, rest = good(house).partition(".")
    claims = house.issuer.claims("storage.read:/ storage.modify:/")
    return f"{head}.{encode(json.dumps(claims).encode())}.{rest.partition('.')[2]}"


def ago(seconds: int) -> int:
    return int(time.time()) - seconds


BAD: dict[str, tuple[Callable[[House], str], str]] = {
    "empty": (lambda _: "", "no bearer token"),
    "garbage": (lambda _: "!!! not a token !!!", "no JSON Web Token"),
    "two-parts": (lambda h: good(h).rpartition(".")[0], "not three parts"),
    "five-parts": (lambda _: "a.b.c.d.e", "encrypted"),
    "no-base64": (lambda h: "%%%." + good(h).partition(".")[2], "not base64url"),
    "no-json": (lambda h: encode(b"[1]") + "." + good(h).partition(".")[2], "not a JSON object"),
    "huge": (lambda _: "a" * 20_000, "over 16384 bytes"),
    "expired": (lambda h: good(h, exp=ago(120)), "it expired 12"),
    "no-end": (lambda h: good(h, exp=None), "does not say when it expires"),
    "not-yet": (lambda h: good(h, nbf=ago(-600)), "not yet valid"),
    "issued-later": (lambda h: good(h, iat=ago(-600)), "not yet valid"),
    "other-issuer": (lambda h: good(h, iss="https://elsewhere.example/"), "is not known here"),
    "no-issuer": (lambda h: good(h, iss=None), "names no issuer"),
    "issuer-alike": (lambda h: good(h, iss=h.issuer.url.rstrip("/")), "is not known here"),
    "other-audience": (lambda h: good(h, aud="https://elsewhere"), "its audience is"),
    "no-audience": (lambda h: good(h, aud=None), "names no audience"),
    "no-subject": (lambda h: good(h, sub=None), "names no subject"),
    "no-profile": (lambda h: good(h, **{"wlcg.ver": None}), "WLCG profile"),
    "bound": (lambda h: good(h, cnf={"jkt": "x"}), "bound to a key"),
    "twisted": (lambda h: good(h, exp="tomorrow"), "wrong type"),
    "climbing": (lambda h: h.issuer.token("storage.read:/data/../x"), "climbs"),
    "unknown-key": (lambda h: good(h, header={"kid": "another"}), "has no key"),
    "strangers-key": (lambda h: h.stranger.token("storage.read:/"), "not signed by"),
    "changed": (changed, "not signed by"),
    "no-signature": (lambda h: good(h).rpartition(".")[0] + ".", "not signed by"),
    "alg-none": (lambda h: signed(h, "none"), "algorithm none is not accepted"),
    "alg-None": (lambda h: signed(h, "none", alg="None"), "is not accepted"),
    "hs256-public-pem": (
        lambda h: signed(h, "HS256", h.issuer.public("RS256").read_bytes()),
        "algorithm HS256 is not accepted",
    ),
    "hs256-as-rs256": (
        lambda h: signed(h, "HS256", h.issuer.public("RS256").read_bytes(), alg="RS256"),
        "not signed by",
    ),
    "other-algorithm": (lambda h: signed(h, "RS256", kid="es256"), "not one for RS256"),
    "critical": (lambda h: good(h, header={"crit": ["x"], "x": 1}), "critical"),
    "other-type": (lambda h: good(h, header={"typ": "secevent+jwt"}), "no access token"),
    "own-keys": (
        lambda h: h.stranger.token("storage.read:/", header={"jku": "https://evil.example/"}),
        "not signed by",
    ),
    "ticket": (lambda _: "drt_" + "A" * 43, "no JSON Web Token"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_token_is_refused_by_the_api_with_what_is_wrong(house: House, name: str) -> None:
    make, words = BAD[name]
    token = make(house)
    answer = ask(house.endpoint, "GET", "/v1/endpoint", token=token)
    error = answer.refused(401, "unauthorized")
    assert words in error["cause"], error
    if len(token) > 20:
        assert token[-20:] not in answer.text


@pytest.mark.parametrize("name", sorted(set(BAD) - {"empty", "huge"}))
def test_a_bad_token_opens_no_session_and_the_copy_says_why(
    house: House, name: str, tmp_path: Path
) -> None:
    make, words = BAD[name]
    if name == "ticket":
        words = "does not know it"
    ended = fetch(house, make(house), "data/x", tmp_path)
    assert ended.returncode == 3, ended.stderr
    error = json.loads(ended.stdout.splitlines()[-1])["error"]
    assert error["kind"] == "unauthorized", error
    assert words in error["cause"], error
    assert error["remedy"], error
    assert list(tmp_path.glob("got*")) == []


def fetch(
    house: House, token: str, path: str, folder: Path, *more: str
) -> subprocess.CompletedProcess[str]:
    """Copy straight from the endpoint with a token."""
    file = folder / "token"
    file.write_text(token, encoding="utf-8")
    file.chmod(0o600)
    ends = f"dray://{house.endpoint.address}/{path}", folder / "got"
    who = "--token-file", file, "--peer-key", house.endpoint.key
    return dray("cp", "--json", *ends, *who, "--retries", "0", *more)


HEADERS: dict[str, tuple[Callable[[str], list[tuple[str, str]]], str]] = {
    "missing": (lambda _: [], "neither a token nor a certificate"),
    "two": (lambda t: [("Authorization", f"Bearer {t}")] * 2, "two Authorization headers"),
    "two-other": (
        lambda t: [("Authorization", f"Bearer {t}"), ("authorization", "Bearer x")],
        "two Authorization headers",
    ),
    "basic": (lambda t: [("Authorization", f"Basic {t}")], "no bearer token"),
    "no-scheme": (lambda t: [("Authorization", t)], "no bearer token"),
    "scheme-alone": (lambda _: [("Authorization", "Bearer")], "no bearer token"),
    "two-in-one": (lambda t: [("Authorization", f"Bearer {t}, Bearer {t}")], ""),
    "as-cookie": (lambda t: [("Cookie", f"token={t}")], "neither a token nor a certificate"),
    "latin": (lambda t: [("Authorization", f"Bearer \xe9{t}")], ""),
}


@pytest.mark.parametrize("name", HEADERS)
def test_a_good_token_counts_only_in_one_good_header(house: House, name: str) -> None:
    make, words = HEADERS[name]
    answer = ask(house.endpoint, "GET", "/v1/endpoint", headers=make(good(house)))
    assert words in answer.refused(401, "unauthorized")["cause"]


def test_a_token_in_the_url_is_no_credential(house: House) -> None:
    for path in ("/v1/endpoint", "/v1/transfers"):
        answer = ask(house.endpoint, "GET", f"{path}?access_token={good(house)}")
        assert answer.code in (400, 401), answer.text
        assert good(house)[-20:] not in answer.text


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_good_tokens_are_believed_in_every_way_the_profile_allows(
    house: House, algorithm: str
) -> None:
    for more in (
        {},
        {"aud": ["https://elsewhere", house.issuer.audience]},
        {"aud": "https://wlcg.cern.ch/jwt/v1/any"},
        {"exp": ago(30)},
        {"nbf": None, "iat": None},
        {"header": {"typ": "at+jwt"}},
        {"header": {"kid": None}},
    ):
        token = good(house, algorithm=algorithm, **more)
        answer = ask(house.endpoint, "GET", "/v1/endpoint", token=token)
        assert answer.code == 200, (more, answer.text)
        assert answer.json["you"]["owner"] == "alice"


def test_what_is_open_needs_no_token_and_all_else_does(house: House) -> None:
    document = ask(house.endpoint, "GET", "/v1/openapi.json")
    assert document.code == 200
    assert ask(house.endpoint, "GET", "/healthz").code == 200
    for path, methods in document.json["paths"].items():
        for method in methods:
            if path in ("/v1/openapi.json", "/healthz"):
                continue
            where = path.replace("{id}", "x")
            answer = ask(house.endpoint, method.upper(), where, raw=b"{}")
            renewed = path == "/v1/tickets/renew"  # by a key, not by a token
            wanted = (400, 401) if renewed else (401,)
            assert answer.code in wanted, f"{method} {path}: {answer.code} {answer.text}"
            assert answer.error["remedy"]


def test_the_programs_of_the_command_line_say_what_to_do_without_a_good_token(
    house: House, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    place = f"dray://{house.endpoint.address}/data"
    commands = [
        ["ls", place],
        ["stat", place],
        ["rm", f"{place}/x"],
        ["checksum", f"{place}/x"],
        ["transfers", "--endpoint", house.endpoint.address],
        ["show", "x", "--endpoint", house.endpoint.address],
        ["cancel", "x", "--endpoint", house.endpoint.address],
        ["endpoint", "status", house.endpoint.address],
    ]
    for token, words in (
        (good(house, exp=ago(200)), "expired"),
        (house.stranger.token("storage.read:/"), "not signed by"),
    ):
        file.write_text(token, encoding="utf-8")
        file.chmod(0o600)
        for command in commands:
            who = ["--token-file", str(file), "--peer-key", house.endpoint.key]
            ended = dray(*command, *who)
            assert ended.returncode == 3, (command, ended)
            assert words in ended.stderr, (command, ended.stderr)
            assert "ask the issuer for a new token" in ended.stderr, (command, ended.stderr)
            assert token[-20:] not in ended.stderr + ended.stdout


# --- what each allows -----------------------------------------------------------------------------

SCOPES = {
    "nothing": (),
    "other": ("compute.read", "openid"),
    "read": ("storage.read:/data/in",),
    "create": ("storage.create:/data/in",),
    "modify": ("storage.modify:/data/in",),
    "stage": ("storage.stage:/data/in",),
    "read-root": ("storage.read:/data",),
    "modify-all": ("storage.modify:/",),
    "read-alike": ("storage.read:/data/i",),
    "read-longer": ("storage.read:/data/in2",),
    "modify-other-root": ("storage.modify:/data2",),
    "read-one-file": ("storage.read:/data/in/file",),
    "modify-sub": ("storage.modify:/data/in/sub",),
    "create-sub": ("storage.create:/data/in/sub", "storage.read:/data/in"),
    "read-and-create": ("storage.read:/data/in", "storage.create:/data/in/new"),
}
#: what a capability allows (docs/design/endpoint.md, "Who is who")
GRANTS = {
    "read": {"read"},
    "create": {"create"},
    "modify": {"create", "modify"},
    "stage": {"stage", "read"},
}


def reaches(scopes: tuple[str, ...], action: str, path: str) -> bool:
    """Judge a call by the page, not by the program."""
    for scope in scopes:
        if not scope.startswith("storage."):
            continue
        capability, _, folder = scope.removeprefix("storage.").partition(":")
        folder = folder.rstrip("/")
        if action in GRANTS[capability] and (path == folder or path.startswith(f"{folder}/")):
            return True
    return False


FILE, NEW = "/data/in/file", "/data/in/new"
ALWAYS = {"overwrite": "if-different"}
NEVER = {"overwrite": "never"}
KEY = "sha256:" + "0" * 64
#: a call, what of it the page asks for, the call itself
CALLS: dict[str, tuple[list[tuple[str, str]], str, str, Json]] = {
    "stat": ([("read", FILE)], "GET", "/v1/storage/stat?" + query(FILE), None),
    "list": ([("read", "/data/in")], "GET", "/v1/storage/list?" + query("/data/in"), None),
    "space": ([("read", "/data/in")], "GET", "/v1/storage/space?" + query("/data/in"), None),
    "checksum": (
        [("read", FILE)],
        "POST",
        "/v1/storage/checksum",
        {"path": FILE, "algorithm": "adler32"},
    ),
    "mkdir": ([("create", NEW)], "POST", "/v1/storage/mkdir", {"path": NEW}),
    "rm": ([("modify", NEW)], "POST", "/v1/storage/rm", {"path": NEW, "recursive": True}),
    "rename": (
        [("modify", FILE), ("modify", NEW)],
        "POST",
        "/v1/storage/rename",
        {"from": FILE, "to": NEW},
    ),
    "submit-new": (
        [("read", FILE), ("create", NEW)],
        "POST",
        "/v1/transfers",
        {"sources": [{"url": FILE}], "destination": {"url": NEW}, **NEVER},
    ),
    "submit-replace": (
        [("read", FILE), ("modify", NEW)],
        "POST",
        "/v1/transfers",
        {"sources": [{"url": FILE}], "destination": {"url": NEW}, **ALWAYS},
    ),
    "submit-into": (
        [("read", FILE), ("create", "/data/in")],
        "POST",
        "/v1/transfers",
        {"sources": [{"url": FILE}], "destination": {"url": "/data/in/"}, **NEVER},
    ),
    "submit-abroad": (
        [("read", FILE)],
        "POST",
        "/v1/transfers",
        {"sources": [{"url": FILE}], "destination": {"url": "dray://127.0.0.1:1/data/x"}},
    ),
    "ticket-read": (
        [("read", FILE)],
        "POST",
        "/v1/tickets",
        {"transfer": "t", "direction": "read", "paths": [FILE], "peer_key": KEY},
    ),
    "ticket-read-two": (
        [("read", FILE), ("read", "/data/in/other")],
        "POST",
        "/v1/tickets",
        {
            "transfer": "t",
            "direction": "read",
            "paths": [FILE, "/data/in/other"],
            "peer_key": KEY,
        },
    ),
    "ticket-new": (
        [("create", NEW)],
        "POST",
        "/v1/tickets",
        {"transfer": "t", "direction": "write", "paths": [NEW], "peer_key": KEY, **NEVER},
    ),
    "ticket-into": (
        [("create", "/data/in")],
        "POST",
        "/v1/tickets",
        {"transfer": "t", "direction": "write", "paths": ["/data/in/"], "peer_key": KEY, **NEVER},
    ),
    "ticket-replace": (
        [("modify", NEW)],
        "POST",
        "/v1/tickets",
        {"transfer": "t", "direction": "write", "paths": [NEW], "peer_key": KEY, **ALWAYS},
    ),
}


@pytest.fixture
def folder(house: House) -> Iterator[Path]:
    """Give the folder ``in`` with a file and another, fresh for each test."""
    folder = house.endpoint.root("in")
    folder.mkdir()
    for name in ("file", "other"):
        (folder / name).write_bytes(b"what is there\n" * 100)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("scopes", SCOPES)
def test_a_token_allows_what_its_scopes_say_and_nothing_else(
    house: House, folder: Path, scopes: str
) -> None:
    token = house.issuer.token(*SCOPES[scopes])
    wrong = []
    for name, (needs, method, path, body) in CALLS.items():
        before = tree.describe(folder)
        answer = ask(house.endpoint, method, path, body, token=token)
        if all(reaches(SCOPES[scopes], *need) for need in needs):
            if answer.code == 403:
                wrong.append(f"{name}: refused: {answer.text}")
        elif answer.code != 403:
            wrong.append(f"{name}: {answer.code} {answer.text}")
        else:
            error = answer.refused(403, "permission_denied")
            if "storage." not in error["message"]:
                wrong.append(f"{name}: it says not which scope was needed: {error}")
            if tree.differences(before, tree.describe(folder)):
                wrong.append(f"{name}: refused, and done")
        if name.startswith("submit-") and answer.code == 201:
            id = answer.json["id"]
            if name == "submit-abroad":
                ask(house.endpoint, "POST", f"/v1/transfers/{id}/cancel", token=token)
            ask(house.endpoint, "GET", f"/v1/transfers/{id}/wait?timeout=20", token=token)
        # What was done is undone for the next.
        shutil.rmtree(folder / "new", ignore_errors=True)
        (folder / "new").unlink(missing_ok=True)
        (folder / "file").write_bytes(b"what is there\n" * 100)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("scopes", "option", "code", "replaced"),
    [
        (("storage.modify:/data/in",), "always", 0, True),
        (("storage.modify:/data/in",), "never", 0, False),
        (("storage.create:/data/in",), "always", 0, False),
        (("storage.create:/data/in",), "never", 0, False),
        (("storage.create:/data/in/sub",), "never", 3, False),
        (("storage.read:/data/in",), "always", 3, False),
        (("storage.modify:/data/in/sub",), "always", 3, False),
        (("storage.modify:/data2",), "always", 3, False),
        (("storage.stage:/data",), "always", 3, False),
    ],
)
def test_a_session_writes_as_far_as_its_token_allows(
    house: House,
    folder: Path,
    tmp_path: Path,
    scopes: tuple[str, ...],
    option: str,
    code: int,
    replaced: bool,
) -> None:
    """One that may create and not replace leaves what is there as it is, whatever it asks for."""
    file = tmp_path / "token"
    file.write_text(house.issuer.token(*scopes), encoding="utf-8")
    file.chmod(0o600)
    sent = tmp_path / "file"
    sent.write_bytes(b"new\n")
    before = (folder / "file").read_bytes()
    for name, is_new in (("file", False), ("fresh", True)):
        ends = sent, f"dray://{house.endpoint.address}/data/in/{name}"
        who = "--token-file", file, "--peer-key", house.endpoint.key
        ended = dray("cp", "--json", *ends, *who, "--overwrite", option)
        assert ended.returncode == code, ended
        report = json.loads(ended.stdout.splitlines()[-1])
        there = folder / name
        if code:
            assert report["error"]["kind"] == "permission_denied", report
            assert "storage.create:" in report["error"]["message"], report
            assert there.exists() == (not is_new)
        else:
            assert there.read_bytes() == (b"new\n" if is_new or replaced else before)
    assert tree.leftovers(folder) == []


@pytest.mark.parametrize(
    ("scope", "code"),
    [
        ("storage.read:/data/in", 0),
        ("storage.stage:/data/in", 0),
        ("storage.read:/data/in/file", 0),
        ("storage.read:/data/in/fil", 3),
        ("storage.read:/data/in2", 3),
        ("storage.modify:/", 3),
        ("storage.create:/", 3),
    ],
)
def test_a_session_reads_as_far_as_its_token_allows(
    house: House, folder: Path, tmp_path: Path, scope: str, code: int
) -> None:
    ended = fetch(house, house.issuer.token(scope), "data/in/file", tmp_path)
    assert ended.returncode == code, ended
    if code:
        error = json.loads(ended.stdout.splitlines()[-1])["error"]
        assert error["kind"] == "permission_denied"
        assert "storage.read:" in error["message"], error
        assert not (tmp_path / "got").exists()
    else:
        assert (tmp_path / "got").read_bytes() == (folder / "file").read_bytes()


def test_rules_of_a_root_hold_for_tokens_too(start_endpoint: Callable[..., Endpoint]) -> None:
    """Both must agree: what the token's scopes allow, and what the root's rules allow the owner."""
    roots = (
        Root("data", {"read": ["bob"], "write": ["bob"], "stage": ["bob"]}),
        Root("open", {"read": "*", "write": ["bob"]}),
        Root("fixed", {"read_only": True}),
    )
    endpoint = start_endpoint("a", roots=roots)
    for root in ("data", "open", "fixed"):
        endpoint.root("x", root=root).write_bytes(b"x")
    wanted = {
        "alice": {"data": (403, 403), "open": (200, 403), "fixed": (200, 403)},
        "bob": {"data": (200, 201), "open": (200, 201), "fixed": (200, 403)},
    }
    found: dict[str, dict[str, tuple[int, int]]] = {}
    for who, rules in wanted.items():
        token = endpoint.token(subject=who)
        for root in rules:
            read = ask(endpoint, "GET", f"/v1/storage/stat?{query(f'/{root}/x')}", token=token)
            made = {"path": f"/{root}/{who}"}
            write = ask(endpoint, "POST", "/v1/storage/mkdir", made, token=token)
            found.setdefault(who, {})[root] = (read.code, write.code)
    assert found == wanted


def test_the_path_of_a_scope_begins_at_its_issuers_base(
    start_endpoint: Callable[..., Endpoint], tmp_path: Path
) -> None:
    issuer = Issuer(tmp_path)
    config = {"issuer": [issuer.config(base="/data/cms")]}
    endpoint = start_endpoint("a", config=config)
    for folder in ("cms/run", "atlas/run"):
        endpoint.root(folder).mkdir(parents=True)
    token = issuer.token("storage.read:/", "storage.modify:/run")
    for path, code in (
        ("/data/cms", 200),
        ("/data/cms/run", 200),
        ("/data/atlas/run", 403),
        ("/data", 403),
        ("/data/cmsx", 403),
    ):
        answer = ask(endpoint, "GET", f"/v1/storage/stat?{query(path)}", token=token)
        assert answer.code == code, (path, answer.text)
    for path, code in (("/data/cms/run/new", 201), ("/data/cms/new", 403), ("/run/new", 404)):
        answer = ask(endpoint, "POST", "/v1/storage/mkdir", {"path": path}, token=token)
        assert answer.code == code, (path, answer.text)


def test_transfers_and_tickets_of_others_are_not_there(house: House, folder: Path) -> None:
    alice, bob = (house.issuer.token("storage.modify:/", sub=sub) for sub in ("alice", "bob"))
    ticket = {"transfer": "t", "direction": "write", "paths": [NEW], "peer_key": KEY}
    minted = ask(house.endpoint, "POST", "/v1/tickets", ticket, token=alice)
    id = minted.json["id"]
    for method in ("GET", "DELETE"):
        ask(house.endpoint, method, f"/v1/tickets/{id}", token=bob).refused(404, "not_found")
    assert ask(house.endpoint, "GET", "/v1/tickets", token=bob).json["tickets"] == []
    assert ask(house.endpoint, "GET", f"/v1/tickets/{id}", token=alice).json["revoked"] is False
    reads = house.issuer.token("storage.read:/", "storage.modify:/")
    request = {"id": "alices", "sources": [{"url": FILE}], "destination": {"url": NEW}}
    assert ask(house.endpoint, "POST", "/v1/transfers", request, token=reads).code == 201
    there, nowhere = "/v1/transfers/alices", "/v1/transfers/nobodys"
    for method, verb in (
        ("GET", ""),
        ("GET", "/files"),
        ("GET", "/wait?timeout=1"),
        ("POST", "/cancel"),
        ("POST", "/pause"),
        ("POST", "/resume"),
        ("POST", "/retry"),
        ("DELETE", ""),
    ):
        answers = [ask(house.endpoint, method, each + verb, token=bob) for each in (there, nowhere)]
        # Not a word on whether it is there.
        assert [each.code for each in answers] == [404, 404], (method, verb, answers)
        assert answers[0].error["cause"] == answers[1].error["cause"].replace("nobodys", "alices")
    found = ask(house.endpoint, "POST", "/v1/transfers/query", {"ids": ["alices"]}, token=bob)
    assert found.json == {"transfers": {"alices": None}}
    assert ask(house.endpoint, "GET", "/v1/transfers", token=bob).json["transfers"] == []
    events = ask(house.endpoint, "GET", "/v1/events?timeout=0&after=0", token=bob)
    assert "alices" not in events.text
    # The name is taken, and that is all that is said.
    answer = ask(house.endpoint, "POST", "/v1/transfers", request, token=bob)
    assert answer.code in (403, 409), answer.text
    assert "alice@" not in answer.text


# --- what happens when it ends --------------------------------------------------------------------


@pytest.mark.slow
def test_a_transfer_outlives_the_token_it_was_submitted_with(
    start_endpoint: Callable[..., Endpoint], tmp_path: Path
) -> None:
    """Queued, and on its way: calls with the token are refused, the transfers end well."""
    issuer = Issuer(tmp_path)
    rules = [{"issuer": issuer.url, "subject": "alice", "owner": "alice"}]
    config = {"issuer": [issuer.config()], "map": {"rules": rules}}
    a = start_endpoint("a", config=config)
    b = start_endpoint("b")
    tree.make_file(b.root("x.dat"), 4 * MIB, seed=1)
    token = issuer.dying(4, "storage.read:/", "storage.modify:/")
    fresh = issuer.token("storage.read:/")
    start = time.time()
    with b.client() as there, a.client(token=token) as here:
        later = datetime.fromtimestamp(start + 6, timezone.utc)
        for id, not_before, rate in (("queued", later, None), ("moving", None, 512 * KIB)):
            ticket = there.mint_ticket(id, "read", ["/data/x.dat"], a.key)
            place = Place(b.place("x.dat"), ticket.ticket, ticket.key, ticket.address)
            request = Request([place], f"/data/{id}", id=id, not_before=not_before, rate_max=rate)
            here.submit(request)
    while ask(a, "GET", "/v1/transfers/moving", token=token).code == 200:
        assert time.time() < start + 30, "it never expires"
        time.sleep(0.1)
    for path in ("/v1/transfers/moving", "/v1/transfers", "/v1/transfers/queued/wait?timeout=1"):
        error = ask(a, "GET", path, token=token).refused(401, "unauthorized")
        assert "expired" in error["cause"]
        assert "new token" in error["remedy"]
    ids = ("queued", "moving")
    states = {id: ask(a, "GET", f"/v1/transfers/{id}", token=fresh).json for id in ids}
    assert states["moving"]["state"] == "active", states["moving"]
    assert states["queued"]["state"] in ("queued", "waiting"), states["queued"]
    for id in ids:
        done = ask(a, "GET", f"/v1/transfers/{id}/wait?timeout=60", token=fresh).json
        assert done["state"] == "done", done
        assert a.root(id).read_bytes() == b.root("x.dat").read_bytes()


@pytest.mark.slow
def test_a_session_outlives_the_token_that_opened_it_and_the_next_needs_another(
    house: House, folder: Path, tmp_path: Path
) -> None:
    tree.make_file(folder / "large", 4 * MIB, seed=2)
    token = house.issuer.dying(4, "storage.read:/data/in")
    start = time.monotonic()
    ended = fetch(house, token, "data/in/large", tmp_path, "--rate", "512KiB")
    assert ended.returncode == 0, ended
    assert time.monotonic() - start > 5, "it was over before the token"
    assert (tmp_path / "got").read_bytes() == (folder / "large").read_bytes()
    ended = fetch(house, token, "data/in/file", tmp_path)
    assert ended.returncode == 3
    assert "expired" in ended.stdout


@pytest.mark.slow
def test_a_long_poll_ends_as_it_began_and_the_next_needs_another_token(house: House) -> None:
    token = house.issuer.dying(3, "storage.read:/")
    last = ask(house.endpoint, "GET", "/v1/events?timeout=0", token=token).json["last"]
    polled = ask(house.endpoint, "GET", f"/v1/events?timeout=6&after={last}", token=token)
    assert polled.code == 200, polled.text
    again = ask(house.endpoint, "GET", f"/v1/events?timeout=1&after={last}", token=token)
    again.refused(401, "unauthorized")
