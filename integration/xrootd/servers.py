"""Real XRootD servers on the loopback, started as an ordinary user, and their stock clients."""

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
#: An ordinary user of every host, because XRootD's server refuses to run as root.
USER = "nobody"
READY_SECONDS = 30.0
POLL_SECONDS = 0.02
#: Variables with which a client without a server gives up after seconds, and not after four times
#: 120 seconds.
PATIENCE = {
    "XRD_CONNECTIONRETRY": "1",
    "XRD_CONNECTIONWINDOW": "5",
    "XRD_STREAMTIMEOUT": "30",
    "XRD_REQUESTTIMEOUT": "120",
}
#: Program and library that ``make build-xrootd`` builds.
PROGRAM = "dray-xrootd-tpc"
SHIM = "libdray-xrdcl.so"


def built() -> Path:
    """Return the folder of the release programs, which ``make build-xrootd`` fills."""
    return Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "engine" / "target") / "release"


def find(name: str) -> Path:
    """Find a file that was built for XRootD.

    :raises FileNotFoundError: if it was not built.
    """
    path = built() / name
    if not path.exists():
        raise FileNotFoundError(f"no {path}; build it first: make build-xrootd")
    return path


def exported(name: str) -> set[str]:
    """List the exported names of a library of dray."""
    words: list[Word] = ["nm", "-D", "--defined-only", find(name)]
    ended = subprocess.run(words, check=True, capture_output=True, text=True, timeout=60)
    return {line.split()[-1] for line in ended.stdout.splitlines()}


def compile_loopback(folder: Path) -> Path:
    """Compile the library that keeps servers on the loopback."""
    library = folder / "loopback.so"
    source = Path(__file__).parent / "loopback.c"
    words: list[Word] = ["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"]
    subprocess.run(words, check=True, capture_output=True, timeout=60)
    return library


def as_user() -> list[str]:
    """Return a command prefix that runs as an ordinary user."""
    if not is_root():
        return []
    return ["setpriv", f"--reuid={USER}", f"--regid={_gid()}", "--clear-groups", "--"]


def _gid() -> int:
    return pwd.getpwnam(USER).pw_gid


def give(path: Path) -> None:
    """Give a file or folder to the servers' user."""
    if is_root():
        os.chown(path, pwd.getpwnam(USER).pw_uid, _gid())


def usual_lines(port: int, state: Path, root: Path, exports: str = "/") -> list[str]:
    """Return the first lines of every server's configuration.

    :param state: the server's own folder.
    :param root: the folder that it exports.
    :param exports: the path in ``root`` that clients may access.
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
    """Return configuration lines for a cluster, whose redirector is the server ``head``."""
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
    """A folder with servers, and with the output of clients."""

    folder: Path
    loopback: Path
    #: Folder with copies of the servers' programs, which the servers' user may read.
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
        """Add a server, and start the server if ``start`` is true.

        :param tpc: arguments of ``ofs.tpc`` after the usual arguments (``pgm ...`` last). None
            disables third-party copies. With an empty text, dray's program makes the copies.
        :param lines: more lines of the server's configuration.
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
        """Start a redirector and this many servers, with empty folders."""
        whole = [*cluster_lines(), *lines]
        head, *data = [
            self.server(name, tpc=tpc, lines=whole, env=env)
            for name in ("head", *(f"data{number}" for number in range(count)))
        ]
        for server in (head, *data):
            server.start_manager()
        return head, data

    def await_found(self, head: Xrootd, path: str, seconds: float = 90) -> None:
        """Wait until a redirector finds a file of its servers."""
        until = time.monotonic() + seconds
        while self.run("xrdfs", head.url, "stat", f"/{path}").code != 0:
            assert time.monotonic() < until, head.said()
            time.sleep(0.5)

    def begin(self, *words: Word, env: dict[str, str] | None = None) -> Process:
        """Start a client's command, as the same ordinary user."""
        logs = self.folder / "clients"
        logs.mkdir(exist_ok=True)
        name = f"{len(self._clients):03}-{Path(os.fsdecode(words[0])).name}"
        home = {"HOME": str(self.folder), **PATIENCE, **(env or {})}
        process = Process(words, logs, name, env=home, wrap=as_user())
        self._clients.append(process)
        return process

    def run(self, *words: Word, env: dict[str, str] | None = None, seconds: float = 180) -> Ended:
        """Run a client's command to its end."""
        return self.begin(*words, env=env).wait(seconds)

    def xrdcp(self, *words: Word, env: dict[str, str] | None = None) -> Ended:
        """Run the stock client without a progress bar."""
        return self.run("xrdcp", "--nopbar", *words, env=env)

    def close(self) -> None:
        """End all processes that were started here."""
        for client in self._clients:
            client.kill()
        for server in self.servers:
            server.kill()


@dataclass
class Xrootd:
    """One XRootD server with its state and data in one folder."""

    scene: Scene
    name: str
    tpc: str | None
    lines: list[str]
    env: dict[str, str]
    #: Path that clients may access. A change is effective at the next start of the server.
    exports: str = "/"
    #: Checksum algorithms of the server. Empty means none. A change is effective at the next start.
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
        """Path of dray's program, which makes the third-party copies of this server."""
        return self.scene.programs / PROGRAM

    @property
    def url(self) -> str:
        """URL of the server, without a path."""
        return f"root://{HERE}:{self.port}"

    def at(self, path: str) -> str:
        """Return the URL of a path."""
        return f"{self.url}//{path.lstrip('/')}"

    def path(self, path: str) -> Path:
        """Return the file of a path."""
        return self.data / path.lstrip("/")

    def write_config(self) -> None:
        """Write the configuration file of the server."""
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
        """Start the ``cmsd`` process of the server, which connects the servers of a cluster."""
        words: list[Word] = ["cmsd", "-I", "v4", "-c", self.config, "-n", self.name]
        env = {"LD_PRELOAD": str(self.scene.loopback), "HOME": str(self.state), **self.env}
        self.manager = Process(
            words, self.state, f"cmsd{self.starts}", env=env, cwd=self.state, wrap=as_user()
        )

    def said(self) -> str:
        """Return the log of the server, which includes messages of its third-party copies."""
        logs = sorted(self.state.glob("server*.log"))
        return "".join(log.read_text(encoding="utf-8", errors="replace") for log in logs)

    def jobs(self) -> list[int]:
        """List the processes that run third-party copies of this server."""
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
        """Wait until a third-party copy runs; return its process."""
        until = time.monotonic() + seconds
        while True:
            if jobs := self.jobs():
                return jobs[0]
            assert time.monotonic() < until, f"no third-party copy began:\n{self.said()}"
            time.sleep(POLL_SECONDS)

    def sent(self) -> int:
        """Return the number of bytes that the server has sent since its start."""
        output = self.scene.run("xrdfs", self.url, "query", "stats", "l").expect(0).out
        match = re.search(r"<out>(\d+)</out>", output)
        assert match, output
        return int(match[1])

    def kill(self) -> None:
        """Kill the processes of the server by SIGKILL."""
        for process in (self.manager, self.process):
            if process is not None and process.is_running():
                process.send(signal.SIGKILL)
                process.wait(20)

    def checksum(self, path: str, algorithm: str) -> str:
        """Request a checksum from the server by the stock client; return it in hexadecimal."""
        query = f"/{path.lstrip('/')}?cks.type={algorithm}"
        ended = self.scene.run("xrdfs", self.url, "query", "checksum", query).expect(0)
        name, value = ended.out.split()
        assert name == algorithm, ended.out
        return value


def copy_programs(to: Path, names: Sequence[str], beside: Path | None = None) -> None:
    """Copy built programs to a folder that every user may use.

    :param beside: folder of the programs, if it is not the folder of ``make``.
    """
    to.mkdir()
    to.chmod(0o755)
    for name in names:
        shutil.copy(beside / name if beside else find(name), to / name)
        (to / name).chmod(0o755)
