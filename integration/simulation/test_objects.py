"""The pages of the experiments about objects equal those of the stored results."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from integration.simulation import (
    datasets,
    datasets_real,
    simulator,
    slow_target,
    slow_target_real,
)

if TYPE_CHECKING:
    from types import ModuleType


PAGES = [
    (slow_target, "slow-target"),
    (slow_target_real, "slow-target-real"),
    (datasets, "datasets"),
    (datasets_real, "datasets-real"),
]


@pytest.mark.parametrize(("module", "name"), PAGES)
def test_the_page_shows_the_results(module: ModuleType, name: str) -> None:
    # The tests of dray-sim compare the simulated results with a new run. No test repeats the
    # measurements.
    text = (simulator.PAGES / f"{name}.json").read_text(encoding="utf-8")
    for path, content in module.files(text).items():
        shown = (simulator.PAGES / path).read_text(encoding="utf-8")
        assert shown == content, f"{path}: run `python -m {module.__name__}`"


def test_other_results_are_other_tables() -> None:
    text = (simulator.PAGES / "slow-target.json").read_text(encoding="utf-8")
    value = json.loads(text)
    value["runs"][0]["fixed"]["times_file_order"] = 3.14
    assert "3.1 |" in slow_target.page(json.dumps(value))
    value = json.loads((simulator.PAGES / "datasets.json").read_text(encoding="utf-8"))
    for run in value["runs"]:
        run["ways"][2]["mean_seconds"] = run["ways"][0]["mean_seconds"]
    assert "+0%" in datasets.rows(json.dumps(value))[2]
    value = json.loads((simulator.PAGES / "datasets-real.json").read_text(encoding="utf-8"))
    for run in value["runs"]:
        run["seconds"] = [2.0]
    assert "+0% | 2.00 |" in datasets_real.page(json.dumps(value))
