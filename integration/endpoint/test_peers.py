"""Calls to another endpoint through an endpoint, with the caller's token for the other one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from dray.testing.endpoints import Root
from integration.endpoint.console import REVERSED, SCRIPT
from integration.endpoint.raw import Answer, ask

if TYPE_CHECKING:
    from collections.abc import Callable

    from dray.testing.endpoints import Endpoint

pytestmark = [pytest.mark.server, pytest.mark.timeout(120)]


@pytest.fixture
def far(start_endpoint: Callable[..., Endpoint]) -> Endpoint:
    """Start the other endpoint."""
    return start_endpoint("b", roots=[Root("store"), Root("closed", {"read": ["nobody"]})])


@pytest.fixture
def site(start_endpoint: Callable[..., Endpoint], far: Endpoint) -> Endpoint:
    """Start an endpoint that knows the other one, under its key and under a wrong key."""
    peers = [
        {"name": "b", "address": far.address, "key": far.key},
        {"name": "wrong", "address": far.address, "key": "sha256:" + "0" * 64},
    ]
    return start_endpoint("a", config={"peer": peers})


def call(site: Endpoint, what: str, token: str, **body: object) -> Answer:
    """Make a call to a peer."""
    return ask(site, "POST", f"/v1/peers/{what}", {"token": token, **body}, token=site.token())


def refusal(answer: Answer) -> tuple[int, str]:
    """Return the code and the kind of a refusal."""
    error: dict[str, Any] = answer.json["error"]
    assert error["cause"]
    assert error["remedy"]
    return answer.code, error["kind"]


def test_a_caller_lists_a_peer_and_moves_a_file_there(site: Endpoint, far: Endpoint) -> None:
    folder = far.root("in", root="store")
    folder.mkdir()
    names = [SCRIPT.replace("/", "_"), REVERSED, "100% #1?.txt", "n" * 255]
    for name in names:
        (folder / name).write_bytes(b"far")
    answer = ask(site, "GET", "/v1/peers", token=site.token())
    assert answer.json["peers"][0] == {"name": "b", "address": far.address}
    token = far.token()
    about = call(site, "b/endpoint", token)
    assert about.code == 200, about
    assert about.json["name"] == "b"
    assert [root["name"] for root in about.json["roots"]] == ["store", "closed"]
    found: list[str] = []
    cursor = None
    while True:
        page = call(site, "b/list", token, path="/store/in", limit=2, cursor=cursor)
        assert page.code == 200, page
        found += [entry["path"] for entry in page.json["entries"]]
        cursor = page.json["next"]
        if cursor is None:
            break
    direct = ask(far, "GET", "/v1/storage/list?path=/store/in", token=token)
    assert found == [entry["path"] for entry in direct.json["entries"]]
    assert len(found) == len(names)

    for _ in range(2):
        made = call(site, "b/mkdir", token, path="/store/new%20folder/deep", parents=True)
        assert (made.code, made.json["type"]) == (200, "directory"), made
    assert far.root("new folder/deep", root="store").is_dir()

    site.root("file").write_bytes(b"content")
    wanted = {"transfer": "t", "direction": "write", "paths": ["/store/copy"]}
    ticket = call(site, "b/ticket", token, **wanted)
    assert ticket.code == 201, ticket
    place = {"url": f"dray://{far.address}/store/copy"}
    place |= {key: ticket.json[key] for key in ("ticket", "key", "address")}
    request = {"id": "t", "sources": [{"url": "/data/file"}], "destination": place}
    submitted = ask(site, "POST", "/v1/transfers", request, token=site.token())
    assert submitted.code == 201, submitted
    with site.client() as client:
        assert client.wait("t", timeout_seconds=60).state == "done"
    assert far.root("copy", root="store").read_bytes() == b"content"


def test_the_peer_decides_about_the_rights_of_the_caller(site: Endpoint, far: Endpoint) -> None:
    denied = (403, "permission_denied")
    good = far.token()
    # Neither the token for this endpoint nor a wrong key opens the peer.
    assert refusal(call(site, "b/endpoint", site.token())) == denied
    assert refusal(call(site, "wrong/endpoint", good)) == denied
    narrow = far.token("storage.read:/store/open")
    assert refusal(call(site, "b/list", narrow, path="/store")) == denied
    ask_to_write = {"transfer": "t", "direction": "write", "paths": ["/store/open/x"]}
    assert refusal(call(site, "b/ticket", narrow, **ask_to_write)) == denied
    assert refusal(call(site, "b/mkdir", narrow, path="/store/open/x")) == denied
    assert refusal(call(site, "b/mkdir", good, path="/store/no/parent"))[0] == 404
    assert refusal(call(site, "b/list", good, path="/closed")) == denied
    assert refusal(call(site, "b/list", good, path="/store/none")) == (404, "not_found")
    assert refusal(call(site, "none/endpoint", good)) == (404, "not_found")
    invalid = (400, "invalid_request")
    assert refusal(call(site, "b/endpoint", "x\r\nHost: c")) == invalid
    assert refusal(call(site, "b/list", good, path="/store", limit=1001))[0] in (400, 413)
    body = {"token": good}
    assert ask(site, "POST", "/v1/peers/b/endpoint", body).code == 401
    log = "".join(path.read_text(errors="replace") for path in site.folder.glob("*.log"))
    assert json.dumps(good)[1:-1] not in log
    far.stop()
    code, kind = refusal(call(site, "b/endpoint", good))
    assert (code, kind) == (503, "unreachable")
