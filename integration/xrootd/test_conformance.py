"""The store of XRootD servers passes the conformance suite of stores against a stock server."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from integration.xrootd.servers import SHIM, built, find

if TYPE_CHECKING:
    from pathlib import Path

    from integration.xrootd.servers import Scene

pytestmark = pytest.mark.server

#: Cases that take too long with a server: each of the files takes several requests.
LEFT_OUT = ["100 000 entries are listed as they are found"]


def test_the_store_passes_the_suite(bare: Scene, shared: Path) -> None:
    """Every case passes with the capabilities that the store declares."""
    program = shared / "conformance"
    shutil.copy2(built().parent / "debug" / "examples" / "conformance", program)
    server = bare.server("sink", tpc=None)
    env = {"DRAY_XRDCL": str(find(SHIM))}
    ended = bare.run(program, server.at("suite"), *LEFT_OUT, env=env, seconds=600)
    assert ended.code == 0, ended.out + ended.words
    assert " 0 failed" in ended.out, ended.out
    assert ended.out.count("passed   ") >= 30, ended.out
