"""Run :mod:`integration.managers.story` in the test bed in containers, and print its report.

The service ``story`` of docker/testbed.yaml runs this module. A container cannot kill a process of
another container, so tools/testbed.sh kills the endpoint ``south`` when a line of progress asks for
it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from dray.client import Client
from integration.harness import tree
from integration.harness.airflow import Airflow
from integration.harness.program import ROOT
from integration.managers.report import Report
from integration.managers.story import Steps, Story, StoryError
from integration.managers.testbed_init import FACTS, PORT, PROXY_COUNT_PORT, PROXY_HOST
from integration.rucio import calls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

READY_SECONDS = 240.0
#: Begin of the line that tools/testbed.sh waits for.
KILL = "testbed: kill"


def say(text: str) -> None:
    """Print a line of progress."""
    print(text, file=sys.stderr, flush=True)


class Testbed:
    """The managers in containers."""

    def __init__(self, folder: Path, rucio: subprocess.Popen[str]) -> None:
        """Read the addresses and credentials.

        :param rucio: process that runs :mod:`integration.rucio.inside`.
        """
        self.folder, self._rucio = folder, rucio
        facts = json.loads((FACTS / "story/story.json").read_text(encoding="utf-8"))
        self._south: dict[str, str] = facts["south"]
        self._servers: tuple[str, str] = tuple(facts["servers"])
        self.storage: dict[str, str] = facts["storage"]
        self._data = Path(facts["data"])
        self.airflow = Airflow(Path("/srv/airflow"), [])
        self.airflow.url = "http://airflow-api:8080"
        self.airflow.password = facts["password"]

    @property
    def servers(self) -> tuple[str, str]:
        """URLs of the XRootD servers of the sites ``north`` and ``south``."""
        return self._servers

    def ask_rucio(self, name: str, /, **words: Any) -> Any:  # noqa: ANN401 - JSON
        """Call a function of :mod:`integration.rucio.inside`."""
        return calls.call(self._rucio, name, words, lambda: "its log is above")

    def make_file(self, path: str, size: int, seed: int) -> None:
        """Write a file of the XRootD server of ``north``."""
        tree.make_file(self._data / path, size, seed)

    def checksum(self, server: str, path: str) -> str:
        """Ask an XRootD server for the adler32 of a file."""
        words = ["xrdfs", server, "query", "checksum", f"/{path.lstrip('/')}?cks.type=adler32"]
        done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise RuntimeError(f"no checksum of {path} at {server}: {done.stderr.strip()}")
        return done.stdout.split()[1]

    def carried(self) -> int:
        """Ask the proxy how many bytes ``north`` has sent on data connections."""
        answer = httpx.get(f"http://{PROXY_HOST}:{PROXY_COUNT_PORT}/", timeout=30)
        return int(answer.raise_for_status().text)

    def client(self) -> Client:
        """Return a client of the endpoint ``south``."""
        south = self._south
        return Client(south["url"], token=south["token"], pin=south["key"])

    def kill_south(self) -> str:
        """Let tools/testbed.sh kill the endpoint ``south``, and wait until it is dead."""
        say(f"{KILL} endpoint-south")
        self._await_south(lambda is_listening: not is_listening, "was not killed")
        return "container endpoint-south"

    def revive_south(self) -> None:
        """Wait until the container has started ``south`` again."""
        self._await_south(lambda is_listening: is_listening, "does not listen again")

    def _await_south(self, condition: Callable[[bool], bool], problem: str) -> None:
        until = time.monotonic() + READY_SECONDS
        while not condition(_listens("endpoint-south", PORT)):
            if time.monotonic() > until:
                raise TimeoutError(f"the endpoint south {problem} in {READY_SECONDS:.0f} s")
            time.sleep(0.05)

    def check(self) -> None:
        """Do nothing: the container engine restarts or reports containers."""


def _listens(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=5).close()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def rucio_process() -> Iterator[subprocess.Popen[str]]:
    """Start a process with Rucio's environment."""
    python = ROOT / ".tools/rucio/bin/python"
    paths = (ROOT / "engine/python", ROOT / "plugins/rucio", ROOT)
    env = {
        **os.environ,
        "PYTHONPATH": ":".join(str(path) for path in paths),
        "RUCIO_CONFIG": str(FACTS / "rucio-client/rucio.cfg"),
    }
    process = subprocess.Popen(
        [python, "-m", "integration.rucio.inside"],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def main() -> int:
    """Run the story. Return the exit code."""
    steps = Steps(Report(), say)
    folder = Path(tempfile.mkdtemp(prefix="dray-story-"))
    try:
        with rucio_process() as rucio:
            bed = Testbed(folder, rucio)
            story = Story(bed, steps)
            steps.report.storage = bed.storage
            with steps.step("wait until Airflow is ready"):
                bed.airflow.await_ready(READY_SECONDS)
                bed.airflow.await_dags("replicate")
            with steps.step("write the data to the site north"):
                story.make_data()
            with steps.step("run the DAG"):
                run = story.run()
            with steps.step("compare the checksums of all copies"):
                story.verify(run)
    except StoryError as error:
        say(f"testbed: {error}")
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report = steps.report
    print(report.to_json() if "--json" in sys.argv[1:] else report.to_text(), flush=True)
    return 1 if report.problems() else 0


if __name__ == "__main__":
    sys.exit(main())
