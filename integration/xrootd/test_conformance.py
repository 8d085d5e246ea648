"""The store of XRootD servers passes the conformance suite with a stock server."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from integration.xrootd.servers import SHIM, built, find

if TYPE_CHECKING:
    from pathlib import Path

    from integration.xrootd.servers import Scene

pytestmark = pytest.mark.server

#: Conformance cases that take too long, because each of their files needs several requests.
LEFT_OUT = ["100 000 entries are listed as they are found"]


def test_the_store_passes_the_suite(bare: Scene, shared: Path) -> None:
    """The store passes all conformance cases, except the one that is left out."""
    program = shared / "conformance"
    shutil.copy2(built().parent / "debug" / "examples" / "conformance", program)
    server = bare.server("sink", tpc=None)
    env = {"DRAY_XRDCL": str(find(SHIM))}
    ended = bare.run(program, server.at("suite"), *LEFT_OUT, env=env, seconds=600)
    assert ended.code == 0, ended.out + ended.words
    assert " 0 failed" in ended.out, ended.out
    assert ended.out.count("passed   ") >= 30, ended.out
