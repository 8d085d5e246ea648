"""Permission bits of a copy: the source's, but for those that would lend its owner's rights."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from integration.harness.program import Way

if TYPE_CHECKING:
    from pathlib import Path

    from integration.harness.program import Bench, Word

pytestmark = pytest.mark.server

KIB = 1 << 10
SIZES = {"small": 1, "large": 3000 * KIB}


def mode(path: Path) -> int:
    """Give the bits of a file or folder."""
    return path.stat().st_mode & 0o7777


@pytest.mark.parametrize("way", [None, Way(push=True), Way(push=False)], ids=str)
def test_a_copy_runs_as_nobody_but_its_caller(bench: Bench, way: Way | None) -> None:
    source = bench.folder / "source"
    (source / "group").mkdir(parents=True)
    for name, size in SIZES.items():
        for bits in (0o4755, 0o2750, 0o6711, 0o640):
            file = source / "group" / f"{name}-{bits:o}"
            file.write_bytes(os.urandom(size))
            file.chmod(bits)
    (source / "group").chmod(0o2775)
    sink = bench.folder / "sink"
    sink.mkdir()
    # What is made here has its group, and so has what is made in that.
    (sink / "shared").mkdir()
    (sink / "shared").chmod(0o2775)
    for place in ("own", "shared"):
        words: list[Word] = ["-r", f"{source}/", f"{sink}/{place}/"]
        if way is not None:
            server = bench.serve(sink if way.push else source)
            far = f"dray://{server.address}/"
            ends = [f"{source}/", f"{far}{place}/"] if way.push else [far, f"{sink}/{place}/"]
            words = ["-r", *ends, *bench.peer(server)]
        bench.cp(*words).expect(0)
        there = sink / place / "group"
        assert {path.name: mode(path) for path in there.iterdir()} == {
            path.name: mode(path) & 0o777 for path in (source / "group").iterdir()
        }
        assert mode(there) == (0o2775 if place == "shared" else 0o775)
