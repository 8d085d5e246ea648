"""A tier on file systems with limited rates: below the maximum load, no write is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from integration.endpoint.raw import shipped_program
from integration.harness import loop
from integration.simulation import tier_real
from integration.simulation.tier_scale import SMALL, Burst, ideal

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.server, pytest.mark.full, pytest.mark.timeout(900)]


@pytest.mark.parametrize("load", [1.0, 1.6, 2.1])
def test_the_fast_file_system_is_never_full_below_the_bound(load: float, tmp_path: Path) -> None:
    if loop.limits_reason():
        pytest.skip(loop.limits_reason())
    even, burst = tier_real.run_load(load, tmp_path, shipped_program())
    # Every byte is identical, at each load.
    assert (even["wrong"], burst["wrong"]) == (0, 0)
    # If an application writes a newer version, its older version becomes useless.
    assert even["older"] + even["newest"] > 0
    for period in (even, burst):
        assert period["longest_seconds"] < tier_real.BLOCKED_SECONDS, period
        # Do not check a burst of at least ``largest`` versions, which is the maximum with the
        # measured pauses: such a burst needs every byte of the tier's space S.
        if load < 2.0 and not (period["burst"] and period["versions"] >= period["largest"]):
            assert period["refused"] == 0, period
            assert period["peak"] <= 1.0, period
    # Demotions follow each other without pauses. Other work on the host slows them down.
    scale = SMALL
    cycle = burst["cycle_seconds"]
    assert cycle is None or cycle < 1.25 * scale.version / scale.read_max, burst
    if load > 2.0:
        assert even["pattern"] is None, "the tier does not say that the bound is exceeded"


def test_the_bound_of_a_burst_counts_whole_versions() -> None:
    scale = SMALL
    # Twelve versions fit into the space S. During a burst of 24 at the rates Bwmin and Brmax, the
    # other twelve are demoted.
    assert ideal(scale).largest() == 24
    cycle = scale.version / scale.read_max
    slower = Burst(scale, scale.write_min, 0.2, 1.1 * cycle)
    assert slower.largest() == 22
    none = Burst(scale, scale.write_min, 0.0, float("inf"))
    assert none.largest() == 12
