"""dray's library over the XRootD client (``libdray-xrdcl.so``), with a stock server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from integration.xrootd.servers import PATIENCE, SHIM, find, give

if TYPE_CHECKING:
    from integration.xrootd.servers import Scene, Xrootd

pytestmark = pytest.mark.server

DONE = -1
NOT_FOUND = 1
PERMISSION_DENIED = 2
EXISTS = 14


def move(server: Xrootd, source: str, to: str, number: int = 0, *, if_absent: bool) -> int:
    """Rename a file. Return the kind of the error, or ``DONE``."""
    script = Path(__file__).with_name("shim.py")
    words = ["move", str(find(SHIM)), server.url, source, to, str(number), str(int(if_absent))]
    ended = subprocess.run(
        [sys.executable, script, *words],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **PATIENCE},
    )
    return int(ended.stdout)


def make(server: Xrootd, name: str, content: str) -> int:
    """Make a file. Return the number by which the library identifies it."""
    path = server.path(name)
    path.write_text(content, encoding="utf-8")
    give(path)
    return (path.stat().st_ino & 0xFFFFFFFF) << 32


def test_a_name_that_cannot_be_inspected_is_not_replaced(bare: Scene) -> None:
    """The rights hide whether a name exists: a rename with ``if_absent`` must not replace it."""
    rights = bare.folder / "rights"
    # In the folder ``blind``, a client may insert, rename and write, but not look up.
    rights.write_text("u * /blind inw / a\n", encoding="utf-8")
    give(rights)
    lines = ["ofs.authorize", f"acc.authdb {rights}"]
    server = bare.server("shim", tpc=None, lines=lines)
    blind = server.path("blind")
    blind.mkdir()
    give(blind)
    make(server, "a", "new")
    make(server, "blind/b", "old")
    assert move(server, "/a", "/blind/b", if_absent=True) == PERMISSION_DENIED
    assert server.path("blind/b").read_text(encoding="utf-8") == "old"
    make(server, "c", "old")
    assert move(server, "/a", "/c", if_absent=True) == EXISTS
    assert move(server, "/a", "/d", if_absent=True) == DONE
    assert server.path("d").read_text(encoding="utf-8") == "new"


def test_a_repeated_rename_succeeds(bare: Scene) -> None:
    """If the source is missing, a rename succeeds if the target has the given file number."""
    server = bare.server("shim", tpc=None)
    number = make(server, "a", "new")
    assert move(server, "/a", "/b", number, if_absent=False) == DONE
    assert move(server, "/a", "/b", number, if_absent=False) == DONE
    other = make(server, "c", "other")
    assert move(server, "/a", "/b", other, if_absent=False) == NOT_FOUND
    assert server.path("b").read_text(encoding="utf-8") == "new"
