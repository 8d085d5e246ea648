"""Fixtures of the tests of hostile peers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from integration.harness.program import Bench


@pytest.fixture
def token(bench: Bench) -> bytes:
    """Return the token that ``bench.serve`` accepts."""
    return bench.token.read_bytes().strip()
