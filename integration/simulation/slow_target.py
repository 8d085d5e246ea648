"""One of eight storage targets at a tenth of its speed: ``dray-sim experiment slow-target``.

``python -m integration.simulation.slow_target`` runs it and writes ``slow-target.json`` (results)
and ``slow-target.md`` (tables) into docs/explanation/experiments.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from integration.simulation import simulator


@dataclass(frozen=True)
class Run:
    """One end and one bottleneck: without congestion, with a fixed one, with a moving one."""

    end: str
    bound: str
    free_seconds: float
    fixed: dict[str, float]
    moving: dict[str, float]

    @property
    def name(self) -> str:
        """Give the row's name."""
        return f"{self.end}, {self.bound} limit"


def read(text: str) -> list[Run]:
    """Read what the simulator printed."""
    return [
        Run(each["end"], each["bound"], each["free_seconds"], each["fixed"], each["moving"])
        for each in json.loads(text)["runs"]
    ]


def fixed(runs: list[Run]) -> str:
    """Lay out the runs with one slow target."""
    head = ["slow target at the", "objects a second until the tail", "file order", "times"]
    head += ["the others done, s", "without congestion, s"]
    rows = []
    for run in runs:
        row = run.fixed
        rates = [row["rate_until_tail"], row["rate_until_tail_by_file"]]
        seconds = [row["others_seconds"], row["others_seconds_free"]]
        cells = [*(f"{rate:.0f}" for rate in rates), f"{row['times_file_order']:.1f}"]
        rows.append([run.name, *cells, *(f"{each:.2f}" for each in seconds)])
    return simulator.table(head, rows)


def moving(runs: list[Run]) -> str:
    """Lay out the runs in which the congestion moves."""
    head = ["congestion at the", "all done, s", "times without", "at least", "file order, s"]
    rows = []
    for run in runs:
        row = run.moving
        cells = [f"{row['seconds']:.2f}", f"{row['times_free']:.2f}"]
        cells += [f"{row['least_times_free']:.2f}", f"{row['seconds_by_file']:.1f}"]
        rows.append([run.name, *cells])
    return simulator.table(head, rows)


def page(text: str) -> str:
    """Write the page."""
    runs, value = read(text), json.loads(text)
    millis = f"{value['object_seconds'] * 1000:.0f} ms"
    period = f"{value['period_seconds'] * 1000:.0f} ms"
    return f"""<!-- Written by `python -m integration.simulation.slow_target`; edit that. -->

# A slow storage target

One of {value["targets"]} storage targets gives a tenth of what the others give (LADS, section 4:
an OST that other programs use too). {value["files"]} files are on the targets in turn, in all
{value["objects"]} objects; a target takes {millis} for one, the slow target {value["slow_times"]}
times as long. Each end has {value["buffers"]} buffers, half as many as the readers of all targets
could use. Both machines, the wire and the log are the shipped code, on a virtual clock; targets and
link are modelled as lines with a rate.

*Targets limit*: the link takes more than all targets give together. *Link limit*: it takes three
quarters of that, so other targets can replace the rate of a slow one.

## One target slow all the time

{fixed(runs)}

*Until the tail*: until all data but the slow target's is written. In file order the
whole copy waits for the slow target at each of its files. By layout no other target waits: the
others are done at the same time as without the slow target, or sooner, because the link has more
capacity left for them. Only the slow target's own data remains, which moves at that target's speed
from the first second to the last.

## Congestion that moves

Each target in turn is slow for {period}.

{moving(runs)}

*At least*: with targets as the limit each loses nine tenths of its speed for an eighth of the
time, and no other target can replace that; with the link as the limit the others can.

The same with real programs and throttled targets: `integration/e2e/test_targets.py`.
"""


def files(text: str) -> dict[str, str]:
    """Give all files of the experiment, by name."""
    return {"slow-target.json": text, "slow-target.md": page(text)}


if __name__ == "__main__":
    simulator.write(simulator.PAGES, files(simulator.run("slow-target")))
