"""Trust in the endpoint: authorities of the system or of files, or a pinned key.

A pinned endpoint has a self-signed certificate, and Python's TLS cannot check a key alone. So the
check has two steps. First, the client fetches the certificate over a separate connection on which
it sends no request. If the SHA-256 of the public key differs from the pin, the client stops.
Second, the real connections trust exactly this certificate and no authority.

An attacker between the two hosts cannot break this check. In the handshake of the *real*
connection, the other end must prove that it has the private key of the trusted certificate. A
forged certificate has another key and does not match the pin. A copy of the genuine certificate is
useless without its private key. The token is sent only after this handshake.

The host name and the dates of the certificate are not checked. They have no meaning in a
self-signed certificate of an endpoint. The engine's sessions do not check them either.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dray.client._der import fingerprint
from dray.client._errors import make, usage
from dray.client._steps import Fault

if TYPE_CHECKING:
    from dray.client._urls import Address

__all__ = ["Trust"]

_PIN = re.compile(r"sha256:([0-9A-Fa-f]{64})")
#: X509_V_FLAG_NO_CHECK_TIME in OpenSSL's x509_vfy.h. The ssl module has no name for it.
_NO_CHECK_TIME = 0x200000

StrPath = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Trust:
    """The trusted keys and the client's certificate. Files are read at the first connection.

    :param ca: file or folder with trusted authorities (PEM). By default the system's authorities.
    :param certificate: client certificate with its chain (PEM). The file of a proxy certificate
        also contains the private key.
    :param key: private key of the certificate, if it is in a separate file.
    :param pin: fingerprint of the endpoint's key. The client then trusts only this key, and no
        authority.
    """

    ca: StrPath | None = None
    certificate: StrPath | None = None
    key: StrPath | None = None
    pin: str | None = None

    def __post_init__(self) -> None:
        """Check the arguments.

        :raises DrayUsageError: if they are invalid.
        """
        if self.pin is not None:
            if self.ca is not None:
                raise usage(
                    "pin and ca are both given",
                    "give either pin or ca: a pinned key needs no certificate authority",
                )
            if _PIN.fullmatch(self.pin) is None:
                raise usage(
                    f"{self.pin!r} is not a fingerprint", "write sha256: and 64 hexadecimal digits"
                )
        if self.key is not None and self.certificate is None:
            raise usage("key is given without certificate", "give both key and certificate")

    def context(self, address: Address, seconds: float) -> ssl.SSLContext | Fault:
        """Return the TLS context for connections to ``address``.

        With a pin, the client first connects once to fetch the certificate of the endpoint.

        :param seconds: time limit of the connection that fetches the certificate.
        :returns: the context. With a pin, a fault if no certificate was fetched or its key does not
            match.
        :raises DrayUsageError: if a file with an authority, a certificate or a key cannot be used.
        """
        if self.pin is None:
            context = self._by_authority()
        else:
            found = fetch_certificate(address, seconds)
            if isinstance(found, Fault):
                return found
            wrong = self._mismatch(address, found)
            if wrong is not None:
                return wrong
            context = _trusting(found)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.certificate is not None:
            try:
                context.load_cert_chain(self.certificate, self.key, password=_no_password)
            except (OSError, ValueError) as error:
                raise _unusable(self.certificate, error) from None
        return context

    def _by_authority(self) -> ssl.SSLContext:
        if self.ca is None:
            return ssl.create_default_context()
        try:
            if Path(self.ca).is_dir():
                return ssl.create_default_context(capath=os.fspath(self.ca))
            return ssl.create_default_context(cafile=os.fspath(self.ca))
        except OSError as error:
            raise _unusable(self.ca, error) from None

    def _mismatch(self, address: Address, certificate: bytes) -> Fault | None:
        pin = (self.pin or "").lower()
        try:
            actual = fingerprint(certificate)
        except ValueError:
            actual = "unreadable (no valid certificate)"
        if actual == pin:
            return None
        error = make(
            "unauthorized",
            "permanent",
            "network",
            f"trust {address.base}",
            f"the endpoint's key is {actual}, but {pin} is pinned",
            "compare this key with the key that the endpoint prints when it starts; if the "
            "endpoint has a new key, pin the new key",
        )
        return Fault("unreachable", "another key", was_sent=False, error=error)


def fetch_certificate(address: Address, seconds: float) -> bytes | Fault:
    """Fetch an endpoint's certificate (DER) without trusting it or sending a request."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    until = time.monotonic() + seconds
    try:
        with socket.create_connection((address.host, address.port), timeout=seconds) as raw:
            raw.settimeout(max(0.001, until - time.monotonic()))
            with context.wrap_socket(raw, server_hostname=address.host) as connection:
                found = connection.getpeercert(binary_form=True)
    except TimeoutError:
        return Fault(
            "timed_out", f"the TLS handshake did not end within {seconds:g} s", was_sent=False
        )
    except (OSError, ValueError) as error:
        return Fault("unreachable", _reason(error), was_sent=False)
    return found or Fault("unreachable", "the endpoint showed no certificate", was_sent=False)


def _trusting(certificate: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=certificate)
    # Partial chain: trust the certificate even if an unknown authority has signed it.
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags |= ssl.VerifyFlags(_NO_CHECK_TIME)
    return context


def _no_password() -> str:
    # OpenSSL would otherwise prompt on the terminal, and a daemon would hang.
    raise ValueError("the private key needs a password")


def _unusable(path: StrPath, error: Exception) -> Exception:
    return usage(
        f"{os.fspath(path)}: {_reason(error)}", "give a readable PEM file", "use the certificate"
    )


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
