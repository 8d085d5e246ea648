"""A private Airflow for the tests and the demo: four processes, which listen on loopback.

The tests call this Airflow over REST. Invariant: each process that this module starts has a mark in
its environment, and so have all children of the process. :meth:`Airflow.close` ends each process
that has the mark, even if the process has left its process group.
"""

from __future__ import annotations

import base64
import configparser
import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import httpx

from integration.harness.program import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dray.testing.endpoints import Endpoint

MARK = "DRAY_AIRFLOW_MARK"
#: Maximum seconds of the start. Airflow's four programs need about 50 seconds of CPU time to start.
READY_SECONDS = 480.0
#: Nice value of the kernel's autogroup of each program of Airflow, whose tests otherwise end last.
GROUP_NICE = -5
#: Maximum seconds of a command. `airflow db migrate` takes eleven seconds for an empty SQLite on an
#: idle core.
COMMAND_SECONDS = 180.0
#: Seconds after which a stopped process is killed. A stopped scheduler waits for its tasks, which
#: no test needs any more.
STOP_SECONDS = 10.0
POLL_SECONDS = 0.25
COMPONENTS: Mapping[str, tuple[str, ...]] = {
    "api-server": (),
    # No test uses the log servers of these components, which would listen on every interface.
    "scheduler": ("--skip-serve-logs",),
    "dag-processor": (),
    "triggerer": ("--skip-serve-logs",),
}
TERMINAL = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})

T = TypeVar("T")


class Task(NamedTuple):
    """A task of a run, as the API shows it."""

    task_id: str
    map_index: int
    #: State of the task. Empty before the task is scheduled.
    state: str
    tries: int
    #: Id of the process that runs or ran the task. The parent of this process is Airflow's
    #: supervisor of the task. 0 means unknown.
    pid: int
    #: Airflow's number of the triggerer that waits for the task. 0 means none.
    triggerer: int = 0


def free_port() -> int:
    """Find an unused port."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def write_metadata(folder: Path) -> None:
    """Write the distribution's entry points as an installation does, for a tree that has none.

    Airflow finds providers and plug-ins by these entry points. Nothing is built, because Airflow
    needs only the client and not the native module.
    """
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    info = folder / "dray-0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: dray\nVersion: 0\n", "utf-8")
    groups = setup["options.entry_points"]
    text = "".join(f"[{name}]\n{value.strip()}\n\n" for name, value in groups.items())
    (info / "entry_points.txt").write_text(text, encoding="utf-8")


def is_installed() -> bool:
    """Return whether Airflow would find all parts of the tree in this environment.

    An installation of an earlier tree may lack an entry point.
    """
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    groups = ("apache_airflow_provider", "airflow.plugins")
    found = {point.value for group in groups for point in metadata.entry_points(group=group)}
    wanted = "\n".join(setup["options.entry_points"][group] for group in groups)
    lines = [line for line in wanted.splitlines() if line.strip()]
    return {line.partition("=")[2].strip() for line in lines} <= found


def is_marked(pid: int, mark: str) -> bool:
    """Return whether a process lives and carries a mark."""
    process = Path(f"/proc/{pid}")
    try:
        words = (process / "environ").read_bytes().split(b"\0")
        state = (process / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return f"{MARK}={mark}".encode() in words and state != "Z"


def marked(mark: str) -> list[int]:
    """Find the ids of the living processes with a mark."""
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return [pid for pid in pids if is_marked(pid, mark)]


def end_marked(mark: str, seconds: float = STOP_SECONDS) -> int:
    """Ask all processes with a mark to end, and kill those that do not end in time.

    :returns: the number of processes that had the mark.
    """
    found = set(marked(mark)) - {os.getpid()}
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    until = time.monotonic() + seconds
    while left := set(marked(mark)) - {os.getpid()}:
        if time.monotonic() > until:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
    return len(found)


def connection(endpoint: Endpoint) -> str:
    """Return the text of an Airflow connection to an endpoint, for a variable AIRFLOW_CONN_..."""
    host, _, port = endpoint.address.rpartition(":")
    return json.dumps(
        {
            "conn_type": "dray",
            "host": host,
            "port": int(port),
            "password": endpoint.token(lifetime="12h"),
            "extra": {"pin": endpoint.key},
        }
    )


class Airflow:
    """An Airflow with its own folder.

    :param folder: folder for the database, logs and configuration. A missing folder is created.
    :param dags: folders with DAG files.
    :param options: ``AIRFLOW__SECTION__KEY`` and other variables, which override the variables of
        this class.
    :param mark: mark in the environment of the processes, by which they are found and ended. By
        default a new mark.
    """

    def __init__(
        self,
        folder: Path,
        dags: Sequence[Path],
        *,
        options: Mapping[str, str] | None = None,
        mark: str | None = None,
    ) -> None:
        """Choose a port and secrets. No process starts yet."""
        self.folder = folder
        self.logs = folder / "processes"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.mark = mark or secrets.token_hex(8)
        self.password = secrets.token_urlsafe(12)
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._starts = 0
        self._client: httpx.Client | None = None
        self.environment = {**self._environment(dags), **(options or {})}

    def _environment(self, dags: Sequence[Path]) -> dict[str, str]:
        bundles = [
            {
                "name": f"dags{number}",
                "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle",
                "kwargs": {"path": str(path)},
            }
            for number, path in enumerate(dags)
        ]
        parts = ("engine/python", "operators", "plugins/airflow", "")
        paths = [str(ROOT / part) for part in parts]
        if not is_installed():
            paths.insert(0, str(self.folder / "site"))
        paths += filter(None, os.environ.get("PYTHONPATH", "").split(":"))
        key = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
        kept = {
            name: value
            for name, value in os.environ.items()
            # Variables of the caller's shell for another Airflow, or for this test run, do not
            # apply.
            if not name.startswith(("AIRFLOW", "PYTEST_", "COV_"))
        }
        return {
            **kept,
            MARK: self.mark,
            # Airflow's processes set their titles. Without this variable, the title overwrites the
            # environment in /proc, and the mark with it.
            "SPT_NOENV": "1",
            "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}",
            "PYTHONPATH": ":".join(paths),
            "AIRFLOW_HOME": str(self.folder),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.folder / "dags"),
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "AIRFLOW__CORE__FERNET_KEY": key,
            "AIRFLOW__CORE__PARALLELISM": "6",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(self.folder / "passwords"),
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(self.port),
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__API__SECRET_KEY": secrets.token_hex(32),
            "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{self.folder}/airflow.db",
            "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(bundles),
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "10",
            "AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES": "1",
            # The default, 30 seconds, takes a fifth of a core.
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "120",
            "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(self.folder / "logs"),
            "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "12",
            "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "3",
            # Detect a dead process after 15 seconds instead of the default of five minutes. A
            # shorter time is not possible: on a busy host, a live process may be silent for some
            # seconds.
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "15",
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "3",
            "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "3",
            # The API server of a busy host takes longer than the five seconds of the default.
            "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "30",
            # No usage data leaves this host.
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        }

    # --- its processes ----------------------------------------------------------------------------

    def prepare(self) -> Airflow:
        """Make the folder of this Airflow, with an empty database."""
        self.logs.mkdir(parents=True, exist_ok=True)
        (self.folder / "dags").mkdir(exist_ok=True)
        if not is_installed():
            write_metadata(self.folder / "site")
        passwords = self.folder / "passwords"
        passwords.touch(mode=0o600)
        passwords.write_text(json.dumps({"admin": self.password}), encoding="utf-8")
        # Keep a copy of an empty database, because its creation takes eleven seconds. Remove the
        # database of an earlier Airflow in this folder, because its encryption key is lost.
        made, kept = self.folder / "airflow.db", self.folder / "empty.db"
        stamp, version = self.folder / "made-by", metadata.version("apache-airflow")
        if kept.is_file() and stamp.read_text(encoding="utf-8") == version:
            for left in self.folder.glob("airflow.db*"):
                left.unlink()
            shutil.copy(kept, made)
        else:
            self.run("db", "migrate")
            if made.is_file():
                stamp.write_text(version, encoding="utf-8")
                shutil.copy(made, kept)
        return self

    def run(self, *words: str) -> str:
        """Run a command of Airflow and return its output.

        :raises RuntimeError: if the command fails.
        """
        done = subprocess.run(
            [sys.executable, "-m", "airflow", *words],
            check=False,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            cwd=self.folder,
        )
        if done.returncode != 0:
            raise RuntimeError(f"airflow {words[0]} failed:\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def start(self, *names: str) -> Airflow:
        """Start components, by default all. Return before they are ready."""
        for name in names or COMPONENTS:
            self._running[name] = self._spawn(name, [name, *COMPONENTS.get(name, ())])
        return self

    def start_worker(self, name: str, *, slots: int) -> None:
        """Start a Celery worker with its own name."""
        words = ["celery", "worker", "--skip-serve-logs", "--celery-hostname", name]
        words += ["--concurrency", str(slots), "--pid", str(self.folder / f"{name}.pid")]
        self._running[name] = self._spawn(name, words)

    def _spawn(self, name: str, words: Sequence[str]) -> subprocess.Popen[bytes]:
        self._starts += 1
        with (self.logs / f"{self._starts:03}-{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "airflow", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment,
                cwd=self.folder,
                start_new_session=True,
            )
        # Only root may set a negative value, and a kernel without autogroups has no such file.
        with contextlib.suppress(OSError):
            Path(f"/proc/{process.pid}/autogroup").write_text(f"{GROUP_NICE}\n", encoding="ascii")
        return process

    def revive(self, *names: str) -> list[str]:
        """Restart components that have ended by themselves, as an operator does.

        :param names: by default all.
        :returns: names of the restarted components.
        """
        looked_at = [name for name in names or tuple(self._running) if name in self._running]
        ended = [name for name in looked_at if self._running[name].poll() is not None]
        if ended:
            self.start(*ended)
        return ended

    def pid(self, name: str) -> int:
        """Return the id of a component's main process."""
        return self._running[name].pid

    def kill(self, name: str) -> None:
        """Kill the process of a component and all processes of its process group."""
        process = self._running.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def await_ready(self, seconds: float = READY_SECONDS) -> Airflow:
        """Wait until all four components report themselves healthy."""

        def is_healthy() -> bool:
            for name, process in self._running.items():
                if process.poll() is not None:
                    raise RuntimeError(f"{name} exited immediately:\n{self.said(name)}")
            try:
                found = httpx.get(f"{self.url}/api/v2/monitor/health", timeout=5).json()
            except (httpx.HTTPError, ValueError):
                return False
            parts = ("metadatabase", "scheduler", "triggerer", "dag_processor")
            return all(found[part]["status"] == "healthy" for part in parts)

        self.wait_for(is_healthy, "Airflow is healthy", seconds)
        return self

    def said(self, name: str, lines: int = 40) -> str:
        """Return the last lines of a component's output, over all its starts."""
        paths = sorted(self.logs.glob(f"*-{name}.log"))
        text = "".join(path.read_text(encoding="utf-8", errors="replace") for path in paths)
        return "\n".join(text.splitlines()[-lines:])

    def close(self) -> None:
        """End all processes of this Airflow. Kill processes that do not end on a signal."""
        if self._client is not None:
            self._client.close()
            self._client = None
        # Find the processes by their mark, an environment variable. Tasks have their own process
        # groups, and orphans are no longer children of this process.
        end_marked(self.mark)
        for process in self._running.values():
            process.wait()
        self._running.clear()

    # --- its REST API -----------------------------------------------------------------------------

    @property
    def client(self) -> httpx.Client:
        """Client of Airflow's REST API, logged in as the administrator."""
        if self._client is None:
            self._client = httpx.Client(
                base_url=f"{self.url}/api/v2/",
                headers={"Authorization": f"Bearer {self.token('admin')}"},
                timeout=60,
            )
        return self._client

    def token(self, user: str) -> str:
        """Log a user in, and return the token of the session."""
        password = self.password
        if user != "admin":
            # Airflow has written the passwords that it has generated for the other users. This file
            # is not readable if Airflow runs in another container.
            passwords = json.loads((self.folder / "passwords").read_text(encoding="utf-8"))
            password = passwords[user]
        credentials = {"username": user, "password": password}
        answer = httpx.post(f"{self.url}/auth/token", json=credentials, timeout=30)
        answer.raise_for_status()
        token: str = answer.json()["access_token"]
        return token

    def ask(self, method: str, path: str, body: object = None, **query: str | int) -> Any:  # noqa: ANN401 - JSON
        """Call the REST API.

        :raises RuntimeError: with the answer, if the answer is not a success.
        """
        answer = self.client.request(method, path, json=body, params=query)
        if not answer.is_success:
            raise RuntimeError(f"{method} {path}: {answer.status_code} {answer.text}")
        return answer.json() if answer.content else None

    def wait_for(self, look: Callable[[], T], what: str, seconds: float = 120.0) -> T:
        """Repeat a look-up until it returns something true.

        :raises TimeoutError: after ``seconds``, with a description.
        """
        until = time.monotonic() + seconds
        while True:
            if found := look():
                return found
            if time.monotonic() > until:
                raise TimeoutError(f"waited {seconds:g} s, and not yet: {what}")
            time.sleep(POLL_SECONDS)

    def await_dags(self, *dag_ids: str, seconds: float = 120.0) -> None:
        """Wait until Airflow knows these DAGs. Fail if a DAG file has an import error."""

        def known() -> bool:
            errors = self.ask("GET", "importErrors")["import_errors"]
            if errors:
                raise RuntimeError(f"import errors: {json.dumps(errors, indent=1)}")
            dags = self.ask("GET", "dags", limit=500)["dags"]
            return set(dag_ids) <= {dag["dag_id"] for dag in dags}

        self.wait_for(known, f"DAGs {', '.join(dag_ids)} are known", seconds)

    def trigger(self, dag_id: str, run_id: str, conf: Mapping[str, object] | None = None) -> Run:
        """Start a run of a DAG as soon as Airflow knows the DAG."""
        self.await_dags(dag_id)
        body = {"logical_date": None, "dag_run_id": run_id, "conf": dict(conf or {})}
        self.ask("POST", f"dags/{dag_id}/dagRuns", body)
        return Run(self, dag_id, run_id)


class Run:
    """A run of a DAG."""

    def __init__(self, airflow: Airflow, dag_id: str, run_id: str) -> None:
        """Store the names of the DAG and the run, without a call of Airflow."""
        self.airflow = airflow
        self.dag_id = dag_id
        self.run_id = run_id
        self._path = f"dags/{dag_id}/dagRuns/{run_id}"

    @property
    def state(self) -> str:
        """State of the run: queued, running, success, failed."""
        return str(self.airflow.ask("GET", self._path)["state"])

    def await_end(self, state: str = "success", seconds: float = 180.0) -> Run:
        """Wait until the run has ended. Fail unless its state is ``state``."""
        ended = ("success", "failed")
        found = self.airflow.wait_for(
            lambda: self.state if self.state in ended else "", f"{self} has ended", seconds
        )
        assert found == state, f"{self} is {found}\n{self.story()}"
        return self

    def tasks(self) -> list[Task]:
        """Return the present state of the tasks of the run."""
        found = self.airflow.ask("GET", f"{self._path}/taskInstances", limit=500)
        return [
            Task(
                each["task_id"],
                each["map_index"],
                each["state"] or "",
                each["try_number"],
                each["pid"] or 0,
                (each["triggerer_job"] or {}).get("id", 0),
            )
            for each in found["task_instances"]
        ]

    def task(self, task_id: str, map_index: int = -1) -> Task:
        """Return the present state of a task."""
        for each in self.tasks():
            if each.task_id == task_id and each.map_index == map_index:
                return each
        return Task(task_id, map_index, "", 0, 0)

    def await_task(
        self,
        task_id: str,
        *states: str,
        map_index: int = -1,
        tries: int = 0,
        seconds: float = 120.0,
    ) -> Task:
        """Wait until a task is in one of ``states``, in its try number ``tries`` or later."""

        def look() -> Task | None:
            found = self.task(task_id, map_index)
            if found.state in states and found.tries >= tries:
                return found
            if found.state in TERMINAL and found.tries >= tries:
                raise AssertionError(f"{task_id} of {self} is {found.state}\n{self.story()}")
            return None

        found = self.airflow.wait_for(
            look, f"{task_id} of {self} is {' or '.join(states)}", seconds
        )
        assert found is not None
        return found

    def result(self, task_id: str, map_index: int = -1, key: str = "return_value") -> Any:  # noqa: ANN401 - JSON
        """Return the result of a task."""
        path = f"{self._path}/taskInstances/{task_id}/xcomEntries/{key}"
        found = self.airflow.ask("GET", path, map_index=map_index, stringify=0)
        return found["value"]

    def clear(self, task_id: str, map_index: int = -1, **options: bool) -> None:
        """Clear a task, so that Airflow runs it again."""
        body = {
            "dry_run": False,
            "dag_run_id": self.run_id,
            "task_ids": [task_id if map_index < 0 else [task_id, map_index]],
            "only_failed": False,
            "reset_dag_runs": True,
            **options,
        }
        self.airflow.ask("POST", f"dags/{self.dag_id}/clearTaskInstances", body)

    def mark(self, task_id: str, state: str, map_index: int = -1) -> None:
        """Set the state of a task, as a user does."""
        path = f"{self._path}/taskInstances/{task_id}"
        path += f"/{map_index}" if map_index >= 0 else ""
        self.airflow.ask("PATCH", path, {"new_state": state})

    def mark_failed(self) -> None:
        """Mark the whole run as failed, as a user does."""
        self.airflow.ask("PATCH", self._path, {"state": "failed"})

    def delete(self) -> None:
        """Delete the run. Airflow refuses to delete a running run."""
        self.airflow.ask("DELETE", self._path)

    def log(self, task_id: str, map_index: int = -1) -> str:
        """Return a task's log of all tries, including the triggerer's part."""
        folder = self.airflow.folder / "logs" / f"dag_id={self.dag_id}" / f"run_id={self.run_id}"
        folder /= f"task_id={task_id}"
        if map_index >= 0:
            folder /= f"map_index={map_index}"
        texts = []
        for path in sorted(folder.glob("attempt=*")):
            text = path.read_text(encoding="utf-8", errors="replace")
            texts += [f"--- {path.name}", *text.splitlines()]
        return "\n".join(texts)

    def kill(self, task_id: str, map_index: int = -1) -> int:
        """Kill the process of a running task.

        :returns: the id of the killed process.
        :raises RuntimeError: if the task does not run. No process is then killed, because the
            process id of a deferred or ended task may belong to another program by now.
        """
        found = self.task(task_id, map_index)
        if found.state != "running" or found.pid <= 1:
            raise RuntimeError(f"{task_id} of {self} is {found.state}, process {found.pid}")
        if not is_marked(found.pid, self.airflow.mark):
            raise RuntimeError(f"process {found.pid} is none of this Airflow")
        os.kill(found.pid, signal.SIGKILL)
        return found.pid

    def story(self) -> str:
        """Describe the state of each task of the run, and the last output of each failed task."""
        lines = []
        for each in self.tasks():
            lines.append(f"{each.task_id}[{each.map_index}]: {each.state}, try {each.tries}")
            if each.state in ("failed", "up_for_retry"):
                lines += self.log(each.task_id, each.map_index).splitlines()[-25:]
        return "\n".join(lines)

    def __str__(self) -> str:
        """Return the names of the DAG and of the run."""
        return f"{self.dag_id}/{self.run_id}"
