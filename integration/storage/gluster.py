"""A real GlusterFS for tests: a management daemon and bricks in a network namespace.

GlusterFS refuses addresses in 127.0.0.0/8, so the loopback device of the namespace gets another
address, ``HOST``. All files of GlusterFS are in one folder. Only root can start this GlusterFS.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from integration.harness import tree

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["SHARDED", "SHARD_BYTES", "Gluster", "Volume", "make_files", "name_of", "reason"]

HOST = "10.77.4.1"
READY_SECONDS = 30.0
FILES = 24
FILE_BYTES = 3 * tree.MIB + 17
SHARD_BYTES = 4 * tree.MIB
#: Options of a volume that splits files into blocks of ``SHARD_BYTES``.
SHARDED = (("features.shard", "on"), ("features.shard-block-size", "4MB"))

VOLFILE = """\
volume management
    type mgmt/glusterd
    option working-directory {folder}/work
    option run-directory {folder}/run
    option transport-type socket
    option transport.socket.bind-address {host}
    option transport.socket.listen-port 24007
    option transport.address-family inet
    option glusterd-sockfile {folder}/glusterd.sock
end-volume
"""


def reason() -> str:
    """Return why this host cannot run GlusterFS. An empty text: it can."""
    if os.geteuid() != 0:
        return "only root can mount"
    programs = ("glusterd", "gluster", "mount.glusterfs", "ip", "nsenter")
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    missing = [program for program in programs if not shutil.which(program, path=path)]
    if missing:
        return f"not installed: {' '.join(missing)} (Debian: glusterfs-server)"
    if not Path("/dev/fuse").exists():
        return "no /dev/fuse"
    return ""


def name_of(number: int) -> str:
    """Return a hashed name: GlusterFS would put files with similar names on the same brick."""
    return hashlib.sha256(str(number).encode()).hexdigest()[:12]


def make_files(top: Path, count: int = FILES, size: int = FILE_BYTES) -> None:
    """Make ``count`` files of ``size`` bytes."""
    top.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        tree.make_file(top / name_of(number), size, seed=number)


def run(*words: str | Path) -> str:
    """Run a command, and return its output. Raise ``OSError`` if the command fails."""
    done = subprocess.run(
        [str(word) for word in words], check=False, capture_output=True, text=True, timeout=120
    )
    if done.returncode != 0:
        said = f"{done.stdout.strip()} {done.stderr.strip()}"
        raise OSError(f"{' '.join(map(str, words))} ended with {done.returncode}: {said}")
    return done.stdout.strip()


@dataclass(frozen=True)
class Volume:
    """A started and mounted volume."""

    name: str
    #: Mount point.
    folder: Path
    #: Folders of the bricks.
    bricks: list[Path]

    @property
    def source(self) -> str:
        """The source of the mount: the host and the volume."""
        return f"{HOST}:/{self.name}"

    def target(self, brick: int) -> str:
        """Return the name of the storage target that dray derives from a brick."""
        return f"{os.uname().nodename}:{self.bricks[brick]}"


class Gluster:
    """The management daemon of GlusterFS, and its volumes."""

    def __init__(self, folder: Path) -> None:
        """Make the subfolders of ``folder``."""
        self.folder = folder
        self.space = f"dray-gl-{os.getpid()}"
        self._mounts: list[Path] = []
        for name in ("work", "run", "log", "bricks", "mounts"):
            (folder / name).mkdir()

    def start(self) -> Gluster:
        """Create the namespace, start the daemon, and wait until it answers."""
        run("ip", "netns", "add", self.space)
        run("ip", "-n", self.space, "link", "set", "lo", "up")
        run("ip", "-n", self.space, "addr", "add", f"{HOST}/32", "dev", "lo")
        volfile = self.folder / "glusterd.vol"
        volfile.write_text(VOLFILE.format(folder=self.folder, host=HOST), encoding="utf-8")
        log, pid = self.folder / "log" / "glusterd.log", self.folder / "glusterd.pid"
        self._inside("glusterd", "-f", volfile, "-l", log, "-p", pid)
        deadline = time.monotonic() + READY_SECONDS
        while True:
            try:
                self._gluster("pool", "list")
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
            else:
                return self

    def volume(
        self,
        name: str,
        bricks: list[Path] | None = None,
        layout: tuple[str, ...] = (),
        options: tuple[tuple[str, str], ...] = (),
    ) -> Volume:
        """Create, start and mount a volume. By default, it has bricks in three new folders."""
        if bricks is None:
            bricks = [self.folder / "bricks" / f"{name}{number}" for number in range(3)]
        places = [f"{HOST}:{brick}" for brick in bricks]
        self._gluster("volume", "create", name, *layout, *places, "force")
        # GlusterFS puts no new files on a brick with less free space than min-free-disk. By
        # default this is 10 %, which may exclude all bricks of a test host.
        for key, value in (("cluster.min-free-disk", "1%"), *options):
            self._gluster("volume", "set", name, key, value)
        self._gluster("volume", "start", name)
        folder = self.folder / "mounts" / name
        folder.mkdir()
        log = self.folder / "log" / f"mount-{name}.log"
        self._inside("mount", "-t", "glusterfs", "-o", f"log-file={log}", f"{HOST}:/{name}", folder)
        self._mounts.append(folder)
        volume = Volume(name, folder, bricks)
        _await_bricks(volume)
        return volume

    def kill_brick(self, volume: Volume, brick: int) -> None:
        """Kill the process of a brick."""
        name = b"\0--brick-name\0%b\0" % bytes(volume.bricks[brick])
        found = [pid for pid in self._processes() if name in _command_line(pid)]
        assert len(found) == 1, f"the processes of brick {brick} are {found}"
        os.kill(found[0], signal.SIGKILL)
        _await_ends(found)

    def revive_bricks(self, volume: Volume) -> None:
        """Start the killed bricks of a volume, and wait until the mount is connected to them."""
        self._gluster("volume", "start", volume.name, "force")
        _await_bricks(volume)

    @contextlib.contextmanager
    def stopped_mount(self, volume: Volume) -> Iterator[None]:
        """Stop the client of a mount during the block, so that each call to the mount waits."""
        found = [
            int(entry.name)
            for entry in Path("/proc").iterdir()
            if entry.name.isdigit() and _is_client(int(entry.name), volume)
        ]
        assert len(found) == 1, f"the clients of the mount are {found}"
        os.kill(found[0], signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(found[0], signal.SIGCONT)

    def remove(self, volume: Volume) -> None:
        """Unmount a volume, and stop its bricks."""
        run("umount", "--lazy", volume.folder)
        self._mounts.remove(volume.folder)
        self._gluster("volume", "stop", volume.name, "force")

    def _inside(self, *words: str | Path) -> str:
        # `ip netns exec` would also enter a mount namespace. Other processes would not see a mount.
        return run("nsenter", f"--net=/run/netns/{self.space}", *words)

    def _gluster(self, *words: str | Path) -> str:
        socket = f"--glusterd-sock={self.folder}/glusterd.sock"
        return self._inside("gluster", "--mode=script", socket, *words)

    def _processes(self) -> Iterator[int]:
        """Return the ids of the daemon and of the processes that it has started."""
        for file in [self.folder / "glusterd.pid", *(self.folder / "run").rglob("*.pid")]:
            with contextlib.suppress(OSError, ValueError):
                pid = int(file.read_text(encoding="utf-8"))
                if bytes(self.folder) in _command_line(pid):
                    yield pid

    def close(self) -> None:
        """Unmount the volumes, kill the daemon and the bricks, and remove the namespace."""
        for folder in self._mounts:
            with contextlib.suppress(OSError):
                run("umount", "--lazy", folder)
        pids = list(self._processes())
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _await_ends(pids)
        with contextlib.suppress(OSError):
            run("ip", "netns", "delete", self.space)


def _command_line(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def _is_client(pid: int, volume: Volume) -> bool:
    """Return whether a process is the client of a volume's mount."""
    try:
        words = _command_line(pid).split(b"\0")
    except OSError:
        return False
    return words[0].endswith(b"glusterfs") and bytes(volume.folder) in words


def _await_ends(pids: list[int]) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)


def _await_bricks(volume: Volume) -> None:
    """Wait until the mount is connected to all bricks.

    If a folder is made earlier, a brick that connects later gets none of the folder's files.
    """
    deadline = time.monotonic() + READY_SECONDS
    while True:
        # The attribute is missing while no brick is connected.
        with contextlib.suppress(OSError):
            places = os.getxattr(volume.folder, "glusterfs.pathinfo")
            if places.count(b"<POSIX(") == len(volume.bricks):
                return
        if time.monotonic() > deadline:
            raise TimeoutError(f"not all bricks of {volume.name} are connected")
        time.sleep(0.1)
