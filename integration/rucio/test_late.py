"""The order in which a real endpoint starts the requests of late files."""

from __future__ import annotations

import dataclasses
import os
import time
from datetime import datetime, timedelta, timezone

import pytest

from dray.client import Place, Request
from dray.testing.endpoints import Endpoint
from dray_rucio.submission import File, Wish, at, request_of, without_wish
from integration.endpoint.raw import shipped_program
from integration.harness.scratch import scratch_folder

pytestmark = [pytest.mark.server, pytest.mark.timeout(120)]

WAIT_SECONDS = 60.0
MIB = 1 << 20


def asked(name: str, wish: Wish) -> Request:
    """Return the request of the plug-in for a file."""
    file = File(name, "mock", name, 1000, None, "User Subscriptions", 3, "rule", "B-RSE")
    made = request_of(file, wish, source_rse_ids=["a"], bound_seconds=None, tries=None)
    return dataclasses.replace(
        made, sources=(Place("/data/small"),), destination=f"/data/to/{name}"
    )


def test_a_late_file_starts_before_files_with_later_deadlines() -> None:
    with scratch_folder() as folder:
        config = {"rate": "8MiB/s", "limits": {"transfers_active": 1}}
        end = Endpoint(folder / "b", name="b.example", program=shipped_program(), config=config)
        now = datetime.now(timezone.utc)
        late = at(Wish(deadline=now - timedelta(days=3), rate_min=1000), now)
        try:
            end.start()
            end.root("small").write_bytes(bytes(1000))
            end.root("large").write_bytes(os.urandom(16 * MIB))
            with end.client() as client:
                # The only session copies this file while the others arrive.
                large = Request(
                    sources=(Place("/data/large"),), destination="/data/to/l", id="large"
                )
                client.submit(large)
                until = time.monotonic() + WAIT_SECONDS
                while client.transfer("large").state != "active":
                    assert time.monotonic() < until
                    time.sleep(0.02)
                # The endpoint cannot promise this rate. A promised transfer starts by its plan.
                soon = Wish(deadline=now + timedelta(hours=1), rate_min=1 << 50)
                client.submit(asked("soon", soon))
                client.submit(asked("without", Wish()))
                client.submit(asked("late", without_wish(late)))
                client.submit(asked("later", at(Wish(deadline=now - timedelta(days=1)), now)))
                assert client.transfer("large").state == "active"
                names = ("late", "later", "soon", "without")
                while not all(client.transfer(name).is_terminal for name in names):
                    assert time.monotonic() < until
                    time.sleep(0.1)
                found = [client.transfer(name) for name in names]
            assert {each.state for each in found} == {"done"}
            starts = [each.started_at for each in found]
            assert all(start is not None for start in starts)
            assert starts == sorted(start for start in starts if start is not None)
        finally:
            end.close()
