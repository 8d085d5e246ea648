"""Parsers for the extra fields of a connection, and the errors of an invalid connection. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from dray_airflow.errors import bad_input

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dray_airflow.errors import DrayTaskFailure

__all__ = ["extra_of", "invalid_connection", "missing_connection", "seconds_of", "text_of"]


def extra_of(conn_id: str, text: str | None, known: Sequence[str], example: str) -> dict[str, Any]:
    """Parse the field ``extra`` of a connection.

    :param known: the allowed keys.
    :param example: an example for the error message.
    :raises DrayTaskFailure: if the field is no JSON object, or has unknown keys.
    """
    if not text:
        return {}
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise invalid_connection(
            conn_id, "the extra field is not a JSON object", f"write {example}"
        )
    unknown = sorted(set(found) - set(known))
    if unknown:
        raise invalid_connection(
            conn_id,
            f"the extra field has unknown keys: {', '.join(unknown)}",
            f"the allowed keys are {', '.join(known)}",
        )
    return found


def text_of(conn_id: str, extra: Mapping[str, Any], name: str) -> str:
    """Return a text of the extra field. Empty if the field does not have it."""
    value = extra.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise invalid_connection(
            conn_id,
            f"the value of {name} is {value!r}, which is not a text",
            "write a text",
        )
    return value.strip()


def seconds_of(conn_id: str, extra: Mapping[str, Any], name: str, default: float) -> float:
    """Return a number of seconds of the extra field."""
    value = extra.get(name)
    if value in (None, ""):
        return default
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise invalid_connection(
            conn_id,
            f"{name} is {value!r}, which is not a number above 0",
            "write a number of seconds above 0",
        )
    return seconds


def invalid_connection(conn_id: str, cause: str, remedy: str) -> DrayTaskFailure:
    """Return the error of an invalid connection."""
    return bad_input(f"use connection {conn_id!r}", cause, remedy)


def missing_connection(conn_id: str, conn_type: str) -> DrayTaskFailure:
    """Return the error of a connection that does not exist."""
    return bad_input(
        f"use connection {conn_id!r}",
        "the connection does not exist",
        f"create it: airflow connections add {conn_id} --conn-type {conn_type} --conn-host HOST",
    )
