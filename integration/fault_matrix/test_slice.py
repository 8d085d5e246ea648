"""A slice of the fault matrix: each group of faults, each moment, both sets, some forms."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from integration.fault_matrix.cells import Outcome, chosen
from integration.fault_matrix.runs import run_all
from integration.harness.scratch import scratch_folder

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.server, pytest.mark.timeout(600)]

JOBS = 4
SLICE = (
    "source-killed/50/big/universal:ranges",
    "sink-killed/50/small/universal:ranges",
    "all-killed/50/big/file:bit8:async",
    "all-killed/90/small/transaction:char",
    "connections-cut/90/big/universal:ranges",
    "wire-flip/50/big/universal:ranges",
    "power-image/50/big/transaction:bit8",
    "power-writes/50/big/file:ranges",
    "disk-full/50/big/universal:ranges",
    "sync-fails/50/small/universal:ranges",
    "log-older/50/big/universal:char",
    "other-host/50/big/universal:ranges",
)


@pytest.fixture(scope="module")
def outcomes(program: Path) -> dict[str, Outcome]:
    """Run all cells of the slice, some of them side by side."""
    with scratch_folder() as folder:
        cells = chosen(list(SLICE))
        return {each.cell: each for each in run_all(cells, folder, program, JOBS, None)}


@pytest.mark.parametrize("name", SLICE)
def test_a_fault_costs_little_and_nothing_false_appears(
    outcomes: dict[str, Outcome], name: str
) -> None:
    outcome = outcomes[name]
    if outcome.skipped:
        pytest.skip(outcome.skipped)
    assert outcome.faults == []
    assert 0 < outcome.durable < outcome.size, "the fault did not occur in the middle"
