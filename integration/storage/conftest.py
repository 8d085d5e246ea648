"""Fixtures for tests with real storage clusters."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from integration.conftest import OUT
from integration.harness.program import find_program
from integration.harness.scratch import scratch_folder
from integration.storage import network
from integration.storage.ceph import Cluster, find_missing
from integration.storage.gluster import SHARDED, Gluster, Volume
from integration.storage.pool_root import Pool, Sites
from integration.xrootd.servers import compile_loopback

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dray.testing.endpoints import Endpoint
    from integration.storage.network import Network


def _kept(name: str) -> Path:
    """Return the folder for the logs of a cluster of this pytest worker."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    return OUT / (f"{name}-{worker}" if worker else name)


def _cluster(name: str, **options: Any) -> Iterator[Cluster]:  # noqa: ANN401
    reason = find_missing()
    if reason:
        pytest.skip(reason)
    # Do not use a folder of pytest: pytest keeps its folders, and only their owner can read them.
    # The cluster's folder may have gigabytes, and other users must read its configuration.
    with scratch_folder() as folder:
        folder.chmod(0o755)
        cluster = Cluster(folder, **options)
        try:
            yield cluster.start()
        finally:
            cluster.close()
            # Keep the logs, which are small at the default log level.
            kept = _kept(f"ceph-{name}")
            shutil.rmtree(kept, ignore_errors=True)
            if (folder / "log").exists():
                shutil.copytree(folder / "log", kept)


@pytest.fixture(scope="session")
def shared() -> Iterator[Path]:
    """Yield a folder for stock servers. Its library makes them listen on the loopback only."""
    with scratch_folder() as folder:
        folder.chmod(0o755)
        compile_loopback(folder)
        yield folder


@pytest.fixture(scope="session")
def ceph() -> Iterator[Cluster]:
    """Yield a cluster that keeps its data in memory. A restart of an OSD would lose data."""
    yield from _cluster("memory")


@pytest.fixture(scope="session")
def ceph_on_disk() -> Iterator[Cluster]:
    """Yield a cluster that keeps its data on disk. Its OSDs may be restarted."""
    yield from _cluster("disk", store="bluestore")


@pytest.fixture(scope="session")
def ceph_with_keys() -> Iterator[Cluster]:
    """Yield a cluster that keeps its data in memory and authenticates its users."""
    yield from _cluster("keys", auth="cephx")


class FarCluster(NamedTuple):
    """A cluster, and the network whose link to the cluster a test can cut."""

    cluster: Cluster
    network: Network


@pytest.fixture(scope="session")
def ceph_far() -> Iterator[FarCluster]:
    """Yield a cluster in a network namespace. It keeps its data in memory."""
    if reason := network.find_missing():
        pytest.skip(reason)
    with network.network() as made:
        for cluster in _cluster("far", host=network.THERE, wrap=made.wrap):
            yield FarCluster(cluster, made)
            made.restore()


@pytest.fixture(autouse=True)
def release_program(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make endpoints run the release program, unless ``DRAY_PROGRAM`` is set."""
    if "start_endpoint" not in request.fixturenames or "DRAY_PROGRAM" in os.environ:
        return
    try:
        monkeypatch.setenv("DRAY_PROGRAM", str(find_program()))
    except FileNotFoundError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session")
def gluster_folder() -> Iterator[Path]:
    """Yield a folder for GlusterFS. Keep its logs afterwards."""
    # Do not use pytest's folder: its path is too long for a socket.
    folder = Path(tempfile.mkdtemp(prefix="dray-gl-", dir=os.environ.get("DRAY_TEST_DIR")))
    folder.chmod(0o755)
    yield folder
    kept = _kept("gluster")
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(folder / "log", kept)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def gluster(gluster_folder: Path) -> Iterator[Gluster]:
    """Yield a running GlusterFS."""
    gluster = Gluster(gluster_folder)
    try:
        yield gluster.start()
    finally:
        gluster.close()


@pytest.fixture(scope="session")
def spread(gluster: Gluster) -> Volume:
    """Return a distributed volume of three bricks."""
    return gluster.volume("spread")


@pytest.fixture(scope="session")
def sharded(gluster: Gluster) -> Volume:
    """Return a distributed volume that splits files into blocks (shards)."""
    return gluster.volume("sharded", options=SHARDED)


@pytest.fixture(params=["spread", "sharded"])
def volume(request: pytest.FixtureRequest) -> Volume:
    """Return the volume ``spread`` or ``sharded``."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Volume)
    return found


@pytest.fixture
def sites(
    start_endpoint: Callable[..., Endpoint],
    ceph: Cluster,
    folder: Path,
) -> Iterator[Sites]:
    """Yield an endpoint with a folder, and a pool of the cluster ``ceph``."""
    made = Sites(start_endpoint, Pool(ceph, folder))
    yield made
    made.close()
