"""Decode dray's frames by docs/design/wire-protocol.md, without code of the engine.

``python integration/wire/decoder.py FILE...`` prints the frames in each captured file as JSON. A
number such as 7.3 in a comment is a section of wire-protocol.md.
"""

from __future__ import annotations

import json
import re
import sys
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

PREFIX_BYTES, HELLO_BYTES_MAX = 12, 65536
EXTENDED, IGNORABLE = 1, 0x80
TRACE = re.compile(rb"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")

Fields = dict[str, Any]


class FrameError(ValueError):
    """The bytes violate the specification."""


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


_CRC_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    """Compute CRC-32/ISCSI of ``data``."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def adler32(data: bytes) -> int:
    """Compute adler32 (RFC 1950) of ``data``."""
    low, high = 1, 0
    for byte in data:
        low = (low + byte) % 65521
        high = (high + low) % 65521
    return high << 16 | low


def escape(data: bytes) -> str:
    """Return the bytes of a name as text (12)."""
    out = []
    for character in data.decode("utf-8", "surrogateescape"):
        code = ord(character)
        if character == "\\":
            out.append("\\\\")
        elif 0xDC80 <= code <= 0xDCFF:
            out.append(f"\\x{code - 0xDC00:02x}")
        elif code < 0x20 or 0x7F <= code <= 0x9F:
            out.extend(f"\\x{byte:02x}" for byte in character.encode())
        else:
            out.append(character)
    return "".join(out)


class Reader:
    """Read the values in a body one after another. A read past the end is a :class:`FrameError`."""

    def __init__(self, body: bytes) -> None:
        """Start at the first byte of ``body``."""
        self.body = body
        self.at = 0

    @property
    def left(self) -> int:
        """The number of bytes that are not read yet."""
        return len(self.body) - self.at

    def take(self, count: int) -> bytes:
        """Take the next ``count`` bytes."""
        if count > self.left:
            raise FrameError(f"{count} bytes wanted, {self.left} left")
        self.at += count
        return self.body[self.at - count : self.at]

    def integer(self, size: int, *, signed: bool = False, least: int | None = None) -> int:
        """Take a little-endian integer of ``size`` bytes that is at least ``least``."""
        value = int.from_bytes(self.take(size), "little", signed=signed)
        if least is not None and value < least:
            raise FrameError(f"{value} is below {least}")
        return value

    def u32(self) -> int:
        """Take an unsigned integer of four bytes."""
        return self.integer(4)

    def u64(self) -> int:
        """Take an unsigned integer of eight bytes."""
        return self.integer(8)

    def flag(self) -> bool:
        """Take a byte that must be 0 or 1."""
        value = self.integer(1)
        if value > 1:
            raise FrameError(f"{value} is not a flag")
        return value == 1

    def word(self, words: dict[int, str]) -> str:
        """Take a byte, and return its word in ``words``."""
        value = self.integer(1)
        if value not in words:
            raise FrameError(f"{value} is not one of {words}")
        return words[value]

    def data(self, most: int) -> bytes:
        """Take a length of at most ``most``, and that many bytes."""
        length = self.u32()
        if length > most:
            raise FrameError(f"{length} bytes, at most {most}")
        return self.take(length)

    def text(self, most: int) -> str:
        """Take a length of at most ``most``, and that many bytes of UTF-8."""
        try:
            return self.data(most).decode()
        except UnicodeDecodeError as error:
            raise FrameError("not UTF-8") from error

    def option(self, value: Callable[[], Any]) -> Any:  # noqa: ANN401 - whatever value gives
        """Take a flag. If it is 1, take a value too; otherwise return None."""
        return value() if self.flag() else None

    def items(self, item: Callable[[], Any], least: int, most: int = 2**32) -> list[Any]:
        """Take a count, and that many items. An item has at least ``least`` bytes."""
        count = self.u32()
        if count > most or count * least > self.left:
            raise FrameError(f"{count} items claimed, {self.left} bytes left")
        return [item() for _ in range(count)]

    # Sections 4.1 to 4.9.

    def name(self) -> str:
        """Take a name."""
        name = self.data(255)
        if name in {b"", b".", b".."} or b"/" in name or b"\0" in name:
            raise FrameError(f"{name!r} is not a name")
        return escape(name)

    def path(self) -> str:
        """Take a path."""
        path = self.data(65536)
        for name in path.split(b"/") if path else []:
            if name in {b"", b".", b".."} or b"\0" in name or len(name) > 255:
                raise FrameError(f"{path!r} is not a path")
        return escape(path)

    def range(self, *, may_be_empty: bool = True) -> Fields:
        """Take a range."""
        offset, length = self.u64(), self.integer(8, least=0 if may_be_empty else 1)
        if offset + length >= 2**64:
            raise FrameError(f"{offset} + {length} is over 64 bits")
        return {"offset": offset, "length": length}

    def sums(self) -> Fields:
        """Take the sums of some bytes."""
        return {"crc32c": f"{self.u32():08x}", "adler32": f"{self.u32():08x}"}

    def error(self) -> Fields:
        """Take an error."""
        return {
            "kind": kind if (kind := self.integer(2)) <= 29 else 0,
            "status": self.word({0: "permanent", 1: "temporary", 2: "exhausted"}),
            "end": self.word({0: "source", 1: "sink", 2: "network", 3: "here"}),
            "file": self.option(self.path),
            "operation": self.text(256),
            "cause": self.text(4096),
            "remedy": self.text(1024),
        }

    def entry(self) -> Fields:
        """Take an entry."""
        entry: Fields = {
            "index": self.u64(),
            "parent": self.option(self.u64),
            "name": self.name(),
            "kind": self.word({1: "file", 2: "directory", 3: "directory_end", 4: "symlink"}),
        }
        if entry["kind"] == "file":
            entry |= {"size": self.u64(), "sparse": self.flag()}
        elif entry["kind"] == "symlink":
            entry["target"] = escape(self.data(65536))
        entry["mode"] = self.u32()
        entry["modified"] = {"seconds": self.integer(8, signed=True), "nanoseconds": self.u32()}
        if entry["mode"] > 0o7777 or entry["modified"]["nanoseconds"] > 999_999_999:
            raise FrameError(f"mode or time: {entry}")
        start = self.at
        xattrs = self.items(self.xattr, 9, 1024)
        if self.at - start - 4 - 8 * len(xattrs) > 131072:
            raise FrameError("too many bytes of attributes")
        return entry | {"xattrs": xattrs}

    def xattr(self) -> Fields:
        """Take an extended attribute."""
        name = self.data(255)
        if not name:
            raise FrameError("an attribute without a name")
        return {"name": escape(name), "value": self.data(65536).hex()}

    def layout(self) -> Fields:
        """Take a layout."""
        kind = self.word({1: "single", 2: "striped", 3: "table", 4: "composite"})
        if kind == "single":
            return {"single": self.u32()}
        if kind != "composite":
            layout: Fields = {"stripe_bytes": self.integer(8, least=1), "targets": self.targets()}
            if kind == "table":
                layout["stripes"] = self.items(lambda: self.integer(2), 2, 65536)
                if max(layout["stripes"], default=65536) >= len(layout["targets"]):
                    raise FrameError("a stripe without a target")
            return layout
        extents = self.items(self.extent, 24, 64)
        ends = [extent["end"] for extent in extents]
        if len(ends) < 2 or ends[0] == 0 or any(b <= a for a, b in pairwise(ends)):
            raise FrameError(f"extents that end at {ends}")
        if sum(len(extent["targets"]) for extent in extents) > 4096:
            raise FrameError("too many targets")
        return {"extents": extents}

    def targets(self) -> list[int]:
        """Take the targets of a layout."""
        targets = self.items(self.u32, 4, 4096)
        if not targets:
            raise FrameError("a layout without targets")
        return targets

    def extent(self) -> Fields:
        """Take an extent of a composite layout."""
        end, stripe_bytes = self.u64(), self.integer(8, least=1)
        return {"end": end, "stripe_bytes": stripe_bytes, "targets": self.targets()}

    def options(self) -> Fields:
        """Take options."""
        options: Fields = {
            "durability": self.word({0: "none", 1: "file", 2: "object"}),
            "overwrite": self.word({0: "never", 1: "if-different", 2: "always"}),
            "order": self.word({0: "layout", 1: "file", 2: "random"}),
        }
        if options["order"] == "random":
            options["order"] = {"random": self.u64()}
        return options | {
            "object_bytes": self.integer(8, least=1),
            "verify": self.flag(),
            "xattrs": self.flag(),
            "checksum_attributes": self.flag(),
            "rate": self.option(self.u64),
        }

    def selection(self) -> Fields:
        """Take a selection."""
        return {
            "recursive": self.flag(),
            "include": self.items(lambda: self.text(4096), 4, 1024),
            "exclude": self.items(lambda: self.text(4096), 4, 1024),
            "range": self.option(self.range),
            "size": self.option(self.u64),
            "rename": self.option(self.name),
            "links": self.word({0: "keep", 1: "follow", 2: "refuse"}),
        }

    def limits(self) -> Fields:
        """Take limits."""
        return {
            "control_bytes_max": self.u32(),
            "object_bytes_max": self.u64(),
            "segments_max": self.u32(),
            "live_entries_max": self.u32(),
        }

    def addresses(self) -> list[str]:
        """Take addresses."""
        return self.items(lambda: self.text(272), 4, 64)

    def demanded(self) -> str | None:
        """Take a demanded checksum."""
        algorithm = self.word({0: "none", 1: "crc32c", 2: "adler32"})
        return None if algorithm == "none" else f"{algorithm}:{self.u32():08x}"


# Section 6, in the order of the specification.


def _hello(reader: Reader) -> Fields:
    versions = {"oldest": reader.integer(2), "newest": reader.integer(2)}
    if versions["oldest"] > versions["newest"]:
        raise FrameError(f"versions: {versions}")
    return {
        "versions": versions,
        "mandatory": reader.u64(),
        "optional": reader.u64(),
        "limits": reader.limits(),
        "checksums": list(reader.data(32)),
        "software": reader.text(256),
        "token": reader.data(16384).hex(),
    }


def _connect(reader: Reader) -> Fields:
    transfer = reader.text(64)
    if not re.fullmatch(r"[A-Za-z0-9._:-]{1,64}", transfer):
        raise FrameError(f"transfer: {transfer!r}")
    return {
        "transfer": transfer,
        "attempt": reader.u32(),
        "passive_role": reader.word({0: "source", 1: "sink"}),
        "paths": reader.items(lambda: escape(reader.data(65536)), 4, 4096),
        "selection": reader.selection(),
        "options": reader.options(),
        "demanded": reader.demanded(),
        "streams": reader.integer(2),
        "clear_data": reader.flag(),
        "addresses": reader.addresses(),
        **{"resume": "verify", "stripes": None, "trace": None},
    }


def _connect_extension(reader: Reader) -> Fields:
    """Read the fields that follow those of :func:`_connect` in an EXTENDED frame."""
    resume = reader.word({0: "verify", 1: "trust"})
    stripes = (reader.text(64) or None) if reader.left else None
    trace = TRACE.fullmatch(reader.data(128)) if reader.left else None
    return {"resume": resume, "stripes": stripes, "trace": trace and trace[0].decode()}


def _accept(reader: Reader) -> Fields:
    return {
        "ticket": reader.take(16).hex(),
        "key": reader.take(32).hex(),
        "addresses": reader.addresses(),
        "streams": reader.integer(2),
    }


def _ready(reader: Reader) -> Fields:
    return {
        "precision_nanoseconds": reader.integer(4, least=1),
        "object_bytes_max": reader.integer(8, least=1),
        "live_entries_max": reader.integer(4, least=1),
        "pack_bytes_max": reader.u64(),
        "holes": reader.flag(),
        "ordered_window": reader.option(lambda: reader.integer(4, least=1)),
    }


def _done(reader: Reader) -> Fields:
    index = reader.u64()
    ranges = reader.items(lambda: reader.range(may_be_empty=False), 16)
    end = 0
    for each in ranges:
        if each["offset"] < end:
            raise FrameError("ranges out of order")
        end = each["offset"] + each["length"]
    return {"index": index, "ranges": ranges}


def _file_id(reader: Reader) -> Fields:
    verdicts = {1: "want", 2: "adopted", 3: "skipped", 4: "failed"}
    file_id: Fields = {"index": reader.u64(), "verdict": reader.word(verdicts)}
    if file_id["verdict"] == "want":
        file_id |= {"object_bytes": reader.integer(8, least=1), "layout": reader.layout()}
    elif file_id["verdict"] == "failed":
        file_id["error"] = reader.error()
    return file_id


def _file_closed(reader: Reader) -> Fields:
    index = reader.u64()
    is_good = reader.word({1: "sums", 2: "error"}) == "sums"
    result = {"sums": reader.sums()} if is_good else {"error": reader.error()}
    return {"index": index, "bytes_resumed": reader.u64()} | result


def _block_state(reader: Reader) -> Fields:
    states = {1: "written", 2: "durable", 3: "nack", 4: "dropped"}
    state: Fields = {"id": reader.u64(), "state": reader.word(states)}
    if state["state"] == "nack":
        state["error"] = reader.error()
    return state


def _verdict(reader: Reader) -> Fields:
    names = ("files", "files_adopted", "files_skipped", "files_failed", "others", "bytes")
    return {name: reader.u64() for name in names}


STAGES = dict(
    enumerate(
        [
            "list",
            "decide",
            "rate",
            "read",
            "network",
            "credit",
            "retry",
            "verdict",
            "arrival",
            "write",
            "sync",
            "publish",
        ],
        start=1,
    )
)


def _profile(reader: Reader) -> Fields:
    times = reader.items(lambda: (reader.integer(1), reader.u64()), 9)
    numbers = [number for number, _ in times]
    if 0 in numbers or any(b <= a for a, b in pairwise(numbers)):
        raise FrameError(f"stages: {numbers}")
    return {
        "times": [
            {"stage": STAGES[number], "nanoseconds": time}
            for number, time in times
            if number in STAGES
        ]
    }


def _streams(reader: Reader) -> Fields:
    count = reader.u32()
    if count == 0:
        raise FrameError("no stream at all")
    return {"streams": count}


def _segment(reader: Reader) -> Fields:
    kind = reader.word({1: "data", 2: "hole"})
    segment = {"file": reader.u64(), "range": reader.range(may_be_empty=False), "kind": kind}
    if kind == "data":
        segment["sums"] = reader.sums()
    return segment


def _block(reader: Reader) -> Fields:
    head = {"id": reader.u64(), "target": reader.u32()}
    segments = reader.items(lambda: _segment(reader), 25)
    if not segments:
        raise FrameError("a block without segments")
    return head | {"segments": segments}


CONTROL: dict[int, tuple[str, Callable[[Reader], Fields]]] = {
    0x01: ("HELLO", _hello),
    0x02: ("CONNECT", _connect),
    0x03: ("ACCEPT", _accept),
    0x04: ("REFUSE", lambda r: {"error": r.error()}),
    0x05: ("READY", _ready),
    0x10: ("NEW_FILES", lambda r: {"entries": r.items(r.entry, 35)}),
    0x11: ("LIST_END", lambda r: {"entries": r.u64()}),
    0x12: ("DONE", _done),
    0x13: ("FILE_IDS", lambda r: {"files": r.items(lambda: _file_id(r), 9)}),
    0x14: ("FILE_CLOSE", lambda r: {"files": r.items(lambda: _file_closed(r), 25)}),
    0x15: ("FILE_ABORT", lambda r: {"index": r.u64(), "error": r.error()}),
    0x16: ("LIST_FAILED", lambda r: {"errors": r.items(r.error, 17)}),
    0x20: (
        "CREDIT",
        lambda r: {"credits": r.items(lambda: {"target": r.u32(), "objects": r.u32()}, 8)},
    ),
    0x21: ("BLOCK_SYNC", lambda r: {"blocks": r.items(lambda: _block_state(r), 9)}),
    0x22: ("STREAM_LOST", lambda r: {"stream": r.u32(), "blocks": r.items(r.u64, 8)}),
    0x23: ("RATE", lambda r: {"rate": r.option(r.u64)}),
    0x24: ("STALL", lambda r: {"target": r.u32(), "milliseconds": r.u64()}),
    0x30: ("PING", lambda r: {"value": r.u64()}),
    0x31: ("PONG", lambda r: {"value": r.u64()}),
    0x32: ("GO_AWAY", lambda r: {"error": r.error()}),
    0x33: ("CANCEL", lambda r: {"attempt": r.u32(), "purge": r.flag()}),
    0x34: ("VERDICT", _verdict),
    0x35: ("VERDICT_STORED", lambda _: {}),
    0x36: ("BYE", lambda _: {}),
    0x80: ("PROFILE", _profile),
    0x81: ("STREAMS", _streams),
    0x82: (
        "STRIPES",
        lambda r: {
            "files": r.items(lambda: {"index": r.u64(), "step_bytes": r.integer(8, least=1)}, 16)
        },
    ),
}

DATA: dict[int, tuple[str, Callable[[Reader], Fields]]] = {
    0x40: ("CHALLENGE", lambda r: {"challenge": r.take(32).hex()}),
    0x41: (
        "JOIN",
        lambda r: {"ticket": r.take(16).hex(), "stream": r.u32(), "proof": r.take(32).hex()},
    ),
    0x42: ("BLOCK", _block),
}

HELLO, CONNECT, CHALLENGE, JOIN, BLOCK = 0x01, 0x02, 0x40, 0x41, 0x42


def decode_preamble(data: bytes) -> Fields:
    """Decode a preamble, the first eight bytes of a connection (2.1)."""
    if len(data) != 8 or data[:4] != b"DRAY" or data[6:] != b"\0\0":
        raise FrameError(f"{data!r} is not a preamble")
    reader = Reader(data[4:6])
    fields = {
        "connection": reader.word({1: "control", 2: "data"}),
        "security": reader.word({0: "tls", 1: "clear"}),
    }
    return {"connection": "preamble", "fields": fields}


def decode_frame(data: bytes, body_bytes_max: int = 1 << 20) -> tuple[Fields, bytes]:
    """Decode the first frame of ``data`` (3). Return the frame and the remaining bytes.

    :param body_bytes_max: maximum length of a body in bytes.
    :raises FrameError: for any violation of the specification.
    """
    prefix = Reader(data[:PREFIX_BYTES])
    length, number, flags = prefix.u32(), prefix.integer(1), prefix.integer(1)
    reserved, crc = prefix.integer(2), prefix.u32()
    connection = "data" if number in DATA else "control"
    is_ignorable = number >= IGNORABLE
    known = CONTROL.get(number) or DATA.get(number)
    if reserved != 0 or (known is None and not is_ignorable):
        raise FrameError(f"type {number:#04x}, reserved bytes {reserved:#06x}")
    # Section 9: a HELLO has its own maximum.
    most = min(body_bytes_max, HELLO_BYTES_MAX) if number == HELLO else body_bytes_max
    if length > most:
        raise FrameError(f"a body of {length} bytes, at most {most}")
    rest = Reader(data[PREFIX_BYTES:])
    body = rest.take(length)
    if crc32c(data[:8] + body) != crc:
        raise FrameError("wrong crc32c")
    frame: Fields = {"connection": connection, "type": "unknown", "number": number, "flags": flags}
    if known is None:
        return frame | {"fields": None}, rest.take(rest.left)
    may_extend = number not in {CHALLENGE, JOIN}
    if flags & ~(EXTENDED if may_extend else 0):
        raise FrameError(f"flags {flags:#04x}")
    frame["type"], decode = known
    reader = Reader(body)
    frame["fields"] = decode(reader)
    if number == CONNECT and flags & EXTENDED:
        frame["fields"] |= _connect_extension(reader)
    if reader.left and not (flags & EXTENDED or number == HELLO):
        raise FrameError(f"{reader.left} bytes too many")
    if number == BLOCK:
        frame["payload"] = _payload(frame["fields"]["segments"], rest).hex()
    return frame, rest.take(rest.left)


def _payload(segments: list[Fields], rest: Reader) -> bytes:
    """Take the payload of a block, and check it by the checksums of its segments (7.3)."""
    parts = []
    for segment in segments:
        if segment["kind"] == "hole":
            continue
        part = rest.take(segment["range"]["length"])
        found = {"crc32c": f"{crc32c(part):08x}", "adler32": f"{adler32(part):08x}"}
        if found != segment["sums"]:
            raise FrameError(f"the payload has {found}, {segment['sums']} announced")
        parts.append(part)
    return b"".join(parts)


def decode_stream(data: bytes, *, body_bytes_max: int = 1 << 20) -> list[Fields]:
    """Decode all frames of one direction of a connection, and its preamble if it has one."""
    frames = []
    if data.startswith(b"DRAY"):
        frames.append(decode_preamble(data[:8]))
        data = data[8:]
    while data:
        frame, data = decode_frame(data, body_bytes_max)
        frames.append(frame)
    return frames


def main() -> int:
    """Print the frames in the named files, one JSON object per line."""
    for name in sys.argv[1:]:
        for frame in decode_stream(Path(name).read_bytes()):
            sys.stdout.write(json.dumps(frame, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
