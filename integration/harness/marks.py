"""Parameter values that only ``make test-full`` and ``make test-storage`` test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from _pytest.mark.structures import ParameterSet


def in_full(value: object) -> ParameterSet:
    """Mark one value of ``pytest.mark.parametrize`` with ``full``."""
    return pytest.param(value, marks=pytest.mark.full)
