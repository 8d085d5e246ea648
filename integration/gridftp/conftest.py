"""Fixtures for tests with a real GridFTP server."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

import pytest

from integration.conftest import FAILED, OUT
from integration.gridftp.server import Server, find_missing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def grid(folder: Path, request: pytest.FixtureRequest) -> Iterator[Server]:
    """Yield a server that runs. If the test fails, keep its logs."""
    reason = find_missing()
    if reason:
        pytest.skip(reason)
    server = Server(folder).start()
    try:
        yield server
    finally:
        server.kill()
        if request.node.stash.get(FAILED, False):
            kept = OUT / re.sub(r"[^\w.-]+", "_", f"{request.node.name}-server")
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(server.logs, kept)
