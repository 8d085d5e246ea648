"""Computations from runs: order, medians, ratios, tables, the page in the manual."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree import ElementTree

import pytest

from integration.bench import (
    growth_report,
    jobs_report,
    peers_goals,
    report,
    tpc_report,
    wan_report,
)
from integration.bench.results import (
    Line,
    Results,
    Row,
    Sample,
    Set,
    lines,
    merged,
    ratios,
    rotated,
)
from integration.bench.tools import COMPARED
from integration.simulation import plot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SVG = "{http://www.w3.org/2000/svg}"
ROWS = [
    Row("cp", "cp -r", "on one host", is_ours=False, version="cp 9.1"),
    Row("fast", "a fast peer", "clear", is_ours=False, version=""),
    Row("slow", "a slow peer", "clear", is_ours=False, version=""),
    Row("dray", "dray", "clear", is_ours=True, version="dray 1"),
    Row("gone", "a lost peer", "clear", is_ours=False, version="", missing="no program gone"),
]


def sample(tool: str, turn: int, seconds: float, **more: object) -> Sample:
    base = Sample("a", "tmpfs", "cubic", turn, tool, seconds, 2 * seconds, 64 << 20, 0.1)
    return dataclasses.replace(base, **more)  # type: ignore[arg-type]


def some_results() -> Results:
    machine = {"processor": "one", "cpus": 2, "memory_mib": 2048, "system": "Debian", "kernel": "6"}
    results = Results(
        {**machine, "date": "2026-11-22"}, list(ROWS), command="python -m integration.bench"
    )
    results.sets.append(Set("a", "one file: 1 file, 954 MiB", 10**9, 1))
    # In the second round, all tools take twice as long.
    for turn, slow in enumerate((1, 2, 1)):
        for tool, seconds in (("cp", 1.0), ("fast", 2.0), ("slow", 4.0), ("dray", 1.25)):
            results.samples.append(sample(tool, turn, seconds * slow))
    return results


def line(found: Results, name: str) -> Line:
    return next(each for each in lines(found, "a", "tmpfs", "cubic") if each.row.name == name)


@pytest.mark.parametrize(
    ("count", "turns"), [(1, 3), (3, 3), (5, 3), (15, 3), (15, 2), (20, 3), (4, 1), (2, 5)]
)
def test_every_round_runs_every_tool_and_begins_elsewhere(count: int, turns: int) -> None:
    names = [f"tool{at}" for at in range(count)]
    orders = [rotated(names, turn, turns) for turn in range(turns)]
    assert all(sorted(order) == sorted(names) for order in orders)
    assert orders[0] == names
    assert len({order[0] for order in orders}) == min(count, turns)
    after = [set(itertools.pairwise(order)) for order in orders]
    if count >= 2 * turns:
        assert all(not one & other for one, other in itertools.combinations(after, 2))


def test_no_tools_give_no_order() -> None:
    assert rotated([], 0, 3) == []


def test_medians_ratios_and_costs_are_per_round() -> None:
    ours = line(some_results(), "dray")
    assert (ours.rate, ours.low, ours.high) == (800.0, 400.0, 800.0)
    # In the slow round, the peers are slow too, so the ratios do not change.
    assert ours.of_base == 1.25
    assert ours.of_peer == 1.6
    assert ours.cpu_seconds == 2.5
    assert ours.peak_mib == 64
    assert ours.rounds == 3


def test_the_fastest_peer_is_no_copy_on_one_host_and_not_ours() -> None:
    results = some_results()
    assert line(results, "fast").of_peer == 1.0
    assert line(results, "slow").of_peer == 0.5
    assert line(results, "cp").of_peer == 0.0


def test_rounds_that_one_of_two_lost_are_not_compared() -> None:
    there = [sample("x", 0, 2.0), sample("x", 2, 9.0)]
    assert ratios(there, [sample("cp", 0, 1.0), sample("cp", 1, 3.0)]) == [2.0]


def test_a_failed_run_counts_nowhere_and_gives_the_reason() -> None:
    results = some_results()
    results.samples.append(sample("fast", 3, 0.001, error="3 files are missing"))
    assert line(results, "fast").rate == 500.0
    assert line(results, "fast").notes == ("3 files are missing",)
    results.samples = [each for each in results.samples if each.tool != "slow"]
    results.samples.append(sample("slow", 0, 0.0, error="stopped after 9 s"))
    cells = report.cells(line(results, "slow"))
    assert cells == ["a slow peer", *[""] * 7, "stopped after 9 s"]


def test_an_unavailable_peer_has_a_row_with_the_reason() -> None:
    results = some_results()
    assert line(results, "gone").notes == ("no program gone",)
    assert "| a lost peer | no program gone |" in report.tables(results).splitlines()


def goals_of(found: Results) -> list[tuple[str, str, str, bool]]:
    reached = peers_goals.reached(found, [("a", "tmpfs", "cubic")])
    return [(each.row_title, each.words, each.machine, each.is_met) for each in reached]


def test_goals_are_judged_beside_the_peers_of_the_same_rounds() -> None:
    results = some_results()
    # A copy that is 1.6 times as fast as the fastest peer meets the goal, whatever time `cp -r`
    # takes. The CPU seconds are compared with those of the peer that uses the least CPU.
    assert goals_of(results) == [
        ("dray", "1.60 (1.25 times `cp -r`)", "", True),
        ("dray", "0.62", "", True),
    ]
    results.rows.append(Row("by-hand", "by hand", "the machine", is_ours=False, version=""))
    results.samples += [sample("by-hand", turn, 1.0 * slow) for turn, slow in enumerate((1, 2, 1))]
    by_hand = [machine for _, _, machine, _ in goals_of(results)]
    assert by_hand == ["2.00 (1.00 times `cp -r`)", "0.50"]
    results.samples = [
        dataclasses.replace(each, seconds=each.seconds * 1.3, cpu_seconds=each.cpu_seconds * 2)
        if each.tool == "dray"
        else each
        for each in results.samples
    ]
    assert [met for *_, met in goals_of(results)] == [False, False]
    # If `cp -r` takes longer, dray meets the goal about its time.
    results.samples = [
        dataclasses.replace(each, seconds=each.seconds * 1.5) if each.tool == "cp" else each
        for each in results.samples
    ]
    assert goals_of(results)[0][1:] == (
        "1.23 (1.08 times `cp -r`)",
        "2.00 (0.67 times `cp -r`)",
        True,
    )


def test_checksum_goals_use_the_measured_work_by_hand() -> None:
    results = some_results()
    results.rows.append(Row("by-hand", "by hand", "the machine", is_ours=False, version=""))
    for turn, share in enumerate((0.2, 0.1, 0.12)):
        by_hand = dataclasses.replace(sample("by-hand", turn, 1.0), summing=share)
        results.samples.append(by_hand)
    assert goals_of(results)[-1] == ("by hand", "12.0 %", "", True)
    results.samples[-1] = dataclasses.replace(results.samples[-1], summing=0.2)
    assert goals_of(results)[-1] == ("by hand", "20.0 %", "", False)


def test_copies_that_read_back_are_compared_among_themselves() -> None:
    results = some_results()
    for name, seconds in (("slower", 9.0), ("faster", 2.6), ("dray-verify", 1.3)):
        is_ours = name.startswith("dray")
        results.rows.append(Row(name, f"by {name}", COMPARED, is_ours=is_ours, version=""))
        results.samples += [
            sample(name, turn, seconds * slow) for turn, slow in enumerate((1, 2, 1))
        ]
    # The other goals are unchanged.
    assert goals_of(results) == [
        ("dray", "1.60 (1.25 times `cp -r`)", "", True),
        ("dray", "0.62", "", True),
        ("by dray-verify", "2.00", "", True),
        ("by dray-verify", "0.50", "", True),
    ]
    # Each tool is compared with the fastest peer of its kind.
    rates = [line(results, name).of_peer for name in ("faster", "fast", "dray-verify")]
    assert rates == [1.0, 1.0, 2.0]
    assert any(f"| *{COMPARED}* |" in row for row in report.table(results, "a", "tmpfs", "cubic"))
    results.samples = [
        dataclasses.replace(each, seconds=each.seconds / 2, cpu_seconds=each.cpu_seconds / 3)
        if each.tool == "faster"
        else each
        for each in results.samples
    ]
    assert [met for *_, met in goals_of(results)[2:]] == [False, False]
    # Without a common round there is no ratio.
    results.samples = [
        dataclasses.replace(each, round=9) if each.tool == "dray-verify" else each
        for each in results.samples
    ]
    assert len(goals_of(results)) == 2


def test_encrypted_and_third_party_copies_have_goals() -> None:
    results = some_results()
    results.rows += [
        Row("ssh", "by ssh", "encrypted", is_ours=False, version=""),
        Row("dray-tls", "encrypted", "encrypted", is_ours=True, version=""),
        Row("dray-third", "between", "third party", is_ours=True, version=""),
    ]
    for turn, slow in enumerate((1, 2, 1)):
        for tool, seconds in (("ssh", 3.0), ("dray-tls", 1.6), ("dray-third", 1.28)):
            results.samples.append(sample(tool, turn, seconds * slow))
    assert goals_of(results)[2:] == [
        ("encrypted", "1.88, 1.29 of EScp as recorded", "", True),
        ("encrypted", "1.28", "", True),
        ("between", "1.024", "", True),
    ]
    results.samples = [
        dataclasses.replace(each, seconds=each.seconds * 1.2, cpu_seconds=each.cpu_seconds * 1.3)
        if each.tool in ("dray-tls", "dray-third")
        else each
        for each in results.samples
    ]
    assert [met for *_, met in goals_of(results)[2:]] == [False, False, False]
    assert report.page(results).count("| no |") == 3


def test_there_are_no_goals_without_runs_nor_for_other_sets() -> None:
    results = some_results()
    assert peers_goals.reached(results, [("h", "tmpfs", "cubic")]) == []
    results.samples = [each for each in results.samples if each.tool != "dray"]
    assert goals_of(results) == []
    assert "## Goals" not in report.page(results)


def test_the_table_is_sorted_and_complete() -> None:
    text = report.table(some_results(), "a", "tmpfs", "cubic")
    assert text[0] == "one file: 1 file, 954 MiB; tmpfs, cubic, 3 rounds:"
    titles = [row.split(" | ")[0].strip("| ") for row in text[4:]]
    assert titles == ["*on one host*", "cp -r", "*clear*", "**dray**", "a fast peer", "a slow peer"]
    assert "| **dray** | 800 | 400 to 800 | 2.50 | 64 | 1.25 | 1.60 | 0.1 |  |" in text
    assert all(row.count("|") == len(report.HEADS) + 1 for row in text[2:])


def test_runs_with_tables_of_their_own_become_one_page() -> None:
    one, other = some_results(), some_results()
    other.rows = [*ROWS[:4], Row("gone", "a found peer", "clear", is_ours=False, version="1")]
    other.samples = [dataclasses.replace(each, where="ext4") for each in other.samples]
    other.command = "make the other"
    both = merged([one, other])
    assert report.cases(both) == [("a", "tmpfs", "cubic"), ("a", "ext4", "cubic")]
    assert both.command == "python -m integration.bench\n    make the other"
    assert [row.missing for row in both.rows] == [""] * 5
    assert len(both.sets) == 1
    assert line(both, "dray") == line(one, "dray")
    assert one == some_results(), "the result is unchanged"
    with pytest.raises(ValueError, match="two runs measured a, tmpfs, cubic"):
        merged([one, some_results()])


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"scale": 0.5}, "scale"),
        ({"megabits": 500.0}, "megabits"),
        ({"machine": {"processor": "another"}}, "machine"),
        ({"sets": [Set("a", "a smaller file", 10**8, 1)]}, "a smaller file"),
        ({"rows": [*ROWS[:3], dataclasses.replace(ROWS[3], version="dray 2")]}, "dray"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_incompatible_runs_are_not_merged(change: dict[str, Any], word: str) -> None:
    one = some_results()
    other = dataclasses.replace(some_results(), **change)
    other.samples = [dataclasses.replace(each, where="ext4") for each in other.samples]
    with pytest.raises(ValueError, match=f"two runs differ in {word}"):
        merged([one, other])


def test_a_run_of_another_day_is_shown_with_the_first() -> None:
    one, other = some_results(), some_results()
    other.machine["date"] = "2026-11-23"
    other.samples = [dataclasses.replace(each, where="ext4") for each in other.samples]
    assert report.cases(merged([one, other])) == [
        ("a", "tmpfs", "cubic"),
        ("a", "ext4", "cubic"),
    ]


def test_results_are_read_as_they_were_written() -> None:
    results = some_results()
    results.samples.append(sample("dray", 3, 1.0, notes=("leaves out links",)))
    assert Results.read(results.text()) == results


def test_a_picture_has_a_bar_for_each_tool_and_congestion_control() -> None:
    results = some_results()
    results.samples += [dataclasses.replace(each, congestion="bbr") for each in results.samples]
    (picture,) = report.pictures(results).values()
    bars = ElementTree.fromstring(picture).findall(f"{SVG}rect")  # noqa: S314 - our own text
    legend = [bar for bar in bars if bar.get("y") == "12"]
    assert len(bars) - len(legend) - 1 == 4 * 2


def test_a_picture_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="one value for each name"):
        plot.across(plot.Frame("t", "x", ""), ["a", "b"], [plot.Bars("one", [1.0])])


class Written(NamedTuple):
    """A page of the manual that a report makes from stored results."""

    report: str
    page: Path
    make: Callable[[Results], str]
    draw: Callable[[Results], dict[str, str]]


WRITTEN = [
    Written("report", report.PAGE, report.page, report.pictures),
    Written("wan_report", wan_report.PAGE, wan_report.page, wan_report.pictures),
    Written("growth_report", growth_report.PAGE, growth_report.page, growth_report.pictures),
    Written("jobs_report", jobs_report.PAGE, jobs_report.page, jobs_report.pictures),
    Written("tpc_report", tpc_report.PAGE, tpc_report.page, tpc_report.pictures),
]


@pytest.mark.parametrize("written", WRITTEN, ids=lambda one: one.report)
def test_the_manual_shows_the_results(written: Written) -> None:
    folder = written.page.with_suffix("")
    results = Results.read((folder / "results.json").read_text(encoding="utf-8"))
    again = f"run `python -m integration.bench.{written.report}`"
    assert written.page.read_text(encoding="utf-8") == written.make(results), again
    shown = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.svg")}
    assert shown == written.draw(results), again
