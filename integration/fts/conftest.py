"""Fixtures for tests of the FTS service with real endpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dray.testing.endpoints import Endpoint
from integration.endpoint.raw import shipped_program
from integration.fts.face import Face, has_client
from integration.fts.pems import make_pems
from integration.harness.scratch import scratch_folder

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def face() -> Iterator[Face]:
    """Yield a running service with two endpoints, ``a`` and ``b``."""
    with scratch_folder() as folder:
        ends: dict[str, Endpoint] = {}
        face: Face | None = None
        (folder / "ca").mkdir()
        authority, pems = make_pems(folder / "ca")
        try:
            for name in ("a", "b"):
                end = Endpoint(folder / name, name=f"{name}.example", program=shipped_program())
                ends[name] = end.start()
            face = Face(folder / "face", ends, authority.file, pems).start()
            yield face
        finally:
            if face is not None:
                face.close()
            for end in ends.values():
                end.close()


@pytest.fixture
def stock_client() -> None:
    """Skip a test if the stock client of FTS is missing."""
    if not has_client():
        pytest.skip("no client of FTS in .tools/fts; tools/bootstrap.sh test installs it")
