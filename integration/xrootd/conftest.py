"""Fixtures for tests with real XRootD servers."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

import pytest

from integration.conftest import FAILED, OUT
from integration.harness.scratch import scratch_folder
from integration.xrootd.http import PLUGIN, make_certificates
from integration.xrootd.servers import PROGRAM, SHIM, Scene, compile_loopback, copy_programs, give

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def shared() -> Iterator[Path]:
    """Yield a folder with the library that makes servers listen on the loopback only."""
    # Do not use pytest's folder, because other users cannot enter it.
    with scratch_folder() as folder:
        folder.chmod(0o755)
        compile_loopback(folder)
        yield folder


@pytest.fixture(scope="session")
def programs(shared: Path) -> Path:
    """Return a folder with dray's TPC program and its library, which the servers' user may read."""
    folder = shared / "programs"
    copy_programs(folder, [PROGRAM, SHIM])
    return folder


@pytest.fixture(scope="session")
def plugins(shared: Path) -> Path:
    """Return a folder with the HTTP plug-in and its program, which the servers' user may read."""
    folder = shared / "http"
    copy_programs(folder, [PROGRAM, PLUGIN])
    return folder


@pytest.fixture(scope="session")
def certificates(shared: Path) -> Path:
    """Make an authority, and a server certificate that it has signed. Return their folder."""
    folder = shared / "certificates"
    folder.mkdir()
    make_certificates(folder)
    return folder


@pytest.fixture
def ours(folder: Path, program: Path) -> Path:
    """Return a copy of the program ``dray`` that an ordinary user may run."""
    copied = folder / "dray"
    shutil.copy(program, copied)
    copied.chmod(0o755)
    return copied


@pytest.fixture
def bare(folder: Path, shared: Path, request: pytest.FixtureRequest) -> Iterator[Scene]:
    """Yield a scene without dray's programs. If the test fails, keep the logs."""
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
    """Yield a scene in which dray's program makes the third-party copies."""
    assert bare.programs == programs
    return bare
