"""Convert rendered templates to values: numbers, sizes, times, lists. Pure.

A template renders to text, and to an empty text if a variable is not set. Authors of DAGs write
sizes such as ``100MiB``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone

from dray_airflow.errors import bad_input

__all__ = [
    "integer",
    "is_empty",
    "label_text",
    "labels",
    "seconds",
    "size",
    "text",
    "texts",
    "time",
    "truth",
    "word",
]

LABEL_BYTES_MAX = 256
"""Maximum number of bytes of a label in the API."""
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kKMGTP]i?)?B?(?:/s)?")
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}


def is_empty(value: object) -> bool:
    """Return true if there is no value.

    A template that renders ``None`` gives the text ``None``, so this text counts as no value too.
    """
    return value is None or (isinstance(value, str) and value.strip() in ("", "None"))


def _invalid_value(name: str, value: object, remedy: str) -> Exception:
    return bad_input(
        f"use {name}", f"its value is {value!r} after its templates were rendered", remedy
    )


def text(name: str, value: object) -> str:
    """Return the value of a field that must be a text, without surrounding blanks.

    :raises DrayTaskFailure: if the value is empty, or if it is not a text.
    """
    if is_empty(value):
        cause = (
            "it has no value"
            if value is None
            else f"its value is {value!r} after its templates were rendered"
        )
        raise bad_input(f"use {name}", cause, "give a value, or check its template")
    if not isinstance(value, str):
        raise _invalid_value(name, value, "write a text")
    return value.strip()


def word(value: str | None) -> str | None:
    """Return a word, or ``None`` if there is no value."""
    return None if is_empty(value) else str(value).strip()


def texts(name: str, value: object) -> tuple[str, ...]:
    """Return one or several texts as a tuple. Without a value, the tuple is empty.

    :raises DrayTaskFailure: if an item is empty or not a text, or if a list was rendered to text.
    """
    if is_empty(value):
        return ()
    if isinstance(value, str):
        word = text(name, value)
        if _is_list(word):
            raise bad_input(
                f"use {name}",
                f"{word!r} is a list that a template rendered to text",
                "set render_template_as_native_obj=True in the DAG, or give a list of templates",
            )
        return (word,)
    if not isinstance(value, Sequence):
        raise _invalid_value(name, value, "write a text or a list of texts")
    return tuple(text(f"{name}[{at}]", each) for at, each in enumerate(value))


def _is_list(word: str) -> bool:
    """Return true for a list of texts in Python's notation, false for a pattern (``[ab]*``)."""
    if not word.startswith(("[", "(")) or not word.endswith(("]", ")")):
        return False
    try:
        found = ast.literal_eval(word)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return False
    return isinstance(found, (list, tuple)) and all(isinstance(each, str) for each in found)


def integer(name: str, value: object) -> int | None:
    """Parse an integer.

    :raises DrayTaskFailure: for any other value.
    """
    if is_empty(value):
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and re.fullmatch(r"[+-]?\d+", value.strip()):
        return int(value)
    raise _invalid_value(name, value, "write a whole number")


def size(name: str, value: object) -> int | None:
    """Parse a size or rate: a number, ``200GB``, ``1.5 GiB``, ``100MiB/s``.

    :raises DrayTaskFailure: for any other value.
    """
    if isinstance(value, str) and not is_empty(value):
        match = _SIZE.fullmatch(value.strip())
        if match is None:
            raise _invalid_value(
                name, value, "write a number of bytes, or a size such as 200GB or 1.5GiB"
            )
        unit = (match[2] or "").upper()
        base = 1024 if unit.endswith("I") else 1000
        power = _POWERS[unit.removesuffix("I")]
        return round(float(match[1]) * float(base**power))
    return integer(name, value)


def seconds(name: str, value: object) -> int | None:
    """Convert a duration, given as a number or a ``timedelta``, to whole seconds, rounded up.

    :raises DrayTaskFailure: for any other value, and for a negative duration.
    """
    if isinstance(value, timedelta):
        found: int | None = -(-value // timedelta(seconds=1))
    elif isinstance(value, float):
        found = int(-(-value // 1))
    else:
        found = integer(name, value)
    if found is not None and found < 0:
        raise _invalid_value(name, value, "write a duration of at least 0 seconds")
    return found


def time(name: str, value: object, begin: datetime | None = None) -> datetime | None:
    """Parse a time with a zone: a ``datetime``, RFC 3339, or a ``timedelta`` from ``begin``.

    :raises DrayTaskFailure: for any other value, and for a time without a zone.
    """
    if is_empty(value):
        return None
    if isinstance(value, timedelta):
        return (begin or datetime.now(timezone.utc)) + value
    found: object = value
    if isinstance(value, str):
        try:
            # Python 3.10 cannot parse a `Z` at the end.
            found = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", value.strip()))
        except ValueError:
            found = None
    if not isinstance(found, datetime):
        raise _invalid_value(
            name, value, "write a time such as 2026-11-21T17:00:00Z, or a timedelta"
        )
    if found.tzinfo is None:
        raise _invalid_value(name, value, "add the time zone: 2026-11-21T17:00:00+00:00")
    return found


def truth(name: str, value: object) -> bool | None:
    """Parse a boolean.

    :raises DrayTaskFailure: for any other value.
    """
    if is_empty(value) or isinstance(value, bool):
        return None if is_empty(value) else bool(value)
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise _invalid_value(name, value, "write True or False")


def labels(name: str, value: object) -> dict[str, str]:
    """Parse labels, a dictionary from text to text.

    :raises DrayTaskFailure: for any other value.
    """
    if is_empty(value):
        return {}
    if not isinstance(value, Mapping):
        raise _invalid_value(name, value, 'write {"key": "value"}')
    return {str(key): str(each) for key, each in value.items() if each is not None}


def label_text(value: object) -> str:
    """Shorten a text to the maximum size of a label, without cutting a character in two."""
    return str(value).encode()[:LABEL_BYTES_MAX].decode(errors="ignore")
