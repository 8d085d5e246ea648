"""Facts that all packages share: version, time of the sources, folders, and running commands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tools.packages.crates import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable


def version() -> str:
    """Return the version of dray."""
    return (ROOT / "VERSION").read_text(encoding="utf-8").strip()


def source_date() -> int:
    """Return the time of the sources in seconds since 1970, so that builds can be repeated.

    This is ``SOURCE_DATE_EPOCH``, or the time of the last commit, or, without git, the time at
    which the file VERSION was changed.
    """
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given is not None:
        return int(given)
    words = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    ended = subprocess.run(words, check=False, capture_output=True, text=True)
    if ended.returncode == 0 and ended.stdout.strip():
        return int(ended.stdout)
    return int((ROOT / "VERSION").stat().st_mtime)


def target() -> Path:
    """Return cargo's folder of build output."""
    return Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "engine" / "target")


def programs() -> Path:
    """Return the folder in which ``make build-xrootd`` leaves programs and libraries."""
    return target() / "release"


def run(words: list[str | Path], folder: Path | None = None, **environment: str) -> str:
    """Run a command and return its output.

    :raises SystemExit: with the output of the command, if it fails.
    """
    ended = subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env={**os.environ, "SOURCE_DATE_EPOCH": str(source_date()), **environment},
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if ended.returncode != 0:
        command = " ".join(str(word) for word in words)
        raise SystemExit(
            f"packages: {command} ended with {ended.returncode}:\n{ended.stdout.strip()}"
        )
    return ended.stdout


def build_into(arguments: list[str], build: Callable[[Path], list[Path]]) -> int:
    """Build packages into the folder that the command line names, and print their paths."""
    if len(arguments) != 2:
        module = Path(arguments[0]).stem
        print(f"usage: python -m tools.packages.{module} FOLDER", file=sys.stderr)
        return 2
    for package in build(Path(arguments[1]).resolve()):
        print(package)
    return 0
