"""Supervises a running program: counts its system calls, and makes a chosen call fail.

A seccomp filter stops the program at each selected call and asks this process. The call then
continues, or returns an errno without being executed, or the program is killed. Each stop takes
about 30 us. ``strace --inject`` counts the calls of each thread separately. This module counts the
calls of all threads together, separately for each kind of file.

    with Supervisor(sort_path) as supervisor:
        supervisor.arm(Fault(Key("fdatasync", "log"), 2, errno.EIO))
        bench.cp(..., wrap=supervisor.wrap)
    supervisor.counts, supervisor.is_hit

The supervisor cannot change arguments or results of calls that continue, so it cannot simulate
short writes. It cannot make a call fail after the call took effect. It supports only Linux on
x86-64.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import platform
import select
import shutil
import signal
import socket
import struct
import sys
import tempfile
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

LAUNCHER = Path(__file__).with_name("supervised.py")
#: Code instead of an errno, with which the program gets SIGKILL before the call is executed.
KILL = 0
# struct seccomp_notif, struct seccomp_notif_resp and their ioctls, from <linux/seccomp.h>.
NOTICE = struct.Struct("QIIiIQ6Q")
ANSWER = struct.Struct("QqiI")
RECEIVE, SEND = 0xC0502100, 0xC0182101
CONTINUE = 1
AT_FDCWD = -100
PATH_BYTES_MAX = 4096
#: Bytes of a memory page. A path is read page by page, because the next page may not exist.
PAGE = 4096


class Call(NamedTuple):
    """A system call: its number, and the indexes of the arguments that identify a file."""

    number: int
    #: Index of the descriptor argument: of the file, or of the folder from which the path starts.
    descriptor: int | None = 0
    #: Index of the path argument.
    path: int | None = None


#: System calls on x86-64 for files and sockets, which the supervisor can count and make fail.
#: ``close`` is left out: on Linux a ``close`` that fails has closed the descriptor, but the
#: supervisor makes a call fail without executing it.
CALLS: Mapping[str, Call] = {
    "read": Call(0),
    "write": Call(1),
    "open": Call(2, None, 0),
    "stat": Call(4, None, 0),
    "fstat": Call(5),
    "lstat": Call(6, None, 0),
    "lseek": Call(8),
    "ioctl": Call(16),
    "pread64": Call(17),
    "pwrite64": Call(18),
    "readv": Call(19),
    "writev": Call(20),
    "sendfile": Call(40),
    "connect": Call(42),
    "sendto": Call(44),
    "recvfrom": Call(45),
    "fcntl": Call(72),
    "flock": Call(73),
    "fsync": Call(74),
    "fdatasync": Call(75),
    "ftruncate": Call(77),
    "mkdir": Call(83, None, 0),
    "unlink": Call(87, None, 0),
    "readlink": Call(89, None, 0),
    "fchmod": Call(91),
    "fchown": Call(93),
    "fstatfs": Call(138),
    "fsetxattr": Call(190),
    "fgetxattr": Call(193),
    "flistxattr": Call(196),
    "fremovexattr": Call(199),
    "getdents64": Call(217),
    "fadvise64": Call(221),
    "openat": Call(257, 0, 1),
    "mkdirat": Call(258, 0, 1),
    "fchownat": Call(260, 0, 1),
    "newfstatat": Call(262, 0, 1),
    "unlinkat": Call(263, 0, 1),
    "renameat": Call(264, 2, 3),
    "linkat": Call(265, 2, 3),
    "symlinkat": Call(266, 1, 2),
    "readlinkat": Call(267, 0, 1),
    "fchmodat": Call(268, 0, 1),
    "sync_file_range": Call(277),
    "utimensat": Call(280, 0, 1),
    "fallocate": Call(285),
    "accept4": Call(288),
    "preadv": Call(295),
    "pwritev": Call(296),
    "syncfs": Call(306),
    "renameat2": Call(316, 2, 3),
    "copy_file_range": Call(326, 2),
    "pwritev2": Call(328),
    "statx": Call(332, 0, 1),
    "openat2": Call(437, 0, 1),
}
NAMES = {call.number: name for name, call in CALLS.items()}


class Key(NamedTuple):
    """A system call on a kind of file, which is counted."""

    call: str
    place: str

    def __str__(self) -> str:
        """Return the call and the kind of file as text."""
        return f"{self.call} of {self.place}"


@dataclass(frozen=True)
class Fault:
    """A system call that fails, and its errno."""

    key: Key
    #: Number of the call among the calls of its kind, from 1.
    nth: int
    #: An errno, or :data:`KILL`.
    code: int
    #: True if all later calls of this kind fail as well.
    stays: bool = False

    @property
    def name(self) -> str:
        """Name of the errno, or KILL."""
        return "KILL" if self.code == KILL else errno.errorcode[self.code]

    def __str__(self) -> str:
        """Return the fault as text."""
        rest = " and all later" if self.stays else ""
        return f"{self.name} at {self.key}, no. {self.nth}{rest}"


def reason_to_skip() -> str | None:
    """Return why this host cannot supervise system calls, or None if it can."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return "system calls are supervised on Linux x86-64 only"
    actions = Path("/proc/sys/kernel/seccomp/actions_avail")
    if not actions.exists() or "user_notif" not in actions.read_text(encoding="ascii").split():
        return "this kernel cannot ask a process about another's system calls"
    return None


class Supervisor:
    """Decides about the system calls of each program started with :attr:`wrap`."""

    def __init__(self, sort: Callable[[str], str | None]) -> None:
        """Listen for programs.

        :param sort: function that returns the kind of a file by its path, or None to ignore the
            file. For a descriptor without a file, the path is ``socket:[...]``, ``pipe:[...]`` or
            ``anon_inode:...``.
        """
        self.sort = sort
        self.counts: Counter[Key] = Counter()
        self.fault: Fault | None = None
        self.is_hit = False
        #: Path of the file of the failed call.
        self.hit_path = ""
        self._lock = threading.Lock()
        self._is_over = False
        # Use a folder with a short path, because the path of a socket has at most 107 bytes.
        self._folder = tempfile.TemporaryDirectory(prefix="dray-supervisor-")
        self.path = Path(self._folder.name) / "socket"
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(os.fspath(self.path))
        self._server.listen(8)
        self._threads: list[threading.Thread] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def wrap(self) -> list[str]:
        """Command prefix of a supervised program.

        Without a fault, the program stops at each call of :data:`CALLS`, so that the calls are
        counted. With a fault, it stops only at the call of the fault, because each stop costs two
        process switches.
        """
        python = sys.executable or shutil.which("python3") or "python3"
        calls = [CALLS[self.fault.key.call]] if self.fault else list(CALLS.values())
        numbers = ",".join(str(call.number) for call in calls)
        return [python, "-I", "-S", str(LAUNCHER), str(self.path), numbers, "--"]

    def arm(self, fault: Fault | None) -> None:
        """Reset the counts. Let the call of ``fault`` fail from now on."""
        with self._lock:
            self.counts = Counter()
            self.fault = fault
            self.is_hit = False
            self.hit_path = ""

    def disarm(self) -> Counter[Key]:
        """Let no more calls fail. Return the counts since :meth:`arm`."""
        with self._lock:
            self.fault = None
            return self.counts.copy()

    def close(self) -> None:
        """Stop answering. First end the programs, because later supervised calls get ENOSYS."""
        self._is_over = True
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join()
        for thread in self._threads:
            thread.join(1)
        self._folder.cleanup()

    def __enter__(self) -> Supervisor:
        """Return this object."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop answering."""
        self.close()

    def _accept(self) -> None:
        while not self._is_over:
            try:
                link, _ = self._server.accept()
            except OSError:
                return
            with link:
                _, listeners, _, _ = socket.recv_fds(link, 1, 1)
                pid = struct.unpack(
                    "3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
                )[0]
            for listener in listeners:
                serve = threading.Thread(target=self._serve, args=(listener, pid), daemon=True)
                serve.start()
                self._threads.append(serve)

    def _serve(self, listener: int, pid: int) -> None:
        poll = select.poll()
        poll.register(listener, select.POLLIN)
        room = bytearray(NOTICE.size)
        while not self._is_over:
            events = poll.poll(200)
            if not events:
                continue
            if events[0][1] & (select.POLLHUP | select.POLLERR | select.POLLNVAL):
                break
            room[:] = bytes(NOTICE.size)
            try:
                fcntl.ioctl(listener, RECEIVE, room)
            except OSError:
                # The calling thread was killed before this process could read the notice.
                continue
            unique, task, _, number, _, _, *arguments = NOTICE.unpack(room)
            code = self._decide(NAMES.get(number, ""), task, pid, arguments)
            answer = ANSWER.pack(unique, 0, -code, 0 if code else CONTINUE)
            with contextlib.suppress(OSError):
                fcntl.ioctl(listener, SEND, answer)
        os.close(listener)

    def _decide(self, name: str, task: int, pid: int, arguments: list[int]) -> int:
        """Return the errno with which a call fails, or 0 to let it continue."""
        if not name:
            return 0
        try:
            path = _path(CALLS[name], task, arguments)
        except OSError:
            return 0
        place = self.sort(path)
        if place is None:
            return 0
        key = Key(name, place)
        with self._lock:
            self.counts[key] += 1
            fault = self.fault
            if fault is None or fault.key != key:
                return 0
            count = self.counts[key]
            if count != fault.nth and not (fault.stays and count > fault.nth):
                return 0
            if not self.is_hit:
                self.is_hit, self.hit_path = True, path
        if fault.code == KILL:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
            return errno.EINTR
        return fault.code


def _path(call: Call, task: int, arguments: list[int]) -> str:
    base = ""
    if call.descriptor is not None:
        number = arguments[call.descriptor] & 0xFFFFFFFF
        number -= (number & 0x80000000) << 1
        link = f"/proc/{task}/cwd" if number == AT_FDCWD else f"/proc/{task}/fd/{number}"
        base = os.readlink(link).removesuffix(" (deleted)")
    if call.path is None or arguments[call.path] == 0:
        return base
    return os.path.normpath(os.path.join(base, _text(task, arguments[call.path])))


def _text(task: int, address: int) -> str:
    found = b""
    memory = os.open(f"/proc/{task}/mem", os.O_RDONLY)
    try:
        while b"\0" not in found and len(found) < PATH_BYTES_MAX:
            at = address + len(found)
            found += os.pread(memory, PAGE - at % PAGE, at)
    finally:
        os.close(memory)
    return os.fsdecode(found.partition(b"\0")[0])
