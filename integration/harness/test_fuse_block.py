"""The block device of the tests keeps data, reports writes and flushes, and fails on demand."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from integration.harness import fuse_block
from integration.harness.program import ROOT

KINDS = {"ext4": fuse_block.EXT4_BYTES_MIN, "xfs": fuse_block.XFS_BYTES_MIN}
MARK = b"DRAYMARK"


def _need(kind: str) -> None:
    reason = fuse_block.reason_to_skip(kind)
    if reason is not None:
        pytest.skip(reason)


def _is_mounted_anywhere(folder: Path) -> bool:
    """Return whether a process of this host sees a mount in ``folder``."""
    for mounts in Path("/proc").glob("[0-9]*/mounts"):
        with contextlib.suppress(OSError):
            if str(folder) in mounts.read_text(encoding="utf-8", errors="replace"):
                return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_file_system_on_it_keeps_data_over_a_remount(folder: Path, kind: str) -> None:
    _need(kind)
    data = os.urandom(3 << 20)
    seen: list[bytes] = []
    with fuse_block.faulty_disk(folder / "disk", kind, KINDS[kind]) as disk:
        disk.block.on_write = lambda _offset, block: seen.append(block)
        disk.block.on_flush = lambda: seen.append(b"")
        with (disk.at / "file").open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        assert b"" in seen
        assert sum(map(len, seen)) >= len(data)
        disk.remount()
        assert (disk.at / "file").read_bytes() == data
        assert disk.block.error is None


@pytest.mark.slow
def test_a_hook_fails_the_writes_that_it_names(folder: Path) -> None:
    _need("ext4")

    def refuse(_offset: int, block: bytes) -> None:
        if MARK in block:
            raise OSError(errno.EIO, "made to fail")

    with fuse_block.faulty_disk(folder / "disk", options=["errors=continue"]) as disk:
        (disk.at / "file").write_bytes(b"")
        disk.block.on_write = refuse
        with (disk.at / "file").open("r+b") as file:
            file.write(MARK * 4096)
            file.flush()
            with pytest.raises(OSError, match="Input/output error"):
                os.fsync(file.fileno())


@pytest.mark.slow
def test_nothing_of_it_stays_when_a_test_fails(folder: Path) -> None:
    _need("ext4")
    devices: list[Path] = []

    def fail() -> None:
        with fuse_block.faulty_disk(folder / "disk") as disk:
            assert disk.device is not None
            devices.append(disk.device)
            (disk.at / "file").write_bytes(MARK)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert not _is_mounted_anywhere(folder)
    attached = Path("/sys/block") / devices[0].name / "loop" / "backing_file"
    assert not attached.exists() or str(folder) not in attached.read_text(encoding="utf-8")


@pytest.mark.slow
def test_no_other_process_can_keep_its_file_system_mounted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _need("ext4")
    monkeypatch.setattr(fuse_block, "BUSY_SECONDS", 0.2)
    with fuse_block.faulty_disk(folder / "disk") as disk:
        # This process starts in the namespace of the test, after the mount.
        words = ["unshare", "--mount", "sh", "-c", "echo; exec sleep 600"]
        holder = subprocess.Popen(words, stdout=subprocess.PIPE)
        try:
            assert holder.stdout is not None
            holder.stdout.readline()
            with pytest.raises(OSError, match="busy"):
                disk.unmount()
        finally:
            holder.kill()
            holder.communicate(timeout=60)
        disk.mount()
        seen = Path(f"/proc/{os.getppid()}/mounts").read_text(encoding="utf-8")
        assert str(disk.at) not in seen
        disk.remount()


@pytest.mark.slow
def test_another_image_under_the_device_is_what_is_mounted_next(folder: Path) -> None:
    _need("ext4")
    with fuse_block.faulty_disk(folder / "disk") as disk:
        before = disk.at.stat().st_dev
        disk.unmount()
        empty = folder / "empty"
        shutil.copy(disk.image, empty)
        disk.mount()
        (disk.at / "file").write_bytes(MARK)
        disk.replace(empty)
        disk.mount()
        assert not (disk.at / "file").exists()
        assert disk.at.stat().st_dev == before


# A shell without job control lets its background commands, and their children, ignore SIGINT. So
# this program restores the handler.
HOLDER = """
import signal, sys, time
from pathlib import Path
from integration.harness import fuse_block
signal.signal(signal.SIGINT, signal.default_int_handler)
with fuse_block.faulty_disk(Path(sys.argv[1])) as disk:
    print(disk.device, flush=True)
    time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_of_it_stays_when_its_process_is_ended(
    folder: Path, number: signal.Signals
) -> None:
    _need("ext4")
    words = [sys.executable, "-c", HOLDER, str(folder / "disk")]
    holder = subprocess.Popen(words, stdout=subprocess.PIPE, cwd=ROOT, text=True)
    assert holder.stdout is not None
    device = holder.stdout.readline().strip()
    assert device.startswith("/dev/loop")
    holder.send_signal(number)
    holder.communicate(timeout=60)
    attached = Path("/sys/block") / Path(device).name / "loop" / "backing_file"
    until = time.monotonic() + 30
    while True:
        is_mounted = _is_mounted_anywhere(folder)
        is_attached = attached.exists() and str(folder) in attached.read_text(encoding="utf-8")
        if not is_mounted and not is_attached:
            return
        assert time.monotonic() < until, f"mounted {is_mounted}, attached {is_attached}"
        time.sleep(0.05)
