"""Two sites on the loopback: an endpoint and XRootD servers over the same storage at each site.

Endpoints and servers run as one ordinary user, as at a real site.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from dray.testing.endpoints import Endpoint, Root
from dray.testing.proxy import Proxy
from integration.storage import ceph, xrdceph
from integration.xrootd.files import WRAPPER, configured, hide
from integration.xrootd.servers import (
    PROGRAM,
    SHIM,
    Scene,
    Xrootd,
    as_user,
    compile_loopback,
    copy_programs,
    give,
)

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Sequence
    from pathlib import Path

    from integration.storage.xrdceph import XrdCeph

#: Plug-in of the source's server. A server's configuration names it without the number.
TICKETS = "libDrayXrdCtl-5.so"
#: Rate of an endpoint. An endpoint promises deadlines only if its rate is known.
RATE = "64MiB/s"
POOL = "archive"
#: Folder of an RSE, below the folder that an XRootD server exports.
FOLDER = "rucio"


def rse(name: str, server_url: str, folder: str, attributes: dict[str, str]) -> dict[str, Any]:
    """Return the argument of ``make_rses`` for a folder of an XRootD server."""
    host, _, port = server_url.removeprefix("root://").partition(":")
    protocol = {
        "scheme": "root",
        "hostname": host,
        "port": int(port),
        "impl": "rucio.rse.protocols.xrootd.Default",
    }
    return {
        "name": name,
        "prefix": f"//{folder}/",
        "protocol": protocol,
        "attributes": attributes,
    }


class Sites:
    """The sites ``north`` and ``south``. The storage of the archive is a Ceph pool, if possible."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        """Start everything. ``stack`` ends it."""
        self.folder = folder
        folder.mkdir()
        give(folder)
        loopback = compile_loopback(folder)
        programs = folder / "programs"
        copy_programs(programs, [PROGRAM, SHIM, WRAPPER, TICKETS, "dray"])
        self.scene = Scene(folder, loopback, programs)
        stack.callback(self.scene.close)
        # A copy needs the address of the proxy, so the proxy starts before its endpoint.
        self.proxy = Proxy("127.0.0.1:1")
        stack.callback(self.proxy.close)
        #: The reason for which the archive is a folder. Empty if the archive is a pool.
        self.no_pool = ceph.find_missing() or xrdceph.find_missing()
        self.pool_server: XrdCeph | None = None
        self._start_north(stack)
        self._start_south(stack)

    @property
    def archive_url(self) -> str:
        """URL of the XRootD server of the archive."""
        return self.pool_server.url if self.pool_server is not None else self.south_server.url

    @property
    def archive_root(self) -> str:
        """Path of the archive at the endpoint ``south``."""
        return "pool" if self.pool_server is not None else f"data/{POOL}"

    def storage(self) -> dict[str, str]:
        """Describe the storage of each RSE."""
        archive = f"a Ceph pool behind {self.archive_url}"
        if self.pool_server is None:
            archive = f"a folder behind {self.archive_url} ({self.no_pool})"
        return {
            "NORTH": f"a folder behind {self.north_server.url}, endpoint {self.north.address}",
            "SOUTH": f"a folder behind {self.south_server.url}, endpoint {self.south.address}",
            "ARCHIVE": f"{archive}, endpoint {self.south.address}",
        }

    def checksum(self, server_url: str, path: str) -> str:
        """Ask an XRootD server for the adler32 of a file."""
        query = f"/{path.lstrip('/')}?cks.type=adler32"
        ended = self.scene.run("xrdfs", server_url, "query", "checksum", query).expect(0)
        return ended.out.split()[1]

    # --- start ------------------------------------------------------------------------------------

    def _endpoint(
        self,
        stack: contextlib.ExitStack,
        name: str,
        roots: Sequence[Root],
        config: dict[str, Any],
    ) -> Endpoint:
        endpoint = Endpoint(
            self.folder / f"endpoint-{name}",
            name,
            roots=roots,
            config={"rate": RATE, **config},
            program=self.scene.programs / "dray",
            wrap=as_user(),
        )
        stack.callback(endpoint.kill)
        for folder, _, names in os.walk(endpoint.folder):
            for each in ("", *names):
                give(endpoint.folder / folder / each)
        return endpoint.start()

    def _server(self, name: str, more: Sequence[str] = ()) -> Xrootd:
        """Add an XRootD server whose third-party copies dray makes. Do not start the server."""
        lines = [hide(self.scene), *more]
        server = self.scene.server(name, tpc=configured(self.scene), lines=lines, start=False)
        for folder in (FOLDER, POOL):
            server.path(folder).mkdir()
            give(server.path(folder))
        return server

    def _start_north(self, stack: contextlib.ExitStack) -> None:
        self.north_server = self._server("north")
        root = Root("data", {"path": str(self.north_server.data)})
        self.north = self._endpoint(stack, "north", [root], {"advertise": self.proxy.address})
        self.proxy.upstream = self.north.address
        token = self.folder / "tickets.token"
        token.write_text(self.north.token("storage.read:/data", lifetime="12h"), encoding="ascii")
        token.chmod(0o600)
        give(token)
        settings = self.folder / "tickets.cf"
        lines = [
            f"endpoint {self.north.address}",
            f"peer_key {self.north.key}",
            f"token_file {token}",
            f"root data {self.north_server.data}",
        ]
        settings.write_text("\n".join([*lines, ""]), encoding="utf-8")
        plugin = self.scene.programs / TICKETS.replace("-5", "")
        self.north_server.lines.append(f"ofs.ctllib {plugin} {settings}")
        self.north_server.start()

    def _start_south(self, stack: contextlib.ExitStack) -> None:
        self.south_server = self._server("south").start()
        roots = [Root("data", {"path": str(self.south_server.data)})]
        if not self.no_pool:
            roots.append(Root("pool", {"store": self._start_pool(stack)}))
        self.south = self._endpoint(stack, "south", roots, {})

    def _start_pool(self, stack: contextlib.ExitStack) -> str:
        """Start a Ceph cluster, and an XRootD server for its pool. Return the URL of the pool."""
        folder = self.folder / "ceph"
        folder.mkdir()
        cluster = ceph.Cluster(folder, has_manager=False)
        stack.callback(cluster.close)
        cluster.start().make_pool(POOL)
        self.pool_server = xrdceph.start(cluster, POOL, self.folder)
        stack.callback(self.pool_server.close)
        url = f"rados://{POOL}//{FOLDER}?conf={self.pool_server.folder / 'client.conf'}"
        empty = self.folder / "empty"
        empty.mkdir()
        # The root of an endpoint must exist.
        program = self.scene.programs / "dray"
        self.scene.run(program, "cp", "-r", "--allow-empty", f"{empty}/", url).expect(0)
        return url
