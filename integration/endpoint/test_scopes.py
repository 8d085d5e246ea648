"""A bearer token permits exactly its scopes."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from dray.testing.endpoints import Endpoint, Root
from integration.endpoint.issuer import Issuer
from integration.endpoint.raw import ask, dray, query
from integration.endpoint.token_scene import TokenScene, fetch, open_scene
from integration.harness import tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

Json: TypeAlias = Any


@pytest.fixture(scope="module")
def scene() -> Iterator[TokenScene]:
    """Yield one scene for all tests of this file."""
    with open_scene() as scene:
        yield scene


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
#: The rights that each capability grants (docs/design/endpoint.md, "Who is who").
GRANTS = {
    "read": {"read"},
    "create": {"create"},
    "modify": {"create", "modify"},
    "stage": {"stage", "read"},
}


def reaches(scopes: tuple[str, ...], action: str, path: str) -> bool:
    """Return whether scopes permit an action, by the rules of docs/design/endpoint.md."""
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
#: Calls by name: the rights that the page requires, and the call itself.
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
def folder(scene: TokenScene) -> Iterator[Path]:
    """Make the folder ``in`` with two files, new for each test."""
    folder = scene.endpoint.root("in")
    folder.mkdir()
    for name in ("file", "other"):
        (folder / name).write_bytes(b"what is there\n" * 100)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("scopes", SCOPES)
def test_a_token_permits_only_its_scopes(scene: TokenScene, folder: Path, scopes: str) -> None:
    token = scene.issuer.token(*SCOPES[scopes])
    wrong = []
    for name, (needs, method, path, body) in CALLS.items():
        before = tree.describe(folder)
        answer = ask(scene.endpoint, method, path, body, token=token)
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
                ask(scene.endpoint, "POST", f"/v1/transfers/{id}/cancel", token=token)
            ask(scene.endpoint, "GET", f"/v1/transfers/{id}/wait?timeout=20", token=token)
        # Undo the effect for the next call.
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
    scene: TokenScene,
    folder: Path,
    tmp_path: Path,
    scopes: tuple[str, ...],
    option: str,
    code: int,
    replaced: bool,
) -> None:
    """A token that may create and not replace keeps existing files, whatever the request says."""
    file = tmp_path / "token"
    file.write_text(scene.issuer.token(*scopes), encoding="utf-8")
    file.chmod(0o600)
    sent = tmp_path / "file"
    sent.write_bytes(b"new\n")
    before = (folder / "file").read_bytes()
    for name, is_new in (("file", False), ("fresh", True)):
        ends = sent, f"dray://{scene.endpoint.address}/data/in/{name}"
        options = "--token-file", file, "--peer-key", scene.endpoint.key
        ended = dray("cp", "--json", *ends, *options, "--overwrite", option)
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
    scene: TokenScene, folder: Path, tmp_path: Path, scope: str, code: int
) -> None:
    ended = fetch(scene, scene.issuer.token(scope), "data/in/file", tmp_path)
    assert ended.returncode == code, ended
    if code:
        error = json.loads(ended.stdout.splitlines()[-1])["error"]
        assert error["kind"] == "permission_denied"
        assert "storage.read:" in error["message"], error
        assert not (tmp_path / "got").exists()
    else:
        assert (tmp_path / "got").read_bytes() == (folder / "file").read_bytes()


def test_root_rules_apply_to_token_owners(start_endpoint: Callable[..., Endpoint]) -> None:
    """Both must agree: the token's scopes, and the root's rules for the owner."""
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
    for subject, rules in wanted.items():
        token = endpoint.token(subject=subject)
        for root in rules:
            read = ask(endpoint, "GET", f"/v1/storage/stat?{query(f'/{root}/x')}", token=token)
            made = {"path": f"/{root}/{subject}"}
            write = ask(endpoint, "POST", "/v1/storage/mkdir", made, token=token)
            found.setdefault(subject, {})[root] = (read.code, write.code)
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


def test_transfers_and_tickets_of_others_are_invisible(scene: TokenScene, folder: Path) -> None:
    alice, bob = (scene.issuer.token("storage.modify:/", sub=sub) for sub in ("alice", "bob"))
    ticket = {"transfer": "t", "direction": "write", "paths": [NEW], "peer_key": KEY}
    minted = ask(scene.endpoint, "POST", "/v1/tickets", ticket, token=alice)
    id = minted.json["id"]
    for method in ("GET", "DELETE"):
        ask(scene.endpoint, method, f"/v1/tickets/{id}", token=bob).refused(404, "not_found")
    assert ask(scene.endpoint, "GET", "/v1/tickets", token=bob).json["tickets"] == []
    assert ask(scene.endpoint, "GET", f"/v1/tickets/{id}", token=alice).json["revoked"] is False
    reads = scene.issuer.token("storage.read:/", "storage.modify:/")
    request = {"id": "alices", "sources": [{"url": FILE}], "destination": {"url": NEW}}
    assert ask(scene.endpoint, "POST", "/v1/transfers", request, token=reads).code == 201
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
        answers = [ask(scene.endpoint, method, each + verb, token=bob) for each in (there, nowhere)]
        # The answer does not tell whether the transfer exists.
        assert [each.code for each in answers] == [404, 404], (method, verb, answers)
        assert answers[0].error["cause"] == answers[1].error["cause"].replace("nobodys", "alices")
    found = ask(scene.endpoint, "POST", "/v1/transfers/query", {"ids": ["alices"]}, token=bob)
    assert found.json == {"transfers": {"alices": None}}
    assert ask(scene.endpoint, "GET", "/v1/transfers", token=bob).json["transfers"] == []
    events = ask(scene.endpoint, "GET", "/v1/events?timeout=0&after=0", token=bob)
    assert "alices" not in events.text
    # The answer tells only that the id is in use.
    answer = ask(scene.endpoint, "POST", "/v1/transfers", request, token=bob)
    assert answer.code in (403, 409), answer.text
    assert "alice@" not in answer.text
