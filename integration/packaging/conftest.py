"""Packages that several test files of this folder examine."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from integration.harness.program import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def built_packages(module: str, folder: Path) -> Path:
    """Build packages into a folder with a module of tools/packages, and return the folder."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        # Compression takes most of the time of a build, and no test depends on it.
        "DRAY_COMPRESSION": "0",
        "DEBFULLNAME": "Packages of a site",
        "DEBEMAIL": "packages@example.org",
    }
    ended = subprocess.run(
        [sys.executable, "-m", module, str(folder)],
        cwd=ROOT,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    return folder


@pytest.fixture(scope="session")
def debs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the Debian packages."""
    return built_packages("tools.packages.deb", tmp_path_factory.mktemp("debs"))


@pytest.fixture(scope="session")
def rpms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the RPM packages."""
    return built_packages("tools.packages.rpm", tmp_path_factory.mktemp("rpms"))
