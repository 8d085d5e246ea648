"""Convert JSON to the types of the answers.

Missing fields get defaults, and unknown fields are ignored. An answer that does not fit its type is
an error of the kind ``protocol``.
"""

from __future__ import annotations

import dataclasses
import re
import types
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from functools import cache
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from dray.client._errors import error_of
from dray.errors import DrayError

if TYPE_CHECKING:
    from dray.client._steps import Json

__all__ = ["ShapeError", "read", "read_time"]

T = TypeVar("T")
Hint: TypeAlias = Any

_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:[Zz]|([+-])(\d\d):(\d\d))"
)


class ShapeError(ValueError):
    """An answer does not fit its type. The message names the field."""


def read(of: type[T], value: object, place: str = "answer") -> T:
    """Read one object.

    :raises ShapeError: if a field is missing or of another type.
    """
    if not isinstance(value, Mapping):
        raise ShapeError(f"{place} is not an object")
    values: dict[str, Any] = {}
    for name, key, hint, is_needed in _plan(cast("Any", of)):
        if key in value:
            values[name] = _value(hint, value[key], f"{place}.{key}")
        elif is_needed:
            raise ShapeError(f"{place}.{key} is missing")
    return of(**values)


def read_time(text: str) -> datetime:
    """Read an RFC 3339 time, with any number of fractional digits.

    :raises ShapeError: for any other text.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        raise ShapeError(f"{text[:40]!r} is not a time")
    year, month, day, hour, minute, second = map(int, match.groups()[:6])
    fraction, sign, hours, minutes = match.groups()[6:]
    micros = int((fraction or "0")[:6].ljust(6, "0"))
    try:
        time = datetime(year, month, day, hour, minute, second, micros, tzinfo=timezone.utc)
        if sign:
            offset = timedelta(hours=int(hours), minutes=int(minutes))
            time += -offset if sign == "+" else offset
    except (ValueError, OverflowError) as error:
        raise ShapeError(f"{text[:40]!r} is not a time") from error
    return time


@cache
def _plan(of: type[Any]) -> tuple[tuple[str, str, Any, bool], ...]:
    hints = get_type_hints(of)
    missing = dataclasses.MISSING
    return tuple(
        # The field is called `from_`, because `from` is a keyword of Python.
        (
            each.name,
            each.name.rstrip("_"),
            hints[each.name],
            each.default is missing and each.default_factory is missing,
        )
        for each in dataclasses.fields(of)
    )


def _value(hint: Hint, value: object, place: str) -> Json:
    origin: Hint = get_origin(hint)
    if origin in (Union, types.UnionType):
        (inner,) = (each for each in get_args(hint) if each is not type(None))
        return None if value is None else _value(inner, value, place)
    if value is None:
        raise ShapeError(f"{place} is null")
    if origin is tuple:
        if not isinstance(value, list):
            raise ShapeError(f"{place} is not a list")
        inner = get_args(hint)[0]
        return tuple(_value(inner, each, f"{place}[{at}]") for at, each in enumerate(value))
    if origin in (Mapping, dict) or isinstance(value, Mapping):
        return _object(hint, origin, value, place)
    return _plain(hint, origin, value, place)


def _object(hint: Hint, origin: Hint, value: object, place: str) -> Json:
    if not isinstance(value, Mapping):
        raise ShapeError(f"{place} is not an object")
    if origin is not None:
        return dict(value)
    if hint is DrayError:
        return error_of(value)
    if hint is str and isinstance(value.get("message"), str):
        # A notice has the form of an error, but the caller only needs its message.
        return value["message"]
    if not dataclasses.is_dataclass(hint):
        raise ShapeError(f"{place} has the wrong type")
    return read(cast("type[Any]", hint), value, place)


def _plain(hint: Hint, origin: Hint, value: object, place: str) -> Json:
    wanted = str if origin is Literal or hint is datetime else hint
    # JSON has only one type of number. In Python a bool is also an int, so it is excluded.
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if wanted is float and is_number:
        return float(cast("float", value))
    if wanted is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if not isinstance(wanted, type) or not isinstance(value, wanted):
        raise ShapeError(f"{place} has the wrong type")
    if wanted is int and not is_number:
        raise ShapeError(f"{place} has the wrong type")
    if hint is not datetime:
        return value
    try:
        return read_time(cast("str", value))
    except ShapeError as error:
        raise ShapeError(f"{place}: {error}") from None
