"""A thousand random loads: ``dray-sim experiment loads``.

``python -m integration.simulation.loads`` runs it, for some minutes, and writes ``loads.json``,
``loads.md`` and the picture into docs/explanation/experiments.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from integration.simulation import plot, simulator

if TYPE_CHECKING:
    from pathlib import Path


def line(row: dict[str, Any], name: str) -> list[str]:
    """Return the table row of one size of loads."""
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
    """Write the page."""
    head = ["load", "loads", "taken on", "bytes of best", "the same, ahead", "late, steady"]
    head += ["late, noisy: broker", "EDF", "equal share"]
    rows = [line(row, f"{row['from']:.1f}-{row['to']:.1f}") for row in results["rows"]]
    everything, few = results["all"], results["few"]
    rows.append(line(everything, "all"))
    late = everything["late_noisy"]
    of_few = few["late_noisy"]
    return f"""\
# Promises: random loads

{results["loads"]} random loads: three to five cards and links, 40 to 80 transfers with deadlines
in three quarters of an hour, sizes over two orders of magnitude, each due within 1.5 to 6 times
its time alone; a quarter announced ahead, a quarter with ceilings, and background beside them. The
load is the demand of an hour for the most demanded resource, divided by its capacity. All run in
the [fluid model](../../design/scheduling.md#the-fluid-model).

`python -m integration.simulation.loads` writes this page.

{simulator.table(head, rows)}

- *Bytes of best*: the admitted bytes, in the order of requests, divided by the best possible number
  of bytes in time. That number is the bound of a linear program that knows all transfers from the
  start and may admit parts of them, so it is above the possible. The mean over loads. *Ahead*: all
  are requested at the start, in the order of the list.
- *Late, steady*: promised with exact sizes and steady capacities, and late.
- *Late, noisy*: the admitted transfers, with capacities that change every 20 to 120 s by
  up to {results["noise"]:.0%} either way; the same transfers and the same noise for all rules.
  {everything["foretold"]} of the broker's {late["broker"]} were foretold before their deadline.

![Late transfers by load](loads.svg)

The broker has {late["broker"] / late["edf"]:.2f} times as many late transfers as the earliest
deadline first. It gives up one large transfer where that rule makes many late one after the other,
so the gain grows with their number. With half as many transfers of twice the size
({few["loads"]} loads) {of_few["broker"]} are late under the broker, {of_few["edf"]} under the
earliest deadline first and {of_few["fair"]} under equal shares:
{of_few["broker"] / of_few["edf"]:.2f} times as many.
"""


def files(text: str) -> dict[str, str]:
    """Give all files of the experiment, by name."""
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
