"""Tables and the page of the rate of several connections to one server."""

from __future__ import annotations

import dataclasses
import json
import statistics
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from integration.bench import report
from integration.harness.program import ROOT

PAGE = ROOT / "docs" / "explanation" / "measured-connections.md"
RESULTS = PAGE.with_suffix("") / "results.json"
#: Minimum rate of dray's own choice, as a fraction of the rate of the better policy.
BAR = 0.97

INTRODUCTION = """\
# Results of one run: several connections to one server

This page shows the throughput of threads that read from and write to a server over 1 to 8
connections. It compares three policies that assign calls to connections: the two policies of the
published system Mulconn, and [dray's policy](../design/throughput.md#threads-to-connections). [The
benchmark](../how-to/measure.md#several-connections-to-one-server) prints the numbers of your
machine.
"""

READING = """\
## How to read it

- The columns *single*, *multiple* and *auto* show the throughput with three policies, as a multiple
  of the throughput of one connection. So four connections can reach at most 4.00. Each number is
  the median of several rounds. In each round, all policies ran in turn.
- The policy *single* gives each thread its own connection. The policy *multiple* gives each call
  the connection with the least load; if several connections have the same load, it uses them in
  turn. *auto* is dray's policy. The column *auto / better* shows the result of *auto* divided by
  the better result of *single* and *multiple*.
- With one connection, all three policies do the same. In many cases, *auto* does the same as
  *single* or as *multiple*. If two policies do the same, their numbers differ only by chance.
- In the rows *sync*, a thread waits for each answer, and the server answers a write when the data
  is durable, which takes 2 ms more. In the rows *async*, a thread continues after a call, with up
  to four open calls on a connection.
- The server is a part of the experiment, and uses real connections on the loopback. One thread of
  the server serves each connection. It sleeps to limit the rate of a connection to 16 MiB/s. The
  total load is far below the capacity of two processors, so the speed of the machine has no
  influence. Each client thread uses its own file, with calls of 384 to 512 KiB.
- The server locks a file for the last quarter of a write, and while it makes the data durable. A
  call that waits for the lock blocks its connection. The columns *lock waits* show, for the
  policies *single* and *multiple*, the number of such waits and their total seconds, over all
  connections.
- In the rows *sync*, a thread has only one open call at a time. So with *single* and *multiple*,
  one thread cannot exceed the throughput of one connection. *auto* divides a call into pieces,
  which use several connections. The server makes the pieces of a write durable one after another,
  so *auto* looks for the best number of pieces.
- In the table with files that are locked for the whole write, the measurement begins after five
  seconds. In the other tables, it begins after half a second.
"""


@dataclass(frozen=True)
class Cell:
    """One measured case: direction, threads, connections and properties of the server."""

    direction: str
    mode: str
    threads: int
    connections: int
    #: Fraction of a write during which the server locks the file.
    locked: float
    #: Maximum rate of all connections together in MiB per second. 0 means no maximum.
    server_mib: int = 0

    @property
    def title(self) -> str:
        """Describe the case in one line."""
        return (
            f"{self.direction} {self.mode}, {self.threads} threads, {self.connections} connections"
        )


@dataclass(frozen=True)
class Run:
    """One run of a case with one policy."""

    cell: Cell
    policy: str
    round: int
    #: Rate divided by the rate of one connection.
    of_one: float
    lock_waits: int
    lock_seconds: float


@dataclass
class Results:
    """All results of a measurement."""

    machine: dict[str, Any]
    command: str
    runs: list[Run] = field(default_factory=list)

    def text(self) -> str:
        """Write the results as JSON, one run on each line."""
        lines = ",\n".join(f"  {json.dumps(dataclasses.asdict(each))}" for each in self.runs)
        head = f' "machine": {json.dumps(self.machine)},\n "command": {json.dumps(self.command)}'
        return f'{{\n{head},\n "runs": [\n{lines}\n ]\n}}\n'

    @staticmethod
    def read(text: str) -> Results:
        """Parse the output of :meth:`text`."""
        value = json.loads(text)
        found = [Run(**{**each, "cell": Cell(**each["cell"])}) for each in value["runs"]]
        return Results(value["machine"], value["command"], found)


@dataclass(frozen=True)
class Line:
    """One line of a table: a case, with medians over its rounds."""

    cell: Cell
    single: float
    multiple: float
    auto: float
    #: Waits for a lock in a run with the policy *single*: their number and total seconds.
    single_waits: tuple[float, float]
    #: Waits for a lock in a run with the policy *multiple*: their number and total seconds.
    multiple_waits: tuple[float, float]

    @property
    def of_better(self) -> float:
        """The rate of dray's policy divided by the rate of the better other policy."""
        return self.auto / max(self.single, self.multiple)


def lines(results: Results) -> list[Line]:
    """Compute the lines of all tables, in the order of the runs."""
    found = []
    for cell in dict.fromkeys(run.cell for run in results.runs):
        there = {
            policy: [each for each in results.runs if (each.cell, each.policy) == (cell, policy)]
            for policy in ("single", "multiple", "auto")
        }
        rate = {
            name: statistics.median(each.of_one for each in runs) for name, runs in there.items()
        }
        waits = {
            name: (
                statistics.median(each.lock_waits for each in runs),
                statistics.median(each.lock_seconds for each in runs),
            )
            for name, runs in there.items()
        }
        found.append(
            Line(cell, **rate, single_waits=waits["single"], multiple_waits=waits["multiple"])
        )
    return found


def _cells(line: Line) -> list[str]:
    cell = line.cell
    words = [cell.direction, cell.mode, str(cell.threads), str(cell.connections)]
    words += [f"{line.single:.2f}", f"{line.multiple:.2f}", f"**{line.auto:.2f}**"]
    words.append(f"{line.of_better:.2f}")
    for count, seconds in (line.single_waits, line.multiple_waits):
        words.append(f"{count:.0f}, {seconds:.1f} s" if count else "")
    return words


HEADS = ("", "", "threads", "connections", "single", "multiple", "auto", "auto / better")
WAITS = ("lock waits, single", "multiple")


def table(found: list[Line]) -> list[str]:
    """Return a table in Markdown."""
    heads = [*HEADS, *WAITS]
    rows = [f"| {' | '.join(_cells(line))} |" for line in found]
    return [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}", *rows]


def parts(results: Results) -> list[tuple[str, list[Line]]]:
    """Group the lines into tables. Return the title and the lines of each table."""
    all_lines = lines(results)
    usual = [each for each in all_lines if each.cell.locked < 1 and not each.cell.server_mib]
    locked = [each for each in all_lines if each.cell.locked >= 1]
    bounded = [each for each in all_lines if each.cell.server_mib]
    mib = bounded[0].cell.server_mib if bounded else 0
    found = [
        ("Threads and connections", usual),
        ("A file that is locked for all of a write", locked),
        (f"A server that carries {mib} MiB/s in total", bounded),
    ]
    return [(title, there) for title, there in found if there]


def verdict(results: Results) -> str:
    """Describe in how many cases dray's policy reaches the rate ``BAR``."""
    found = lines(results)
    held = [line for line in found if line.of_better >= BAR]
    worst = min(found, key=lambda line: line.of_better)
    return (
        f"In {len(held)} of {len(found)} cases, dray's policy reached at least {BAR} of the"
        f" throughput of the better other policy. In the worst case ({worst.cell.title}), it"
        f" reached {worst.of_better:.2f}."
    )


def tables(results: Results) -> str:
    """Return all tables as text."""
    text = [verdict(results)]
    for title, there in parts(results):
        text += ["", f"{title}:", "", *table(there)]
    return "\n".join(text) + "\n"


def page(results: Results) -> str:
    """Return the text of the page of the manual."""
    text = [INTRODUCTION, report.place(results.machine), f"    {results.command}\n"]
    text.append(verdict(results) + "\n")
    for title, there in parts(results):
        text += [f"## {title}\n", "\n".join(table(there)) + "\n"]
    return "\n".join([*text, READING])


def publish(text: str) -> None:
    """Write the page into the manual."""
    report.put(PAGE, page(Results.read(text)), {}, text)


if __name__ == "__main__":
    publish((Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS).read_text(encoding="utf-8"))
