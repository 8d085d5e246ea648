"""The verdict about a cell, from what was seen outside dray: files, and bytes on the wire.

:func:`judge` is a pure function of :class:`Evidence`, so that tests can show that each check fails
if its promise is broken.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from integration.harness.program import ROOT

if TYPE_CHECKING:
    from integration.harness import tree

#: Bytes of frames, TLS records and object heads, as a fraction of the data.
OVERHEAD = 0.01
#: The same for each file: its name and attributes in the list of files.
FILE_OVERHEAD = 400


def sync_group_bytes() -> int:
    """Return the maximum number of bytes of a sync group, as the engine of this tree sets it.

    :raises ValueError: if the constant is no longer where this function looks for it.
    """
    source = ROOT / "engine" / "crates" / "dray-runtime" / "src" / "assembly.rs"
    text = source.read_text(encoding="utf-8")
    found = re.search(r"^const SYNC_GROUP_BYTES: u64 = (\d+) << (\d+);$", text, re.MULTILINE)
    if found is None:
        raise ValueError(f"{source} has no line `const SYNC_GROUP_BYTES: u64 = N << M;`")
    return int(found[1]) << int(found[2])


def pool_bytes(memory: int, transfers_active: int) -> int:
    """Return the bytes of the buffers of the only session of an endpoint.

    The formula is that of ``share`` in dray-endpoint (src/live.rs), for the first session.
    """
    own = transfers_active + -(-transfers_active // 4)
    places = max(2 * transfers_active, own + 1)
    least = memory // (5 * places) * 4
    return least + (memory - least * places) // 8


@dataclass
class Evidence:
    """Everything that was seen of one cell."""

    #: Total size of the files, and the number of files.
    size: int
    files: int
    #: Bytes on the wire of a transfer of this set without a fault.
    carried_whole: int
    pool: int
    sync_group: int
    #: Differences between the wanted and the found tree when success was reported, or at the end.
    differences: list[str] = field(default_factory=list)
    #: dray's own files at the end.
    leftovers: list[str] = field(default_factory=list)
    #: Files under final names with a wrong content, while the transfer ran.
    wrong: list[str] = field(default_factory=list)
    #: The same, when the fault had occurred and before the transfer continued.
    wrong_at_fault: list[str] = field(default_factory=list)
    #: Further violations that the fault itself has found.
    found: list[str] = field(default_factory=list)
    #: True if the transfer ended with success, and the words of its last report.
    is_done: bool = False
    words: str = ""
    #: Number of endpoint processes that panicked or ended by themselves.
    ended_alone: list[str] = field(default_factory=list)
    #: True if the fault occurred before the end of the transfer.
    is_hit: bool = True
    #: Number of sessions that the fault broke, at least 1.
    broken: int = 1
    #: Bytes on the wire: of all runs, and since the fault.
    carried: int = 0
    carried_after: int = 0
    #: Bytes that the client had been told to be durable, before the fault.
    durable: int = 0
    #: Bytes that the fault itself has destroyed: the records of these bytes, or the files.
    destroyed: int = 0

    @property
    def sent_again(self) -> int:
        """Bytes that the source sent more than once."""
        return max(0, self.carried - self.carried_whole)

    @property
    def bound(self) -> int:
        """Bytes that the source may send more than once."""
        return self.broken * (self.pool + self.sync_group) + self.destroyed

    @property
    def overhead(self) -> int:
        """Bytes that may travel beside the data."""
        return int(OVERHEAD * 2 * self.size) + FILE_OVERHEAD * self.files * (self.broken + 1)


def judge(seen: Evidence) -> list[str]:
    """Return the violations. An empty list means that the cell has passed."""
    faults = []
    if not seen.is_hit:
        faults.append("the fault did not occur before the end of the transfer")
    if not seen.is_done:
        faults.append(f"the transfer did not end with success: {seen.words}")
    when = "success was reported, but" if seen.is_done else "at the end:"
    faults += [f"{when} {each}" for each in seen.differences]
    faults += [f"left behind: {each}" for each in seen.leftovers]
    faults += [f"during the transfer: {each}" for each in seen.wrong]
    faults += [f"after the fault: {each}" for each in seen.wrong_at_fault]
    faults += seen.found
    faults += seen.ended_alone
    if seen.sent_again > seen.bound + seen.overhead:
        faults.append(f"{seen.sent_again} bytes were sent again, and the bound is {seen.bound}")
    # The bytes in the pool were on their way when the fault occurred, and may be lost.
    missing = seen.size - seen.durable + seen.destroyed + seen.pool * seen.broken
    if seen.carried_after > missing + seen.overhead:
        faults.append(
            f"{seen.durable} of {seen.size} bytes were reported as durable before the fault, "
            f"{seen.destroyed} of them were destroyed, and {seen.carried_after} bytes were sent "
            "after the fault"
        )
    return faults


def wrong_files(wanted: list[dict[bytes, tree.Entry]], found: dict[bytes, tree.Entry]) -> list[str]:
    """Return the files whose content equals none of the permitted versions."""
    wrong = []
    for path, entry in found.items():
        if entry.kind != "file":
            continue
        versions = [each[path] for each in wanted if path in each]
        if (entry.size, entry.content) not in {(each.size, each.content) for each in versions}:
            wrong.append(f"{path!r} has a wrong content")
    return wrong
