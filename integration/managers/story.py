"""The story: a DAG replicates a dataset, an endpoint is killed, and every copy is verified."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Protocol

from integration.harness.tree import MIB
from integration.managers.report import Deadline, Fault, Leg, Report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dray.client import Client, Transfer
    from integration.harness.airflow import Airflow, Run

FILES, FILE_BYTES = 4, 32 * MIB + 7
CALIBRATION_PATHS = tuple(f"calibration/c{number}" for number in range(3))
CALIBRATION_BYTES = 16 * MIB + 5
#: Rate of each file of the first rule, in bytes per second. The copies take long enough for a
#: fault.
RATE = 3 * MIB
DEADLINE_SECONDS = 300.0
DATASET = "run42"
RUN_SECONDS = 420.0
POLL_SECONDS = 0.3
DOWN_SECONDS = 3.0
TASKS = {
    "deliver": ("NORTH", "SOUTH", "Rucio rule, conveyor, dray endpoints"),
    "calibrate": ("NORTH", "SOUTH", "xrdcp --tpc, dray's plug-ins of both XRootD servers"),
    "archive": ("NORTH", "ARCHIVE", "Rucio rule, conveyor, FTS service, dray endpoints"),
}


class StoryError(Exception):
    """A step of the story has failed. The message has the cause."""


class Managers(Protocol):
    """The managers on which the story runs."""

    airflow: Airflow
    #: Folder for temporary files.
    folder: Path

    @property
    def servers(self) -> tuple[str, str]:
        """URLs of the XRootD servers of the sites ``north`` and ``south``."""

    def ask_rucio(self, name: str, /, **words: Any) -> Any:  # noqa: ANN401 - JSON
        """Call a function of :mod:`integration.rucio.inside`."""

    def make_file(self, path: str, size: int, seed: int) -> None:
        """Write a file of the XRootD server of ``north``."""

    def checksum(self, server: str, path: str) -> str:
        """Ask an XRootD server for the adler32 of a file."""

    def carried(self) -> int:
        """Return how many bytes the endpoint ``north`` has sent on data connections."""

    def client(self) -> Client:
        """Return a client of the endpoint ``south``."""

    def kill_south(self) -> str:
        """Kill the endpoint ``south`` by SIGKILL. Return its process or container."""

    def revive_south(self) -> None:
        """Start ``south`` again, and wait until it listens."""

    def check(self) -> None:
        """Fail if a process has ended by itself."""


@dataclass
class Steps:
    """Runs steps, prints their progress, and measures their times."""

    report: Report
    say: Callable[[str], None]
    begun: float = field(default_factory=time.monotonic)

    def tell(self, text: str) -> None:
        """Print a line with the time since the start."""
        self.say(f"[{time.monotonic() - self.begun:5.0f} s] {text}")

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Run a step.

        :raises StoryError: if the step fails.
        """
        self.tell(name)
        at = time.monotonic()
        try:
            yield
        except (AssertionError, RuntimeError, TimeoutError, OSError, LookupError) as error:
            raise StoryError(f"the step '{name}' failed: {error}") from error
        self.report.steps[name] = time.monotonic() - at


class Story:
    """One run of the DAG ``replicate``."""

    def __init__(self, managers: Managers, steps: Steps) -> None:
        """Store the managers."""
        self.managers, self.steps, self.report = managers, steps, steps.report
        self.sums: dict[str, str] = {}
        #: Bytes that had left ``north`` when each task ended.
        self._carried: dict[str, int] = {}
        #: Number of transfers of the first rule whose deadline was promised before the fault.
        self._promised = 0

    # --- data -------------------------------------------------------------------------------------

    def make_data(self) -> None:
        """Upload the dataset through the XRootD server, and write the calibration beside it."""
        upload = self.managers.folder / "upload"
        upload.mkdir()
        sizes = {f"events{number}": FILE_BYTES for number in range(FILES)}
        words = {"rse": "NORTH", "dataset": DATASET, "folder": str(upload), "sizes": sizes}
        self.sums = self.managers.ask_rucio("upload", **words)
        for number, path in enumerate(CALIBRATION_PATHS):
            self.managers.make_file(path, CALIBRATION_BYTES, number + 1)

    # --- the run ----------------------------------------------------------------------------------

    def run(self) -> Run:
        """Run the DAG to its end, and kill an endpoint in the middle of the first rule."""
        self.deadline = datetime.now(timezone.utc) + timedelta(seconds=DEADLINE_SECONDS)
        copies = [[f"{url}//{path}" for url in self.managers.servers] for path in CALIBRATION_PATHS]
        conf = {
            "did": f"mock:{DATASET}",
            "deadline": self.deadline.isoformat(),
            "rate_max": RATE,
            "calibration": copies,
        }
        self._begun = self.managers.carried()
        run = self.managers.airflow.trigger("replicate", "story", conf)
        until = time.monotonic() + RUN_SECONDS
        shown: dict[str, str] = {}
        while (state := run.state) not in ("success", "failed"):
            for task in run.tasks():
                if task.state and shown.get(task.task_id) != task.state:
                    shown[task.task_id] = task.state
                    self.steps.tell(f"  {task.task_id}: {task.state}")
                    self._note_end(task.task_id, task.state)
            if self.report.fault is None:
                self._kill_when_ready()
            self.managers.check()
            if time.monotonic() > until:
                raise TimeoutError(f"the run did not end in {RUN_SECONDS:.0f} s\n{run.story()}")
            time.sleep(POLL_SECONDS)
        for task in run.tasks():
            self._note_end(task.task_id, task.state)
        if state != "success":
            raise RuntimeError(f"the run of the DAG is {state}\n{run.story()}")
        if self.report.fault is None:
            raise RuntimeError("the first rule was complete before the endpoint could be killed")
        return run

    def _note_end(self, task_id: str, state: str) -> None:
        if state == "success" and task_id not in self._carried:
            self._carried[task_id] = self.managers.carried()

    def delivery(self) -> list[Transfer]:
        """Return the transfers of the first rule."""
        with self.managers.client() as client:
            return list(client.transfers(labels={"rucio.destination": "SOUTH"}))

    def _kill_when_ready(self) -> None:
        """Kill ``south`` when a third of the first rule is durable, and restart it."""
        found = self.delivery()
        durable = sum(each.bytes.durable for each in found)
        if durable < FILES * FILE_BYTES // 3 or all(each.is_terminal for each in found):
            return
        self._promised = sum(each.promised for each in found)
        at = time.monotonic()
        victim = self.managers.kill_south()
        carried = self.managers.carried() - self._begun
        # While `south` is down, Rucio's poller gets no answer, and must not give up.
        time.sleep(DOWN_SECONDS)
        self.managers.revive_south()
        down = time.monotonic() - at
        self.report.fault = Fault("south", victim, durable, carried, down)
        self.steps.tell(f"  kill -9 of the endpoint south ({victim}), and its restart")

    # --- the result -------------------------------------------------------------------------------

    def verify(self, run: Run) -> None:
        """Compare the checksums of all copies, and fill the report."""
        times = self._times(run)
        before = self._begun
        count = len(CALIBRATION_PATHS)
        sizes = {"calibrate": (count, count * CALIBRATION_BYTES)}
        for task, (source, destination, mover) in TASKS.items():
            files, size = sizes.get(task, (FILES, FILES * FILE_BYTES))
            carried = self._carried[task] - before
            before = self._carried[task]
            begin, end = times[task]
            self.report.legs.append(
                Leg(
                    task,
                    mover,
                    source,
                    destination,
                    files,
                    size,
                    carried,
                    (end - begin).total_seconds(),
                    self._count_verified(task),
                )
            )
            self.report.steps[f"task {task}"] = (end - begin).total_seconds()
        start = self.deadline - timedelta(seconds=DEADLINE_SECONDS)
        self.report.deadline = Deadline(
            DEADLINE_SECONDS,
            (times["archive"][1] - start).total_seconds(),
            self._promised,
            len(self.delivery()),
        )

    def _times(self, run: Run) -> dict[str, tuple[datetime, datetime]]:
        path = f"dags/{run.dag_id}/dagRuns/{run.run_id}/taskInstances"
        found = self.managers.airflow.ask("GET", path)["task_instances"]
        return {
            each["task_id"]: (_time(each["start_date"]), _time(each["end_date"])) for each in found
        }

    def _count_verified(self, task: str) -> int:
        """Count the files with the right checksum. The XRootD servers compute the checksums."""
        managers = self.managers
        if task == "calibrate":
            north, south = managers.servers
            return sum(
                managers.checksum(north, path) == managers.checksum(south, path)
                for path in CALIBRATION_PATHS
            )
        count = 0
        found = managers.ask_rucio("pfns", name=DATASET, rse=TASKS[task][1])
        for name, pfn in found.items():
            host, _, path = pfn.removeprefix("root://").partition("/")
            count += managers.checksum(f"root://{host}", path) == self.sums[name]
        return count


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
