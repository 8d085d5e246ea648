"""Checksums that can be combined: sum the parts of a file in any order, then combine the sums.

Both algorithms are computed in one pass over the bytes: crc32c (CRC-32/ISCSI, RFC 3720, appendix
B.4) and adler32 (RFC 1950, section 8.2).
"""

from __future__ import annotations

from typing import NamedTuple

from dray import _native

__all__ = ["Summer", "Sums", "checksum", "combine"]


class Sums(NamedTuple):
    """Both checksums of a sequence of bytes.

    :param crc32c: an unsigned 32-bit number.
    :param adler32: an unsigned 32-bit number.
    """

    crc32c: int
    adler32: int


def checksum(data: bytes | bytearray) -> Sums:
    """Return the checksums of bytes. Other threads can run during the computation.

    :param data: ``bytes`` are read in place. A ``bytearray`` is copied first, because another
        thread may change it.
    :raises TypeError: for any other type.
    """
    return Sums(*_native.checksum(data))


def combine(first: tuple[int, int], second: tuple[int, int], second_length: int) -> Sums:
    """Return the checksums of a sequence of bytes, from the checksums of its two parts.

    :param first: the checksums of the first part.
    :param second: the checksums of the second part.
    :param second_length: the number of bytes in the second part.
    :raises OverflowError: if a checksum is negative or exceeds 32 bits, or if ``second_length`` is
        negative or exceeds 64 bits.
    """
    return Sums(*_native.combine(first, second, second_length))


class Summer:
    """Computes the checksums of a stream of bytes. Only one thread at a time may use a summer."""

    __slots__ = ("_summer",)

    def __init__(self) -> None:
        """Start with no bytes."""
        self._summer = _native.Summer()

    def update(self, data: bytes | bytearray) -> None:
        """Add bytes. Other threads can run during the computation.

        :param data: as for :func:`checksum`.
        :raises TypeError: for any other type.
        """
        self._summer.update(data)

    @property
    def sums(self) -> Sums:
        """The checksums of all bytes added so far."""
        return Sums(*self._summer.sums())

    @property
    def length(self) -> int:
        """The number of bytes added so far, for :func:`combine`."""
        return self._summer.length
