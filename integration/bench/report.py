"""Tables, pictures and the page of results, all made from the stored results."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from integration.bench import goals
from integration.bench import results as of
from integration.bench.peers_goals import reached
from integration.bench.results import Case, Results
from integration.bench.tools import CLEAR, COMPARED, COPY, ENCRYPTED, LIMIT, THIRD
from integration.harness.program import ROOT
from integration.simulation import plot

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.bench.goals import Reached
    from integration.bench.results import Line

KINDS = (LIMIT, COPY, CLEAR, COMPARED, ENCRYPTED, THIRD)
HEADS = (
    "tool",
    "MB/s",
    "low to high",
    "CPU s/GB",
    "peak MiB",
    "time / `cp -r`",
    "x fastest peer",
    "foreign CPU s",
    "notes",
)
PAGE = ROOT / "docs" / "explanation" / "measured.md"
FOLDER = PAGE.with_suffix("")
RESULTS = FOLDER / "results.json"

INTRODUCTION = """\
# Results of one run: movers on one host

This page compares dray with other movers of files. All tools copied the same data on the same
machine within one hour, in turn. Other machines give other numbers; [the
benchmark](../how-to/measure.md) prints the numbers of your machine. The speed of a machine changes
from hour to hour, so compare only tools of one table with each other. [How to read
it](#how-to-read-it), at the end of the page, explains the columns and the goals.
"""

READING = """\
## How to read it

- Each number is the median of the rounds. In each round every tool runs once, and the next round
  begins with another tool. The column *low to high* shows the MB/s of the slowest and of the
  fastest round.
- The column *CPU s/GB* shows the processor time of all processes of a tool, including its servers,
  for each GB of 10^9 bytes. The column *peak MiB* shows the greatest total memory of these
  processes, without the data on the tmpfs.
- The column *time / `cp -r`* shows the time of the tool divided by the time of `cp -r`. The column
  *x fastest peer* shows the speed of the tool divided by the speed of the fastest other tool of the
  same kind. If this number is greater than 1.00, the tool is faster than that other tool. The kinds
  are: in clear, read back, encrypted, and third-party copies between two servers. Both ratios are
  computed in each round, and the table shows their median.
- The row *the work by hand* shows a small program that does only the necessary work of a copy with
  checksums at both ends, with one connection and one thread at each end. One thread reads the data,
  computes checksums and sends; the other thread receives, computes checksums and writes. The
  program keeps no log, does not retry, and syncs no data. With more than one thread at each end,
  the same work may take less time.
- In the table of goals, the column *case* names the set of files, the file system and the TCP
  congestion control. The column *result* shows a ratio for dray. The column *the machine* shows the
  same ratio for *the work by hand*, which ran in the same rounds. The goal *checksums of each byte*
  uses the time that *the work by hand* itself reports for its checksums. The number before *of EScp
  as recorded* is dray's speed divided by the speed of EScp, which was measured once, at another
  time on a machine of the same kind. Both speeds are relative to `cp -r`.
- Linux divides the processor time first among login sessions, then among the processes of a session
  (sched(7), autogroup). Each end of each tool runs in a separate session, as if the ends were on
  two hosts.
- The column *foreign CPU s* shows the processor time of all other programs during the run. If this
  time is long, the row is less reliable.
- All servers run on the loopback of this host, in a separate network namespace. There is no network
  delay and no packet loss, and sender and receiver share the processors.
- Every copied file was compared by SHA-256 after each run. The column *notes* names files that a
  tool cannot copy. If a row has no numbers, the tool did not run, and the notes give the reason.
- dray checksums every object at both ends, and logs the safe ranges. GridFTP, rclone from a web
  server and aria2 compute no checksums here; only TCP protects their data. In the rows *read back
  and compared*, each tool uses an option that reads the written bytes of each file again, and
  compares their adler32 with that of the source. dray does this with `--verify`. GridFTP's client
  supports only MD5 for files at its own end, and computing MD5 takes most of its time.
- On tmpfs, no tool waits for a disk. On a disk, the time ends when all data is on stable storage.
  dray waits for stable storage in any case; for the other tools, the time includes a `sync` of the
  destination's file system.
- On a virtual machine, the first use of memory can cost more than the copy. So before each run, the
  benchmark wrote and freed as much memory as the run would use. For tmpfs, one page of each 2 MiB
  of this memory stayed allocated, so that the memory did not go back to the host before the run.
  The page cache of a disk uses larger pieces of memory, for which this method does not work. So
  the times on ext4 seem to include the cost of first use. This cost seems to be highest for tools
  that write with many threads ([details](../design/throughput.md)).
"""


def cases(results: Results) -> list[Case]:
    """List the data set, the file system and the congestion control of each table."""
    found = [(each.set, each.where, each.congestion) for each in results.samples]
    return list(dict.fromkeys(found))


def cells(line: Line) -> list[str]:
    """Return the cells of a line."""
    notes = plain("; ".join(line.notes))
    if line.rounds == 0:
        return [title(line), *[""] * 7, notes]
    return [
        title(line),
        f"{line.rate:.0f}",
        f"{line.low:.0f} to {line.high:.0f}",
        f"{line.cpu_seconds:.2f}",
        f"{line.peak_mib:.0f}",
        f"{line.of_base:.2f}" if line.of_base else "",
        f"{line.of_peer:.2f}" if line.of_peer else "",
        f"{line.foreign_seconds:.1f}",
        notes,
    ]


def title(line: Line) -> str:
    """Return the title of a tool, in bold for dray."""
    return f"**{line.row.title}**" if line.row.is_ours else line.row.title


def plain(words: str) -> str:
    """Make a text fit into a cell of a table. Texts of servers may contain zero bytes."""
    shown = "".join(letter if letter.isprintable() else " " for letter in words)
    return " ".join(shown.replace("|", "\\|").split())


def table(results: Results, set_name: str, where: str, congestion: str) -> list[str]:
    """Write one table in Markdown: by kinds, fastest first, without tools that never ran."""
    case: Case = (set_name, where, congestion)
    ran = {each.tool for each in results.samples if (each.set, each.where, each.congestion) == case}
    found = [line for line in of.lines(results, *case) if line.row.name in ran]
    rounds = max(line.rounds for line in found)
    name = next(each.title for each in results.sets if each.name == set_name)
    head = f"{name}; {where}, {congestion}, {rounds} round{'s' if rounds != 1 else ''}:"
    text = [head, "", f"| {' | '.join(HEADS)} |", f"|{'---|' * len(HEADS)}"]
    for kind in KINDS:
        there = sorted(
            (line for line in found if line.row.kind == kind),
            key=lambda line: (line.rounds == 0, -line.rate),
        )
        if there:
            text.append(f"| *{kind}* |{' |' * (len(HEADS) - 1)}")
            text += [f"| {' | '.join(cells(line))} |" for line in there]
    return text


def absent(results: Results) -> list[str]:
    """Return the table of unavailable tools."""
    rows = [row for row in results.rows if row.missing]
    if not rows:
        return []
    text = ["Not run:", "", "| tool | reason |", "|---|---|"]
    return [*text, *(f"| {row.title} | {plain(row.missing)} |" for row in rows)]


def tables(results: Results) -> str:
    """Return the tables of all cases as text."""
    parts = [line for case in cases(results) for line in ["", *table(results, *case)]]
    parts += ["", *goals.table(reached(results, cases(results)))]
    return "\n".join([*parts, "", *absent(results)]).strip("\n") + "\n"


def to_reach(reached: list[Reached]) -> list[str]:
    """Return the section of a page about its goals, or an empty list without goals."""
    text = goals.table(reached)
    return ["\n".join(["## Goals", "", *text]) + "\n"] if text else []


def picture_name(set_name: str, where: str) -> str:
    """Return the name of the file with a picture."""
    return f"{set_name}-{where}.svg".replace(" ", "")


def pictures(results: Results) -> dict[str, str]:
    """Draw a picture for each set and file system: a group of bars for each tool that ran."""
    found: dict[str, str] = {}
    for name, where in dict.fromkeys((name, where) for name, where, _ in cases(results)):
        congestions = [each for a, b, each in cases(results) if (a, b) == (name, where)]
        rates = {
            each: {line.row.title: line.rate for line in of.lines(results, name, where, each)}
            for each in congestions
        }
        limits = {row.title for row in results.rows if row.kind == LIMIT}
        best = {
            tool: max(rates[each][tool] for each in congestions) for tool in rates[congestions[0]]
        }
        ran = sorted(
            (tool for tool in best if best[tool] and tool not in limits),
            key=lambda tool: -best[tool],
        )
        if ran:
            what = next(each.title for each in results.sets if each.name == name)
            found[picture_name(name, where)] = plot.across(
                plot.Frame(f"{what}, {where}", "MB per second", ""),
                ran,
                [plot.Bars(each, [rates[each][tool] for tool in ran]) for each in congestions],
            )
    return found


def place(machine: dict[str, Any]) -> str:
    """Describe the host and the day of a measurement."""
    where = (
        f"{machine['cpus']} processors ({machine['processor']}),"
        f" {machine['memory_mib'] / 1024:.0f} GiB, {machine['system']}, Linux {machine['kernel']}"
    )
    return f"The machine: {where}. The day: {machine['date']}. The command:\n"


def versions(results: Results) -> list[str]:
    """Return the table of the versions of the tools."""
    found = [f"| {row.title} | {plain(row.version)} |" for row in results.rows if row.version]
    return ["## Versions", "", "| tool | version |", "|---|---|", *found]


def page(results: Results) -> str:
    """Return the text of the page of the manual."""
    parts = [INTRODUCTION, place(results.machine), f"    {results.command}\n"]
    parts += to_reach(reached(results, cases(results)))
    drawn = pictures(results)
    seen: set[tuple[str, str]] = set()
    for name, at, congestion in cases(results):
        if (name, at) not in seen:
            seen.add((name, at))
            what = next(each.title for each in results.sets if each.name == name)
            parts.append(f"## Set {name} on {at}: {what}\n")
            if picture_name(name, at) in drawn:
                parts.append(f"![{what}, {at}]({FOLDER.name}/{picture_name(name, at)})\n")
        parts.append("\n".join(table(results, name, at, congestion)) + "\n")
    parts.append("\n".join(versions(results)) + "\n")
    if absent(results):
        parts.append("\n".join(absent(results)) + "\n")
    return "\n".join([*parts, READING])


def publish(text: str) -> None:
    """Write the page and its pictures into the manual."""
    results = Results.read(text)
    put(PAGE, page(results), pictures(results), text)


def put(at: Path, words: str, drawn: dict[str, str], text: str) -> None:
    """Write a page; its results and its pictures go into a folder of the same name."""
    folder = at.with_suffix("")
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.svg"):
        old.unlink()
    (folder / "results.json").write_text(text, encoding="utf-8")
    at.write_text(words, encoding="utf-8")
    for name, picture in drawn.items():
        (folder / name).write_text(picture, encoding="utf-8")


def rewrite(kept: Path, publish: Callable[[str], None]) -> None:
    """Write a page again, from its stored results or from those of several runs."""
    files = [Path(word) for word in sys.argv[1:]] or [kept]
    parts = [Results.read(file.read_text(encoding="utf-8")) for file in files]
    publish(of.merged(parts).text())


if __name__ == "__main__":
    rewrite(RESULTS, publish)
