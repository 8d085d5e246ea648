"""An XRootD server copies a file that an endpoint has written into a Ceph pool."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dray.client import Request, copy
from dray.testing.endpoints import Root
from integration.harness.tree import hash_file
from integration.storage import xrdceph
from integration.storage.conftest import ceph
from integration.storage.pool_root import END_SECONDS, make_file
from integration.xrootd.files import configured, copies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dray.testing.endpoints import Endpoint
    from integration.storage.ceph import Cluster
    from integration.storage.xrdceph import XrdCeph
    from integration.xrootd.servers import Scene

pytestmark = pytest.mark.server

#: The fixture that starts the cluster.
__all__ = ["ceph"]

POOL = "xrootd-tpc"
SIZE = (24 << 20) + 5


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """Return a cluster with the pool ``POOL``."""
    found: Cluster = request.getfixturevalue("ceph")
    found.make_pool(POOL)
    return found


@pytest.fixture
def source(cluster: Cluster, shared: Path) -> Iterator[XrdCeph]:
    """Yield a stock XRootD server whose storage is the pool."""
    server = xrdceph.start(cluster, POOL, shared)
    yield server
    server.close()


#: Maximum number of tries. XrdCeph changes the time of a file when a client reads it. A copy fails
#: if the time changes to another second during the copy.
TRIES = 8


@pytest.mark.full
def test_a_third_party_copy_of_a_file_that_an_endpoint_has_written(
    scene: Scene,
    cluster: Cluster,
    source: XrdCeph,
    start_endpoint: Callable[..., Endpoint],
    tmp_path: Path,
) -> None:
    """The program of dray copies the file from the pool's server to another server."""
    seed = make_file(tmp_path / "seed", 10, 1)
    put = cluster.rados("-p", POOL, "--striper", "put", "/data/seed", seed)
    assert put.returncode == 0, put.stderr
    near = start_endpoint("near")
    url = f"rados://{POOL}//data?conf={cluster.configuration}"
    grid = start_endpoint("grid", roots=[Root("data", {"store": url})])
    made = make_file(near.root("x"), SIZE, 7)
    with near.client() as here, grid.client() as there:
        request = Request(sources=(), destination="", checksum_attributes=True)
        ends = (near.place("x"), grid.place("in/x"))
        whole = copy(*ends, source=here, destination=there, active="destination", request=request)
        assert whole.wait(timeout_seconds=END_SECONDS).state == "done"
    sink = scene.server("sink", tpc=configured(scene))
    for _ in range(TRIES):
        ended = scene.xrdcp("--tpc", "only", source.at("/data/in/x"), sink.at("out"))
        if ended.code == 0:
            break
        assert "the source changed during the copy" in ended.words, ended.words
        assert not sink.path("out").exists(), "a failed copy published the file"
    ended.expect(0)
    assert hash_file(sink.path("out")) == hash_file(made)
    assert copies(sink), "the program of dray carried no copy"
