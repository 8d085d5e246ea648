"""A DAG with deadlines ends in time. The same DAG without deadlines ends late."""

from __future__ import annotations

import json

import pytest

from integration.simulation import dag, simulator


def test_the_page_shows_the_results() -> None:
    text = (simulator.PAGES / "dag.json").read_text(encoding="utf-8")
    for name, content in dag.files(text).items():
        shown = (simulator.PAGES / name).read_text(encoding="utf-8")
        assert shown == content, f"{name}: run `python -m integration.simulation.dag`"


@pytest.mark.slow
@pytest.mark.full
def test_the_deadline_is_met_with_deadlines_and_missed_without() -> None:
    """The stored results also equal those of a new run of the simulator."""
    found = dag.results()
    kept, *others = found["runs"]
    print(f"with deadlines {kept['finish']:.0f} s, without {[each['finish'] for each in others]}")
    assert kept["finish"] <= dag.DEADLINE
    for each in others:
        assert each["finish"] > dag.DEADLINE
    for name, latest in kept["latest_finish"].items():
        assert kept["ended"][name] <= latest, name
    shown = json.loads((simulator.PAGES / "dag.json").read_text(encoding="utf-8"))
    assert found == shown, "run `python -m integration.simulation.dag`"


@pytest.mark.slow
@pytest.mark.full
def test_compute_that_is_late_takes_its_time_from_the_transfer_behind_it() -> None:
    """If the computation takes longer, the transfer after it has less time until its deadline."""
    early = dag.run(has_deadlines=True, took={**dag.TOOK, "reconstruct": 900.0})
    late = dag.run(has_deadlines=True, took={**dag.TOOK, "reconstruct": 1500.0})
    for each in (early, late):
        assert each["finish"] <= dag.DEADLINE
        assert each["latest_finish"]["results"] == dag.DEADLINE - 185
    spans = [each["ended"]["results"] - each["begun"]["results"] for each in (early, late)]
    assert spans[1] < spans[0]
