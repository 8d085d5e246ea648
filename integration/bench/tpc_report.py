"""Tables, pictures and the page of XRootD's third-party copies, made from the stored results."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from integration.bench import goals, report
from integration.bench import results as of
from integration.bench.goals import Goal, Reached
from integration.bench.results import GB, Case, Results
from integration.bench.tools import LIMIT
from integration.bench.tpc_tools import (
    ASKED,
    AT_ONCE,
    BASE,
    BOTH,
    DELEGATED,
    DELEGATED_BASE,
    KINDS,
    PAGES,
    STOCK,
)
from integration.harness.program import ROOT

if TYPE_CHECKING:
    from integration.bench.results import Line, Row

PAGE = ROOT / "docs" / "explanation" / "measured-tpc.md"
FOLDER = PAGE.with_suffix("")
RESULTS = FOLDER / "results.json"
#: Plain TCP, whose rate is that of the line.
LINE = "iperf3-4"
#: A program that does only the necessary work of a copy by dray.
HOST = "by-hand"
#: Two waiting times of clients count as equal if their ratio is at most this factor, because the
#: time that a client needs to start varies. The value is estimated, not measured.
SAME_WAIT = 1.05

HEADS = (
    "copied by",
    "MB/s",
    "low to high",
    "client waits s",
    "CPU s/GB",
    "peak MiB",
    "x as shipped",
    "x best tuned",
    "foreign CPU s",
    "notes",
)

INTRODUCTION = f"""\
# Results of one run: third-party copies of XRootD

This page compares third-party copies from one XRootD server to another. The standard XRootD clients
request the copies. XRootD's own programs and dray copy the same file in turn. Each file of a folder
is a separate request, and at most {AT_ONCE} requests run at one time. [The
benchmark](../how-to/measure.md#third-party-copies-of-xrootd) prints the numbers of your machine.
"""

READING = """\
## How to read it

- Each number is the median of the rounds. Ratios are computed in each round. The column *x as
  shipped* shows the speed of the copy divided by the speed of XRootD's copy in its default
  configuration. The column *x best tuned* shows the speed of the copy divided by the speed of the
  fastest of XRootD's tuned copies in the same table.
- For `root://` copies, the column *MB/s* uses the time in which the server's programs ran, from the
  start of the first program to the end of the last. The client asks only every 2.5 seconds if its
  copy is done. The column *client waits s* shows the total waiting time of the client. So copies
  that end between the same two requests have the same value in this column. For copies by HTTP, the
  time is measured at the client.
- The column *CPU s/GB* shows the processor time of all processes: both servers, their programs and
  the client. The column *peak MiB* shows the greatest total memory of these processes, without the
  data on the tmpfs.
- XRootD sends its data without TLS. So copies between two ends of dray are measured without TLS,
  and also with TLS, which is dray's default.
- dray computes checksums of all data at both ends, stores the checksums with the copy, and compares
  them with the checksum that the source's server reports for its file. The source's server stored
  this checksum when the file was written, as servers at sites do. In the row *a source that has to
  sum the file*, the server did not store the checksum, and reads the file to compute it. XRootD's
  own copies compare no checksum of the file. In the default configuration, XRootD sends a checksum
  with each 4 KiB of data.
- XRootD's copy in its default configuration differs from the tuned copy with one stream only by the
  checksums of pages (4 KiB). The speed of these checksums in XRootD's library depends on the
  processor. So *x as shipped* depends on the machine as much as on the copies.
- In the rows *and then the destination is asked for the checksum*, the client requests the file's
  adler32 immediately after its copy (`xrdfs query checksum`), and compares it, as data managers do
  before they trust a copy. In these rows, the column *MB/s* uses the time of both steps, without
  the client's waits between its requests. The column *x best tuned* compares only rows of this
  kind. The answers have different meanings. XRootD's server reads the written file to answer.
  dray's answer is the checksum of the received bytes, which dray compared with the source's
  checksum before it wrote the bytes.
- In the rows with *delegated credentials* (gsi), dray opens the source several times, and each
  handshake costs time. Without delegated credentials, dray opens the source once with the key of
  the copy. It then uses eight data connections, or the number of connections in the name of the
  row. If the source is a dray endpoint, dray also uses eight data connections.
- On the loopback, the processors limit the rate: CPU s/GB times MB/s is close to the capacity of
  the processors. XRootD's own copy uses very little processor time, because its source sends the
  file with `sendfile`, no end computes checksums, and each byte is copied twice. dray computes
  checksums at both ends and stores them. Between two ends of dray, each byte is copied four times,
  because a source has to read the bytes to compute checksums ([why it
  copies](../decisions/0020-sources-send-from-buffers-without-sendfile.md)). dray would be faster
  relative to XRootD if the two ends had separate processors.
- With many small files, some of XRootD's own copies fail with the error *tpc authorization
  expired*, because the source's server does not answer the request that opens the file ([what could
  go wrong](../design/xrootd.md#faults-and-their-handling)). If this happens to dray,
  dray sends its request again.
- On the loopback, both ends and both sides of the kernel's network code share the processors. Over
  a path, both ends are on one host in separate network namespaces. A program in user space emulates
  the path: it forwards each packet after half the round trip, and limits the rate of all packets.
  TCP and its windows are those of the kernel.
- In the table of goals, the column *result* shows a ratio for dray. The column *the machine* shows
  the same ratio for a reference program, which ran in the same rounds. Over a path, the reference
  is plain TCP with four connections and without files. On the loopback, the reference is *the work
  by hand*: a small program with one connection and one thread at each end. One end reads, computes
  checksums and sends, and the other end receives, computes checksums and writes. If a copy is as
  fast as the reference, only the machine limits the copy.
- In the table of goals, the number in brackets after *by the client's wait* shows the same ratio,
  computed with the total waiting times of the clients. In the rows *dray from a dray*, the source
  is a dray endpoint beside the source's server.
- Every copied file was compared by SHA-256. The column *foreign CPU s* shows the processor time of
  all other programs during the run.
"""

DEFAULT = Goal("at least 4 times as fast as XRootD's copy as shipped", 4.0)
TUNED_BOTH = Goal("from a dray source: at least 1.3 times as fast as the best tuned copy", 1.3)
ASKED_BOTH = Goal(
    "then asked, from a dray source: at least 1.3 times as fast as the best tuned copy", 1.3
)
ASKED_BEST = Goal("then asked, from a stock source: no slower than the best tuned copy", 1.0)
ASKED_CPU = Goal("then asked: less CPU than each of XRootD's own copies", 1.0, is_least=False)
TUNED = Goal("from a stock source: no slower than the best tuned copy", 1.0)
FAR = Goal("at least 3 times as fast as XRootD's copy as shipped, with one stream", 3.0)
SAME = Goal("no slower than XRootD's copy with the same credentials", 1.0)
CPU = Goal("less CPU than each of XRootD's own copies", 1.0, is_least=False)
WAIT = Goal(
    "many files: the client waits no longer than for XRootD's copy", SAME_WAIT, is_least=False
)


def best_tuned(results: Results, case: Case, kind: str = STOCK) -> str:
    """Name the fastest of XRootD's own copies with changed settings; empty if there is none."""
    found = [
        (statistics.median(each.seconds for each in samples), row.name)
        for row in results.rows
        if row.kind == kind and row.name != BASE and not row.is_ours
        if (samples := of.samples_of(results, case, row.name))
    ]
    return min(found)[1] if found else ""


def waits(results: Results, case: Case, tool: str) -> dict[int, float]:
    """Return the seconds for which the client waited, by round."""
    return {each.round: each.waited or each.seconds for each in of.samples_of(results, case, tool)}


def wait_ratio(results: Results, case: Case, tool: str, to: str) -> float:
    """Return the client's waiting time with ``tool`` divided by that with ``to``; 0 if unknown."""
    ours, base = waits(results, case, tool), waits(results, case, to)
    found = [ours[turn] / base[turn] for turn in ours if turn in base]
    return statistics.median(found) if found else 0.0


def cpu_ratio(results: Results, case: Case, tool: str, kind: str = STOCK) -> float:
    """Return a tool's CPU seconds divided by the least of XRootD's own tools; 0 if unknown."""
    found: dict[str, float] = {}
    for row in results.rows:
        if samples := of.samples_of(results, case, row.name):
            found[row.name] = statistics.median(each.cpu_seconds for each in samples)
    stock = [row for row in results.rows if row.kind == kind and not row.is_ours]
    least = min((found[row.name] for row in stock if row.name in found), default=0.0)
    return found[tool] / least if tool in found and least else 0.0


def cells(results: Results, case: Case, line: Line) -> list[str]:
    """Return the cells of a line."""
    tuned = best_tuned(results, case, ASKED if line.row.kind == ASKED else STOCK)
    name, notes = line.row.name, report.plain("; ".join(line.notes))
    if line.rounds == 0:
        return [report.title(line), *[""] * (len(HEADS) - 2), notes]
    is_copy = line.row.kind != LIMIT
    waited = statistics.median(waits(results, case, name).values())
    shipped = of.times_as_fast(results, case, name, BASE) if is_copy else 0.0
    best = of.times_as_fast(results, case, name, tuned) if is_copy else 0.0
    return [
        report.title(line),
        f"{line.rate:.0f}",
        f"{line.low:.0f} to {line.high:.0f}",
        f"{waited:.1f}" if is_copy else "",
        f"{line.cpu_seconds:.2f}",
        f"{line.peak_mib:.0f}",
        # The copy as shipped has no checksum query, so it is not compared with such tools.
        f"{shipped:.2f}" if shipped and line.row.kind != ASKED else "",
        f"{best:.2f}" if best else "",
        f"{line.foreign_seconds:.1f}",
        notes,
    ]


def table(results: Results, case: Case) -> list[str]:
    """Write one table in Markdown: by kinds, fastest first, the tools of this case."""
    ran = {each.tool for each in results.samples if (each.set, each.where, each.congestion) == case}
    found = [line for line in of.lines(results, *case) if line.row.name in ran]
    rounds = max(line.rounds for line in found)
    head = f"{_set_title(results, case)}; {case[1]}, {case[2]}, {_count(rounds, 'round')}:"
    text = [head, "", f"| {' | '.join(HEADS)} |", f"|{'---|' * len(HEADS)}"]
    for kind in KINDS:
        there = sorted(
            (line for line in found if line.row.kind == kind),
            key=lambda line: (line.rounds == 0, -line.rate),
        )
        if there:
            text.append(f"| *{kind}* |{' |' * (len(HEADS) - 1)}")
            text += [f"| {' | '.join(cells(results, case, line))} |" for line in there]
    return text


def _set_title(results: Results, case: Case) -> str:
    return next(each.title for each in results.sets if each.name == case[0])


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number != 1 else ''}"


def is_far(case: Case) -> bool:
    """Return true if the copies of a case cross a path with a delay."""
    return " ms " in case[1]


def reached(results: Results) -> list[Reached]:
    """List the goals, and whether dray met them."""
    rows = []

    def add(goal: Goal, row: Row, case: Case, found: float, words: str, machine: float) -> None:
        if found:
            is_met, limit = goal.is_met(found), f"{machine:.2f}" if machine else ""
            rows.append(Reached(goal, row.title, case, words, is_met, limit))

    for case in report.cases(results):
        files = next(each.files for each in results.sets if each.name == case[0])
        for row in results.rows:
            if not row.is_ours or row.kind == PAGES:
                continue
            if files > 1:
                base = DELEGATED_BASE if row.kind == DELEGATED else BASE
                ratio = wait_ratio(results, case, row.name, base)
                add(WAIT, row, case, ratio, f"{ratio:.2f}", 0.0)
                continue
            if row.kind == DELEGATED:
                ratio = of.times_as_fast(results, case, row.name, DELEGATED_BASE)
                add(SAME, row, case, ratio, f"{ratio:.2f}", 0.0)
                continue
            if row.kind == ASKED:
                fastest = best_tuned(results, case, ASKED)
                ratio = of.times_as_fast(results, case, row.name, fastest)
                bound = LINE if is_far(case) else HOST
                machine = of.times_as_fast(results, case, bound, fastest)
                goal = ASKED_BOTH if row.name.startswith("dray-both") else ASKED_BEST
                add(goal, row, case, ratio, f"{ratio:.2f}", machine)
                cpu = cpu_ratio(results, case, row.name, ASKED)
                add(ASKED_CPU, row, case, cpu, f"{cpu:.2f}", 0.0)
                continue
            shipped = of.times_as_fast(results, case, row.name, BASE)
            wait = wait_ratio(results, case, BASE, row.name)
            words = f"{shipped:.2f} (by the client's wait {wait:.2f})"
            bound = LINE if is_far(case) else HOST
            machine = of.times_as_fast(results, case, bound, BASE)
            add(FAR if is_far(case) else DEFAULT, row, case, shipped, words, machine)
            tuned = best_tuned(results, case)
            best = of.times_as_fast(results, case, row.name, tuned)
            machine = of.times_as_fast(results, case, bound, tuned)
            add(TUNED_BOTH if row.kind == BOTH else TUNED, row, case, best, f"{best:.2f}", machine)
            cpu = cpu_ratio(results, case, row.name)
            add(CPU, row, case, cpu, f"{cpu:.2f}", cpu_ratio(results, case, HOST))
    return rows


def tables(results: Results) -> str:
    """Return the tables of all cases as text."""
    parts = [*results.facts]
    for case in report.cases(results):
        parts += ["", *table(results, case)]
    parts += ["", *goals.table(reached(results))]
    return "\n".join([*parts, "", *report.absent(results)]).strip("\n") + "\n"


def pictures(results: Results) -> dict[str, str]:
    """Draw a bar for each tool, in a picture for each set and path."""
    return report.pictures(results)


def page(results: Results) -> str:
    """Return the text of the page of the manual."""
    parts = [INTRODUCTION, report.place(results.machine), f"    {results.command}\n"]
    parts += [f"{fact}\n" for fact in results.facts]
    parts += report.to_reach(reached(results))
    drawn = pictures(results)
    for case in report.cases(results):
        size = next(each.size for each in results.sets if each.name == case[0]) / GB
        title = _set_title(results, case)
        parts.append(f"## {title} ({size:.2f} GB): {case[1]}, {case[2]}\n")
        name = report.picture_name(case[0], case[1])
        if name in drawn:
            parts.append(f"![{title}, {case[1]}]({FOLDER.name}/{name})\n")
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
