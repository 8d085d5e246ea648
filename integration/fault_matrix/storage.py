"""Disks that are full, lose power, fail a sync or change bytes, and quotas."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import time
import uuid
from typing import TYPE_CHECKING

from integration.crash_replay.record import Recording, Write
from integration.crash_replay.replay import Builder
from integration.fault_matrix.fault import FORMS, Fault
from integration.harness import fuse_block, loop, supervise

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from integration.fault_matrix.scene import Scene

GROUP = "storage"
DISK_BYTES = 256 << 20
#: Writes after the last flush that are on the disk after a power loss, by the percentage of the
#: moment (integration/crash_replay).
SHAPES = {10: "none", 50: "some", 90: "torn"}
NEVER = 1 << 30
PARTIAL_SECONDS = 60.0


def other_host(folder: Path, name: str) -> list[str]:
    """Return the words before a command that then runs on a host with another boot id and name.

    The command has a mount namespace and a UTS namespace of its own.
    """
    boot = folder / f"boot-id-{name}"
    boot.write_text(f"{uuid.uuid4()}\n", encoding="ascii")
    script = f'mount --bind {boot} /proc/sys/kernel/random/boot_id && hostname {name} && exec "$@"'
    return ["unshare", "--mount", "--uts", "sh", "-c", script, "sh"]


def other_host_reason() -> str | None:
    """Return why this host cannot give a process another boot id, or None if it can."""
    done = subprocess.run(
        ["unshare", "--mount", "--uts", "true"], check=False, capture_output=True, text=True
    )
    return None if done.returncode == 0 else f"no namespaces: {done.stderr.strip()}"


def _loop_reason() -> str | None:
    return loop.reason() or None


def _image_reason() -> str | None:
    return _loop_reason() or other_host_reason()


def _device_reason() -> str | None:
    return fuse_block.reason_to_skip("ext4") or other_host_reason()


# --- full disks and quotas ------------------------------------------------------------------------


def _on_loop(scene: Scene) -> None:
    mount = scene.folder / "disk"
    scene.disk = scene.stack.enter_context(loop.disk(mount, DISK_BYTES))
    scene.top = mount / "out"


def _fill(path: Path) -> None:
    """Write a file until the file system is full."""
    with path.open("wb") as file:
        for piece in (1 << 20, 4096):
            while True:
                try:
                    os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), piece)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    break


def _full(scene: Scene) -> None:
    filler = scene.top.parent / "filler"
    _fill(filler)
    try:
        scene.await_trouble()
        scene.look()
    finally:
        filler.unlink()
    scene.mark()


def _quota_reason() -> str | None:
    path = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
    if shutil.which("mkfs.btrfs", path=path) is None or shutil.which("btrfs", path=path) is None:
        return "btrfs-progs is not installed"
    return fuse_block.reason_to_skip("btrfs")


def _with_quota(scene: Scene) -> None:
    image, mount = scene.folder / "disk.img", scene.folder / "disk"
    mount.mkdir()
    with image.open("wb") as file:
        file.truncate(2 * DISK_BYTES)
    loop.run("mkfs.btrfs", "-q", image)
    device = loop.run("losetup", "--direct-io=on", "--show", "--find", image)
    scene.stack.callback(loop.run, "losetup", "--detach", device)
    scene.stack.callback(loop.end, mount)
    loop.run("mount", device, mount)
    loop.run("btrfs", "quota", "enable", mount)
    scene.top = mount / "out"
    loop.run("btrfs", "subvolume", "create", scene.top)
    # A process with this capability may exceed quotas.
    scene.sink_words = ["setpriv", "--bounding-set=-sys_resource", "--inh-caps=-sys_resource"]


def _exceed_quota(scene: Scene) -> None:
    disk = scene.top.parent
    group = f"0/{loop.run('btrfs', 'inspect-internal', 'rootid', scene.top)}"
    loop.run("btrfs", "qgroup", "limit", "1M", group, disk)
    try:
        scene.await_trouble()
        scene.look()
    finally:
        # By the path of the subvolume, the call would itself exceed the quota.
        loop.run("btrfs", "qgroup", "limit", "none", group, disk)
    scene.mark()


# --- power loss -----------------------------------------------------------------------------------


def _on_recorded_disk(scene: Scene) -> None:
    folder = scene.folder / "device"
    disk = scene.stack.enter_context(
        fuse_block.faulty_disk(folder, "ext4", DISK_BYTES, ["commit=1"])
    )
    scene.top = disk.at / "out"
    scene.top.mkdir()
    disk.unmount()
    base = folder / "base"
    fuse_block.copy_image(disk.image, base)
    recording = Recording(base)
    entries = recording.entries
    disk.block.on_write = lambda offset, data: entries.append(Write(offset, data))
    disk.block.on_flush = lambda: entries.append(None)
    disk.mount()
    scene.device, scene.recording = disk, recording


def _refuse(*_: object) -> None:
    raise OSError(errno.EIO, "the disk has no power")


def _lose_writes(scene: Scene) -> None:
    disk, recording = scene.device, scene.recording
    assert disk is not None
    assert recording is not None
    disk.block.on_write, disk.block.on_flush = _refuse, _refuse
    point = len(recording.entries)
    scene.sink.kill()
    scene.unwatch()
    disk.unmount()
    disk.block.on_write = disk.block.on_flush = None
    builder = Builder(recording, disk.image.parent)
    image, _, _ = builder.build(point, SHAPES.get(scene.percent, "some"), scene.percent)
    disk.replace(image)
    disk.mount()
    _after_power_loss(scene)


def _after_power_loss(scene: Scene) -> None:
    """Check the files, and start the sink as after a reboot."""
    scene.look()
    scene.watch()
    scene.set_sink_words(other_host(scene.folder, "rebooted"))
    scene.sink.start()


def _copy_image(scene: Scene) -> None:
    disk = scene.disk
    assert disk is not None
    disk.lose_power()
    scene.sink.kill()
    scene.unwatch()
    loop.end(disk.folder)
    copied = scene.folder / "copied.img"
    fuse_block.copy_image(disk.image, copied)
    device = loop.run("losetup", "--direct-io=on", "--show", "--find", copied)
    scene.stack.callback(loop.run, "losetup", "--detach", device)
    scene.stack.callback(loop.end, disk.folder)
    loop.run("mount", device, disk.folder)
    _after_power_loss(scene)


# --- bytes and syncs ------------------------------------------------------------------------------


def _verified(scene: Scene) -> None:
    scene.request["verify"] = True


def _partials(top: Path) -> Sequence[Path]:
    return [path for path in top.rglob(".dray-*.part") if path.stat().st_size > 0]


def _flip_on_disk(scene: Scene) -> None:
    """Flip a byte of a partial file, while its writer is suspended."""
    until = time.monotonic() + PARTIAL_SECONDS
    while True:
        scene.sink.suspend()
        found = _partials(scene.top)
        if found:
            break
        scene.sink.resume()
        assert time.monotonic() < until, "there is no partial file"
        time.sleep(0.01)
    chosen = max(found, key=lambda path: path.stat().st_blocks)
    # A place that has data: holes are not written yet, and would be overwritten.
    with chosen.open("r+b") as file:
        at = os.lseek(file.fileno(), 0, os.SEEK_DATA) + 7
        byte = os.pread(file.fileno(), 1, at)[0]
        os.pwrite(file.fileno(), bytes([byte ^ 0x04]), at)
        os.fsync(file.fileno())
        scene.seen.destroyed += os.fstat(file.fileno()).st_size
    scene.look()
    scene.sink.resume()


def _supervised(scene: Scene) -> None:
    top = str(scene.top)

    def sort(path: str) -> str | None:
        return "data" if path.startswith(top) and "/.dray-log" not in path else None

    scene.supervisor = supervise.Supervisor(sort)
    scene.stack.callback(scene.supervisor.close)
    scene.supervisor.arm(_sync_fault(scene, NEVER))
    scene.sink_words = scene.supervisor.wrap


def _sync_fault(scene: Scene, nth: int) -> supervise.Fault:
    # Many small files are made durable by one call for the whole file system.
    call = "fsync" if scene.data.name == "big" else "syncfs"
    return supervise.Fault(supervise.Key(call, "data"), nth, errno.EIO)


def _fail_sync(scene: Scene) -> None:
    supervisor = scene.supervisor
    assert supervisor is not None
    supervisor.arm(_sync_fault(scene, 1))
    until = time.monotonic() + PARTIAL_SECONDS
    while not supervisor.is_hit and time.monotonic() < until:
        time.sleep(0.01)
    if not supervisor.is_hit:
        scene.seen.found.append("no sync has failed")
    scene.look()


FAULTS = (
    Fault(
        "power-writes",
        GROUP,
        "power loss of the sink's host: writes after the last cache flush of the disk are lost "
        "(10 %: all of them; 50 %: a random part; 90 %: a random part, and a write is torn)",
        _lose_writes,
        prepare=_on_recorded_disk,
        forms=FORMS,
        reason_to_skip=_device_reason,
    ),
    Fault(
        "power-image",
        GROUP,
        "power loss of the sink's host: a loop device with direct I/O stops writing, and the sink "
        "continues on a copy of its image",
        _copy_image,
        prepare=_on_loop,
        forms=FORMS,
        reason_to_skip=_image_reason,
    ),
    Fault(
        "disk-full",
        GROUP,
        "the sink's file system is full until the client sees the failure",
        _full,
        prepare=_on_loop,
        reason_to_skip=_loop_reason,
    ),
    Fault(
        "quota",
        GROUP,
        "the sink exceeds its quota (a btrfs qgroup) until the client sees the failure",
        _exceed_quota,
        prepare=_with_quota,
        reason_to_skip=_quota_reason,
    ),
    Fault(
        "disk-flip",
        GROUP,
        "a bit of a partial file flips; the transfer reads files back before it publishes them "
        "(`verify`)",
        _flip_on_disk,
        prepare=_verified,
    ),
    Fault(
        "sync-fails",
        GROUP,
        "one `fsync` (big) or `syncfs` (small) of data at the sink fails with EIO",
        _fail_sync,
        prepare=_supervised,
        reason_to_skip=supervise.reason_to_skip,
    ),
)
