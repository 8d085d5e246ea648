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

dray beside other movers over a path with a delay: the same data, the same machine, the same hour,
all by turns. [The command](../how-to/measure.md#over-a-path) prints yours.
"""

READING = """\
## How to read it

- Both ends are on one host, in networks of their own. A program in user space carries packets
  between them, each after half the round trip, and no faster than the line. TCP is the kernel's
  own, so windows, slow start and round trips are real. The queue before the line holds one round
  trip of bytes. Packets that find it full are *dropped*; no other packet is.
- *MB/s from second 5* counts the bytes that arrived at the far end between the fifth second and the
  moment at which 99 % had arrived, as the path saw it. *of the line* is that rate as a part of all
  bits of the line. Ethernet, IP and TCP take 5.9 % of them.
- *time / plain TCP* compares with the time that four connections without any files need for as many
  bytes, over the same path in the same round.
- *late ms* is the greatest delay of the program in user space. Where it is large, the processors
  were not free, and the row is less reliable.
- GridFTP's transfers between two servers are pipelined (`-pp`); its client reports that only those
  gain by it.
- Numbers are medians of the rounds. Every copied file was compared by SHA-256.
"""


OURS, THIRD = "dray", "dray-third"


GOALS = {
    "line": Goal("a large file: 90 % of the line from second 5", 0.9),
    "tree": Goal("a tree: 1.2 times what plain TCP needs for its bytes", 1.2, is_least=False),
    "small": Goal(
        "50 000 files, 554 MB: 8 s (mdtmFTP 11 s, GridFTP 1006 s at 95 ms)", 8.0, is_least=False
    ),
    "third": Goal("third party: 1.03 times client-server", 1.03, is_least=False),
}


def cells(results: Results, case: Case, line: Line) -> list[str]:
    """Write a line's cells."""
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
    """Write one table in Markdown, by kinds, the fastest first."""
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
    """Write the tables of all cases."""
    parts = [*results.facts]
    for case in report.cases(results):
        parts += ["", *table(results, case)]
    parts += ["", *goals.table(reached(results))]
    return "\n".join([*parts, "", *report.absent(results)]).strip("\n") + "\n"


def seconds_of(results: Results, case: Case, tool: str) -> float:
    """Return the median of a tool's seconds in a case; 0 without a good run."""
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
    """Name the file of a picture."""
    return f"{'-'.join(case)}.svg".replace(" ", "")


def pictures(results: Results) -> dict[str, str]:
    """Draw for each case the rate over time: the last good run of each tool."""
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
    """Write the page."""
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
