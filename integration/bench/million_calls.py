"""System calls of a process, as ``strace`` writes them: reads, sends, and calls that list."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

READS = ("read", "pread64", "readv", "preadv", "preadv2")
SENDS = ("write", "writev", "sendto", "sendmsg")
ATTRIBUTES = ("statx", "newfstatat", "stat", "lstat", "fstat")
#: Smallest size of a write to a socket that contains data, and not only a message of dray.
DATA_BYTES = 4096

#: A finished call, or the end of a call that another thread interrupted in the output.
CALL = re.compile(r"^(\d+)\s+(\d+\.\d+) (?:<\.\.\. )?(\w+)(?: resumed>|\()(.*)$")
RESULT = re.compile(r"\)\s+= (-?\d+)")
UNFINISHED = " <unfinished ...>"
FILE = re.compile(r"^\d+<([^>]*)>")


def traced(output: Path) -> list[str]:
    """Return the words that run a command under strace.

    ``-D`` makes strace a grandchild, so that a signal for the command reaches the command.
    """
    calls = ",".join((*READS, *SENDS, *ATTRIBUTES, "getdents64"))
    words = ["strace", "-D", "-f", "-qq", "-ttt", "-y", "-s", "0", "--seccomp-bpf"]
    return [*words, "-e", f"trace={calls}", "-e", "signal=none", "-o", str(output)]


@dataclass(frozen=True)
class Call:
    """One system call that has succeeded."""

    at: float
    name: str
    #: Words in the parentheses.
    words: str
    result: int

    @property
    def file(self) -> str:
        """Path of the open file, or an empty text."""
        found = FILE.match(self.words)
        return found[1] if found else ""

    @property
    def offset(self) -> int | None:
        """Offset of a positioned read, or None."""
        if not self.name.startswith("pread"):
            return None
        # Only preadv2 has a word after the offset: its flags.
        return int(self.words.split(", ")[-2 if self.name == "preadv2" else -1])


def calls(trace: Path) -> Iterator[Call]:
    """Read the calls of all threads, in the order in which they ended."""
    begun: dict[str, tuple[float, str]] = {}
    with trace.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            found = CALL.match(line.rstrip("\n"))
            if found is None:
                continue
            thread, at, name, rest = found[1], float(found[2]), found[3], found[4]
            if rest.endswith(UNFINISHED):
                begun[thread] = (at, rest.removesuffix(UNFINISHED))
                continue
            if "resumed>" in line:
                at, first = begun.pop(thread, (at, ""))
                rest = first + rest
            result = RESULT.search(rest)
            if result is not None and int(result[1]) >= 0:
                yield Call(at, name, rest[: result.start()], int(result[1]))


@dataclass
class Calls:
    """Times, ranges and counts from the calls of a process."""

    #: Start of the process, first read of a source file, and first data on the network, in seconds
    #: since the epoch.
    began: float = 0.0
    first_read: float = 0.0
    first_send: float = 0.0
    read_bytes: int = 0
    #: Ranges that were read, by file.
    ranges: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    folders: int = 0
    attributes: int = 0
    seconds: float = 0.0

    @staticmethod
    def of_data(trace: Path, source: Path) -> Calls:
        """Read which bytes of the files in ``source`` a process read, and when it sent data.

        :raises ValueError: if a read of a source file has no offset.
        """
        found = Calls()
        for call in calls(trace):
            if call.name in READS and call.file.startswith(f"{source}/") and call.result:
                if call.offset is None:
                    raise ValueError(f"a read without an offset: {call}")
                found.first_read = found.first_read or call.at
                found.read_bytes += call.result
                end = call.offset + call.result
                found.ranges.setdefault(call.file, []).append((call.offset, end))
            is_data = call.file.startswith("socket:") or call.file.startswith("TCP:")
            if call.name in SENDS and is_data and call.result >= DATA_BYTES and found.first_read:
                found.first_send = found.first_send or call.at
        if not found.first_send:
            raise ValueError("the process sent no data")
        return found

    @staticmethod
    def of_listing(trace: Path, source: Path) -> Calls:
        """Count the folders of ``source`` and the attributes of entries that a process read."""
        found = Calls()
        for call in calls(trace):
            is_inside = call.file == str(source) or call.file.startswith(f"{source}/")
            if call.name == "getdents64" and is_inside and call.result:
                found.folders += 1
            if call.name in ATTRIBUTES and f"<{source}" in call.words:
                found.attributes += 1
        return found

    def overlap(self, done: dict[str, list[tuple[int, int]]]) -> int:
        """Return the number of bytes that were read and are in the ranges ``done``."""
        total = 0
        for path, ranges in self.ranges.items():
            for begin, end in ranges:
                total += sum(
                    max(0, min(end, there_end) - max(begin, there))
                    for there, there_end in done.get(path, ())
                )
        return total
