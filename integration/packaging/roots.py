"""Clean Debian systems in folders (chroots), in which the packages are installed and run."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

from integration.harness.program import ROOT

MIRROR = "http://deb.debian.org/debian"
#: Folder of the unchanged systems, from which each test gets a copy.
STORE = ROOT / ".tools" / "roots"
#: Prevents packages from starting their servers.
POLICY = "#!/bin/sh\nexit 101\n"
#: Mounts that programs in a system need. `{network}` prepares a network namespace.
ENTER = """\
set -e
{network}
mount -t proc proc '{root}/proc'
mount --bind /dev '{root}/dev'
exec chroot '{root}' "$@"
"""
#: A network without a way out. XRootD does not start without an interface beside the loopback.
OWN_NETWORK = """\
ip link set lo up
ip link add dray0 type veth peer name dray1
ip addr add 192.0.2.1/24 dev dray0
ip link set dray1 up
ip link set dray0 up
"""


def kill_tree(unshare: subprocess.Popen[bytes]) -> None:
    """Kill a process of :meth:`System.words`, and all processes in its system.

    The option ``--kill-child`` of ``unshare`` has no effect on a child that has changed its
    account, so this function kills the child too. The child is the first process of a PID
    namespace, so its end ends all other processes in the namespace.
    """
    children = Path(f"/proc/{unshare.pid}/task/{unshare.pid}/children").read_text(encoding="ascii")
    unshare.kill()
    for child in children.split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(child), signal.SIGKILL)
    unshare.wait(timeout=60)


@dataclass(frozen=True)
class System:
    """A Debian system in a folder."""

    path: Path

    def words(self, *words: str, own_network: bool = False) -> list[str]:
        """Return the words that run a command in the system, and kill its children when it ends."""
        network = OWN_NETWORK if own_network else ""
        spaces = ["--mount", "--pid", "--fork", "--kill-child"] + ["--net"] * own_network
        script = ENTER.format(network=network, root=self.path)
        return ["unshare", *spaces, "--", "sh", "-c", script, "sh", *words]

    def run(self, *words: str, own_network: bool = False) -> str:
        """Run a command in the system and return its output. Fails if the command fails."""
        ended = subprocess.run(
            self.words(*words, own_network=own_network),
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive"},
            timeout=500,
        )
        assert ended.returncode == 0, f"{words} ended with {ended.returncode}:\n{ended.stdout}"
        return ended.stdout

    def as_dray(self, *words: str) -> str:
        """Run a command in the system as the account `dray`, and return its output."""
        return self.run("setpriv", "--reuid=dray", "--regid=dray", "--clear-groups", "--", *words)

    def install(self, *packages: str) -> None:
        """Install packages, and the packages that they need."""
        apt = ["apt-get", "-q", "-o", "Acquire::Check-Valid-Until=false"]
        self.run(*apt, "update")
        self.run(*apt, "install", "-y", "--no-install-recommends", *packages)

    def files(self) -> set[str]:
        """Return the paths of all files and folders, without the state and logs of apt and dpkg."""
        noise = ("var/cache", "var/lib/apt", "var/lib/dpkg", "var/log/apt", "proc", "dev", "tmp")
        paths = {str(path.relative_to(self.path)) for path in self.path.rglob("*")}
        return {path for path in paths if not path.startswith(noise)}


def debian(suite: str, folder: Path, *, newer: str | None = None) -> System:
    """Make a clean Debian system in a folder.

    :param suite: name of a release for which debootstrap has a script.
    :param newer: name of a newer release whose packages can be installed too.
    """
    stored = STORE / suite
    if not stored.exists():
        unfinished = STORE / f"{suite}.new"
        shutil.rmtree(unfinished, ignore_errors=True)
        STORE.mkdir(parents=True, exist_ok=True)
        words = ["debootstrap", "--variant=minbase", suite, str(unfinished), MIRROR]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, timeout=500)
        unfinished.rename(stored)
    path = folder / suite
    subprocess.run(["cp", "-a", str(stored), str(path)], check=True, timeout=200)
    policy = path / "usr" / "sbin" / "policy-rc.d"
    policy.write_text(POLICY, encoding="utf-8")
    policy.chmod(0o755)
    shutil.copy("/etc/resolv.conf", path / "etc" / "resolv.conf")
    # XRootD does not start if the name of the host has no address.
    hosts = f"127.0.0.1 localhost\n192.0.2.1 {socket.gethostname()}\n"
    (path / "etc" / "hosts").write_text(hosts, encoding="utf-8")
    if newer is not None:
        sources = path / "etc" / "apt" / "sources.list.d" / "newer.list"
        sources.write_text(f"deb {MIRROR} {newer} main\n", encoding="utf-8")
    return System(path)
