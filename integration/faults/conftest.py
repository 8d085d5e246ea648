"""Source and destination of the fault tests."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from integration.harness import tree

if TYPE_CHECKING:
    from pathlib import Path

    from integration.harness.program import Bench


@pytest.fixture
def source(bench: Bench) -> Path:
    """Make a small tree. One of its files has several objects."""
    top = bench.folder / "source"
    for folder in ("a", "m", "z"):
        (top / folder).mkdir(parents=True)
        for number in range(5):
            (top / folder / f"file{number}").write_bytes(os.urandom(1000 * number + 7))
    tree.make_file(top / "m" / "large", 24 * tree.MIB, seed=5)
    return top


@pytest.fixture
def sink(bench: Bench) -> Path:
    """Make an empty destination."""
    top = bench.folder / "sink"
    top.mkdir()
    return top
