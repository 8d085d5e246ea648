"""Fixtures and order of the integration tests."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

import pytest

from integration.harness.program import ROOT, Bench, find_program
from integration.harness.scratch import scratch_folder

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

OUT = ROOT / "integration" / "out"
#: Test files that take the longest. They start first, so that no worker runs one alone at the end.
LONGEST = ("test_wheel.py", "test_load.py", "test_arrives.py", "test_kill.py", "test_bounds.py")
#: Folders whose tests share a server that takes minutes to start. One worker runs all tests of such
#: a folder.
TOGETHER = ("integration/airflow",)
FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need the release programs, and start the files in ``LONGEST`` first.

    The mark is ``server``. A test run that comes before the build of the release programs leaves
    the marked tests out.
    """
    for item in items:
        if isinstance(item, pytest.Function) and "program" in item.fixturenames:
            item.add_marker("server")
    place = {name: number for number, name in enumerate(LONGEST)}

    def key(item: pytest.Item) -> int:
        is_together = item.nodeid.startswith(TOGETHER)
        return -1 if is_together else place.get(item.path.name, len(place))

    items.sort(key=key)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Run the tests of a file on one worker (``--dist loadfile``). Keep a folder together too."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

    class ByPlace(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return next((each for each in TOGETHER if nodeid.startswith(each)), None) or str(
                super()._split_scope(nodeid)
            )

    return ByPlace(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Store whether a test failed. Fixtures then keep its logs."""
    report = yield
    if report.failed:
        item.stash[FAILED] = True
    return report


@pytest.fixture(scope="session")
def program() -> Path:
    """Return the path of the release program. Fail if it is not built."""
    try:
        return find_program()
    except FileNotFoundError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a new folder that other users may read."""
    # Do not use tmp_path: pytest keeps it for three runs, and it may have gigabytes.
    with scratch_folder() as path:
        path.chmod(0o755)
        yield path


@pytest.fixture
def bench(folder: Path, program: Path, request: pytest.FixtureRequest) -> Iterator[Bench]:
    """Yield a bench that starts programs. If the test fails, keep their logs in ``OUT``."""
    bench = Bench(folder, program)
    yield bench
    bench.close()
    if request.node.stash.get(FAILED, False):
        kept = OUT / re.sub(r"[^\w.-]+", "_", request.node.name)
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(bench.logs, kept)
