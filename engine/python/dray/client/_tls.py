"""Trust: authorities of the system, of a file or folder, or one pinned key.

A pinned endpoint has a self-signed certificate, and Python's TLS cannot check the key alone. So the
check has two steps. First a bare connection, over which the client sends nothing, fetches the
certificate; if the SHA-256 of its public key differs from the pin, the client stops. Then the real
connections trust exactly that certificate, and no authority.

This is safe against an attacker in between. A certificate is public; in the handshake of the *real*
connection the other end must prove that it has the private key of the one trusted certificate, and
the pin confirms the key in it. A forged certificate has another key and does not match the pin; a
replayed genuine one does not help without the key. The token is sent only after such a handshake.

The host's name and the dates are not checked: in an endpoint's self-signed certificate they mean
nothing (the engine's sessions do the same).
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
#: X509_V_FLAG_NO_CHECK_TIME of OpenSSL's x509_vfy.h, which the ssl module has no name for
_NO_CHECK_TIME = 0x200000

StrPath = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Trust:
    """The trusted keys, and the client's certificate; files are read at the first connection.

    :param ca: a file or a folder of authorities (PEM); by default the system's.
    :param certificate: the client certificate with its chain (PEM); a proxy's file also holds the
        key.
    :param key: its private key, if it is in a separate file.
    :param pin: the endpoint's fingerprint, instead of authorities.
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
                raise usage("pin and ca are both given", "give one: a pin needs no authority")
            if _PIN.fullmatch(self.pin) is None:
                raise usage(
                    f"{self.pin!r} is no fingerprint", "write sha256: and 64 hexadecimal digits"
                )
        if self.key is not None and self.certificate is None:
            raise usage("key is given without certificate", "give both")

    def context(self, address: Address, seconds: float) -> ssl.SSLContext | Fault:
        """Make the TLS context of connections to ``address``; with a pin, over a first connection.

        :param seconds: for that connection.
        :raises DrayUsageError: if a file cannot be used.
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
            actual = "in no certificate that can be read"
        if actual == pin:
            return None
        error = make(
            "unauthorized",
            "permanent",
            "network",
            f"trust {address.base}",
            f"its key is {actual}, but {pin} is pinned",
            "compare with what that end prints when it starts; if it has a new key, pin that",
        )
        return Fault("unreachable", "another key", was_sent=False, error=error)


def fetch_certificate(address: Address, seconds: float) -> bytes | Fault:
    """Fetch an endpoint's certificate (DER), trusting nothing and sending nothing else."""
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
        return Fault("timed_out", f"no handshake in {seconds:g} s", was_sent=False)
    except (OSError, ValueError) as error:
        return Fault("unreachable", _reason(error), was_sent=False)
    return found or Fault("unreachable", "it showed no certificate", was_sent=False)


def _trusting(certificate: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=certificate)
    # Partial chain: trust it also when an unknown authority has signed it.
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags |= ssl.VerifyFlags(_NO_CHECK_TIME)
    return context


def _no_password() -> str:
    # Without this OpenSSL would prompt on the terminal, and a daemon would hang.
    raise ValueError("the key needs a password")


def _unusable(path: StrPath, error: Exception) -> Exception:
    return usage(
        f"{os.fspath(path)}: {_reason(error)}", "name a readable PEM file", "use the certificate"
    )


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
