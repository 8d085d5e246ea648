"""The endpoint under test is the release program of this tree."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from integration.endpoint.browser import Browser
from integration.endpoint.scene import Data, Scenes, Tally, make_data
from integration.harness.program import find_program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dray.testing.endpoints import Endpoint


@pytest.fixture(autouse=True)
def release_program(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the fixtures start the program of this tree; tests without servers need none."""
    if request.node.get_closest_marker("server") is None or "DRAY_PROGRAM" in os.environ:
        return
    try:
        program = find_program()
    except FileNotFoundError as error:
        pytest.fail(str(error), pytrace=False)
    monkeypatch.setenv("DRAY_PROGRAM", str(program))


@pytest.fixture(scope="session")
def moved() -> Iterator[Data]:
    """Make the data of the fault tests, once."""
    # Do not use tmp_path_factory, which keeps the folders of three runs.
    with tempfile.TemporaryDirectory(
        prefix="dray-data-", dir=os.environ.get("DRAY_TEST_DIR")
    ) as name:
        data = make_data(Path(name) / "served")
        yield data
        data.remove()


@pytest.fixture
def scenes(start_endpoint: Callable[..., Endpoint], moved: Data) -> Scenes:
    """Return a maker of scenes: two endpoints, a proxy, and data to move."""
    return Scenes(start_endpoint, moved)


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Iterator[Tally]:
    """Yield a counter of the results of faults, and print it at the end."""
    tally = Tally(request.node.name)
    yield tally
    tally.say()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Yield a browser, which all tests of a file use in turn."""
    with tempfile.TemporaryDirectory(prefix="dray-browser-") as name, Browser(Path(name)) as one:
        yield one
