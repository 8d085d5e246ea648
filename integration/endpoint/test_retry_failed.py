"""Failed transfers keep their error, and are retried by a command or by the next start."""

from __future__ import annotations

import os
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest

from dray.client import Place, Request
from dray.testing.endpoints import find_program

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dray.client import Client, Transfer
    from dray.testing.endpoints import Endpoint

pytestmark = [pytest.mark.server, pytest.mark.timeout(120)]

SECONDS = 60.0


def dray(endpoint: Endpoint, *words: str, subject: str = "alice") -> tuple[int, str, str]:
    """Run ``dray`` with a valid token. Return the exit code, the output and the notes."""
    environment = {**os.environ, "DRAY_TOKEN": endpoint.token(subject=subject)}
    whole: list[str | Path] = [find_program(), *words]
    whole += ["--endpoint", endpoint.address, "--peer-key", endpoint.key]
    ended = subprocess.run(
        whole, capture_output=True, text=True, env=environment, timeout=SECONDS, check=False
    )
    return ended.returncode, ended.stdout, ended.stderr


def failed(client: Client, id: str, attempt: int) -> Transfer:
    """Wait until this attempt has failed."""
    until = time.monotonic() + SECONDS
    while True:
        transfer = client.transfer(id)
        if (transfer.attempt, transfer.state) == (attempt, "failed"):
            return transfer
        assert time.monotonic() < until, transfer
        time.sleep(0.1)


@pytest.fixture
def endpoint(start_endpoint: Callable[..., Endpoint]) -> Endpoint:
    """Return an endpoint that tries failed transfers again when it starts."""
    retry: dict[str, Any] = {"tries": 1, "interval_seconds": 0, "at_start": True}
    endpoint = start_endpoint("a", config={"retry": {**retry, "at_start_attempts": 3}})
    (endpoint.root() / "file").write_text("some", encoding="utf-8")
    with endpoint.client() as client:
        # No endpoint listens on port 1.
        away = Place("dray://127.0.0.1:1/data/copy", ticket="drt_none", key=endpoint.key)
        here = Place(f"dray://{endpoint.address}/data/file")
        client.submit(Request(sources=[here], destination=away, id="away"))
        gone = Place(f"dray://{endpoint.address}/data/gone")
        copy = Place(f"dray://{endpoint.address}/data/copy")
        client.submit(Request(sources=[gone], destination=copy, id="gone"))
        failed(client, "away", 1)
        failed(client, "gone", 1)
    return endpoint


def test_a_command_lists_and_retries_failed_transfers(endpoint: Endpoint) -> None:
    code, out, words = dray(endpoint, "transfers", "--state", "failed")
    assert code == 0, words
    away = next(line for line in out.splitlines() if line.startswith("away "))
    assert "failed after 2 tries" in away
    assert "127.0.0.1:1" in away, "the error is listed"
    code, out, words = dray(endpoint, "retry", "--all-failed")
    assert (code, out.splitlines()[0].split()[0], len(out.splitlines())) == (0, "away", 1)
    assert "1 transfer not retried, because the error is permanent" in words
    with endpoint.client() as client:
        error = failed(client, "away", 2).error
        assert error is not None
        assert error.kind == "unreachable"
        (endpoint.root() / "gone").write_text("here now", encoding="utf-8")
        code, out, words = dray(endpoint, "retry", "gone", "unknown")
        assert code == 1, "the second id is unknown"
        assert "unknown is not retried" in words
        assert client.wait("gone", timeout_seconds=SECONDS).state == "done"


def test_all_failed_means_the_transfers_of_the_caller(endpoint: Endpoint) -> None:
    """An administrator sees the failed transfers of all owners, and names the owner."""
    code, out, words = dray(endpoint, "retry", "--all-failed", subject="root")
    assert (code, out, words) == (0, "", "")
    for subject, option in (("bob", "--owner=alice"), ("bob", "--all-owners")):
        code, out, words = dray(endpoint, "retry", "--all-failed", option, subject=subject)
        assert (code, out) == (3, "")
        assert "bob" in words
        assert "not an administrator" in words
    code, _, words = dray(endpoint, "retry", "--owner", "alice", "away", subject="root")
    assert code == 2, words
    with endpoint.client() as client:
        for attempt, option in ((2, "--owner=alice"), (3, "--all-owners")):
            code, out, words = dray(endpoint, "retry", "--all-failed", option, subject="root")
            assert (code, out.split()[0]) == (0, "away"), words
            failed(client, "away", attempt)
        dray(endpoint, "retry", "--all-failed", "--owner=alice")
        failed(client, "away", 4)


def test_a_start_retries_failed_transfers_up_to_a_number_of_attempts(endpoint: Endpoint) -> None:
    for attempt in (2, 3, 3):
        endpoint.kill()
        endpoint.start()
        with endpoint.client() as client:
            failed(client, "away", attempt)
            assert client.transfer("gone").attempt == 1, "its error is permanent"
