"""A DAG of transfers and computations, on a link that other transfers use too.

``python -m integration.simulation.dag`` runs the DAG in the simulator, and writes ``dag.json`` and
``dag.md`` into docs/explanation/experiments. The Airflow provider's ``plan_deadlines`` computes the
deadlines. The endpoint's broker computes the rates.
"""

from __future__ import annotations

import dataclasses
import json
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from dray_airflow.deadlines.graph import Task, plan_deadlines
from integration.simulation import simulator

if TYPE_CHECKING:
    from pathlib import Path

GB = 10**9
START = datetime(2026, 1, 1, tzinfo=timezone.utc)
LINK = 1.25e9
"""Rate of the link in bytes per second (10 Gbit/s)."""
OVERHEAD = 5.0
DEADLINE = 3600.0

TASKS = (
    Task("raw", is_transfer=True, bytes=450 * GB),
    Task("calibration", is_transfer=True, bytes=50 * GB),
    Task("reconstruct", ("raw", "calibration"), expected_seconds=1200),
    Task("results", ("reconstruct",), is_transfer=True, bytes=150 * GB),
    Task("report", ("results",), expected_seconds=180),
)
"""A shift's data comes in, is reconstructed, and goes out."""
TOOK = {"reconstruct": 1100.0, "report": 180.0}
"""Real durations of compute: one task is done earlier than declared."""
BACKGROUND = tuple((f"other{number}", 60.0 * number, 2000 * GB) for number in range(4))
"""Four other transfers in the background, one started each minute. None ends within the hour."""


def run(*, has_deadlines: bool, rule: str = "broker", took: dict[str, float]) -> dict[str, Any]:
    """Run the DAG in the simulator. Each transfer begins when its upstream tasks have ended.

    Each step adds the transfers that begin next, and simulates everything again from the start.

    :param took: duration of each computation in seconds.
    """
    ended: dict[str, float] = {}
    begun: dict[str, float] = {}
    asked: dict[str, float] = {}
    table: dict[str, Any] = {
        "rule": rule,
        "resources": {"link": LINK},
        "transfers": [
            {"name": name, "arrives": at, "bytes": size, "resources": ["link"], "owner": name}
            for name, at, size in BACKGROUND
        ],
    }
    while len(ended) < len(TASKS):
        ready = [
            (max([ended[each] for each in task.upstream], default=0.0) + OVERHEAD, task)
            for task in TASKS
            if task.id not in ended and all(each in ended for each in task.upstream)
        ]
        # Transfers that start at the same time affect each other, so add them in one step.
        first = min(at for at, _ in ready)
        for at, task in ready:
            if at > first:
                continue
            begun[task.id] = at
            if not task.is_transfer:
                ended[task.id] = at + took[task.id]
                continue
            words = {
                "name": task.id,
                "arrives": at,
                "bytes": task.bytes,
                "resources": ["link"],
                "owner": "dag",
            }
            if has_deadlines:
                asked[task.id] = latest_finish(task.id, at, ended, begun)
                words["deadline"] = asked[task.id]
            table["transfers"].append(words)
        found = simulator.run_table(table)["transfers"]
        for name in begun:
            if name in found:
                if found[name]["is_refused"]:
                    raise ValueError(f"{name} is refused: the example is too tight")
                ended[name] = found[name]["finished"]
    return {
        "has_deadlines": has_deadlines,
        "rule": rule,
        "begun": begun,
        "ended": ended,
        "latest_finish": asked,
        "finish": max(ended.values()),
    }


def latest_finish(name: str, at: float, ended: dict[str, float], begun: dict[str, float]) -> float:
    """Return the deadline of the transfer ``name``, as its task computes it at the time ``at``."""
    now = START + timedelta(seconds=at)
    tasks = []
    for task in TASKS:
        state: Any = "waiting"
        if task.id in ended and ended[task.id] <= at:
            state = "done"
        elif task.id == name or begun.get(task.id, at + 1) <= at:
            state = "running"
        started = START + timedelta(seconds=begun[task.id]) if state == "running" else None
        tasks.append(dataclasses.replace(task, state=state, started_at=started))
    due = START + timedelta(seconds=DEADLINE)
    plan = plan_deadlines(tasks, deadline=due, now=now, overhead_seconds=OVERHEAD)
    return (plan.transfers[name].latest_finish - START).total_seconds()


def results() -> dict[str, Any]:
    """Simulate the DAG with and without deadlines."""
    return {
        "deadline": DEADLINE,
        "alone": sum(
            (
                5 * OVERHEAD - OVERHEAD,
                500 * GB / LINK,
                TOOK["reconstruct"],
                150 * GB / LINK,
                TOOK["report"],
            )
        ),
        "runs": [
            run(has_deadlines=has_deadlines, rule=rule, took=TOOK)
            for has_deadlines, rule in ((True, "broker"), (False, "broker"), (False, "fair"))
        ],
    }


def page(found: dict[str, Any]) -> str:
    """Return the text of the page."""
    head = ["", *(task.id for task in TASKS), "whole run", "by 3600 s"]
    rows = []
    for one in found["runs"]:
        name = "with deadlines" if one["has_deadlines"] else "without"
        name += {"broker": ", the endpoint's own shares", "fair": ", equal shares"}[one["rule"]]
        times = [f"{one['ended'][task.id]:.0f}" for task in TASKS]
        is_met = one["finish"] <= found["deadline"]
        rows.append([name, *times, f"{one['finish']:.0f}", "yes" if is_met else "**no**"])
    asked = found["runs"][0]["latest_finish"]
    planned = ", ".join(f"{name} by {time:.0f} s" for name, time in asked.items())
    return f"""\
# A DAG with a deadline, and other transfers

A DAG has five tasks:

- *raw* and *calibration* are transfers of 450 GB and 50 GB. They run concurrently.
- *reconstruct* is a computation that uses the data of both. Its declared duration is 20 minutes,
  and its actual duration is 18 minutes.
- *results* is a transfer of 150 GB.
- *report* is a computation of 3 minutes.

The whole run must be done within an hour. The endpoint has 10 Gbit/s. Four other transfers of 2 TB
each, of the class background, use the same endpoint; one starts each minute. Without them, the DAG
would take {found["alone"]:.0f} s.

The DAG runs in three ways, one in each row of the table. In the first two rows, the endpoint
divides its rate by its own rules. In the first row, each transfer of the DAG has a deadline that
follows from the deadline of the run ([how](../airflow-deadlines.md)). In the second row, no
transfer has a deadline. In the third row, all transfers have equal shares of the rate, and no
deadlines. When a transfer begins, its task computes its deadline again, and considers which tasks
have ended by then. In the first row, the computed deadlines are:
{planned}.

The code that computes the deadlines and the broker that sets the rates are the shipped code. The
[fluid model](../../design/scheduling.md#the-fluid-model) simulates the transfers.

`python -m integration.simulation.dag` writes this page. The columns show the seconds from the start
of the run to the end of each task and to the end of the whole run. The last column shows whether
the run met its deadline:

{simulator.table(head, rows)}

Between two tasks {OVERHEAD:.0f} s pass, for Airflow's scheduler and for the start of a process. A
transfer with a promised deadline gets more than the lowest rate that it needs: of the spare rate,
its class gets eight parts and the background gets one part. So the raw data arrives long before its
deadline.
"""


def files(text: str) -> dict[str, str]:
    """Return the text of the page by file name."""
    return {"dag.md": page(json.loads(text))}


def main() -> None:
    """Run the experiment, and write the results and the page."""
    text = json.dumps(results(), indent=2) + "\n"
    write: dict[str, str] = {"dag.json": text, **files(text)}
    folder: Path = simulator.PAGES
    simulator.write(folder, write)


if __name__ == "__main__":
    main()
