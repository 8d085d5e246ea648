"""Experiment ``loads``: promises of the broker under a thousand random loads.

``python -m integration.simulation.loads`` takes some minutes. It runs the experiment in the
simulator, and writes ``loads.json``, ``loads.md`` and the picture into
docs/explanation/experiments.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from integration.simulation import plot, simulator

if TYPE_CHECKING:
    from pathlib import Path


def line(row: dict[str, Any], name: str) -> list[str]:
    """Return a row of the table. ``row`` summarises the loads with similar demand."""
    late = row["late_noisy"]
    return [
        name,
        str(row["loads"]),
        f"{row['taken'] / row['wished']:.1%}",
        f"{row['of_best']:.1%}",
        f"{row['of_best_ahead']:.1%}",
        str(row["late_steady"]),
        str(late["broker"]),
        str(late["edf"]),
        str(late["fair"]),
    ]


def page(results: dict[str, Any]) -> str:
    """Return the text of the page."""
    head = ["demand", "loads", "admitted", "bytes of best", "bytes of best, ahead"]
    head += ["late, steady", "late, noisy: broker", "late, noisy: EDF", "late, noisy: equal share"]
    rows = [line(row, f"{row['from']:.1f}-{row['to']:.1f}") for row in results["rows"]]
    everything, few = results["all"], results["few"]
    rows.append(line(everything, "all"))
    late = everything["late_noisy"]
    of_few = few["late_noisy"]
    return f"""\
# Promises: random loads

This experiment asks how many deadlines the [broker](../../design/scheduling.md#rates-the-broker)
promises, and how many of its promises it keeps. It uses {results["loads"]} random loads in the
[fluid model](../../design/scheduling.md#the-fluid-model). A load is a list of transfers:

- The transfers use two to four network cards and a link that the sites share.
- 40 to 80 transfers with deadlines arrive in three quarters of an hour. The sizes in one load
  differ by a factor of up to 100. The time until a deadline is 1.5 to 6 times the time that the
  transfer would need alone.
- A quarter of these transfers are submitted before they may begin, and a quarter have a maximum
  rate.
- Four background transfers use the same resources.

`python -m integration.simulation.loads` writes this page.

- The column *demand* shows the demand of the transfers with deadlines for the resource that they
  use most, as a fraction of its capacity in one hour. The column *loads* shows the number of loads
  with this demand.
- The column *admitted* shows the part of the transfers with deadlines that the broker admitted.
- The column *bytes of best* shows the admitted bytes divided by the largest possible number of
  bytes that could be moved in time, as the mean over all loads. The largest possible number is the
  result of a linear program that knows all transfers from the start and may admit parts of
  transfers. So no real admission can reach this number. In the column *bytes of best, ahead*, the
  broker learns of all transfers at the start, in the order of the list.
- The column *late, steady* shows the number of admitted transfers that missed their deadline with
  constant capacities.
- The columns *late, noisy* show the number of admitted transfers that missed their deadline with
  varying capacities, under the broker, under earliest deadline first (EDF), and with equal shares.
  A capacity changes every 20 to 120 s, by up to {results["noise"]:.0%} of its normal value in both
  directions. The transfers and the changes are the same under all three rules. The broker reported
  {everything["foretold"]} of its {late["broker"]} misses before the deadline.

{simulator.table(head, rows)}

![Late transfers by load](loads.svg)

With varying capacities, the broker has {late["broker"] / late["edf"]:.2f} times as many late
transfers as earliest deadline first. Where the capacity is too small, the broker gives up one large
transfer, and earliest deadline first makes many transfers late one after the other. So the
advantage of the broker is larger if there are more transfers. In {few["loads"]} further loads with
half as many transfers, each twice as large, {of_few["broker"]} transfers are late under the broker,
{of_few["edf"]} under earliest deadline first, and {of_few["fair"]} with equal shares. Here the
broker has {of_few["broker"] / of_few["edf"]:.2f} times as many late transfers as earliest deadline
first.
"""


def files(text: str) -> dict[str, str]:
    """Return the contents of all files of the experiment by file name."""
    results = json.loads(text)
    groups = [f"{row['from']:.1f}-{row['to']:.1f}" for row in results["rows"]]
    names = {"broker": "broker", "edf": "EDF"}
    series = [
        plot.Bars(name, [row["late_noisy"][rule] for row in results["rows"]])
        for rule, name in names.items()
    ]
    picture = plot.bars(plot.Frame("Late, of all promised", "load", "late"), groups, series)
    return {"loads.json": text, "loads.md": page(results), "loads.svg": picture}


def main(folder: Path = simulator.PAGES) -> None:
    """Run the experiment and write its files."""
    simulator.write(folder, files(simulator.run("loads")))


if __name__ == "__main__":
    main()
