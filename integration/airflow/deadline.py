"""Runs a DAG beside background load on real endpoints, once with a deadline and once without.

``make e2e-deadline`` (``python -m integration.airflow.deadline``) starts two endpoints and an
Airflow, and fills one endpoint's link with four other transfers. It runs the same DAG twice, and
prints when each run was done. It fails unless the run with a deadline meets the deadline, and the
other run ends after the same time limit. ``integration/simulation/test_dag.py`` tests the same in
the simulator.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dray.client import Place, Request, Retry
from dray.testing.endpoints import Endpoint, find_program
from integration.harness import tree
from integration.harness.airflow import Airflow, connection

if TYPE_CHECKING:
    from collections.abc import Iterator

    from integration.harness.airflow import Run

MEGA = 1_000_000
LINK = 4 * MEGA
"""Rate in bytes per second of the endpoint that limits the transfers."""
SIZES = {"raw": 60 * MEGA, "calibration": 15 * MEGA, "results": 30 * MEGA}
COMPUTE_SECONDS = 6
DEADLINE_SECONDS = 120
"""Deadline of the run in seconds.

Without other transfers, the DAG takes 35 s for transfers and computation. With a fifth of the link,
it takes 140 s. Airflow's own time is added in both cases.
"""
OTHERS = 4
OTHERS_BYTES = 400 * MEGA
RUN_SECONDS = 420.0


class Outcome(NamedTuple):
    """The result of a run. All times count from ``run_after`` of the run.

    :param seconds: seconds until the run was done.
    :param ends: seconds until each task was done.
    """

    seconds: float
    ends: dict[str, float]


def say(text: str) -> None:
    """Print the current step."""
    print(text, flush=True)


@contextlib.contextmanager
def places() -> Iterator[tuple[Airflow, Endpoint, Endpoint]]:
    """Start an Airflow, the source endpoint, and the endpoint with the slow link."""
    program = find_program()
    folder = Path(tempfile.mkdtemp(prefix="dray-deadline-"))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        a = Endpoint(folder / "a", "a", program=program)
        c = Endpoint(folder / "c", "c", program=program, config={"rate": LINK})
        for endpoint in (a, c):
            stack.callback(endpoint.kill)
            endpoint.start()
        options = {
            "AIRFLOW_CONN_DRAY_A": connection(a),
            "AIRFLOW_CONN_DRAY_C": connection(c),
        }
        airflow = Airflow(folder / "airflow", [Path(__file__).parent / "dags"], options=options)
        stack.callback(airflow.close)
        airflow.prepare().start().await_ready()
        airflow.await_dags("shift")
        yield airflow, a, c


def fill(a: Endpoint, c: Endpoint) -> None:
    """Keep the link busy with other transfers in the background."""
    for number in range(OTHERS):
        name = f"other{number}"
        with a.client(subject=name) as there, c.client(subject=name) as here:
            ticket = there.mint_ticket(name, "read", ["/data/others"], c.key)
            far = Place(a.place("others"), ticket.ticket, ticket.key, ticket.address)
            here.submit(Request(far, f"/data/{name}", id=name, retry=Retry(tries=50)))
    with c.client(subject="other0") as here:
        until = time.monotonic() + 60
        while here.transfer("other0").bytes.sent == 0:
            if time.monotonic() > until:
                raise TimeoutError("the others do not begin")
            time.sleep(0.2)


def are_busy(c: Endpoint) -> bool:
    """Return whether all other transfers still run."""
    states = []
    for number in range(OTHERS):
        with c.client(subject=f"other{number}") as here:
            states.append(here.transfer(f"other{number}").state)
    return set(states) == {"active"}


def go(airflow: Airflow, c: Endpoint, place: str, *, has_deadline: bool) -> tuple[Run, Outcome]:
    """Run the DAG to its end. Return the run and its result."""
    conf: dict[str, Any] = {
        **SIZES,
        "place": place,
        "root": str(c.root()),
        "compute_seconds": COMPUTE_SECONDS,
    }
    if has_deadline:
        conf["deadline"] = f"{DEADLINE_SECONDS}s"
    run = airflow.trigger("shift", place, conf).await_end(seconds=RUN_SECONDS)
    found = airflow.ask("GET", f"dags/shift/dagRuns/{place}")
    begin = datetime.fromisoformat(found["run_after"].replace("Z", "+00:00"))

    def since(time: str) -> float:
        return (datetime.fromisoformat(time.replace("Z", "+00:00")) - begin).total_seconds()

    tasks = airflow.ask("GET", f"dags/shift/dagRuns/{place}/taskInstances")["task_instances"]
    ends = {each["task_id"]: since(each["end_date"]) for each in tasks if each["end_date"]}
    return run, Outcome(since(found["end_date"]), ends)


def check(a: Endpoint, c: Endpoint, run: Run, place: str) -> None:
    """Fail unless the copies in the run's folder equal their sources."""
    digest = hashlib.sha256()
    for name in ("raw", "calibration"):
        if tree.hash_file(c.root(f"{place}/{name}")) != tree.hash_file(a.root(f"shift/{name}")):
            raise AssertionError(f"{name} is another")
        digest.update(a.root(f"shift/{name}").read_bytes())
    if run.result("reconstruct") != digest.hexdigest():
        raise AssertionError("the reconstruction has read something else")
    if tree.hash_file(a.root(f"{place}/results")) != tree.hash_file(c.root(f"{place}/results")):
        raise AssertionError("the results are others")


def main() -> int:
    """Run the DAG with and without a deadline, and compare the results."""
    say("starting two endpoints and an Airflow of four processes: about a minute")
    with places() as (airflow, a, c):
        a.root("shift").mkdir()
        for number, name in enumerate(("raw", "calibration")):
            tree.make_file(a.root(f"shift/{name}"), SIZES[name], seed=number + 1)
        tree.make_file(a.root("others"), OTHERS_BYTES, seed=9)
        say(f"{OTHERS} others fill a link of {LINK / MEGA:.0f} MB/s in the background")
        fill(a, c)
        outcomes = {}
        for has_deadline in (True, False):
            words = f"a deadline of {DEADLINE_SECONDS} s" if has_deadline else "no deadline"
            say(f"the DAG runs with {words}")
            place = "with" if has_deadline else "without"
            run, outcomes[has_deadline] = go(airflow, c, place, has_deadline=has_deadline)
            if not are_busy(c):
                raise AssertionError("the others were done before the DAG was: nothing is shown")
            check(a, c, run, place)
            for task_id in ("raw", "calibration", "results"):
                for line in run.log(task_id).splitlines():
                    if "deadline of the run" in line:
                        said = line.partition("deadline of the run")[2].split('"')[0]
                        say(f"  {task_id}{said}")
            ends = ", ".join(
                f"{name} {at:.0f} s" for name, at in outcomes[has_deadline].ends.items()
            )
            say(f"  done after {outcomes[has_deadline].seconds:.0f} s ({ends})")
    kept, missed = outcomes[True].seconds, outcomes[False].seconds
    say(f"deadline {DEADLINE_SECONDS} s: with deadlines {kept:.0f} s, without {missed:.0f} s")
    is_shown = kept <= DEADLINE_SECONDS < missed
    say("met with deadlines, missed without" if is_shown else "NOT as it should be")
    return 0 if is_shown else 1


if __name__ == "__main__":
    sys.exit(main())
