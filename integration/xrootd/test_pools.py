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
from integration.xrootd.files import await_safe, configured, copies

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
#: Line of the configuration with which a copy takes three seconds.
RATE = f"rate = {8 << 20}"


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """Return a cluster with the pool ``POOL``."""
    found: Cluster = request.getfixturevalue("ceph")
    found.make_pool(POOL)
    return found


@pytest.fixture(scope="module")
def source(cluster: Cluster, shared: Path) -> Iterator[XrdCeph]:
    """Yield a stock XRootD server whose storage is the pool."""
    server = xrdceph.start(cluster, POOL, shared)
    yield server
    server.close()


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
    # The copy takes longer than the second in which it begins, so the time of the file changes.
    sink = scene.server("sink", tpc=configured(scene, RATE))
    scene.xrdcp("--tpc", "only", source.at("/data/in/x"), sink.at("out")).expect(0)
    assert hash_file(sink.path("out")) == hash_file(made)
    assert copies(sink), "the program of dray carried no copy"


@pytest.mark.full
def test_a_file_of_a_pool_that_is_replaced_during_a_copy_is_reported(
    scene: Scene, cluster: Cluster, source: XrdCeph, tmp_path: Path
) -> None:
    """The new file has the same size, so only its checksum shows that its content differs."""
    files = [make_file(tmp_path / str(seed), SIZE, seed) for seed in (1, 2)]

    def put(file: Path) -> None:
        ended = cluster.rados("-p", POOL, "--striper", "put", "/data/replaced", file)
        assert ended.returncode == 0, ended.stderr

    put(files[0])
    # The copy takes twelve seconds, so the replacement ends before the copy even on a busy
    # host.
    sink = scene.server("sink", tpc=configured(scene, f"rate = {2 << 20}"))
    words = ["xrdcp", "--nopbar", "--tpc", "only", source.at("/data/replaced"), sink.at("out")]
    client = scene.begin(*words)
    await_safe(sink, 4 << 20)
    put(files[1])
    ended = client.wait(120)
    assert ended.code != 0
    assert "the source has changed" in ended.out + ended.words
    assert not sink.path("out").exists(), "a failed copy published the file"
    scene.xrdcp("--tpc", "only", source.at("/data/replaced"), sink.at("out")).expect(0)
    assert hash_file(sink.path("out")) == hash_file(files[1])
