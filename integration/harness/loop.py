"""Loop-mounted file systems of a fixed size, optionally slowed down by blkio (cgroup v1).

Only root can mount. If this host cannot mount, ``reason`` returns the cause, and the tests are
skipped with this text. The speed limits are set on the root group, so they also apply to writeback.
A limit belongs to a device number, and the number of a loop device is used again. So the limits are
removed before the device is released.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import struct
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Disk", "disk", "limits_reason", "reason"]

BLKIO = Path("/sys/fs/cgroup/blkio")
#: ``EXT4_IOC_SHUTDOWN`` of linux/ext4.h, after which each operation fails with EIO.
SHUTDOWN = 0x8004587D
#: Flags of ``EXT4_IOC_SHUTDOWN``: write everything back first, or write nothing more.
WRITE_BACK, WRITE_NOTHING = 0, 2


def run(*words: str | Path) -> str:
    """Run a command. Return its output."""
    done = subprocess.run(
        [str(word) for word in words], check=False, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise OSError(f"{words[0]} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout.strip()


class Disk:
    """A mounted file system on a loop device."""

    def __init__(self, folder: Path, device: str) -> None:
        """Store the mount point, the device, and the number of the device."""
        self.folder = folder
        self.device = device
        self.image = folder.with_name(f"{folder.name}.img")
        self._number = (Path("/sys/block") / Path(device).name / "dev").read_text().strip()

    def limit(self, write: int, read: int = 0) -> None:
        """Limit writes and reads of the device, in bytes per second. 0 means no limit."""
        for name, rate in (("write", write), ("read", read)):
            file = BLKIO / f"blkio.throttle.{name}_bps_device"
            file.write_text(f"{self._number} {rate}", encoding="utf-8")

    def unlimit(self) -> None:
        """Remove the limits of reads and writes."""
        if BLKIO.is_dir():
            self.limit(0, 0)

    def fail(self) -> None:
        """Shut the file system down: it keeps written data, and each further operation fails."""
        self._shut_down(WRITE_BACK)

    def lose_power(self) -> None:
        """Shut the file system down without another write: data that is not synced is lost."""
        self._shut_down(WRITE_NOTHING)

    def _shut_down(self, flag: int) -> None:
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(folder, SHUTDOWN, struct.pack("I", flag))
        finally:
            os.close(folder)

    def unmount(self) -> None:
        """Unmount the file system, also if files are open."""
        run("umount", "--lazy", self.folder)

    def mount(self) -> None:
        """Mount the file system again."""
        run("mount", self.device, self.folder)


@contextlib.contextmanager
def disk(at: Path, size: int) -> Iterator[Disk]:
    """Mount an ext4 of ``size`` bytes at a new folder. The image is removed at the end."""
    at.mkdir(parents=True, exist_ok=True)
    image = at.with_name(f"{at.name}.img")
    with image.open("wb") as file:
        file.truncate(size)
    with contextlib.ExitStack() as stack:
        stack.callback(image.unlink)
        # Use no reserved blocks, and no lazy initialisation, which would write after the mount.
        how = "lazy_itable_init=0,lazy_journal_init=0,nodiscard"
        run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", how, image)
        device = run("losetup", "--direct-io=on", "--show", "--find", image)
        stack.callback(run, "losetup", "--detach", device)
        made = Disk(at, device)
        stack.callback(end, at)
        stack.callback(made.unlimit)
        run("mount", device, at)
        yield made


def end(at: Path) -> None:
    """Unmount a folder if a file system is mounted there."""
    while at.is_mount():
        run("umount", "--lazy", at)


@functools.cache
def reason() -> str:
    """Return why loop devices cannot be mounted here, or an empty text if they can."""
    try:
        with tempfile.TemporaryDirectory() as folder, disk(Path(folder) / "try", 16 << 20):
            return ""
    except OSError as error:
        return str(error)


@functools.cache
def limits_reason() -> str:
    """Return why loop devices cannot be mounted and limited here; an empty text if they can."""
    if not reason():
        try:
            with (
                tempfile.TemporaryDirectory() as folder,
                disk(Path(folder) / "try", 16 << 20) as it,
            ):
                it.limit(1 << 30, 1 << 30)
        except OSError as error:
            return f"blkio cannot limit a loop device: {error}"
    return reason()
