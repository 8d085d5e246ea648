"""The forms of object logs: the mechanisms, and the methods that number completed objects.

docs/design/object-log.md specifies the forms in the section "Forms of the log".
"""

from __future__ import annotations

from typing import Any

from integration.log.values import BadRecordError, Body, Sums

METHODS = ("ranges", "char", "int", "enc", "binary", "bit8", "bit64")
WORD_BITS = {"bit8": 8, "bit64": 64}
USUAL: dict[str, Any] = {
    "form": "universal:ranges",
    "has_sums": True,
    "version": 2,
    "id": 0,
    "part": None,
    "boot_epoch": None,
}


def form(body: Body, epoch: int) -> dict[str, Any]:
    """Read the end of a Header, which names the form of the log."""
    mechanism, method, files = body.number("I"), body.number("I"), body.number("I")
    is_part, part, log_id = body.number("I"), body.number("I"), body.number("Q")
    boot_epoch = body.number("Q")
    is_version_4 = body.at < len(body.data)
    options = body.number("I") if is_version_4 else 0
    is_good = (
        method < len(METHODS)
        and boot_epoch <= epoch
        and options <= 3
        and is_version_4 == (options != 0)
        and (is_part == 1 or (is_part, part) == (0, 0))
        and (
            (mechanism == 1 and files == 1)
            or (mechanism == 2 and 1 <= files <= 65536)
            or (mechanism == 3 and files == 0 and is_part == 0)
        )
    )
    if not is_good:
        raise BadRecordError
    words = {1: "file", 2: "transaction" if files == 4 else f"transaction/{files}", 3: "universal"}
    name = f"{words[mechanism]}:{METHODS[method]}"
    if name == USUAL["form"] and not is_version_4:
        raise BadRecordError
    has_sums = not options & 1
    return {
        "form": name + ("" if has_sums else ":nosums") + (":async" if options & 2 else ""),
        "has_sums": has_sums,
        "version": 4 if is_version_4 else 3,
        "files_per_part": files if is_part == 0 else 0,
        "id": log_id,
        "part": part if is_part else None,
        "boot_epoch": boot_epoch,
    }


def _digits(data: bytes) -> list[int]:
    lines = data.split(b"\n")
    if lines.pop() != b"":
        raise BadRecordError
    numbers = []
    for line in lines:
        if not line.isdigit() or (line[:1] == b"0" and line != b"0") or len(line) > 20:
            raise BadRecordError
        numbers.append(int(line))
    return numbers


def _leb128(data: bytes) -> list[int]:
    numbers, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            if byte == 0 and shift > 7:
                raise BadRecordError
            numbers.append(value)
            value, shift = 0, 0
    if shift:
        raise BadRecordError
    return numbers


def _bits(data: bytes, word_bits: int) -> list[int]:
    first, array = int.from_bytes(data[:8], "little") * word_bits, data[8:]
    if len(data) < 8 or len(data) > 1048 or len(array) % (word_bits // 8):
        raise BadRecordError
    bits = int.from_bytes(array, "little")
    return [first + at for at in range(len(array) * 8) if bits >> at & 1]


def _integers(data: bytes, width: int) -> list[int]:
    if len(data) % width:
        raise BadRecordError
    return [int.from_bytes(data[at : at + width], "little") for at in range(0, len(data), width)]


def positions(body: Body) -> tuple[int, list[tuple[int, Sums]]]:
    """Read Positions: the file number, and the numbers of objects with their sums."""
    number, method, count = body.number("I"), body.number("I"), body.number("I")
    data = body.blob(8192 * 21)
    if not 1 <= method < len(METHODS) or not 1 <= count <= 8192:
        raise BadRecordError
    name = METHODS[method]
    if name == "char":
        numbers = _digits(data)
    elif name == "enc":
        numbers = _leb128(data)
    elif name in WORD_BITS:
        numbers = _bits(data, WORD_BITS[name])
    else:
        numbers = _integers(data, 8 if name == "int" else 4)
    if len(numbers) != count or any(one >= 1 << 64 for one in numbers):
        raise BadRecordError
    return number, [(one, body.sums()) for one in numbers]
