"""Tests of the manual's examples, against a scripted endpoint."""

from __future__ import annotations

import doctest
from pathlib import Path
from typing import TYPE_CHECKING

from dray.testing.scripted import ScriptedEndpoint, event, events, json_reply

if TYPE_CHECKING:
    import pytest

PAGE = Path(__file__).resolve().parents[4] / "docs/how-to/from-python.md"
NIGHTLY = "nightly-2026.11.21"
REFUSED = {
    "kind": "permission_denied",
    "status": "permanent",
    "end": "source",
    "operation": "open",
    "file": "b.dat",
    "cause": "",
    "remedy": "",
    "message": "cannot open at the source: b.dat: permission denied",
}
MISSING = {**REFUSED, "kind": "not_found", "file": None, "message": "cannot look: not found"}


def answer_endpoint(endpoint: ScriptedEndpoint, name: str, key: str) -> None:
    words = {"name": name, "version": "0.1.0", "key": key, "address": "10.0.0.1:4735"}
    endpoint.always("GET", "/v1/endpoint", json_reply(words))


def answer_transfer(endpoint: ScriptedEndpoint, id: str, **words: object) -> None:
    place = f"/v1/transfers/{id}"
    done = {"id": id, "state": "done", "request": {}, "files": {"listed": 3, "done": 3}, **words}
    endpoint.always("GET", f"{place}/wait", json_reply(done))
    endpoint.always("GET", place, json_reply(done))


def test_the_examples_of_the_how_to_are_true(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("a-token")
    with ScriptedEndpoint() as a, ScriptedEndpoint() as b:
        answer_endpoint(a, "a", "sha256:" + "a" * 64)
        answer_endpoint(b, "b", "sha256:" + "b" * 64)
        a.then("POST", "/v1/transfers", json_reply({"id": NIGHTLY, "state": "queued"}, 201))
        a.then("POST", "/v1/transfers", json_reply({"id": "copied", "state": "queued"}, 201))
        for id in (NIGHTLY, "copied", "t2", "t3"):
            answer_transfer(a, id)
        failed = {"path": "b.dat", "error": REFUSED}
        answer_transfer(a, "broken", state="incomplete", failures=[failed])
        outcome = {"path": "b.dat", "state": "failed", "error": REFUSED}
        a.always(
            "GET", "/v1/transfers/broken/files", json_reply({"files": [outcome], "next": None})
        )
        for verb, state in (("pause", "paused"), ("cancel", "cancelled")):
            a.always("POST", f"/v1/transfers/t1/{verb}", json_reply({"id": "t1", "state": state}))
        a.always("PATCH", "/v1/transfers/t1", json_reply({"id": "t1", "state": "paused"}))
        states = enumerate(("queued", "active", "done"), 1)
        a.then("GET", "/v1/events", events(*(event(at, state=state) for at, state in states)))
        a.always("GET", "/v1/storage/stat", json_reply({"error": MISSING}, 404))
        b.always("POST", "/v1/tickets", json_reply({"id": "k", "ticket": "drt_x"}, 201))
        names = {"URL": a.url, "OTHER_URL": b.url, "OTHER_TOKEN": "another-token"}
        result = doctest.testfile(
            str(PAGE), module_relative=False, globs={**names, "TOKEN_FILE": tmp_path / "token"}
        )
        assert (result.failed, result.attempted > 15) == (0, True)
        assert a.surprises + b.surprises == []
