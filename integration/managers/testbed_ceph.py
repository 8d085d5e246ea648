"""Run a Ceph cluster in the test bed in containers, with the pool of the archive.

The service ``ceph`` of docker/testbed.yaml runs this module. The cluster keeps the data in memory.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from integration.managers.sites import POOL
from integration.managers.testbed_init import CEPH_CLIENT, CEPH_USER, POOL_URL, empty, write
from integration.storage import ceph, xrdceph
from integration.xrootd.servers import find

if TYPE_CHECKING:
    from integration.harness.program import Word

FOLDER = Path("/srv/ceph")
CHECK_SECONDS = 5.0


def write_client(cluster: ceph.Cluster) -> None:
    """Write the configuration and the key of the clients. The key gives access to one pool only."""
    # Without the capability for the blocklist, dray could not take over from a killed process.
    mon = 'mon allow r, allow command "osd blocklist"'
    osd = f"osd allow rwx pool={POOL}"
    key = cluster.make_user(f"client.{CEPH_USER}", mon, osd).read_text(encoding="utf-8")
    at = write(f"{CEPH_CLIENT.parent.name}/keyring", key)
    write(f"{CEPH_CLIENT.parent.name}/{CEPH_CLIENT.name}", xrdceph.client_text(cluster, at))


def make_root() -> None:
    """Make the folder in the pool that the endpoint exports. Endpoints do not make their roots."""
    with tempfile.TemporaryDirectory() as empty:
        words: list[Word] = [find("dray"), "cp", "-r", "--allow-empty", f"{empty}/", POOL_URL]
        subprocess.run(words, check=True)


def main() -> None:
    """Run the cluster until SIGTERM, or until a daemon has ended."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    # A restarted container has the files of the earlier cluster, but not the data in memory.
    empty(FOLDER)
    host = socket.gethostbyname(socket.gethostname())
    cluster = ceph.Cluster(FOLDER, auth="cephx", has_manager=False, host=host)
    try:
        cluster.start().make_pool(POOL)
        write_client(cluster)
        make_root()
        print(f"{cluster.osds} OSDs, pool {POOL}", flush=True)
        while True:
            cluster.await_up(cluster.osds)
            time.sleep(CHECK_SECONDS)
    finally:
        cluster.close()


if __name__ == "__main__":
    main()
