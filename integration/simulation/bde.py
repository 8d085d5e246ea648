"""BigData Express's three tasks, as ``dray-sim experiment bde`` repeats them.

``python -m integration.simulation.bde`` runs it and writes ``bde.json``, ``bde.md`` and the
pictures into docs/explanation/experiments.
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
    """Return a table of when each task was done, and whether that was in time."""
    head = ["resources, rule", "T1, s", "in 1800 s", "T2, s", "in 300 s", "T3, s"]
    rows = []
    for run in runs:
        words = ["yes" if met else "**no**" for met in run["are_met"]]
        first, second, third = (f"{seconds:.0f}" for seconds in run["seconds"])
        name = f"{PLACES[run['place']]}, {RULES[run['rule']]}"
        rows.append([name, first, words[0], second, words[1], third])
    return simulator.table(head, rows)


def fourth(value: dict[str, Any]) -> str:
    """Describe the result of the fourth task."""
    return (
        f"- {PLACES[value['place']]}: refused within {value['asked_seconds']} s, offered"
        f" {value['offered_seconds']} s; with that it is admitted, takes"
        f" {value['took_seconds']:.0f} s, and all three deadlines are met."
    )


def page(results: dict[str, Any]) -> str:
    """Write the page."""
    fourths = "\n".join(fourth(each) for each in results["fourth"])
    return f"""\
# Rates: three tasks and two deadlines

Lu et al. (*BigData Express*) show three tasks: T3, 800 GB without a deadline, has the line alone;
T1, 300 GB, comes at 60 s and must be done within 1800 s; T2, 200 GB, comes at 200 s and must be
done within 300 s. The rates in their figure are those of one resource of some 10.5 Gbit/s. Their
text names two cards: T1 and T3 leave from one card of 10 Gbit/s and T2 from another. Both cases are
repeated here, in the [fluid model](../../design/scheduling.md#the-fluid-model).

`python -m integration.simulation.bde` writes this page.

{table(results["runs"])}

The seconds of each task count from its submission. On the cards no other task uses T2's card, so
every rule is in time: only the shared resource separates the rules. The earliest deadline first
meets both deadlines too, but it stops T3 meanwhile, and promises nothing.

![Gbit/s over time on one resource](bde-shared.svg)

The paper has T1 at 6 and T3 at 2 Gbit/s at 95 s, and T2 at 8, T1 at 2 and T3 at 0.5 Gbit/s after
200 s. Here each task with a deadline gets the least rate it needs, and background gets a
ninth of the spare rate.

![Gbit/s over time on the cards](bde-cards.svg)

## A fourth task that cannot be in time

T4, 200 GB within 200 s, comes at 210 s. Alone it would fit; beside T2 it does not.

{fourths}
"""


def files(text: str) -> dict[str, str]:
    """Give all files of the experiment, by name."""
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
