"""Values in the bodies of an object log's records, and their checksums."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cache, lru_cache

ADLER = 65521


class BadRecordError(ValueError):
    """The body of a record is malformed."""


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


CRC_TABLE = _crc_table()


# A test reads many copies of a log that differ in one record.
@lru_cache(maxsize=1 << 14)
def crc32c(data: bytes) -> int:
    """Sum bytes by CRC-32/ISCSI."""
    value = 0xFFFFFFFF
    for byte in data:
        value = CRC_TABLE[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ 0xFFFFFFFF


def _apply(matrix: list[int], vector: int) -> int:
    total = 0
    for column in matrix:
        if vector & 1:
            total ^= column
        vector >>= 1
    return total


@cache
def _zeros_operator(power: int) -> list[int]:
    """Return the matrix that appends ``2 ** power`` zero bits to bytes with a known crc32c."""
    if power == 0:
        return [0x82F63B78] + [1 << shift for shift in range(31)]
    half = _zeros_operator(power - 1)
    return [_apply(half, column) for column in half]


def _crc_after_zeros(value: int, length: int) -> int:
    """Return the crc32c of bytes with the crc32c ``value``, followed by ``length`` zero bytes."""
    power = 3
    while length:
        if length & 1:
            value = _apply(_zeros_operator(power), value)
        length >>= 1
        power += 1
    return value


Sums = tuple[int, int]


def combine(first: Sums, second: Sums, second_length: int) -> Sums:
    """Return the sums of two joined parts from the sums of each part."""
    crc = _crc_after_zeros(first[0], second_length) ^ second[0]
    low1, high1, low2, high2 = (
        first[1] & 0xFFFF,
        first[1] >> 16,
        second[1] & 0xFFFF,
        second[1] >> 16,
    )
    low = (low1 + low2 - 1) % ADLER
    high = (high1 + high2 + second_length * (low1 - 1)) % ADLER
    return crc, high << 16 | low


@dataclass
class Body:
    """Read the values in a record's body one after another."""

    data: bytes
    at: int = 0
    has_sums: bool = True

    def take(self, count: int) -> bytes:
        """Take the next ``count`` bytes."""
        if count > len(self.data) - self.at:
            raise BadRecordError
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, form: str) -> int:
        """Take one little-endian number. ``form`` is its letter in the struct module."""
        return int(struct.unpack("<" + form, self.take(struct.calcsize("<" + form)))[0])

    def blob(self, most: int, least: int = 0) -> bytes:
        """Take a length, and that many bytes: at least ``least``, at most ``most``."""
        count = self.number("I")
        if not least <= count <= most:
            raise BadRecordError
        return self.take(count)

    def text(self, most: int) -> str:
        """Take a length, and that many bytes of UTF-8."""
        try:
            return self.blob(most).decode()
        except UnicodeDecodeError as error:
            raise BadRecordError from error

    def path(self) -> bytes:
        """Take a relative path."""
        path = self.blob(65536)
        if path and not all(map(is_name, path.split(b"/"))):
            raise BadRecordError
        return path

    def sums(self) -> Sums:
        """Take a crc32c and an adler32. In a record without sums, return those of no bytes."""
        if not self.has_sums:
            return 0, 1
        return self.number("I"), self.number("I")

    def end(self) -> None:
        """Fail unless all bytes were read."""
        if self.at != len(self.data):
            raise BadRecordError


def is_name(name: bytes) -> bool:
    """Return whether ``name`` may be a component of a path."""
    return (
        1 <= len(name) <= 255
        and b"\0" not in name
        and name not in (b".", b"..")
        and b"/" not in name
    )


def escape(raw: bytes) -> str:
    r"""Return bytes as text. A backslash becomes two, a control or non-UTF-8 byte \xHH."""
    text = ""
    for char in raw.decode("utf-8", "surrogateescape"):
        code = ord(char)
        if 0xDC80 <= code <= 0xDCFF:
            text += f"\\x{code - 0xDC00:02x}"
        elif char == "\\":
            text += "\\\\"
        elif code < 0x20 or 0x7F <= code < 0xA0:
            text += "".join(f"\\x{byte:02x}" for byte in char.encode())
        else:
            text += char
    return text
