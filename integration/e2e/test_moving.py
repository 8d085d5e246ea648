"""Layout order avoids a moving slow target; file order waits for each target."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import pytest

from integration.simulation import slow_target_real

if TYPE_CHECKING:
    from integration.harness.program import Bench

pytestmark = [pytest.mark.server, pytest.mark.full, pytest.mark.timeout(600)]


def test_moving_congestion_is_avoided(bench: Bench) -> None:
    value = slow_target_real.run(bench, rounds=1)
    alone = value["bytes"] / value["link_bytes_per_second"]
    for run in value["runs"]:
        free, moving = (statistics.median(run[f"{word}_seconds"]) for word in ("free", "moving"))
        print(f"\n{run['end']}: {moving:.2f} s, without {free:.2f} s, the link alone {alone:.2f} s")
        # The test does not limit the cost beyond the link, which depends on the machine.
        assert run["by_file_seconds"] >= 1.4 * moving
