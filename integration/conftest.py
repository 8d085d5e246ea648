"""Fixtures for tests that drive the shipped programs."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from integration.harness.program import ROOT, Bench, find_program

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

OUT = ROOT / "integration" / "out"
#: Files that take the longest: begun first, so that no worker is left with one at the end.
LONGEST = ("test_wheel.py", "test_load.py", "test_arrives.py", "test_kill.py", "test_bounds.py")
FAILED = pytest.StashKey[bool]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first, each as a whole."""
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.name, len(place)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember whether a test failed: then its logs are kept."""
    report = yield
    if report.failed:
        item.stash[FAILED] = True
    return report


@pytest.fixture(scope="session")
def program() -> Path:
    """Find the release program."""
    try:
        return find_program()
    except FileNotFoundError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Give a folder of the test's own, which others may look into."""
    # Not tmp_path: that is kept for three runs, and these hold gigabytes.
    path = Path(tempfile.mkdtemp(prefix="dray-test-", dir=os.environ.get("DRAY_TEST_DIR")))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def bench(folder: Path, program: Path, request: pytest.FixtureRequest) -> Iterator[Bench]:
    """Give a place to start programs from; its logs are kept in integration/out on failure."""
    bench = Bench(folder, program)
    yield bench
    bench.close()
    if request.node.stash.get(FAILED, False):
        kept = OUT / re.sub(r"[^\w.-]+", "_", request.node.name)
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(bench.logs, kept)
