"""Parser for the deadline in a run's conf: a time or a duration. Pure."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

__all__ = ["read_deadline", "whole_second"]

_SPAN = re.compile(r"\+?\s*(\d+(?:\.\d+)?)\s*([smhd]?)")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
REMEDY = (
    "write a time with its time zone, such as 2026-11-21T17:00:00Z, or a duration, such as 90m "
    "or 2h"
)


def read_deadline(value: object, begin: datetime) -> datetime:
    """Parse a deadline.

    :param value: RFC 3339 with its zone, or a duration from ``begin``: ``90m``, ``2h``, ``1d``, or
        a number of seconds.
    :param begin: time at which the DAG run was due, with a time zone.
    :raises ValueError: for any other value. The message is for users.
    """
    if isinstance(value, bool) or value is None:
        raise ValueError(f"{value!r} is not a deadline: {REMEDY}")
    if isinstance(value, datetime):
        found = value
    else:
        text = str(value).strip()
        span = _SPAN.fullmatch(text)
        try:
            if span is not None:
                return begin + timedelta(seconds=float(span[1]) * _SECONDS[span[2]])
            # Python 3.10 cannot parse a `Z` at the end.
            found = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", text))
        except (ValueError, OverflowError):
            raise ValueError(f"{value!r} is not a deadline: {REMEDY}") from None
    if found.tzinfo is None:
        raise ValueError(f"the deadline {value!r} has no time zone: {REMEDY}")
    return found


def whole_second(time: datetime) -> datetime:
    """Round a time up to whole seconds, so that it is never earlier than the offered time."""
    return time if not time.microsecond else time.replace(microsecond=0) + timedelta(seconds=1)
