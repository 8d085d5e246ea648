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
    """Make the shared part of all servers: the library that keeps them on the loopback."""
    # Do not use pytest's folder, because other users cannot enter it.
    folder = Path(tempfile.mkdtemp(prefix="dray-test-", dir=os.environ.get("DRAY_TEST_DIR")))
    folder.chmod(0o755)
    compile_loopback(folder)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def programs(shared: Path) -> Path:
    """Copy dray's program and its library to a folder that a server's user may use."""
    folder = shared / "programs"
    copy_programs(folder, [PROGRAM, SHIM])
    return folder


@pytest.fixture(scope="session")
def plugins(shared: Path) -> Path:
    """Copy the HTTP plug-in and its program to a folder that a server's user may use."""
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
    """Copy the program to a folder that an ordinary user may use."""
    copied = folder / "dray"
    shutil.copy(program, copied)
    copied.chmod(0o755)
    return copied


@pytest.fixture
def bare(folder: Path, shared: Path, request: pytest.FixtureRequest) -> Iterator[Scene]:
    """Yield a folder for servers without dray; logs are kept when the test fails."""
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
    """Yield a folder for servers whose third-party copies dray does."""
    assert bare.programs == programs
    return bare
