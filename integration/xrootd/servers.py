"""Real XRootD servers on the loopback, and stock clients. All run as an ordinary user."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from integration.harness.airflow import free_port
from integration.harness.host import is_root
from integration.harness.program import ROOT, Ended, Process

if TYPE_CHECKING:
    from collections.abc import Sequence

    from integration.harness.program import Word

HERE = "127.0.0.1"
#: User of servers and clients, because XRootD refuses to run as root.
USER = "nobody"
READY_SECONDS = 30.0
POLL_SECONDS = 0.02
#: Environment variables that shorten XrdCl's timeouts. By default, a client without a server gives
#: up only after 480 seconds.
PATIENCE = {
    "XRD_CONNECTIONRETRY": "1",
    "XRD_CONNECTIONWINDOW": "5",
    "XRD_STREAMTIMEOUT": "30",
    "XRD_REQUESTTIMEOUT": "120",
}
#: File names of dray's TPC program and library (``make build-xrootd``).
PROGRAM = "dray-xrootd-tpc"
SHIM = "libdray-xrdcl.so"


def built() -> Path:
    """Return the folder in which ``make build-xrootd`` builds."""
    return Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "engine" / "target") / "release"


def find(name: str) -> Path:
    """Return the path of a file that ``make build-xrootd`` has built.

    :raises FileNotFoundError: if the file is missing.
    """
    path = built() / name
    if not path.exists():
        raise FileNotFoundError(f"no {path}; build it first: make build-xrootd")
    return path


def exported(name: str) -> set[str]:
    """Return the symbols that a library of dray exports."""
    words: list[Word] = ["nm", "-D", "--defined-only", find(name)]
    ended = subprocess.run(words, check=True, capture_output=True, text=True, timeout=60)
    return {line.split()[-1] for line in ended.stdout.splitlines()}


def compile_loopback(folder: Path) -> Path:
    """Compile the library that makes servers listen on the loopback only. Return its path."""
    library = folder / "loopback.so"
    source = Path(__file__).parent / "loopback.c"
    words: list[Word] = ["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"]
    subprocess.run(words, check=True, capture_output=True, timeout=60)
    return library


def as_user() -> list[str]:
    """Return words before a command, with which root runs the command as ``USER``."""
    if not is_root():
        return []
    return ["setpriv", f"--reuid={USER}", f"--regid={_gid()}", "--clear-groups", "--"]


def _gid() -> int:
    return pwd.getpwnam(USER).pw_gid


def give(path: Path) -> None:
    """Make ``USER`` the owner of a file or folder, if this process runs as root."""
    if is_root():
        os.chown(path, pwd.getpwnam(USER).pw_uid, _gid())


def usual_lines(port: int, state: Path, root: Path, exports: str = "/") -> list[str]:
    """Return the first lines of a server's configuration.

    :param state: folder for the server's own files.
    :param root: folder that the server exports.
    :param exports: path below ``root`` that clients may access.
    """
    return [
        f"xrd.port {port}",
        "xrd.network nodnr cache 0",
        f"all.adminpath {state}",
        f"all.pidpath {state}",
        f"oss.localroot {root}",
        f"all.export {exports}",
    ]


def cluster_lines() -> list[str]:
    """Return the configuration lines of a cluster. The server ``head`` is its redirector."""
    meeting = free_port()
    return [
        f"all.manager {HERE}:{meeting}",
        "all.role server",
        "all.role manager if named head",
        f"if exec cmsd && named head\nxrd.port {meeting}\nfi",
        "cms.delay startup 3 servers 1 lookup 1",
        "cms.space min 10m 5m",
    ]


@dataclass
class Scene:
    """A folder for the servers and clients of one test."""

    folder: Path
    loopback: Path
    #: Folder with dray's programs, which ``USER`` may read.
    programs: Path
    servers: list[Xrootd] = field(default_factory=list)
    _clients: list[Process] = field(default_factory=list)

    def server(
        self,
        name: str,
        *,
        tpc: str | None = "",
        lines: Sequence[str] = (),
        env: dict[str, str] | None = None,
        start: bool = True,
    ) -> Xrootd:
        """Add a server to the scene.

        :param tpc: last arguments of ``ofs.tpc``. Empty: dray makes the third-party copies. None:
            no third-party copies.
        :param lines: additional lines of the server's configuration.
        :param start: whether to start the server.
        """
        server = Xrootd(self, name, tpc, list(lines), env or {})
        self.servers.append(server)
        return server.start() if start else server

    def cluster(
        self,
        count: int,
        *,
        tpc: str | None = "",
        lines: Sequence[str] = (),
        env: dict[str, str] | None = None,
    ) -> tuple[Xrootd, list[Xrootd]]:
        """Start a redirector and ``count`` servers with empty folders. Return both."""
        whole = [*cluster_lines(), *lines]
        head, *data = [
            self.server(name, tpc=tpc, lines=whole, env=env)
            for name in ("head", *(f"data{number}" for number in range(count)))
        ]
        for server in (head, *data):
            server.start_manager()
        return head, data

    def await_found(self, head: Xrootd, path: str, seconds: float = 90) -> None:
        """Wait until the redirector ``head`` finds a file on one of its servers."""
        until = time.monotonic() + seconds
        while self.run("xrdfs", head.url, "stat", f"/{path}").code != 0:
            assert time.monotonic() < until, head.said()
            time.sleep(0.5)

    def begin(self, *words: Word, env: dict[str, str] | None = None) -> Process:
        """Start a client's command as ``USER``."""
        logs = self.folder / "clients"
        logs.mkdir(exist_ok=True)
        name = f"{len(self._clients):03}-{Path(os.fsdecode(words[0])).name}"
        home = {"HOME": str(self.folder), **PATIENCE, **(env or {})}
        process = Process(words, logs, name, env=home, wrap=as_user())
        self._clients.append(process)
        return process

    def run(self, *words: Word, env: dict[str, str] | None = None, seconds: float = 180) -> Ended:
        """Run a client's command as ``USER`` until it ends."""
        return self.begin(*words, env=env).wait(seconds)

    def xrdcp(self, *words: Word, env: dict[str, str] | None = None) -> Ended:
        """Run ``xrdcp`` without a progress bar."""
        return self.run("xrdcp", "--nopbar", *words, env=env)

    def close(self) -> None:
        """Kill all servers and clients."""
        for client in self._clients:
            client.kill()
        for server in self.servers:
            server.kill()


@dataclass
class Xrootd:
    """One XRootD server. Its folder contains its state and its data."""

    scene: Scene
    name: str
    tpc: str | None
    lines: list[str]
    env: dict[str, str]
    #: Path that clients may access. A change takes effect at the next start.
    exports: str = "/"
    #: Checksum algorithms; empty: none. A change takes effect at the next start.
    sums: str = "adler32 crc32c"

    def __post_init__(self) -> None:
        """Choose a port, and create the folders of the server."""
        self.port = free_port()
        self.state = self.scene.folder / self.name
        self.data = self.state / "data"
        self.admin = self.state / "admin"
        for folder in (self.state, self.data, self.admin):
            folder.mkdir()
            give(folder)
        self.starts = 0
        self.process: Process | None = None
        self.manager: Process | None = None
        self.config = self.state / "xrootd.cf"

    @property
    def program(self) -> Path:
        """The path of dray's program, which makes the third-party copies."""
        return self.scene.programs / PROGRAM

    @property
    def url(self) -> str:
        """The URL of the server, without a path."""
        return f"root://{HERE}:{self.port}"

    def at(self, path: str) -> str:
        """Return the URL of the server's file ``path``."""
        return f"{self.url}//{path.lstrip('/')}"

    def path(self, path: str) -> Path:
        """Return where the server's file ``path`` is on the disk."""
        return self.data / path.lstrip("/")

    def write_config(self) -> None:
        """Write the configuration file."""
        lines = usual_lines(self.port, self.admin, self.data, self.exports)
        if self.sums:
            lines.append(f"xrootd.chksum max 4 {self.sums}")
        if self.tpc is not None:
            what = self.tpc or f"pgm {self.program}"
            lines.append(f"ofs.tpc ttl 60 120 xfr 4 streams 0,8 echo logok {what}")
        self.config.write_text("\n".join([*lines, *self.lines, ""]), encoding="utf-8")

    def start(self) -> Xrootd:
        """Start or restart the server, and wait until it listens."""
        self.write_config()
        self.starts += 1
        env = {
            "LD_PRELOAD": str(self.scene.loopback),
            "HOME": str(self.state),
            **PATIENCE,
            **self.env,
        }
        words: list[Word] = ["xrootd", "-I", "v4", "-c", self.config, "-n", self.name]
        self.process = Process(
            words, self.state, f"server{self.starts:03}", env=env, cwd=self.state, wrap=as_user()
        )
        until = time.monotonic() + READY_SECONDS
        while not self._listens():
            assert self.process.is_running(), f"{self.name} ended:\n{self.said()}"
            assert time.monotonic() < until, f"{self.name} does not listen:\n{self.said()}"
            time.sleep(POLL_SECONDS)
        return self

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((HERE, self.port)) == 0

    def start_manager(self) -> None:
        """Start the server's ``cmsd``, which connects it to the other servers of a cluster."""
        words: list[Word] = ["cmsd", "-I", "v4", "-c", self.config, "-n", self.name]
        env = {"LD_PRELOAD": str(self.scene.loopback), "HOME": str(self.state), **self.env}
        self.manager = Process(
            words, self.state, f"cmsd{self.starts}", env=env, cwd=self.state, wrap=as_user()
        )

    def said(self) -> str:
        """Return the log of the server. It includes the messages of third-party copies."""
        logs = sorted(self.state.glob("server*.log"))
        return "".join(log.read_text(encoding="utf-8", errors="replace") for log in logs)

    def jobs(self) -> list[int]:
        """Return the ids of the running processes of third-party copies."""
        if self.process is None:
            return []
        task = Path(f"/proc/{self.process.pid}/task")
        found: list[int] = []
        try:
            for thread in task.iterdir():
                children = (thread / "children").read_text(encoding="ascii")
                found += [int(pid) for pid in children.split()]
        except OSError:
            pass
        return found

    def await_job(self, seconds: float = 30.0) -> int:
        """Wait until a third-party copy runs. Return the id of its process."""
        until = time.monotonic() + seconds
        while True:
            if jobs := self.jobs():
                return jobs[0]
            assert time.monotonic() < until, f"no third-party copy began:\n{self.said()}"
            time.sleep(POLL_SECONDS)

    def sent(self) -> int:
        """Return how many bytes the server has sent since its start."""
        output = self.scene.run("xrdfs", self.url, "query", "stats", "l").expect(0).out
        match = re.search(r"<out>(\d+)</out>", output)
        assert match, output
        return int(match[1])

    def kill(self) -> None:
        """Kill the server and its ``cmsd`` by SIGKILL."""
        for process in (self.manager, self.process):
            if process is not None and process.is_running():
                process.send(signal.SIGKILL)
                process.wait(20)

    def checksum(self, path: str, algorithm: str) -> str:
        """Ask the server for the checksum of a file. Return it in hexadecimal."""
        query = f"/{path.lstrip('/')}?cks.type={algorithm}"
        ended = self.scene.run("xrdfs", self.url, "query", "checksum", query).expect(0)
        name, value = ended.out.split()
        assert name == algorithm, ended.out
        return value


def copy_programs(to: Path, names: Sequence[str], beside: Path | None = None) -> None:
    """Copy built programs to a new folder that every user may read.

    :param beside: folder with the programs, by default the folder in which :func:`find` looks.
    """
    to.mkdir()
    to.chmod(0o755)
    for name in names:
        shutil.copy(beside / name if beside else find(name), to / name)
        (to / name).chmod(0o755)
