"""Folders are datasets: each is complete as soon as the order of objects can make it."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

import pytest

from integration.simulation import datasets_real

if TYPE_CHECKING:
    from integration.harness.program import Bench

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]


def test_the_smaller_folders_of_a_copy_are_complete_before_the_larger(bench: Bench) -> None:
    value = datasets_real.run(bench, rounds=1)
    one, several = value["runs"]
    by_size = sorted(range(len(datasets_real.FILES)), key=datasets_real.FILES.__getitem__)

    def order(run: dict[str, Any]) -> list[int]:
        return sorted(by_size, key=run["seconds"].__getitem__)

    # The first is begun before the others are listed, so it may be anywhere.
    assert order(several)[:2] == by_size[:2]
    assert set(order(several)[-2:]) == set(by_size[-2:])
    assert order(one)[-2:] == [6, 7], "as one dataset they go by their names"
    means = [statistics.mean(run["seconds"]) for run in (one, several)]
    print(f"\nmean completion as one dataset {means[0]:.2f} s, as several {means[1]:.2f} s")
    # A rate bounds both, so the machine's speed divides out; by the link alone it is two thirds.
    assert means[1] <= 0.92 * means[0]
