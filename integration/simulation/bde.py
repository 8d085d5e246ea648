"""Experiment ``bde``: the three tasks of the paper on BigData Express.

``python -m integration.simulation.bde`` runs the experiment in the simulator, and writes
``bde.json``, ``bde.md`` and the pictures into docs/explanation/experiments.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from integration.simulation import plot, simulator

if TYPE_CHECKING:
    from pathlib import Path

PLACES = {"shared": "one resource of 10.5 Gbit/s", "cards": "the cards of the text"}
RULES = {
    "broker": "broker",
    "fair": "equal share",
    "edf": "earliest deadline first",
    "fcfs": "first come, first served",
}
TASKS = ("T1", "T2", "T3")


def table(runs: list[dict[str, Any]]) -> str:
    """Return the table of the tasks' durations, and whether each deadline was met."""
    head = ["resources, rule", "T1, s", "in 1800 s", "T2, s", "in 300 s", "T3, s"]
    rows = []
    for run in runs:
        words = ["yes" if met else "**no**" for met in run["are_met"]]
        first, second, third = (f"{seconds:.0f}" for seconds in run["seconds"])
        name = f"{PLACES[run['place']]}, {RULES[run['rule']]}"
        rows.append([name, first, words[0], second, words[1], third])
    return simulator.table(head, rows)


def fourth(value: dict[str, Any]) -> str:
    """Return the list item about the fourth task T4."""
    return (
        f"- {PLACES[value['place']]}: The broker refuses the deadline of {value['asked_seconds']}"
        f" s and offers\n  {value['offered_seconds']} s. It admits T4 with the offered deadline. T4"
        f" takes {value['took_seconds']:.0f} s, and all\n  three deadlines are met."
    )


def page(results: dict[str, Any]) -> str:
    """Return the text of the page."""
    fourths = "\n".join(fourth(each) for each in results["fourth"])
    return f"""\
# Rates: three tasks and two deadlines

The paper by Lu et al. (*BigData Express*) describes an experiment with three tasks, each of which
moves data:

- T3 moves 800 GB. It has no deadline, and starts first.
- T1 moves 300 GB. It is submitted at 60 s, and must be done within 1800 s of its submission.
- T2 moves 200 GB. It is submitted at 200 s, and must be done within 300 s of its submission.

The rates in the paper's figure are possible only if all tasks share one resource of about 10.5
Gbit/s. But the text of the paper names two network cards: T1 and T3 use one card of 10 Gbit/s, and
T2 uses the other card. This page repeats both cases in the
[fluid model](../../design/scheduling.md#the-fluid-model).

`python -m integration.simulation.bde` writes this page.

The first column shows the case and the rule that divides the rate. The rule *broker* is dray's
[broker](../../design/scheduling.md#rates-the-broker). The columns *T1, s*, *T2, s* and *T3, s* show
the time from the submission of a task to its end. The columns *in 1800 s* and *in 300 s* show
whether T1 and T2 met their deadlines.

{table(results["runs"])}

With the two cards, T2 has a card for itself, so T2 meets its deadline under every rule. With the
shared resource, T2 misses its deadline under two of the four rules. The rule *earliest deadline
first* meets both deadlines too. But until T1 and T2 are done, it gives T3 no rate, and it cannot
promise that a deadline will be met.

This picture shows the rates under the broker on the shared resource:

![Gbit/s over time on one resource](bde-shared.svg)

In the figure of the paper, the rates at 95 s are 6 Gbit/s for T1 and 2 Gbit/s for T3. After 200 s,
they are 8 Gbit/s for T2, 2 Gbit/s for T1 and 0.5 Gbit/s for T3. Under dray's broker, each task with
a deadline gets at least the lowest rate with which it meets the deadline. T3 is a background
transfer, and gets a ninth of the spare rate.

This picture shows the rates under the broker with the two cards:

![Gbit/s over time on the cards](bde-cards.svg)

## A fourth task whose deadline is impossible

A fourth task T4 is submitted at 210 s. It must move 200 GB within 200 s. Without T2 this would be
possible; with T2 it is not. The broker refuses T4 and offers a later deadline:

{fourths}
"""


def files(text: str) -> dict[str, str]:
    """Return the contents of all files of the experiment by file name."""
    results = json.loads(text)
    made = {"bde.json": text, "bde.md": page(results)}
    for run in results["runs"]:
        if run["rule"] == "broker":
            series = [
                plot.Line(name, [(x, y) for x, y in curve])
                for name, curve in zip(TASKS, run["gbit_per_second"], strict=True)
            ]
            frame = plot.Frame(PLACES[run["place"]], "seconds", "Gbit/s")
            made[f"bde-{run['place']}.svg"] = plot.lines(frame, series)
    return made


def main(folder: Path = simulator.PAGES) -> None:
    """Run the experiment and write its files."""
    simulator.write(folder, files(simulator.run("bde")))


if __name__ == "__main__":
    main()
