"""The measuring itself runs, on little data: its numbers mean nothing here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from integration.bench import bench_copy

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


def test_bench_names_the_file_system_as_the_kernel_does() -> None:
    mounts = "\n".join(
        [
            "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw",
            "23 22 0:20 / /dev/shm rw - tmpfs tmpfs rw",
            "24 22 8:1 / /mnt/a\\040b rw master:1 shared:2 - xfs /dev/sda1 rw",
            "25 22 0:30 / /mnt/twice rw - ext3 /dev/sdb rw",
            "26 25 0:31 / /mnt/twice rw - btrfs /dev/sdc rw",
        ]
    )
    for place, kind in {
        "/": "ext4",
        "/home/x": "ext4",
        "/dev/shm/dray-bench-1": "tmpfs",  # noqa: S108
        "/dev/shmem": "ext4",  # noqa: S108
        "/mnt/a b/c": "xfs",
        "/mnt/twice": "btrfs",
    }.items():
        assert bench_copy.file_system(Path(place), mounts) == kind, place
    assert bench_copy.file_system(Path("/x"), "") == "unknown"
