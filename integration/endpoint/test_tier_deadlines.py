"""A stage-out with a deadline gets the rate that the deadline needs, up to the rate of its tier."""

from __future__ import annotations

import contextlib
import threading
import time
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

import pytest

from dray.client import StagingRequest
from dray.errors import DrayNotAdmittedError
from dray.testing.endpoints import Root
from integration.endpoint.test_tier import check, fill, tier_of
from integration.endpoint.tier_scene import MIB, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dray.testing.endpoints import Endpoint

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

SIZE = 24 * MIB
READ_MAX = 4 * MIB


@contextlib.contextmanager
def growing(folder: Path) -> Iterator[None]:
    """Let an application write a version slowly until the context ends."""
    stop = threading.Event()
    folder.mkdir(parents=True)

    def write() -> None:
        with (folder / "part").open("wb") as file:
            while not stop.wait(0.5):
                file.write(bytes(65536))
                file.flush()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        stop.set()
        writer.join()


def request(seconds: float) -> StagingRequest:
    """Return a request to stage out a version until this many seconds from now."""
    return StagingRequest(
        "/fast/sim/1",
        recursive=True,
        application="sim",
        version=1,
        deadline=datetime.now(timezone.utc) + timedelta(seconds=seconds),
    )


@pytest.mark.full
def test_a_deadline_sets_the_rate_of_a_demotion_or_is_refused(
    start_endpoint: Callable[..., Endpoint],
) -> None:
    roots = [Root("fast", {"tier": "fast"}), Root("slow", {"tier": "slow"})]
    tier = tier_of(read_max="4MiB", read_min="64KiB", versions="{application}/v{version}")
    endpoint = start_endpoint("bb", roots=roots, config={"tier": [tier]})
    sums = fill(endpoint.root("sim/1", root="fast"), SIZE, 5)
    with growing(endpoint.root("other/v1", root="fast")), endpoint.client() as client:
        until(client, "writing", lambda tier: tier.is_writing)
        # 24 MiB need at least six seconds at 4 MiB/s.
        with pytest.raises(DrayNotAdmittedError) as refused:
            client.stage_out(request(2))
        assert "the tier burst" in str(refused.value)
        staged = client.stage_out(request(30))
        assert staged.transfer is not None
        end = time.monotonic() + 20
        while (rate := client.transfer(staged.transfer).request["rate_max"]) == READ_MAX:
            assert time.monotonic() < end
            time.sleep(0.1)
        assert client.transfer(staged.transfer).promised
        # While an application writes, only the deadline determines the rate of the demotion.
        print(f"rate of the demotion: {rate / MIB:.2f} MiB/s")
        # The demotion began at the rate of the tier, so the rest may be slower than SIZE / 30.
        assert SIZE / 30 / 2 <= rate < READ_MAX / 2
        done = client.wait(staged.transfer, timeout_seconds=60)
        assert (done.state, done.miss) == ("done", None), done
    check(endpoint.root("sim/1", root="slow"), sums)
