"""Call ``libdray-xrdcl.so`` directly, and print the kind of the error, or -1 for none.

``shim.py move LIBRARY URL FROM TO NUMBER IF_ABSENT`` renames one file. ``shim.py hold LIBRARY URL``
opens a file for reading, even if another client writes the file. It keeps the file open until
standard input ends.
"""

from __future__ import annotations

import ctypes
import sys


class Error(ctypes.Structure):
    """``struct dray_xrdcl_error`` of the library."""

    _fields_ = (("kind", ctypes.c_int32), ("words", ctypes.c_char * 1020))


class Renaming(ctypes.Structure):
    """``struct dray_xrdcl_renaming`` of the library."""

    _fields_ = (
        ("source", ctypes.c_char_p),
        ("to", ctypes.c_char_p),
        ("id", ctypes.c_uint64),
        ("if_absent", ctypes.c_int32),
        ("error", Error),
    )


#: Flag ``DRAY_XRDCL_SHARED``: open a file that another client writes.
SHARED = 4


def hold(words: list[str]) -> None:
    """Open a file, and keep the file open until standard input ends."""
    library, url = words
    shim = ctypes.CDLL(library)
    file = ctypes.c_void_p()
    error = Error()
    opened = shim.dray_xrdcl_open(
        url.encode(), SHARED, 0, 0, ctypes.byref(file), ctypes.byref(error)
    )
    sys.stdout.write(f"{error.kind if opened != 0 else -1}\n")
    sys.stdout.flush()
    sys.stdin.read()


def move(words: list[str]) -> None:
    """Rename a file."""
    library, url, source, to, number, if_absent = words
    shim = ctypes.CDLL(library)
    one = Renaming(source.encode(), to.encode(), int(number), int(if_absent))
    error = Error()
    count = ctypes.c_uint64(1)
    called = shim.dray_xrdcl_move_each(url.encode(), ctypes.byref(one), count, ctypes.byref(error))
    sys.stdout.write(f"{one.error.kind if called == 0 else error.kind}\n")


if __name__ == "__main__":
    {"move": move, "hold": hold}[sys.argv[1]](sys.argv[2:])
