"""Tests of both clients with valid and broken answers over real connections."""

from __future__ import annotations

import inspect
import logging
import threading
import time
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

import dray
from dray.client import AsyncClient, Client, Policy, Request, StagingRequest
from dray.client._base import Base
from dray.testing.scripted import Asked, Reply, ScriptedEndpoint, error, json_reply

if TYPE_CHECKING:
    from collections.abc import Callable

Face: TypeAlias = Any

TRANSFER = {"id": "t1", "state": "active", "version": 3, "request": {"sources": []}}
DONE = {**TRANSFER, "state": "done", "version": 4}
SECRET = "a-token-that-nobody-guesses"  # noqa: S105 - it is not one
PATIENT = Policy(seconds=3.0, tries=4, first_pause=0.01, longest_pause=0.02)


def test_both_faces_have_the_same_methods_with_the_same_parameters() -> None:
    def described(face: type) -> dict[str, list[str]]:
        return {
            name: [str(each) for each in inspect.signature(method).parameters.values()]
            for name, method in inspect.getmembers(face, inspect.isfunction)
            if not name.startswith("_")
        }

    assert described(Client) == described(AsyncClient)
    assert len(described(Client)) > 35


def test_an_incomplete_client_class_cannot_be_instantiated() -> None:
    with pytest.raises(TypeError, match="abstract"):
        Base("dray://a")  # type: ignore[abstract]


def test_a_submission_is_sent_with_an_id_that_stays_the_same(
    endpoint: ScriptedEndpoint, face: Face
) -> None:
    endpoint.then(
        "POST",
        "/v1/transfers",
        Reply(is_unanswered=True),
        error(503, "busy", "temporary", retry_after="0"),
        json_reply({**TRANSFER, "attached": True}, 200),
    )
    found = face("submit", Request(sources="dray://b/data/x", destination="/data/y"))
    assert found.attached
    bodies = [asked.json for asked in endpoint.asked]
    assert len(bodies) == 3
    assert bodies[0] == bodies[1] == bodies[2]
    assert len(bodies[0]["id"]) == 36


def test_a_retry_after_is_honoured_within_the_time_limit(
    endpoint: ScriptedEndpoint, make_face: Callable[..., Any]
) -> None:
    face = make_face(endpoint.url, policy=PATIENT)
    endpoint.then(
        "GET",
        "/v1/transfers/t1",
        error(503, "busy", "temporary", retry_after="1"),
        json_reply(TRANSFER),
        error(503, "busy", "temporary", retry_after="60"),
    )
    begun = time.monotonic()
    assert face("transfer", "t1").id == "t1"
    assert 1.0 <= time.monotonic() - begun < 3.0
    begun = time.monotonic()
    with pytest.raises(dray.DrayTemporaryError) as caught:
        face("transfer", "t1")
    assert caught.value.kind == "busy"
    assert time.monotonic() - begun < 1.0


def test_a_slow_answer_ends_with_the_total_time(
    endpoint: ScriptedEndpoint, make_face: Callable[..., Any]
) -> None:
    face = make_face(endpoint.url, policy=Policy(seconds=0.4, first_pause=0.01))
    endpoint.always("GET", "/v1/transfers/t1", json_reply(TRANSFER))
    endpoint.then("GET", "/v1/transfers/t1", Reply(after=5.0))
    begun = time.monotonic()
    with pytest.raises(dray.DrayTemporaryError) as caught:
        face("transfer", "t1")
    assert time.monotonic() - begun < 2.0
    assert caught.value.kind == "timed_out"


def test_a_body_that_drips_ends_with_the_total_time(
    endpoint: ScriptedEndpoint, make_face: Callable[..., Any]
) -> None:
    face = make_face(endpoint.url, policy=Policy(seconds=0.5, tries=1))
    drip = Reply(200, {"content-type": "application/json"}, (b" ",) * 100, between=0.1)
    endpoint.always("GET", "/v1/transfers/t1", drip)
    begun = time.monotonic()
    with pytest.raises(dray.DrayTemporaryError):
        face("transfer", "t1")
    assert time.monotonic() - begun < 2.0


def test_a_body_that_breaks_off_is_asked_for_again(endpoint: ScriptedEndpoint, face: Face) -> None:
    half = Reply(200, {"content-type": "application/json"}, (b'{"id": "t1", ',), is_dropped=True)
    endpoint.then("GET", "/v1/transfers/t1", half, half, json_reply(TRANSFER))
    assert face("transfer", "t1").state == "active"
    assert len(endpoint.asked) == 3


@pytest.mark.parametrize(
    ("method", "args", "place"),
    [
        ("rm", ("/data/x",), "/v1/storage/rm"),
        ("rename", ("/data/x", "/data/y"), "/v1/storage/rename"),
        ("retry", ("t1",), "/v1/transfers/t1/retry"),
    ],
)
def test_calls_that_are_not_idempotent_are_not_repeated(
    endpoint: ScriptedEndpoint, face: Face, method: str, args: tuple[str, ...], place: str
) -> None:
    endpoint.then("POST", place, Reply(is_unanswered=True))
    with pytest.raises(dray.DrayTemporaryError) as caught:
        face(method, *args)
    assert "does not repeat it" in caught.value.remedy
    endpoint.then("POST", place, error(500, "io", "temporary"))
    with pytest.raises(dray.DrayTemporaryError):
        face(method, *args)
    assert len(endpoint.asked) == 2


def test_a_call_refused_as_busy_is_repeated(endpoint: ScriptedEndpoint, face: Face) -> None:
    endpoint.then(
        "POST",
        "/v1/storage/rm",
        error(429, "busy", "temporary", retry_after="0"),
        error(503, "busy", "temporary", retry_after="0"),
        json_reply({"removed": 2}),
    )
    assert face("rm", "/data/x", recursive=True) == 2
    assert endpoint.asked[-1].json == {"path": "/data/x", "recursive": True}


def test_a_refused_connection_is_retried_for_every_call(
    endpoint: ScriptedEndpoint, make_face: Callable[..., Any]
) -> None:
    port = endpoint.port
    endpoint.close()
    face = make_face(
        f"http://127.0.0.1:{port}",
        policy=Policy(seconds=10, first_pause=0.1, longest_pause=0.1, tries=60),
    )
    later: list[ScriptedEndpoint] = []

    def start() -> None:
        later.append(ScriptedEndpoint(port=port))
        later[0].then("POST", "/v1/storage/rm", json_reply({"removed": 1}))

    timer = threading.Timer(0.4, start)
    timer.start()
    try:
        assert face("rm", "/data/x") == 1
    finally:
        timer.join()
        later[0].close()


def test_forgetting_is_idempotent(endpoint: ScriptedEndpoint, face: Face) -> None:
    endpoint.then("DELETE", "/v1/transfers/t1", Reply(is_unanswered=True), error(404, "not_found"))
    assert face("forget", "t1") is None
    # A 404 counts as success only if an earlier try may have reached the endpoint.
    busy = error(503, "busy", "temporary", retry_after="0")
    endpoint.then("DELETE", "/v1/transfers/t1", busy, error(404, "not_found"))
    with pytest.raises(dray.DrayPermanentError):
        face("forget", "t1")


@pytest.mark.parametrize(
    ("code", "kind", "status", "of"),
    [
        (400, "invalid_request", "permanent", dray.DrayUsageError),
        (401, "unauthorized", "permanent", dray.DrayPermanentError),
        (403, "permission_denied", "permanent", dray.DrayPermanentError),
        (404, "not_found", "permanent", dray.DrayPermanentError),
        (409, "lease_held", "temporary", dray.DrayTemporaryError),
        (507, "no_space", "temporary", dray.DrayTemporaryError),
        (500, "internal", "exhausted", dray.DrayTemporaryError),
    ],
)
def test_refusals_become_the_exceptions_of_the_family(
    endpoint: ScriptedEndpoint,
    make_face: Callable[..., Any],
    code: int,
    kind: str,
    status: str,
    of: type,
) -> None:
    face = make_face(endpoint.url, policy=Policy(tries=1))
    words = {"end": "sink", "operation": "open", "file": "a/b", "cause": "c", "remedy": "r"}
    endpoint.always("GET", "/v1/transfers/t1", error(code, kind, status, message="m", **words))
    with pytest.raises(dray.DrayError) as caught:
        face("transfer", "t1")
    found = caught.value
    assert type(found) is of
    assert (found.kind, found.status, str(found)) == (kind, status, "m")
    assert {name: getattr(found, name) for name in words} == words


def test_a_page_of_a_proxy_is_a_clear_error(
    endpoint: ScriptedEndpoint, make_face: Callable[..., Any]
) -> None:
    face = make_face(endpoint.url, policy=Policy(tries=2, first_pause=0.01))
    page = Reply(502, {"content-type": "text/html"}, (b"<html>Bad\x1b[31m\nGateway" + b"x" * 9999,))
    endpoint.always("GET", "/v1/transfers/t1", page)
    with pytest.raises(dray.DrayTemporaryError) as caught:
        face("transfer", "t1")
    assert "502" in str(caught.value)
    assert "text/html" in str(caught.value)
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert len(endpoint.asked) == 2


@pytest.mark.parametrize(
    "body", [b"<html>", b"[]", b'{"id": 1, "state": "done"}', b'{"state": "done"}', b"[" * 99999]
)
def test_a_success_that_cannot_be_read_is_a_clear_error(
    endpoint: ScriptedEndpoint, face: Face, body: bytes
) -> None:
    endpoint.always("GET", "/v1/transfers/t1", Reply(200, {}, (body,)))
    with pytest.raises(dray.DrayPermanentError) as caught:
        face("transfer", "t1")
    assert caught.value.kind == "protocol"


def test_a_redirect_is_not_followed_and_sees_no_token(
    endpoint: ScriptedEndpoint, make_face: Callable[..., Any]
) -> None:
    with ScriptedEndpoint() as elsewhere:
        there = Reply(307, {"location": f"{elsewhere.url}/v1/transfers/t1"})
        endpoint.always("GET", "/v1/transfers/t1", there)
        with pytest.raises(dray.DrayPermanentError, match="redirect"):
            make_face(endpoint.url, token=SECRET)("transfer", "t1")
        assert elsewhere.connections == 0


def test_a_huge_answer_is_not_read(
    endpoint: ScriptedEndpoint, face: Face, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dray.client._flows.ANSWER_BYTES_MAX", 100_000)
    endpoint.always("GET", "/v1/transfers/t1", Reply(200, {}, (b"x" * 10_000,) * 5000))
    with pytest.raises(dray.DrayPermanentError) as caught:
        face("transfer", "t1")
    assert caught.value.kind == "limit_exceeded"
    assert len(endpoint.asked) == 1


def test_compressed_answers_are_not_asked_for(endpoint: ScriptedEndpoint, face: Face) -> None:
    endpoint.then("GET", "/v1/transfers/t1", json_reply(TRANSFER))
    face("transfer", "t1")
    assert endpoint.asked[0].headers["accept-encoding"] == "identity"


def test_pages_are_asked_for_while_one_iterates(endpoint: ScriptedEndpoint, face: Face) -> None:
    def page(asked: Asked) -> Reply:
        at = int(asked.query.partition("cursor=")[2] or "0")
        named = [{"id": f"t{at}", "state": "done"}, {"id": f"t{at + 1}", "state": "done"}]
        return json_reply({"transfers": named, "next": str(at + 2) if at < 4 else None})

    endpoint.always("GET", "/v1/transfers", page)
    found = face.take(None, "transfers", state=["done", "failed"], labels={"a": "b c"}, limit=2)
    assert [each.id for each in found] == ["t0", "t1", "t2", "t3", "t4", "t5"]
    assert endpoint.asked[1].query == "state=done&state=failed&label=a%3Ab+c&limit=2&cursor=2"
    assert [each.id for each in face.take(2, "transfers")] == ["t0", "t1"]
    assert len(endpoint.asked) == 4


def test_a_list_without_end_is_an_error(endpoint: ScriptedEndpoint, face: Face) -> None:
    endpoint.always("GET", "/v1/tickets", json_reply({"tickets": [], "next": "a"}))
    with pytest.raises(dray.DrayPermanentError, match="same page of the list twice"):
        face.take(None, "tickets")


def test_waiting_survives_a_restart(endpoint: ScriptedEndpoint, face: Face) -> None:
    place = "/v1/transfers/t1/wait"
    endpoint.then("GET", place, json_reply(TRANSFER), Reply(is_unanswered=True))
    endpoint.then("GET", place, error(503, "busy", "temporary", retry_after="0"), json_reply(DONE))
    assert face("wait", "t1").state == "done"
    assert len(endpoint.asked) == 4
    assert endpoint.asked[0].query == "timeout=30"


def test_a_wait_times_out_and_reports_the_state(endpoint: ScriptedEndpoint, face: Face) -> None:
    def held(asked: Asked) -> Reply:
        reply = json_reply(TRANSFER)
        return Reply(200, reply.headers, reply.pieces, after=float(asked.query.split("=")[1]))

    endpoint.always("GET", "/v1/transfers/t1/wait", held)
    begun = time.monotonic()
    with pytest.raises(dray.DrayTemporaryError) as caught:
        face("wait", "t1", timeout_seconds=1)
    assert caught.value.kind == "timed_out"
    assert "active" in caught.value.cause
    assert 1.0 <= time.monotonic() - begun < 4.0


def test_a_wait_gives_up_an_endpoint_that_stays_unreachable(
    endpoint: ScriptedEndpoint, make_face: Callable[..., Any]
) -> None:
    policy = Policy(seconds=1, first_pause=0.05, longest_pause=0.1, outage_seconds=0.5)
    face = make_face(endpoint.url, policy=policy)
    endpoint.always("GET", "/v1/transfers/t1/wait", Reply(is_unanswered=True))
    begun = time.monotonic()
    with pytest.raises(dray.DrayTemporaryError) as caught:
        face("wait", "t1", timeout_seconds=2)
    assert caught.value.kind == "unreachable"
    assert time.monotonic() - begun < 10


def test_the_token_is_in_no_message_log_or_repr(
    endpoint: ScriptedEndpoint, make_face: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    face = make_face(endpoint.url, token=SECRET, policy=Policy(tries=2, first_pause=0.01))
    endpoint.always("GET", "/v1/transfers/t1", Reply(is_unanswered=True))
    with pytest.raises(dray.DrayTemporaryError) as caught:
        face("transfer", "t1")
    assert endpoint.asked[0].headers["authorization"] == f"Bearer {SECRET}"
    seen = caplog.text + repr(face.client) + repr(caught.value) + repr(vars(caught.value))
    assert SECRET not in seen
    error: BaseException | None = caught.value
    while error is not None:
        assert SECRET not in repr(error) + repr(vars(error))
        error = error.__cause__ or error.__context__


def test_health_and_renewal_show_no_token(
    endpoint: ScriptedEndpoint, make_face: Callable[..., Any]
) -> None:
    face = make_face(endpoint.url, token=SECRET)
    endpoint.then("GET", "/healthz", json_reply({"status": "ok"}))
    endpoint.then("POST", "/v1/tickets/renew", json_reply({"id": "k"}))
    assert face("health").status == "ok"
    assert face("renew_ticket", "drt_x", lifetime_seconds=5).id == "k"
    assert all("authorization" not in asked.headers for asked in endpoint.asked)


def test_the_environments_proxy_is_not_used(
    endpoint: ScriptedEndpoint, make_face: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with ScriptedEndpoint() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        endpoint.then("GET", "/healthz", json_reply({"status": "ok"}))
        make_face(endpoint.url)("health")
        assert proxy.connections == 0


def test_a_closed_client_opens_again(endpoint: ScriptedEndpoint, face: Face) -> None:
    endpoint.always("GET", "/healthz", json_reply({"status": "ok"}))
    face("health")
    face("close")
    assert face("health").status == "ok"


def test_a_connection_that_the_endpoint_closed_meanwhile_does_no_harm(
    endpoint: ScriptedEndpoint, face: Face
) -> None:
    endpoint.always("GET", "/healthz", json_reply({"status": "ok"}))
    face("health")
    endpoint.cut()
    assert face("health").status == "ok"


def test_a_batch_returns_refusals_and_transfers(endpoint: ScriptedEndpoint, face: Face) -> None:
    refused = error(403, "permission_denied")
    words = {"results": [{"transfer": TRANSFER}, Asked("", "", {}, refused.pieces[0]).json]}
    endpoint.then("POST", "/v1/transfers/batch", json_reply(words))
    requests = [Request(sources="dray://b/x/y", destination="/d/z", id=id) for id in ("t1", "t2")]
    first, second = face("submit_batch", requests, atomic=False)
    assert first.id == "t1"
    assert isinstance(second, dray.DrayPermanentError)
    assert second.kind == "permission_denied"


def test_staging_requests_get_an_id_too(endpoint: ScriptedEndpoint, face: Face) -> None:
    staged = {"id": "s", "path": "/slow/x", "state": "queued", "transfer": "t"}
    endpoint.always("POST", "/v1/staging/in", json_reply(staged, 201))
    assert face("stage_in", StagingRequest("/slow/x", pin_seconds=60)).transfer == "t"
    asked = endpoint.asked[0].json
    assert asked.pop("id")
    assert asked == {"path": "/slow/x", "pin_seconds": 60}
