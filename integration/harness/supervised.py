"""Start a program, and let another process answer some of its system calls.

Usage: ``supervised.py SOCKET NUMBERS -- PROGRAM ...``

This program installs a seccomp filter for the calls in NUMBERS (comma-separated), sends the
filter's listener to SOCKET and becomes PROGRAM. It imports only the standard library, to start
quickly. :mod:`integration.harness.supervise` answers the calls.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import sys

SECCOMP = 317
SET_MODE_FILTER = 1
FLAG_NEW_LISTENER = 8
PR_SET_NO_NEW_PRIVS = 38
ALLOW, NOTIFY = 0x7FFF0000, 0x7FC00000
LOAD_WORD, JUMP_EQUAL, RETURN = 0x20, 0x15, 0x06


def install(calls: list[int]) -> int:
    """Install the seccomp filter. Return the listener of the filter."""
    program = [(LOAD_WORD, 0, 0, 0)]
    # Each jump leads to the last instruction, over the other comparisons and the ALLOW.
    program += [(JUMP_EQUAL, len(calls) - index, 0, call) for index, call in enumerate(calls)]
    program += [(RETURN, 0, 0, ALLOW), (RETURN, 0, 0, NOTIFY)]
    code = b"".join(struct.pack("HBBI", *each) for each in program)
    room = ctypes.create_string_buffer(code)
    head = ctypes.create_string_buffer(
        struct.pack("HxxxxxxQ", len(program), ctypes.addressof(room))
    )
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    listener: int = libc.syscall(SECCOMP, SET_MODE_FILTER, FLAG_NEW_LISTENER, head)
    if listener < 0:
        raise OSError(ctypes.get_errno(), "cannot install a seccomp filter")
    return listener


def main(words: list[str]) -> None:
    """Install the filter, send its listener to the supervisor, and become the program."""
    path, numbers, _, *program = words
    link = socket.socket(socket.AF_UNIX)
    link.connect(path)
    listener = install([int(number) for number in numbers.split(",")])
    # sendmsg is never among the filtered calls, because no process could answer it yet.
    socket.send_fds(link, [b"x"], [listener])
    os.execv(program[0], program)  # noqa: S606 - there is no shell to start


if __name__ == "__main__":
    main(sys.argv[1:])
