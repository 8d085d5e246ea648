"""The endpoint that is tested here is the release program of this tree."""

from __future__ import annotations

import os

import pytest

from integration.harness.program import find_program


@pytest.fixture(autouse=True)
def release_program(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the fixtures start the program of this tree; tests without servers need none."""
    if request.node.get_closest_marker("server") is None or "DRAY_PROGRAM" in os.environ:
        return
    try:
        program = find_program()
    except FileNotFoundError as error:
        pytest.fail(str(error), pytrace=False)
    monkeypatch.setenv("DRAY_PROGRAM", str(program))
