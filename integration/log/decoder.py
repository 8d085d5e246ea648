"""Read object logs and leases by the specification docs/design/object-log.md.

The decoder shares no code with the engine. A difference between their results shows a deviation
from the specification. ``python decoder.py FILE...`` prints the contents of each file as JSON.
"""

from __future__ import annotations

import contextlib
import json
import re
import struct
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MAGIC = b"DRAYLOG\n"
LEASE_MAGIC = b"DRAYLEAS"
VERSIONS = range(1, 3)
BODY_BYTES_MAX = 1 << 20
HEADER, BEGIN, OBJECTS, RANGE, END, TENURE, CHECKPOINT, COMMIT, SYNCED, DOUBTFUL = range(1, 11)
HARMLESS = {BEGIN, OBJECTS, RANGE, CHECKPOINT, COMMIT, SYNCED, DOUBTFUL}
ADLER = 65521


class BadRecordError(ValueError):
    """The body of a record is malformed."""


class LogError(ValueError):
    """The log cannot be read at all. ``kind`` is the name of the error in the engine."""

    def __init__(self, kind: str) -> None:
        """Store the kind."""
        super().__init__(kind)
        self.kind = kind


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


CRC_TABLE = _crc_table()


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


def _crc_after_zeros(value: int, length: int) -> int:
    """Return the crc32c of bytes with the crc32c ``value``, followed by ``length`` zero bytes."""
    bit = [0x82F63B78] + [1 << shift for shift in range(31)]
    operator = bit
    for _ in range(3):
        operator = [_apply(operator, column) for column in operator]
    while length:
        if length & 1:
            value = _apply(operator, value)
        operator = [_apply(operator, column) for column in operator]
        length >>= 1
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
        """Take a crc32c and an adler32."""
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


def tenure(body: Body) -> dict[str, Any]:
    """Read a Tenure record, or the tenure in a Header."""
    epoch, durability = body.number("Q"), body.number("I")
    if durability > 2:
        raise BadRecordError
    boot_id, transfer, holder = body.blob(64, 16), body.text(64), body.text(512)
    if not re.fullmatch(r"[A-Za-z0-9._:-]+", transfer):
        raise BadRecordError
    return {
        "epoch": epoch,
        "holder": holder,
        "transfer": transfer,
        "boot_id": boot_id.hex(),
        "durability": ("none", "file", "object")[durability],
    }


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


def header(body: Body) -> dict[str, Any]:
    """Read a Header."""
    nonce, next_file = body.number("Q"), body.number("I")
    software, owner, count = body.text(512), body.blob(1024), body.number("I")
    if count > 1024:
        raise BadRecordError
    claims = [escape(body.path()) for _ in range(count)]
    return {
        "claims": [claim or "." for claim in claims],
        "owner": owner.hex(),
        "nonce": nonce,
        "software": software,
        "next_file": next_file,
        "tenure": tenure(body),
    }


@dataclass
class File:
    """An unfinished file. ``runs`` maps the start of each range to its end and sums."""

    number: int
    path: bytes
    facts: dict[str, Any]
    runs: dict[int, tuple[int, Sums]] = field(default_factory=dict)
    is_weak: bool = False
    is_doubtful: bool = False
    partial_place: bytes = b""

    @property
    def object_count(self) -> int:
        """The number of objects of the complete file."""
        return int(-(-self.facts["size"] // self.facts["object_bytes"]))

    def add(self, start: int, end: int, sums: Sums) -> bool:
        """Add a range, and join it to adjacent ranges. Return false if it overlaps a range."""
        if any(
            start < run_end and run_start < end for run_start, (run_end, _) in self.runs.items()
        ):
            return False
        before = next((at for at, (run_end, _) in self.runs.items() if run_end == start), None)
        if before is not None:
            start, sums = before, combine(self.runs.pop(before)[1], sums, end - start)
        if end in self.runs:
            after_end, after = self.runs.pop(end)
            sums, end = combine(sums, after, after_end - end), after_end
        self.runs[start] = (end, sums)
        return True

    def describe(self) -> dict[str, Any]:
        """Return all fields of the file, for output as JSON."""
        done = [[at, end - at, *sums] for at, (end, sums) in sorted(self.runs.items())]
        facts = {
            "path": escape(self.path),
            "number": self.number,
            "is_weak": self.is_weak,
            "is_doubtful": self.is_doubtful,
            "done": done,
        }
        return facts | self.facts


def begin(body: Body) -> File:
    """Read a FileBegin."""
    number, object_bytes, size = body.number("I"), body.number("Q"), body.number("Q")
    algorithm, value = body.number("I"), body.number("I")
    seconds, nanoseconds, precision = body.number("q"), body.number("I"), body.number("I")
    identity, path, name = body.blob(4096), body.path(), body.blob(255)
    device, inode, born = body.number("Q"), body.number("Q"), body.number("Q")
    is_good = object_bytes and algorithm <= 2 and nanoseconds < 10**9 and path and is_name(name)
    if not is_good or (algorithm == 0 and value):
        raise BadRecordError
    facts = {
        "size": size,
        "demanded": (None, f"crc32c:{value:08x}", f"adler32:{value:08x}")[algorithm],
        "modified": [seconds, nanoseconds],
        "precision_nanoseconds": precision,
        "identity": identity.hex(),
        "object_bytes": object_bytes,
        "partial": {"name": escape(name), "device": device, "inode": inode, "born": born},
    }
    folder, slash, _ = path.rpartition(b"/")
    return File(number, path, facts, partial_place=folder + slash + name)


def objects(body: Body, *, is_checkpoint: bool) -> tuple[int, int, list[Sums | None]]:
    """Read Objects or a Checkpoint: file number, first object, and sums of each object or None."""
    number, count, first = body.number("I"), body.number("I"), body.number("Q")
    if not 1 <= count <= 8192:
        raise BadRecordError
    if not is_checkpoint:
        return number, first, [body.sums() for _ in range(count)]
    bits = int.from_bytes(body.take((count + 7) // 8), "little")
    if bits >> count:
        raise BadRecordError
    return number, first, [body.sums() if bits >> index & 1 else None for index in range(count)]


def parse(kind: int, data: bytes) -> Any:  # noqa: ANN401 - one shape per type
    """Read the body of a record of type ``kind``."""
    body = Body(data)
    value: Any
    if kind == HEADER:
        value = header(body)
    elif kind == BEGIN:
        value = begin(body)
    elif kind in (OBJECTS, CHECKPOINT):
        value = objects(body, is_checkpoint=kind == CHECKPOINT)
    elif kind == RANGE:
        number, _, offset, length = (
            body.number("I"),
            body.number("I"),
            body.number("Q"),
            body.number("Q"),
        )
        if offset + length >= 1 << 64:
            raise BadRecordError
        value = number, offset, length, body.sums()
    elif kind == END:
        value = body.number("I")
        if body.number("I") not in (1, 2):
            raise BadRecordError
    elif kind == TENURE:
        value = tenure(body)
    elif kind == COMMIT:
        value = body.number("Q")
    elif kind in (SYNCED, DOUBTFUL):
        value = body.number("I")
        body.number("I")
    else:
        raise BadRecordError
    body.end()
    return value


@dataclass
class Step:
    """A record, or a lost place. ``kind`` is None if the type of the lost record is unknown."""

    offset: int
    length: int
    kind: int | None
    is_weak: bool = False
    value: Any = None
    is_lost: bool = True


def read_step(data: bytes, at: int, nonce: int) -> Step | None:
    """Read the record at an offset. Return None if no valid record head is there."""
    if at + 16 > len(data):
        return None
    length, kind, flags, _, body_crc, head_crc = struct.unpack_from("<IBBHII", data, at)
    stride = (16 + length + 7) // 8 * 8
    bound = struct.pack("<QQ", nonce, at) + data[at : at + 12]
    if crc32c(bound) != head_crc or length > BODY_BYTES_MAX or at + stride > len(data):
        return None
    body = data[at + 16 : at + 16 + length]
    step = Step(at, stride, kind, bool(flags & 1))
    if crc32c(body) == body_crc and flags <= 1:
        with contextlib.suppress(BadRecordError):
            step.value, step.is_lost = parse(kind, body), False
    return step


def walk(data: bytes, at: int, nonce: int) -> list[Step]:
    """Read all records and lost places from ``at`` to the end."""
    steps: list[Step] = []
    summed = 0
    while at < len(data):
        step = read_step(data, at, nonce)
        if step is None:
            start, at = at, at + 8
            while at < len(data):
                # Limit of object-log.md: bodies read in vain have at most the file size together.
                if summed >= len(data):
                    at = len(data)
                    break
                found = read_step(data, at, nonce)
                if found is not None and not found.is_lost:
                    break
                summed += 0 if found is None else struct.unpack_from("<I", data, at)[0]
                at += 8
            at = min(at, len(data))
            step = Step(start, at - start, None)
        else:
            at += step.length
        steps.append(step)
    return steps


class Replay:
    """Apply the records of a log in order, to find the files that can be resumed."""

    def __init__(self, head: dict[str, Any]) -> None:
        """Start with the tenure in the log's header."""
        self.tenure = head["tenure"]
        self.files: dict[int, File] = {}
        self.doubted: set[int] = set()
        self.is_tenure_doubted = False
        self.last_begun = -1
        self.places: list[list[int]] = []

    def step(self, step: Step) -> None:
        """Apply one step. A lost or impossible record makes files or the tenure doubtful."""
        if not step.is_lost and self.record(step):
            return
        self.places.append([step.offset, step.length])
        if step.kind not in HARMLESS and step.kind != TENURE:
            self.doubted = set(self.files)
        if step.kind not in HARMLESS and step.kind != END:
            self.is_tenure_doubted = True

    def forget(self, number: int) -> None:
        """Forget the file with this number."""
        self.files.pop(number, None)
        self.doubted.discard(number)

    def forget_weak(self) -> None:
        """Remove the ranges of all weak files."""
        for file in self.files.values():
            if file.is_weak:
                file.runs, file.is_weak = {}, False

    def record(self, step: Step) -> bool:
        """Apply a record. Return false if the record is impossible after the records before it."""
        value = step.value
        if step.kind == BEGIN:
            return self.begin(value)
        if step.kind in (OBJECTS, CHECKPOINT, RANGE):
            return self.ranges(step)
        if step.kind == END:
            self.forget(value)
        elif step.kind == SYNCED and value in self.files:
            self.files[value].is_weak = False
            self.doubted.discard(value)
        elif step.kind == DOUBTFUL and value in self.files:
            self.files[value].is_doubtful = True
            self.doubted.discard(value)
        elif step.kind == TENURE:
            if value["epoch"] <= self.tenure["epoch"]:
                return False
            if value["boot_id"] != self.tenure["boot_id"]:
                self.forget_weak()
            self.tenure, self.is_tenure_doubted = value, False
        return step.kind != HEADER

    def begin(self, file: File) -> bool:
        """Apply a FileBegin."""
        if file.number <= self.last_begun:
            return False
        self.last_begun = file.number
        for other in list(self.files.values()):
            if other.path == file.path or other.partial_place == file.partial_place:
                self.forget(other.number)
        self.files[file.number] = file
        return True

    def ranges(self, step: Step) -> bool:
        """Apply Objects, a Checkpoint or a Range."""
        file = self.files.get(step.value[0])
        if file is None:
            return True
        size, object_bytes = file.facts["size"], file.facts["object_bytes"]
        if step.kind == RANGE:
            _, offset, length, sums = step.value
            if length == 0 or offset + length > size:
                return False
            ranges = [(offset, offset + length, sums)]
        else:
            _, first, entries = step.value
            if first + len(entries) > file.object_count:
                return False
            starts = ((first + index) * object_bytes for index in range(len(entries)))
            pairs = zip(starts, entries, strict=True)
            ranges = [
                (at, min(at + object_bytes, size), sums) for at, sums in pairs if sums is not None
            ]
        self.doubted.discard(file.number)
        if step.is_weak and self.is_tenure_doubted:
            return True
        for start, end, sums in ranges:
            file.is_weak |= file.add(start, end, sums) and step.is_weak
        return True

    def damage(self) -> dict[str, Any] | None:
        """Forget the doubtful files after the last step. Return what the lost places cost."""
        forgotten = len(self.doubted)
        for number in list(self.doubted):
            self.forget(number)
        if self.is_tenure_doubted:
            self.forget_weak()
        if not self.places:
            return None
        return {
            "places": self.places[:16],
            "count": len(self.places),
            "files_forgotten": forgotten,
            "files_kept": len(self.files),
        }


def read_log(data: bytes) -> dict[str, Any]:
    """Read a log.

    :raises LogError: if it has another version, is no log at all, or has a damaged start.
    """
    if not data:
        return {"empty": True}
    if not data.startswith(MAGIC[: len(data)]):
        raise LogError("log_version")
    if len(data) < 16 or crc32c(data[:12]) != struct.unpack_from("<I", data, 12)[0]:
        raise LogError("log_damaged")
    if struct.unpack_from("<H", data, 8)[0] not in VERSIONS:
        raise LogError("log_version")
    first = read_step(data, 16, 0)
    if first is None or first.is_lost or first.kind != HEADER:
        raise LogError("log_damaged")
    head: dict[str, Any] = first.value
    start = 16 + first.length
    steps = walk(data, start, head["nonce"])
    commits = [step for step in steps if step.kind == COMMIT and not step.is_lost]
    durable = max([start] + [min(step.value, step.offset) for step in commits])
    torn = next((s.offset for s in steps if s.is_lost and s.offset >= durable), len(data))
    replay = Replay(head)
    for step in steps:
        if step.offset < torn:
            replay.step(step)
    damage = replay.damage()
    files = sorted(replay.files.values(), key=lambda file: file.path)
    return head | {
        "tenure": replay.tenure,
        "files": [file.describe() for file in files],
        "torn_bytes": len(data) - torn,
        "damage": damage,
    }


def read_lease(data: bytes) -> dict[str, Any] | None:
    """Return the valid record of a lease with the highest epoch, or None.

    :raises LogError: if a slot with a correct checksum has another version.
    """
    newest: dict[str, Any] | None = None
    for at in (0, 1024):
        slot = data[at : at + 1024]
        if len(slot) < 1024 or slot[:8] != LEASE_MAGIC:
            continue
        if crc32c(slot[:12] + bytes(4) + slot[16:]) != struct.unpack_from("<I", slot, 12)[0]:
            continue
        if struct.unpack_from("<H", slot, 8)[0] != 1:
            raise LogError("log_version")
        body = Body(slot, 16)
        try:
            epoch, boot_id = body.number("Q"), body.blob(64, 16)
            transfer, holder, host = body.text(64), body.text(255), body.text(255)
        except BadRecordError:
            continue
        if newest is None or newest["epoch"] < epoch:
            record = {"epoch": epoch, "holder": holder, "transfer": transfer, "host": host}
            newest = record | {"boot_id": boot_id.hex()}
    return newest


def write_lease(epoch: int, boot_id: bytes, *texts: str) -> bytes:
    """Write one slot of a lease. ``texts`` are the transfer, the holder and the host."""
    body = struct.pack("<Q", epoch)
    for blob in (boot_id, *(text.encode() for text in texts)):
        body += struct.pack("<I", len(blob)) + blob
    slot = (LEASE_MAGIC + struct.pack("<HHI", 1, 0, 0) + body).ljust(1024, b"\0")
    return slot[:12] + struct.pack("<I", crc32c(slot)) + slot[16:]


def describe(path: Path) -> dict[str, Any] | None:
    """Read a file: a lease if its name ends with ``.lease``, otherwise a log."""
    try:
        return (
            read_lease(path.read_bytes())
            if path.suffix == ".lease"
            else read_log(path.read_bytes())
        )
    except LogError as error:
        return {"error": error.kind}


if __name__ == "__main__":
    for name in sys.argv[1:]:
        sys.stdout.write(json.dumps(describe(Path(name)), indent=2, sort_keys=True) + "\n")
