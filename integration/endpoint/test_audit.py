"""The audit lines of sessions, and the owners they name."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from integration.endpoint.raw import dray
from integration.harness import tree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dray.testing.endpoints import Endpoint

pytestmark = [pytest.mark.server, pytest.mark.timeout(120)]

Json: TypeAlias = Any


def lines_of(log: Path, kind: str) -> list[Json]:
    """Return the audit lines of a kind, as soon as there is one."""
    until = time.monotonic() + 30
    while True:
        lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
        found = [line for line in lines if line["audit"] == kind]
        if found or time.monotonic() > until:
            return found
        time.sleep(0.05)


def test_a_refused_session_of_a_known_owner_is_logged_by_name(
    start_endpoint: Callable[..., Endpoint], tmp_path: Path
) -> None:
    log = tmp_path / "audit"
    endpoint = start_endpoint("a", config={"audit": {"file": str(log)}})
    tree.make_file(endpoint.root("x.dat"), 1000, seed=1)
    options = "--peer-key", endpoint.key, "--retries", "0"
    # The first path is outside the scope of the token, and the root of the second does not exist.
    # The caller is known both times.
    narrow = endpoint.token("storage.read:/data/nothing", subject="alice")
    good = endpoint.place("x.dat")
    for source in (good, good.replace("/data/x.dat", "/none/x")):
        ended = dray("cp", source, tmp_path / "got", *options, DRAY_TOKEN=narrow)
        assert ended.returncode != 0, ended
    refused = lines_of(log, "session")
    assert [line["error"]["kind"] for line in refused] == ["permission_denied", "not_found"]
    for line in refused:
        assert line["owner"] == "alice", line
        assert line["principal"].startswith("alice@"), line
        assert line["what"] == "read", line
        assert line["transfer"], line
    assert refused[0]["paths"] == ["/data/x.dat"]
    # The line has the path as requested, because the path could not be parsed.
    assert refused[1]["paths"] == ["none/x"]
    assert "turned_away" not in log.read_text(encoding="utf-8")
    # A token without its end is invalid.
    ended = dray("cp", endpoint.place("x.dat"), tmp_path / "got", *options, DRAY_TOKEN=narrow[:-9])
    assert ended.returncode != 0, ended
    assert [line["error"]["kind"] for line in lines_of(log, "turned_away")] == ["unauthorized"]
    assert len(lines_of(log, "session")) == 2


def test_a_reader_that_keeps_nothing_is_rejected(
    start_endpoint: Callable[..., Endpoint], tmp_path: Path
) -> None:
    log = tmp_path / "audit"
    endpoint = start_endpoint("a", config={"audit": {"file": str(log)}})
    tree.make_file(endpoint.root("x.dat"), 1000, seed=1)
    options = "--json", "--peer-key", endpoint.key, "--retries", "0"
    token = endpoint.token("storage.read:/data", subject="alice")
    ended = dray("cp", endpoint.place("x.dat"), "null:", *options, DRAY_TOKEN=token)
    assert ended.returncode == 3, ended
    report = json.loads(ended.stdout)
    assert (report["state"], report["bytes"], report["bytes_sent"]) == ("refused", 0, 0)
    assert (report["error"]["kind"], report["error"]["end"]) == ("incompatible_peer", "sink")
    assert "stores no data" in report["error"]["cause"]
    turned = lines_of(log, "turned_away")
    assert [line["error"]["kind"] for line in turned] == ["incompatible_peer"]
    # No byte was read, and none is reported as safe.
    assert "bytes_durable" not in log.read_text(encoding="utf-8")
    ended = dray("cp", endpoint.place("x.dat"), tmp_path / "got", *options, DRAY_TOKEN=token)
    assert ended.returncode == 0, ended
    assert [line["bytes_durable"] for line in lines_of(log, "session")] == [1000]
