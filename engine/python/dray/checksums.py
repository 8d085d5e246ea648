"""Checksums that combine: sum the parts of a file in any order, then combine the sums.

Both algorithms are computed in one pass over the bytes: crc32c (CRC-32/ISCSI, RFC 3720, appendix
B.4) and adler32 (RFC 1950, section 8.2).
"""

from __future__ import annotations

from typing import NamedTuple

from dray import _native

__all__ = ["Summer", "Sums", "checksum", "combine"]


class Sums(NamedTuple):
    """Both checksums of one run of bytes.

    :param crc32c: as an unsigned 32-bit number.
    :param adler32: as an unsigned 32-bit number.
    """

    crc32c: int
    adler32: int


def checksum(data: bytes | bytearray) -> Sums:
    """Sum bytes; other threads run meanwhile.

    :param data: ``bytes`` are read in place; a ``bytearray`` is copied first, because it may
        change.
    :raises TypeError: for anything else.
    """
    return Sums(*_native.checksum(data))


def combine(first: tuple[int, int], second: tuple[int, int], second_length: int) -> Sums:
    """Return the sums of two consecutive runs of bytes, from the sums of each.

    :param first: sums of the first bytes.
    :param second: sums of the bytes after them.
    :param second_length: number of the second bytes.
    :raises OverflowError: if a number is negative or does not fit (sums: 32 bits, length: 64 bits).
    """
    return Sums(*_native.combine(first, second, second_length))


class Summer:
    """Sums a stream of bytes. One thread at a time may feed it."""

    __slots__ = ("_summer",)

    def __init__(self) -> None:
        """Start empty."""
        self._summer = _native.Summer()

    def update(self, data: bytes | bytearray) -> None:
        """Add bytes; other threads run meanwhile.

        :param data: as for :func:`checksum`.
        :raises TypeError: for anything else.
        """
        self._summer.update(data)

    @property
    def sums(self) -> Sums:
        """The sums of all bytes so far."""
        return Sums(*self._summer.sums())

    @property
    def length(self) -> int:
        """Number of bytes so far, for :func:`combine`."""
        return self._summer.length
