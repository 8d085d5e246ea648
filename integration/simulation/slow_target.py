"""Experiment ``slow-target``: one of eight storage targets has a tenth of its usual speed.

``python -m integration.simulation.slow_target`` runs the experiment in the simulator, and writes
``slow-target.json`` (results) and ``slow-target.md`` (tables) into docs/explanation/experiments.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from integration.simulation import simulator


@dataclass(frozen=True)
class Run:
    """Results if the targets of ``end`` are slow and ``bound`` limits the rate."""

    end: str
    bound: str
    free_seconds: float
    fixed: dict[str, float]
    moving: dict[str, float]

    @property
    def name(self) -> str:
        """Return the first cell of the row."""
        return f"{self.end}, {self.bound} limit"


def read(text: str) -> list[Run]:
    """Parse the JSON text that the simulator printed."""
    return [
        Run(each["end"], each["bound"], each["free_seconds"], each["fixed"], each["moving"])
        for each in json.loads(text)["runs"]
    ]


def fixed(runs: list[Run]) -> str:
    """Return the table of the copies in which the same target is always slow."""
    head = ["slow target, limit", "by layout, objects/s", "file order, objects/s", "quotient"]
    head += ["others done, s", "others done without a slow target, s"]
    rows = []
    for run in runs:
        row = run.fixed
        rates = [row["rate_until_tail"], row["rate_until_tail_by_file"]]
        seconds = [row["others_seconds"], row["others_seconds_free"]]
        cells = [*(f"{rate:.0f}" for rate in rates), f"{row['times_file_order']:.1f}"]
        rows.append([run.name, *cells, *(f"{each:.2f}" for each in seconds)])
    return simulator.table(head, rows)


def moving(runs: list[Run]) -> str:
    """Return the table of the copies in which each target in turn is slow."""
    head = ["slow targets, limit", "by layout, s", "quotient", "least quotient", "file order, s"]
    rows = []
    for run in runs:
        row = run.moving
        cells = [f"{row['seconds']:.2f}", f"{row['times_free']:.2f}"]
        cells += [f"{row['least_times_free']:.2f}", f"{row['seconds_by_file']:.1f}"]
        rows.append([run.name, *cells])
    return simulator.table(head, rows)


def page(text: str) -> str:
    """Return the text of the page."""
    runs, value = read(text), json.loads(text)
    millis = f"{value['object_seconds'] * 1000:.0f} ms"
    period = f"{value['period_seconds'] * 1000:.0f} ms"
    return f"""<!-- Written by `python -m integration.simulation.slow_target`; edit that. -->

# A slow storage target

Each end has {value["targets"]} storage targets. One target, at the source or at the sink, has a
tenth of the speed of the others. In section 4 of the LADS paper, such a target is an OST that other
programs use too. The experiment compares two orders of sending: *by layout*, which is dray's order,
and *file order*, in which the source sends one file after the other.

The transfer has {value["files"]} files, which are distributed evenly over the targets, and
{value["objects"]} objects in all. A target needs {millis} for an object, and the slow target needs
{value["slow_times"]} times as long. Each end has {value["buffers"]} buffers, half as many as the
readers of all targets could use. The state machines of the two ends, the wire protocol and the
object log are the shipped code, on a virtual clock. The targets and the link are simulated as
queues with a rate.

In the rows *targets limit*, the link is faster than all targets together. In the rows *link limit*,
the link has three quarters of the speed of all targets together. So in the rows *link limit*, the
targets that are not slow can fill the link: without one of {value["targets"]} targets, the others
still have more than three quarters of the total speed.

## One target is slow all the time

- The column *by layout, objects/s* shows the mean rate until all data of the other targets is
  written, with the order by layout. The column *file order, objects/s* shows the same rate with
  file order. The column *quotient* shows the first rate divided by the second.
- The column *others done* shows the time until all data of the other targets is written, with the
  order by layout. The last column shows the same time if no target is slow.

{fixed(runs)}

In file order, the whole copy waits for the slow target at each file on this target. By layout, no
other target waits. In the rows *targets limit*, the data of the other targets is written in the
same time as without a slow target. In the rows *link limit* it is written in less time, because the
slow target uses less of the link. Then only data of the slow target remains. This data moves at the
speed of the slow target during the whole copy.

## The slow target changes

Each target in turn is slow for {period}.

- The columns *by layout* and *file order* show the time until all data is written.
- The column *quotient* shows the time by layout, divided by the time by layout without a slow
  target.
- The column *least quotient* shows the lowest possible quotient. If the targets limit the rate,
  each target loses nine tenths of its speed for an eighth of the time, and no other target can make
  up for this loss. If the link limits the rate, the other targets can make up for it, because
  together they can fill the link.

{moving(runs)}

The test `integration/e2e/test_targets.py` runs the real program with one target that is slow all
the time. [A slow target that changes, measured](slow-target-real.md) runs the real program with a
slow target that changes.
"""


def files(text: str) -> dict[str, str]:
    """Return the contents of all files of the experiment by file name."""
    return {"slow-target.json": text, "slow-target.md": page(text)}


if __name__ == "__main__":
    simulator.write(simulator.PAGES, files(simulator.run("slow-target")))
