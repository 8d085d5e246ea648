"""The pages and pictures of the experiments equal those of the stored results."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from integration.simulation import (
    bbos,
    bbos_restarts,
    bde,
    bde_real,
    liu,
    liu_scaled,
    loads,
    plot,
    schedule_picture,
    simulator,
    tier_real_page,
    tuner,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from integration.harness.program import Bench

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("liu", liu.files),
        ("bbos", bbos.files),
        ("bde", bde.files),
        ("loads", loads.files),
        ("liu-scaled", liu_scaled.files),
        ("tuner", tuner.files),
        ("bbos-restarts", bbos_restarts.files),
        ("tier-real", tier_real_page.files),
        ("schedule", schedule_picture.files),
    ],
)
def test_pages_and_pictures_show_the_results(
    name: str, files: Callable[[str], dict[str, str]]
) -> None:
    # The tests of dray-sim compare the simulated results with a new run.
    text = (simulator.PAGES / f"{name}.json").read_text(encoding="utf-8")
    module = name.replace("-", "_")
    for page, content in files(text).items():
        shown = (simulator.PAGES / page).read_text(encoding="utf-8")
        assert shown == content, f"{page}: run `python -m integration.simulation.{module}`"


def test_the_page_of_rates_marks_late_rules() -> None:
    text = (simulator.PAGES / "bde.json").read_text(encoding="utf-8")
    assert "**no**" in bde.files(text)["bde.md"], "some rule is late"


def test_the_loads_shown_keep_what_is_promised() -> None:
    everything = json.loads((simulator.PAGES / "loads.json").read_text(encoding="utf-8"))["all"]
    assert everything["loads"] == 1000
    assert everything["late_steady"] == 0
    assert everything["of_best"] >= 0.95
    late = everything["late_noisy"]
    assert 3 * late["broker"] <= min(late["edf"], late["fair"])


def test_the_tuner_shown_reaches_what_is_asked_for() -> None:
    results = json.loads((simulator.PAGES / "tuner.json").read_text(encoding="utf-8"))
    assert results["from_seconds"] <= 20
    for path in results["paths"]:
        runs = {run["who"]: run for run in path["runs"]}
        assert runs["ours"]["good"] >= 0.97 * results["seeds"], path["name"]
        assert runs["ours"]["median"] > runs["dtl"]["median"], path["name"]
        assert runs["ours"]["failing_longest"] <= 5, path["name"]
        assert runs["recalled"]["failing_longest"] == 0, path["name"]


def test_the_restarts_shown_are_within_5_percent_of_the_paper() -> None:
    results = json.loads((simulator.PAGES / "bbos-restarts.json").read_text(encoding="utf-8"))
    for row in results["figure_5_8"]["rows"]:
        for order, paper in row["paper"].items():
            assert row[order] == pytest.approx(paper, rel=0.05), row["ratio"]
    for row in results["figure_5_7"]["rows"]:
        assert row["fifo"] < row["lru_with_restarts"] < row["bbos"] <= row["bound"]
    for row in results["estimate"]["rows"]:
        assert row["learned_after_periods"] <= results["estimate"]["periods"] / 3


def test_the_page_of_rates_for_real_shows_the_results() -> None:
    runs = json.loads((simulator.PAGES / "bde-real.json").read_text(encoding="utf-8"))
    shown = (simulator.PAGES / "bde-real.md").read_text(encoding="utf-8")
    assert shown == bde_real.page(runs), "run `python -m integration.simulation.bde_real`"
    by_rule = {run["rule"]: run["seconds"] for run in runs}
    assert by_rule["broker"]["T2"] <= 300 < by_rule["fair"]["T2"]
    assert by_rule["broker"]["T1"] <= 1800


def test_the_page_of_loads_counts_late_transfers() -> None:
    row = {
        "from": 0.5,
        "to": 0.6,
        "loads": 3,
        "wished": 40,
        "taken": 30,
        "of_best": 0.97,
        "of_best_ahead": 0.98,
        "late_steady": 0,
        "late_noisy": {"broker": 2, "edf": 8, "fair": 20},
        "foretold": 1,
    }
    few = {"loads": 2, "late_noisy": {"broker": 1, "edf": 2, "fair": 5}}
    results = {"loads": 3, "noise": 0.3, "rows": [row], "all": row, "few": few}
    made = loads.files(json.dumps(results))
    assert "| 0.5-0.6 | 3 | 75.0% | 97.0% | 98.0% | 0 | 2 | 8 | 20 |" in made["loads.md"]
    assert "0.25 times as many late" in made["loads.md"]
    assert made["loads.svg"].count("<rect") > 2


def test_the_measured_order_is_that_of_the_paper() -> None:
    text = (simulator.PAGES / "liu-scaled.json").read_text(encoding="utf-8")
    value, runs = liu_scaled.read(text)
    fcfs, priority, turns = (runs[policy].seconds for policy in liu_scaled.POLICIES)
    # The first data set ends earliest under fcfs. The second ends earliest under priority, and
    # latest under fcfs.
    assert fcfs[0] < min(priority[0], turns[0])
    assert priority[1] < turns[1] < fcfs[1]
    assert turns[2] <= 1.1 * fcfs[2]
    assert runs["round_robin"].apart <= 1.5 * value["quota"]


def test_results_are_written_and_the_work_folder_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAY_PROGRAM", sys.executable)
    seen: list[Path] = []

    def run(bench: Bench) -> dict[str, str]:
        seen.append(bench.folder)
        (bench.folder / "data").write_bytes(b"x")
        return {"program": str(bench.program)}

    def files(text: str) -> dict[str, str]:
        return {"results.json": text}

    simulator.measure(run, files, tmp_path / "pages")
    text = (tmp_path / "pages" / "results.json").read_text(encoding="utf-8")
    assert json.loads(text) == {"program": sys.executable}
    assert not seen[0].exists()


def test_other_results_are_another_page() -> None:
    text = (simulator.PAGES / "liu.json").read_text(encoding="utf-8")
    changed = liu.files(text.replace("1021.687", "1121.687"))
    assert changed["liu.md"] != liu.files(text)["liu.md"]
    assert "+9.8%" in changed["liu.md"]


def test_pictures_are_xml_with_a_shape_for_each_number() -> None:
    frame = plot.Frame("a < b", "x & y", "z")
    picture = plot.bars(frame, ["one", "two"], [plot.Bars("n", [1, 2]), plot.Bars("m", [3, 4])])
    root = ElementTree.fromstring(picture)  # noqa: S314 - made here
    heights = [float(shape.get("height", "0")) for shape in root.findall(f"{SVG}rect")[1:5]]
    one, three, two, four = heights
    assert two == pytest.approx(2 * one, abs=0.2)
    assert three == pytest.approx(3 * one, abs=0.2)
    assert four == pytest.approx(4 * one, abs=0.2)
    line = plot.lines(frame, [plot.Line("n", [(0, 0), (10, 5), (20, 10)])])
    drawn = ElementTree.fromstring(line).find(f"{SVG}polyline")  # noqa: S314 - made here
    assert drawn is not None
    points = [
        tuple(float(each) for each in pair.split(",")) for pair in drawn.get("points", "").split()
    ]
    assert points[0] == (plot.LEFT, plot.HEIGHT - plot.BOTTOM)
    assert points[2] == (plot.WIDTH - plot.RIGHT, plot.TOP)
    assert points[1] == ((points[0][0] + points[2][0]) / 2, (points[0][1] + points[2][1]) / 2)


def test_undrawable_data_is_refused() -> None:
    frame = plot.Frame("t", "x", "y")
    with pytest.raises(ValueError, match="nothing to draw"):
        plot.lines(frame, [plot.Line("n", [])])
    with pytest.raises(ValueError, match="one value for each group"):
        plot.bars(frame, ["one"], [plot.Bars("n", [1, 2])])


@pytest.mark.parametrize(
    ("high", "distance"), [(1.0, 0.2), (1043, 250), (9.9, 2), (100, 20), (0.07, 0.02)]
)
def test_ticks_are_round_and_about_five(high: float, distance: float) -> None:
    assert plot.step(high) == pytest.approx(distance)
