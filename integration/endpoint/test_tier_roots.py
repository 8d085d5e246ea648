"""A tier with two fast roots on separate devices. One device is full or cannot be reached."""

from __future__ import annotations

import shutil
import time
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import pytest

from dray import DrayError
from dray.client import Request, StagingRequest, TierDevice, WriteRequest
from dray.testing.endpoints import Root
from integration.endpoint.raw import dray
from integration.endpoint.test_tier import fill, settled, states, tier_of
from integration.endpoint.test_tier_faults import digest
from integration.endpoint.tier_scene import END_SECONDS, MARKER, MIB, until
from integration.harness import loop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dray.client import Client, Staged, Tier
    from dray.testing.endpoints import Endpoint

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

DISK_BYTES = 64 * MIB
NAMES = ("fast1", "fast2")


class Two(NamedTuple):
    """The folders of a tier's two fast roots and of its slow root."""

    fast1: Path
    fast2: Path
    slow: Path

    def start(self, start: Callable[..., Endpoint], **changes: object) -> Endpoint:
        """Start an endpoint with a tier on these folders."""
        roots = [
            Root("fast1", {"tier": "fast", "path": str(self.fast1)}),
            Root("fast2", {"path": str(self.fast2)}),
            Root("slow", {"tier": "slow", "path": str(self.slow)}),
        ]
        tier = tier_of(fast=list(NAMES), **changes)
        return start("bb", roots=roots, config={"tier": [tier]})

    def write(self, root: str, application: str, version: int, size: int) -> dict[str, str]:
        """Write a version to a fast root as an application does; return its checksums."""
        folder = self._asdict()[root] / application / str(version)
        sums = fill(folder, size, hash((application, version)))
        (folder / MARKER).write_bytes(b"")
        return sums


@pytest.fixture
def two(tmp_path: Path) -> Two:
    """Make the folders of the roots."""
    made = Two(tmp_path / "fast1", tmp_path / "fast2", tmp_path / "slow")
    for folder in made:
        folder.mkdir()
    return made


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[tuple[Two, dict[str, loop.Disk]]]:
    """Make the roots of a tier. Each fast root is a separate file system."""
    if loop.reason():
        pytest.skip(loop.reason())
    (tmp_path / "slow").mkdir()
    with (
        loop.disk(tmp_path / "disk1", DISK_BYTES) as one,
        loop.disk(tmp_path / "disk2", DISK_BYTES) as other,
    ):
        folders = one.folder / "root", other.folder / "root"
        for folder in folders:
            folder.mkdir()
        yield Two(*folders, tmp_path / "slow"), dict(zip(NAMES, (one, other), strict=True))


def device(tier: Tier, root: str) -> TierDevice:
    """Return a fast root of the tier. Before the first scan of the tier, its fields are 0."""
    known = (one for one in tier.devices if one.root == root)
    return next(known, TierDevice(root))


def restart(client: Client, application: str) -> Staged:
    """Stage in the newest version of an application, and wait until it is there."""
    staged = client.stage_in(StagingRequest(application=application))
    if not staged.hit:
        assert staged.transfer is not None
        done = client.wait(staged.transfer, timeout_seconds=END_SECONDS)
        assert done.state == "done", done
    return staged


def is_state(wanted: dict[tuple[str, int], str]) -> Callable[[Tier], bool]:
    """Return a function that checks whether a tier's versions have these states."""
    return lambda tier: states(tier) == wanted


def check(folder: Path, sums: dict[str, str]) -> None:
    """Fail unless a folder has all files of a version with the right content."""
    for name, wanted in sums.items():
        assert digest(folder / name) == wanted, folder / name


def show(endpoint: Endpoint) -> str:
    """Return the output of ``dray tier show`` about the tier."""
    words = ("tier", "show", "burst", "--endpoint", endpoint.address)
    done = dray(*words, "--peer-key", endpoint.key, DRAY_TOKEN=endpoint.token())
    assert done.returncode == 0, done
    return done.stdout


def test_a_restart_finds_the_version_on_its_device(
    start_endpoint: Callable[..., Endpoint], two: Two
) -> None:
    endpoint = two.start(start_endpoint, watermark=1.0)
    two.write("fast1", "a", 1, 3 * MIB)
    two.write("fast1", "b", 1, 6 * MIB)
    with endpoint.client() as client:
        until(client, "demoted", is_state({("a", 1): "demoted", ("b", 1): "demoted"}))
        # The newer version is on the other device.
        sums = two.write("fast2", "a", 2, 3 * MIB)
        wanted = dict.fromkeys([("a", 1), ("a", 2), ("b", 1)], "demoted")
        tier = until(client, "demoted", is_state(wanted))
        until(client, "counted", lambda tier: device(tier, "fast2").used == 3 * MIB)
        assert device(tier, "fast1").error is None
        hits = {name: restart(client, name) for name in ("a", "b")}
        assert (hits["a"].hit, hits["a"].to) == (True, "/fast2/a/2")
        assert (hits["b"].hit, hits["b"].to) == (True, "/fast1/b/1")
        check(two.fast2 / "a/2", sums)
        # A staging call may name a path on each device.
        (two.fast2 / "c/1").mkdir(parents=True)
        (two.fast2 / "c/1/state").write_bytes(b"c" * MIB)
        request = StagingRequest("/fast2/c/1", application="c", version=1, recursive=True)
        staged = client.stage_out(request)
        assert staged.to == "/slow/c/1"
        assert staged.transfer is not None
        assert client.wait(staged.transfer, timeout_seconds=END_SECONDS).state == "done"
        until(client, "declared", lambda tier: states(tier)["c", 1] == "demoted")
        until(client, "counted", lambda tier: device(tier, "fast2").used == 4 * MIB)
    assert (two.slow / "c/1/state").read_bytes() == b"c" * MIB
    shown = show(endpoint)
    assert "/fast1: 9.0 MiB used" in shown, shown
    assert "/fast2: 4.0 MiB used" in shown, shown


def test_a_full_device_loses_only_its_own_caches(
    start_endpoint: Callable[..., Endpoint], disks: tuple[Two, dict[str, loop.Disk]]
) -> None:
    two, _ = disks
    # Each device keeps 8 MiB free.
    endpoint = two.start(start_endpoint, capacity=80 * MIB, watermark=0.8)
    for root, names in (("fast1", "ab"), ("fast2", "cd")):
        for name in names:
            two.write(root, name, 1, 6 * MIB)
    with endpoint.client() as client:
        demoted = {(name, 1): "demoted" for name in "abcd"}
        until(client, "demoted", is_state(demoted))
        foreign = two.fast1 / "foreign"
        foreign.write_bytes(b"f" * (shutil.disk_usage(two.fast1).free - 4 * MIB))
        wanted = {**demoted, ("a", 1): "slow"}
        until(client, "freed", lambda tier: states(tier) in (wanted, swapped(wanted)))
        tier = until(client, "counted", lambda tier: device(tier, "fast1").used == 6 * MIB)
        assert device(tier, "fast2").used == 12 * MIB
        with foreign.open("ab") as file:
            file.write(b"f" * 7 * MIB)
        wanted = {("a", 1): "slow", ("b", 1): "slow", ("c", 1): "demoted", ("d", 1): "demoted"}
        until(client, "freed again", is_state(wanted))
        more = two.fast1 / "more"
        more.write_bytes(b"f" * (shutil.disk_usage(two.fast1).free - 4 * MIB))
        until(client, "missing", lambda tier: tier.missing > 0)
        # A version that does not fit on the first device is placed on the second device.
        job = client.request_write("burst", WriteRequest("e", 1, 8 * MIB, mtbf_seconds=60))
        assert job.path == "/fast2/e/1"
        client.delete_write(job.id)
        staged = restart(client, "a")
        assert (staged.hit, staged.to) == (False, "/fast2/a/1")
        until(client, "restored", lambda tier: states(tier)["a", 1] == "demoted")
        assert restart(client, "a").hit
        # When its first device has space again, a version is restored to this device.
        foreign.unlink()
        more.unlink()
        until(client, "empty", lambda tier: device(tier, "fast1").free > 40 * MIB)
        assert restart(client, "b").to == "/fast1/b/1"


def swapped(wanted: dict[tuple[str, int], str]) -> dict[tuple[str, int], str]:
    """Return the states, with those of the versions a and b exchanged."""
    return {**wanted, ("a", 1): wanted["b", 1], ("b", 1): wanted["a", 1]}


def test_a_transfer_to_a_full_device_delays_only_its_device(
    start_endpoint: Callable[..., Endpoint], disks: tuple[Two, dict[str, loop.Disk]]
) -> None:
    two, _ = disks
    endpoint = two.start(start_endpoint, capacity=120 * MIB, watermark=1.0)
    for name in ("one", "two"):
        (two.slow / name).write_bytes(name.encode() * (4 * MIB))
    foreign = two.fast1 / "foreign"
    foreign.write_bytes(b"f" * (shutil.disk_usage(two.fast1).free - 2 * MIB))
    with endpoint.client() as client:
        until(client, "known", lambda tier: device(tier, "fast1").free < 3 * MIB)
        first = client.stage_in(StagingRequest("/slow/one", to="/fast1/one")).transfer
        second = client.stage_in(StagingRequest("/slow/two", to="/fast2/two")).transfer
        assert first is not None
        assert second is not None
        assert client.wait(second, timeout_seconds=END_SECONDS).state == "done"
        waits = client.transfer(first)
        assert waits.state == "queued"
        assert waits.space is not None
        assert "the file system of /fast1 has" in (waits.space.reason or "")
        foreign.unlink()
        assert client.wait(first, timeout_seconds=END_SECONDS).state == "done"


@pytest.mark.full
def test_a_device_that_fails_stops_only_its_own_versions(
    start_endpoint: Callable[..., Endpoint], disks: tuple[Two, dict[str, loop.Disk]]
) -> None:
    two, mounted = disks
    endpoint = two.start(start_endpoint, watermark=1.0, read_max="4MiB", read_min="2MiB")
    sums = {("a", 1): two.write("fast2", "a", 1, 3 * MIB)}
    with endpoint.client() as client:
        until(client, "demoted", is_state({("a", 1): "demoted"}))
        sums["b", 1] = two.write("fast2", "b", 1, 24 * MIB)
        until(client, "demoting", lambda tier: states(tier).get(("b", 1)) == "demoting")
        mounted["fast2"].fail()
        tier = until(client, "lost", lambda tier: device(tier, "fast2").error is not None)
        assert "Input/output error" in str(device(tier, "fast2").error)
        assert tier.error is None
        # The tier continues to use the other device.
        sums["c", 1] = two.write("fast1", "c", 1, 3 * MIB)
        until(client, "demoted", lambda tier: states(tier).get(("c", 1)) == "demoted")
        job = client.request_write("burst", WriteRequest("d", 1, MIB, mtbf_seconds=60))
        assert job.path == "/fast1/d/1"
        client.delete_write(job.id)
        # A version with a slow copy is restored to the other device.
        staged = restart(client, "a")
        assert (staged.hit, staged.to) == (False, "/fast1/a/1")
        check(two.fast1 / "a/1", sums["a", 1])
        # The newest version of b is only on the failed device. The endpoint reports an error, and
        # does not restore an older version of b.
        with pytest.raises(DrayError, match="only the fast root /fast2 has the version"):
            client.stage_in(StagingRequest(application="b"))
        kept = next(one for one in client.tier("burst").versions if one.application == "b")
        assert kept.state in ("written", "demoting")
    shown = show(endpoint)
    assert "/fast2 cannot be reached: " in shown, shown
    endpoint.stop()
    mounted["fast2"].unmount()
    mounted["fast2"].mount()
    endpoint.start()
    with endpoint.client() as client:
        tier = until(client, "settled", lambda tier: len(tier.versions) == 3 and settled(tier))
        assert device(tier, "fast2").error is None
        # The device fast2, which had failed, still has a copy of a/1. The tier deletes this copy,
        # because a/1 was restored to fast1.
        end = time.monotonic() + END_SECONDS
        while (two.fast2 / "a/1").exists():
            assert time.monotonic() < end, client.tier("burst")
            time.sleep(0.2)
        assert restart(client, "a").to == "/fast1/a/1"
        assert restart(client, "b").to == "/fast2/b/1"
    for (application, version), content in sums.items():
        check(two.slow / application / str(version), content)


def test_a_device_that_is_not_mounted_keeps_its_versions(
    start_endpoint: Callable[..., Endpoint], disks: tuple[Two, dict[str, loop.Disk]]
) -> None:
    two, mounted = disks
    endpoint = two.start(start_endpoint, watermark=1.0, read_max="1MiB", read_min="1MiB")
    sums = two.write("fast2", "a", 1, 12 * MIB)
    with endpoint.client() as client:
        until(client, "known", lambda tier: ("a", 1) in states(tier))
    endpoint.stop()
    mounted["fast2"].unmount()
    two.fast2.mkdir()
    endpoint.start()
    with endpoint.client() as client:
        tier = until(client, "lost", lambda tier: device(tier, "fast2").error is not None)
        said = "the root has neither the file .dray-tier-burst nor any of the fast copies"
        assert said in str(device(tier, "fast2").error)
        time.sleep(5.0)
        assert ("a", 1) in states(client.tier("burst")), "the version was forgotten"
    assert list(two.fast2.iterdir()) == []
    endpoint.stop()
    two.fast2.rmdir()
    mounted["fast2"].mount()
    endpoint.start()
    with endpoint.client() as client:
        until(client, "demoted", is_state({("a", 1): "demoted"}))
    check(two.slow / "a/1", sums)


# --- two tiers with a common root ---------------------------------------------------------------


def start_one(
    start: Callable[..., Endpoint], name: str, fast: Path, slow: Path, **changes: object
) -> Endpoint:
    """Start an endpoint with a tier of one fast root."""
    roots = [
        Root("fast", {"tier": "fast", "path": str(fast)}),
        Root("slow", {"tier": "slow", "path": str(slow)}),
        Root("data"),
    ]
    return start(name, roots=roots, config={"tier": [tier_of(**changes)]})


def put(folder: Path, application: str, version: int, size: int) -> dict[str, str]:
    """Write a version below a fast root. Return its checksums."""
    sums = fill(folder / application / str(version), size, hash((application, version)))
    (folder / application / str(version) / MARKER).write_bytes(b"")
    return sums


def test_two_tiers_with_one_slow_root_lose_nothing(
    start_endpoint: Callable[..., Endpoint], two: Two
) -> None:
    limits = {"capacity": 16 * MIB, "watermark": 0.5}
    first = start_one(start_endpoint, "a", two.fast1, two.slow, **limits)
    second = start_one(start_endpoint, "b", two.fast2, two.slow, **limits)
    sums: dict[str, dict[str, str]] = {}
    for version in (1, 2, 3):
        sums[f"x/{version}"] = put(two.fast1, "x", version, 6 * MIB)
        sums[f"y/{version}"] = put(two.fast2, "y", version, 6 * MIB)
        for endpoint, name in ((first, "x"), (second, "y")):
            with endpoint.client() as client:
                until(client, "demoted", partial(is_durable, key=(name, version)))
        if version == 2:
            first.kill()
            first.start()
    for below, content in sums.items():
        check(two.slow / below, content)
    for endpoint, name in ((first, "x"), (second, "y")):
        with endpoint.client() as client:
            tier = until(client, "freed", lambda tier: tier.used <= 8 * MIB)
            assert {one.application for one in tier.versions} == {name}
            restored = restart(client, name)
            assert restored.to == f"/fast/{name}/3"
            check((two.fast1 if name == "x" else two.fast2) / name / "3", sums[f"{name}/3"])


def is_durable(tier: Tier, key: tuple[str, int]) -> bool:
    """Return true if the slow root has the version."""
    return states(tier).get(key) in ("demoted", "slow")


def test_a_fast_copy_whose_slow_copy_another_tier_has_replaced_stays(
    start_endpoint: Callable[..., Endpoint], two: Two
) -> None:
    """Both tiers have the same version at the same path of the slow root."""
    first = start_one(start_endpoint, "a", two.fast1, two.slow, watermark=1.0)
    second = start_one(start_endpoint, "b", two.fast2, two.slow, watermark=1.0)
    sums = put(two.fast1, "x", 1, 3 * MIB)
    with first.client() as client:
        until(client, "demoted", lambda tier: is_durable(tier, ("x", 1)))
    other = fill(two.fast2 / "x/1", 3 * MIB, 77)
    (two.fast2 / "x/1" / MARKER).write_bytes(b"")
    with second.client() as client:
        until(client, "demoted", lambda tier: is_durable(tier, ("x", 1)))
    check(two.slow / "x/1", other)
    with first.client() as client:
        copy = client.tier("burst").versions[0].transfer
        assert copy is not None
        with pytest.raises(DrayError, match="was kept"):
            client.evict_staging(copy)
        assert restart(client, "x").hit
    check(two.fast1 / "x/1", sums)
    check(two.fast2 / "x/1", other)


def test_two_tiers_with_one_fast_root_lose_nothing(
    start_endpoint: Callable[..., Endpoint], two: Two
) -> None:
    limits = {"capacity": 16 * MIB, "watermark": 0.5}
    slow = (two.slow, two.fast2)
    both = [start_one(start_endpoint, "ab"[n], two.fast1, slow[n], **limits) for n in (0, 1)]
    sums: dict[str, dict[str, str]] = {}
    for version in (1, 2, 3):
        sums[f"x/{version}"] = put(two.fast1, "x", version, 6 * MIB)
        time.sleep(2.0)
        if version == 2:
            both[1].kill()
            both[1].start()
    for endpoint in both:
        with endpoint.client() as client:
            until(client, "settled", lambda tier: settled(tier) and tier.used <= 8 * MIB)
    for below, content in sums.items():
        # At least one of the three roots has a complete copy of each version.
        places = [folder / below for folder in two]
        whole = [place for place in places if all(digest(place / n) == content[n] for n in content)]
        assert whole, below
    with both[0].client() as client:
        tier = client.tier("burst")
        for one in tier.versions:
            if one.state in ("demoted", "slow"):
                check(two.slow / "x" / str(one.version), sums[f"x/{one.version}"])


# --- roots that a tier cannot use -----------------------------------------------------------------


def test_another_endpoint_as_the_slow_root_is_refused_at_the_start(
    start_endpoint: Callable[..., Endpoint],
) -> None:
    other = start_endpoint("far")
    roots = [
        Root("fast", {"tier": "fast"}),
        Root("slow", {"tier": "slow", "store": f"{other.url}/data"}),
    ]
    with pytest.raises(RuntimeError) as caught:
        start_endpoint("bb", roots=roots, config={"tier": [tier_of()]})
    message = str(caught.value)
    assert 'cannot open the root "slow"' in message, message
    assert "a root cannot be at another endpoint (dray://)" in message, message
    assert "mount the storage on this host" in message, message


def test_queued_transfers_wait_until_the_slow_root_is_mounted(
    start_endpoint: Callable[..., Endpoint], tmp_path: Path
) -> None:
    if loop.reason():
        pytest.skip(loop.reason())
    fast = tmp_path / "fast"
    fast.mkdir()
    with loop.disk(tmp_path / "slow", DISK_BYTES) as slow:
        endpoint = start_one(start_endpoint, "bb", fast, slow.folder, watermark=1.0)
        put(fast, "a", 1, 3 * MIB)
        (fast / "file").write_bytes(b"f" * 16 * MIB)
        with endpoint.client() as client:
            until(client, "demoted", lambda tier: is_durable(tier, ("a", 1)))
            request = Request("/fast/file", "/slow/file", id="queued", rate_max=MIB)
            client.submit(request)
            end = time.monotonic() + END_SECONDS
            while client.transfer("queued").state != "active":
                assert time.monotonic() < end, client.transfer("queued")
                time.sleep(0.1)
        endpoint.kill()
        slow.unmount()
        endpoint.start()
        with endpoint.client() as client:
            until(client, "refused", lambda tier: tier.error is not None)
            # A transfer to a root outside of the tier is not delayed.
            client.submit(Request("/fast/file", "/data/copy", id="other"))
            assert client.wait("other", timeout_seconds=END_SECONDS).state == "done"
            time.sleep(3.0)
            assert client.transfer("queued").state == "queued"
        assert list(slow.folder.iterdir()) == [], "written below the mount point"
        endpoint.stop()
        slow.mount()
        endpoint.start()
        with endpoint.client() as client:
            client.change("queued", rate_max=None)
            assert client.wait("queued", timeout_seconds=END_SECONDS).state == "done"
        assert (slow.folder / "file").read_bytes() == b"f" * 16 * MIB
