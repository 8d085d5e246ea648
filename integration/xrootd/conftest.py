"""Fixtures for tests with real XRootD servers."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from integration.conftest import FAILED, OUT
from integration.xrootd.http import PLUGIN, make_certificates
from integration.xrootd.servers import PROGRAM, SHIM, Scene, compile_loopback, copy_programs, give

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def shared() -> Iterator[Path]:
    """Make what all servers of a run need: the library that keeps them on the loopback."""
    # Not pytest's own, which nobody else may enter.
    folder = Path(tempfile.mkdtemp(prefix="dray-test-", dir=os.environ.get("DRAY_TEST_DIR")))
    folder.chmod(0o755)
    compile_loopback(folder)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def programs(shared: Path) -> Path:
    """Copy dray's program and its library to where a server's user may run them."""
    folder = shared / "programs"
    copy_programs(folder, [PROGRAM, SHIM])
    return folder


@pytest.fixture(scope="session")
def plugins(shared: Path) -> Path:
    """Copy the HTTP plug-in and its program to where a server's user may load them."""
    folder = shared / "http"
    copy_programs(folder, [PROGRAM, PLUGIN])
    return folder


@pytest.fixture(scope="session")
def certificates(shared: Path) -> Path:
    """Make an authority and a server's certificate."""
    folder = shared / "certificates"
    folder.mkdir()
    make_certificates(folder)
    return folder


@pytest.fixture
def ours(folder: Path, program: Path) -> Path:
    """Copy the program to where an ordinary user may run it."""
    copied = folder / "dray"
    shutil.copy(program, copied)
    copied.chmod(0o755)
    return copied


@pytest.fixture
def bare(folder: Path, shared: Path, request: pytest.FixtureRequest) -> Iterator[Scene]:
    """Give a place for servers that run nothing of dray's; logs are kept when the test fails."""
    give(folder)
    scene = Scene(folder, shared / "loopback.so", shared / "programs")
    yield scene
    scene.close()
    if request.node.stash.get(FAILED, False):
        kept = OUT / re.sub(r"[^\w.-]+", "_", request.node.name)
        for log in folder.glob("**/*.log"):
            at = kept / log.relative_to(folder)
            at.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(log, at)


@pytest.fixture
def scene(bare: Scene, programs: Path) -> Scene:
    """Give a place for servers that let dray do third-party copies."""
    assert bare.programs == programs
    return bare
