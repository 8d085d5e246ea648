"""The three tasks of the paper on BigData Express, on two real endpoints.

``python -m integration.simulation.bde_real`` takes four minutes. It runs the tasks in a tenth of
the time and with a 2 000th of the bytes. It writes ``bde-real.json`` and ``bde-real.md`` into
docs/explanation/experiments. ``DRAY_PROGRAM`` names the program dray, by default the release build.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dray.client import Place, Request, Retry
from dray.errors import DrayNotAdmittedError
from dray.testing.endpoints import Endpoint
from integration.harness.program import find_program
from integration.simulation import bde, simulator

if TYPE_CHECKING:
    from dray.client import Client

#: Number of seconds of the paper in one second of the run.
TIME_PART = 10
#: Number of bytes of the paper for one byte of the run.
BYTES_PART = 2_000
#: Rate of the link in bytes per second. The link of the paper has 10.5 Gbit/s.
LINK = 10_500_000_000 // 8 * TIME_PART // BYTES_PART
GB = 1_000_000_000


@dataclass(frozen=True)
class Task:
    """One task, with the sizes and times of the paper."""

    id: str
    gigabytes: int
    begin_seconds: int
    within_seconds: int | None


TASKS = (Task("T3", 800, 0, None), Task("T1", 300, 60, 1_800), Task("T2", 200, 200, 300))
FOURTH = Task("T4", 200, 210, 200)


@dataclass
class Run:
    """Two endpoints, a client of each, and the start of the run in monotonic seconds."""

    a: Endpoint
    b: Endpoint
    here: Client
    there: Client
    began: float = 0.0

    def request(self, task: Task, *, is_promised: bool) -> Request:
        """Create the file of a task at endpoint b. Return the request to copy the file to a."""
        size = task.gigabytes * GB // BYTES_PART
        with self.b.root(task.id).open("wb") as file:
            block = os.urandom(1 << 20)
            for offset in range(0, size, len(block)):
                file.seek(offset)
                file.write(block[: size - offset])
        ticket = self.there.mint_ticket(task.id, "read", [f"/data/{task.id}"], self.a.key)
        far = Place(self.b.place(task.id), ticket.ticket, ticket.key, ticket.address)
        wanted = Request(
            far,
            f"/data/{task.id}",
            id=task.id,
            bytes_expected=size,
            object_size=256 << 10,
            durability="object",
            retry=Retry(tries=60, interval_seconds=1),
        )
        if not is_promised or task.within_seconds is None:
            return wanted
        within = timedelta(seconds=task.within_seconds / TIME_PART)
        return replace(wanted, deadline=datetime.now(timezone.utc) + within)

    def wait_for(self, seconds: int) -> None:
        """Wait until ``seconds`` of the paper's time have passed since the start."""
        time.sleep(max(0.0, self.began + seconds / TIME_PART - time.monotonic()))

    def took(self, id: str) -> float:
        """Wait until a task is done. Return the paper's seconds since its submission."""
        ended = self.here.wait(id, timeout_seconds=600)
        assert ended.state == "done", (id, ended.error)
        assert ended.ended_at is not None
        assert ended.submitted_at is not None
        return (ended.ended_at - ended.submitted_at).total_seconds() * TIME_PART


def offered(run: Run) -> dict[str, Any]:
    """Submit the fourth task, which is refused. Submit it again with the offered deadline."""
    wanted = run.request(FOURTH, is_promised=True)
    submitted = datetime.now(timezone.utc)
    try:
        run.here.submit(wanted)
    except DrayNotAdmittedError as refused:
        earliest = refused.admission.earliest_finish
    else:
        raise AssertionError("the fourth was not refused")
    assert earliest is not None
    assert run.here.submit(replace(wanted, deadline=earliest)).promised
    within = (earliest - submitted).total_seconds() * TIME_PART
    return {"asked_seconds": FOURTH.within_seconds, "offered_seconds": round(within)}


def run(folder: Path, rule: str) -> dict[str, Any]:
    """Run the three tasks. Only with the rule ``broker`` do they have deadlines."""
    is_promised = rule == "broker"
    made: dict[str, Any] = {"rule": rule}
    ends = [
        Endpoint(folder / name, name, config={"rate": LINK} if name == "a" else None).start()
        for name in ("a", "b")
    ]
    try:
        with ends[0].client() as here, ends[1].client() as there:
            run = Run(ends[0], ends[1], here, there)
            run.began = time.monotonic()
            for task in TASKS:
                run.wait_for(task.begin_seconds)
                here.submit(run.request(task, is_promised=is_promised))
            if is_promised:
                run.wait_for(FOURTH.begin_seconds)
                made["fourth"] = offered(run)
            took = {task.id: run.took(task.id) for task in TASKS}
            if is_promised:
                made["fourth"]["took_seconds"] = round(run.took(FOURTH.id))
            made["seconds"] = {id: round(seconds) for id, seconds in sorted(took.items())}
    finally:
        for end in ends:
            end.close()
    return made


def page(runs: list[dict[str, Any]]) -> str:
    """Return the text of the page."""
    model = json.loads((simulator.PAGES / "bde.json").read_text(encoding="utf-8"))["runs"]
    head = ["rule", *(f"{task}, {where}" for task in bde.TASKS for where in ("model", "real"))]
    head.insert(5, "T2 in 300 s, real")
    rows = []
    for each in runs:
        there = next(
            one for one in model if (one["place"], one["rule"]) == ("shared", each["rule"])
        )
        real = each["seconds"]
        cells = [bde.RULES[each["rule"]]]
        for task, seconds in zip(bde.TASKS, there["seconds"], strict=True):
            cells += [f"{seconds:.0f}", f"{real[task]:.0f}"]
        cells.insert(5, "yes" if real["T2"] <= 300 else "**no**")
        rows.append(cells)
    fourth = next(each["fourth"] for each in runs if "fourth" in each)
    return f"""\
# Rates: the three tasks, measured

This experiment runs the three tasks of [the model](bde.md) on two real endpoints on one host, in a
tenth of the time and with a 2 000th of the bytes. The endpoint's rate limit (`rate`) is
{LINK / 1e6:.2f} MB/s for all tasks together. The measured times on this page are multiplied by ten,
so that they can be compared with the times of the model.

`python -m integration.simulation.bde_real` runs the experiment and writes this page.

For each task, the column *model* shows the seconds from the submission to the end in the model (one
shared resource), and the column *real* shows the measured seconds. The column *T2 in 300 s, real*
shows whether T2 met its deadline in the measured run.

{simulator.table(head, rows)}

Under the broker, T1 and T3 end later than in the model. The reason is that the measured run
includes the fourth task, which the model runs separately. The request for this task had a deadline
of {fourth["asked_seconds"]} s. The endpoint refused it and offered {fourth["offered_seconds"]} s.
The task was submitted again with the offered deadline, and took {fourth["took_seconds"]} s.
"""


def main(folder: Path = simulator.PAGES) -> None:
    """Run the tasks under both rules, and write the files."""
    if "DRAY_PROGRAM" not in os.environ:
        os.environ["DRAY_PROGRAM"] = str(find_program())
    runs = []
    for rule in ("broker", "fair"):
        with tempfile.TemporaryDirectory(prefix="dray-bde-") as name:
            runs.append(run(Path(name), rule))
        print(json.dumps(runs[-1]), flush=True)
    text = json.dumps(runs, indent=1) + "\n"
    simulator.write(folder, {"bde-real.json": text, "bde-real.md": page(runs)})


if __name__ == "__main__":
    main()
