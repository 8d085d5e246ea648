"""Tests of third-party copies: the calls to both endpoints, in order."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pytest

import dray
from dray.client import AsyncClient, Client, Copy, Policy, Request, copy, copy_async
from dray.testing.scripted import Reply, ScriptedEndpoint, error, json_reply

if TYPE_CHECKING:
    from collections.abc import Iterator

Loose: TypeAlias = Any

KEY_A, KEY_B = "sha256:" + "a" * 64, "sha256:" + "b" * 64
SECRET = "drt_" + "x" * 43
QUICK = Policy(seconds=2, first_pause=0.01, tries=3)
TOKENS = ("token-for-a", "token-for-b")
Ends = tuple[ScriptedEndpoint, ScriptedEndpoint]


@pytest.fixture
def ends() -> Iterator[Ends]:
    with ScriptedEndpoint() as a, ScriptedEndpoint() as b:
        for end, key in ((a, KEY_A), (b, KEY_B)):
            words = {"name": "x", "version": "0", "key": key}
            end.always("GET", "/v1/endpoint", json_reply(words))
            ticket = {"id": "k1", "ticket": SECRET, "key": key, "address": f"10.0.0.1:{end.port}"}
            end.always("POST", "/v1/tickets", json_reply(ticket, 201))
            answer = json_reply({"id": "t1", "state": "queued"}, 201)
            end.always("POST", "/v1/transfers", answer)
        yield a, b


def run(is_async: bool, ends: Ends, **options: Loose) -> str:
    a, b = ends
    urls = (f"dray://a:{a.port}/data/x%25", f"dray://b:{b.port}/data/y")
    if not is_async:
        with (
            Client(a.url, token=TOKENS[0], policy=QUICK) as one,
            Client(b.url, token=TOKENS[1], policy=QUICK) as two,
        ):
            return copy(*urls, source=one, destination=two, **options).id

    async def go() -> str:
        async with (
            AsyncClient(a.url, token=TOKENS[0], policy=QUICK) as one,
            AsyncClient(b.url, token=TOKENS[1], policy=QUICK) as two,
        ):
            return (await copy_async(*urls, source=one, destination=two, **options)).id

    return asyncio.run(go())


@pytest.mark.parametrize("is_async", [False, True], ids=["blocking", "awaiting"])
@pytest.mark.parametrize("active", ["destination", "source"])
def test_the_passive_end_mints_for_the_key_of_the_active_one(
    ends: Ends, is_async: bool, active: Literal["source", "destination"]
) -> None:
    a, b = ends
    driver, other = (b, a) if active == "destination" else (a, b)
    request = Request(sources=(), destination="", id="mine", overwrite="never", priority=5)
    run(is_async, ends, active=active, request=request)
    minted = other.asked_for("POST", "/v1/tickets")[0].json
    wanted = {
        "transfer": "mine",
        "direction": "read" if other is a else "write",
        "paths": ["/data/x%25" if other is a else "/data/y"],
        "peer_key": KEY_B if driver is b else KEY_A,
    }
    if other is b:
        wanted["overwrite"] = "never"
    assert minted == wanted
    submitted = driver.asked_for("POST", "/v1/transfers")[0].json
    url = f"dray://a:{a.port}/data/x%25" if other is a else f"dray://b:{b.port}/data/y"
    place = {
        "url": url,
        "ticket": SECRET,
        "key": KEY_A if other is a else KEY_B,
        "address": f"10.0.0.1:{other.port}",
    }
    assert submitted == {
        "sources": [place] if other is a else [{"url": "/data/x%25"}],
        "destination": place if other is b else {"url": "/data/y"},
        "id": "mine",
        "overwrite": "never",
        "priority": 5,
    }
    assert other.asked_for("POST", "/v1/transfers") == []
    for end, token in ((a, TOKENS[0]), (b, TOKENS[1])):
        assert {asked.headers["authorization"] for asked in end.asked} == {f"Bearer {token}"}


@pytest.mark.parametrize("is_async", [False, True], ids=["blocking", "awaiting"])
def test_a_refused_submission_takes_its_ticket_back(ends: Ends, is_async: bool) -> None:
    a, b = ends
    b.then("POST", "/v1/transfers", error(403, "permission_denied"))
    a.then("DELETE", "/v1/tickets/k1", json_reply({"id": "k1", "revoked": True}))
    with pytest.raises(dray.DrayPermanentError):
        run(is_async, ends)
    assert len(a.asked_for("DELETE", "/v1/tickets/k1")) == 1


def test_a_submission_that_may_have_arrived_keeps_its_ticket(ends: Ends) -> None:
    a, b = ends
    b.always("POST", "/v1/transfers", Reply(is_unanswered=True))
    with pytest.raises(dray.DrayTemporaryError):
        run(False, ends)
    assert a.asked_for("DELETE", "/v1/tickets/k1") == []
    assert len(b.asked_for("POST", "/v1/transfers")) == 3


def test_the_handle_waits_and_cancels_at_the_active_end(ends: Ends) -> None:
    a, b = ends
    b.always("GET", "/v1/transfers/t1/wait", json_reply({"id": "t1", "state": "done"}))
    b.always("POST", "/v1/transfers/t1/cancel", json_reply({"id": "t1", "state": "cancelled"}))
    with Client(a.url, token=None) as one, Client(b.url, token=None) as two:
        handle = copy("dray://a/d/x", "dray://b/d/y", source=one, destination=two)
        assert isinstance(handle, Copy)
        assert handle.wait().state == "done"
        assert handle.cancel().state == "cancelled"
    assert b.asked_for("POST", "/v1/transfers/t1/cancel")[0].json == {"purge": False}


@pytest.mark.parametrize(
    ("urls", "request_"),
    [
        (("dray://a/", "dray://b/d/y"), None),
        (("/d/x", "dray://b/d/y"), None),
        (("dray://a/d/x", "dray://b/d/y"), Request("dray://z/d/x", "")),
    ],
)
def test_an_invalid_copy_sends_no_request(
    ends: Ends, urls: tuple[str, str], request_: Request | None
) -> None:
    a, b = ends
    with (
        Client(a.url, token=None) as one,
        Client(b.url, token=None) as two,
        pytest.raises(dray.DrayUsageError),
    ):
        copy(*urls, source=one, destination=two, request=request_)
    assert a.asked + b.asked == []
