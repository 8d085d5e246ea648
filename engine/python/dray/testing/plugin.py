"""Fixtures for pytest: endpoints that run for one test, and faults.

pytest loads this module whenever dray is installed. So the module imports only pytest until a
fixture is used. docs/how-to/test-with-dray.md shows the fixtures.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from dray.testing.endpoints import Endpoint
    from dray.testing.faults import Faults

SLOW_RATE_BYTES = 1 << 20
"""Rate of the target ``slow`` of :func:`slow_target`, in bytes per second."""

_STARTED = pytest.StashKey["list[Endpoint]"]()


class Two(NamedTuple):
    """Two independent endpoints."""

    a: Endpoint
    b: Endpoint


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the output of the endpoints to the report of a failed test."""
    report = yield
    if report.failed and report.when == "call":
        for endpoint in item.stash.get(_STARTED, []):
            report.sections.append((f"endpoint {endpoint.name}", endpoint.log_text()))
    return report


@pytest.fixture
def start_endpoint(request: pytest.FixtureRequest) -> Iterator[Callable[..., Endpoint]]:
    """Return a function that starts an endpoint for this test: ``start_endpoint("a", roots=...)``.

    The function takes the arguments of :class:`dray.testing.endpoints.Endpoint` after the folder.
    """
    from dray.testing.endpoints import Endpoint, find_program

    try:
        program = find_program()
    except FileNotFoundError as error:
        pytest.fail(str(error), pytrace=False)
    # Not `tmp_path`, which pytest keeps for three runs. This folder may hold gigabytes.
    folder = Path(tempfile.mkdtemp(prefix="dray-endpoints-"))
    started: list[Endpoint] = []
    request.node.stash[_STARTED] = started

    def start(name: str = "a", **options: object) -> Endpoint:
        options.setdefault("program", program)
        made = Endpoint(folder / f"{len(started)}-{name}", name, **options)  # type: ignore[arg-type]
        started.append(made)
        return made.start()

    try:
        yield start
    finally:
        for endpoint in started:
            endpoint.close()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def one_endpoint(start_endpoint: Callable[..., Endpoint]) -> Endpoint:
    """Return an endpoint with a root ``data``."""
    return start_endpoint("a")


@pytest.fixture
def two_endpoints(start_endpoint: Callable[..., Endpoint]) -> Two:
    """Return two endpoints, ``.a`` and ``.b``. Each has a root ``data``, a key and an issuer."""
    return Two(start_endpoint("a"), start_endpoint("b"))


@pytest.fixture
def slow_target(start_endpoint: Callable[..., Endpoint]) -> Endpoint:
    """Return an endpoint whose root ``data`` has two targets: ``slow/`` (1 MiB/s) and ``fast/``."""
    from dray.testing.endpoints import Root

    targets = {
        "targets": ["{path}/slow=slow", "{path}/fast=fast"],
        "limit_targets": [f"slow={SLOW_RATE_BYTES >> 20}MiB/s"],
    }
    endpoint = start_endpoint("slow", roots=(Root("data", targets),))
    for name in ("slow", "fast"):
        endpoint.root(name).mkdir()
    return endpoint


@pytest.fixture
def fault() -> Iterator[Faults]:
    """Return an injector of faults: kills, cuts, suspended processes.

    The seed is in the output of the test.
    """
    from dray.testing.faults import Faults

    faults = Faults()
    print(f"faults: DRAY_SEED={faults.seed}")
    try:
        yield faults
    finally:
        faults.close()
