"""Checks JSON against the schemas of an OpenAPI document, by the keywords that dray's uses."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["mistakes"]

Json: TypeAlias = Any

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
}
#: Keywords that do not affect the validity of a value.
_SILENT = {
    *("description", "default", "example", "examples", "format", "title", "$schema"),
    *("writeOnly", "readOnly"),
}
_KNOWN = {
    *_SILENT,
    *("$ref", "type", "enum", "const", "oneOf", "anyOf", "allOf", "pattern", "items"),
    *("minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems", "properties"),
    *("required", "additionalProperties", "propertyNames"),
}


def mistakes(value: Json, schema: Json, document: Mapping[str, Json]) -> list[str]:
    """Return where a value violates the schema.

    :raises NotImplementedError: for an unknown keyword of the schema. Otherwise invalid values
        would pass.
    """
    return list(_check(value, schema, document, ""))


def _check(value: Json, schema: Json, document: Mapping[str, Json], place: str) -> Iterator[str]:
    if isinstance(schema, bool):
        if not schema:
            yield f"{place}: nothing is allowed here"
        return
    unknown = {name for name in schema.keys() - _KNOWN if not name.startswith("x-")}
    if unknown:
        raise NotImplementedError(f"{place}: {', '.join(sorted(unknown))}")
    if "$ref" in schema:
        target: Json = document
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        yield from _check(value, target, document, place)
    for each in schema.get("allOf", ()):
        yield from _check(value, each, document, place)
    for word in ("oneOf", "anyOf"):
        choices = schema.get(word)
        if choices is not None:
            found = [list(_check(value, each, document, place)) for each in choices]
            if all(found):
                yield f"{place}: fits none: {min(found, key=len)}"
    if not _is_of_type(value, schema.get("type")):
        yield f"{place}: {value!r} is not {schema['type']}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{place}: {value!r} is none of {schema['enum']}"
    if "const" in schema and value != schema["const"]:
        yield f"{place}: {value!r} is not {schema['const']!r}"
    yield from _check_bounds(value, schema, place)
    if isinstance(value, dict):
        yield from _check_object(value, schema, document, place)
    if isinstance(value, list) and "items" in schema:
        for index, each in enumerate(value):
            yield from _check(each, schema["items"], document, f"{place}[{index}]")


def _is_of_type(value: Json, wanted: Json) -> bool:
    if wanted is None:
        return True
    for name in [wanted] if isinstance(wanted, str) else wanted:
        is_number = name in ("integer", "number")
        if isinstance(value, _TYPES[name]) and not (is_number and isinstance(value, bool)):
            return True
    return False


def _check_bounds(value: Json, schema: Json, place: str) -> Iterator[str]:
    if isinstance(value, str):
        if "pattern" in schema and re.search(schema["pattern"], value) is None:
            yield f"{place}: {value!r} is not like {schema['pattern']}"
        size: float | None = len(value)
        least, most = schema.get("minLength"), schema.get("maxLength")
    elif isinstance(value, list):
        size, least, most = len(value), schema.get("minItems"), schema.get("maxItems")
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        size, least, most = value, schema.get("minimum"), schema.get("maximum")
    else:
        return
    if least is not None and size < least:
        yield f"{place}: {size} is less than {least}"
    if most is not None and size > most:
        yield f"{place}: {size} is more than {most}"


def _check_object(
    value: dict[str, Json], schema: Json, document: Mapping[str, Json], place: str
) -> Iterator[str]:
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{place}.{name}: is missing"
    for name, each in value.items():
        inner = properties.get(name, schema.get("additionalProperties", True))
        if "propertyNames" in schema:
            yield from _check(name, schema["propertyNames"], document, f"{place}.{name} (name)")
        yield from _check(each, inner, document, f"{place}.{name}")
