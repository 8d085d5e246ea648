"""A sweep removes abandoned partial data from a pool of a Ceph cluster, by its age."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from integration.harness.program import Process
from integration.storage.pool_root import (
    END_SECONDS,
    MIB,
    OBJECT,
    SPACE,
    STATE,
    TOP,
    Sites,
    make_file,
)

if TYPE_CHECKING:
    from integration.harness.program import Word

pytestmark = [pytest.mark.full, pytest.mark.server, pytest.mark.timeout(600)]

SIZE = 48 * MIB
RATE = 8 * MIB
DAY = 24 * 3600


def begin(sites: Sites, name: str) -> Process:
    """Start a slow copy into the pool. Return when 10 MiB are durable."""
    source = make_file(sites.pool.folder / name, SIZE, 5)
    url = sites.pool.url.replace("?", f"/{name}?")
    copy = sites.cp("--progress", "json", "--rate", str(RATE), source, url)
    copy.await_durable(10 * MIB)
    return copy


def sweep(sites: Sites, *words: str) -> dict[str, Any]:
    """Sweep the pool, and return the final report."""
    whole: list[Word] = [sites.near.program, "log", "sweep", "--json", sites.pool.url, *words]
    name = f"sweep-{time.monotonic_ns()}"
    out = Process(whole, sites.pool.folder, name).wait().expect(0).out
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


def test_an_abandoned_upload_is_removed_by_its_age(sites: Sites) -> None:
    """A sweep removes the log, the lease and the partial file with its objects. It keeps others."""
    pool = sites.pool
    kept = make_file(pool.folder / "kept", 9 * MIB, 1)
    sites.cp(kept, pool.url.replace("?", "/kept?")).wait().expect(0)
    pool.write("theirs", kept)
    copy = begin(sites, "f")
    pool.age(2 * DAY, with_logs=False)
    running = sweep(sites, "--older-than", "1d")
    assert (running["in_use"], running["removed"]) == (1, 0), running
    copy.kill()
    assert len(pool.objects("f.")) > 1
    young = sweep(sites, "--older-than", "1d")
    assert young["removed"] == 0, young
    pool.age(2 * DAY)
    assert sweep(sites, "--older-than", "7d")["removed"] == 0
    told = sweep(sites, "--older-than", "1d", "--dry-run")
    assert (told["removed"], len(pool.objects("f.")) > 1) == (1, True), told
    assert told["bytes"] >= 10 * MIB, told
    done = sweep(sites, "--older-than", "1d")
    assert (done["removed"], done["failed"]) == (1, 0), done
    assert pool.objects("f.") == []
    assert pool.leftovers() == []
    pool.expect("kept", kept)
    pool.expect("theirs", kept)


def test_a_resumed_transfer_is_not_swept(sites: Sites) -> None:
    """If a second run has continued old partial data, a sweep keeps the data."""
    begin(sites, "f").kill()
    sites.pool.age(2 * DAY)
    begin(sites, "f").kill()
    found = sweep(sites, "--older-than", "1d")
    assert (found["removed"], found["younger"]) == (0, 1), found
    url = sites.pool.url.replace("?", "/f?")
    report = sites.cp(sites.pool.folder / "f", url).wait().expect(0).report
    assert report["bytes_resumed"] >= 10 * MIB, report
    sites.pool.expect("f", sites.pool.folder / "f")


def test_objects_without_a_first_object_are_removed_by_their_age(sites: Sites) -> None:
    """A deletion by another program leaves objects of a file. A sweep removes those of dray."""
    pool, cluster = sites.pool, sites.pool.cluster
    source = make_file(pool.folder / "f", 5 * OBJECT, 1)
    for name in ("f", "d/f"):
        sites.cp(source, pool.url.replace("?", f"/{name}?")).wait().expect(0)
    pool.write("theirs", source)
    for name in ("f", "d/f", "theirs"):
        cluster.remove(pool.name, f"{TOP}/{name}.{0:016x}", SPACE)
    # A writer that dies before it makes its partial file leaves a claim object like this one.
    cluster.write(pool.name, f"c{TOP}/claimed", "", STATE)
    assert sweep(sites, "--older-than", "1d")["removed"] == 0
    pool.age(2 * DAY)
    found = sweep(sites, "--older-than", "1d")
    assert (found["removed"], found["failed"]) == (2, 0), found
    assert found["bytes"] >= 8 * OBJECT, found
    assert pool.objects("f.") == pool.objects("d/f.") == []
    # A sweep keeps a file of another program without a first object: the file may be sparse.
    assert len(pool.objects("theirs.")) == 4
    assert pool.leftovers() == []


def test_a_sweep_of_a_missing_folder_makes_none(sites: Sites) -> None:
    url = sites.pool.url.replace("?", "/none?")
    ended = Process(
        [sites.near.program, "log", "sweep", url], sites.pool.folder, "sweep-none"
    ).wait()
    assert ended.code != 0
    assert "is not an existing folder" in ended.words, ended.words
    assert not any("none" in name for name in sites.pool.cluster.names(sites.pool.name, STATE))


def test_the_janitor_of_an_endpoint_removes_an_abandoned_upload(sites: Sites) -> None:
    """The janitor sweeps a pool about a minute after the endpoint's start, and logs the removal."""
    pool = sites.pool
    begin(sites, "f").kill()
    pool.age(3 * DAY)
    grid = sites.at_pool("grid", janitor={"age_days": 2})
    until = time.monotonic() + END_SECONDS
    while pool.objects("f.") or pool.leftovers():
        assert time.monotonic() < until, pool.leftovers()
        time.sleep(1)
    assert '\\"did\\":\\"removed\\"' in grid.log_text(), grid.log_text()
