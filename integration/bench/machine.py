"""Describes the measured machine, gives a run a private network, and touches memory in advance."""

from __future__ import annotations

import contextlib
import ctypes
import datetime
import fcntl
import os
import platform
import re
import socket
import struct
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from integration.bench import account

if TYPE_CHECKING:
    from collections.abc import Iterator

CLONE_NEWNET = 0x40000000
SIOCSIFFLAGS = 0x8914
IFF_UP, IFF_RUNNING = 0x1, 0x40
BLOCK = 4 << 20
PAGE = 4096
#: Size in bytes of the blocks in which the host of a virtual machine reclaims memory.
REPORTED = 2 << 20
#: Flags of fallocate (linux/falloc.h).
FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE = 1, 2
#: Memory in bytes that a measurement never uses.
RESERVE_BYTES = 1 << 30
#: The machine counts as idle if less than this fraction of one processor is busy.
QUIET = 0.2
LOOK_SECONDS = 0.5
#: Longest time to wait for idle processors between two runs, in seconds.
SETTLE_SECONDS = 10.0
IPV4 = Path("/proc/sys/net/ipv4")
DEFAULT = IPV4 / "tcp_congestion_control"
ALLOWED = IPV4 / "tcp_allowed_congestion_control"


@dataclass(frozen=True)
class Machine:
    """Description of this host, and the time of the measurement."""

    processor: str
    cpus: int
    memory_mib: int
    system: str
    kernel: str
    date: str

    @staticmethod
    def this() -> Machine:
        """Describe this host at the present time."""
        info = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        named = re.search(r"^model name\s*: (.*)$", info, re.MULTILINE)
        try:
            system = platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
        except OSError:
            system = "Linux"
        return Machine(
            processor=named[1] if named else platform.machine(),
            cpus=len(os.sched_getaffinity(0)),
            memory_mib=_memory("MemTotal") >> 20,
            system=system,
            kernel=platform.release() + (", with kernel TLS" if has_kernel_tls() else ""),
            date=datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
        )


def has_kernel_tls() -> bool:
    """Return true if the kernel supports TLS. dray does not use kernel TLS (decision 0026)."""
    try:
        return "tls" in (IPV4 / "tcp_available_ulp").read_text(encoding="utf-8").split()
    except OSError:
        return False


def refuse_debug(program: Path) -> None:
    """Stop unless the program was optimised.

    :raises SystemExit: if it is a debug build.
    """
    resolved = program.resolve()
    if "debug" in resolved.parts[:-1]:
        raise SystemExit(f"bench: {program} is a debug build; measure a release: make build")


def file_system(place: Path, mounts: str) -> str:
    """Return the kernel's name of the file system of a path.

    ``stat -f`` does not distinguish ext2, ext3 and ext4.

    :param place: absolute path without symbolic links
    :param mounts: content of ``/proc/self/mountinfo``
    """
    found, kind = Path("/"), "unknown"
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        point = Path(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), before.split()[4]))
        # If several file systems are mounted at one point, only the last mount is visible.
        if place.is_relative_to(point) and point.is_relative_to(found):
            found, kind = point, after.split()[0]
    return kind


class Network:
    """The network in which the tools run."""

    #: True if the network is private. Servers that listen on all addresses run only in such a
    #: network.
    is_own = False

    def congestion(self) -> str:
        """Return the congestion control of new connections."""
        return DEFAULT.read_text(encoding="ascii").strip()

    def use(self, congestion: str) -> None:
        """Set the congestion control of new connections.

        :raises SystemExit: if this network is not private, or the kernel lacks the congestion
            control.
        """
        if congestion == self.congestion():
            return
        if not self.is_own:
            words = "is the host's and stays as it is; as root it would be one of our own"
            raise SystemExit(f"bench: no {congestion}: the network {words}")
        try:
            DEFAULT.write_text(congestion, encoding="ascii")
        except OSError as error:
            raise SystemExit(f"bench: the kernel gives no {congestion}: {error}") from None


class OwnNetwork(Network):
    """A network of only this process and its children: a loopback that no other process reaches.

    The network has its own default congestion control, so nothing has to be restored.
    """

    is_own = True


@contextlib.contextmanager
def network(congestions: list[str]) -> Iterator[Network]:
    """Move to a private network if that is permitted; call it before any thread starts."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            stack.enter_context(_allowed(congestions))
        libc = ctypes.CDLL(None, use_errno=True)
        before = os.open("/proc/self/ns/net", os.O_RDONLY)
        stack.callback(os.close, before)
        if libc.unshare(CLONE_NEWNET) != 0:
            yield Network()
            return
        stack.callback(libc.setns, before, CLONE_NEWNET)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            up = struct.pack("16sH14x", b"lo", IFF_UP | IFF_RUNNING)
            fcntl.ioctl(any_socket, SIOCSIFFLAGS, up)
        yield OwnNetwork()


@contextlib.contextmanager
def _allowed(congestions: list[str]) -> Iterator[None]:
    """Permit private networks to use these congestion controls, by changing the host's list.

    The file of the list is opened before the change and is used again to restore the list. The path
    would name the list of another network namespace if the process had entered one meanwhile.
    """
    with ALLOWED.open("r+b", buffering=0) as file:
        before = file.read()
        wanted = b" ".join(dict.fromkeys([*before.split(), *map(str.encode, congestions)]))
        if wanted == before.strip():
            yield
            return
        file.seek(0)
        file.write(wanted)
        try:
            yield
        finally:
            file.seek(0)
            file.write(before)


def listens(port: int, process: str = "self") -> bool:
    """Return whether a process listens on a port. Does not connect: a server would count this.

    :param process: id of a process in the network namespace that is examined.
    """
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{process}/net/{name}").read_text(encoding="ascii").splitlines()[1:]
            for line in lines:
                words = line.split()
                if words[3] == "0A" and int(words[1].rpartition(":")[2], 16) == port:
                    return True
    return False


def free_port() -> int:
    """Find an unused port."""
    with socket.socket() as any_socket:
        any_socket.bind(("127.0.0.1", 0))
        port: int = any_socket.getsockname()[1]
        return port


@contextlib.contextmanager
def warmed(place: Path, size: int, *, holds: bool = True) -> Iterator[None]:
    """Touch ``size`` bytes of memory, or all free memory if less is free, and free them again.

    The first touch of a page of a virtual machine can cost three times as much as a whole copy.
    Without this function, only the first tool would pay this cost. The kernel may return memory
    that is free for some seconds to the host ("free page reporting"), in blocks of 2 MiB or more. A
    slow tool would then have to touch such a block for the first time again. So this function keeps
    one page of each 2 MiB until the context ends. A block with a kept page is not returned.

    :param place: a folder on a tmpfs
    :param holds: false to keep no pages. The page cache of ext4 needs larger contiguous pieces of
        memory, which a block with a kept page does not have.
    """
    size = min(size, free_memory())
    block = memoryview(bytes(BLOCK))
    # A file without a name, so that its memory is freed however this process ends.
    with tempfile.TemporaryFile(dir=place, buffering=0) as file:
        left = size
        while left > 0:
            left -= file.write(block[: min(left, BLOCK)])
        for at in range(0, size, REPORTED) if holds else ():
            _punch(file.fileno(), at + PAGE, REPORTED - PAGE)
        if not holds:
            file.truncate(0)
        yield


def _punch(file: int, offset: int, length: int) -> None:
    """Free ``length`` bytes of a file from ``offset`` on."""
    mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
    whence = (ctypes.c_long(offset), ctypes.c_long(length))
    if ctypes.CDLL(None, use_errno=True).fallocate(file, mode, *whence) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def await_quiet(seconds: float) -> None:
    """Wait until other processes leave the processors idle, but no longer than ``seconds``."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        busy = account.busy_seconds()
        time.sleep(LOOK_SECONDS)
        if account.busy_seconds() - busy < QUIET * LOOK_SECONDS:
            return


def settle(seconds: float) -> None:
    """Write all dirty data, and wait up to ``seconds`` for idle processors.

    Otherwise a run shares the disk and the processors with the end of the earlier run.
    """
    os.sync()
    await_quiet(seconds)


def free_memory() -> int:
    """Return the available bytes of memory minus ``RESERVE_BYTES``."""
    return _memory("MemAvailable") - RESERVE_BYTES


def _memory(name: str) -> int:
    text = Path("/proc/meminfo").read_text(encoding="ascii")
    match = re.search(rf"^{name}: *([0-9]+) kB$", text, re.MULTILINE)
    return int(match[1]) << 10 if match else 0
