"""Parse URLs to host, port and path, and escape names for URLs (docs/reference/urls.md)."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import quote, unquote_to_bytes, urlsplit

from dray.client._errors import usage

__all__ = ["DEFAULT_PORT", "Address", "escape", "parse_place", "parse_url", "unescape"]

DEFAULT_PORT = 4735
"""The port of an endpoint if its ``dray://`` URL has no port."""

_PORTS = {"dray": DEFAULT_PORT, "https": 443, "http": 80}
#: This pattern accepts any path. Only the endpoint checks paths, so that only one program
#: implements the grammar of paths.
_URL = re.compile(r"(dray|https|http)://([^/?#\s]*)(.*)", re.DOTALL)


#: Characters that a path of the API writes as ``%HH``: characters with a meaning in URLs, control
#: characters, and characters that end a line or change the direction of text.
_ESCAPED = re.compile(
    "[%?#\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]|[\udc80-\udcff]+"
)


def escape(name: bytes | str) -> str:
    """Escape one file name, or several with slashes between them, for URLs and API paths.

    :param name: bytes, or text from :func:`os.fsdecode`.
    :raises DrayUsageError: for a zero byte, which no name can contain.
    """
    text = name if isinstance(name, str) else name.decode("utf-8", "surrogateescape")
    if "\0" in text:
        raise usage("a name cannot contain a zero byte", "remove the zero byte")

    def spell(found: re.Match[str]) -> str:
        return "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8", "surrogateescape"))

    return _ESCAPED.sub(spell, text)


def unescape(text: str) -> bytes:
    """Return the bytes of a name or path from an endpoint, which :func:`os.fsdecode` decodes."""
    return unquote_to_bytes(text)


@dataclass(frozen=True, slots=True)
class Address:
    """The endpoint to which requests are sent.

    :param host: name or literal address, without brackets.
    :param port: TCP port.
    :param is_clear: true for plain HTTP, which is only permitted to this host itself.
    """

    host: str
    port: int
    is_clear: bool

    @property
    def base(self) -> str:
        """The URL to which paths of the API are appended."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.is_clear else 'https'}://{host}:{self.port}"


def parse_url(url: str) -> Address:
    """Parse the URL of an endpoint: ``dray://HOST[:PORT]``, ``https://...`` or ``http://...``.

    :raises DrayUsageError: for any other text. Plain HTTP is only permitted for loopback addresses,
        because the token is sent unencrypted.
    """
    address, path = _parse(url)
    if path not in ("", "/"):
        raise usage(
            f"the URL of an endpoint must not have a path, but this URL has the path {path!r}",
            "remove the path",
        )
    return address


def parse_place(url: str) -> tuple[Address, str]:
    """Parse ``dray://HOST[:PORT]/ROOT/PATH``. Return the endpoint and the unchanged path.

    :raises DrayUsageError: for any other text, or for a URL without a path.
    """
    address, path = _parse(url)
    if not path.startswith("/") or path == "/":
        raise usage(f"{url!r} names no file or folder", "write dray://HOST/ROOT/PATH")
    return address, path


def _parse(url: str) -> tuple[Address, str]:
    example = "write dray://HOST[:PORT]"
    match = _URL.fullmatch(url)
    if match is None:
        raise usage("the text is not a URL of an endpoint", example)
    scheme, authority, path = match.groups()
    if "@" in authority:
        # The message does not repeat the URL, which may contain a password.
        raise usage("the endpoint's URL contains a user or a password", "give a token instead")
    try:
        parts = urlsplit(f"//{authority}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise usage(f"{authority!r} is not a host and port", example) from error
    if not host:
        raise usage(f"{url!r} names no host", example)
    is_clear = scheme == "http"
    if is_clear and not _is_loopback(host):
        raise usage(
            f"the client would send the token to {url!r} without encryption",
            "write https:// or dray://; plain HTTP is for 127.0.0.1, ::1 and localhost",
        )
    return Address(host, _PORTS[scheme] if port is None else port, is_clear), path


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def segment(text: str) -> str:
    """Escape an id or a similar text, so that the text is one segment of a URL path.

    :raises DrayUsageError: if the text is empty, ``.`` or ``..``.
    """
    # A program on the network path that normalises URLs would remove a segment `.` or `..`.
    if text in ("", ".", ".."):
        raise usage(f"{text!r} is not a valid id", "give the id that a submission returned")
    return quote(text, safe="")
