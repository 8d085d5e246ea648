"""Read object logs and leases by the specification docs/design/object-log.md.

The decoder shares no code with the engine. A difference between their results shows a deviation
from the specification. ``python -m integration.log.decoder FILE...`` prints the contents of each
file as JSON.
"""

from __future__ import annotations

import contextlib
import json
import re
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from integration.log import forms
from integration.log.values import (
    BadRecordError,
    Body,
    Sums,
    combine,
    crc32c,
    escape,
    is_name,
)

MAGIC = b"DRAYLOG\n"
LEASE_MAGIC = b"DRAYLEAS"
VERSIONS = range(1, 5)
BODY_BYTES_MAX = 1 << 20
HEADER, BEGIN, OBJECTS, RANGE, END, TENURE, CHECKPOINT, COMMIT, SYNCED, DOUBTFUL = range(1, 11)
POSITIONS = 11
RANGES = {OBJECTS, RANGE, CHECKPOINT, POSITIONS}
WEAK, NO_SUMS = 1, 2
HARMLESS = {BEGIN, OBJECTS, RANGE, CHECKPOINT, COMMIT, SYNCED, DOUBTFUL, POSITIONS}


class LogError(ValueError):
    """The log cannot be read at all. ``kind`` is the name of the error in the engine."""

    def __init__(self, kind: str) -> None:
        """Store the kind."""
        super().__init__(kind)
        self.kind = kind


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


def header(body: Body) -> dict[str, Any]:
    """Read a Header."""
    nonce, next_file = body.number("Q"), body.number("I")
    software, owner, count = body.text(512), body.blob(1024), body.number("I")
    if count > 1024:
        raise BadRecordError
    claims = [escape(body.path()) for _ in range(count)]
    holder = tenure(body)
    form = forms.USUAL if body.at == len(body.data) else forms.form(body, holder["epoch"])
    return form | {
        "claims": [claim or "." for claim in claims],
        "owner": owner.hex(),
        "nonce": nonce,
        "software": software,
        "next_file": next_file,
        "tenure": holder,
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
    has_sums: bool = True
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
        runs = sorted(self.runs.items())
        done = [[at, end - at, *(sums if self.has_sums else ())] for at, (end, sums) in runs]
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


def parse(kind: int, data: bytes, *, has_sums: bool) -> Any:  # noqa: ANN401 - one shape per type
    """Read the body of a record of type ``kind``."""
    body = Body(data, has_sums=has_sums)
    value: Any
    if kind == HEADER:
        value = header(body)
    elif kind == BEGIN:
        value = begin(body)
    elif kind in (OBJECTS, CHECKPOINT):
        value = objects(body, is_checkpoint=kind == CHECKPOINT)
    elif kind == POSITIONS:
        value = forms.positions(body)
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


def read_step(data: bytes, at: int, nonce: int, *, has_sums: bool) -> Step | None:
    """Read the record at an offset. Return None if no valid record head is there.

    ``has_sums`` is true if the records of ranges in this log contain sums.
    """
    if at + 16 > len(data):
        return None
    length, kind, flags, _, body_crc, head_crc = struct.unpack_from("<IBBHII", data, at)
    stride = (16 + length + 7) // 8 * 8
    bound = struct.pack("<QQ", nonce, at) + data[at : at + 12]
    if crc32c(bound) != head_crc or length > BODY_BYTES_MAX or at + stride > len(data):
        return None
    body = data[at + 16 : at + 16 + length]
    step = Step(at, stride, kind, bool(flags & WEAK))
    has_flag = bool(flags & NO_SUMS)
    is_meant = has_flag == (kind in RANGES and not has_sums)
    if crc32c(body) == body_crc and flags <= WEAK | NO_SUMS and is_meant:
        with contextlib.suppress(BadRecordError):
            step.value, step.is_lost = parse(kind, body, has_sums=not has_flag), False
    return step


def walk(data: bytes, at: int, nonce: int, *, has_sums: bool) -> list[Step]:
    """Read all records and lost places from ``at`` to the end."""
    steps: list[Step] = []
    summed = 0
    while at < len(data):
        step = read_step(data, at, nonce, has_sums=has_sums)
        if step is None:
            start, at = at, at + 8
            while at < len(data):
                # Limit of object-log.md: bodies read in vain have at most the file size together.
                if summed >= len(data):
                    at = len(data)
                    break
                found = read_step(data, at, nonce, has_sums=has_sums)
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
        self.boot_epoch = head["boot_epoch"]
        self.has_sums = head["has_sums"]
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

    def forget_unproven(self) -> None:
        """Remove the ranges of all weak files, and in a log without sums those of all files."""
        for file in self.files.values():
            if file.is_weak or not self.has_sums:
                file.runs, file.is_weak = {}, False

    def record(self, step: Step) -> bool:
        """Apply a record. Return false if the record is impossible after the records before it."""
        value = step.value
        if step.kind == BEGIN:
            return self.begin(value)
        if step.kind in (OBJECTS, CHECKPOINT, RANGE, POSITIONS):
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
                self.boot_epoch = value["epoch"]
                self.forget_unproven()
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
        file.has_sums = self.has_sums
        self.files[file.number] = file
        return True

    def ranges(self, step: Step) -> bool:
        """Apply Objects, Positions, a Checkpoint or a Range."""
        file = self.files.get(step.value[0])
        if file is None:
            return True
        size, object_bytes = file.facts["size"], file.facts["object_bytes"]
        if step.kind == RANGE:
            _, offset, length, sums = step.value
            if length == 0 or offset + length > size:
                return False
            ranges = [(offset, offset + length, sums)]
        elif step.kind == POSITIONS:
            if any(one >= file.object_count for one, _ in step.value[1]):
                return False
            ranges = [
                (one * object_bytes, min((one + 1) * object_bytes, size), sums)
                for one, sums in step.value[1]
            ]
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
        if (step.is_weak or not self.has_sums) and self.is_tenure_doubted:
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
            self.forget_unproven()
        if not self.places:
            return None
        return {
            "places": self.places[:16],
            "count": len(self.places),
            "files_forgotten": forgotten,
            "files_kept": len(self.files),
        }


Parts = Callable[[int], "bytes | None"]


def replay_of(data: bytes) -> tuple[dict[str, Any], Replay, int]:
    """Read one file: its header, its replayed records, and the offset of its torn tail.

    :raises LogError: if it has another version, is no log at all, or has a damaged start.
    """
    if not data.startswith(MAGIC[: len(data)]):
        raise LogError("log_version")
    if len(data) < 16 or crc32c(data[:12]) != struct.unpack_from("<I", data, 12)[0]:
        raise LogError("log_damaged")
    version = struct.unpack_from("<H", data, 8)[0]
    if version not in VERSIONS:
        raise LogError("log_version")
    first = read_step(data, 16, 0, has_sums=True)
    if first is None or first.is_lost or first.kind != HEADER:
        raise LogError("log_damaged")
    head: dict[str, Any] = first.value
    if max(version, 2) != head["version"]:
        raise LogError("log_damaged")
    start = 16 + first.length
    steps = walk(data, start, head["nonce"], has_sums=head["has_sums"])
    commits = [step for step in steps if step.kind == COMMIT and not step.is_lost]
    durable = max([start] + [min(step.value, step.offset) for step in commits])
    torn = next((s.offset for s in steps if s.is_lost and s.offset >= durable), len(data))
    replay = Replay(head)
    for step in steps:
        if step.offset < torn:
            replay.step(step)
    return head, replay, torn


def add_part(head: dict[str, Any], replay: Replay, part: int, data: bytes) -> tuple[int, int]:
    """Add the ranges of a part log to the files. Return its lost places and forgotten files."""
    try:
        theirs, found, _ = replay_of(data)
    except LogError:
        return 1, 0
    same = ("form", "id")
    if (
        any(theirs[one] != head[one] for one in same)
        or theirs["part"] != part
        or found.tenure["epoch"] > replay.tenure["epoch"]
    ):
        return 0, 0
    lost = found.damage()
    is_old = replay.is_tenure_doubted or found.tenure["epoch"] < replay.boot_epoch
    by_path = {file.path: file for file in found.files.values()}
    for file in replay.files.values():
        other = by_path.get(file.path)
        is_here = file.number // head["files_per_part"] == part
        if other is None or not is_here or other.facts != file.facts:
            continue
        if not ((other.is_weak or not head["has_sums"]) and is_old):
            file.runs, file.is_weak = other.runs, other.is_weak
    return (0, 0) if lost is None else (lost["count"], lost["files_forgotten"])


def read_log(data: bytes, parts: Parts = lambda _: None) -> dict[str, Any]:
    """Read a log. ``parts`` returns the content of the part log with a number, or None.

    :raises LogError: if it has another version, is no log at all, or has a damaged start.
    """
    if not data:
        return {"empty": True}
    head, replay, torn = replay_of(data)
    damage = replay.damage()
    if head.get("files_per_part"):
        numbers = {file.number // head["files_per_part"] for file in replay.files.values()}
        for part in sorted(numbers):
            content = parts(part)
            lost, forgotten = add_part(head, replay, part, content) if content else (0, 0)
            if lost:
                damage = damage or {"places": [], "count": 0, "files_forgotten": 0}
                damage["count"] += lost
                damage["files_forgotten"] += forgotten
        if damage is not None:
            damage["files_kept"] = len(replay.files)
    files = sorted(replay.files.values(), key=lambda file: file.path)
    shown = ("claims", "owner", "nonce", "software", "next_file", "form")
    return {one: head[one] for one in shown} | {
        "tenure": replay.tenure,
        "files": [file.describe() for file in files],
        "torn_bytes": len(data) - torn,
        "damage": damage,
    }


def read_log_file(path: Path) -> dict[str, Any]:
    """Read a log with its part logs, which are files beside it.

    :raises LogError: as :func:`read_log`.
    """

    def part(number: int) -> bytes | None:
        beside = path.with_name(f"{path.stem}.{number:08x}.objects")
        return beside.read_bytes() if beside.exists() else None

    return read_log(path.read_bytes(), part)


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
        return read_lease(path.read_bytes()) if path.suffix == ".lease" else read_log_file(path)
    except LogError as error:
        return {"error": error.kind}


if __name__ == "__main__":
    for name in sys.argv[1:]:
        sys.stdout.write(json.dumps(describe(Path(name)), indent=2, sort_keys=True) + "\n")
