"""The oldest glibc and libstdc++ with which programs and libraries run."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def needed(path: Path, library: str) -> list[tuple[int, ...]]:
    """Return the versions of a library's symbols that an ELF file needs.

    :param library: word before the version: ``GLIBC`` or, for libstdc++, ``GLIBCXX``.
    """
    words = ["readelf", "--version-info", "--wide", str(path)]
    text = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    found = set(re.findall(rf"Name: {library}_([0-9.]+)", text))
    return [tuple(int(part) for part in version.split(".")) for version in found]


def floor(folder: Path, library: str = "GLIBC") -> str:
    """Return the newest version of a library's symbols that any file below a folder needs."""
    versions = [
        version
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink() and path.read_bytes()[:4] == b"\x7fELF"
        for version in needed(path, library)
    ]
    assert versions, f"{folder} contains no ELF file that needs {library}"
    return ".".join(str(part) for part in max(versions))
