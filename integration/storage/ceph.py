"""A small Ceph cluster: one monitor, one manager and three OSDs, by default on one host.

All files of the cluster are in one folder. The daemons end when the process that has started them
ends.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from integration.harness.airflow import free_port
from integration.storage.asker import Asker, is_installed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from integration.harness.program import Word

HERE = "127.0.0.1"
READY_SECONDS = 90.0
#: Required programs, from Debian's packages ceph-mon, ceph-mgr, ceph-osd and ceph-common.
PROGRAMS = ("ceph-mon", "ceph-mgr", "ceph-osd", "ceph-authtool", "monmaptool", "rados")
#: Ports of the OSDs (four each) and of the manager (two). A daemon skips a port that is in use.
PORTS = (18000, 18999)
MIB = 1 << 20
#: Return codes of a crashed program, and the maximum number of runs of a program that crashes.
CRASHES = (-signal.SIGSEGV, -signal.SIGABRT)
CRASHES_MAX = 4


def find_missing() -> str:
    """Return why this host cannot run a cluster. An empty text: it can."""
    missing = [each for each in PROGRAMS if shutil.which(each) is None]
    if missing:
        return f"no Ceph on this host: {', '.join(missing)} missing (tools/bootstrap.sh test)"
    return "" if is_installed() else "no python3-rados on this host (tools/bootstrap.sh test)"


@dataclass
class Cluster:
    """A Ceph cluster, and the commands to it."""

    folder: Path
    #: Store of the OSDs. ``memstore`` keeps the data in memory, and loses it when an OSD restarts.
    store: str = "memstore"
    #: Authentication: ``none`` or ``cephx``.
    auth: str = "none"
    osds: int = 3
    #: Size of an OSD in bytes.
    osd_bytes: int = 6 << 30
    #: False: no manager, and so no statistics, no quotas and no ``pg dump``.
    has_manager: bool = True
    #: Address of all daemons.
    host: str = HERE
    #: Words before the command of each daemon. For example, they enter a network namespace.
    wrap: Sequence[str] = ()
    #: Additional lines in the section ``[global]`` of the configuration.
    lines: Sequence[str] = ()
    _daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _asker: Asker | None = None

    def __post_init__(self) -> None:
        """Choose the port and the ``fsid`` of the cluster."""
        self.port = free_port()
        self.fsid = str(uuid.uuid4())
        #: Path of the configuration file of the daemons and clients.
        self.configuration = self.folder / "ceph.conf"
        self.keyring = self.folder / "keyring"

    # ---- start and stop ----------------------------------------------------------------------

    def start(self) -> Cluster:
        """Start the cluster, and wait until its OSDs are up."""
        for name in ("mon.a", "mgr.x", "log", *(f"osd.{number}" for number in range(self.osds))):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self.configuration.write_text(self._configuration(), encoding="utf-8")
        self._make_monitor()
        self.start_monitor()
        if self.has_manager:
            self.make_user("mgr.x", "mon allow profile mgr", "osd allow *", at="mgr.x/keyring")
            self._begin("mgr.x", "ceph-mgr", "-i", "x")
        made = [self._make_osd(number) for number in range(self.osds)]
        for number, each in enumerate(made):
            output, _ = each.communicate(timeout=READY_SECONDS)
            if each.returncode != 0:
                raise RuntimeError(f"ceph-osd --mkfs fails:\n{output.decode(errors='replace')}")
            self.begin_osd(number)
        self.await_up(self.osds)
        return self

    def close(self) -> None:
        """Kill all processes of the cluster."""
        if self._asker is not None:
            self._asker.close()
            self._asker = None
        for daemon in self._daemons.values():
            daemon.kill()
        for daemon in self._daemons.values():
            daemon.wait()
        self._daemons.clear()

    def _configuration(self) -> str:
        return CONFIGURATION.format(
            cluster=self,
            folder=self.folder,
            first=PORTS[0],
            last=PORTS[1],
            lines="\n".join(self.lines),
        )

    def _make_monitor(self) -> None:
        keyring, monmap = self.keyring, self.folder / "monmap"
        make: list[Word] = ["ceph-authtool", "--gen-key"]
        _run(*make, "--create-keyring", "--name=mon.", "--cap", "mon", "allow *", keyring)
        everything = [word for each in ("mon", "osd", "mgr") for word in ("--cap", each, "allow *")]
        _run(*make, "--name=client.admin", *everything, keyring)
        address = f"[v2:{self.host}:{self.port}]"
        _run("monmaptool", "--create", "--fsid", self.fsid, "--addv", "a", address, monmap)
        words: list[Word] = ["--mkfs", "-i", "a", "--monmap", monmap, "--keyring", keyring]
        _run("ceph-mon", "-c", self.configuration, *words)

    def start_monitor(self) -> None:
        """Start or restart the monitor, and connect to it."""
        self._begin("mon.a", "ceph-mon", "-i", "a")
        if self._asker is None:
            self._asker = Asker(self.configuration)
        self.mon("osd stat")

    def _make_osd(self, number: int) -> subprocess.Popen[bytes]:
        """Begin to make the folder of an OSD. Return the process, which is slow for bluestore."""
        identity = str(uuid.uuid4())
        words: list[Word] = ["ceph-osd", "-c", self.configuration, "-i", str(number), "--mkfs"]
        words += ["--osd-uuid", identity]
        everything = ("mon allow *", "osd allow *", "mgr allow *")
        self.make_user(f"osd.{number}", *everything, at=f"osd.{number}/keyring")
        assert self.mon("osd new", uuid=identity)["osdid"] == number
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def begin_osd(self, number: int) -> None:
        """Start or restart an OSD."""
        self._begin(f"osd.{number}", "ceph-osd", "-i", str(number))

    def _begin(self, name: str, *words: Word) -> None:
        # ``setpriv`` asks the kernel to kill the daemon when this process ends.
        wrap = [*self.wrap, "setpriv", "--pdeathsig", "KILL", "--"]
        whole: list[Word] = [*wrap, *words, "-c", self.configuration, "-f"]
        with (self.folder / "log" / f"{name}.out").open("ab") as out:
            self._daemons[name] = subprocess.Popen(
                whole, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )

    # ---- commands ----------------------------------------------------------------------------

    def mon(self, prefix: str, **words: object) -> Any:  # noqa: ANN401 - JSON
        """Send a command to the monitor."""
        assert self._asker is not None
        return self._asker.ask(to="mon", prefix=prefix, **words)

    def manager(self, prefix: str, **words: object) -> Any:  # noqa: ANN401 - JSON
        """Send a command to the manager."""
        assert self._asker is not None
        return self._asker.ask(to="mgr", prefix=prefix, **words)

    def set_osd(self, number: int, key: str, value: str) -> None:
        """Change a setting of a running OSD."""
        assert self._asker is not None
        self._asker.ask(to="osd", osd=number, prefix="config set", var=key, val=[value])

    def map(self, pool: str, names: list[str], namespace: str = "") -> list[dict[str, Any]]:
        """Return for each name the cluster's answer to ``osd map``: where the object is."""
        assert self._asker is not None
        found: list[dict[str, Any]] = self._asker.ask(
            to="map", pool=pool, names=names, namespace=namespace
        )
        return found

    def names(self, pool: str, namespace: str = "") -> list[str]:
        """Return the names of all objects of a namespace."""
        assert self._asker is not None
        found: list[str] = self._asker.ask(to="names", pool=pool, namespace=namespace)
        return found

    def attributes(self, pool: str, name: str, namespace: str = "") -> dict[str, str]:
        """Return the extended attributes of an object."""
        assert self._asker is not None
        found: dict[str, str] = self._asker.ask(
            to="attributes", pool=pool, name=name, namespace=namespace
        )
        return found

    def write(self, pool: str, name: str, text: str, namespace: str = "") -> None:
        """Write an object."""
        assert self._asker is not None
        self._asker.ask(to="write", pool=pool, name=name, text=text, namespace=namespace)

    def read(self, pool: str, name: str, size: int, namespace: str = "") -> str:
        """Read at most ``size`` bytes from the start of an object."""
        assert self._asker is not None
        words: dict[str, Any] = {"bytes": size, "namespace": namespace}
        return str(self._asker.ask(to="read", pool=pool, name=name, **words))

    def remove(self, pool: str, name: str, namespace: str = "") -> None:
        """Remove an object."""
        assert self._asker is not None
        self._asker.ask(to="remove", pool=pool, name=name, namespace=namespace)

    def age(self, pool: str, seconds: int, namespace: str = "", without: str = "") -> int:
        """Set the times of a namespace's objects to ``seconds`` ago. Return their number.

        :param without: prefix of the names of objects whose time is not changed.
        """
        assert self._asker is not None
        words: dict[str, Any] = {"seconds": seconds, "namespace": namespace, "without": without}
        return int(self._asker.ask(to="age", pool=pool, **words))

    def rados(self, *words: Word, seconds: float = 120) -> subprocess.CompletedProcess[str]:
        """Run Ceph's program ``rados``, again if it crashes.

        With ``--striper``, Ceph 16 can crash after it has completed the command: if the last
        reference to the cluster is released in a callback of librados, the thread of the callback
        shuts librados down while the main thread exits.
        """
        whole: list[Word] = ["rados", "-c", self.configuration, *words]
        for _ in range(CRASHES_MAX):
            ended = subprocess.run(
                whole, check=False, capture_output=True, text=True, timeout=seconds
            )
            if ended.returncode not in CRASHES:
                break
        return ended

    # ---- pools -------------------------------------------------------------------------------

    def make_pool(self, name: str, pgs: int = 32, size: int = 1) -> None:
        """Create a pool, and wait until its placement groups are active."""
        self.mon("osd pool create", pool=name, pg_num=pgs, pgp_num=pgs)
        if size != 1:
            self.mon("osd pool set", pool=name, var="size", val=str(size))
        self.mon("osd pool application enable", pool=name, app="rados")
        # Write to the pool: a write waits until its placement group is active.
        for number in range(4):
            self.write(name, f"probe{number}", "", namespace="probe")
            self.remove(name, f"probe{number}", namespace="probe")

    def groups(self) -> list[dict[str, Any]]:
        """Return the manager's list of placement groups."""
        answer = self.manager("pg dump", dumpcontents=["pgs_brief"])
        found: list[dict[str, Any]] = answer["pg_stats"]
        return found

    def await_groups(self, pool: str, seconds: float = 60) -> None:
        """Wait until the manager lists the primary OSD of each placement group of a pool."""
        pools = self.mon("osd dump")["pools"]
        begin = next(f"{each['pool']}." for each in pools if each["pool_name"] == pool)
        until = time.monotonic() + seconds
        while True:
            # A manager that is still starting does not answer: ask again.
            with contextlib.suppress(RuntimeError):
                ours = [each for each in self.groups() if each["pgid"].startswith(begin)]
                if ours and all(each["acting_primary"] >= 0 for each in ours):
                    return
            if time.monotonic() > until:
                raise TimeoutError(f"the manager does not know the groups of {pool}")
            time.sleep(0.1)

    def remove_pool(self, name: str) -> None:
        """Remove a pool with all its objects."""
        sure = {"yes_i_really_really_mean_it": True}
        self.mon("osd pool delete", pool=name, pool2=name, **sure)

    def set_quota(self, pool: str, size: int) -> None:
        """Limit the bytes of a pool; 0: no limit. A quota takes effect after some seconds."""
        self.mon("osd pool set-quota", pool=pool, field="max_bytes", val=str(size))

    def make_user(self, name: str, *caps: str, at: str = "") -> Path:
        """Create a user, for example ``client.some``. Return the path of the file with its key.

        The cluster checks keys only if it was created with ``auth="cephx"``.
        """
        words = [word for each in caps for word in each.split(" ", 1)]
        found = self.mon("auth get-or-create", entity=name, caps=words)
        path = self.folder / (at or f"{name}.keyring")
        path.write_text(f"[{name}]\n\tkey = {found[0]['key']}\n", encoding="utf-8")
        return path

    def epoch(self) -> int:
        """Return the number of the current OSD map."""
        return int(self.mon("osd stat")["epoch"])

    # ---- faults ------------------------------------------------------------------------------

    def await_up(self, count: int, seconds: float = READY_SECONDS) -> None:
        """Wait until exactly ``count`` OSDs are up."""
        until = time.monotonic() + seconds
        while self.mon("osd stat")["num_up_osds"] != count:
            if time.monotonic() > until:
                raise TimeoutError(f"not {count} OSDs are up: {self.mon('osd stat')}")
            self._expect_running()
            time.sleep(0.1)

    def _expect_running(self) -> None:
        for name, daemon in self._daemons.items():
            if daemon.poll() is not None:
                log = self.folder / "log" / f"{name}.out"
                text = log.read_text(encoding="utf-8", errors="replace")[-4000:]
                raise RuntimeError(f"{name} has ended ({daemon.returncode}):\n{text}")

    def kill(self, name: str) -> None:
        """Kill a daemon by SIGKILL, for example ``osd.1`` or ``mon.a``."""
        daemon = self._daemons.pop(name)
        daemon.kill()
        daemon.wait()

    @contextlib.contextmanager
    def stopped(self, *names: str) -> Iterator[None]:
        """Stop daemons by SIGSTOP during the block. Their connections stay open.

        At the end of the block the daemons continue.
        """
        pids = [self._daemons[name].pid for name in names]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    def slow(self, number: int, seconds: float) -> None:
        """Delay each message to an OSD by this time. 0 ends the delay.

        A request takes about three times the delay, because an OSD dispatches it several times.
        """
        option = "osd_debug_inject_dispatch_delay"
        self.set_osd(number, f"{option}_duration", str(seconds))
        self.set_osd(number, f"{option}_probability", "1" if seconds else "0")

    def pids(self) -> list[int]:
        """Return the process ids of the cluster's daemons."""
        return [daemon.pid for daemon in self._daemons.values()]

    def memory(self) -> dict[str, int]:
        """Return the resident memory of each daemon in bytes."""
        found = {}
        for name, daemon in self._daemons.items():
            status = Path(f"/proc/{daemon.pid}/status").read_text(encoding="utf-8")
            words = next(line for line in status.splitlines() if line.startswith("VmRSS:")).split()
            found[name] = int(words[1]) << 10
        return found


def _run(*words: Word) -> None:
    ended = subprocess.run(words, check=False, capture_output=True, text=True, timeout=60)
    if ended.returncode != 0:
        raise RuntimeError(f"{words[0]!r} fails:\n{ended.stdout}{ended.stderr}")


#: Version 1 of the messenger protocol is disabled: with it and ``auth none``, an OSD exits with the
#: error ``wrong fsid``.
CONFIGURATION = """\
[global]
fsid = {cluster.fsid}
mon host = v2:{cluster.host}:{cluster.port}
mon initial members = a
public addr = {cluster.host}
public network = {cluster.host}/32
cluster network = {cluster.host}/32
ms bind ipv6 = false
ms bind msgr1 = false
ms bind msgr2 = true
ms bind port min = {first}
ms bind port max = {last}
auth cluster required = {cluster.auth}
auth service required = {cluster.auth}
auth client required = {cluster.auth}
keyring = {folder}/keyring
run dir = {folder}
admin socket =
pid file =
log file = {folder}/log/$name.log
mon cluster log file = {folder}/log/cluster.log
crash dir = {folder}/log
osd crush chooseleaf type = 0
osd pool default size = 1
osd pool default min size = 1
osd pool default pg autoscale mode = off
mon allow pool size one = true
mon allow pool delete = true
mon warn on insecure global id reclaim allowed = false
auth allow insecure global id reclaim = false
mon data avail warn = 1
mon data avail crit = 1
mon osd full ratio = 0.96
mon osd backfillfull ratio = 0.955
mon osd nearfull ratio = 0.95
mon max pg per osd = 2000
mon osd down out interval = 600
paxos propose interval = 0.1
paxos min wait = 0.02
osd heartbeat grace = 20
osd scrub begin hour = 3
osd scrub end hour = 4
osd memory target = 939524096
bluestore cache size = 134217728
osd op num shards = 2
osd op num threads per shard = 1
ms async op threads = 1
mgr stats period = 1
{lines}
[mon.a]
mon data = {folder}/mon.a
[mgr]
mgr data = {folder}/mgr.x
keyring = {folder}/mgr.x/keyring
mgr module path = /usr/share/ceph/mgr
mgr initial modules =
[osd]
# Without a socket, an OSD answers no command.
admin socket = {folder}/$name.asok
osd objectstore = {cluster.store}
osd data = {folder}/osd.$id
keyring = {folder}/osd.$id/keyring
memstore device bytes = {cluster.osd_bytes}
bluestore block size = {cluster.osd_bytes}
bluestore block create = true
bluestore block db create = false
bluestore block wal create = false
[client]
log file =
rados osd op timeout = 60
rados mon op timeout = 30
client mount timeout = 30
"""
