"""Faults of a tier: nothing is lost, and the catalog agrees with the disks after a restart."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pwd
import shutil
import subprocess
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from dray.client import StagingRequest
from dray.testing.endpoints import Endpoint, Root
from integration.endpoint.scene import FULL
from integration.endpoint.test_tier import fill, one, settled, states, tier_of
from integration.endpoint.tier_scene import MARKER, MIB, until
from integration.harness import loop
from integration.harness.marks import in_full

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dray.client import Tier
    from dray.testing.faults import Faults

pytestmark = [pytest.mark.server, pytest.mark.timeout(1800)]

#: Number of moments at which the endpoint is killed.
MOMENTS = 30 if FULL else 3
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
Sums = dict[tuple[str, int], dict[str, str]]


class Folders(NamedTuple):
    """The folders of the fast and the slow root."""

    fast: Path
    slow: Path

    def roots(self) -> list[Root]:
        """Return the roots of an endpoint for these folders."""
        pairs = (("fast", self.fast), ("slow", self.slow))
        return [Root(name, {"tier": name, "path": str(path)}) for name, path in pairs]

    def write(self, application: str, version: int, size: int) -> dict[str, str]:
        """Write a version as an application does. Return its checksums."""
        folder = self.fast / application / str(version)
        sums = fill(folder, size, hash((application, version)))
        (folder / MARKER).write_bytes(b"")
        return sums


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    """Make the folders of the fast and the slow root."""
    made = Folders(tmp_path / "fast", tmp_path / "slow")
    made.fast.mkdir()
    made.slow.mkdir()
    return made


def digest(path: Path) -> str:
    """Return the SHA-256 of a file, or an empty text if the file does not exist."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except (FileNotFoundError, NotADirectoryError):
        return ""


def check_safe(folders: Folders, sums: Sums) -> None:
    """Fail if a file is lost: each has its content on the fast root, or else on the slow root."""
    for (application, version), content in sums.items():
        for name, wanted in content.items():
            below = Path(application) / str(version) / name
            found = digest(folders.fast / below) or digest(folders.slow / below)
            assert found == wanted, f"{below} is lost"


def check_agreement(folders: Folders, sums: Sums, tier: Tier) -> None:
    """Fail unless the catalog and the roots have the same versions."""
    assert states(tier).keys() == sums.keys()
    for (application, version), state in states(tier).items():
        below = Path(application) / str(version)
        on_fast, on_slow = state != "slow", state in ("demoted", "slow")
        for name, wanted in sums[application, version].items():
            if on_slow:
                assert digest(folders.slow / below / name) == wanted, (state, below, name)
            if on_fast:
                assert digest(folders.fast / below / name) == wanted, (state, below, name)
        assert (folders.fast / below).exists() == on_fast, (state, below)


def settle(endpoint: Endpoint, folders: Folders, sums: Sums) -> Tier:
    """Wait until no version waits, and the tier has freed what it can; check everything."""

    def is_done(tier: Tier) -> bool:
        is_free = tier.used <= tier.watermark or tier.missing > 0
        return settled(tier) and len(tier.versions) == len(sums) and is_free

    with endpoint.client() as client:
        tier = until(client, "settled", is_done)
        # Older versions leave the fast root in the round after their demotion.
        tier = until(client, "freed", lambda tier: is_done(tier) and not useless(tier))
    check_safe(folders, sums)
    check_agreement(folders, sums, tier)
    return tier


def fill_disk(file: Path) -> None:
    """Write a file until the file system is full."""
    with contextlib.suppress(OSError), file.open("wb", buffering=0) as filler:
        while filler.write(b"f" * MIB):
            pass


def has_row(tier: Tier, *, key: tuple[str, int]) -> bool:
    """Return true if the tier's catalog has the version."""
    return key in states(tier)


def is_demoted(tier: Tier, *, key: tuple[str, int]) -> bool:
    """Return true if the demotion of the version has begun."""
    return states(tier).get(key) in ("demoting", "demoted", "slow")


def useless(tier: Tier) -> list[tuple[str, int]]:
    """Return the older versions that the tier still has to delete."""
    newest: dict[str, int] = {}
    for each in tier.versions:
        newest[each.application] = max(each.version, newest.get(each.application, 0))
    return [
        (each.application, each.version)
        for each in tier.versions
        if each.state == "demoted" and each.version < newest[each.application] and not each.kept
    ]


# --- the endpoint is killed ---------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["demotion", in_full("deletion")])
def test_an_endpoint_killed_at_any_moment_loses_nothing(
    start_endpoint: Callable[..., Endpoint],
    folders: Folders,
    fault: Faults,
    tmp_path: Path,
    stage: str,
) -> None:
    audit = tmp_path / "audit"
    tier = tier_of(capacity=24 * MIB, watermark=0.5, read_max="12MiB", read_min="6MiB")
    config = {"tier": [tier], "audit": {"file": str(audit)}}
    endpoint = start_endpoint("bb", roots=folders.roots(), config=config)
    sums: Sums = {}
    for moment in range(MOMENTS):
        application = "abc"[moment % 3]
        seen = count_lines(audit)
        sums[application, moment] = folders.write(application, moment, 6 * MIB)
        if stage == "demotion":
            with endpoint.client() as client:
                key = (application, moment)
                until(client, "demoting", functools.partial(is_demoted, key=key))
            after = fault.chance.uniform(0.0, 0.8)
        else:
            # The deletion of an older version, or for space, follows the demotion.
            end = time.monotonic() + 20.0
            while count_lines(audit, '"did":"removes"', seen) == 0 and time.monotonic() < end:
                time.sleep(0.001)
            after = fault.chance.uniform(0.0, 0.02)
        time.sleep(after)
        endpoint.kill()
        print(f"{stage} {moment}: killed after {after:.4f} s")
        check_safe(folders, sums)
        endpoint.start()
    settle(endpoint, folders, sums)


def count_lines(audit: Path, text: str = "", after: int = 0) -> int:
    """Count the lines with ``text`` after the first ``after`` lines."""
    if not audit.exists():
        return 0
    lines = audit.read_text(encoding="utf-8", errors="replace").splitlines()[after:]
    return sum(text in line.replace(" ", "") for line in lines)


# --- the slow tier ------------------------------------------------------------------------------


@pytest.fixture
def small_slow(tmp_path: Path) -> Iterator[tuple[Folders, loop.Disk]]:
    """Make a fast root, and a slow root that is a file system of 40 MiB."""
    if loop.limits_reason():
        pytest.skip(loop.limits_reason())
    (tmp_path / "fast").mkdir()
    with loop.disk(tmp_path / "slow", 40 * MIB) as slow:
        yield Folders(tmp_path / "fast", slow.folder), slow


def test_nothing_is_deleted_while_the_slow_tier_is_full(
    start_endpoint: Callable[..., Endpoint], small_slow: tuple[Folders, loop.Disk]
) -> None:
    folders, _ = small_slow
    filler = folders.slow / "foreign"
    fill_disk(filler)
    config = {"tier": [tier_of(capacity=16 * MIB, watermark=0.5)]}
    endpoint = start_endpoint("bb", roots=folders.roots(), config=config)
    sums = {("a", version): folders.write("a", version, 6 * MIB) for version in (1, 2)}
    with endpoint.client() as client:
        tier = until(client, "failed", lambda tier: any(each.error for each in tier.versions))
        assert "No space left" in str([each.error for each in tier.versions]), tier
        tier = until(client, "above the watermark", lambda tier: tier.missing > 0)
        assert set(states(tier).values()) <= {"written", "demoting"}
    for (application, version), content in sums.items():
        for name, wanted in content.items():
            assert digest(folders.fast / application / str(version) / name) == wanted
    filler.unlink()
    # A failed demotion is tried again after a minute, and after a restart at once.
    endpoint.restart()
    settle(endpoint, folders, sums)


def test_a_stage_out_that_failed_keeps_its_deadline(
    start_endpoint: Callable[..., Endpoint], small_slow: tuple[Folders, loop.Disk]
) -> None:
    folders, _ = small_slow
    filler = folders.slow / "foreign"
    fill_disk(filler)
    config = {"tier": [tier_of(capacity=16 * MIB, watermark=0.5)]}
    endpoint = start_endpoint("bb", roots=folders.roots(), config=config)
    sums = fill(folders.fast / "a" / "1", 6 * MIB, 1)
    deadline = datetime.now(timezone.utc).replace(microsecond=0) + timedelta(minutes=10)
    with endpoint.client() as client:
        request = StagingRequest(
            "/fast/a/1",
            recursive=True,
            application="a",
            version=1,
            deadline=deadline,
            labels={"experiment": "e1"},
        )
        staged = client.stage_out(request)
        assert staged.transfer is not None
        until(client, "failed", lambda tier: any(each.error for each in tier.versions))
    filler.unlink()
    # A failed demotion is tried again after a minute, and after a restart at once.
    endpoint.restart()
    with endpoint.client() as client:
        tier = until(client, "demoted", lambda tier: tier.versions[0].state != "written")
        assert tier.versions[0].transfer == staged.transfer
        done = client.wait(staged.transfer, timeout_seconds=60)
        assert done.state == "done", done
        kept = datetime.fromisoformat(done.request["deadline"].replace("Z", "+00:00"))
        assert (kept, done.request["labels"]) == (deadline, {"experiment": "e1"})
        assert not [notice for notice in done.notices if "promise" in notice], done.notices
        assert done.miss is None
    for name, wanted in sums.items():
        assert digest(folders.slow / "a" / "1" / name) == wanted


def test_a_slow_tier_that_is_slow_delays_demotions_only(
    start_endpoint: Callable[..., Endpoint], small_slow: tuple[Folders, loop.Disk]
) -> None:
    folders, slow = small_slow
    slow.limit(3 * MIB)
    config = {"tier": [tier_of(capacity=64 * MIB, watermark=0.25)]}
    endpoint = start_endpoint("bb", roots=folders.roots(), config=config)
    sums: Sums = {}
    begun = time.monotonic()
    for version in range(1, 5):
        sums["a", version] = folders.write("a", version, 6 * MIB)
    assert time.monotonic() - begun < 4.0, "writes waited for the slow tier"
    with endpoint.client() as client:
        until(client, "demoting", lambda tier: "demoting" in states(tier).values())
    endpoint.kill()
    check_safe(folders, sums)
    endpoint.start()
    settle(endpoint, folders, sums)
    assert time.monotonic() - begun > 24 * MIB / (3 * MIB) - 4.0, "the limit had no effect"


def test_a_slow_tier_that_is_gone_keeps_the_fast_copies(
    start_endpoint: Callable[..., Endpoint], small_slow: tuple[Folders, loop.Disk]
) -> None:
    folders, slow = small_slow
    config = {"tier": [tier_of(capacity=64 * MIB, watermark=1.0)]}
    endpoint = start_endpoint("bb", roots=folders.roots(), config=config)
    sums: Sums = {
        ("a", 1): folders.write("a", 1, 3 * MIB),
        ("b", 1): folders.write("b", 1, 3 * MIB),
    }
    settle(endpoint, folders, sums)
    endpoint.stop()
    # At the next start the file system is not mounted, so that its mount point is an empty folder.
    slow.unmount()
    endpoint.start()
    sums["a", 2] = folders.write("a", 2, 3 * MIB)
    with endpoint.client() as client:
        tier = until(client, "refused", lambda tier: tier.error is not None)
        assert "cannot use the slow root /slow" in str(tier.error), tier
        assert "mount the file system" in str(tier.error), tier
    time.sleep(5.0)
    assert list(folders.slow.iterdir()) == [], "written below the mount point"
    for (application, version), content in sums.items():
        for name, wanted in content.items():
            assert digest(folders.fast / application / str(version) / name) == wanted
    endpoint.stop()
    slow.mount()
    endpoint.start()
    settle(endpoint, folders, sums)


@pytest.mark.parametrize("owner", ["alice", None])
def test_a_slow_root_is_known_by_its_copies_without_its_file(
    start_endpoint: Callable[..., Endpoint], folders: Folders, owner: str | None
) -> None:
    """Without an owner, the endpoint starts before it can create the file of the tier."""
    tier = tier_of(capacity=64 * MIB, watermark=1.0, owner=owner)
    if owner is None:
        tier = {key: tier[key] for key in tier if key not in ("owner", "versions", "complete")}
    endpoint = start_endpoint("bb", roots=folders.roots(), config={"tier": [tier]})
    sums: Sums = {("a", 1): folders.write("a", 1, 3 * MIB)}
    with endpoint.client() as client:
        if owner is None:
            request = StagingRequest(path="/fast/a/1", recursive=True, application="a", version=1)
            client.stage_out(request)
        until(client, "demoted", functools.partial(is_demoted, key=("a", 1)))
    settle(endpoint, folders, sums)
    endpoint.stop()
    file = folders.slow / ".dray-tier-burst"
    file.unlink(missing_ok=True)
    endpoint.start()
    with endpoint.client() as client:
        tier_now = until(client, "recognised", lambda tier: file.exists() or bool(tier.error))
    assert tier_now.error is None, tier_now
    settle(endpoint, folders, sums)


# --- the fast device ----------------------------------------------------------------------------


def test_a_foreign_file_on_the_fast_device_takes_the_space_of_caches_only(
    start_endpoint: Callable[..., Endpoint], tmp_path: Path
) -> None:
    if loop.reason():
        pytest.skip(loop.reason())
    (tmp_path / "slow").mkdir()
    with loop.disk(tmp_path / "fast", 80 * MIB) as fast:
        folders = Folders(fast.folder, tmp_path / "slow")
        config = {"tier": [tier_of(capacity=60 * MIB, watermark=0.8)]}
        endpoint = start_endpoint("bb", roots=folders.roots(), config=config)
        sums = {(name, 1): folders.write(name, 1, 6 * MIB) for name in ("a", "b", "c")}
        tier = settle(endpoint, folders, sums)
        assert set(states(tier).values()) == {"demoted"}
        with endpoint.client() as client:
            staged = client.stage_in(StagingRequest(application="a", pin_seconds=600))
            assert staged.hit
            foreign = fast.folder / "foreign"
            foreign.write_bytes(b"f" * (shutil.disk_usage(fast.folder).free - 2 * MIB))
            # The tier wants 12 MiB free: it deletes both caches that are not pinned.
            wanted = {("a", 1): "demoted", ("b", 1): "slow", ("c", 1): "slow"}
            until(client, "freed", lambda tier: states(tier) == wanted)
            check_safe(folders, sums)
            # Without caches, the tier says how much is missing, and deletes nothing else.
            foreign.write_bytes(b"f" * (foreign.stat().st_size + 10 * MIB))
            tier = until(client, "missing", lambda tier: tier.missing > 0)
            assert one(tier, "a", 1).kept == "pinned"
        assert foreign.exists()
        settle(endpoint, folders, sums)
        endpoint.close()


# --- the clock ----------------------------------------------------------------------------------


def test_steps_of_the_clock_delay_nothing(folders: Folders, tmp_path: Path) -> None:
    if not FAKETIME.exists():
        pytest.skip("needs libfaketime")
    step = tmp_path / "step"
    step.write_text("+0s")
    wrap = ["env", f"LD_PRELOAD={FAKETIME}", f"FAKETIME_TIMESTAMP_FILE={step}"]
    wrap += ["FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1"]
    config = {"tier": [tier_of(capacity=16 * MIB, watermark=0.5, read_max="6MiB", read_min="3MiB")]}
    endpoint = Endpoint(
        tmp_path / "endpoint", "bb", roots=folders.roots(), config=config, wrap=wrap
    )
    endpoint.start()
    sums: Sums = {}
    try:
        token = endpoint.token(lifetime="7d")
        for version, hours in enumerate(("+0s", "+6h", "+0s", "+12h", "+3h"), start=1):
            sums["a", version] = folders.write("a", version, 6 * MIB)
            with endpoint.client(token=token) as client:
                until(client, "seen", functools.partial(has_row, key=("a", version)))
            step.write_text(hours)
            time.sleep(1.0)
            check_safe(folders, sums)
        step.write_text("+0s")
        begun = time.monotonic()
        settle(endpoint, folders, sums)
        assert time.monotonic() - begun < 60.0, endpoint.log_text()
    finally:
        endpoint.close()


# --- applications and other endpoints -----------------------------------------------------------


@pytest.mark.parametrize("how", [in_full("in place"), "renamed"])
def test_a_version_overwritten_while_it_is_demoted_is_demoted_again(
    start_endpoint: Callable[..., Endpoint], folders: Folders, how: str
) -> None:
    config = {"tier": [tier_of(watermark=1.0, read_max="4MiB", read_min="4MiB")]}
    endpoint = start_endpoint("bb", roots=folders.roots(), config=config)
    folders.write("a", 1, 12 * MIB)
    with endpoint.client() as client:
        until(client, "demoting", lambda tier: states(tier).get(("a", 1)) == "demoting")
        time.sleep(1.0)
        fresh = folders.fast / "fresh"
        content = fill(fresh, 12 * MIB, 77)
        for name in content:
            target = folders.fast / "a" / "1" / name
            if how == "renamed":
                (fresh / name).rename(target)
            else:
                target.write_bytes((fresh / name).read_bytes())
        shutil.rmtree(fresh)
        sums = {("a", 1): content}
        folders.write("a", 2, 3 * MIB)
        end = time.monotonic() + 120.0
        while True:
            check_safe(folders, sums)
            if all(digest(folders.slow / "a/1" / name) == content[name] for name in content):
                break
            assert time.monotonic() < end, client.tier("burst")
            time.sleep(0.5)
        until(client, "freed", lambda tier: states(tier) == {("a", 1): "slow", ("a", 2): "demoted"})
    check_safe(folders, sums)


def test_two_endpoints_with_the_same_tier_lose_nothing(
    start_endpoint: Callable[..., Endpoint], folders: Folders
) -> None:
    config = {"tier": [tier_of(capacity=24 * MIB, watermark=0.5)]}
    both = [start_endpoint(name, roots=folders.roots(), config=config) for name in ("a", "b")]
    sums: Sums = {}
    for version in range(1, 5):
        for application in ("x", "y"):
            sums[application, version] = folders.write(application, version, 3 * MIB)
        time.sleep(2.0)
        check_safe(folders, sums)
    both[0].kill()
    check_safe(folders, sums)
    both[0].start()
    end = time.monotonic() + 150.0
    while True:
        check_safe(folders, sums)
        newest = all((folders.slow / name / "4" / MARKER).exists() for name in ("x", "y"))
        used = sum(path.stat().st_size for path in folders.fast.rglob("*") if path.is_file())
        if newest and used <= 12 * MIB:
            break
        assert time.monotonic() < end, [endpoint.log_text() for endpoint in both]
        time.sleep(1.0)
    for endpoint in both:
        with endpoint.client() as client:
            tier = until(client, "settled", settled)
        for key, state in states(tier).items():
            fast = folders.fast / key[0] / str(key[1])
            assert fast.exists() == (state != "slow"), (endpoint.name, key, state)


def test_a_version_that_cannot_be_entered_does_not_stop_the_others(
    folders: Folders, tmp_path: Path
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can start the endpoint as another user")
    nobody = pwd.getpwnam("nobody")
    config = {"tier": [tier_of(watermark=1.0)]}
    # `tmp_path` belongs to root, and other users may not enter it.
    with contextlib.ExitStack() as stack:
        home = Path(subprocess.check_output(["mktemp", "-d"], text=True).strip())
        stack.callback(shutil.rmtree, home, ignore_errors=True)
        made = Folders(home / "fast", home / "slow")
        for folder in made:
            folder.mkdir()
        wrap = ["setpriv", f"--reuid={nobody.pw_uid}", "--clear-groups"]
        endpoint = Endpoint(home / "endpoint", "bb", roots=made.roots(), config=config, wrap=wrap)
        stack.callback(endpoint.close)
        closed = made.fast / "closed" / "1"
        made.write("closed", 1, 3 * MIB)
        sums = {("open", 1): made.write("open", 1, 3 * MIB)}
        subprocess.run(["chown", "-R", str(nobody.pw_uid), home], check=True)
        # The endpoint may not enter one version, and may not enter the folder of one application.
        os.chown(closed, 0, 0)
        closed.chmod(0o700)
        hidden = made.fast / "hidden"
        made.write("hidden", 1, 3 * MIB)
        hidden.chmod(0o700)
        endpoint.start()
        with endpoint.client() as client:
            wanted = {("open", 1): "demoted"}
            tier = until(client, "demoted", lambda tier: states(tier) == wanted)
            assert tier.error is None, tier
            said = endpoint.log_text()
            assert said.count("cannot read the version /fast/closed/1") == 1, said
            assert "permission denied" in said.lower(), said
            # The version is demoted once it can be read.
            subprocess.run(["chown", "-R", str(nobody.pw_uid), made.fast], check=True)
            sums["closed", 1] = {}
            until(client, "demoted", lambda tier: len(tier.versions) == 3 and settled(tier))
        check_safe(made, sums)
