"""URLs of collections: ``globus://COLLECTION/PATH``. Pure.

Names are escaped as in ``dray://`` URLs: ``%HH`` is a byte, and every other character is itself.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass

from dray.client import escape, unescape
from dray_globus.errors import usage

__all__ = ["SCHEME", "GlobusPlace", "is_globus", "parse"]

SCHEME = "globus://"
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_FORM = "write globus://COLLECTION/PATH, where COLLECTION is the UUID of a collection"


@dataclass(frozen=True, slots=True)
class GlobusPlace:
    """A file or folder of a collection.

    :param collection: UUID of the collection.
    :param path: path in the collection, unescaped. A slash at its end names a folder.
    """

    collection: str
    path: str

    @property
    def url(self) -> str:
        """The URL of the place."""
        return f"{SCHEME}{self.collection}{escape(self.path)}"


def is_globus(url: str) -> bool:
    """Return true if a text is a URL of a collection."""
    return url[: len(SCHEME)].lower() == SCHEME


def parse(url: str) -> GlobusPlace:
    """Parse a URL of a collection.

    :raises DrayUsageError: if the URL is invalid. The message has the URL and the reason.
    """
    collection, slash, rest = url[len(SCHEME) :].partition("/")
    if not is_globus(url) or not slash:
        raise _invalid(url, "the text is not a URL of a collection", _FORM)
    try:
        id = str(uuid.UUID(collection))
    except ValueError:
        id = ""
    if id != collection.lower():
        raise _invalid(url, f"{collection!r} is not the UUID of a collection", _FORM)
    if "?" in rest or "#" in rest:
        raise _invalid(url, "the path contains ? or #", "write %3F or %23")
    if _BAD_ESCAPE.search(rest):
        raise _invalid(url, "a % is not followed by two hexadecimal digits", "write %25")
    try:
        path = unescape(rest).decode()
    except UnicodeDecodeError:
        raise _invalid(
            url, "the path is not UTF-8", "rename the file: the Transfer API accepts only UTF-8"
        ) from None
    _check(url, rest, path)
    return GlobusPlace(id, f"/{path}")


def _check(url: str, rest: str, path: str) -> None:
    if re.search("%2f|%00", rest, re.IGNORECASE):
        raise _invalid(url, "a name contains a slash or a zero byte", "correct the path")
    names = path.removesuffix("/").split("/")
    if any(name in (".", "..") for name in names) or "//" in f"/{path}":
        raise _invalid(
            url,
            "the path contains '.', '..' or two slashes in a row",
            "write the path without them",
        )


def _invalid(url: str, cause: str, remedy: str) -> Exception:
    return usage(f"use {url}", cause, remedy)
