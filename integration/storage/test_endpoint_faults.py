"""Faults of a Ceph cluster during a transfer of an endpoint: full, cut off, killed daemons."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from dray.client import Retry
from integration.storage.ceph import Cluster
from integration.storage.pool_root import (
    END_SECONDS,
    MIB,
    OVERHEAD_BYTES,
    POOL_BYTES,
    SYNC_GROUP_BYTES,
    Pool,
    PoolWatch,
    Sites,
    make_file,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dray.client import Transfer
    from dray.testing.endpoints import Endpoint

pytestmark = [pytest.mark.server, pytest.mark.timeout(1200)]

SIZE = 64 * MIB + 12345
RATE = 12 * MIB
#: a manager reports the used bytes to the monitors seconds later
QUOTA_SECONDS = 60.0
ONCE = Retry(tries=1)


@pytest.fixture
def sites(
    start_endpoint: Callable[..., Endpoint],
    ceph: Cluster,
    folder: Path,
    request: pytest.FixtureRequest,
) -> Iterator[Sites]:
    """Yield an endpoint with a folder, and a pool of the cluster in memory."""
    made = Sites(start_endpoint, Pool(ceph, f"f-{abs(hash(request.node.name))}", folder))
    yield made
    made.close()


@pytest.fixture
def durable_sites(
    start_endpoint: Callable[..., Endpoint],
    ceph_on_disk: Cluster,
    folder: Path,
    request: pytest.FixtureRequest,
) -> Iterator[Sites]:
    """Yield the same with a cluster whose daemons may be restarted."""
    made = Sites(start_endpoint, Pool(ceph_on_disk, f"d-{abs(hash(request.node.name))}", folder))
    yield made
    made.close()


def await_durable(sites: Sites, sink: Endpoint, id: str, count: int) -> Transfer:
    """Wait until this many bytes of a transfer are durable."""
    until = time.monotonic() + END_SECONDS
    while True:
        found = sites.client(sink).transfer(id)
        if found.bytes.durable >= count:
            return found
        assert not found.is_terminal, found
        assert time.monotonic() < until, found
        time.sleep(0.05)


def expect_done(sites: Sites, done: Transfer, path: str, source: Path) -> None:
    """Fail unless the file has arrived once, and nothing else is left."""
    assert (done.state, done.error, done.failures) == ("done", None, ()), done
    assert done.bytes.durable == source.stat().st_size, done
    sites.pool.expect(path, source)
    assert sites.pool.leftovers() == []


# --- a full pool --------------------------------------------------------------------------------


def is_full(cluster: Cluster, pool: str) -> bool:
    """Return whether the monitors have marked the pool as full."""
    pools = cluster.mon("osd dump")["pools"]
    names = next(each["flags_names"] for each in pools if each["pool_name"] == pool)
    return "full" in names.split(",")


def await_full(cluster: Cluster, pool: str, *, full: bool) -> None:
    """Wait until the monitors have marked the pool, or have removed the mark."""
    until = time.monotonic() + QUOTA_SECONDS
    while is_full(cluster, pool) != full:
        assert time.monotonic() < until, cluster.mon("osd dump")["pools"]
        time.sleep(0.1)


def test_a_full_pool_fails_with_one_message_and_the_repetition_resumes(
    sites: Sites, ceph: Cluster
) -> None:
    """Durable bytes are kept. After the quota is raised the same request sends only the rest."""
    source = make_file(sites.near.root("f"), SIZE, 1)
    grid = sites.at_pool("grid")
    kept = make_file(sites.pool.folder / "kept", 5 * MIB, 2)
    sites.pool.write("kept", kept)
    ceph.set_quota(sites.pool.name, 16 * MIB)
    with PoolWatch(sites.pool, "f", source.read_bytes()):
        id = sites.submit(sites.near, "f", grid, "f", rate_max=RATE // 4, retry=ONCE)
        failed = sites.wait(grid, id)
        assert failed.state == "failed", failed
        assert failed.error is not None
        assert failed.error.kind == "no_space", failed
        assert "the pool has reached its quota" in str(failed.error)
        assert "raise its quota" in str(failed.error)
        assert failed.bytes.durable > 0, failed
        assert sites.pool.read("kept") == kept.read_bytes()
        # Files of a full pool can be read and removed.
        client = sites.client(grid)
        assert [entry.name for entry in client.list("/data")] == ["kept"]
        ceph.set_quota(sites.pool.name, 0)
        await_full(ceph, sites.pool.name, full=False)
        again = sites.submit(sites.near, "f", grid, "f", id=id)
        done = sites.wait(grid, again)
    expect_done(sites, done, "f", source)
    assert done.bytes.resumed >= failed.bytes.durable, (failed, done)
    assert done.bytes.sent <= SIZE - done.bytes.resumed


def test_space_of_a_full_pool_is_given_back_by_a_purge(sites: Sites, ceph: Cluster) -> None:
    """A purge works on a full pool and leaves no object. Then the pool takes files again."""
    make_file(sites.near.root("f"), SIZE, 1)
    small = make_file(sites.near.root("small"), 2 * MIB, 3)
    grid = sites.at_pool("grid")
    ceph.set_quota(sites.pool.name, 12 * MIB)
    id = sites.submit(sites.near, "f", grid, "f", rate_max=RATE // 4)
    client = sites.client(grid)
    await_full(ceph, sites.pool.name, full=True)
    until = time.monotonic() + END_SECONDS
    while client.transfer(id).state != "waiting":
        assert time.monotonic() < until, client.transfer(id)
        time.sleep(0.05)
    assert sites.pool.objects("f.") != []
    client.cancel(id, purge=True)
    ended = sites.wait(grid, id)
    assert ended.state == "cancelled", ended
    while not any("purged" in notice for notice in client.transfer(id).notices):
        assert time.monotonic() < until, client.transfer(id)
        time.sleep(0.05)
    assert sites.pool.objects("f.") == []
    assert sites.pool.leftovers() == []
    await_full(ceph, sites.pool.name, full=False)
    done = sites.wait(grid, sites.submit(sites.near, "small", grid, "small"))
    expect_done(sites, done, "small", small)


def test_a_transfer_waits_for_space_and_continues(sites: Sites, ceph: Cluster) -> None:
    """With retries, the transfer continues by itself when the pool has space."""
    source = make_file(sites.near.root("f"), SIZE, 1)
    grid = sites.at_pool("grid")
    ceph.set_quota(sites.pool.name, 12 * MIB)
    id = sites.submit(sites.near, "f", grid, "f", rate_max=RATE // 4)
    await_full(ceph, sites.pool.name, full=True)
    time.sleep(3)
    found = sites.client(grid).transfer(id)
    assert not found.is_terminal, found
    ceph.set_quota(sites.pool.name, 0)
    sites.client(grid).change(id, rate_max=10 * RATE)
    done = sites.wait(grid, id)
    expect_done(sites, done, "f", source)
    assert sites.sent() <= SIZE + 2 * POOL_BYTES + OVERHEAD_BYTES


# --- daemons ------------------------------------------------------------------------------------


@pytest.mark.full
def test_an_osd_is_killed_and_comes_back(durable_sites: Sites, ceph_on_disk: Cluster) -> None:
    sites = durable_sites
    source = make_file(sites.near.root("f"), SIZE, 1)
    grid = sites.at_pool("grid")
    with PoolWatch(sites.pool, "f", source.read_bytes()):
        id = sites.submit(sites.near, "f", grid, "f", rate_max=RATE)
        await_durable(sites, grid, id, 8 * MIB)
        ceph_on_disk.kill("osd.1")
        time.sleep(3)
        ceph_on_disk.begin_osd(1)
        ceph_on_disk.await_up(3)
        done = sites.wait(grid, id)
    expect_done(sites, done, "f", source)
    assert sites.sent() <= SIZE + POOL_BYTES + SYNC_GROUP_BYTES + OVERHEAD_BYTES


@pytest.mark.full
def test_the_monitor_restarts(durable_sites: Sites, ceph_on_disk: Cluster) -> None:
    sites = durable_sites
    source = make_file(sites.near.root("f"), SIZE, 1)
    grid = sites.at_pool("grid")
    id = sites.submit(sites.near, "f", grid, "f", rate_max=RATE)
    await_durable(sites, grid, id, 8 * MIB)
    ceph_on_disk.kill("mon.a")
    time.sleep(3)
    ceph_on_disk.start_monitor()
    done = sites.wait(grid, id)
    expect_done(sites, done, "f", source)
    assert done.tries == 1, done
    assert sites.sent() <= SIZE + OVERHEAD_BYTES


@pytest.mark.full
def test_a_source_loses_an_osd_for_a_while(durable_sites: Sites, ceph_on_disk: Cluster) -> None:
    """A transfer out of a pool goes on when the OSD is back."""
    sites = durable_sites
    source = make_file(sites.pool.folder / "f", SIZE, 1)
    sites.pool.write("f", source)
    grid = sites.at_pool("grid")
    id = sites.submit(grid, "f", sites.near, "f", rate_max=RATE)
    await_durable(sites, sites.near, id, 8 * MIB)
    ceph_on_disk.kill("osd.2")
    time.sleep(3)
    ceph_on_disk.begin_osd(2)
    ceph_on_disk.await_up(3)
    done = sites.wait(sites.near, id)
    assert (done.state, done.error) == ("done", None), done
    assert sites.near.root("f").read_bytes() == source.read_bytes()
