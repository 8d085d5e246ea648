"""The oldest glibc with which programs and libraries run."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def needed(path: Path) -> list[tuple[int, ...]]:
    """Return the versions of glibc's symbols that an ELF file needs."""
    words = ["readelf", "--version-info", "--wide", str(path)]
    text = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    found = set(re.findall(r"Name: GLIBC_([0-9.]+)", text))
    return [tuple(int(part) for part in version.split(".")) for version in found]


def floor(folder: Path) -> str:
    """Return the newest version of glibc's symbols that any file below a folder needs."""
    versions = [
        version
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink() and path.read_bytes()[:4] == b"\x7fELF"
        for version in needed(path)
    ]
    assert versions, f"{folder} contains no ELF file that needs glibc"
    return ".".join(str(part) for part in max(versions))
