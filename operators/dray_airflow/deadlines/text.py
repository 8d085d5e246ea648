"""Durations and times as text for messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime


def span(seconds: float) -> str:
    """Return a duration as text: ``45 s``, ``12.5 min``, ``3.2 h``."""
    size = abs(seconds)
    if size < 120:
        return f"{seconds:.3g} s"
    if size < 7200:
        return f"{seconds / 60:.3g} min"
    return f"{seconds / 3600:.3g} h"


def clock(time: datetime) -> str:
    """Return a time as text to the second, with its zone."""
    return time.isoformat(timespec="seconds").replace("+00:00", "Z")
