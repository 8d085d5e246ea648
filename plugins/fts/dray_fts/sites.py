"""The site map: the place at an endpoint for each URL of a job. Pure functions.

A prefix of URLs belongs to a folder of an endpoint. The longest prefix of a URL wins. The part of
the URL after the prefix is the path below the folder.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["NoPlaceError", "Place", "Prefix", "SiteMap", "storage_of"]

#: Ports that a URL may omit.
_PORTS = {
    "davs": 443,
    "https": 443,
    "dav": 80,
    "http": 80,
    "root": 1094,
    "roots": 1094,
    "gsiftp": 2811,
    "srm": 8443,
    "dray": 4735,
}
#: Schemes whose paths have `%HH` escapes. In all other URLs a `%` stands for itself.
_ESCAPED = ("davs", "https", "dav", "http", "dray")
#: Rucio's parameter for FTS in the URL of a source. It is not part of the name.
_COPY_MODE = re.compile(r"\?copy_mode=\w+$")
_PREFIXES_SHOWN_MAX = 20


class NoPlaceError(ValueError):
    """A URL of a job is malformed, or no prefix of the site map covers it."""


@dataclass(frozen=True, slots=True)
class Place:
    """A file at an endpoint: the name of the endpoint, and an API path.

    :param is_tape: true if the file is in a tier of the endpoint.
    """

    endpoint: str
    path: str
    is_tape: bool = False


@dataclass(frozen=True, slots=True)
class Prefix:
    """An entry of the site map.

    :param url: prefix of URLs.
    :param endpoint: name of the endpoint.
    :param path: API path that replaces the prefix, ``/ROOT[/FOLDER]``.
    :param is_tape: true if ``path`` is in the slow root or in the fast root of a tier.
    """

    url: str
    endpoint: str
    path: str
    is_tape: bool = False


class SiteMap:
    """Finds the places of URLs."""

    def __init__(self, prefixes: Sequence[Prefix]) -> None:
        """Sort the prefixes, the longest first.

        :raises NoPlaceError: if a prefix is malformed, or if two prefixes are equal.
        """
        self._shown = [prefix.url for prefix in prefixes]
        self._entries: dict[str, Prefix] = {}
        for prefix in prefixes:
            key = _normal(prefix.url)[0].rstrip("/")
            if key in self._entries:
                raise NoPlaceError(f"the prefix {prefix.url} is in the site map twice")
            self._entries[key] = prefix
        self._keys = sorted(self._entries, key=len, reverse=True)

    def place(self, url: str) -> Place:
        """Return the place of a URL.

        :raises NoPlaceError: if the URL is malformed, or if no prefix covers the URL. The message
            lists the known prefixes.
        """
        text, is_escaped = _normal(url)
        for key in self._keys:
            if text.startswith(f"{key}/"):
                name = text[len(key) + 1 :]
                if not name:
                    raise NoPlaceError(f"{url} is the folder of a prefix; write the URL of a file")
                if not is_escaped:
                    name = name.replace("%", "%25")
                name = name.replace("?", "%3F").replace("#", "%23")
                entry = self._entries[key]
                path = f"{entry.path.rstrip('/')}/{name}"
                return Place(entry.endpoint, path, entry.is_tape)
        known = ", ".join(self._shown[:_PREFIXES_SHOWN_MAX]) or "none"
        raise NoPlaceError(f"no prefix of the site map covers {url}; known prefixes: {known}")


def storage_of(url: str) -> str:
    """Return the storage element of a URL as FTS writes it: scheme and host."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}"


def _normal(url: str) -> tuple[str, bool]:
    """Return a URL in the form that is compared, and whether its path has ``%HH`` escapes."""
    match = re.fullmatch(
        r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)(/[^\0]*)?", _COPY_MODE.sub("", url), re.DOTALL
    )
    if match is None:
        raise NoPlaceError(f"{url!r} is not a URL; write SCHEME://HOST/PATH")
    scheme, authority, path = match[1].lower(), match[2], match[3] or "/"
    if "@" in authority:
        raise NoPlaceError("a URL of the job contains a user or a password; remove it")
    try:
        parts = urlsplit(f"//{authority}")
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError as error:
        raise NoPlaceError(f"{url!r} is not a URL: {error}") from error
    if scheme in _ESCAPED and ("?" in path or "#" in path):
        raise NoPlaceError(f"{url} has a query or a fragment; remove it")
    # Clients write doubled slashes in different places: `root://host//path//file`.
    path = re.sub("/+", "/", path)
    if ".." in path.split("/") or "." in path.split("/"):
        raise NoPlaceError(f"{url} has the name `.` or `..` in its path; write the full path")
    port = None if port == _PORTS.get(scheme) else port
    return f"{scheme}://{host}{'' if port is None else f':{port}'}{path}", scheme in _ESCAPED
