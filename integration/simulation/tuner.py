"""Experiment ``tuner``: tuners of streams and threads on four simulated paths.

``python -m integration.simulation.tuner`` runs the experiment in the simulator, and writes
``tuner.json``, ``tuner.md`` and the pictures into docs/explanation/experiments.
"""

from __future__ import annotations

import json
import textwrap
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


DRAWN = {"network": "network limits", "storage": "storage limits"}


def percent(part: float) -> str:
    """Return a fraction as a percentage."""
    return f"{100 * part:.0f} %"


def seconds(value: float | None) -> str:
    """Return a time in seconds. None means that the number was never reached."""
    return "never" if value is None else f"{value:.1f}"


def reached(paths: list[dict[str, Any]], names: dict[str, str]) -> str:
    """Return the table of the throughput of each tuner on each path."""
    head = ["path, tuner", "runs with 90 % or more", "median", "lowest twentieth", "lowest"]
    head += ["good number after, s", "slowest twentieth, s"]
    rows = []
    for path in paths:
        for run in path["runs"]:
            cells = [f"{run['good']} of {run['runs']}"]
            cells += [percent(run[part]) for part in ("median", "twentieth", "worst")]
            cells += [seconds(run["seconds_median"]), seconds(run["seconds_slow"])]
            rows.append([f"{names[path['name']]}, {NAMES[run['who']]}", *cells])
    return simulator.table(head, rows)


def failing(results: dict[str, Any]) -> str:
    """Return the table of the time for which each tuner made the far side fail."""
    head = ["path, tuner", "fails above", "times exceeded", "longest, s", "total, s"]
    rows = []
    for path in results["paths"]:
        for run in path["runs"]:
            cells = [str(path["fails_above"]), f"{run['entries']:.2f}"]
            cells += [f"{run['failing_longest']:.2f}", f"{run['failing_seconds']:.2f}"]
            rows.append([f"{PATHS[path['name']]}, {NAMES[run['who']]}", *cells])
    return simulator.table(head, rows)


def picture(path: dict[str, Any], end: float) -> str:
    """Draw the number of streams or threads over time, of each tuner and the best fixed number."""
    series = [
        plot.Line(NAMES[curve["who"]], [(x, y) for x, y in curve["points"]])
        for curve in path["curves"]
    ]
    best = float(path["best_fixed_shown"])
    series.append(plot.Line("best fixed", [(0.0, best), (end, best)]))
    frame = plot.Frame(PATHS[path["name"]], "seconds", path["knob"])
    return plot.lines(frame, series)


def described(path: dict[str, Any]) -> str:
    """Return the Markdown text about one path, with a link to the picture of the path."""
    words = (
        f"**{PATHS[path['name']].capitalize()}**: {path['about']}."
        f" The far side fails above {path['fails_above']} {path['knob']}. In the median of the"
        f" runs, {path['best_fixed']:.0f} is the best fixed number."
    )
    return (
        f"{textwrap.fill(words, 100)}\n\n"
        f"![{path['knob']} over time, {PATHS[path['name']]}](tuner-{path['name']}.svg)"
    )


def page(results: dict[str, Any]) -> str:
    """Return the text of the page."""
    paths = "\n\n".join(described(path) for path in results["paths"])
    return f"""<!-- Written by `python -m integration.simulation.tuner`; edit that. -->

# How many streams and threads

A *tuner* changes the number of streams or threads during a transfer, to find the number with the
highest throughput. This page compares tuners on simulated network paths. The paths are described by
formulas, with random disturbances. There are four paths, and {results["seeds"]} runs of
{results["seconds"]} s on each path. Each run has other disturbances:

- The throughput varies by 15 % (standard deviation), and consecutive samples are correlated.
- About every 25 s, other traffic uses a fifth to three fifths of the bottleneck for 2 to 8 s.
- Streams break at random times.
- A part of the received bytes is counted only in a later sample.

Each path has a maximum number of streams or writers. If a tuner uses more, the far end *fails*:
errors occur, and during an error the throughput is only three tenths of the normal throughput. A
tuner gets four samples per second
([design](../../design/throughput.md#streams-threads-and-the-size-of-objects)).

The tables compare these tuners:

- *No tuner*: the transfer has {results["start"]} streams, and as many readers and writers,
  all the time.
- *DTL's rule* (Liu and others): the rule begins with {results["dtl_start"]} threads. Each thread
  has one stream, one reader and one writer. The rule gets the same samples as the other tuners.
- *Ours*: the tuner of dray. It begins with {results["start"]} streams, readers and writers, as a
  real transfer does.
- *Ours, without the stage*: the tuner of dray, which is not told whether the network or the storage
  is the bottleneck.
- *Ours, pair known*: the tuner of dray, which begins with the result of another run on the same
  path, with other disturbances.

## Throughput

The throughput of a run is measured from second {results["from_seconds"]} to the end, and includes
the cost of trying other numbers. The table shows this throughput as a percentage of the throughput
of the *best fixed* number: the constant number that has the highest throughput under the same
disturbances, which is known only afterwards.

- The column *runs with 90 % or more* shows the number of runs that reached at least 90 %.
- The column *median* shows the median of all runs. The column *lowest twentieth* shows the
  percentage that 95 % of the runs exceeded. The column *lowest* shows the
  percentage of the worst run.
- The column *good number after* shows the median time until the tuner first chose a number that
  would reach 90 % of the highest throughput if there were no disturbances. The column *slowest
  twentieth* shows the time after which 95 % of the runs had chosen such a number.

{reached(results["paths"], PATHS)}

DTL's rule adds four threads in each step, and continues only if the throughput grows by a factor of
1.3. With 16 threads or more, four more threads can increase the throughput by at most a factor of
1.25. So the rule stops there, although more threads would increase the throughput. A burst of noise
makes the rule add or remove threads. The rule tries fewer threads only if the throughput falls by
three tenths after a step that added threads.

## Numbers at which the far side fails

- The column *fails above* shows the largest number of streams or threads at which the far side does
  not fail.
- The column *times exceeded* shows how often a tuner went above this number in a run, as the mean
  over all runs.
- The column *longest* shows the longest time in any run for which the tuner stayed above this
  number without interruption. The column *total* shows the time in a run above this number, as the
  mean over all runs.

{failing(results)}

A tuner can find the largest number at which the far side does not fail only by exceeding it. dray's
tuner adds a few streams or threads at a time, and removes them at the first error. If the number is
only a little too high, the first error may occur only after some seconds. After that, the tuner
rarely exceeds the number again in the same transfer, and it does not exceed the number in the next
transfer of the same pair of endpoints. DTL's rule does not use errors.

## Random paths

dray's tuner has three constants: the assumed noise of a measurement, the age at which a measurement
loses half of its weight, and the bonus for trying another number. They were chosen with the four
paths above. So the tuner also runs on 400 random paths, once on each. The best number of streams or
writers of a random path is between 1 and 48, and its logarithm is distributed uniformly. Above the
best number, the throughput of a path falls, at a rate that differs from path to path. The end at
the far side of a path fails above a number that is 1.15 to 2.65 times the best number.

The constants were changed twice after random paths of this kind had shown a fault of the tuner
([0021](../../decisions/0021-a-tuner-that-weighs-hypotheses.md)). So the random paths are not a
completely independent test. In the table, the columns have the same meaning as in the first table
of this page, and the first column shows whether the network or the storage limits the throughput of
the path:

{reached(results["drawn"], DRAWN)}

## The number over time

Each picture shows the number of streams or threads on one path, in one run of *ours* and in one run
of *DTL's rule* with the same disturbances. It also shows the best fixed number for these
disturbances.

{paths}
"""


def files(text: str) -> dict[str, str]:
    """Return the contents of all files of the experiment by file name."""
    results = json.loads(text)
    made = {"tuner.json": text, "tuner.md": page(results)}
    for path in results["paths"]:
        made[f"tuner-{path['name']}.svg"] = picture(path, float(results["seconds"]))
    return made


if __name__ == "__main__":
    simulator.write(simulator.PAGES, files(simulator.run("tuner")))
