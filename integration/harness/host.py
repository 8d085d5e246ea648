"""What this host lets a test do: less power than root's, small file systems."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def is_root() -> bool:
    """Whether this process may do everything."""
    return os.geteuid() == 0


def without_power() -> list[str]:
    """Give the words before a command whose process must obey the permissions of files."""
    if not is_root():
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("root without setpriv cannot be refused a file")
    less = "-dac_override,-dac_read_search"
    return ["setpriv", f"--bounding-set={less}", f"--inh-caps={less}"]


@contextlib.contextmanager
def small_file_system(at: Path, size: int) -> Iterator[Path]:
    """Mount a file system of ``size`` bytes; skip the test where that is not allowed."""
    at.mkdir(parents=True, exist_ok=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "dray-test", at],
        check=False,
        capture_output=True,
        text=True,
    )
    if mounted.returncode != 0:
        pytest.skip(f"no file system of its own for the test: {mounted.stderr.strip()}")
    try:
        yield at
    finally:
        subprocess.run(["umount", "--lazy", at], check=False)
