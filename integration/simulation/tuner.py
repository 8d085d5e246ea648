"""Tuners of streams and threads on four paths: ``dray-sim experiment tuner``.

``python -m integration.simulation.tuner`` runs it and writes ``tuner.json``, ``tuner.md`` and the
pictures into docs/explanation/experiments.
"""

from __future__ import annotations

import json
from typing import Any

from integration.simulation import plot, simulator

NAMES = {
    "nobody": "no tuner",
    "dtl": "DTL's rule",
    "ours": "ours",
    "blind": "ours, without the stage",
    "recalled": "ours, pair known",
}
PATHS = {
    "clean": "clean and fast",
    "far": "far and slow",
    "lossy": "lossy",
    "storage": "storage that congests",
}


DRAWN = {"network": "network bounds", "storage": "storage bounds"}


def percent(part: float) -> str:
    """Write a fraction as a percentage."""
    return f"{100 * part:.0f} %"


def seconds(value: float | None) -> str:
    """Write a time, or that it was never reached."""
    return "never" if value is None else f"{value:.1f}"


def reached(paths: list[dict[str, Any]], names: dict[str, str]) -> str:
    """Return the table of throughput."""
    head = ["path, tuner", "runs at 90 % and more", "half of them above"]
    head += ["all but a twentieth above", "worst", "at 90 % after, s", "a twentieth later than, s"]
    rows = []
    for path in paths:
        for run in path["runs"]:
            cells = [f"{run['good']} of {run['runs']}"]
            cells += [percent(run[part]) for part in ("median", "twentieth", "worst")]
            cells += [seconds(run["seconds_median"]), seconds(run["seconds_slow"])]
            rows.append([f"{names[path['name']]}, {NAMES[run['who']]}", *cells])
    return simulator.table(head, rows)


def failing(results: dict[str, Any]) -> str:
    """Return the table of runs whose far side fails."""
    head = ["path, tuner", "fails above", "times there in a run", "longest, s", "in all, s"]
    rows = []
    for path in results["paths"]:
        for run in path["runs"]:
            cells = [str(path["fails_above"]), f"{run['entries']:.2f}"]
            cells += [f"{run['failing_longest']:.2f}", f"{run['failing_seconds']:.2f}"]
            rows.append([f"{PATHS[path['name']]}, {NAMES[run['who']]}", *cells])
    return simulator.table(head, rows)


def picture(path: dict[str, Any], end: float) -> str:
    """Draw the number over time, of each tuner and of the best fixed number."""
    series = [
        plot.Line(NAMES[curve["who"]], [(x, y) for x, y in curve["points"]])
        for curve in path["curves"]
    ]
    best = float(path["best_fixed_shown"])
    series.append(plot.Line("best fixed", [(0.0, best), (end, best)]))
    frame = plot.Frame(PATHS[path["name"]], "seconds", path["knob"])
    return plot.lines(frame, series)


def described(path: dict[str, Any]) -> str:
    """Describe one path, and show its picture."""
    return (
        f"**{PATHS[path['name']].capitalize()}**: {path['about']}. The far side fails above"
        f" {path['fails_above']} {path['knob']}; the best fixed number is mostly about"
        f" {path['best_fixed']:.0f}.\n\n"
        f"![{path['knob']} over time, {PATHS[path['name']]}](tuner-{path['name']}.svg)"
    )


def page(results: dict[str, Any]) -> str:
    """Write the page."""
    paths = "\n\n".join(described(path) for path in results["paths"])
    return f"""<!-- Written by `python -m integration.simulation.tuner`; edit that. -->

# How many streams and threads

Four paths, {results["seeds"]} runs of {results["seconds"]} s on each, each with its own
random disturbances: noise of 15 % from sample to sample that lasts for a
while, other traffic that takes a fifth to three fifths every half minute for some seconds, streams
that break by chance, and bytes that are counted late. Each path has a number above which the far
side fails: errors, and with each only a third of the throughput. A tuner has four samples a second
([design](../../design/throughput.md#streams-threads-and-the-size-of-objects)).

- *Best fixed*: the fixed number with the most throughput under the same disturbances, known
  afterwards.
- *DTL's rule* (Liu and others) begins with {results["dtl_start"]} threads, each with a stream, a
  reader and a writer, and has the same samples.
- *Ours* begins with {results["start"]} of each, as a transfer does today. *Pair known*: it begins
  with the result of another run, under other disturbances. *Without the stage*: it does not know
  whether network or storage is the bound.
- *No tuner*: {results["start"]} of each, all the time.

## Throughput

The throughput from the {results["from_seconds"]}th second to the end, the cost of exploring
included, divided by that of the best fixed number. The last columns are the times after which the
current number would have carried 90 % of the maximum, without disturbances.

{reached(results["paths"], PATHS)}

DTL's step of four is less than its own factor of 1.3 from 16 threads on, so it stops there
although more would carry more. A burst of noise moves it in either direction. It does not try fewer
threads, unless throughput falls by three tenths in a step that grew.

## Where the far side fails

{failing(results)}

A tuner can find that number only by exceeding it. Ours adds a few at a time and goes back at the
first error, which may take some seconds where the excess is small. It hardly exceeds the number
again, and not at all in the next transfer of the pair. DTL's rule does not use errors.

## Random paths

The tuner's constants (noise of a window, fading of evidence, value of exploring) were
chosen on the four paths, and changed twice after paths like these had shown a fault
([0021](../../decisions/0021-a-tuner-that-believes.md)). So these paths test the kind of path, but
are not independent of the tuner. They are random, and each runs once. The best number is 1 to 48,
uniform in its logarithm; each stream or thread too many costs from nothing to half; and the far
side fails at 1.15 to 2.65 times the best number.

{reached(results["drawn"], DRAWN)}

## The number over time

One run of each.

{paths}
"""


def files(text: str) -> dict[str, str]:
    """Give all files of the experiment, by name."""
    results = json.loads(text)
    made = {"tuner.json": text, "tuner.md": page(results)}
    for path in results["paths"]:
        made[f"tuner-{path['name']}.svg"] = picture(path, float(results["seconds"]))
    return made


if __name__ == "__main__":
    simulator.write(simulator.PAGES, files(simulator.run("tuner")))
