"""Finds the public key in an X.509 certificate (RFC 5280, section 4.1).

Only the DER on the way to SubjectPublicKeyInfo is parsed: tags and lengths. Reads never go beyond
the given bytes.
"""

from __future__ import annotations

import hashlib

__all__ = ["fingerprint", "public_key"]

_SEQUENCE = 0x30
_INTEGER = 0x02
_VERSION = 0xA0


def fingerprint(certificate: bytes) -> str:
    """Return ``sha256:`` and the digest of the certificate's SubjectPublicKeyInfo.

    :raises ValueError: if the bytes are not a certificate.
    """
    return f"sha256:{hashlib.sha256(public_key(certificate)).hexdigest()}"


def public_key(certificate: bytes) -> bytes:
    """Return the SubjectPublicKeyInfo of a DER certificate, including its header.

    :raises ValueError: if the bytes are not a certificate.
    """
    start, end, after = _element(certificate, 0, len(certificate), _SEQUENCE)
    if after != len(certificate):
        raise ValueError("the data has bytes after the certificate")
    at, end, _ = _element(certificate, start, end, _SEQUENCE)
    if at < end and certificate[at] == _VERSION:
        at = _element(certificate, at, end, _VERSION)[2]
    at = _element(certificate, at, end, _INTEGER)[2]
    # Skip signature algorithm, issuer, validity and subject.
    for _ in range(4):
        at = _element(certificate, at, end, _SEQUENCE)[2]
    return certificate[at : _element(certificate, at, end, _SEQUENCE)[2]]


def _element(data: bytes, at: int, end: int, tag: int) -> tuple[int, int, int]:
    """Read a header. Return start and end of the content, and the start of the next element."""
    if at + 2 > end or data[at] != tag:
        raise ValueError("the data is not a DER certificate")
    length, start = data[at + 1], at + 2
    if length >= 0x80:
        count = length & 0x7F
        # 0x80 is the indefinite form, which is not valid DER. Four bytes are enough for any real
        # length.
        if not 1 <= count <= 4 or start + count > end:
            raise ValueError("the data is not a DER certificate")
        length, start = int.from_bytes(data[start : start + count], "big"), start + count
        if length < 0x80 or length >> (8 * (count - 1)) == 0:
            raise ValueError("not a DER certificate: a length is not in its shortest form")
    if start + length > end:
        raise ValueError("not a DER certificate: the data is cut off")
    return start, start + length, start + length
