"""Files of a server, as it keeps them."""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING

from integration.harness.tree import make_file
from integration.xrootd.servers import give

if TYPE_CHECKING:
    from pathlib import Path

    from integration.xrootd.servers import Xrootd


def make(server: Xrootd, path: str, size: int, seed: int = 1) -> Path:
    """Make a file of a server."""
    at = server.path(path)
    for folder in reversed(at.relative_to(server.data).parents[:-1]):
        (server.data / folder).mkdir(exist_ok=True)
        give(server.data / folder)
    make_file(at, size, seed)
    give(at)
    return at


def set_checksum(path: Path, value: int) -> None:
    """Write the attribute in which a server keeps a file's adler32, as the server would."""
    state = path.stat()
    seconds = int(state.st_mtime)
    fields = (b"adler32", seconds, 0, 0, 0, 4, struct.pack(">I", value))
    os.setxattr(path, "user.XrdCks.adler32", struct.pack(">16sqiHBB64s", *fields))
