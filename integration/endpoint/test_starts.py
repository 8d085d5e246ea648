"""Messages of an endpoint that cannot start: a damaged queue, limits that are too low."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

import pytest

from dray.client import Request

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dray.testing.endpoints import Endpoint

pytestmark = [pytest.mark.server, pytest.mark.timeout(120)]

PAGE = 4096


def queue(endpoint: Endpoint) -> Path:
    """Return the path of the database of an endpoint's queue."""
    (found,) = endpoint.folder.rglob("queue.db")
    return found


def filled(start: Callable[..., Endpoint]) -> Endpoint:
    """Start an endpoint, submit transfers that wait for their start time, and stop the endpoint."""
    endpoint = start("a")
    with endpoint.client() as client:
        begin = datetime.now(timezone.utc) + timedelta(days=1)
        for number in range(40):
            wanted = Request(
                [f"/data/none-{number}"],
                f"/data/to-{number}",
                id=f"t{number}",
                not_before=begin,
            )
            client.submit(wanted)
    endpoint.stop()
    # Move the write-ahead log into the database, so that one file contains everything.
    with contextlib.closing(sqlite3.connect(queue(endpoint))) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return endpoint


def remove(path: Path) -> None:
    """Remove the database and its companion files."""
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def refused(endpoint: Endpoint) -> str:
    """Start an endpoint that must refuse to start. Return its log."""
    with pytest.raises(RuntimeError, match="ended during its start"):
        endpoint.start()
    return endpoint.log_text()


def test_a_damaged_queue_is_named_with_the_remedy(
    start_endpoint: Callable[..., Endpoint],
) -> None:
    endpoint = filled(start_endpoint)
    path = queue(endpoint)
    whole = path.read_bytes()
    assert len(whole) > 8 * PAGE

    def changed(at: int, by: bytes) -> bytes:
        return whole[:at] + by + whole[at + len(by) :]

    middle = len(whole) // PAGE // 2 * PAGE
    # A page that each start reads. The page in the middle may belong to a table without rows.
    with contextlib.closing(sqlite3.connect(path)) as database:
        statement = "SELECT rootpage FROM sqlite_master WHERE name = 'transfers'"
        transfers = (database.execute(statement).fetchone()[0] - 1) * PAGE
    damage = {
        "emptied": b"",
        "cut": whole[:middle],
        "cut within a page": whole[: middle + 100],
        "no header": changed(0, bytes(100)),
        "noise": changed(transfers + 8, b"\x5a" * 2000),
        "a page of nothing": changed(transfers, bytes(PAGE)),
    }
    for name, content in damage.items():
        path.write_bytes(content)
        said = refused(endpoint)
        assert str(path) in said, (name, said)
        assert "is damaged" in said, (name, said)
        assert "queue.db-wal" in said, (name, said)
    # The remedy of the message works.
    remove(path)
    endpoint.start()
    with endpoint.client() as client:
        assert list(client.transfers()) == []
    endpoint.stop()
    remove(path)
    path.write_bytes(whole)
    endpoint.start()
    with endpoint.client() as client:
        assert client.transfer("t7").state == "queued"


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("ulimit -n 40", ["open files", "ulimit -n"]),
        ("ulimit -v 400000", ["address space", "limits.memory"]),
        ("ulimit -f 8", ["the limit of file sizes", "ulimit -f"]),
    ],
    ids=["files", "addresses", "file-size"],
)
def test_limits_that_are_too_low_are_named(
    start_endpoint: Callable[..., Endpoint], limit: str, words: list[str]
) -> None:
    endpoint = start_endpoint("a")
    config = next(endpoint.folder.rglob("drayd.toml"))
    endpoint.stop()
    shell = f'{limit}; exec "$0" endpoint run --config "$1"'
    ended = subprocess.run(
        ["sh", "-c", shell, endpoint.program, config],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    output = ended.stdout + ended.stderr
    # No signal has ended the program, and its message has a remedy.
    assert ended.returncode > 0, (ended.returncode, output)
    assert all(word in output for word in words), output
