"""Messages use the caller's names, and wording that fits the reader."""

from __future__ import annotations

import datetime as dt
import os
from typing import TYPE_CHECKING

import pytest

from dray.testing.endpoints import Root
from integration.endpoint.raw import ask, dray
from integration.harness import tree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dray.testing.endpoints import Endpoint

pytestmark = [pytest.mark.server, pytest.mark.timeout(120)]


def test_a_configuration_that_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "endpoint"
    root = f"--root=data={tmp_path}"
    done = dray("endpoint", "init", folder, "--name", "localhost:4810", root)
    assert done.returncode != 0
    assert not folder.exists()
    assert os.fspath(folder / "drayd.toml") not in done.stderr, done
    assert "name" in done.stderr


def test_a_query_names_the_field(start_endpoint: Callable[..., Endpoint]) -> None:
    endpoint = start_endpoint("a")
    answer = ask(endpoint, "GET", "/v1/transfers?activity=x&limit=abc", token=endpoint.token())
    error = answer.refused(400, "invalid_request")
    assert error["cause"].startswith("limit: invalid digit"), error


def test_a_change_the_state_forbids_is_no_exists_error(
    start_endpoint: Callable[..., Endpoint],
) -> None:
    endpoint = start_endpoint("a")
    token = endpoint.token()
    tree.make_file(endpoint.root("x"), 10, seed=1)
    body = {"id": "t", "sources": [{"url": "/data/x"}], "destination": {"url": "/data/y"}}
    ask(endpoint, "POST", "/v1/transfers", body, token=token)
    ask(endpoint, "GET", "/v1/transfers/t/wait?timeout=30", token=token)
    change = {"priority": 5}
    error = ask(endpoint, "PATCH", "/v1/transfers/t", change, token=token).error
    assert "already exists" not in error["message"], error


def test_a_missing_ticket_names_its_place(start_endpoint: Callable[..., Endpoint]) -> None:
    endpoint = start_endpoint("a")
    token = endpoint.token()
    far = "dray://127.0.0.1:9/data/x"
    key = "sha256:" + "0" * 64
    body = {
        "id": "t",
        "sources": [{"url": far, "key": key}],
        "destination": {"url": "/data/y"},
        "retry": {"tries": 0},
    }
    ask(endpoint, "POST", "/v1/transfers", body, token=token)
    ended = ask(endpoint, "GET", "/v1/transfers/t/wait?timeout=30", token=token).json
    assert far in ended["error"]["cause"], ended


def test_a_renamed_source_is_reported_under_its_given_name(
    start_endpoint: Callable[..., Endpoint], tmp_path: Path
) -> None:
    done = dray("cp", "/dev/zero", tmp_path / "copy")
    assert "the source file is /dev/zero: " in done.stderr, done
    endpoint = start_endpoint("a")
    token = endpoint.token()
    os.mkfifo(endpoint.root("pipe"))
    body = {
        "id": "t",
        "sources": [{"url": "/data/pipe"}],
        "destination": {"url": "/data/copy"},
        "retry": {"tries": 0},
    }
    ask(endpoint, "POST", "/v1/transfers", body, token=token)
    ended = ask(endpoint, "GET", "/v1/transfers/t/wait?timeout=30", token=token).json
    assert "the source file is /data/pipe: " in ended["failures"][0]["error"]["message"], ended


def test_an_unknown_size_is_reported_once_with_the_remedy(
    start_endpoint: Callable[..., Endpoint],
) -> None:
    endpoint = start_endpoint("a", roots=[Root("data", {"rate": "10MiB/s"})])
    token = endpoint.token()
    tree.make_file(endpoint.root("x"), 10, seed=1)

    def later(minutes: int) -> str:
        at = dt.datetime.now(dt.timezone.utc) + dt.timedelta(minutes=minutes)
        return at.isoformat().replace("+00:00", "Z")

    body = {
        "id": "t",
        "sources": [{"url": "/data/x"}],
        "destination": {"url": "/data/y"},
        "not_before": later(30),
        "deadline": later(60),
    }
    ask(endpoint, "POST", "/v1/transfers", body, token=token)
    # A change cannot give the size, so the notice must not ask for it there.
    for minutes in (61, 62):
        patched = ask(
            endpoint, "PATCH", "/v1/transfers/t", {"deadline": later(minutes)}, token=token
        ).json
    [notice] = patched["notices"]
    assert "give the size as `bytes_expected`" in notice
    assert not patched["promised"]
