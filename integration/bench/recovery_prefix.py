"""Reduces an object log to the contiguous beginning of each file, as a checkpoint of bbcp records.

bbcp resumes a file from one offset (FT-LADS, section II-B): all bytes before the offset are there,
and all others are sent again. A log of dray lists objects in any order. This module rewrites a log
between a fault and the resume: of each unfinished file, only the range from offset 0 to the first
missing object stays. The next run then resumes with the semantics of bbcp, and with everything
else as in dray.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from integration.log import decoder
from integration.log.values import crc32c

if TYPE_CHECKING:
    from pathlib import Path

PRELUDE_BYTES = 16
#: Types of records that stay as they are.
STAY = (decoder.BEGIN, decoder.END, decoder.TENURE, decoder.DOUBTFUL)


def record(kind: int, body: bytes, at: int, nonce: int, *, flags: int = 0) -> bytes:
    """Return a record for the offset ``at``, with checksums and padding."""
    head = struct.pack("<IBBHI", len(body), kind, flags, 0, crc32c(body))
    head += struct.pack("<I", crc32c(struct.pack("<QQ", nonce, at) + head))
    return head + body + bytes(-len(body) % 8)


def reduced(data: bytes) -> tuple[bytes, int, int]:
    """Return the log with prefixes only; also the bytes that were done, and the bytes that stay.

    :raises ValueError: if the log is no whole log of the mechanism universal.
    """
    head, replay, torn = decoder.replay_of(data)
    if head.get("files_per_part"):
        raise ValueError("the ranges of this log are in part logs")
    nonce, has_sums = head["nonce"], head["has_sums"]
    first = decoder.read_step(data, PRELUDE_BYTES, 0, has_sums=True)
    if first is None:
        raise ValueError("the log has no header")
    start = PRELUDE_BYTES + first.length
    out = bytearray(data[:start])
    for step in decoder.walk(data[:torn], start, nonce, has_sums=has_sums):
        if step.kind in STAY and not step.is_lost:
            length = struct.unpack_from("<I", data, step.offset)[0]
            body = data[step.offset + 16 : step.offset + 16 + length]
            out += record(step.kind, body, len(out), nonce)
    done = stays = 0
    for number, file in replay.files.items():
        done += sum(end - begin for begin, (end, _) in file.runs.items())
        if 0 in file.runs:
            end, sums = file.runs[0]
            stays += end
            body = struct.pack("<IIQQ", number, 0, 0, end)
            body += struct.pack("<II", *sums) if has_sums else b""
            flags = (decoder.WEAK if file.is_weak else 0) | (0 if has_sums else decoder.NO_SUMS)
            out += record(decoder.RANGE, body, len(out), nonce, flags=flags)
    out += record(decoder.COMMIT, struct.pack("<Q", len(out)), len(out), nonce)
    return bytes(out), done, stays


def reduce_logs(sink: Path) -> tuple[int, int]:
    """Rewrite all logs in ``.dray-log`` of a destination. Return the sums of :func:`reduced`."""
    done = stays = 0
    for log in (sink / ".dray-log").glob("*.log"):
        data, was, now = reduced(log.read_bytes())
        log.write_bytes(data)
        done, stays = done + was, stays + now
    return done, stays
