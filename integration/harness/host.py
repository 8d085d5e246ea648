"""Host features for tests: fewer privileges than root's, small file systems."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def clean_up_when_ended() -> None:
    """Exit on SIGTERM as on Ctrl-C, so that clean-up code ends processes and removes mounts."""
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))


def is_root() -> bool:
    """Return true if this process runs as root."""
    return os.geteuid() == 0


def without_power() -> list[str]:
    """Return a command prefix that drops the privilege to ignore file permissions."""
    if not is_root():
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("root without setpriv cannot be refused a file")
    less = "-dac_override,-dac_read_search"
    return ["setpriv", f"--bounding-set={less}", f"--inh-caps={less}"]


@contextlib.contextmanager
def small_file_system(at: Path, size: int) -> Iterator[Path]:
    """Mount a file system of ``size`` bytes; skip the test if that is not permitted."""
    with _mounted(at, ["-t", "tmpfs", "-o", f"size={size},mode=755", "dray-test"]):
        yield at


#: Minimum size of an XFS in bytes.
XFS_BYTES_MIN = 320 << 20


@contextlib.contextmanager
def sharing_file_system(at: Path) -> Iterator[Path]:
    """Mount a file system whose files can share blocks (XFS); skip the test without one."""
    image = at.with_suffix(".xfs")
    with image.open("wb") as file:
        file.truncate(XFS_BYTES_MIN)
    path = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
    make = shutil.which("mkfs.xfs", path=path)
    if make is None:
        pytest.skip("no file system whose files share blocks: mkfs.xfs is not installed")
    subprocess.run([make, "-q", "-m", "reflink=1", image], check=True)
    with _mounted(at, ["-t", "xfs", "-o", "loop", str(image)]):
        yield at


@contextlib.contextmanager
def _mounted(at: Path, words: list[str]) -> Iterator[None]:
    at.mkdir(parents=True, exist_ok=True)
    mounted = subprocess.run(["mount", *words, at], check=False, capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"no file system of its own for the test: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", at], check=False)
