"""Table 2 of Liu et al. (2010) on two real endpoints, scaled in time and bytes.

``python -m integration.simulation.liu_scaled`` takes two minutes. It moves the two data sets under
three policies, and writes the results (liu-scaled.json), a page and pictures into
docs/explanation/experiments. ``DRAY_PROGRAM`` names the program dray, by default the release build.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dray.testing.endpoints import Endpoint
from integration.harness.program import find_program
from integration.simulation import liu, plot, simulator
from integration.simulation.scaled import MIB, OBJECT_BYTES, STREAMS, stage

if TYPE_CHECKING:
    from integration.simulation.scaled import Stage

#: Number of seconds of the paper in one second of the run.
SCALE = 30
#: Rate of the link in bytes per second.
RATE = 6 * MIB
HEAD_START = 60 / SCALE
#: Seconds that the first and the second data set need alone on the link, in the fluid model.
ALONE = (655.5 / SCALE, 366.2 / SCALE)
QUOTA = int(400e6 / (415e6 / 8) / SCALE * RATE)
FILES = 32
POLICIES = ("fcfs", "priority", "round_robin")
LOOK_SECONDS = 0.05
#: Approximate number of points of a curve that are stored.
POINTS = 60


@dataclass
class Run:
    """The results of the run under one policy, which moves both data sets."""

    policy: str
    #: Seconds of the first transfer, of the second transfer, and of both together.
    seconds: tuple[float, float, float]
    #: For each transfer: seconds, and the MiB sent until then.
    curves: list[list[tuple[float, float]]]
    #: Largest lead of one transfer over the other in bytes, counted from when both sent data.
    apart: int
    #: Number of times that the endpoint held either transfer.
    holds: int
    #: Bytes that the first transfer sent while it was held under ``priority``. Otherwise 0.
    moved_held: int
    #: Seconds from the submission of the second transfer until the first was held. None: never.
    held_after: float | None


def measure(on: Stage, policy: str) -> Run:
    """Move both data sets under a policy, and observe the transfers until both have ended."""
    on.client("root").change_scheduling(
        policy=policy, max_running=1 if policy == "fcfs" else None, quota=QUOTA
    )
    ids = [f"{name}-{policy}" for name in ("A", "B")]
    begin = time.monotonic()
    on.submit(ids[0], "A", "alice")
    time.sleep(max(0.0, begin + HEAD_START - time.monotonic()))
    on.submit(ids[1], "B", "bob", priority=9)
    asked = time.monotonic() - begin
    curves: list[list[tuple[float, float]]] = [[], []]
    apart, holds, first_held, moved_held = 0, 0, None, 0
    held_after = None
    was_held = [False, False]
    gone = [0, 0]
    while True:
        now = [on.show(id) for id in ids]
        at = time.monotonic() - begin
        for each in (0, 1):
            curves[each].append((at, now[each].bytes.sent / MIB))
            holds += now[each].held and not was_held[each]
            was_held[each] = now[each].held
        if all(each.state == "active" for each in now) and all(each.bytes.sent for each in now):
            # Count the lead from the first moment at which both transfers have sent data.
            gone = gone if any(gone) else [each.bytes.sent for each in now]
            moved = [each.bytes.sent - before for each, before in zip(now, gone, strict=True)]
            apart = max(apart, abs(moved[0] - moved[1]))
        if now[0].held and held_after is None:
            first_held, held_after = now[0].bytes.sent, at - asked
        if first_held is not None and policy == "priority" and not now[1].is_terminal:
            moved_held = now[0].bytes.sent - first_held
        if all(each.is_terminal for each in now):
            break
        time.sleep(LOOK_SECONDS)
    done = [on.done(id, name) for id, name in zip(ids, ("A", "B"), strict=True)]
    took = [
        (each.ended_at - each.submitted_at).total_seconds()
        for each in done
        if each.ended_at and each.submitted_at
    ]
    return Run(
        policy=policy,
        seconds=(took[0], took[1], max(took[0], took[1] + asked)),
        curves=[thin(curve) for curve in curves],
        apart=apart,
        holds=holds,
        moved_held=moved_held,
        held_after=held_after,
    )


def thin(curve: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return about ``POINTS`` points of a curve, including the last one."""
    every = max(1, len(curve) // POINTS)
    kept = curve[::every]
    if kept[-1] != curve[-1]:
        kept.append(curve[-1])
    return [(round(x, 2), round(y, 3)) for x, y in kept]


def experiment() -> str:
    """Run the experiment, and return the results as JSON."""
    program = Path(os.environ["DRAY_PROGRAM"]) if "DRAY_PROGRAM" in os.environ else find_program()
    with tempfile.TemporaryDirectory(prefix="dray-liu-") as name:
        folder = Path(name)
        sink = Endpoint(folder / "a", "a", config={"rate": RATE}, program=program)
        source = Endpoint(folder / "b", "b", program=program)
        try:
            with stage(sink.start(), source.start()) as on:
                for tree, seconds in zip(("A", "B"), ALONE, strict=True):
                    size = int(seconds * RATE)
                    on.make(tree, size - size % FILES, files=FILES)
                runs = [measure(on, policy) for policy in POLICIES]
        finally:
            sink.close()
            source.close()
    value = {"scale": SCALE, "rate": RATE, "quota": QUOTA, "runs": [vars(run) for run in runs]}
    return json.dumps(value, indent=1) + "\n"


def read(text: str) -> tuple[dict[str, Any], dict[str, Run]]:
    """Parse the stored results. Return all values, and the runs by policy."""
    value = json.loads(text)
    runs = {}
    for each in value["runs"]:
        curves = [[(x, y) for x, y in curve] for curve in each["curves"]]
        runs[each["policy"]] = Run(
            **{**each, "seconds": tuple(each["seconds"]), "curves": curves},
        )
    return value, runs


def page(text: str, simulated: liu.Results) -> str:
    """Return the text of the page. ``simulated`` are the results of the model."""
    value, runs = read(text)
    head = ["policy, data set", "paper, s", "fluid, scaled, s", "measured, s", "off"]
    rows = []
    for policy in POLICIES:
        fluid = simulated.of(policy, "fluid")
        for at, name in enumerate(liu.SETS):
            paper = fluid.paper[at] if fluid.paper else 0.0
            wanted = fluid.seconds[at] / value["scale"]
            found = runs[policy].seconds[at]
            cells = [f"{paper:.0f}", f"{wanted:.2f}", f"{found:.2f}", liu.part(found / wanted - 1)]
            rows.append([f"{liu.WORDS[policy]}, {name}", *cells])
    fcfs, priority, turns = (runs[policy] for policy in POLICIES)
    cost = turns.seconds[2] / fcfs.seconds[2] - 1
    held_after = priority.held_after or 0.0
    return f"""\
# Policies: the two data sets on two real endpoints

Two real endpoints on one host run the two transfers of [Liu et al.](liu.md). One second of this
experiment stands for {value["scale"]} seconds of the paper. The configuration of the driving
endpoint limits the rate to {value["rate"] / MIB:g} MiB/s. The second data set (tray05) belongs to
another owner than the first data set (tray03). It is urgent: it has a higher priority. The
endpoints run all the time, and only the policy changes from run to run. After each run, the copied
files are compared with the source.

`python -m integration.simulation.liu_scaled` repeats the experiment and writes this page. The
numbers were measured on a host with other work, and they differ from run to run.

## Times of completion

The column *paper* shows the times of the paper. The column *fluid, scaled* shows the times of the
engine *fluid* of [the model](liu.md), divided by {value["scale"]}. The column *off* shows by how
much the measured time differs from this time.

{simulator.table(head, rows)}

In the fluid model, connections, checks, syncs and changes between the data sets take no time. In a
real session, the rate limit permits a burst at the start: the session may immediately send the
bytes of a tenth of a second. So a run may be slightly faster than the model. An object has
{OBJECT_BYTES // 1024} KiB. In proportion to the scaled data sets, this is larger than an object of
a usual transfer: a turn of the policy *round robin* has {value["quota"] / OBJECT_BYTES:.1f}
objects here, and 381 objects at the sizes of the paper.

## Start of the urgent data set

![MiB over seconds under priority](liu-scaled-priority.svg)

Under the policy *priority*, the endpoint began to hold the transfer of the first data set
{held_after:.2f} s after the second data set was submitted. From then until the second data set was
done, the first transfer moved {priority.moved_held / 1024:.0f} KiB. A held transfer may complete
the objects that are already on its {STREAMS} streams, which are at most
{2 * STREAMS * OBJECT_BYTES // 1024} KiB.

## Turns

![MiB over seconds under round robin](liu-scaled-round-robin.svg)

Under the policy *round robin*, the endpoint held one of the two transfers {turns.holds} times.
While both data sets were present, neither was ever more than {turns.apart / value["quota"]:.2f}
quotas ahead of the other. (A *quota* is the number of bytes that a data set moves in one turn.) The
time for both data sets differed by {cost:+.1%} from the time under first come, first served.
"""


def files(text: str) -> dict[str, str]:
    """Return the contents of all files of the experiment by file name."""
    simulated = liu.read((simulator.PAGES / "liu.json").read_text(encoding="utf-8"))
    _, runs = read(text)
    drawn = {}
    for policy in ("priority", "round_robin"):
        curves = runs[policy].curves
        drawn[f"liu-scaled-{policy.replace('_', '-')}.svg"] = plot.lines(
            plot.Frame(liu.WORDS[policy], "seconds", "MiB moved"),
            [plot.Line(name, curve) for name, curve in zip(liu.SETS, curves, strict=False)],
        )
    return {"liu-scaled.json": text, "liu-scaled.md": page(text, simulated), **drawn}


def main(folder: Path = simulator.PAGES) -> None:
    """Run the experiment and write its files."""
    text = experiment()
    written = files(text)
    simulator.write(folder, written)
    print(written["liu-scaled.md"])


if __name__ == "__main__":
    main()
