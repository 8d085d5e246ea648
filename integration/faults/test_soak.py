"""Two endpoints under load for a minute do not grow; a process that grows is detected."""

from __future__ import annotations

import os
import statistics
from typing import TYPE_CHECKING

import pytest

from dray.client import Request
from dray.testing.endpoints import Endpoint
from integration.soak.__main__ import soak
from integration.soak.verdict import QUANTITIES, Sample, Watched, fit, sample

if TYPE_CHECKING:
    from pathlib import Path

FULL = os.environ.get("DRAY_FULL") == "1"
SEED = int(os.environ.get("DRAY_SEED", "1106"))
MINUTES = 1.0
MEMORY, DESCRIPTORS, THREADS = QUANTITIES
#: Number of transfers before the measurement, which fill caches and allocators, and number of
#: measured transfers.
HISTORY_WARM_UP, HISTORY = 500, 500
#: Maximum growth in bytes per transfer. The three events of a transfer in the ring take 2 KiB.
HISTORY_BYTES_EACH = 4 << 10


@pytest.mark.server
@pytest.mark.timeout(900)
@pytest.mark.skipif(not FULL, reason="takes two minutes; part of make test-full")
def test_endpoints_that_are_kept_busy_do_not_grow(
    folder: Path, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAY_PROGRAM", str(program))
    verdict = soak(MINUTES, SEED, folder, program)
    print(f"\nseed {SEED} (DRAY_SEED replays it)\n{verdict.table()}")
    assert verdict.faults == []
    assert sum(verdict.work.values()) > 20


@pytest.mark.server
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not FULL, reason="takes a minute; part of make test-full")
def test_the_history_of_small_transfers_costs_little_memory(
    folder: Path, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAY_PROGRAM", str(program))
    endpoint = Endpoint(folder / "one", "one", program=program).start()
    try:
        (endpoint.root("x")).write_bytes(b"x" * 100)
        counts, memory = [], []
        with endpoint.client(token=endpoint.token(lifetime="7d")) as client:
            for number in range(HISTORY_WARM_UP + HISTORY):
                id = f"t{number}"
                client.submit(Request("/data/x", f"/data/y{number % 10}", id=id))
                assert client.wait(id, timeout_seconds=60).state == "done"
                if number >= HISTORY_WARM_UP and number % 10 == 0:
                    counts.append(number)
                    memory.append(sample(endpoint.pid, 0.0).memory)
    finally:
        endpoint.close()
    each = statistics.linear_regression(counts, memory).slope
    print(f"{each:.0f} bytes for each transfer, {memory[0]} to {memory[-1]}")
    assert each < HISTORY_BYTES_EACH


def _samples(per_minute: float, minutes: float = 5.0) -> list[Sample]:
    count = int(minutes * 120)
    return [
        Sample(number / 2, 50 << 20, 40 + int(number / 120 * per_minute) + number % 7, 20)
        for number in range(count)
    ]


def test_a_slope_is_found_in_noise() -> None:
    slope = fit(_samples(8.0), DESCRIPTORS)
    assert slope.is_fault
    assert slope.slope * 60 == pytest.approx(8.0, rel=0.1)


def test_noise_is_no_slope() -> None:
    assert not fit(_samples(0.0), DESCRIPTORS).is_fault
    assert fit(_samples(0.0), MEMORY).growth == 0
    assert fit(_samples(0.0), THREADS).growth == 0


def test_descriptors_left_open_at_rest_are_reported() -> None:
    watched = Watched("one", 1)
    watched.before = Sample(0.0, 0, 30, 15)
    watched.after = Sample(9.0, 0, 60, 16)
    assert watched.rest_faults() == ["one: 30 more descriptors at rest than before the work"]
