"""TLS of the service: client certificates and their proxies (RFC 3820)."""

from __future__ import annotations

import re
import ssl
from typing import TYPE_CHECKING, Any, cast

from cryptography import x509
from cryptography.x509.oid import NameOID, ObjectIdentifier
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from cryptography.x509 import Certificate

    from dray_fts.settings import Settings

__all__ = ["CHAIN", "PeerProtocol", "context", "owner_of", "subject_of"]

CHAIN = "dray_fts.chain"
"""Key of the ASGI scope: the verified chain of the client's certificate, or an empty list."""

_PROXY_INFO = ObjectIdentifier("1.3.6.1.5.5.7.1.14")
_SEVERAL = re.compile(r"/[A-Za-z0-9.]+=")
#: Short names of attributes, as openssl and FTS write them.
_SHORT = {
    NameOID.DOMAIN_COMPONENT: "DC",
    NameOID.COUNTRY_NAME: "C",
    NameOID.STATE_OR_PROVINCE_NAME: "ST",
    NameOID.LOCALITY_NAME: "L",
    NameOID.ORGANIZATION_NAME: "O",
    NameOID.ORGANIZATIONAL_UNIT_NAME: "OU",
    NameOID.COMMON_NAME: "CN",
    NameOID.EMAIL_ADDRESS: "emailAddress",
    NameOID.USER_ID: "UID",
    NameOID.SERIAL_NUMBER: "serialNumber",
}


def context(settings: Settings) -> ssl.SSLContext:
    """Return the TLS context of the server.

    :raises OSError: if a file cannot be read.
    :raises ssl.SSLError: if a file is not a certificate, a key or an authority.
    """
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.load_cert_chain(settings.certificate, settings.key)
    if settings.client_ca is not None:
        # Optional, because a client may have a token instead.
        made.verify_mode = ssl.CERT_OPTIONAL
        made.verify_flags |= ssl.VERIFY_ALLOW_PROXY_CERTS
        for path in _files(settings.client_ca):
            made.load_verify_locations(path)
    return made


def _files(path: Path) -> Sequence[Path]:
    if not path.is_dir():
        return [path]
    return sorted(each for each in path.iterdir() if each.suffix in (".pem", ".crt"))


def owner_of(chain: Sequence[Certificate]) -> Certificate:
    """Return the certificate of the person: the first of a chain that is not a proxy.

    :raises ValueError: if all certificates are proxies.
    """
    for each in chain:
        if not _is_proxy(each):
            return each
    raise ValueError("all certificates of the chain are proxies")


def subject_of(certificate: Certificate) -> str:
    """Return the subject in the form of openssl, ``/DC=org/CN=alice``.

    :raises ValueError: if a part of the subject looks like several parts. Two subjects could
        otherwise have the same form.
    """
    parts = []
    for name in certificate.subject:
        short = _SHORT.get(name.oid, name.oid.dotted_string)
        value = name.value if isinstance(name.value, str) else name.value.hex()
        if _SEVERAL.search(value):
            raise ValueError(
                f"the {short} of its subject is {value!r}, which looks like several parts"
            )
        parts.append(f"/{short}={value}")
    return "".join(parts)


def _is_proxy(certificate: Certificate) -> bool:
    return any(extension.oid == _PROXY_INFO for extension in certificate.extensions)


class PeerProtocol(H11Protocol):
    """Adds the verified chain of the client to the scope of each request."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Read the chain when TLS is established."""
        super().connection_made(transport)
        chain = _chain(transport.get_extra_info("ssl_object"))
        inner = cast("Callable[..., Awaitable[None]]", self.app)

        async def app(scope: dict[str, Any], receive: object, send: object) -> None:
            scope[CHAIN] = chain
            await inner(scope, receive, send)

        self.app = cast("Any", app)


def _chain(tls: Any) -> list[Certificate]:  # noqa: ANN401 - ssl.SSLObject and its parts
    if tls is None:
        return []
    # Python 3.13 has this as a method of SSLObject, and returns DER.
    if hasattr(tls, "get_verified_chain"):
        found = [bytes(der) for der in tls.get_verified_chain()]
    else:
        # The encoding 2 is DER.
        found = [each.public_bytes(2) for each in tls._sslobj.get_verified_chain() or []]
    return [x509.load_der_x509_certificate(der) for der in found]
