"""Experiment ``liu``: Table 2 and Figures 13 and 14 of Liu et al. (2010).

``python -m integration.simulation.liu`` runs the experiment in the simulator, and writes
``liu.json`` (results), ``liu.md`` (tables) and the pictures into docs/explanation/experiments.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from integration.simulation import plot, simulator

if TYPE_CHECKING:
    from pathlib import Path

#: Names of the policies on the page.
WORDS = {
    "fcfs": "first come, first served",
    "priority": "priority",
    "round_robin": "round robin",
    "pairs": "pairs",
}
SETS = ("tray03", "tray05", "both")


@dataclass(frozen=True)
class Row:
    """The results of one run, which moves two data sets."""

    policy: str
    engine: str
    #: Seconds until the end of the first transfer, of the second transfer, and of both.
    seconds: tuple[float, float, float]
    #: The same seconds in the paper. None if the paper does not state them.
    paper: tuple[float, float, float] | None
    #: For each transfer: seconds, and the gigabytes moved until then. Empty if not stored.
    curves: list[list[tuple[float, float]]]

    def off(self) -> list[float]:
        """Return the relative deviations of ``seconds`` from the paper. Empty without ``paper``."""
        if self.paper is None:
            return []
        return [ours / paper - 1 for ours, paper in zip(self.seconds, self.paper, strict=True)]


@dataclass(frozen=True)
class Results:
    """The results of the whole experiment."""

    table_2: list[Row]
    figure_13: list[Row]
    #: Megabytes that were moved in each turn.
    figure_14: list[float]
    their_pause: float
    line: float
    preempted_after: float
    object_seconds: float

    def of(self, policy: str, engine: str) -> Row:
        """Return the run of Table 2 with this policy and engine."""
        return one(self.table_2, policy, engine)


def one(rows: list[Row], policy: str, engine: str) -> Row:
    """Return the run with this policy and engine."""
    return next(row for row in rows if (row.policy, row.engine) == (policy, engine))


def row(value: dict[str, Any]) -> Row:
    """Convert the JSON object of one run to a row."""
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
    """Parse the JSON text that the simulator printed."""
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
    """Return Table 2: the times of the paper, and those of the three engines."""
    head = ["policy, data set", "paper, s", "fluid, s", "off", "theirs, s", "off", "ours, s"]
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
    """Return the table of Figure 13."""
    head = ["way, engine", "jason_sam02, s", "tomo_2048, s", "both, s"]
    rows = []
    for policy, way in (("pairs", "side by side"), ("fcfs", "one after the other")):
        for engine in ("theirs", "ours"):
            run = one(results.figure_13, policy, engine)
            rows.append([f"{way}, {engine}", *(f"{seconds:.0f}" for seconds in run.seconds)])
    return simulator.table(head, rows)


def part(off: float) -> str:
    """Return a relative deviation as a percentage. A deviation that rounds to zero has no sign."""
    words = f"{off:+.1%}"
    return "0.0%" if words[1:] == "0.0%" else words


def page(results: Results) -> str:
    """Return the text of the page."""
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

Liu, Tieman, Kettimuthu and Foster (*A data transfer framework for large-scale science experiments*,
2010) moved two data sets between two sites: tray03 (34 GB in 4,335 files), and a minute later
tray05 (19 GB in 2,432 files). They did this under three policies. Table 2 of their paper shows
the time of each transfer. On this page, dray's policies schedule the same two transfers in the
[fluid model](../../design/scheduling.md#the-fluid-model).

`python -m integration.simulation.liu` writes this page.

## Times of completion

![Seconds until each data set is done, in the paper and here](liu-table-2.svg)

Each row shows the time from the submission of a data set to its end. The rows *both* show the time
from the first submission to the end of both data sets. The column *paper* shows the times of the
paper. The columns *fluid*, *theirs* and *ours* show the times with three models of the engine that
runs the transfers. The column *off* after *fluid* or *theirs* shows by how much the time differs
from the paper's.

{table_2(results)}

**The engine *fluid*** is a line of {line:.0f} Mbit/s. Nothing except the bytes takes time. One
number is fitted: the rate of the line is chosen so that first come, first served takes 1022 s for
53 GB, as in the paper. The largest of the nine differences is {worst["fluid"]:.1%}.

**The engine *theirs*** models the engine of the paper. Each change from one data set to the other
costs a pause of {results.their_pause * 1e3:.0f} ms. This number is fitted so that round robin takes
1043 s, as in the paper. A data set that arrives a minute later also gets, after its arrival, the
turns that it missed in that minute. This rule is our guess, because the paper does not describe how
its engine takes turns. With this rule, the time of tray05 under round robin differs by
{abs(results.of("round_robin", "theirs").off()[1]):.1%} from the paper's. If both data sets had
equal turns from the arrival of tray05 on, the pauses would make tray05 even later than with
*fluid*.

The largest difference between *theirs* and the paper is {worst["theirs"]:.1%}, for tray05 under
priority. In the paper, tray05 had the line for itself for 392 s under priority, and for 339 s under
first come, first served. So the paper's line did not have the same rate in both runs, and no
constant rate matches both.

**The engine *ours*** models dray. An object of 1 MiB whose transfer has begun is always completed.
Each change from one data set to the other costs one round trip of 33 ms, and a new session costs
three round trips. A data set gets turns only from its arrival on. Compare the times of *ours* with
those of *fluid*, which are the best possible times, and not with those of the paper.

The next two sections also use the engine *ours*.

## Start of the urgent data set

![Gigabytes over time under priority](liu-priority.svg)

Under the policy *priority*, the data set tray05 is urgent. It is submitted at 60 s. The objects of
tray03 that were on the way at this time had arrived {results.preempted_after * 1e3:.1f} ms later.
For comparison, the transfer of one object takes {results.object_seconds * 1e3:.1f} ms.

## Turns

![Gigabytes over time under round robin](liu-round-robin.svg)

In Figure 14 of Liu et al., a data set moves about 400 MB in each turn. In the model, there were
{len(turns)} full turns while both data sets were present. A data set moved {min(turns):.1f} to
{max(turns):.1f} MB in a turn, and {mean:.2f} MB on average. The numbers differ from 400 MB because
an object is always completed; its bytes beyond the 400 MB are subtracted from the next turn of the
data set. In total, round robin took {longer:.2%} longer than first come, first served.

## Two pairs of endpoints

Figure 13 of Liu et al. shows two transfers between different pairs of endpoints. A client that
serves both pairs concurrently needs as much time as the longer transfer alone. A client that serves
one pair at a time needs the sum of both times. The figure does not name its two data sets. The
model uses two data sets of the paper, with 35 GB and 58 GB. Each has a separate path of {line:.0f}
Mbit/s, and both have the same source, whose network card has 1 Gbit/s.

![Seconds until both are done](liu-figure-13.svg)

The columns show the seconds until the end of the first transfer, of the second transfer and of
both.

{figure_13(results)}

Side by side, both transfers together take {both / max(each):.2f} times as long as the longer
transfer alone.
"""


def pictures(results: Results) -> dict[str, str]:
    """Return the pictures by file name."""
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
    """Return the contents of all files of the experiment by file name."""
    results = read(text)
    return {"liu.json": text, "liu.md": page(results), **pictures(results)}


def main(folder: Path = simulator.PAGES) -> None:
    """Run the experiment and write its files."""
    simulator.write(folder, files(simulator.run("liu")))


if __name__ == "__main__":
    main()
