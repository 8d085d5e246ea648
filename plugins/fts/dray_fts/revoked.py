"""Certificate revocation lists (CRLs): refuses revoked client certificates.

The service reads the lists itself. OpenSSL would refuse every certificate of an authority without a
list, and every proxy, and it would not read a changed list again.
"""

from __future__ import annotations

import itertools
import logging
import re
import threading
import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from cryptography import x509

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cryptography.x509 import Certificate, CertificateRevocationList

__all__ = ["Revocations", "RevokedError"]

CHECK_SECONDS = 5.0
"""Time between two looks at the files."""
_NAME = re.compile(r".*\.(pem|crl|r\d+)")
_PEM = b"-----BEGIN X509 CRL-----"
_LOG = logging.getLogger(__name__)


class RevokedError(ValueError):
    """A certificate is revoked, or the list of its authority cannot be trusted."""


class Revocations:
    """The revocation lists in a file or a folder. Changed files are read again."""

    def __init__(self, path: Path | None) -> None:
        """Read the revocation lists.

        :param path: a file, or a folder with ``.pem``, ``.crl`` and ``.r0`` files. ``None``: no
            certificate is revoked.
        :raises OSError: if a file cannot be read.
        :raises ValueError: if a file is not a revocation list.
        """
        self._path = path
        self._lock = threading.Lock()
        self._lists: dict[Path, tuple[tuple[int, int, int], CertificateRevocationList]] = {}
        self._looked = time.monotonic()
        for each in self._files():
            self._read(each)

    def check(self, chain: Sequence[Certificate]) -> None:
        """Check a chain that OpenSSL has verified, from the client's certificate to the authority.

        :raises RevokedError: if a certificate is revoked, or if a revocation list of the
            certificate's authority has expired or has a wrong signature.
        """
        if self._path is None:
            return
        with self._lock:
            self._look()
            lists = {path: entry[1] for path, entry in self._lists.items()}
        for certificate, issuer in itertools.pairwise(chain):
            for path, each in lists.items():
                if each.issuer == certificate.issuer:
                    _check(certificate, issuer, each, path)

    def _look(self) -> None:
        """Read changed files. A file that cannot be read keeps its earlier list."""
        now = time.monotonic()
        if now - self._looked < CHECK_SECONDS:
            return
        self._looked = now
        try:
            files = self._files()
        except OSError as error:
            _LOG.error("cannot list the revocation lists in %s: %s", self._path, error)
            return
        for path in self._lists.keys() - set(files):
            del self._lists[path]
        for path in files:
            try:
                self._read(path)
            except (OSError, ValueError) as error:
                _LOG.error("cannot read a revocation list, so the earlier list applies: %s", error)

    def _files(self) -> list[Path]:
        if self._path is None:
            return []
        if not self._path.is_dir():
            return [self._path]
        return sorted(each for each in self._path.iterdir() if _NAME.fullmatch(each.name))

    def _read(self, path: Path) -> None:
        state = path.stat()
        stamp = state.st_ino, state.st_size, state.st_mtime_ns
        if path in self._lists and self._lists[path][0] == stamp:
            return
        data = path.read_bytes()
        if _PEM not in data and path.suffix == ".pem":
            # Folders of authorities also have the certificates of the authorities.
            return
        load = x509.load_pem_x509_crl if _PEM in data else x509.load_der_x509_crl
        try:
            self._lists[path] = stamp, load(data)
        except ValueError as error:
            raise ValueError(f"{path} is not a revocation list: {error}") from error


def _check(
    certificate: Certificate, issuer: Certificate, each: CertificateRevocationList, path: Path
) -> None:
    subject = certificate.subject.rfc4514_string()
    key = issuer.public_key()
    if not each.is_signature_valid(key):  # type: ignore[arg-type]
        raise RevokedError(
            f"the revocation list {path} is not signed by the issuer of {subject}; ask the "
            "administrator of the service to replace it"
        )
    until = _until(each)
    if until is not None and until < datetime.now(timezone.utc):
        raise RevokedError(
            f"the revocation list {path} expired at {until:%Y-%m-%dT%H:%M:%SZ}; ask the "
            "administrator of the service to renew it"
        )
    if each.get_revoked_certificate_by_serial_number(certificate.serial_number) is not None:
        raise RevokedError(
            f"the certificate {subject} is revoked by the list {path}; use another certificate"
        )


def _until(each: CertificateRevocationList) -> datetime | None:
    # The attribute with a time zone is new in cryptography 42.
    if hasattr(each, "next_update_utc"):
        return each.next_update_utc
    until = each.next_update
    return None if until is None else until.replace(tzinfo=timezone.utc)
