"""Computations about growth and several jobs: powers, memory of each end, ratios."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from integration.bench import growth, growth_report, jobs, jobs_report, peers
from integration.bench.results import Results, Row, Sample, Set

if TYPE_CHECKING:
    from pathlib import Path

PEER = Row("gridftp-third", "GridFTP", "third party", is_ours=False, version="13")
OURS = Row("dray-third", "dray", "third party", is_ours=True, version="dray 1")
MACHINE = {"processor": "one", "cpus": 2, "memory_mib": 2048, "system": "Debian", "kernel": "6"}


def grown() -> Results:
    results = Results({**MACHINE, "date": "2026-11-22"}, [OURS])
    # The smaller set comes second: a table is sorted by files, not by runs.
    for name, files, seconds in (("f4", 10_000, 4.0), ("f3", 1_000, 1.0), ("f5", 100_000, 40.0)):
        results.sets.append(Set(name, f"{files} files", files * 8, files))
        base = Sample(name, "tmpfs", "cubic", 0, OURS.name, seconds, seconds / 2, 9 << 20, 0.1)
        peaks = (files << 10, 3 << 20, 2 << 20)
        results.samples.append(replace(base, peaks=peaks))
    return results


def test_growth_is_the_power_of_seconds_over_files() -> None:
    series = growth_report.SERIES[0]
    points = growth_report.points(grown(), series, OURS)
    assert [point.set.files for point in points] == [1_000, 10_000, 100_000]
    assert growth_report.growth(series, points[1], points[2]) == pytest.approx(1.0)
    assert growth_report.growth(series, points[0], points[1]) == pytest.approx(0.602, abs=0.001)
    assert points[2].peaks_mib == (100_000 / 1024, 3.0, 2.0)


def test_the_table_of_growth_has_each_end() -> None:
    text = growth_report.tables(grown())
    assert "| **dray** | 10000 | 4.00 | 400 | 200 | 0.60 | 10 | 3 2 | 0.1 |  |" in text
    assert sorted(growth_report.pictures(grown())) == ["f-memory.svg", "f-time.svg"]
    assert "measured-growth/f-memory.svg" in growth_report.page(grown())


def test_a_failed_run_is_listed_and_counts_nowhere() -> None:
    found = grown()
    sample = found.samples[-1]
    found.samples[-1] = replace(sample, error="stopped after 9 s")
    text = growth_report.tables(found)
    assert "- dray-third, f5: stopped after 9 s" in text
    assert "| 100000 |" not in text


def test_large_files_need_room_on_their_disk(tmp_path: Path) -> None:
    assert growth.missing("g16", 1e6, tmp_path).startswith("it takes ")
    assert growth.missing("f3", 1.0, tmp_path) == ""


def several() -> Results:
    rows = [Row("iperf3-4", "plain TCP", "the machine", is_ours=False, version="3")]
    rows += [Row("cp", "cp -r", "on one host", is_ours=False, version="9"), PEER, OURS]
    rows.append(replace(PEER, name="gridftp-third-compared", title="GridFTP, read back"))
    rows.append(replace(OURS, name="dray-third-verify", title="dray, read back"))
    rows += [Row("by-hand", "by hand", "the machine", is_ours=False, version="")]
    results = Results({**MACHINE, "date": "2026-11-22"}, rows, base="iperf3-4")
    for number in (2, 1):
        results.sets.append(Set(f"j{number}", "a file for each job", number * 10**9, number))
        for turn in (0, 1):
            limits = (("iperf3-4", 1.0), ("cp", 4.0), ("by-hand", 2.5))
            back = (("gridftp-third-compared", 5.0), ("dray-third-verify", 2.5))
            for tool, seconds in (*limits, ("gridftp-third", 3.0), ("dray-third", 2.0), *back):
                one = (f"j{number}", "tmpfs", "cubic", turn, tool, seconds * (1 + turn))
                results.samples.append(Sample(*one, 2 * seconds, 1 << 20, 0.1))
    return results


def test_jobs_are_compared_by_rounds_and_with_the_paper() -> None:
    one, two = jobs_report.jobs(several(), "tmpfs", "cubic")
    assert (one.number, two.number) == (1, 2)
    assert (one.faster, one.cheaper, one.faster_compared) == (1.5, 1.5, 2.0)
    text = jobs_report.table(several(), "tmpfs", "cubic")
    # *unsummed* is the rate of TCP at 750 MB/s followed by two `cp` at 188 MB/s each.
    limits = "750 | 188 | 300 | 250 | 1.00"
    ratios = "1.50 | 2.14 | 1.50 | 300 | 150 | 2.00"
    assert text[2] == f"| 1 | 375 | 250 | {ratios} | {limits} | 4.00 | 1 | 0.1 |  |"
    assert "tmpfs-cubic.svg" in jobs_report.pictures(several())
    assert "measured-jobs/tmpfs-cubic.svg" in jobs_report.page(several())


def test_jobs_without_a_tool_give_the_reason() -> None:
    found = several()
    found.samples = [
        replace(each, error="no | way") if each.tool == "gridftp-third" else each
        for each in found.samples
    ]
    text = jobs_report.table(found, "tmpfs", "cubic")
    assert "gridftp-third: no \\| way" in text[2]
    assert jobs_report.jobs(found, "tmpfs", "cubic")[0].faster == 0.0


def test_unknown_numbers_of_jobs_are_refused() -> None:
    assert jobs.options().parse_args(["--jobs", "1,8"]).jobs == ["1", "8"]
    with pytest.raises(SystemExit):
        jobs.options().parse_args(["--jobs", "3"])


def test_the_tools_of_jobs_have_the_names_that_the_report_looks_for() -> None:
    names = {tool.name for tool in jobs.TOOLS}
    theirs = {jobs_report.PEER, jobs_report.PEER_COMPARED}
    assert {jobs_report.OURS, jobs_report.OURS_COMPARED, *theirs, *jobs.LIMITS} == names
    assert {tool.name for tool in peers.JOBS} == theirs
