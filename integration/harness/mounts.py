"""A private mount namespace for the calling thread.

``unshare --mount`` and ``ip netns exec`` copy all mounts of the caller into a new namespace. A
file system that one test unmounts then stays mounted in the namespace of another test. If the first
test mounts the same device again, the kernel uses the old superblock, with its page cache and its
errors. In a private namespace, no other test can copy the mounts.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

CLONE_NEWNS = 0x20000
MS_REC, MS_PRIVATE = 0x4000, 0x40000


@contextlib.contextmanager
def private_mounts() -> Iterator[None]:
    """Move the calling thread, and the threads and processes that it starts, to a new namespace.

    Threads that already run see no mount that is made in the context. At the end, the thread
    returns to the former namespace. The kernel forbids this while a thread that was started in the
    context still runs; the calling thread then stays in the new namespace.

    :raises OSError: when the kernel forbids a new namespace, for example without root
    """
    libc = ctypes.CDLL(None, use_errno=True)
    with contextlib.ExitStack() as stack:
        before = os.open("/proc/thread-self/ns/mnt", os.O_RDONLY)
        stack.callback(os.close, before)
        folder = os.open(".", os.O_PATH)
        stack.callback(os.close, folder)
        _check(libc.unshare(CLONE_NEWNS), "unshare(CLONE_NEWNS)")
        stack.callback(_return, libc, before, folder)
        _check(libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None), "mount(/, MS_PRIVATE)")
        yield


def _return(libc: ctypes.CDLL, namespace: int, folder: int) -> None:
    if libc.setns(namespace, CLONE_NEWNS) == 0:
        # setns has changed the current folder to the root.
        os.fchdir(folder)


def _check(result: int, call: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{call}: {os.strerror(code)}")
