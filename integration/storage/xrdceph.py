"""A stock XRootD server whose storage is a pool of a Ceph cluster (Debian's XrdCeph)."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from integration.harness.airflow import free_port
from integration.harness.program import Process
from integration.xrootd.servers import HERE, PATIENCE, as_user, give

if TYPE_CHECKING:
    from pathlib import Path

    from integration.harness.program import Ended, Word
    from integration.storage.ceph import Cluster

READY_SECONDS = 30.0


def find_missing() -> str:
    """Return why this host cannot run an XrdCeph server. An empty text: it can."""
    missing = [each for each in ("xrootd", "xrdcp", "xrdfs") if shutil.which(each) is None]
    return f"{', '.join(missing)} missing (tools/bootstrap.sh test)" if missing else ""


@dataclass
class XrdCeph:
    """A server for one pool. It runs as an ordinary user.

    The file of the URL ``root://HOST//a/b`` has the name ``/a/b`` in the pool. Do not request a
    pool that does not exist: the server process of the installed XRootD would end.
    """

    folder: Path
    cluster: Cluster
    pool: str
    #: Library with which the server listens on the loopback only.
    loopback: Path
    #: Further lines of the configuration.
    lines: tuple[str, ...] = ()

    def start(self) -> XrdCeph:
        """Start the server, and wait until it listens."""
        self.port = free_port()
        for path in (self.folder, self.folder / "admin"):
            path.mkdir()
            give(path)
        client = self.folder / "client.conf"
        cluster = self.cluster
        key = None
        if cluster.auth == "cephx":
            key = cluster.make_user("client.admin", at="client.xrdceph.keyring")
            key.chmod(0o644)
        client.write_text(client_text(cluster, key), encoding="utf-8")
        config = self.folder / "xrootd.cf"
        text = server_text(self.port, self.folder / "admin", f"admin@{self.pool}")
        text += "".join(f"{line}\n" for line in self.lines)
        config.write_text(text, encoding="utf-8")
        for path in (client, config):
            path.chmod(0o644)
        env = {
            "LD_PRELOAD": str(self.loopback),
            "CEPH_CONF": str(client),
            "HOME": str(self.folder),
            **PATIENCE,
        }
        words: list[Word] = ["xrootd", "-I", "v4", "-c", config, "-n", "ceph"]
        wrap = [*as_user(), "setpriv", "--pdeathsig", "KILL", "--"]
        self.process = Process(words, self.folder, "server", env=env, cwd=self.folder, wrap=wrap)
        until = time.monotonic() + READY_SECONDS
        while self.run("xrdfs", self.url, "query", "config", "version").code != 0:
            assert self.process.is_running(), f"the server ended:\n{self.log()}"
            assert time.monotonic() < until, f"the server does not listen:\n{self.log()}"
        return self

    @property
    def url(self) -> str:
        """Return the URL of the server, without a path."""
        return f"root://{HERE}:{self.port}"

    def at(self, name: str) -> str:
        """Return the URL of the file ``name``, which begins with a slash."""
        return f"{self.url}/{name}"

    def run(self, *words: Word, seconds: float = 120) -> Ended:
        """Run a stock client until it ends."""
        self._clients = getattr(self, "_clients", 0) + 1
        env = {**PATIENCE, "HOME": str(self.folder)}
        name = f"client{self._clients:04}"
        return Process(words, self.folder, name, env=env).wait(seconds)

    def xrdcp(self, *words: Word) -> Ended:
        """Run ``xrdcp`` without a progress bar."""
        return self.run("xrdcp", "--nopbar", "--force", *words)

    def checksum(self, name: str) -> int:
        """Ask the server for the adler32 of a file."""
        ended = self.run("xrdfs", self.url, "query", "checksum", f"{name}?cks.type=adler32")
        kind, value = ended.expect(0).out.split()
        assert kind == "adler32", ended.out
        return int(value, 16)

    def log(self) -> str:
        """Return the messages of the server."""
        return self.process.log_path.read_text(encoding="utf-8", errors="replace")

    def close(self) -> None:
        """End the server."""
        self.process.kill()


#: By default, ``log file`` and ``admin socket`` are in folders that only Ceph's user may change.
CLIENT = """\
[global]
mon host = v2:{cluster.host}:{cluster.port}
auth client required = {cluster.auth}
ms bind ipv6 = false
[client]
{keyring}admin socket =
log file =
rados osd op timeout = 30
rados mon op timeout = 30
"""

#: Without ``+cksio``, the server would look for a local file when a client asks for a checksum.
SERVER = """\
xrd.port {port}
xrd.network nodnr cache 0
all.export / nolock r/w
all.adminpath {state}
all.pidpath {state}
ofs.osslib +cksio libXrdCeph.so {pool},1,4194304,4194304
ofs.xattrlib libXrdCephXattr.so
ofs.tpc ttl 60 120 xfr 4 streams 0,8 pgm /usr/bin/xrdcp --server
xrootd.async off
xrootd.chksum adler32
"""


def client_text(cluster: Cluster, key: Path | None) -> str:
    """Return the configuration of a client of the cluster.

    :param key: file with the key of the client, if the cluster checks keys.
    """
    keyring = "" if key is None else f"keyring = {key}\n"
    return CLIENT.format(cluster=cluster, keyring=keyring)


def server_text(port: int, state: Path, pool: str) -> str:
    """Return the configuration of a server.

    :param state: folder for the server's own files.
    :param pool: ``USER@POOL``. The server reads the file that ``CEPH_CONF`` names.
    """
    return SERVER.format(port=port, state=state, pool=pool)


def start(cluster: Cluster, pool: str, shared: Path, *lines: str) -> XrdCeph:
    """Start an XRootD server for a pool of a Ceph cluster.

    :param shared: folder of ``loopback.so``, in which the server makes its own folder.
    :param lines: further lines of the server's configuration.
    """
    folder = shared / f"xrdceph-{pool}-{os.getpid()}"
    return XrdCeph(folder, cluster, pool, shared / "loopback.so", lines).start()
