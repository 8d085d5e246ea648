"""The cost of a tool: CPU seconds and memory of all its processes, including servers.

The tool runs in a control group, and the kernel adds up the cost of all processes of the group,
including ended processes and daemons in the background. If no group can be made, this module adds
up the cost of the descendants of this process instead.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

END_SECONDS = 5.0
SAMPLE_SECONDS = 0.05
TICKS = os.sysconf("SC_CLK_TCK")
PR_SET_CHILD_SUBREAPER = 36
ROOT = Path("/sys/fs/cgroup")


class Processes:
    """The processes of one tool: the descendants of this process that the kernel shows."""

    def __init__(self) -> None:
        """Make orphaned descendants children of this process."""
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    #: Command prefix with which a program is counted from its first moment.
    wrap: Sequence[str] = ()

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of all processes of the tool, including ended processes."""
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        return ended.ru_utime + ended.ru_stime + sum(map(cpu_seconds_of, self.pids()))

    def pids(self) -> list[int]:
        """List the process ids of the processes that have not ended."""
        return sorted(below(os.getpid()))

    def close(self) -> None:
        """End all counted processes by process id, and wait until they have ended."""
        for number, seconds in ((signal.SIGTERM, END_SECONDS), (signal.SIGKILL, 60.0)):
            for pid in self.pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            until = time.monotonic() + seconds
            while self.pids() and time.monotonic() < until:
                self._collect()
                time.sleep(0.01)

    def _collect(self) -> None:
        """Collect the exit codes of ended children, because a zombie would count as living."""
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


class Group(Processes):
    """The processes of one tool, in a control group."""

    def __init__(self, folder: Path) -> None:
        """Make the group.

        :raises OSError: if this process may not make it.
        """
        folder.mkdir()
        self._folder = folder
        self._procs = folder / "cgroup.procs"
        self.wrap = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self._procs)]

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of all processes of the tool, including ended processes."""
        with contextlib.suppress(FileNotFoundError):
            return int((self._folder / "cpuacct.usage").read_text(encoding="ascii")) / 1e9
        first = (self._folder / "cpu.stat").read_text(encoding="ascii").splitlines()[0]
        return int(first.split()[1]) / 1e6

    def pids(self) -> list[int]:
        """List the process ids of the processes that have not ended."""
        return [int(pid) for pid in self._procs.read_text(encoding="ascii").split()]

    def close(self) -> None:
        """End all counted processes by process id, wait, and remove the control group."""
        super().close()
        until = time.monotonic() + END_SECONDS
        while True:
            try:
                self._folder.rmdir()
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.01)
            else:
                return


def places(own: str) -> list[Path]:
    """Return the folders in which a control group might be made, the best folder first.

    :param own: content of ``/proc/self/cgroup``
    """
    found: list[Path] = []
    for line in own.splitlines():
        _, controllers, path = line.split(":", 2)
        if "cpuacct" in controllers.split(","):
            found.insert(0, ROOT / controllers / path.lstrip("/"))
        elif not controllers:
            found += [ROOT / "unified" / path.lstrip("/"), ROOT / path.lstrip("/")]
    return found


def processes() -> Processes:
    """Return a counter of the tool's processes: a control group if this process may make one."""
    for place in places(Path("/proc/self/cgroup").read_text(encoding="ascii")):
        if (place / "cgroup.procs").exists():
            with contextlib.suppress(OSError):
                return Group(place / f"dray-bench-{os.getpid()}-{time.monotonic_ns()}")
    return Processes()


class Memory:
    """Samples the total memory of the processes of a tool.

    Counts private memory and mapped files. Mapped tmpfs pages do not count, because they hold the
    copied data.
    """

    def __init__(self, of: Processes) -> None:
        """Prepare to sample the processes that ``of`` counts."""
        self._of = of
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        #: Peak of the memory of all processes together, in bytes.
        self.peak = 0
        #: Peak of the memory of each process in bytes, by process id.
        self.peaks: dict[int, int] = {}

    def _sample(self) -> None:
        while not self._is_over.wait(SAMPLE_SECONDS):
            self._note()

    def _note(self) -> None:
        found = {pid: _memory(pid) for pid in self._of.pids()}
        self.peak = max(self.peak, sum(found.values()))
        for pid, size in found.items():
            self.peaks[pid] = max(self.peaks.get(pid, 0), size)

    def __enter__(self) -> Memory:
        """Start sampling."""
        self._note()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop sampling."""
        self._is_over.set()
        self._thread.join()


def busy_seconds() -> float:
    """Return the CPU seconds that all processors have been busy since the machine's start."""
    with Path("/proc/stat").open(encoding="ascii") as file:
        words = [int(word) for word in file.readline().split()[1:9]]
    idle, waiting = words[3], words[4]
    return (sum(words) - idle - waiting) / TICKS


def own_seconds() -> float:
    """Return the CPU seconds of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def cpu_seconds_of(pid: int) -> float:
    """Return the CPU seconds of a process and its collected children, or 0 if it has ended."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    # The user and system time of the process, and of its collected children.
    return sum(map(int, words[11:15])) / TICKS


def _memory(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0
    lines = (line for line in status.splitlines() if line.startswith(("RssAnon:", "RssFile:")))
    return sum(int(line.split()[1]) for line in lines) << 10


def below(pid: int) -> set[int]:
    """Return the process ids of all descendants of a process."""
    found: set[int] = set()
    for folder in Path(f"/proc/{pid}/task").glob("*"):
        try:
            text = (folder / "children").read_text(encoding="ascii")
        except OSError:
            continue
        for child in map(int, text.split()):
            found |= {child} | below(child)
    return found
