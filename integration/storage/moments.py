"""Number of moments at which the tests of storage systems kill a program."""

from __future__ import annotations

import os

__all__ = ["kills"]

#: Default number. `make test-full` kills more often.
USUAL = 6


def kills(full: int) -> int:
    """Return ``DRAY_KILLS``, or ``full`` with ``DRAY_FULL=1``, or a few."""
    is_full = os.environ.get("DRAY_FULL") == "1"
    return int(os.environ.get("DRAY_KILLS") or (full if is_full else USUAL))
