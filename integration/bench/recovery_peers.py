"""Other movers that are killed and continue: rsync, xrdcp, bbcp and globus-url-copy."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from abc import abstractmethod
from typing import TYPE_CHECKING

from integration.bench import account, machine
from integration.bench.recovery_movers import Restarted, Scene
from integration.bench.tools import NOBODY, PATH
from integration.harness.program import Process
from integration.harness.services import await_port
from integration.xrootd.servers import PATIENCE, usual_lines

if TYPE_CHECKING:
    from pathlib import Path

    from integration.bench.recovery_movers import Mover
    from integration.harness.program import Word

HERE = "127.0.0.1"
#: Number of parallel transfers or connections, if the tool has such an option.
PARALLEL = 4


def kill_all(process: Process) -> None:
    """Kill a process and all its descendants."""
    # Not by a process group: a new session would have its own share of a busy host's processors.
    others = account.below(process.pid) if process.is_running() else set()
    process.kill()
    for pid in others:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class Peer(Restarted):
    """A tool whose client is one side of the copy. The other side is a server, if there is one."""

    name = ""
    title = ""
    needs: tuple[str, ...] = ()
    sides: tuple[str, ...] = ("source", "sink")
    #: Side of the client.
    client_side = "source"
    #: Additional options of the client.
    more: tuple[str, ...] = ()

    @property
    def whole(self) -> str:
        """Return the name of the mover whose copies without a fault are the reference."""
        return self.name

    def missing(self) -> str:
        """Return which program of the tool is missing, or an empty text."""
        absent = [name for name in self.needs if shutil.which(name, path=PATH) is None]
        return f"not installed: {', '.join(absent)}" if absent else ""

    def open(self, scene: Scene) -> None:
        """Make the destination, and start the server."""
        super().__init__()
        self.scene = scene
        self.folder = scene.folder / self.name
        self.sink = self.folder / "sink"
        self.sink.mkdir(parents=True)
        self.port = machine.free_port()
        self.servers = 0
        self.server: Process | None = None
        self._serve()

    def server_words(self) -> list[Word]:
        """Return the command of the server. Without a server, an empty list."""
        return []

    @abstractmethod
    def client_words(self) -> list[Word]:
        """Return the command of the client."""

    def env(self) -> dict[str, str]:
        """Return additional environment variables of server and client."""
        return {"PATH": PATH}

    def _serve(self) -> None:
        words = self.server_words()
        if not words:
            return
        self.servers += 1
        server = Process(words, self.folder, f"server-{self.servers}", env=self.env())
        self.server = server
        if not await_port(self.port, server.is_running):
            raise RuntimeError(f"the server of {self.name} does not listen")

    def launch(self) -> Process:
        """Start the client."""
        return Process(
            self.client_words(),
            self.folder,
            f"client-{self.starts}",
            env=self.env(),
        )

    def kill(self, side: str) -> None:
        """Kill the processes of one side."""
        if side == self.client_side:
            if self.client is not None:
                kill_all(self.client)
            self.client = None
        elif self.server is not None:
            kill_all(self.server)
            self.server = None

    def mend(self, side: str) -> dict[str, float]:
        """Do nothing."""
        del side
        return {}

    def resume(self, side: str) -> None:
        """Start the killed side again."""
        if side == self.client_side:
            self.start()
        else:
            self._serve()

    def close(self) -> None:
        """Kill all processes, and remove all files."""
        for process in (self.client, self.server):
            if process is not None:
                kill_all(process)
        shutil.rmtree(self.folder, ignore_errors=True)


def as_nobody(*folders: Path) -> list[Word]:
    """Give folders to a user that is not root. Return the prefix of a command of this user."""
    if os.geteuid() != 0:
        return []
    for folder in folders:
        folder.mkdir(exist_ok=True)
        os.chown(folder, NOBODY, NOBODY)
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]


class Rsync(Peer):
    """A push to a daemon. A file that continues is read again at both ends."""

    name = "rsync"
    title = "rsync --append-verify"
    needs = ("rsync",)

    def server_words(self) -> list[Word]:
        """Return the command of the daemon."""
        lines = [f"address = {HERE}", f"port = {self.port}", "reverse lookup = no"]
        lines += ["use chroot = no", *(["uid = 0", "gid = 0"] if os.geteuid() == 0 else [])]
        lines += ["[sink]", f"path = {self.sink}", "read only = no"]
        config = self.folder / "rsyncd.conf"
        config.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return ["rsync", "--daemon", "--no-detach", f"--config={config}"]

    def client_words(self) -> list[Word]:
        """Return the command of the client."""
        far = f"rsync://{HERE}:{self.port}/sink/"
        return ["rsync", "-a", "--append-verify", *self.more, self.scene.data, far]


class SyncedRsync(Rsync):
    """The same push. The daemon syncs each file at its end."""

    name = "rsync-fsync"
    title = "rsync --append-verify --fsync"
    more = ("--fsync",)


class Xrdcp(Peer):
    """A download, because xrdcp continues no upload. The client is the sink."""

    name = "xrdcp"
    title = "xrdcp --continue"
    needs = ("xrootd", "xrdcp")
    client_side = "sink"

    def server_words(self) -> list[Word]:
        """Return the command of the server, which exports the folder of the set."""
        state = self.folder / "xrootd"
        user = as_nobody(state)
        config = self.folder / "xrootd.cf"
        lines = usual_lines(self.port, state, self.scene.data.parent)
        config.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return [*user, "xrootd", "-I", "v4", "-c", config, "-n", "xrootd"]

    def env(self) -> dict[str, str]:
        """Return short time limits, so that the client notices a killed server soon."""
        return {**super().env(), **PATIENCE}

    def client_words(self) -> list[Word]:
        """Return the command of the client."""
        words: list[Word] = ["xrdcp", "--nopbar", "--recursive"]
        if self.starts > 1:
            # With --continue, xrdcp opens only files that exist, and creates no folder.
            self._make_missing()
            words.append("--continue")
        words += ["--parallel", str(PARALLEL), f"root://{HERE}:{self.port}//data"]
        return [*words, f"{self.sink}/"]

    def _make_missing(self) -> None:
        for folder in self.scene.data.iterdir():
            there = self.sink / "data" / folder.name
            there.mkdir(parents=True, exist_ok=True)
            for path in folder.iterdir():
                (there / path.name).touch()


class Globus(Peer):
    """A push to a GridFTP server. Only a client that lives has restart markers."""

    name = "globus-url-copy"
    title = "globus-url-copy -rst"
    needs = ("globus-gridftp-server", "globus-url-copy")

    def server_words(self) -> list[Word]:
        """Return the command of the server."""
        home = self.folder / "home"
        user = as_nobody(home, self.sink)
        words: list[Word] = [*user, "globus-gridftp-server", "-aa", "-p", str(self.port)]
        words += ["-control-interface", HERE, "-data-interface", HERE]
        return [*words, "-log-level", "ERROR"]

    def env(self) -> dict[str, str]:
        """Return the home of the server, and the ports of data connections."""
        home = self.folder / "home"
        return {**super().env(), "HOME": str(home), "GLOBUS_TCP_PORT_RANGE": "30000,31999"}

    def client_words(self) -> list[Word]:
        """Return the command of the client."""
        words: list[Word] = ["globus-url-copy", "-fast", "-p", str(PARALLEL), "-cc", str(PARALLEL)]
        words += ["-r", "-cd", "-rst", "-rst-interval", "1", "-rst-retries", "20"]
        far = f"ftp://{HERE}:{self.port}{self.sink}/data/"
        return [*words, f"file://{self.scene.data}/", far]


class Bbcp(Peer):
    """bbcp with the options of the paper: 2 streams with windows of 8 MB (section VI-D).

    Without ssh, the client starts both ends on this host, so one kill ends all of them.
    """

    name = "bbcp"
    title = "bbcp -a"
    sides: tuple[str, ...] = ("source",)

    @staticmethod
    def program() -> str:
        """Return the path of the program: ``DRAY_BBCP``, else the one on the path."""
        return os.environ.get("DRAY_BBCP") or shutil.which("bbcp", path=PATH) or ""

    def missing(self) -> str:
        """Return how the program could be had, or an empty text."""
        if self.program():
            return ""
        return "bbcp is in no package registry: build it, and name it by DRAY_BBCP"

    def env(self) -> dict[str, str]:
        """Return a home for the checkpoints."""
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        return {**super().env(), "HOME": str(home)}

    def client_words(self) -> list[Word]:
        """Return the command of the client."""
        program = self.program()
        words: list[Word] = [program, "-S", program, "-T", program, "-n", "-Z", "31000:31999"]
        words += ["-a", self.folder / "home", "-k", "-s", "2", "-w", "8m", "-r"]
        return [*words, *self.more, self.scene.data, f"{HERE}:{self.sink}"]


class SyncedBbcp(Bbcp):
    """The same copy. The sink syncs each file at its end."""

    name = "bbcp-fsync"
    title = "bbcp -a -y d"
    more = ("-y", "d")


def peers() -> list[Mover]:
    """List the other tools."""
    return [Rsync(), SyncedRsync(), Xrdcp(), Globus(), Bbcp(), SyncedBbcp()]
