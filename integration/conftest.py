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
#: Groups of files and folders whose tests share servers that take long to start, or whose browser
#: uses most of a processor. One worker runs all tests of a group. So the servers start once, and
#: not once for each worker, and one browser runs at a time. The groups start first, because each
#: of them takes long.
TOGETHER = (
    ("integration/airflow",),
    ("integration/endpoint/test_console", "integration/docs/test_manual.py"),
    (
        "integration/storage/test_store.py",
        "integration/storage/test_endpoint.py",
        "integration/storage/test_endpoint_faults.py",
        "integration/storage/test_sweep.py",
        "integration/storage/test_stock.py",
        "integration/storage/test_placement.py",
        "integration/storage/test_cluster.py",
    ),
    ("integration/storage/test_gluster.py", "integration/storage/test_gluster_faults.py"),
)
#: Number of the first groups that stay together if tests with the mark ``full`` run too. The other
#: groups have so many of these tests that one worker would take too long.
TOGETHER_IN_FULL = 2
FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that need the release programs, and start the longest files first.

    The mark is ``server``. A test run that comes before the build of the release programs leaves
    the marked tests out.
    """
    for item in items:
        if isinstance(item, pytest.Function) and "program" in item.fixturenames:
            item.add_marker("server")
    groups = together(config)
    place = {name: number for number, name in enumerate(LONGEST)}

    def key(item: pytest.Item) -> int:
        for number, group in enumerate(groups):
            if item.nodeid.startswith(group):
                return number - len(groups)
        return place.get(item.path.name, len(place))

    items.sort(key=key)


def together(config: pytest.Config) -> tuple[tuple[str, ...], ...]:
    """Return the groups of ``TOGETHER`` that one worker runs with the chosen marks."""
    is_part = "not full" in config.getoption("markexpr")
    return TOGETHER if is_part else TOGETHER[:TOGETHER_IN_FULL]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Run the tests of a file on one worker (``--dist loadfile``). Keep groups together too."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

    groups = together(config)

    class ByPlace(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            for group in groups:
                if nodeid.startswith(group):
                    return group[0]
            return str(super()._split_scope(nodeid))

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
