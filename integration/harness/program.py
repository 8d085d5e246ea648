"""Start the shipped programs, wait for them, and read their output.

The module sends signals only to processes that it has started.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parents[2]
READY_SECONDS = 20.0
POLL_SECONDS = 0.005

Word = str | bytes | Path


def find_program() -> Path:
    """Find the release program.

    :raises FileNotFoundError: if it was not built.
    """
    target = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "engine" / "target")
    program = target / "release" / "dray"
    if not os.access(program, os.X_OK):
        raise FileNotFoundError(f"no release program at {program}; build it first: make build")
    return program


def peak_memory(pid: int) -> int:
    """Return the peak memory of a running process in bytes, or 0 if the process has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    return 0


@dataclass(frozen=True)
class Ended:
    """A process that has ended."""

    #: Exit code. A negative number is the signal that killed the process.
    code: int
    out: str
    words: str
    seconds: float
    cpu_seconds: float
    #: Peak memory in bytes, sampled while the process ran.
    memory_peak: int

    @property
    def report(self) -> dict[str, Any]:
        """The JSON object in the last line of the output."""
        lines = [line for line in self.out.splitlines() if line.strip()]
        assert lines, f"no report; exit code {self.code}; it said:\n{self.words}"
        report: dict[str, Any] = json.loads(lines[-1])
        return report

    def expect(self, code: int) -> Ended:
        """Fail with the whole output of the process unless its exit code is ``code``."""
        assert self.code == code, f"exit code {self.code}, not {code}\n{self.out}\n{self.words}"
        return self


class Process:
    """A process that a test has started, with its output in files."""

    def __init__(
        self,
        words: Sequence[Word],
        logs: Path,
        name: str,
        *,
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
        wrap: Sequence[str] = (),
    ) -> None:
        """Start the command ``words`` with the prefix ``wrap``."""
        self.out_path = logs / f"{name}.out"
        self.log_path = logs / f"{name}.log"
        self.started = time.monotonic()
        with self.out_path.open("wb") as out, self.log_path.open("wb") as log:
            self.popen = subprocess.Popen(
                [*wrap, *words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                cwd=cwd,
                env={**os.environ, **(env or {})},
            )
        self.pid = self.popen.pid
        self.memory_peak = 0
        self.ended: Ended | None = None

    def is_running(self) -> bool:
        """Return whether the process still runs. If it has ended, read its exit code and output."""
        if self.ended is not None:
            return False
        self.memory_peak = max(self.memory_peak, peak_memory(self.pid))
        pid, status, usage = os.wait4(self.pid, os.WNOHANG)
        if pid == 0:
            return True
        self.popen.returncode = os.waitstatus_to_exitcode(status)
        self.ended = Ended(
            code=self.popen.returncode,
            out=self.out_path.read_text(encoding="utf-8", errors="replace"),
            words=self.log_path.read_text(encoding="utf-8", errors="replace"),
            seconds=time.monotonic() - self.started,
            cpu_seconds=usage.ru_utime + usage.ru_stime,
            memory_peak=self.memory_peak,
        )
        return False

    def wait(self, seconds: float = 120.0) -> Ended:
        """Wait until the process has ended.

        :raises TimeoutError: after ``seconds``. The process is then killed.
        """
        until = time.monotonic() + seconds
        while self.is_running():
            if time.monotonic() > until:
                self.kill()
                log_text = self.log_path.read_text(encoding="utf-8", errors="replace")
                raise TimeoutError(f"still running after {seconds} s; it said:\n{log_text}")
            time.sleep(POLL_SECONDS)
        assert self.ended is not None
        return self.ended

    def await_durable(self, count: int = 1, seconds: float = 60.0) -> None:
        """Wait until ``cp --progress json`` reports this many durable bytes."""
        until = time.monotonic() + seconds
        safe = 0
        while safe < count:
            if not self.is_running():
                ended = self.wait()
                report = f"exit code {ended.code}\n{ended.out}\n{ended.words}"
                raise AssertionError(f"the process ended before {count} durable bytes: {report}")
            assert time.monotonic() < until, f"{safe} bytes are durable after {seconds} s"
            log_text = self.log_path.read_text(encoding="utf-8", errors="replace")
            safe = max(map(int, re.findall(r'"bytes_durable":(\d+)', log_text)), default=0)
            time.sleep(0.01)

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        if self.is_running():
            os.kill(self.pid, number)

    def kill(self) -> Ended:
        """Kill the process by SIGKILL, and wait until it has ended."""
        self.send(signal.SIGKILL)
        while self.is_running():
            time.sleep(POLL_SECONDS)
        assert self.ended is not None
        return self.ended


class Server(Process):
    """A running ``dray serve`` that accepts connections."""

    address: str
    fingerprint: str

    def await_ready(self) -> Server:
        """Wait until the server listens, and read its address and the fingerprint of its key."""
        until = time.monotonic() + READY_SECONDS
        while True:
            first = self.out_path.read_text(encoding="utf-8").partition("\n")
            if first[1]:
                break
            log_text = self.log_path.read_text(encoding="utf-8", errors="replace")
            assert self.is_running(), f"the server exited immediately:\n{log_text}"
            assert time.monotonic() < until, f"the server is not ready:\n{log_text}"
            time.sleep(POLL_SECONDS)
        ready = json.loads(first[0])
        self.address = ready["addresses"][0]
        self.fingerprint = ready["fingerprint"]
        return self

    def transfers(self) -> list[dict[str, Any]]:
        """Read the server's reports of ended transfers."""
        lines = self.out_path.read_text(encoding="utf-8").splitlines()[1:]
        return [json.loads(line) for line in lines]

    def stop(self) -> Ended:
        """Stop the server by SIGTERM, and wait until it has ended."""
        self.send(signal.SIGTERM)
        return self.wait(30)


@dataclass
class Bench:
    """The folder, the program and all started processes of one test."""

    folder: Path
    program: Path
    processes: list[Process] = field(default_factory=list)
    started: int = 0

    def __post_init__(self) -> None:
        """Make the folder of the logs, and the file with the token."""
        self.logs = self.folder / "logs"
        self.logs.mkdir()
        self.token = self.folder / "token"
        self.token.write_text("a-token-that-nobody-guesses-0123456789\n", encoding="utf-8")
        self.token.chmod(0o600)

    def _name(self, name: str) -> str:
        self.started += 1
        return f"{self.started:03}-{name}"

    def start(
        self,
        *words: Word,
        name: str = "dray",
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
        wrap: Sequence[str] = (),
    ) -> Process:
        """Start ``dray`` with these arguments."""
        whole = [self.program, *words]
        process = Process(whole, self.logs, self._name(name), env=env, cwd=cwd, wrap=wrap)
        self.processes.append(process)
        return process

    def start_cp(
        self, *words: Word, env: dict[str, str] | None = None, wrap: Sequence[str] = ()
    ) -> Process:
        """Start ``dray cp --json`` with these arguments."""
        return self.start("cp", "--json", *words, name="cp", env=env, wrap=wrap)

    def start_slow_cp(self, *words: Word) -> Process:
        """Start ``dray cp`` with a rate; return when some data is durable, and most is missing."""
        client = self.start_cp("--progress", "json", *words)
        client.await_durable()
        return client

    def cp(
        self,
        *words: Word,
        env: dict[str, str] | None = None,
        wrap: Sequence[str] = (),
        seconds: float = 120.0,
    ) -> Ended:
        """Run ``dray cp --json`` with these arguments, and wait until the copy has ended."""
        return self.start_cp(*words, env=env, wrap=wrap).wait(seconds)

    def serve(
        self, root: Path, *words: Word, listen: str = "127.0.0.1:0", wrap: Sequence[str] = ()
    ) -> Server:
        """Start ``dray serve`` on a free port of this host; always with the same key."""
        whole: list[Word] = [self.program, "serve", "--json", "--root", root, "--listen", listen]
        whole += ["--token-file", self.token, "--identity", self.folder / "identity", *words]
        server = Server(whole, self.logs, self._name("serve"), wrap=wrap)
        self.processes.append(server)
        return server.await_ready()

    def peer(self, server: Server) -> list[Word]:
        """Return the options with which ``cp`` may connect to ``server``."""
        return ["--token-file", self.token, "--peer-key", server.fingerprint]

    def close(self) -> None:
        """Kill all processes that still run."""
        for process in self.processes:
            process.kill()


@dataclass
class Way:
    """A way to send a tree: the end that dials, the number of streams, TLS or not."""

    push: bool = True
    streams: int = 4
    is_clear: bool = False

    def __str__(self) -> str:
        """Return the name of the way, which is part of the ids of tests."""
        direction = "push" if self.push else "pull"
        return f"{direction}-{'clear' if self.is_clear else 'tls'}-{self.streams}"

    def words(self) -> list[Word]:
        """Return the options of ``dray cp`` for this way."""
        words: list[Word] = ["--streams", str(self.streams)]
        return [*words, "--clear-data"] if self.is_clear else words
