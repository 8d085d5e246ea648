"""The compared tools: the command, the dependencies and the known omissions of each tool."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from integration.bench import machine
from integration.bench.path import Ends

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from integration.bench.account import Processes
    from integration.bench.datasets import Data
    from integration.harness.program import Word

READY_SECONDS = 20.0
#: Id of the user of servers that refuse to run as root.
NOBODY = 65534
#: File with the niceness of this process's session. If the kernel gives each session a share of the
#: processors, the niceness of a process counts only within its session.
AUTOGROUP = Path("/proc/self/autogroup")
#: PATH with the folders of server programs, which Debian leaves out of the PATH of some users.
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"

LIMIT = "the machine"
COPY = "on one host"
CLEAR = "clear"
#: Unencrypted copies whose written data is read again, and compared with the source by checksum.
COMPARED = "clear, read back and compared"
ENCRYPTED = "encrypted"
THIRD = "third party"


@dataclass(frozen=True)
class Command:
    """The command whose time is measured."""

    words: list[Word]
    env: dict[str, str] = field(default_factory=dict)
    #: Path of the copy below the sink.
    below: str = ""
    #: Function that reads the seconds from the output, if the start of the tool must not count.
    seconds: Callable[[str], float] | None = None
    #: Function that reads the share of the time for checksums, if the tool reports it.
    summing: Callable[[str], float] | None = None


def at_once(commands: Sequence[Sequence[Word]]) -> list[Word]:
    """Return a command that runs several commands concurrently, and fails if one of them fails.

    :param commands: commands whose words contain no line end.
    """
    parts = ["pids="]
    for words in commands:
        line = shlex.join(os.fsdecode(word) for word in words)
        parts.append(f'{line} & pids="$pids $!"')
    parts += ["code=0", "for pid in $pids; do wait $pid || code=$?; done", "exit $code"]
    return ["sh", "-c", "\n".join(parts)]


@dataclass
class Scene:
    """The environment of a tool for one run: data, folders, processes, ends of the path."""

    data: Data
    #: The empty destination folder, in which all users may write.
    sink: Path
    #: Folder for configurations and logs.
    folder: Path
    processes: Processes
    #: Path of dray's program.
    program: Path
    at_end: contextlib.ExitStack
    #: Number that is added to the niceness of started processes.
    nice: int = 0
    ends: Ends = field(default_factory=Ends)

    def serve(
        self,
        name: str,
        port: int,
        words: list[Word],
        *,
        env: dict[str, str] | None = None,
        is_near: bool = False,
    ) -> None:
        """Start a server at the far end and wait until it listens.

        :param is_near: start the server at the client's end instead.
        :raises RuntimeError: if the server ends, or does not listen in time.
        """
        log = self.folder / f"{name}.log"
        process = "self" if is_near else self.ends.far_process
        before = () if is_near else self.ends.far
        server = self.start(log, [*before, *words], env or {})
        until = time.monotonic() + READY_SECONDS
        while not machine.listens(port, process):
            if time.monotonic() > until or (server.poll() or 0) != 0:
                log_text = log.read_text(encoding="utf-8", errors="replace")[-500:]
                raise RuntimeError(f"{name} does not listen: {log_text}")
            time.sleep(0.01)

    def start(self, log: Path, words: list[Word], env: dict[str, str]) -> subprocess.Popen[bytes]:
        """Start a process of the tool. Its CPU time and memory count from the start."""
        with log.open("ab") as out:
            return subprocess.Popen(
                [*self.processes.wrap, *self._niced(), *words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PATH": PATH, "HOME": str(self.folder), **env},
                cwd=self.folder,
                # Ctrl-C on the terminal must reach only the benchmark, which then ends this process
                # and cleans up.
                start_new_session=True,
            )

    def own_session(self) -> list[str]:
        """Return the command prefix that starts a server in its own session.

        The kernel's scheduler treats the processes of a session as one group (sched(7), autogroup).
        Two ends in one session interrupt each other less than two ends in two sessions, and take a
        tenth less time. Services, and ends on separate hosts, have no common session. So the
        measured ends must not share one either.
        """
        return ["setsid", *self._niced()]

    def _niced(self) -> list[str]:
        if not self.nice:
            return []
        return ["sh", "-c", f'echo {self.nice} > {AUTOGROUP}; exec "$@"', "sh"]

    def jobs(self) -> tuple[str, ...]:
        """Return the names of the folders of the data. Each folder is a separate job."""
        return tuple(sorted(f"{path.name}/" for path in self.data.path.iterdir()))

    def write(self, name: str, lines: list[str]) -> Path:
        """Write a configuration file of a server. Return its path."""
        path = self.folder / name
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    def give_to_nobody(self, *folders: Path) -> list[Word]:
        """Give folders to a non-root user. Return the command prefix that selects this user."""
        if os.geteuid() != 0:
            return []
        for folder in folders:
            folder.mkdir(exist_ok=True)
            os.chown(folder, NOBODY, NOBODY)
        return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]


@dataclass(frozen=True)
class Tool:
    """A compared tool. Each tool is one row of each table."""

    name: str
    title: str
    #: Group of the tool in the comparison.
    kind: str
    prepare: Callable[[Scene], Command]
    #: Programs that the tool needs.
    needs: tuple[str, ...] = ()
    #: Command that prints the version of the tool.
    version: tuple[str, ...] = ()
    is_ours: bool = False
    #: True if the server of the tool listens on all addresses.
    is_open: bool = False
    hides_dots: bool = False
    drops_links: bool = False
    #: True if the tool makes a copy that can be compared with the source.
    is_checked: bool = True
    #: True if the server of the tool can run at the far end of a path.
    travels: bool = False
    #: Letters of the data sets with which the tool runs. Empty means all sets.
    sets: str = ""
    #: Name of the engine's example program, if this program is the tool. Otherwise empty.
    example: str = ""
    #: Instruction to install the tool, if apt-get cannot install it.
    remedy: str = ""
    #: Reason for which the tool cannot be used, whatever is installed.
    unavailable: str = ""

    def missing(self, network: machine.Network) -> str:
        """Return why the tool cannot run on this host, or an empty text if it can."""
        if self.unavailable:
            return self.unavailable
        for need in self.needs:
            if shutil.which(need, path=PATH) is None:
                why = f"no program {Path(need).name} on this host"
                return f"{why}: {self.remedy}" if self.remedy else why
        if self.is_open and not network.is_own:
            return "listens on all addresses, and this host allows us no network of our own"
        return ""

    def find_version(self) -> str:
        """Return the version that the tool reports, or an empty text if it reports none."""
        if not self.version:
            return ""
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            output = subprocess.run(
                self.version,
                check=False,
                capture_output=True,
                text=True,
                timeout=20,
                env={**os.environ, "PATH": PATH},
            )
            lines = [line.strip() for line in (output.stdout + output.stderr).splitlines()]
            return next((line for line in lines if any(map(str.isdigit, line))), "")
        return ""
