"""One owner's long storage calls: calls of others are answered meanwhile."""

from __future__ import annotations

import contextlib
import json
import time
from typing import TYPE_CHECKING

import pytest

from integration.endpoint.raw import ask, bearer, dial, query

if TYPE_CHECKING:
    from collections.abc import Callable

    from dray.testing.endpoints import Endpoint

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(120)]

CALLS = 24
#: Size of a file whose checksum no endpoint can compute while a test runs.
HUGE_BYTES = 8 << 40
#: Maximum seconds of an answer without a wait, on a host that computes eight checksums.
QUICK_SECONDS = 5.0


def test_long_calls_of_one_owner_do_not_block_others(
    start_endpoint: Callable[..., Endpoint],
) -> None:
    endpoint = start_endpoint("a")
    with endpoint.root("huge").open("wb") as file:
        file.truncate(HUGE_BYTES)
    alice, bob = (endpoint.token(subject=subject) for subject in ("alice", "bob"))
    body = json.dumps({"path": "/data/huge", "algorithm": "crc32c"}).encode()
    with contextlib.ExitStack() as held:
        for _ in range(CALLS):
            connection = held.enter_context(contextlib.closing(dial(endpoint.address)))
            headers = dict([*bearer(alice), ("Content-Type", "application/json")])
            connection.request("POST", "/v1/storage/checksum", body, headers)
        time.sleep(1)
        for _ in range(2):
            start = time.monotonic()
            for what in (f"stat?{query('/data/huge')}", f"list?{query('/data')}"):
                answer = ask(endpoint, "GET", f"/v1/storage/{what}", token=bob)
                assert answer.code == 200, answer.text
            assert time.monotonic() - start < QUICK_SECONDS
        # Alice's next call waits for her own calls.
        answer = ask(endpoint, "GET", f"/v1/storage/stat?{query('/data/huge')}", token=alice)
        error = answer.refused(429, "busy")
        assert "of your calls" in error["cause"]
    # The callers have disconnected, so their calls end.
    start = time.monotonic()
    answer = ask(endpoint, "GET", f"/v1/storage/stat?{query('/data/huge')}", token=alice)
    assert answer.code == 200, answer.text
    assert time.monotonic() - start < QUICK_SECONDS
