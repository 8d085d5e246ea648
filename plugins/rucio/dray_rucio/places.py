"""The path of a Rucio file at an endpoint. Pure functions.

The attribute ``dray_url`` of an RSE, ``dray://HOST[:PORT]/ROOT[/FOLDER]``, replaces the prefix of
the RSE's protocols. The part of the PFN after the prefix is the path below the URL.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

__all__ = ["DEFAULT_PORT", "PROTOCOL_SCHEME", "NoPlaceError", "Site", "below", "site"]

DEFAULT_PORT = 4735
"""The port of an endpoint if its URL has no port."""
PROTOCOL_SCHEME = "dray"
"""Scheme of the RSE protocol :mod:`dray_rucio.protocol`."""

_SITE = re.compile(r"dray://(?P<authority>[^/?#\s@]+)(?P<folder>/[^\s]*)")
_PIN = re.compile(r"sha256:[0-9a-f]{64}")
_PFN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/]*(?P<path>/.*)", re.DOTALL)
#: Rucio's parameter for FTS in the URL of a source. It is not part of the name.
_COPY_MODE = re.compile(r"\?copy_mode=\w+$")


class NoPlaceError(ValueError):
    """The attributes of an RSE, or a PFN, give no valid path."""


@dataclass(frozen=True, slots=True)
class Site:
    """The endpoint of an RSE.

    :param authority: host and port.
    :param folder: API path without a slash at its end. In the path of a file, it replaces the
        prefix that the protocols of the RSE have in Rucio.
    :param pin: fingerprint of the endpoint's key, if it is pinned.
    """

    authority: str
    folder: str
    pin: str | None = None

    @property
    def host(self) -> str:
        """Rucio's external host.

        It contains the address and the fingerprint of the endpoint, and no secret.
        """
        return f"dray://{self.authority}" + (f"#{self.pin}" if self.pin else "")

    def path(self, name: str) -> str:
        """Return the API path of ``name``, which is a result of :func:`below`.

        A ``%`` in the name is escaped for the API.
        """
        return f"{self.folder}/{name.replace('%', '%25')}"

    def url(self, path: str) -> str:
        """Return the URL of an API path in the form that another endpoint can use."""
        return f"dray://{self.authority}{path}"


def site(rse: str, url: str, pin: str | None = None) -> Site:
    """Parse the attributes ``dray_url`` and ``dray_pin`` of an RSE.

    :raises NoPlaceError: if an attribute is invalid. The message names the RSE and the attribute.
    """
    match = _SITE.fullmatch(url)
    folder = "" if match is None else re.sub("/+", "/", match["folder"]).rstrip("/")
    if match is None or not folder:
        raise NoPlaceError(
            f"RSE {rse}: dray_url is {url!r}; write dray://HOST[:PORT]/ROOT[/FOLDER]"
        )
    if pin is not None and not _PIN.fullmatch(pin):
        raise NoPlaceError(
            f"RSE {rse}: dray_pin is {pin!r}; write sha256: and 64 hexadecimal digits"
        )
    authority = match["authority"].lower()
    try:
        parts = urlsplit(f"//{authority}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise NoPlaceError(f"RSE {rse}: dray_url is {url!r}: {error}") from error
    if not host:
        raise NoPlaceError(f"RSE {rse}: dray_url is {url!r}, which names no host")
    if port is None:
        authority = f"{authority.rstrip(':')}:{DEFAULT_PORT}"
    return Site(authority, folder, pin)


def below(rse: str, prefix: str, pfn: str) -> str:
    """Return the part of a PFN after the prefix of its protocol.

    :raises NoPlaceError: if the part is empty, or the PFN has another prefix.
    """
    match = _PFN.fullmatch(_COPY_MODE.sub("", pfn))
    # Protocols put doubled slashes in different places: `root://host//prefix//file`.
    path = re.sub("/+", "/", "" if match is None else match["path"])
    top = re.sub("/+", "/", f"/{prefix}/")
    name = path.removeprefix(top)
    if match is None or not path.startswith(top) or not name:
        raise NoPlaceError(f"RSE {rse}: {pfn} is not below its protocol's prefix {prefix!r}")
    return name
