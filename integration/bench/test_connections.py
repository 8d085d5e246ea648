"""The computations of the report of several connections, and its runs."""

from __future__ import annotations

from integration.bench import connections, connections_report
from integration.bench.connections_report import Cell, Results, Run

MACHINE = {
    "processor": "x",
    "cpus": 2,
    "memory_mib": 8192,
    "system": "Linux",
    "kernel": "6",
    "date": "2026-11-22",
}
GOOD = Cell("read", "sync", 1, 8, 0.25)
BAD = Cell("write", "async", 16, 8, 1.0)


def results() -> Results:
    found = Results(MACHINE, "make it")
    for turn, more in enumerate((0.0, 0.5, 9.0)):
        for policy, rate in (("single", 1.0), ("multiple", 2.0), ("auto", 8.0)):
            found.runs.append(Run(GOOD, policy, turn, rate + more, 0, 0.0))
        for policy, rate in (("single", 8.0), ("multiple", 4.0), ("auto", 4.0)):
            waits = 7 if policy == "multiple" else 0
            found.runs.append(Run(BAD, policy, turn, rate, waits, waits / 2))
    return found


def test_results_are_read_as_they_were_written() -> None:
    assert Results.read(results().text()) == results()


def test_a_line_has_medians_and_compares_with_the_better_policy() -> None:
    good, bad = connections_report.lines(results())
    assert (good.single, good.multiple, good.auto) == (1.5, 2.5, 8.5)
    assert good.of_better == 8.5 / 2.5
    assert bad.of_better == 0.5
    assert bad.multiple_waits == (7, 3.5)


def test_a_case_below_the_bar_is_named() -> None:
    text = connections_report.page(results())
    assert "In 1 of 2 cases" in text
    assert "worst case (write async, 16 threads" in text
    assert "| write | async | 16 | 8 | 8.00 | 4.00 | **4.00** | 0.50 |  | 7, 3.5 s |" in text
    assert text.index("## Threads and connections") < text.index("## A file that is locked")


def test_all_cases_of_direction_mode_threads_and_connections_are_run() -> None:
    usual = [each for each in connections.cells() if each.locked < 1 and not each.server_mib]
    assert len(set(usual)) == 2 * 2 * 3 * 4
    assert len(set(connections.cells())) == len(connections.cells())
