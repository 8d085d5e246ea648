"""Endpoints whose root is a pool of a Ceph cluster: copies, calls, kills, and foreign folders."""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from dray import DrayError
from dray.testing.endpoints import Root
from integration.harness.program import Process
from integration.storage.moments import kills
from integration.storage.pool_root import (
    END_SECONDS,
    MIB,
    OBJECT,
    OVERHEAD_BYTES,
    POOL_BYTES,
    SYNC_GROUP_BYTES,
    Pool,
    PoolWatch,
    Sites,
    make_file,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from dray.testing.endpoints import Endpoint
    from integration.harness.program import Word
    from integration.storage.ceph import Cluster

pytestmark = [pytest.mark.server, pytest.mark.timeout(1200)]

SIZE = 48 * MIB + 12345
RATE = 16 * MIB
MOMENTS = kills(full=20)


def test_files_and_trees_go_in_and_out(sites: Sites) -> None:
    """``dray cp`` makes two endpoints copy a tree into the pool, and out of it."""
    top = sites.near.root("tree")
    sizes = {"a": SIZE, "b": 0, "c/d": OBJECT, "c/e/f": 3, **{f"many/{n}": n for n in range(40)}}
    for seed, (name, size) in enumerate(sizes.items()):
        make_file(top / name, size, seed)
    grid = sites.at_pool("grid")
    words = ["-r", *sites.credentials(sites.near, grid)]

    def carry(*ends: str) -> None:
        whole = [grid.program, "cp", "--json", *ends, *words]
        name = f"cp-{time.monotonic_ns()}"
        ended = Process(whole, sites.pool.folder, name).wait(END_SECONDS).expect(0)
        assert ended.report["state"] == "done", ended.out

    carry(sites.near.place("tree/"), grid.place("in/"))
    for name in sizes:
        sites.pool.expect(f"in/{name}", top / name)
    assert sites.pool.leftovers() == []
    carry(grid.place("in/"), sites.near.place("back/"))
    for name in sizes:
        assert sites.near.root(f"back/{name}").read_bytes() == (top / name).read_bytes(), name


def test_a_third_party_copy_from_pool_to_pool(
    sites: Sites, ceph: Cluster, start_endpoint: Callable[..., Endpoint]
) -> None:
    """The endpoint of one pool fetches a file from the endpoint of another pool."""
    other = Sites(start_endpoint, Pool(ceph, sites.pool.folder))
    try:
        source = make_file(sites.near.root("x"), SIZE, 3)
        one, two = sites.at_pool("one"), other.at_pool("two")
        assert sites.wait(one, sites.submit(sites.near, "x", one, "d/x")).state == "done"
        before = sites.sent()
        done = sites.wait(two, sites.submit(one, "d/x", two, "e/x"))
        assert (done.state, done.bytes.durable) == ("done", SIZE), done
        other.pool.expect("e/x", source)
        assert other.pool.leftovers() == []
        assert sites.sent() - before < MIB
    finally:
        other.close()


def test_calls_of_the_api_see_the_pool(sites: Sites) -> None:
    """Calls of the API make, list and remove folders and files in the pool."""
    grid = sites.at_pool("grid")
    client = sites.client(grid)
    assert client.mkdir("/data/d/e", parents=True).type == "directory"
    source = make_file(sites.pool.folder / "f", 9 * MIB, 8)
    sites.pool.write("d/f", source)
    assert client.stat("/data/d/f").size == 9 * MIB
    assert [entry.name for entry in client.list("/data/d")] == ["e", "f"]
    assert client.space("/data").total > 0
    client.rm("/data/d", recursive=True)
    assert sites.pool.objects("d/") == []
    assert [entry.name for entry in client.list("/data")] == []


# --- killed endpoints ---------------------------------------------------------------------------


@dataclass
class Sums:
    """Counts over all kills."""

    kills: int = 0
    #: Bytes that the second endpoints found durable, and did not request.
    resumed: int = 0
    #: Maximum over the kills: bytes that were sent twice.
    again: int = 0


def _await_bytes(sites: Sites, count: int) -> None:
    until = time.monotonic() + END_SECONDS
    while sites.sent() < count:
        assert time.monotonic() < until, f"{sites.sent()} bytes were sent, not {count}"
        time.sleep(0.005)


def _resumed_by_another(sites: Sites, number: int, part: float, sums: Sums) -> None:
    """Kill an endpoint after it got the fraction ``part`` of a file. Another endpoint resumes."""
    source = make_file(sites.near.root(f"f{number}"), SIZE, number)
    allowed = [source.read_bytes()]
    if number % 2:
        old = make_file(sites.pool.folder / "old", 9 * MIB, 1000 + number)
        sites.pool.write(f"f{number}", old)
        allowed.append(old.read_bytes())
    first = sites.at_pool(f"first{number}")
    before = sites.sent()
    with PoolWatch(sites.pool, f"f{number}", *allowed) as watch:
        id = sites.submit(sites.near, f"f{number}", first, f"f{number}", rate_max=RATE)
        _await_bytes(sites, before + int(part * SIZE))
        durable = sites.client(first).transfer(id).bytes.durable
        first.kill()
        assert sites.pool.read(f"f{number}") in [None, *allowed]
        second = sites.at_pool(f"second{number}")
        # In half of the cases, the second transfer has another id. It then inherits the file from
        # the log of the first transfer.
        again = sites.submit(
            sites.near, f"f{number}", second, f"f{number}", id=id if number % 4 < 2 else None
        )
        done = sites.wait(second, again)
    assert watch.rounds > 3
    assert (done.state, done.error) == ("done", None), done
    sites.pool.expect(f"f{number}", source)
    assert sites.pool.leftovers() == [], f"moment {number}"
    counts = done.bytes
    assert counts.durable == SIZE, done
    assert counts.resumed >= durable, done
    # The second endpoint requests no byte that was durable.
    assert counts.sent <= SIZE - counts.resumed, done
    excess = sites.sent() - before - SIZE
    assert excess <= POOL_BYTES + SYNC_GROUP_BYTES + OVERHEAD_BYTES, excess
    assert excess <= SIZE * part - durable + POOL_BYTES + OVERHEAD_BYTES
    sums.kills += 1
    sums.resumed += counts.resumed
    sums.again = max(sums.again, excess)
    second.close()


def _kill_many(sites: Sites, moments: int) -> None:
    chance = random.Random(int(os.environ.get("DRAY_SEED", "12")))
    sums = Sums()
    for number in range(moments):
        part = 0.75 if moments == 1 else chance.uniform(0.02, 0.98)
        _resumed_by_another(sites, number, part, sums)
    print(
        f"{sums.kills} kills: {sums.resumed / MIB:.1f} MiB resumed of "
        f"{moments * SIZE / MIB:.1f} MiB, at worst {sums.again / MIB:.1f} MiB sent twice"
    )
    assert sums.resumed > moments * SIZE // 5


def test_a_killed_endpoint_is_replaced_by_another(sites: Sites) -> None:
    _kill_many(sites, 1)


@pytest.mark.full
def test_endpoints_killed_at_many_moments_are_replaced_by_others(sites: Sites) -> None:
    _kill_many(sites, MOMENTS)


# --- folders of other programs ------------------------------------------------------------------


def test_a_folder_of_other_programs_is_a_folder(sites: Sites) -> None:
    """Files of other programs imply a folder. Each call treats it as a folder."""
    one = make_file(sites.pool.folder / "one", 5 * MIB, 1)
    for name in ("theirs/run/one", "theirs/run/deep/er/two"):
        sites.pool.write(name, one)
    grid = sites.at_pool("grid")
    client = sites.client(grid)
    for path in ("theirs", "theirs/run", "theirs/run/deep"):
        assert client.stat(f"/data/{path}").type == "directory", path
    for path in ("their", "theirs/ru", "theirs/run/deep/e", "theirs/run/none"):
        with pytest.raises(DrayError, match="no such file or folder"):
            client.stat(f"/data/{path}")
    with pytest.raises(DrayError) as caught:
        client.rm("/data/theirs/run")
    assert "not empty" in str(caught.value)
    assert sites.pool.read("theirs/run/one") is not None
    # A transfer must not create a file with the name of a folder.
    make_file(sites.near.root("x"), MIB, 4)
    failed = sites.wait(grid, sites.submit(sites.near, "x", grid, "theirs/run"))
    assert failed.state == "failed", failed
    assert sites.pool.read("theirs/run") is None
    done = sites.wait(grid, sites.submit(sites.near, "x", grid, "theirs/run/deep/x"))
    assert done.state == "done", done
    assert client.rm("/data/theirs", recursive=True)
    assert sites.pool.objects("theirs") == []
    with pytest.raises(DrayError, match="no such file or folder"):
        client.stat("/data/theirs/run")


def test_a_root_may_be_a_folder_of_other_programs(
    sites: Sites, start_endpoint: Callable[..., Endpoint]
) -> None:
    """An endpoint starts with such a root, and writes new files beside the existing ones."""
    one = make_file(sites.pool.folder / "one", 5 * MIB, 1)
    sites.pool.write("theirs/run/one", one)
    url = sites.pool.url.replace("/data?", "/data/theirs?")
    grid = start_endpoint("grid", roots=[Root("data", {"store": url})])
    assert [entry.name for entry in sites.client(grid).list("/data")] == ["run"]
    source = make_file(sites.near.root("x"), 9 * MIB, 4)
    assert sites.wait(grid, sites.submit(sites.near, "x", grid, "run/x")).state == "done"
    sites.pool.expect("theirs/run/x", source)


def test_a_copy_into_a_folder_of_other_programs_keeps_their_files(sites: Sites) -> None:
    """``--overwrite never`` keeps the files that other programs have written."""
    one = make_file(sites.pool.folder / "one", 5 * MIB, 1)
    tree = sites.pool.folder / "tree"
    for name in ("a", "sub/a", "sub/deep/a"):
        make_file(tree / name, 5 * MIB, 9)
        make_file(tree / f"{name}-new", 70_000, 10)
        sites.pool.write(f"tree/{name}", one)
    words: list[Word] = ["-r", "--overwrite", "never", tree, sites.pool.url.replace("?", "/?")]
    report = sites.cp(*words).wait().expect(0).report
    assert (report["files_skipped"], report["files_failed_total"]) == (3, 0), report
    for name in ("a", "sub/a", "sub/deep/a"):
        assert sites.pool.read(f"tree/{name}") == one.read_bytes(), name
        sites.pool.expect(f"tree/{name}-new", tree / f"{name}-new")
