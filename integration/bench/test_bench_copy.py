"""The measuring itself runs, on little data: its numbers mean nothing here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]


def test_bench_prints_every_way(folder: Path, program: Path) -> None:
    script = Path(__file__).parent / "bench_copy.py"
    words = ["--rounds", "1", "--file-mib", "8", "--data", "file", "--dir", str(folder)]
    ran = subprocess.run(
        [sys.executable, script, *words], check=True, capture_output=True, text=True
    )
    for way in ("cp -a", "dray, one process", "dray, two, TLS", "dray, two, clear"):
        assert way in ran.stdout


def test_bench_refuses_a_debug_build(folder: Path, program: Path) -> None:
    (folder / "debug").mkdir()
    (folder / "release").symlink_to("debug")
    os.symlink(program, folder / "debug" / "dray")
    script = "from pathlib import Path; from integration.bench import bench_copy as b; "
    script += f"b.refuse_debug(Path({str(folder / 'debug' / 'dray')!r}))"
    ran = subprocess.run(
        [sys.executable, "-c", script],
        check=False,
        capture_output=True,
        text=True,
        cwd=Path(__file__).resolve().parents[2],
    )
    assert ran.returncode != 0
    assert "no release build" in ran.stderr
