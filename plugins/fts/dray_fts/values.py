"""Values of a submission. Pure functions."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dray_fts.settings import Limits

__all__ = [
    "PRIORITY_USUAL",
    "STAGING_SECONDS_USUAL",
    "BadJobError",
    "check_metadata",
    "number_of",
    "priority_of",
    "queue_seconds_of",
    "seconds_of",
]

PRIORITY_USUAL = 3
#: Ten years, the maximum lifetime at endpoints.
_SECONDS_MAX = 316_224_000
STAGING_SECONDS_USUAL = 604_800
"""FTS's default of ``bring_online`` for a job that has only a ``copy_pin_lifetime``."""
_QUEUE_TIME = re.compile(r"(\d+)([smhd]?)")
_QUEUE_UNITS = {"s": 1, "m": 60, "h": 3600, "": 3600, "d": 86400}


class BadJobError(ValueError):
    """A submission is malformed, or asks for something that the service cannot carry out."""


def priority_of(value: object) -> int:
    """Return a priority, 1 to 5 as in FTS. ``None`` is the default.

    :raises BadJobError: if the value is no number.
    """
    if value is None:
        return PRIORITY_USUAL
    if isinstance(value, bool) or not isinstance(value, (int, str)) or not str(value).isdecimal():
        raise BadJobError(f"priority is {value!r}; write a number from 1 to 5")
    return min(max(int(value), 1), 5)


def number_of(found: Mapping[str, Any], name: str, where: str = "params") -> int | None:
    """Return a whole number, or ``None`` if the field is missing.

    :raises BadJobError: if the value is no whole number.
    """
    value = found.get(name)
    if value is None or value == "":
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,18}", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 1 << 62:
        raise BadJobError(f"{where}: {name} is {value!r}; write a whole number")
    return value


def seconds_of(found: Mapping[str, Any], name: str) -> int | None:
    """Return a positive number of seconds. Other numbers switch the parameter off."""
    number = number_of(found, name)
    if number is not None and number > _SECONDS_MAX:
        raise BadJobError(f"{name} is {number}; write at most {_SECONDS_MAX} seconds")
    return number if number is not None and number > 0 else None


def queue_seconds_of(value: object) -> float | None:
    """Return the seconds of ``max_time_in_queue``, which FTS counts in hours.

    :raises BadJobError: if the value is no time.
    """
    if value is None or value in (0, "0", ""):
        return None
    match = _QUEUE_TIME.fullmatch(str(value))
    if match is None or isinstance(value, bool):
        raise BadJobError(
            f"max_time_in_queue is {value!r}; write a number of hours, or 30m, 12h or 2d"
        )
    return float(int(match[1]) * _QUEUE_UNITS[match[2]])


def check_metadata(name: str, value: object, limits: Limits) -> None:
    """Check the size of one metadata field of a job.

    :raises BadJobError: if the metadata is too large.
    """
    size = len(json.dumps(value))
    if size > limits.metadata_bytes:
        raise BadJobError(
            f"{name} has {size} bytes, but at most {limits.metadata_bytes} are stored; "
            f"shorten {name}"
        )
