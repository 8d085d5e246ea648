"""Faults of a Ceph cluster during transfers: a full pool, killed daemons, a cut link."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from dray.client import Retry
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
    from integration.storage.ceph import Cluster
    from integration.storage.conftest import FarCluster

pytestmark = [pytest.mark.full, pytest.mark.server, pytest.mark.timeout(1200)]

SIZE = 64 * MIB + 12345
RATE = 12 * MIB
SLOW = 2 * MIB
#: Maximum seconds until a quota takes effect. The manager reports the used bytes to the monitors
#: only every few seconds.
QUOTA_SECONDS = 60.0


@pytest.fixture
def durable_sites(
    start_endpoint: Callable[..., Endpoint],
    ceph_on_disk: Cluster,
    folder: Path,
) -> Iterator[Sites]:
    """Yield an endpoint with a folder, and a pool of a cluster whose OSDs may be restarted."""
    made = Sites(start_endpoint, Pool(ceph_on_disk, folder))
    yield made
    made.close()


def await_durable(sites: Sites, sink: Endpoint, id: str, count: int) -> Transfer:
    """Wait until ``count`` bytes of a transfer are durable. Fail if the transfer ends before."""
    until = time.monotonic() + END_SECONDS
    while True:
        found = sites.client(sink).transfer(id)
        if found.bytes.durable >= count:
            return found
        assert not found.is_terminal, found
        assert time.monotonic() < until, found
        time.sleep(0.05)


def expect_done(sites: Sites, done: Transfer, path: str, source: Path) -> None:
    """Fail unless the transfer is done, the file is complete, and no leftover is in the pool."""
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
    """Wait until the monitors have marked the pool as full, or have removed this mark."""
    until = time.monotonic() + QUOTA_SECONDS
    while is_full(cluster, pool) != full:
        assert time.monotonic() < until, cluster.mon("osd dump")["pools"]
        time.sleep(0.1)


def _fill(sites: Sites, grid: Endpoint, size: int) -> tuple[str, Transfer]:
    """Copy a file that is larger than the pool's quota. Return the id and the failed transfer."""
    cluster, pool = sites.pool.cluster, sites.pool
    cluster.set_quota(pool.name, size)
    # Copy slowly: the monitors mark the pool as full only seconds after it exceeds its quota.
    id = sites.submit(sites.near, "f", grid, "f", rate_max=SLOW)
    failed = sites.wait(grid, id)
    assert failed.state == "failed", failed
    # The first write that fails may be a write of the log, which is an error of the transfer.
    errors = [failure.error for failure in failed.failures]
    if failed.error and not errors:
        errors = [failed.error]
    assert [error.kind for error in errors] == ["no_space"], failed
    said = str(errors[0])
    assert "the pool has reached its quota" in said
    assert "raise its quota" in said
    assert failed.bytes.durable > 0, failed
    assert not pool.is_visible("f")
    assert is_full(cluster, pool.name)
    return id, failed


def test_a_full_pool_fails_with_one_message_and_the_repetition_resumes(
    sites: Sites, ceph: Cluster
) -> None:
    """After the quota is lifted, the same request sends only the bytes that are not durable."""
    source = make_file(sites.near.root("f"), SIZE, 1)
    kept = make_file(sites.pool.folder / "kept", 5 * MIB, 2)
    sites.pool.write("kept", kept)
    grid = sites.at_pool("grid")
    id, failed = _fill(sites, grid, 12 * MIB)
    assert [entry.name for entry in sites.client(grid).list("/data")] == ["kept"]
    back = sites.pool.folder / "back"
    sites.cp(sites.pool.url.replace("?", "/kept?"), back).wait().expect(0)
    assert back.read_bytes() == kept.read_bytes()
    ceph.set_quota(sites.pool.name, 0)
    await_full(ceph, sites.pool.name, full=False)
    done = sites.wait(grid, sites.submit(sites.near, "f", grid, "f", id=id))
    expect_done(sites, done, "f", source)
    assert done.attempt == 2, done
    assert done.bytes.resumed >= failed.bytes.durable, (failed, done)
    assert done.bytes.sent <= SIZE - done.bytes.resumed
    print(f"{done.bytes.resumed / MIB:.1f} MiB of {SIZE / MIB:.1f} MiB resumed")


def test_space_of_a_full_pool_is_given_back_by_a_purge(sites: Sites, ceph: Cluster) -> None:
    """A purge removes all objects of a transfer from a full pool. Then the pool takes new files."""
    make_file(sites.near.root("f"), SIZE, 1)
    small = make_file(sites.near.root("small"), 2 * MIB, 3)
    grid = sites.at_pool("grid")
    id, _ = _fill(sites, grid, 8 * MIB)
    assert sites.pool.objects("f.") != []
    client = sites.client(grid)
    client.cancel(id, purge=True)
    until = time.monotonic() + END_SECONDS
    while not any("purged" in notice for notice in client.transfer(id).notices):
        assert time.monotonic() < until, client.transfer(id)
        time.sleep(0.05)
    assert sites.pool.objects("f.") == []
    assert sites.pool.leftovers() == []
    await_full(ceph, sites.pool.name, full=False)
    done = sites.wait(grid, sites.submit(sites.near, "small", grid, "small"))
    expect_done(sites, done, "small", small)


# --- daemons ------------------------------------------------------------------------------------


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


def test_a_source_loses_an_osd_for_a_while(durable_sites: Sites, ceph_on_disk: Cluster) -> None:
    """A transfer out of a pool continues after a killed OSD is back."""
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


# --- the connection -----------------------------------------------------------------------------

#: Timeout of the endpoint's Ceph client in seconds.
TIMEOUT_SECONDS = 8


@pytest.fixture
def far_sites(
    start_endpoint: Callable[..., Endpoint],
    ceph_far: FarCluster,
    folder: Path,
) -> Iterator[Sites]:
    """Yield an endpoint with a folder, and a pool of a cluster behind a link that can be cut."""
    cluster, network = ceph_far
    made = Sites(start_endpoint, Pool(cluster, folder))
    yield made
    network.restore()
    made.close()


def _short(sites: Sites) -> str:
    """Return the URL of the pool for a client with the timeout ``TIMEOUT_SECONDS``."""
    text = sites.pool.cluster.configuration.read_text(encoding="utf-8")
    for name in ("rados osd op timeout", "rados mon op timeout", "client mount timeout"):
        lines = [line for line in text.splitlines() if not line.startswith(name)]
        text = "\n".join([*lines, f"{name} = {TIMEOUT_SECONDS}", ""])
    short = sites.pool.folder / "short.conf"
    short.write_text(text, encoding="utf-8")
    return sites.pool.url.replace(str(sites.pool.cluster.configuration), str(short))


@pytest.mark.parametrize("seconds", [4, 20])
def test_a_cut_connection_is_restored(far_sites: Sites, ceph_far: FarCluster, seconds: int) -> None:
    """If the cut is shorter than the timeout, the session waits. Otherwise a later one resumes."""
    sites = far_sites
    source = make_file(sites.near.root("f"), SIZE, 1)
    grid = sites.at_pool("grid", store=_short(sites))
    id = sites.submit(sites.near, "f", grid, "f", rate_max=RATE)
    await_durable(sites, grid, id, 8 * MIB)
    ceph_far.network.cut()
    time.sleep(seconds)
    ceph_far.network.restore()
    began = time.monotonic()
    done = sites.wait(grid, id)
    print(f"done {time.monotonic() - began:.1f} s after the link was back, {done.tries} tries")
    expect_done(sites, done, "f", source)
    assert sites.sent() <= SIZE + POOL_BYTES + SYNC_GROUP_BYTES + OVERHEAD_BYTES


def test_a_connection_that_stays_cut_is_an_error_in_bounded_time(
    far_sites: Sites, ceph_far: FarCluster
) -> None:
    """The transfer fails with a clear message. It resumes when the link is back."""
    sites = far_sites
    source = make_file(sites.near.root("f"), SIZE, 1)
    grid = sites.at_pool("grid", store=_short(sites))
    retry = Retry(tries=2, interval_seconds=1)
    id = sites.submit(sites.near, "f", grid, "f", rate_max=RATE, retry=retry)
    before = await_durable(sites, grid, id, 8 * MIB)
    ceph_far.network.cut()
    began = time.monotonic()
    failed = sites.wait(grid, id)
    took = time.monotonic() - began
    print(f"failed after {took:.1f} s: {failed.error}")
    assert failed.state == "failed", failed
    assert "did not answer within the timeout" in str(failed.error), failed
    assert "ceph -s" in str(failed.error), failed
    assert took < 12 * TIMEOUT_SECONDS, took
    # ``dray cp`` without an endpoint fails too.
    url = _short(sites).replace("?", "/g?")
    began = time.monotonic()
    ended = sites.cp("--retries", "0", sites.near.root("f"), url).wait(20 * TIMEOUT_SECONDS)
    print(f"dray cp failed after {time.monotonic() - began:.1f} s: {ended.words}")
    assert ended.code != 0
    assert "cannot connect to the Ceph cluster" in ended.words
    ceph_far.network.restore()
    done = sites.wait(grid, sites.submit(sites.near, "f", grid, "f", id=id))
    expect_done(sites, done, "f", source)
    assert done.bytes.resumed >= before.bytes.durable
