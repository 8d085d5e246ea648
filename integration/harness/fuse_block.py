"""A block device whose writes and flushes this process sees, may refuse, and may record.

The module mounts a FUSE file system with one file, ``disk``. The content of this file is stored in
a sparse backing file. A loop device presents ``disk`` as a block device, and an ordinary file
system is made on the loop device:

    with fuse_block.faulty_disk(folder, "ext4", 64 << 20) as disk:
        disk.block.on_write = refuse_some      # may raise OSError: the device answers that errno
        ...                                    # use disk.at
        disk.unmount()
        disk.mount()

Invariant: :meth:`FaultyDisk.close` removes the mounts and the loop device. If the process ends
without this call, for example by SIGKILL, a child process removes them.

The module implements the kernel's FUSE protocol, and needs no library. One thread answers all
requests, one after another, so the hooks (for example ``on_write``) never run at the same time.

:func:`faulty_disk` mounts in a private namespace (:mod:`integration.harness.mounts`), because a
mount that another process has copied would keep the superblock after :meth:`FaultyDisk.unmount`.

Do not measure speed with this device, because each request passes through Python.
"""

from __future__ import annotations

import contextlib
import ctypes
import enum
import errno
import os
import select
import shutil
import stat
import struct
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from integration.harness.mounts import private_mounts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

#: Maximum bytes of data in a read or write request of the kernel.
REQUEST_BYTES_MAX = 1 << 20
#: Bytes that are reserved for the header of a request.
REQUEST_HEAD_BYTES = 64 << 10
#: Minimum sizes of file systems that mkfs makes, in bytes.
EXT4_BYTES_MIN = 16 << 20
XFS_BYTES_MIN = 320 << 20
#: Seconds after which a busy mount is detached lazily (estimated, not measured).
BUSY_SECONDS = 10.0
NAME = b"disk"
ROOT_NODE, DISK_NODE = 1, 2
#: Seconds for which the kernel may cache names and attributes, which never change.
VALID_SECONDS = 3600
MNT_DETACH = 2

# Structures of the kernel's protocol, from <linux/fuse.h>, version 7.31.
IN_HEADER = struct.Struct("<IIQQIIII")
OUT_HEADER = struct.Struct("<IiQ")
INIT_IN = struct.Struct("<IIII")
INIT_OUT = struct.Struct("<IIIIHHIIHHI7I")
ATTRIBUTES = struct.Struct("<6Q10I")
ATTRIBUTES_OUT = struct.Struct("<QII")
ENTRY_OUT = struct.Struct("<QQQQII")
OPEN_OUT = struct.Struct("<QII")
READ_WRITE_IN = struct.Struct("<QQIIQII")
WRITE_OUT = struct.Struct("<II")
STATFS_OUT = struct.Struct("<5Q4I6I")
PROTOCOL = (7, 31)
ASYNC_READ, BIG_WRITES, MAX_PAGES = 1 << 0, 1 << 5, 1 << 22
#: Flag that disables the page cache for the file, so that each read and write of the device comes
#: to this process.
OPEN_DIRECT_IO = 1


class Operation(enum.IntEnum):
    """Requests of the kernel for a file system without folders."""

    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    FLUSH = 25
    INIT = 26
    OPENDIR = 27
    RELEASEDIR = 29
    ACCESS = 34
    INTERRUPT = 36
    DESTROY = 38
    BATCH_FORGET = 42


#: Requests that get no answer.
SILENT = (Operation.FORGET, Operation.BATCH_FORGET, Operation.INTERRUPT)


def reason_to_skip(kind: str = "ext4") -> str | None:
    """Return why this host cannot make a faulty disk of ``kind``, or None if it can."""
    if os.geteuid() != 0:
        return "only root may mount a FUSE file and attach a loop device"
    for device in ("/dev/fuse", "/dev/loop-control"):
        if not os.access(device, os.R_OK | os.W_OK):
            return f"no {device} on this host"
    for name in (f"mkfs.{kind}", "losetup", "mount", "blockdev"):
        if _program(name) is None:
            return f"{name} is not installed"
    kinds = Path("/proc/filesystems").read_text(encoding="ascii").split()
    if kind not in kinds and not _can_load(kind):
        return f"the kernel knows no file system {kind}"
    return None


def _can_load(kind: str) -> bool:
    modprobe = _program("modprobe")
    return modprobe is not None and _call([modprobe, "-q", kind]).returncode == 0


def _program(name: str) -> str | None:
    return shutil.which(name, path=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin")


def _call(words: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, check=False, capture_output=True, text=True)


def _must(words: Sequence[str | Path]) -> str:
    done = _call([_program(str(words[0])) or words[0], *words[1:]])
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()
        raise OSError(f"{' '.join(map(str, words))}: exit code {done.returncode}: {said}")
    return done.stdout.strip()


class BlockFile:
    """A FUSE mount at ``at`` with one file, :attr:`path`, of a fixed size.

    :ivar on_write: hook that is called with offset and data before a write. If it raises an
        ``OSError``, this error is the answer, and nothing is written.
    :ivar on_flush: hook that is called before a flush. An fsync of the file is a cache flush of the
        device.
    :ivar on_read: hook that is called with offset and size before a read.
    :ivar error: another exception that a hook raised. None if there was none.
    """

    def __init__(self, at: Path, backing: Path, size: int | None = None) -> None:
        """Serve ``backing``, of ``size`` bytes (created sparse if missing), at ``at``."""
        self.on_write: Callable[[int, bytes], None] | None = None
        self.on_flush: Callable[[], None] | None = None
        self.on_read: Callable[[int, int], None] | None = None
        self.at = at
        self.path = at / os.fsdecode(NAME)
        self.backing = os.open(backing, os.O_RDWR | os.O_CREAT, 0o600)
        if size is not None:
            os.truncate(self.backing, size)
        self.size = os.fstat(self.backing).st_size
        self.error: Exception | None = None
        self._is_over = False
        self._stop_read, self._stop_write = os.pipe()
        self._device = -1
        try:
            at.mkdir(parents=True, exist_ok=True)
            self._device = os.open("/dev/fuse", os.O_RDWR)
            _mount_fuse(self._device, at)
        except BaseException:
            self._close_descriptors()
            raise
        self._thread = threading.Thread(target=self._serve, name="fuse-block", daemon=True)
        self._thread.start()

    def replace(self, backing: Path) -> None:
        """Serve another backing file of the same size from now on.

        Nothing may be mounted on the device. The device keeps its number, so files on its file
        system have the same ``st_dev`` as before.
        """
        descriptor = os.open(backing, os.O_RDWR)
        if os.fstat(descriptor).st_size != self.size:
            os.close(descriptor)
            raise ValueError(f"{backing} has another size than {self.size} bytes")
        before, self.backing = self.backing, descriptor
        os.close(before)

    def close(self) -> None:
        """Unmount the FUSE file system. A process that still uses ``disk`` then gets errors."""
        if self._is_over:
            return
        self._is_over = True
        until = time.monotonic() + BUSY_SECONDS
        while _unmount(self.at, 0) != 0 and time.monotonic() < until:
            time.sleep(0.02)
        _unmount(self.at, MNT_DETACH)
        os.write(self._stop_write, b".")
        self._thread.join()
        # When the last descriptor of /dev/fuse is closed, the kernel ends the FUSE connection. A
        # process that still uses ``disk`` then gets errors.
        self._close_descriptors()

    def _close_descriptors(self) -> None:
        for descriptor in (self._device, self.backing, self._stop_read, self._stop_write):
            if descriptor >= 0:
                os.close(descriptor)

    def __enter__(self) -> BlockFile:
        """Return this object."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()

    def _serve(self) -> None:
        os.set_blocking(self._device, False)
        room = bytearray(REQUEST_BYTES_MAX + REQUEST_HEAD_BYTES)
        view = memoryview(room)
        poll = select.poll()
        poll.register(self._device, select.POLLIN)
        poll.register(self._stop_read, select.POLLIN)
        while True:
            if any(ready == self._stop_read for ready, _ in poll.poll()):
                return
            try:
                count = os.readv(self._device, [room])
            except OSError as error:
                # EINTR, EAGAIN, ENOENT: the request was withdrawn. ENODEV: unmounted.
                if error.errno in (errno.EINTR, errno.EAGAIN, errno.ENOENT):
                    continue
                return
            self._answer(view[:count])

    def _answer(self, request: memoryview) -> None:
        _, operation, unique, node, _, _, _, _ = IN_HEADER.unpack_from(request)
        if operation in SILENT:
            return
        try:
            body = self._do(operation, node, request[IN_HEADER.size :])
            code = 0
        except OSError as error:
            body, code = b"", error.errno or errno.EIO
        except Exception as error:
            # A defect of a hook must not hang every user of the disk: the device answers EIO.
            self.error = error
            body, code = b"", errno.EIO
        header = OUT_HEADER.pack(OUT_HEADER.size + len(body), -code, unique)
        with contextlib.suppress(OSError):
            os.writev(self._device, [header, body])

    def _do(self, operation: int, node: int, body: memoryview) -> bytes:
        match operation:
            case Operation.READ:
                _, offset, size, *_ = READ_WRITE_IN.unpack_from(body)
                if self.on_read is not None:
                    self.on_read(offset, size)
                return os.pread(self.backing, size, offset)
            case Operation.WRITE:
                _, offset, size, *_ = READ_WRITE_IN.unpack_from(body)
                data = bytes(body[READ_WRITE_IN.size : READ_WRITE_IN.size + size])
                if self.on_write is not None:
                    self.on_write(offset, data)
                os.pwrite(self.backing, data, offset)
                return WRITE_OUT.pack(size, 0)
            case Operation.FSYNC:
                if self.on_flush is not None:
                    self.on_flush()
                return b""
            case _:
                return self._describe(operation, node, body)

    def _describe(self, operation: int, node: int, body: memoryview) -> bytes:
        match operation:
            case Operation.INIT:
                flags = ASYNC_READ | BIG_WRITES | MAX_PAGES
                pages = REQUEST_BYTES_MAX // 4096
                room = (REQUEST_BYTES_MAX, flags, 64, 48, REQUEST_BYTES_MAX, 1, pages, 0, 0)
                return INIT_OUT.pack(*PROTOCOL, *room, *[0] * 7)
            case Operation.LOOKUP:
                if bytes(body).rstrip(b"\0") != NAME:
                    raise OSError(errno.ENOENT, "no such file")
                valid = (VALID_SECONDS, VALID_SECONDS, 0, 0)
                return ENTRY_OUT.pack(DISK_NODE, 0, *valid) + self._attributes(DISK_NODE)
            case Operation.GETATTR | Operation.SETATTR:
                return ATTRIBUTES_OUT.pack(VALID_SECONDS, 0, 0) + self._attributes(node)
            case Operation.OPEN | Operation.OPENDIR:
                return OPEN_OUT.pack(1, OPEN_DIRECT_IO, 0)
            case Operation.STATFS:
                blocks = self.size // 4096
                return STATFS_OUT.pack(blocks, 0, 0, 2, 0, 4096, 255, 4096, 0, *[0] * 6)
            case (
                Operation.RELEASE
                | Operation.RELEASEDIR
                | Operation.ACCESS
                | Operation.FLUSH
                | Operation.DESTROY
            ):
                return b""
            case _:
                raise OSError(errno.ENOSYS, "not for a disk")

    def _attributes(self, node: int) -> bytes:
        is_disk = node == DISK_NODE
        size = self.size if is_disk else 0
        mode = stat.S_IFREG | 0o600 if is_disk else stat.S_IFDIR | 0o700
        times = (0,) * 6
        return ATTRIBUTES.pack(node, size, size // 512, *times, mode, 1, 0, 0, 0, 4096, 0)


def _mount_fuse(device: int, at: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,max_read={REQUEST_BYTES_MAX}"
    if libc.mount(b"dray-test", os.fsencode(at), b"fuse", 0, options.encode()) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(at))


def _unmount(at: Path, flags: int) -> int:
    """Unmount a file system. Return 0 if nothing is mounted any more, otherwise the errno."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.umount2(os.fsencode(at), flags) == 0:
        return 0
    code = ctypes.get_errno()
    return 0 if code in (errno.EINVAL, errno.ENOENT) else code


def attach_loop(file: Path) -> Path:
    """Attach ``file`` to a loop device. Return the device."""
    return Path(_must(["losetup", "--find", "--show", file]))


def detach_loop(device: Path) -> None:
    """Detach a loop device. The kernel frees the device after its last user has closed it."""
    _call([_program("losetup") or "losetup", "--detach", device])


def make_file_system(kind: str, on: Path) -> None:
    """Make a file system that initialises nothing later, when it is mounted."""
    if kind == "ext4":
        lazy = "nodiscard,lazy_itable_init=0,lazy_journal_init=0"
        _must(["mkfs.ext4", "-q", "-F", "-E", lazy, on])
    elif kind == "xfs":
        _must(["mkfs.xfs", "-q", "-f", "-K", on])
    else:
        _must([f"mkfs.{kind}", on])


def copy_image(image: Path, to: Path) -> None:
    """Copy an image and keep its holes: a new file system of 320 MiB has few MiB of data."""
    _must(["cp", "--sparse=always", image, to])


def mount(device: Path, at: Path, kind: str, options: Sequence[str] = ()) -> None:
    """Mount a device.

    :raises OSError: when the kernel refuses, with its message
    """
    at.mkdir(parents=True, exist_ok=True)
    # Copies of one XFS have the same UUID. Without this option, only one copy could be mounted.
    every = [*(["nouuid"] if kind == "xfs" else []), *options]
    words: list[str | Path] = ["mount", "-t", kind]
    words += ["-o", ",".join(every)] if every else []
    _must([*words, device, at])


def unmount(at: Path) -> None:
    """Unmount a file system, lazily if it is still in use after ``BUSY_SECONDS``."""
    until = time.monotonic() + BUSY_SECONDS
    while _unmount(at, 0) != 0:
        if time.monotonic() > until:
            _unmount(at, MNT_DETACH)
            return
        time.sleep(0.02)


def _await_free(device: Path) -> None:
    """Wait until no file system uses ``device`` in any mount namespace.

    :raises OSError: when the device is still in use after ``BUSY_SECONDS``
    """
    until = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            # The kernel refuses an exclusive open while the device is mounted.
            os.close(os.open(device, os.O_RDONLY | os.O_EXCL))
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > until:
                raise
            time.sleep(0.02)
        else:
            return


#: Shell script that waits for the end of its standard input, and then removes what belongs to a
#: :class:`FaultyDisk`: the mount of its file system, its loop device and its FUSE mount.
TIDY = """
read -r _
umount -l "$1"
if [ "$(cat "/sys/block/${2#/dev/}/loop/backing_file")" = "$3/disk" ]; then losetup -d "$2"; fi
umount -l "$3"
"""


def _start_tidier(at: Path, device: Path, fuse: Path) -> subprocess.Popen[bytes]:
    """Start a process that cleans up when this process has ended. Ctrl-C does not reach it."""
    path = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
    return subprocess.Popen(
        ["/bin/sh", "-c", TIDY, "tidy", at, device, fuse],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={"PATH": path},
    )


class FaultyDisk:
    """A file system on a loop device. This process serves the device's :class:`BlockFile`."""

    def __init__(self, folder: Path, kind: str, size: int, options: Sequence[str] = ()) -> None:
        """Make the disk and its file system in an empty folder, and mount it at :attr:`at`.

        :param kind: ``ext4`` or ``xfs``
        :param size: size in bytes. XFS needs :data:`XFS_BYTES_MIN`
        :param options: options of each mount
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.kind = kind
        self.options = list(options)
        self.image = folder / "image"
        self.at = folder / "mounted"
        with self.image.open("wb") as file:
            file.truncate(size)
        make_file_system(kind, self.image)
        self.block = BlockFile(folder / "fuse", self.image)
        self.device: Path | None = None
        self.is_mounted = False
        self._tidier: subprocess.Popen[bytes] | None = None
        try:
            self.device = attach_loop(self.block.path)
            self._tidier = _start_tidier(self.at, self.device, self.block.at)
            self.mount()
        except BaseException:
            self.close()
            raise

    def mount(self, *options: str) -> None:
        """Mount the file system with :attr:`options` and these further options."""
        assert self.device is not None
        mount(self.device, self.at, self.kind, [*self.options, *options])
        self.is_mounted = True

    def unmount(self) -> None:
        """Unmount the file system. The kernel then writes pending data to the device.

        :raises OSError: when the device is still mounted elsewhere. A later mount would use the
            superblock in memory instead of the content of the device.
        """
        if self.is_mounted:
            unmount(self.at)
            self.is_mounted = False
            assert self.device is not None
            _await_free(self.device)

    def remount(self) -> None:
        """Unmount and mount: later reads come from the device, not from memory."""
        self.unmount()
        self.mount()

    def replace(self, image: Path) -> None:
        """Unmount, and put another image of the same size under the device."""
        assert self.device is not None
        self.unmount()
        self.block.replace(image)
        _must(["blockdev", "--flushbufs", self.device])

    def close(self) -> None:
        """Unmount and detach everything. Hooks are removed first, so that nothing fails here."""
        self.block.on_write = self.block.on_flush = self.block.on_read = None
        if self.is_mounted:
            unmount(self.at)
            self.is_mounted = False
        if self.device is not None:
            detach_loop(self.device)
            self.device = None
        self.block.close()
        if self._tidier is not None:
            self._tidier.kill()
            self._tidier.communicate()
            self._tidier = None


@contextlib.contextmanager
def faulty_disk(
    folder: Path, kind: str = "ext4", size: int = 64 << 20, options: Sequence[str] = ()
) -> Iterator[FaultyDisk]:
    """Yield a mounted :class:`FaultyDisk`, and close it at the end.

    Only the calling thread, and the threads and processes that it starts later, see the mounts.
    """
    with private_mounts():
        disk = FaultyDisk(folder, kind, size, options)
        try:
            yield disk
        finally:
            disk.close()
