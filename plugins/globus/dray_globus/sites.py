"""The site map: the collections that export the roots of endpoints of dray.

Globus moves data only between collections. So a transfer between a collection and an endpoint of
dray uses a second collection, which exports the folder of the endpoint's root. The site map is a
TOML file::

    [[site]]
    root = "dray://dtn1.example.org/data"
    collection = "6c54cade-bde5-45c1-bdea-f4bd71dba2cc"
    path = "/export/data"
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dray.client import unescape
from dray.errors import DrayUsageError
from dray_globus import urls
from dray_globus.errors import usage

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Site", "SiteMap", "read"]

DEFAULT_PORT = 4735
_ROOT = re.compile(r"dray://(?P<authority>[^/?#\s@]+)(?P<path>/[^?#]*)", re.DOTALL)
_KEYS = frozenset({"root", "collection", "path"})


@dataclass(frozen=True, slots=True)
class Site:
    """A folder of an endpoint, and the same folder in a collection.

    :param authority: host and port of the endpoint.
    :param root: path at the endpoint, with slashes at both ends.
    :param place: the same folder in the collection, with a slash at the end.
    """

    authority: str
    root: str
    place: urls.GlobusPlace


@dataclass(frozen=True, slots=True)
class SiteMap:
    """All entries of a site map.

    :param sites: entries, those with the longest paths first.
    :param origin: the file, for messages.
    """

    sites: tuple[Site, ...] = ()
    origin: str = ""

    def place(self, url: str) -> urls.GlobusPlace:
        """Return the place of a ``dray://`` or ``globus://`` URL in a collection.

        :raises DrayUsageError: if the URL is invalid, or if no entry contains it.
        """
        if urls.is_globus(url):
            return urls.parse(url)
        match = _ROOT.fullmatch(url)
        if match is None:
            raise usage(
                f"use {url}",
                "Globus moves only globus:// URLs, and dray:// URLs of the site map",
                "write globus://COLLECTION/PATH or dray://HOST/ROOT/PATH",
            )
        authority, path = _authority(match["authority"]), match["path"]
        for site in self.sites:
            if site.authority == authority and f"{path}/".startswith(site.root):
                below = path[len(site.root) :]
                # An escaped name is parsed again, so that one set of rules applies.
                return urls.parse(site.place.url + below)
        raise usage(
            f"use {url}",
            "no collection is known that exports this folder"
            + (f" ({self.origin} has no entry for it)" if self.origin else ""),
            "add a [[site]] with root, collection and path to the site map (DRAY_GLOBUS_SITES), "
            "or use two dray:// URLs without Globus",
        )


def read(path: Path | None) -> SiteMap:
    """Read a site map. Without a path, the map is empty.

    :raises DrayUsageError: if the file cannot be read or is invalid. The message names the entry.
    """
    if path is None:
        return SiteMap()
    operation = f"read the site map {path}"
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise usage(operation, str(error.strerror), "check DRAY_GLOBUS_SITES") from None
    except ValueError as error:
        raise usage(operation, f"the file is not TOML: {error}", "correct the file") from None
    unknown = sorted(set(found) - {"site"})
    entries = found.get("site", [])
    if unknown or not isinstance(entries, list):
        raise usage(operation, f"unknown keys: {', '.join(unknown) or 'site'}", "write [[site]]")
    sites = [_site(operation, number, entry) for number, entry in enumerate(entries, 1)]
    return SiteMap(tuple(sorted(sites, key=lambda site: -len(site.root))), str(path))


def _site(operation: str, number: int, entry: Any) -> Site:  # noqa: ANN401 - parsed TOML
    remedy = 'write root = "dray://HOST/ROOT", collection = "UUID", path = "/FOLDER"'
    about = f"entry {number}"
    if not isinstance(entry, dict) or set(entry) != _KEYS:
        raise usage(
            operation, f"{about} must have exactly the keys root, collection and path", remedy
        )
    if not all(isinstance(value, str) for value in entry.values()):
        raise usage(operation, f"{about} has a value that is not a text", remedy)
    match = _ROOT.fullmatch(entry["root"])
    if match is None or not match["path"].strip("/"):
        raise usage(operation, f"{about}: root is {entry['root']!r}", remedy)
    path = str(entry["path"])
    try:
        place = urls.parse(urls.GlobusPlace(entry["collection"], f"{path.rstrip('/')}/").url)
        unescape(match["path"])
    except (DrayUsageError, ValueError) as error:
        raise usage(operation, f"{about}: {error}", remedy) from None
    return Site(_authority(match["authority"]), f"{match['path'].rstrip('/')}/", place)


def _authority(text: str) -> str:
    lower = text.lower()
    return lower if re.search(r":\d+$", lower) else f"{lower}:{DEFAULT_PORT}"
