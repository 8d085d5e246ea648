"""A tier limits the writes to its fast device, and trims the device after deletions."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dray.testing.endpoints import Root
from integration.endpoint.test_tier import fill, states, tier_of
from integration.endpoint.tier_scene import MARKER, MIB, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dray.testing.endpoints import Endpoint

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

BLKIO = Path("/sys/fs/cgroup/blkio")
LIMIT = BLKIO / "blkio.throttle.write_bps_device"
IMAGE_BYTES = 512 * MIB
WRITE_MAX = 40 * MIB


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[tuple[Path, Path, str]]:
    """Yield a disk image, the mount point of its file system, and the name of its loop device."""
    image, mount = tmp_path / "image", tmp_path / "mount"
    with image.open("wb") as file:
        file.truncate(IMAGE_BYTES)
    mount.mkdir()
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    attached = subprocess.run(
        ["losetup", "--show", "-f", image], check=False, capture_output=True, text=True
    )
    if attached.returncode != 0:
        pytest.skip(f"no loop device: {attached.stderr}")
    device = attached.stdout.strip()
    try:
        subprocess.run(["mount", device, mount], check=True)
        try:
            (mount / "root").mkdir()
            number = Path("/sys/block", Path(device).name, "dev").read_text().strip()
            yield image, mount / "root", number
        finally:
            subprocess.run(["umount", mount], check=False)
    finally:
        subprocess.run(["losetup", "-d", device], check=False)


def begin(start: Callable[..., Endpoint], path: Path, **changes: object) -> Endpoint:
    """Start an endpoint with a tier whose fast root is on the device."""
    roots = [Root("fast", {"tier": "fast", "path": str(path)}), Root("slow", {"tier": "slow"})]
    values = {"write_max": "40MiB", "write_min": "20MiB", "watermark": 1.0, **changes}
    return start("bb", roots=roots, config={"tier": [tier_of(**values)]})


def limits() -> dict[str, int]:
    """Return the write limits in the cgroup, by device."""
    lines = [line.split() for line in LIMIT.read_text().splitlines()]
    return {device: int(rate) for device, rate in lines}


def test_writes_are_limited_through_the_cgroup(
    disk: tuple[Path, Path, str], start_endpoint: Callable[..., Endpoint]
) -> None:
    _, path, number = disk
    if not os.access(LIMIT, os.W_OK):
        pytest.skip("this host has no blkio controller that may be written")
    endpoint = begin(start_endpoint, path, limit_writes=str(BLKIO))
    with endpoint.client() as client:
        until(client, "limited", lambda tier: tier.is_write_limited)
        assert limits()[number] == WRITE_MAX
        began = time.monotonic()
        words = ["dd", "if=/dev/zero", f"of={path}/file", "bs=1M", "count=120", "oflag=direct"]
        subprocess.run(words, check=True, capture_output=True)
        rate = 120 / (time.monotonic() - began)
        print(f"{rate:.1f} MiB/s of {WRITE_MAX / MIB:.0f} MiB/s")
        assert rate < 1.2 * WRITE_MAX / MIB
    endpoint.stop()
    # The stopped endpoint leaves no limit for the applications.
    assert number not in limits()


def test_a_limit_that_is_not_possible_is_shown_with_its_reason(
    start_endpoint: Callable[..., Endpoint], tmp_path: Path
) -> None:
    roots = [Root("fast", {"tier": "fast"}), Root("slow", {"tier": "slow"})]
    tier = tier_of(limit_writes=str(tmp_path))
    endpoint = start_endpoint("bb", roots=roots, config={"tier": [tier]})
    with endpoint.client() as client:
        found = until(client, "shown", lambda tier: tier.limit_error is not None)
        assert not found.is_write_limited
        assert found.limit_error is not None
        assert "io.max" in found.limit_error or "block device" in found.limit_error
    assert endpoint.log_text().count("writes are not limited") == 1


def test_freed_blocks_are_trimmed_after_deletions(
    disk: tuple[Path, Path, str], start_endpoint: Callable[..., Endpoint]
) -> None:
    image, path, _ = disk
    endpoint = begin(start_endpoint, path, trim="128MiB", capacity=256 * MIB)
    for version in (1, 2):
        fill(path / f"a/{version}", 48 * MIB, version)
    # The blocks of the files are on the device before they are freed.
    os.sync()
    before = image.stat().st_blocks * 512
    assert before > 96 * MIB
    for version in (1, 2):
        (path / f"a/{version}" / MARKER).touch()
    with endpoint.client() as client:
        until(client, "freed", lambda tier: states(tier) == {("a", 1): "slow", ("a", 2): "demoted"})
        end = time.monotonic() + 60
        while (now := image.stat().st_blocks * 512) > 80 * MIB:
            assert time.monotonic() < end, (before / MIB, now / MIB)
            os.sync()
            time.sleep(0.5)
        print(f"image: {before / MIB:.0f} MiB -> {now / MIB:.0f} MiB")
        assert client.tier("burst").trim_error is None
