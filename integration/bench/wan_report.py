"""Tables, pictures and the page of measurements over a path, made from the stored results."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from integration.bench import goals, report
from integration.bench import results as of
from integration.bench.goals import Goal, Reached
from integration.bench.path import rates, steady_rate
from integration.bench.results import Case, Results
from integration.harness.program import ROOT
from integration.simulation import plot

if TYPE_CHECKING:
    from integration.bench.results import Line

HEADS = (
    "tool",
    "seconds",
    "MB/s",
    "MB/s from second 5",
    "of the line",
    "time / plain TCP",
    "x fastest peer",
    "peak MiB",
    "dropped",
    "late ms",
    "foreign CPU s",
    "notes",
)
PAGE = ROOT / "docs" / "explanation" / "measured-far.md"
FOLDER = PAGE.with_suffix("")
RESULTS = FOLDER / "results.json"

INTRODUCTION = """\
# Results of one run: movers over a path with delay

This page compares dray with other movers over a network path with a delay. All tools copied the
same data on the same machine within one hour, in turn. [The
benchmark](../how-to/measure.md#over-an-emulated-network-path) prints the numbers of your machine.
"""

READING = """\
## How to read it

- Both ends are on one host, in separate network namespaces. A program in user space emulates the
  path between them: it forwards each packet after half the round trip, and limits the rate of all
  packets. This limit is the rate of the *line*. TCP is that of the kernel, so windows, slow start
  and round trips are real. The emulated queue before the line holds the bytes of one round trip. A
  packet is *dropped* only if this queue is full.
- The column *MB/s from second 5* shows the rate at which bytes arrived at the far end, from the
  fifth second until 99 % of the bytes had arrived. The program that emulates the path counts these
  bytes. The column *of the line* shows this rate divided by the rate of the line. The headers of
  Ethernet, IP and TCP take 5.9 % of the line.
- The column *time / plain TCP* shows the time of the tool divided by the time that four plain TCP
  connections without files need for the same number of bytes, over the same path in the same round.
- The column *x fastest peer* shows the speed of the tool divided by the speed of the fastest other
  tool of the same kind. The column *peak MiB* shows the greatest total memory of all processes of
  the tool.
- The column *dropped* shows the number of dropped packets. The column *late ms* shows the greatest
  additional delay that the emulating program caused. If this delay is large, the processors were
  busy, and the row is less reliable. The column *foreign CPU s* shows the processor time of all
  other programs.
- GridFTP's transfers between two servers use pipelining (`-pp`). For other transfers, GridFTP's
  client reports that pipelining has no advantage.
- Numbers are medians of the rounds. Every copied file was compared by SHA-256.
"""


OURS, THIRD = "dray", "dray-third"


GOALS = {
    "line": Goal("a large file: at least 90 % of the line from second 5", 0.9),
    "tree": Goal(
        "a tree: at most 1.2 times as long as plain TCP for the same bytes", 1.2, is_least=False
    ),
    "small": Goal(
        "50 000 files, 554 MB: at most 8 s (mdtmFTP 11 s, GridFTP 1006 s at 95 ms)",
        8.0,
        is_least=False,
    ),
    "third": Goal(
        "third party: at most 1.03 times as long as client to server", 1.03, is_least=False
    ),
}


def cells(results: Results, case: Case, line: Line) -> list[str]:
    """Return the cells of a line."""
    notes = report.plain("; ".join(line.notes))
    found = of.samples_of(results, case, line.row.name)
    if not found:
        return [report.title(line), *[""] * (len(HEADS) - 2), notes]
    steady = statistics.median(steady_rate(each.seen.arrived) for each in found)
    part = steady * 8 / results.megabits if results.megabits else 0.0
    return [
        report.title(line),
        f"{statistics.median(each.seconds for each in found):.1f}",
        f"{line.rate:.0f}",
        f"{steady:.1f}" if steady else "",
        f"{part:.1%}" if steady else "",
        f"{line.of_base:.2f}" if line.of_base else "",
        f"{line.of_peer:.2f}" if line.of_peer else "",
        f"{line.peak_mib:.0f}",
        f"{statistics.median(each.seen.dropped for each in found):.0f}",
        f"{statistics.median(each.seen.late_ms for each in found):.0f}",
        f"{line.foreign_seconds:.1f}",
        notes,
    ]


def table(results: Results, case: Case) -> list[str]:
    """Return one table in Markdown: by kinds of tools, the fastest tool first."""
    found = [line for line in of.lines(results, *case) if line.rounds or not line.row.missing]
    rounds = max(line.rounds for line in found)
    name = next(each.title for each in results.sets if each.name == case[0])
    head = f"{name}; {case[1]}, {case[2]}, {rounds} round{'s' if rounds != 1 else ''}:"
    text = [head, "", f"| {' | '.join(HEADS)} |", f"|{'---|' * len(HEADS)}"]
    for kind in report.KINDS:
        there = sorted(
            (line for line in found if line.row.kind == kind),
            key=lambda line: (line.rounds == 0, -line.rate),
        )
        if there:
            text.append(f"| *{kind}* |{' |' * (len(HEADS) - 1)}")
            text += [f"| {' | '.join(cells(results, case, line))} |" for line in there]
    return text


def tables(results: Results) -> str:
    """Return the tables of all cases as text."""
    parts = [*results.facts]
    for case in report.cases(results):
        parts += ["", *table(results, case)]
    parts += ["", *goals.table(reached(results))]
    return "\n".join([*parts, "", *report.absent(results)]).strip("\n") + "\n"


def seconds_of(results: Results, case: Case, tool: str) -> float:
    """Return the median of a tool's seconds in a case, or 0 without a good run."""
    found = [each.seconds for each in of.samples_of(results, case, tool)]
    return statistics.median(found) if found else 0.0


def reached(results: Results) -> list[Reached]:
    """List the goals, and whether dray met them."""
    rows = []

    def add(what: str, tool: str, case: Case, found: float, words: str) -> None:
        goal = GOALS[what]
        title = next(row.title for row in results.rows if row.name == tool)
        rows.append(Reached(goal, title, case, words, goal.is_met(found)))

    for case in report.cases(results):
        for tool in (OURS, THIRD):
            seconds = seconds_of(results, case, tool)
            if not seconds:
                continue
            if case[0] == "w" and results.megabits:
                good = of.samples_of(results, case, tool)
                part = statistics.median(steady_rate(each.seen.arrived) for each in good)
                part *= 8 / results.megabits
                add("line", tool, case, part, f"{part:.1%}")
            if case[0] == "c" and (plain := seconds_of(results, case, results.base)):
                add("tree", tool, case, seconds / plain, f"{seconds / plain:.2f}")
            if case[0] == "l":
                add("small", tool, case, seconds, f"{seconds:.1f} s")
        both = [seconds_of(results, case, tool) for tool in (OURS, THIRD)]
        if all(both):
            more = both[1] / both[0]
            add("third", THIRD, case, more, f"{more:.3f}")
    return rows


def picture_name(case: Case) -> str:
    """Return the name of the file with a picture."""
    return f"{'-'.join(case)}.svg".replace(" ", "")


def pictures(results: Results) -> dict[str, str]:
    """Draw the rate over time for each case, from the last good run of each tool."""
    found: dict[str, str] = {}
    for case in report.cases(results):
        lines = []
        for row in results.rows:
            good = [each for each in of.samples_of(results, case, row.name) if each.seen.arrived]
            if good:
                lines.append(plot.Line(row.name, rates(good[-1].seen.arrived)))
        if lines:
            name = next(each.title for each in results.sets if each.name == case[0])
            frame = plot.Frame(f"{name}, {case[1]}, {case[2]}", "seconds", "MB per second")
            found[picture_name(case)] = plot.lines(frame, lines)
    return found


def page(results: Results) -> str:
    """Return the text of the page of the manual."""
    parts = [INTRODUCTION, report.place(results.machine), f"    {results.command}\n"]
    parts += [f"{fact}\n" for fact in results.facts]
    parts += report.to_reach(reached(results))
    drawn = pictures(results)
    for case in report.cases(results):
        name = next(each.title for each in results.sets if each.name == case[0])
        parts.append(f"## {name}: {case[1]}, {case[2]}\n")
        if picture_name(case) in drawn:
            parts.append(f"![{name}, {case[1]}]({FOLDER.name}/{picture_name(case)})\n")
        parts.append("\n".join(table(results, case)) + "\n")
    parts.append("\n".join(report.versions(results)) + "\n")
    if report.absent(results):
        parts.append("\n".join(report.absent(results)) + "\n")
    return "\n".join([*parts, READING])


def publish(text: str) -> None:
    """Write the page and its pictures into the manual."""
    results = Results.read(text)
    report.put(PAGE, page(results), pictures(results), text)


if __name__ == "__main__":
    report.rewrite(RESULTS, publish)
