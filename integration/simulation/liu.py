"""Table 2 and Figures 13 and 14 of Liu et al. (2010): ``dray-sim experiment liu``.

``python -m integration.simulation.liu`` runs it and writes ``liu.json`` (results), ``liu.md``
(tables) and the pictures into docs/explanation/experiments. It takes a minute for the first build,
then a second.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from integration.simulation import plot, simulator

if TYPE_CHECKING:
    from pathlib import Path

#: names of the policies on the page
WORDS = {
    "fcfs": "first come, first served",
    "priority": "priority",
    "round_robin": "round robin",
    "pairs": "pairs",
}
SETS = ("tray03", "tray05", "both")


@dataclass(frozen=True)
class Row:
    """One run of two transfers."""

    policy: str
    engine: str
    #: of the first, of the second, of both
    seconds: tuple[float, float, float]
    #: the paper's numbers, if it has any
    paper: tuple[float, float, float] | None
    #: gigabytes over seconds of each, if they were kept
    curves: list[list[tuple[float, float]]]

    def off(self) -> list[float]:
        """Return the relative deviation of each from the paper."""
        if self.paper is None:
            return []
        return [ours / paper - 1 for ours, paper in zip(self.seconds, self.paper, strict=True)]


@dataclass(frozen=True)
class Results:
    """The results of the simulator."""

    table_2: list[Row]
    figure_13: list[Row]
    #: megabytes of each turn
    figure_14: list[float]
    their_pause: float
    line: float
    preempted_after: float
    object_seconds: float

    def of(self, policy: str, engine: str) -> Row:
        """Find a run of Table 2."""
        return one(self.table_2, policy, engine)


def one(rows: list[Row], policy: str, engine: str) -> Row:
    """Find a run."""
    return next(row for row in rows if (row.policy, row.engine) == (policy, engine))


def row(value: dict[str, Any]) -> Row:
    """Read one run."""
    first, second, both = value["seconds"]
    paper = value.get("paper")
    return Row(
        policy=value["policy"],
        engine=value["engine"],
        seconds=(first, second, both),
        paper=(paper[0], paper[1], paper[2]) if paper else None,
        curves=[[(x, y) for x, y in curve] for curve in value.get("curves", [])],
    )


def read(text: str) -> Results:
    """Read what the simulator printed."""
    value = json.loads(text)
    return Results(
        table_2=[row(each) for each in value["table_2"]],
        figure_13=[row(each) for each in value["figure_13"]],
        figure_14=[turn / 1e6 for turn in value["figure_14"]],
        their_pause=value["their_pause_seconds"],
        line=value["line_bytes_per_second"],
        preempted_after=value["preempted_after_seconds"],
        object_seconds=value["object_seconds"],
    )


def table_2(results: Results) -> str:
    """Lay out Table 2: the paper beside the three engines."""
    head = ["policy and data set", "paper, s", "fluid", "off", "theirs", "off", "ours"]
    rows = []
    for policy in ("fcfs", "priority", "round_robin"):
        fluid, theirs, ours = (results.of(policy, name) for name in ("fluid", "theirs", "ours"))
        for at, name in enumerate(SETS):
            paper = fluid.paper[at] if fluid.paper else 0.0
            cells = [f"{paper:.0f}", f"{fluid.seconds[at]:.0f}", part(fluid.off()[at])]
            cells += [f"{theirs.seconds[at]:.0f}", part(theirs.off()[at])]
            rows.append([f"{WORDS[policy]}, {name}", *cells, f"{ours.seconds[at]:.0f}"])
    return simulator.table(head, rows)


def figure_13(results: Results) -> str:
    """Lay out Figure 13."""
    head = ["way, engine", "jason_sam02, s", "tomo_2048, s", "both, s"]
    rows = []
    for policy, way in (("pairs", "side by side"), ("fcfs", "one after the other")):
        for engine in ("theirs", "ours"):
            run = one(results.figure_13, policy, engine)
            rows.append([f"{way}, {engine}", *(f"{seconds:.0f}" for seconds in run.seconds)])
    return simulator.table(head, rows)


def part(off: float) -> str:
    """Write a relative deviation; none has no sign."""
    words = f"{off:+.1%}"
    return "0.0%" if words[1:] == "0.0%" else words


def page(results: Results) -> str:
    """Write the page."""
    turns = results.figure_14
    mean = sum(turns) / len(turns)
    fcfs, turned = results.of("fcfs", "ours"), results.of("round_robin", "ours")
    longer = turned.seconds[2] / fcfs.seconds[2] - 1
    worst = {
        engine: max(
            abs(off) for row in results.table_2 if row.engine == engine for off in row.off()
        )
        for engine in ("fluid", "theirs")
    }
    *each, both = one(results.figure_13, "pairs", "ours").seconds
    line = results.line * 8 / 1e6
    return f"""\
# Policies: two data sets over one line

Liu, Tieman, Kettimuthu and Foster (*A data transfer framework for large-scale science
experiments*, 2010) moved two data sets between two sites: tray03 (34 GB in 4,335 files), and a
minute later tray05 (19 GB in 2,432 files), under three policies. Their Table 2 has the time of
each. Here dray's policies decide about the same two transfers in the
[fluid model](../../design/scheduling.md#the-fluid-model).

`python -m integration.simulation.liu` writes this page.

## Times of completion

![Seconds until each data set is done, in the paper and here](liu-table-2.svg)

{table_2(results)}

tray05 counts from its submission. Three engines:

- *fluid*: a line of {line:.0f} Mbit/s, without any other cost. One number is fitted: the
  line, to the 1022 s in which first come, first served moved 53 GB. The worst of the nine differs
  by {worst["fluid"]:.1%}.
- *theirs*: each change from one data set to the other costs a pause of
  {results.their_pause * 1e3:.0f} ms, fitted to the 1043 s of round robin. An absent
  data set saves turns: one that comes a minute later is owed the turns of that minute. This is a
  guess about their engine; the paper does not describe it. With it tray05 under round
  robin is within {abs(results.of("round_robin", "theirs").off()[1]):.1%}; with equal turns the
  pauses alone would make it even later. The worst differs by {worst["theirs"]:.1%}: tray05 under
  priority. In the paper it took 392 s alone on the line under priority, and 339 s under first
  come, first served. So the line was not the same in both runs, and no constant explains both.
- *ours*: objects of 1 MiB that are not cut off, one round trip of 33 ms for each change, three
  for a new session. Absence saves no turns. These times are compared with those of *fluid*, which
  are the best possible, and not with the paper's.

## Start of the urgent data set

![Gigabytes over time under priority](liu-priority.svg)

The urgent data set is submitted at 60 s. The other's objects on the way had arrived after
{results.preempted_after * 1e3:.1f} ms; one object takes {results.object_seconds * 1e3:.1f} ms.

## Turns

![Gigabytes over time under round robin](liu-round-robin.svg)

Figure 14 of the paper has some 400 MB in each turn. Here, while both were present, there were
{len(turns)} full turns of {min(turns):.1f} to {max(turns):.1f} MB, {mean:.2f} MB in the mean. An
object is not cut off; the excess of one turn is taken off the next. The turns cost {longer:.2%} of
the time of first come, first served.

## Two pairs of endpoints

Figure 13 of the paper: two transfers between different pairs of endpoints together take as
long as the longer one alone; a client that serves one pair at a time takes the sum. The figure does
not name its two data sets; these are two of the paper's, 35 and 58 GB, each with a
path of {line:.0f} Mbit/s, from one source with a card of 1 Gbit/s.

![Seconds until both are done](liu-figure-13.svg)

{figure_13(results)}

Together they take {both / max(each):.2f} times the time of the longer one.
"""


def pictures(results: Results) -> dict[str, str]:
    """Draw the pictures."""
    policies = ("fcfs", "priority", "round_robin")
    groups = [f"{WORDS[policy]}: {name}" for policy in policies for name in SETS]
    short = [group.replace("first come, first served", "fcfs") for group in groups]

    def seconds(engine: str) -> list[float]:
        return [each for policy in policies for each in results.of(policy, engine).seconds]

    paper = [each for policy in policies for each in results.of(policy, "fluid").paper or ()]
    drawn = {
        "liu-table-2.svg": plot.bars(
            plot.Frame("Table 2", "", "seconds"),
            [group.replace("round robin", "rr").replace("priority", "prio") for group in short],
            [
                plot.Bars("paper", paper),
                plot.Bars("theirs", seconds("theirs")),
                plot.Bars("ours", seconds("ours")),
            ],
        )
    }
    for policy in ("priority", "round_robin"):
        curves = results.of(policy, "ours").curves
        drawn[f"liu-{policy.replace('_', '-')}.svg"] = plot.lines(
            plot.Frame(WORDS[policy], "seconds", "GB moved"),
            [plot.Line(name, curve) for name, curve in zip(SETS, curves, strict=False)],
        )
    ways = ("pairs", "fcfs")
    drawn["liu-figure-13.svg"] = plot.bars(
        plot.Frame("Figure 13", "", "seconds"),
        ["side by side", "one after the other"],
        [
            plot.Bars(name, [one(results.figure_13, way, "ours").seconds[at] for way in ways])
            for at, name in enumerate(("jason_sam02", "tomo_2048", "both"))
        ],
    )
    return drawn


def files(text: str) -> dict[str, str]:
    """Give all files of the experiment, by name."""
    results = read(text)
    return {"liu.json": text, "liu.md": page(results), **pictures(results)}


def main(folder: Path = simulator.PAGES) -> None:
    """Run the experiment and write its files."""
    simulator.write(folder, files(simulator.run("liu")))


if __name__ == "__main__":
    main()
