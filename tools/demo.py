"""Demonstrate dray's main job: a DAG moves a real dataset by a deadline, despite faults.

``make demo`` starts two endpoints and an Airflow, runs dags/night_run.py, kills a worker and an
endpoint with ``kill -9`` in the middle of the delivery, and reports. Airflow keeps running for
inspection. ``make demo-down`` (``down``) ends everything. All programs listen on loopback only, and
all files are in one folder.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dray.testing.endpoints import Endpoint, Root, find_program
from dray.testing.proxy import Proxy
from integration.harness import tree
from integration.harness.airflow import MARK, Airflow, Run, connection, end_marked

if TYPE_CHECKING:
    from dray.client import Transfer

ROOT = Path(__file__).resolve().parents[1]
HOME = ROOT / ".tools" / "demo"
STATE = HOME / "state.json"
#: Parts of Debian's linux-source that two cores can read, sum and compare within seconds.
PARTS = ("block", "crypto", "fs", "kernel", "mm")
LINUX = "linux-source-6.1"
#: The deadline of the delivery. It leaves time for a fault in the middle, and for the retry.
DELIVERY_SECONDS = 30.0
DEADLINE_MINUTES = 5
MIB = 1 << 20
#: Largest overhead per file on the wire, including all connections of a delivery.
FILE_BYTES = 1024
SLACK_BYTES = MIB
BEGAN = time.monotonic()


def say(text: str) -> None:
    """Print a step of the demo, with the time since the start."""
    print(f"[{time.monotonic() - BEGAN:5.0f} s] {text}", flush=True)


class Data(NamedTuple):
    """The dataset.

    :param top: top folder of the dataset.
    :param what: description of the dataset.
    """

    top: Path
    what: str


# --- data -----------------------------------------------------------------------------------------


def find_data(named: str | None) -> Data:
    """Return the dataset: the named folder, Linux's sources, or a generated tree."""
    if named:
        top = Path(named).resolve()
        if not top.is_dir():
            raise SystemExit(f"demo: DATA={named} is not a folder")
        return Data(top, str(top))
    top = HOME / "data" / "linux"
    if not top.is_dir():
        packed = find_linux()
        if packed is None:
            made = HOME / "data" / "made"
            if not made.is_dir():
                tree.make_tree(made, 4000, seed=1)
            return Data(made, "a tree made to look like sources (Linux's are not to be had here)")
        say(f"unpacking {', '.join(PARTS)} of {packed.name}")
        unpack(packed, top)
    return Data(top, f"Linux 6.1: {', '.join(PARTS)}")


def find_linux() -> Path | None:
    """Find Debian's package of sources, or download it. Nothing is installed."""
    installed = Path("/usr/src") / f"{LINUX}.tar.xz"
    if installed.is_file():
        return installed
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        return None
    kept = HOME / "data" / f"{LINUX}.tar.xz"
    if kept.is_file():
        return kept
    say(f"fetching Debian's {LINUX} (about 130 MiB)")
    with tempfile.TemporaryDirectory() as folder:
        fetch = ["apt-get", "download", "-q", LINUX]
        if subprocess.run(fetch, check=False, cwd=folder, capture_output=True).returncode != 0:
            return None
        (package,) = Path(folder).glob("*.deb")
        subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(Path(folder, "usr", "src", kept.name), kept)
    return kept


def unpack(packed: Path, top: Path) -> None:
    """Unpack ``PARTS`` of the archive to ``top``, which gets its name only when it is complete."""
    part = top.with_name("linux.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    names = [f"{LINUX}/{each}" for each in PARTS]
    subprocess.run(["tar", "-C", part, "--strip-components=1", "-xJf", packed, *names], check=True)
    part.rename(top)


def measure(top: Path) -> tuple[int, int]:
    """Return the number of files below ``top``, and their total size in bytes."""
    sizes = [path.lstat().st_size for path in top.rglob("*") if path.is_file()]
    return len(sizes), sum(sizes)


# --- the run --------------------------------------------------------------------------------------


class Demo:
    """Two endpoints, an Airflow, and a run of the DAG."""

    def __init__(self, data: Data) -> None:
        """Start the endpoints."""
        self.data = data
        self.files, self.bytes = measure(data.top)
        self.mark = secrets.token_hex(8)
        # Airflow and the endpoints have this mark in their environment, so that `down` can find
        # their processes.
        os.environ[MARK] = self.mark
        STATE.write_text(json.dumps({"mark": self.mark}), encoding="utf-8")
        for name in ("site", "partner"):
            shutil.rmtree(HOME / name, ignore_errors=True)
        tape = Root("tape", {"path": str(data.top.parent), "tier": "slow"})
        # The proxy counts the sent bytes independently of the endpoints' reports. It must exist
        # before the endpoint listens. Its upstream port is set later.
        self.proxy = Proxy("127.0.0.1:1")
        behind = {"advertise": self.proxy.address}
        self.site = self._endpoint("site", [tape, Root("nvme", {"tier": "fast"})], behind)
        self.proxy.upstream = self.site.address
        self.partner = self._endpoint("partner", [Root("archive")], {})

    def _endpoint(self, name: str, roots: list[Root], config: dict[str, str]) -> Endpoint:
        program = find_program()
        return Endpoint(HOME / name, name, roots=roots, program=program, config=config).start()

    def start_airflow(self) -> None:
        """Start Airflow and wait until it knows the DAG."""
        self.airflow = Airflow(
            HOME / "airflow",
            [ROOT / "dags"],
            mark=self.mark,
            options={
                "AIRFLOW_CONN_DRAY_SITE": connection(self.site),
                "AIRFLOW_CONN_DRAY_PARTNER": connection(self.partner),
                "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "10",
            },
        )
        self.airflow.prepare().start().await_ready()
        self.airflow.await_dags("night_run")

    def run(self) -> Run:
        """Run the DAG, with a fault in the middle of the delivery."""
        begun = datetime.now(timezone.utc)
        self.run_id = begun.strftime("demo-%Y%m%dT%H%M%S")
        run = self.airflow.trigger(
            "night_run",
            self.run_id,
            {
                "dataset": self.data.top.name,
                "scratch": str(self.site.root(root="nvme")),
                "rate_max": max(1, int(self.bytes / DELIVERY_SECONDS)),
                "deadline": f"{DEADLINE_MINUTES}m",
            },
        )
        say(f"run {self.run_id}: {self.airflow.url}/dags/night_run/runs/{self.run_id}")
        self.safe = 0
        shown: dict[str, tuple[str, int]] = {}
        until = time.monotonic() + 15 * 60
        while (state := run.state) not in ("success", "failed"):
            for each in run.tasks():
                now = (each.state, each.tries)
                if each.state and shown.get(each.task_id) != now:
                    shown[each.task_id] = now
                    again = f", try {each.tries}" if each.tries > 1 else ""
                    say(f"  {each.task_id}: {each.state}{again}")
            if not self.safe and shown.get("deliver", ("",))[0] == "running":
                self._fault(run)
            if time.monotonic() > until:
                raise SystemExit(f"demo: the run has not ended in time\n{run.story()}")
            time.sleep(0.5)
        if state != "success":
            raise SystemExit(f"demo: the run is {state}\n{run.story()}")
        return run

    def delivery(self) -> Transfer | None:
        """Return the current state of the delivery."""
        with self.partner.client() as client:
            return next(client.transfers(labels={"run_id": self.run_id}), None)

    def _fault(self, run: Run) -> None:
        found = self.delivery()
        if found is None or found.bytes.durable < self.bytes / 3:
            return
        if found.is_terminal:
            return
        try:
            worker = run.kill("deliver")
        except RuntimeError:
            # The task has just deferred to the triggerer, so there is no worker to kill.
            return
        say(f"kill -9 of the worker (process {worker}), {found.bytes.durable // MIB} MiB are safe")
        say(f"kill -9 of the endpoint that writes (process {self.partner.pid}), and its restart")
        self.partner.kill()
        self.safe = found.bytes.durable
        self.before = self.proxy.counted()[1]
        self.partner.start()

    def report(self, run: Run) -> bool:
        """Report the result. Return true if it is as expected."""
        if not self.safe:
            raise SystemExit(
                "demo: the delivery was over, or not with a worker, before a third of it was safe: "
                "no fault took place, nothing is shown; take more DATA"
            )
        facts = self.airflow.ask("GET", f"dags/night_run/dagRuns/{run.run_id}")
        ended = datetime.fromisoformat(facts["end_date"].replace("Z", "+00:00"))
        begun = datetime.fromisoformat(facts["start_date"].replace("Z", "+00:00"))
        result: dict[str, Any] = run.result("deliver")
        tries = run.task("deliver").tries
        taken = (ended - begun).total_seconds()
        left = [path for path in self.site.root(root="nvme").rglob("*") if path.is_file()]
        there = self.partner.root(self.data.top.name, root="archive")
        differing = compare(self.data.top, there)
        print("\n== Report")
        print(f"data             {self.data.what}: {self.files} files, {self.bytes / MIB:.1f} MiB")
        print(f"delivered        {result['files']} files, {result['bytes'] / MIB:.1f} MiB")
        # The bound allows each file some bytes for frames and object heads, because this overhead
        # is large for small files.
        sent = self.proxy.counted()[1]
        after = sent - self.before
        bound = self.bytes - self.safe + self.files * FILE_BYTES + SLACK_BYTES
        print(f"sent             {sent / MIB:.1f} MiB on the wire, {after / MIB:.1f} of it after")
        print(f"                 the fault, when {self.safe / MIB:.1f} MiB were safe")
        print(f"tries            {tries} of the task that delivers; its worker was killed")
        for line in said_by_retry(run):
            print(f"                 the retry said: {line}")
        limit = DEADLINE_MINUTES * 60
        print(f"deadline         {limit} s after the start; finished after {taken:.0f} s")
        print(f"fast disks       {'NOT FREED' if left else 'given back'}")
        print(f"diff             {differing or 'the trees are identical'}")
        print(f"Airflow          {self.airflow.url}/dags/night_run/runs/{run.run_id}")
        print(f"                 as admin, with the password {self.airflow.password}")
        print("                 make demo-down ends it")
        wrong = {
            "the trees differ": bool(differing),
            "the deadline was missed": taken > limit,
            "the fast disks were not given back": bool(left),
            "the task was not tried again": tries < 2,
            "what was safe was sent again": after > bound,
        }
        for what in (each for each, is_so in wrong.items() if is_so):
            print(f"NOT SHOWN        {what}")
        return not any(wrong.values())

    def leave(self) -> None:
        """Restart the site's endpoint without the proxy, which ends with this process."""
        self.site.stop()
        del self.site._extra["advertise"]
        self.site.start()
        self.proxy.close()


def said_by_retry(run: Run) -> list[str]:
    """Return the message of the second try about the transfer that it found."""
    found = []
    for line in run.log("deliver").splitlines():
        if line.startswith("{"):
            said = str(json.loads(line).get("event", ""))
            if said.startswith("transfer ") and (" attached " in said or " begun again " in said):
                found.append(said.partition(" ")[2].partition(" ")[2])
    return found


def compare(here: Path, there: Path) -> str:
    """Compare two trees with a program that is independent of dray."""
    command: list[str | Path] = ["diff", "-r", "--no-dereference", here, there]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return "" if done.returncode == 0 else f"THE TREES DIFFER\n{done.stdout[:2000]}{done.stderr}"


def up(named: str | None) -> int:
    """Run the demo. Airflow keeps running afterwards."""
    HOME.mkdir(parents=True, exist_ok=True)
    down()
    data = find_data(named)
    demo = None
    try:
        say("two endpoints: site (roots tape, nvme) and partner (root archive)")
        demo = Demo(data)
        say(f"data: {data.what}: {demo.files} files, {demo.bytes // MIB} MiB")
        say("Airflow: API server, scheduler, DAG processor, triggerer (SQLite, loopback)")
        demo.start_airflow()
        run = demo.run()
        is_shown = demo.report(run)
        demo.leave()
    except BaseException:
        # After a failure, processes of the demo would otherwise remain.
        down()
        raise
    return 0 if is_shown else 1


def down() -> int:
    """End all processes that a demo has started."""
    if STATE.is_file():
        state = json.loads(STATE.read_text(encoding="utf-8"))
        ended = end_marked(state["mark"])
        if ended:
            say(f"ended {ended} processes of an earlier demo")
        STATE.unlink()
    return 0


def main() -> int:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("up", "down"))
    parser.add_argument("--data", default=os.environ.get("DATA"), help="a folder of your own")
    words = parser.parse_args()
    return up(words.data) if words.action == "up" else down()


if __name__ == "__main__":
    sys.exit(main())
