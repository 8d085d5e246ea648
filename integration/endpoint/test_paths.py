"""Paths that point outside of their root: calls, submissions, tickets and sessions refuse them."""

from __future__ import annotations

import json
import struct
import time
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import pytest

from dray.testing.endpoints import Root
from integration.endpoint.raw import ask, dray, query
from integration.harness import tree
from integration.wire.peer import Peer, connect, frame_of, hello

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dray.testing.endpoints import Endpoint
    from integration.endpoint.raw import Answer

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

Json: TypeAlias = Any
SECRET = b"nobody outside may read this\n" * 50
SOURCE, SINK = 0, 1


class Place(NamedTuple):
    """An endpoint whose root ``data`` has neighbours that no caller may reach."""

    endpoint: Endpoint
    #: A folder beside the roots, which is not exported.
    outside: Path
    token: str


@pytest.fixture
def place(start_endpoint: Callable[..., Endpoint]) -> Place:
    endpoint = start_endpoint("a", roots=(Root(), Root("data-closed")))
    # Beside the root `data`, with a name that has the same prefix.
    outside = endpoint.root().parent / "data2"
    for folder in (outside, outside / "sub", endpoint.root("in")):
        folder.mkdir()
    for file in (outside / "secret", outside / "sub" / "secret"):
        file.write_bytes(SECRET)
    endpoint.root("secret", root="data-closed").write_bytes(SECRET)
    endpoint.root("in/file").write_bytes(b"not secret\n")
    endpoint.root("in/out").symlink_to(outside)
    endpoint.root("in/up").symlink_to("../..")
    endpoint.root("in/absolute").symlink_to(outside / "secret")
    endpoint.root("in/relative").symlink_to("../../data2/secret")
    endpoint.root("in/proc").symlink_to("/proc/self/root")
    (endpoint.root("in") / ".dray-mine").write_bytes(SECRET)
    return Place(endpoint, outside, endpoint.token())


LONG = "x" * 256
#: Paths outside the root, and paths that no caller may name.
OUT = {
    "dot-dot": "/data/../data2/secret",
    "dot-dot-deep": "/data/in/../../data2/secret",
    "dot-dot-end": "/data/in/..",
    "dot-dot-root": "/../data2/secret",
    "root-is-dot-dot": "/data/..",
    "coded-dots": "/data/%2e%2e/data2/secret",
    "coded-slash": "/data/..%2fdata2%2fsecret",
    "coded-slash-big": "/data/..%2Fdata2%2Fsecret",
    "coded-root": "/data%2f..%2fdata2/secret",
    "coded-twice": "/data/%252e%252e/data2/secret",
    "overlong": "/data/%c0%ae%c0%ae/data2/secret",
    "back-slash": "/data/..\\data2\\secret",
    "slashes": "/data//in/file",
    "slashes-first": "//data/in/file",
    "slashes-last": "/data/in//",
    "absolute-in": "/data//etc/passwd",
    "dot": "/data/./in/file",
    "dot-end": "/data/in/.",
    "dots": "/data/.../data2/secret",
    "dots-end": "/data/in/file.",
    "dots-spaces": "/data/.. /data2/secret",
    "nul": "/data/in/file%00.txt",
    "nul-first": "/data/%00",
    "nul-root": "/data%00/in/file",
    "link-folder": "/data/in/out/secret",
    "link-folder-deep": "/data/in/out/sub/secret",
    "link-up": "/data/in/up/data2/secret",
    "link-proc": "/data/in/proc/etc/passwd",
    "reserved": "/data/in/.dray-mine",
    "reserved-coded": "/data/in/%2edray-mine",
    "reserved-folder": "/data/.dray-x/y",
    "long-name": f"/data/{LONG}",
    "long-path": "/data" + f"/{LONG[:200]}" * 30,
    "very-long": "/data/" + "x/" * 9000 + "x",
    "half-code": "/data/in/file%",
    "bad-code": "/data/in/%zz",
    "no-slash": "data/in/file",
    "none": "",
    "slash": "/",
    "url": "file:///etc/passwd",
    "other-case": "/DATA/in/file",
    "root-prefix": "/dat/in/file",
    "root-longer": "/data2/secret",
    "root-real-path": "/etc/passwd",
}
#: Links. A caller may list, rename and remove a link itself, but must not reach its target.
LINKS = ("out", "up", "absolute", "relative", "proc")


def calls(path: str) -> dict[str, tuple[str, str, Json]]:
    """Return all calls of the API that contain a path, by name."""
    name, ticket = "/data/in/new", {"transfer": "t", "peer_key": "sha256:" + "0" * 64}
    return {
        "stat": ("GET", f"/v1/storage/stat?{query(path)}", None),
        "list": ("GET", f"/v1/storage/list?{query(path)}", None),
        "space": ("GET", f"/v1/storage/space?{query(path)}", None),
        "mkdir": ("POST", "/v1/storage/mkdir", {"path": path, "parents": True}),
        "rm": ("POST", "/v1/storage/rm", {"path": path, "recursive": True}),
        "rename-from": ("POST", "/v1/storage/rename", {"from": path, "to": name}),
        "rename-to": (
            "POST",
            "/v1/storage/rename",
            {"from": "/data/in/file", "to": path, "replace": True},
        ),
        "checksum": ("POST", "/v1/storage/checksum", {"path": path, "algorithm": "adler32"}),
        "submit-from": (
            "POST",
            "/v1/transfers",
            {"sources": [{"url": path}], "destination": {"url": "/data/in/copied"}},
        ),
        "submit-to": (
            "POST",
            "/v1/transfers",
            {"sources": [{"url": "/data/in/file"}], "destination": {"url": path}},
        ),
        "submit-remote-from": (
            "POST",
            "/v1/transfers",
            {
                "sources": [{"url": f"dray://127.0.0.1:1{path}"}],
                "destination": {"url": "/data/in/copied"},
            },
        ),
        "ticket-read": ("POST", "/v1/tickets", {**ticket, "direction": "read", "paths": [path]}),
        "ticket-write": ("POST", "/v1/tickets", {**ticket, "direction": "write", "paths": [path]}),
        "stage-in": ("POST", "/v1/staging/in", {"path": path}),
        "admission": (
            "POST",
            "/v1/admission",
            {"transfers": [{"sources": [{"url": path}], "destination": {"url": "/data/in/c"}}]},
        ),
    }


#: Tricks whose paths break no rule, or are checked only when the path is used. The endpoint may
#: accept these paths, but they must have no effect.
HARMLESS = {
    *("coded-twice", "back-slash", "dots", "dots-end", "dots-spaces", "overlong", "long-path"),
}
#: Tricks with names of roots. They are accepted for another endpoint, whose roots may have any
#: name.
ROOTS = {"other-case", "root-prefix", "root-longer", "root-real-path"}


def secrets_in(text: str) -> list[str]:
    """Return the traces of files outside of the root in a text."""
    found = [
        word for word in ("nobody outside", f'"size":{len(SECRET)}', "root:x:0") if word in text
    ]
    return found


def state(place: Place) -> Json:
    """Describe all files outside of the root ``data``."""
    closed = place.endpoint.root(root="data-closed")
    return [tree.describe(each) for each in (place.outside, closed)]


@pytest.mark.parametrize("trick", OUT)
def test_no_call_follows_a_path_out_of_its_root(place: Place, trick: str) -> None:
    path = OUT[trick]
    before = state(place)
    wrong = []
    for name, (method, where, body) in calls(path).items():
        answer = ask(place.endpoint, method, where, body, token=place.token)
        if answer.code >= 500 and answer.code != 501:
            wrong.append(f"{name}: {answer.code} {answer.text}")
        if found := secrets_in(answer.text):
            wrong.append(f"{name}: it tells {found}")
        if answer.code < 300:
            wrong += accepted(place, trick, name, answer)
        elif not (answer.error["cause"] and answer.error["remedy"]):
            wrong.append(f"{name}: {answer.code} without a word: {answer.text}")
    assert not wrong, "\n".join(wrong)
    assert state(place) == before
    assert (place.endpoint.root("in") / ".dray-mine").read_bytes() == SECRET


def accepted(place: Place, trick: str, name: str, answer: Answer) -> list[str]:
    """Return the faults of an accepted call.

    An accepted call is no fault if its path is harmless, or if its transfer fails when it runs.
    """
    if trick in HARMLESS or name == "admission":
        return []
    if trick.startswith("link-") and name in ("ticket-read", "ticket-write"):
        # The endpoint checks this path later, when a session uses the ticket.
        return []
    if name == "submit-remote-from" and (trick in ROOTS or trick.startswith("link-")):
        # The other endpoint checks the path.
        return []
    if name not in ("submit-from", "submit-to"):
        return [f"{name}: {answer.code} {answer.text}"]
    done = ask(
        place.endpoint,
        "GET",
        f"/v1/transfers/{answer.json['id']}/wait?timeout=30",
        token=place.token,
    ).json
    if done["state"] not in ("failed", "incomplete"):
        return [f"{name}: {done}"]
    if place.endpoint.root("in/copied").exists():
        return [f"{name}: something was copied"]
    return []


@pytest.mark.parametrize("link", LINKS)
def test_calls_on_a_link_affect_only_the_link(place: Place, link: str) -> None:
    path = f"/data/in/{link}"
    before = state(place)
    entry = ask(place.endpoint, "GET", f"/v1/storage/stat?{query(path)}", token=place.token).json
    assert entry["type"] == "symlink"
    for name in ("list", "space", "checksum"):
        method, where, body = calls(path)[name]
        answer = ask(place.endpoint, method, where, body, token=place.token)
        assert answer.code in (400, 403, 404, 409), (name, answer.text)
        assert secrets_in(answer.text) == []
    moved = {"from": path, "to": "/data/in/moved"}
    assert ask(place.endpoint, "POST", "/v1/storage/rename", moved, token=place.token).code == 200
    removed = {"path": "/data/in/moved", "recursive": True}
    answer = ask(place.endpoint, "POST", "/v1/storage/rm", removed, token=place.token)
    assert answer.json == {"removed": 1}, answer.text
    assert state(place) == before


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("links", ["keep", "follow", "refuse"])
def test_a_copy_of_a_link_brings_nothing_from_outside(place: Place, link: str, links: str) -> None:
    """Copy a link, with each treatment of links. No data from outside the root arrives."""
    before = state(place)
    request = {
        "id": "l",
        "sources": [{"url": f"/data/in/{link}"}],
        "destination": {"url": "/data/copied/"},
        "selection": {"recursive": True, "links": links},
    }
    answer = ask(place.endpoint, "POST", "/v1/transfers", request, token=place.token)
    if answer.code == 201:
        ask(place.endpoint, "GET", "/v1/transfers/l/wait?timeout=30", token=place.token)
        ask(place.endpoint, "POST", "/v1/transfers/l/cancel", token=place.token)
    copied = place.endpoint.root("copied")
    found = [path for path in copied.rglob("*") if not path.is_symlink() and path.is_file()]
    assert [path for path in found if SECRET in path.read_bytes()] == []
    assert [path for path in found if path.name in ("passwd", "secret")] == []
    assert state(place) == before


@pytest.mark.parametrize("link", LINKS)
def test_a_copy_through_a_link_changes_nothing_outside(place: Place, link: str) -> None:
    before = state(place)
    for destination in (f"/data/in/{link}", f"/data/in/{link}/", f"/data/in/{link}/deep/new"):
        request = {
            "sources": [{"url": "/data/in/file"}],
            "destination": {"url": destination},
            "overwrite": "always",
        }
        answer = ask(place.endpoint, "POST", "/v1/transfers", request, token=place.token)
        if answer.code == 201:
            where = f"/v1/transfers/{answer.json['id']}/wait?timeout=30"
            ask(place.endpoint, "GET", where, token=place.token)
    assert state(place) == before


# --- sessions -------------------------------------------------------------------------------------

#: Paths in a session. They are raw bytes, which the endpoint does not decode.
SESSION = {
    "dot-dot": b"data/../data2/secret",
    "dot-dot-first": b"../data2/secret",
    "absolute": b"/data2/secret",
    "absolute-etc": b"/etc/passwd",
    "slashes": b"data//in/file",
    "dot": b"data/./in/file",
    "nul": b"data/in/file\0x",
    "link": b"data/in/out/secret",
    "link-itself": b"data/in/out",
    "link-up": b"data/in/up/data2/secret",
    "link-proc": b"data/in/proc/etc/passwd",
    "reserved": b"data/in/.dray-mine",
    "long-name": b"data/" + b"x" * 256,
    # A path longer than PATH_MAX is permitted, but this path is too long for a manifest.
    "long-path": b"data" + b"/x" * 33_000,
    "none": b"",
    "root-longer": b"data2/secret",
    "root-prefix": b"dat/in/file",
    "coded": b"data/%2e%2e/data2/secret",
}


def converse(place: Place, role: int, *paths: bytes) -> str:
    """Request a session. Return all frames until the endpoint ends the session or waits."""
    peer = Peer(place.endpoint.address)
    peer.tls.settimeout(20)
    said = []
    try:
        peer.tls.sendall(hello(place.token.encode()))
        peer.expect("HELLO")
        peer.tls.sendall(connect(role, *paths))
        while True:
            frame = peer.next()
            said.append(frame)
            if frame["type"] == "ACCEPT" and role == SOURCE:
                ready = struct.pack("<IQIQBB", 1, 1 << 20, 1024, 1 << 20, 1, 0)
                peer.tls.sendall(frame_of(0x05, ready))
            if frame["type"] in ("READY", "LIST_END", "REFUSE", "GO_AWAY", "LIST_FAILED"):
                break
    except (AssertionError, OSError) as error:
        said.append({"type": "ended", "error": str(error)})
    finally:
        peer.tls.close()
    return json.dumps(said, default=str)


@pytest.mark.parametrize("trick", SESSION)
def test_no_session_reads_out_of_its_root(place: Place, trick: str) -> None:
    before = state(place)
    said = converse(place, SOURCE, SESSION[trick])
    assert f'"size": {len(SECRET)}' not in said, said
    assert '"name": "secret"' not in said, said
    assert '"name": "passwd"' not in said, said
    assert state(place) == before


@pytest.mark.parametrize("trick", SESSION)
@pytest.mark.parametrize("claimed", [False, True], ids=["folder", "claim"])
def test_no_session_writes_out_of_its_root(place: Place, trick: str, claimed: bool) -> None:
    before = state(place)
    path = SESSION[trick]
    paths = (b"data/in", path.removeprefix(b"data/in/")) if claimed else (path,)
    said = converse(place, SINK, *paths)
    if "READY" in said:
        # The session was accepted. Its writes must fail or stay within the root.
        assert trick in ("coded", "link-itself", "link", "dot-dot-first") or claimed, said
    assert state(place) == before
    # The endpoint still serves others.
    assert ask(place.endpoint, "GET", "/healthz").code == 200


def test_all_paths_of_a_session_are_checked_and_share_a_root(place: Place) -> None:
    narrow = place.endpoint.token("storage.read:/data/in/file")
    for paths, token in (
        ((b"data/in/file", b"data-closed/secret"), place.token),
        ((b"data/in/file", b"data/in"), narrow),
        ((b"data/in/file", b"data"), narrow),
    ):
        said = converse(Place(place.endpoint, place.outside, token), SOURCE, *paths)
        assert "REFUSE" in said, said
        assert "ACCEPT" not in said, said


@pytest.mark.parametrize("trick", ["dot-dot", "link", "reserved", "root-longer", "link-itself"])
def test_a_copy_by_hand_follows_no_path_out(place: Place, trick: str, tmp_path: Path) -> None:
    before = state(place)
    file, sent = tmp_path / "token", tmp_path / "sent"
    file.write_text(place.token, encoding="utf-8")
    file.chmod(0o600)
    sent.write_bytes(b"sent\n")
    far = f"dray://{place.endpoint.address}/{SESSION[trick].decode()}"
    options = "--token-file", file, "--peer-key", place.endpoint.key, "--retries", "0"
    pulled = dray("cp", "--json", far, tmp_path / "got", *options)
    pushed = dray("cp", "--json", sent, far, "--overwrite", "always", *options)
    for ended in (pulled, pushed):
        if trick == "link-itself":
            continue
        assert ended.returncode in (1, 2, 3), ended
        assert ended.stderr or ended.stdout
    got = tmp_path / "got"
    assert not got.is_file() or SECRET not in got.read_bytes()
    assert state(place) == before


def test_no_spelling_widens_a_narrow_token(place: Place) -> None:
    """No spelling leads out of a scope's folder, and no link within the root."""
    token = place.endpoint.token("storage.read:/data/in/sub", "storage.modify:/data/in/sub")
    sub = place.endpoint.root("in/sub")
    sub.mkdir()
    (sub / "side").symlink_to("..")
    (sub / "own").write_bytes(b"own\n")
    before = tree.describe(place.endpoint.root())
    for path in (
        "/data/in/sub/../file",
        "/data/in/sub/%2e%2e/file",
        "/data/in/sub/side/file",
        "/data/in/subway",
        "/data/in/sub%2f..%2ffile",
        "/data/in",
        "/data/in/sub/side/new",
    ):
        for name, (method, where, body) in calls(path).items():
            if name in ("rename-to", "submit-remote-from", "admission", "stage-in"):
                continue
            # The folders above a permitted path may be created.
            if name == "mkdir" and path == "/data/in":
                continue
            answer = ask(place.endpoint, method, where, body, token=token)
            if answer.code < 300 and name.startswith("ticket") and "side" in path:
                continue
            assert answer.code >= 400, (path, name, answer.text)
            assert "not secret" not in answer.text
    assert not tree.differences(before, tree.describe(place.endpoint.root()))


def test_followed_links_stay_within_the_requested_paths(place: Place) -> None:
    """Follow a link only if its target is below a path for which the token has permission."""
    token = place.endpoint.token("storage.read:/data/in/sub", "storage.modify:/data/in/sub")
    sub = place.endpoint.root("in/sub")
    source = sub / "tree"
    (source / "real").mkdir(parents=True)
    (source / "real" / "own").write_bytes(b"own\n")
    (source / "alias").symlink_to("real")
    (source / "side").symlink_to("../../file")
    request = {
        "sources": [{"url": "/data/in/sub/tree/"}],
        "destination": {"url": "/data/in/sub/copy/"},
        "selection": {"recursive": True, "links": "follow"},
    }
    answer = ask(place.endpoint, "POST", "/v1/transfers", request, token=token)
    assert answer.code == 201, answer.text
    where = f"/v1/transfers/{answer.json['id']}/wait?timeout=20"
    ended = ask(place.endpoint, "GET", where, token=token)
    assert "side" in ended.text, ended.text
    assert "leaves" in ended.text, ended.text
    copy = sub / "copy"
    assert (copy / "alias" / "own").read_bytes() == b"own\n"
    assert not (copy / "alias").is_symlink()
    assert not (copy / "side").exists()


def test_a_folder_replaced_by_a_link_leads_nowhere(
    place: Place,
) -> None:
    """Replace a folder by a link while calls use it."""
    swapped = place.endpoint.root("in/swap")
    before = state(place)
    until = time.monotonic() + 3
    number = 0
    while time.monotonic() < until:
        number += 1
        swapped.mkdir()
        (swapped / "secret").write_bytes(b"harmless")
        answer = ask(
            place.endpoint,
            "POST",
            "/v1/storage/checksum",
            {"path": "/data/in/swap/secret", "algorithm": "crc32c"},
            token=place.token,
        )
        assert answer.code == 200, answer.text
        assert answer.json["size"] == len(b"harmless")
        (swapped / "secret").unlink()
        swapped.rmdir()
        swapped.symlink_to(place.outside)
        for name in ("stat", "list", "checksum", "rm", "mkdir"):
            method, where, body = calls("/data/in/swap/secret")[name]
            answer = ask(place.endpoint, method, where, body, token=place.token)
            assert answer.code >= 400, (name, answer.text)
        swapped.unlink()
    assert number > 3
    assert state(place) == before
