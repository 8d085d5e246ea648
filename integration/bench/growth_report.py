"""Tables, pictures and the page of what grows with files and bytes."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from integration.bench import report
from integration.bench.results import GB, MIB, Results
from integration.harness.program import ROOT
from integration.simulation import plot

if TYPE_CHECKING:
    from integration.bench.results import Row, Sample, Set

PAGE = ROOT / "docs" / "explanation" / "measured-growth.md"
FOLDER = PAGE.with_suffix("")
RESULTS = FOLDER / "results.json"

INTRODUCTION = """\
# Results of one run: growth with files and bytes

This page shows how the cost of a copy grows with ten times as many files, and with files four times
as large. The cost is given in seconds, CPU seconds, and memory of each end. [The
benchmark](../how-to/measure.md#with-more-files) prints the numbers of your machine.
"""

READING = """\
## How to read it

- The column *growth* shows the exponent with which the time grew from the previous row to this row.
  An exponent of 1.00 means that ten times as many files take ten times as long. In small runs, the
  start and the end of the run take a larger part of the time, so the first exponents are below 1.
- The column *timed MiB* shows the greatest memory of the process whose time was measured. The
  column *others' MiB* shows the greatest memory of each server of the tool, the largest first. Both
  columns exclude pages of the copied data.
- The column *foreign CPU s* shows the processor time of all other programs during the run.
- Files of 8 bytes are on a tmpfs, 1000 in a folder. Large files are on a disk, and are on stable
  storage when the time ends. Every copied file was compared by SHA-256.
"""


@dataclass(frozen=True)
class Series:
    """Data sets that differ only in the number or only in the size of their files."""

    #: First letter of the names of the sets.
    letter: str
    title: str
    unit: str
    #: Label of the horizontal axis of the pictures.
    x_label: str

    def amount(self, each: Set) -> float:
        """Return the number in which the sets differ: files, or GB."""
        return float(each.files) if self.letter == "f" else each.size / GB

    def place(self, each: Set) -> float:
        """Return the place of a data set on the horizontal axis of a picture."""
        amount = self.amount(each)
        return math.log10(amount) if self.letter == "f" else amount


SERIES = (
    Series("f", "Files of 8 bytes", "file", "files, as a power of ten"),
    Series("g", "One file", "GB", "GB"),
)


@dataclass(frozen=True)
class Point:
    """A tool with one data set: medians over its runs."""

    row: Row
    set: Set
    seconds: float
    cpu_seconds: float
    foreign_seconds: float
    peaks_mib: tuple[float, ...]
    notes: tuple[str, ...]


def points(results: Results, series: Series, row: Row) -> list[Point]:
    """List a tool's points, the smallest set first."""
    found = []
    sets = [each for each in results.sets if each.name[0] == series.letter]
    for each in sorted(sets, key=series.amount):
        samples = [
            sample
            for sample in results.samples
            if (sample.set, sample.tool) == (each.name, row.name) and not sample.error
        ]
        if samples:
            found.append(_point(row, each, samples))
    return found


def _point(row: Row, each: Set, samples: list[Sample]) -> Point:
    count = min(len(sample.peaks) for sample in samples)
    peaks = (statistics.median(s.peaks[at] for s in samples) / MIB for at in range(count))
    return Point(
        row,
        each,
        statistics.median(sample.seconds for sample in samples),
        statistics.median(sample.cpu_seconds for sample in samples),
        statistics.median(sample.foreign_seconds for sample in samples),
        tuple(peaks),
        tuple(dict.fromkeys(note for sample in samples for note in sample.notes)),
    )


def growth(series: Series, before: Point, after: Point) -> float:
    """Return the exponent with which the seconds grow: 1 means in proportion."""
    more = series.amount(after.set) / series.amount(before.set)
    return math.log(after.seconds / before.seconds) / math.log(more)


def table(results: Results, series: Series) -> list[str]:
    """Return the table of a series in Markdown, or an empty list without runs."""
    small = series.letter == "f"
    per = "us / file" if small else "s / GB"
    heads = ["tool", "files" if small else "GB", "seconds", per, f"CPU {per}", "growth"]
    heads += ["timed MiB", "others' MiB", "foreign CPU s", "notes"]
    unit = 1e6 if small else 1.0
    lines = []
    for row in results.rows:
        found = points(results, series, row)
        for at, point in enumerate(found):
            amount = series.amount(point.set)
            cells = [
                f"**{row.title}**" if row.is_ours else row.title,
                f"{amount:.0f}" if small else f"{amount:.1f}",
                f"{point.seconds:.2f}",
                f"{point.seconds / amount * unit:.4g}",
                f"{point.cpu_seconds / amount * unit:.4g}",
                f"{growth(series, found[at - 1], point):.2f}" if at else "",
                f"{point.peaks_mib[0]:.0f}" if point.peaks_mib else "",
                " ".join(f"{peak:.0f}" for peak in point.peaks_mib[1:]),
                f"{point.foreign_seconds:.1f}",
                report.plain("; ".join(point.notes)),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    if not lines:
        return []
    return [f"{series.title}:", "", f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}", *lines]


def failures(results: Results) -> list[str]:
    """List the runs that do not count, with the reasons."""
    return [
        f"{each.tool}, {each.set}: {report.plain(each.error)}"
        for each in results.samples
        if each.error
    ]


def tables(results: Results) -> str:
    """Return the tables of all series as text."""
    parts = [*results.facts]
    for series in SERIES:
        parts += ["", *table(results, series)]
    parts += ["", *(f"- {line}" for line in failures(results)), "", *report.absent(results)]
    return "\n".join(parts).strip("\n") + "\n"


def pictures(results: Results) -> dict[str, str]:
    """Draw the seconds for each file or GB, and the memory of each tool's largest process."""
    found: dict[str, str] = {}
    for series in SERIES:
        drawn = {row: points(results, series, row) for row in results.rows}
        drawn = {row: there for row, there in drawn.items() if len(there) > 1}
        if not drawn:
            continue
        unit = 1e6 if series.letter == "f" else 1.0
        word = "microseconds" if series.letter == "f" else "seconds"
        costs = [
            plot.Line(
                row.title,
                [(series.place(p.set), p.seconds / series.amount(p.set) * unit) for p in there],
            )
            for row, there in drawn.items()
        ]
        memory = [
            plot.Line(row.title, [(series.place(p.set), max(p.peaks_mib)) for p in there])
            for row, there in drawn.items()
            if all(p.peaks_mib for p in there)
        ]
        frame = plot.Frame(series.title, series.x_label, f"{word} for each {series.unit}")
        found[f"{series.letter}-time.svg"] = plot.lines(frame, costs)
        if memory:
            frame = plot.Frame(series.title, series.x_label, "MiB, largest process")
            found[f"{series.letter}-memory.svg"] = plot.lines(frame, memory)
    return found


def page(results: Results) -> str:
    """Return the text of the page of the manual."""
    parts = [INTRODUCTION, report.place(results.machine), f"    {results.command}\n"]
    parts += [f"{fact}\n" for fact in results.facts]
    drawn = pictures(results)
    for series in SERIES:
        text = table(results, series)
        if text:
            parts.append(f"## {series.title}\n")
            for what in ("time", "memory"):
                if (name := f"{series.letter}-{what}.svg") in drawn:
                    parts.append(f"![{series.title}, {what}]({FOLDER.name}/{name})\n")
            parts.append("\n".join(text[2:]) + "\n")
    parts += [f"- {line}\n" for line in failures(results)]
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
