"""Tables, the picture and the page of several concurrent transfers."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from integration.bench import report
from integration.bench import results as of
from integration.bench.results import GB, Results
from integration.harness.program import ROOT
from integration.simulation import plot

if TYPE_CHECKING:
    from integration.bench.results import Line, Sample

PAGE = ROOT / "docs" / "explanation" / "measured-jobs.md"
FOLDER = PAGE.with_suffix("")
RESULTS = FOLDER / "results.json"
OURS, PEER = "dray-third", "gridftp-third"
#: The same two tools, with the written data read back and compared.
OURS_COMPARED, PEER_COMPARED = "dray-third-verify", "gridftp-third-compared"
#: mdtmFTP's rate divided by GridFTP's rate, by number of jobs (Lu and others, BigData Express,
#: Table 4).
PAPER = {1: 2.14, 2: 1.94, 4: 1.39, 8: 1.55}

INTRODUCTION = """\
# Results of one run: several jobs

This page shows several concurrent transfers between two endpoints. Each transfer copies one file,
at the request of a third host. GridFTP's transfers run with `-p 8 -cc 4`, as in the measurements of
the authors of BigData Express. [The benchmark](../how-to/measure.md#several-jobs-at-one-time)
prints the numbers of your machine.
"""

READING = """\
## How to read it

- Each row shows a number of concurrent jobs. The columns in MB/s show the rate of all jobs
  together: all bytes, divided by the time until the last job ends.
- The column *dray / GridFTP* shows the ratio of the rates, computed in each round. The column *CPU
  GridFTP / dray* shows the ratio of the CPU seconds of all processes. If both tools reach the limit
  of the machine, only the CPU seconds differ. The column *paper* shows the ratio of the rates of
  mdtmFTP and GridFTP on other hosts (Lu and others, BigData Express, Table 4).
- The columns *read back* show copies in which both movers read each written file once more from its
  storage, and compare its checksum with that of the source. The commands are `dray cp --verify`,
  and `globus-url-copy -verify-checksum -checksum-alg ADLER32`. With the second command, the source
  also reads each file once more. Without `-verify-checksum`, GridFTP computes no checksums. dray
  always computes checksums of the bytes that it reads and receives.
- The column *plain TCP* shows four connections without files. The column *cp -r* shows one process
  without a network. The column *by hand* shows a small program that does only the necessary work
  with checksums at both ends, with one connection and one thread at each end. One end reads one
  file after another, computes checksums and sends; the other end receives, computes checksums and
  writes. On the loopback, both ends and both sides of the kernel's network code share the
  processors.
- The column *unsummed* shows a computed rate: the rate of a mover without checksums that sends and
  receives as fast as plain TCP, and then reads and writes as fast as `cp -r` on all processors. The
  next column, *of GridFTP*, shows this rate divided by GridFTP's rate.
- Every copied file was compared by SHA-256.
"""

HEADS = (
    "jobs",
    "dray MB/s",
    "GridFTP MB/s",
    "dray / GridFTP",
    "paper",
    "CPU GridFTP / dray",
    "dray, read back MB/s",
    "GridFTP, read back MB/s",
    "dray / GridFTP, read back",
    "plain TCP MB/s",
    "cp -r MB/s",
    "by hand MB/s",
    "unsummed MB/s",
    "of GridFTP",
    "dray CPU s/GB",
    "dray peak MiB",
    "foreign CPU s",
    "notes",
)


@dataclass(frozen=True)
class Jobs:
    """One row of a table: a number of concurrent jobs, and a line for each tool."""

    number: int
    lines: dict[str, Line]
    #: Rate of dray divided by that of GridFTP. 0 if one of them is missing.
    faster: float
    #: CPU seconds of GridFTP divided by those of dray. 0 if one of them is missing.
    cheaper: float
    #: Rate of dray divided by that of GridFTP if both read the written data back.
    faster_compared: float
    foreign_seconds: float
    notes: tuple[str, ...]


def cases(results: Results) -> list[tuple[str, str]]:
    """List the path and the congestion control of each table."""
    return list(dict.fromkeys((each.where, each.congestion) for each in results.samples))


def jobs(results: Results, where: str, congestion: str) -> list[Jobs]:
    """Return the rows of a table, one for each number of jobs."""
    found = []
    for each in results.sets:
        there = [
            sample
            for sample in results.samples
            if (sample.set, sample.where, sample.congestion) == (each.name, where, congestion)
        ]
        if not there:
            continue
        lines = {line.row.name: line for line in of.lines(results, each.name, where, congestion)}
        good = [sample for sample in there if not sample.error]
        found.append(
            Jobs(
                int(each.name[1:]),
                lines,
                _median(of.ratios(_of(good, PEER), _of(good, OURS))),
                _median(_cpu_ratios(_of(good, PEER), _of(good, OURS))),
                _median(of.ratios(_of(good, PEER_COMPARED), _of(good, OURS_COMPARED))),
                statistics.median(sample.foreign_seconds for sample in there),
                tuple(
                    f"{sample.tool}: {report.plain(sample.error)}"
                    for sample in there
                    if sample.error
                ),
            )
        )
    return sorted(found, key=lambda one: one.number)


def _of(samples: list[Sample], tool: str) -> list[Sample]:
    return [sample for sample in samples if sample.tool == tool]


def _cpu_ratios(peer: list[Sample], ours: list[Sample]) -> list[float]:
    base = {sample.round: sample.cpu_seconds for sample in ours}
    return [each.cpu_seconds / base[each.round] for each in peer if base.get(each.round)]


def _median(values: list[float]) -> float:
    return statistics.median(values) if values else 0.0


def table(results: Results, where: str, congestion: str) -> list[str]:
    """Return a table in Markdown."""
    text = [f"| {' | '.join(HEADS)} |", f"|{'---|' * len(HEADS)}"]
    for each in jobs(results, where, congestion):
        rates = [f"{line.rate:.0f}" if line.rounds else "" for line in _lines(each)]
        ours = each.lines[OURS]
        cells = [f"{each.number}", *rates[:2], _ratio(each.faster), f"{PAPER[each.number]:.2f}"]
        cells += [_ratio(each.cheaper), *rates[2:4], _ratio(each.faster_compared), *rates[4:]]
        unsummed, peer = _unsummed(each, results), each.lines[PEER].rate
        cells += [f"{unsummed:.0f}" if unsummed else ""]
        cells += [_ratio(unsummed / peer if peer else 0.0)]
        cells += [f"{ours.cpu_seconds:.2f}", f"{ours.peak_mib:.0f}"] if ours.rounds else ["", ""]
        cells += [f"{each.foreign_seconds:.1f}", "; ".join(each.notes)]
        text.append(f"| {' | '.join(cells)} |")
    return text


def _ratio(found: float) -> str:
    return f"{found:.2f}" if found else ""


def _lines(each: Jobs) -> list[Line]:
    pairs = (OURS, PEER, OURS_COMPARED, PEER_COMPARED)
    return [each.lines[name] for name in (*pairs, "iperf3-4", "cp", "by-hand")]


def _unsummed(each: Jobs, results: Results) -> float:
    """Return the rate of plain TCP followed by ``cp -r`` on each processor. 0 if one is missing."""
    network, one = (each.lines[name].rate for name in ("iperf3-4", "cp"))
    copies = one * float(results.machine["cpus"])
    return 1 / (1 / network + 1 / copies) if network and copies else 0.0


def tables(results: Results) -> str:
    """Return all tables as text."""
    parts = [*results.facts]
    for where, congestion in cases(results):
        parts += ["", f"{where}, {congestion}:", "", *table(results, where, congestion)]
    return "\n".join([*parts, "", *report.absent(results)]).strip("\n") + "\n"


def pictures(results: Results) -> dict[str, str]:
    """Draw the rates over the number of jobs, for each path."""
    found = {}
    for where, congestion in cases(results):
        rows = jobs(results, where, congestion)
        lines = []
        for name in (OURS, PEER, OURS_COMPARED, PEER_COMPARED, "iperf3-4"):
            points = [
                (float(each.number), each.lines[name].rate)
                for each in rows
                if each.lines[name].rounds
            ]
            if points:
                lines.append(plot.Line(name, points))
        if lines and len(rows) > 1:
            frame = plot.Frame(f"{where}, {congestion}", "jobs at one time", "MB per second")
            found[f"{where}-{congestion}.svg".replace(" ", "")] = plot.lines(frame, lines)
    return found


def page(results: Results) -> str:
    """Return the text of the page of the manual."""
    parts = [INTRODUCTION, report.place(results.machine), f"    {results.command}\n"]
    size = next((each.size / GB / int(each.name[1:]) for each in results.sets), 0.0)
    parts.append(f"Each job copies one file of {size:.2f} GB.\n")
    parts += [f"{fact}\n" for fact in results.facts]
    drawn = pictures(results)
    for where, congestion in cases(results):
        parts.append(f"## {where}, {congestion}\n")
        if (name := f"{where}-{congestion}.svg".replace(" ", "")) in drawn:
            parts.append(f"![{where}, {congestion}]({FOLDER.name}/{name})\n")
        parts.append("\n".join(table(results, where, congestion)) + "\n")
    parts.append("\n".join(report.versions(results)) + "\n")
    return "\n".join([*parts, READING])


def publish(text: str) -> None:
    """Write the page and its picture into the manual."""
    results = Results.read(text)
    report.put(PAGE, page(results), pictures(results), text)


if __name__ == "__main__":
    report.rewrite(RESULTS, publish)
