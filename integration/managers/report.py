"""The report of the bed: data that was moved, times of the steps, and checks that failed."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any

MIB = 1 << 20


@dataclass(frozen=True)
class Leg:
    """The copies of one task of the DAG.

    :param mover: the programs that moved the bytes.
    :param bytes: size of the files.
    :param carried: bytes that left the endpoint of the source on data connections, with the
        overhead of the protocol.
    :param seconds: duration of the task in Airflow.
    :param verified: files whose checksum at the destination equals that of the source.
    """

    task: str
    mover: str
    source: str
    destination: str
    files: int
    bytes: int
    carried: int
    seconds: float
    verified: int

    @property
    def twice(self) -> int:
        """Bytes that were sent more than once, including the overhead of the protocol."""
        return max(0, self.carried - self.bytes)


@dataclass(frozen=True)
class Fault:
    """The endpoint that was killed, and the state of its transfers at this time.

    :param victim: the killed process or container.
    :param durable: durable bytes before the kill.
    :param carried: bytes that the source's endpoint had sent when the killed endpoint was dead.
    :param down_seconds: time from the kill until the endpoint listened again.
    """

    endpoint: str
    victim: str
    durable: int
    carried: int
    down_seconds: float


@dataclass(frozen=True)
class Deadline:
    """The deadline of all Rucio rules of the run.

    :param allowed_seconds: time from the start of the run to the deadline.
    :param taken_seconds: time from the start of the run to the end of the last task that waits for
        a rule.
    :param promised: number of the first rule's transfers for which the endpoint had promised the
        deadline before the fault.
    :param transfers: number of transfers of the first rule.
    """

    allowed_seconds: float
    taken_seconds: float
    promised: int
    transfers: int

    @property
    def is_kept(self) -> bool:
        """Return whether the rules were complete before the deadline."""
        return self.taken_seconds <= self.allowed_seconds


@dataclass
class Report:
    """Everything that a run of the test bed has measured."""

    storage: dict[str, str] = field(default_factory=dict)
    steps: dict[str, float] = field(default_factory=dict)
    legs: list[Leg] = field(default_factory=list)
    fault: Fault | None = None
    deadline: Deadline | None = None

    def problems(self) -> list[str]:
        """Return one sentence for each promise that was not kept."""
        found = [
            f"{leg.task}: only {leg.verified} of {leg.files} files have the right checksum at "
            f"{leg.destination}"
            for leg in self.legs
            if leg.verified != leg.files
        ]
        for leg in self.legs:
            if leg.carried < leg.bytes:
                found.append(
                    f"{leg.task}: the endpoint of {leg.source} sent only "
                    f"{leg.carried / MIB:.1f} MiB of {leg.bytes / MIB:.1f} MiB"
                )
            permitted = self._twice_max(leg)
            if leg.twice > permitted:
                found.append(
                    f"{leg.task}: {leg.twice / MIB:.1f} MiB were sent twice, but only "
                    f"{permitted / MIB:.1f} MiB are permitted (data that was not durable, overhead)"
                )
        if self.deadline is not None and not self.deadline.is_kept:
            found.append(
                f"the rules were complete {self.deadline.taken_seconds:.0f} s after the start of "
                f"the run, and their deadline was {self.deadline.allowed_seconds:.0f} s"
            )
        if self.deadline is not None and self.deadline.promised < self.deadline.transfers:
            found.append(
                f"the endpoint promised the deadline of only {self.deadline.promised} of "
                f"{self.deadline.transfers} transfers"
            )
        return found

    def _twice_max(self, leg: Leg) -> int:
        """Return the maximum of ``leg.twice``: overhead, and data that was not durable."""
        overhead = leg.bytes // 100 + MIB
        is_first = self.legs.index(leg) == 0
        if self.fault is None or not is_first:
            return overhead
        return overhead + max(0, self.fault.carried - self.fault.durable)

    def to_json(self) -> str:
        """Return the report as one JSON object on one line."""
        problems = self.problems()
        words: dict[str, Any] = {"ok": not problems, "problems": problems}
        words |= dataclasses.asdict(self)
        for each, leg in zip(words["legs"], self.legs, strict=True):
            each["twice"] = leg.twice
        if self.deadline is not None:
            words["deadline"]["kept"] = self.deadline.is_kept
        return json.dumps(words)

    def to_text(self) -> str:
        """Return the report for a terminal."""
        lines = ["== Report", "storage"]
        lines += [f"  {name:9} {what}" for name, what in self.storage.items()]
        lines.append("moved")
        for leg in self.legs:
            lines.append(
                f"  {leg.task:9} {leg.files} files, {leg.bytes / MIB:.1f} MiB, {leg.source} -> "
                f"{leg.destination} in {leg.seconds:.0f} s"
            )
            lines.append(
                f"            {leg.mover}; {leg.carried / MIB:.1f} MiB sent, "
                f"{leg.twice / MIB:.2f} twice; {leg.verified} of {leg.files} checksums right"
            )
        if (fault := self.fault) is not None:
            lines.append(
                f"fault       kill -9 of the endpoint {fault.endpoint} ({fault.victim}) with "
                f"{fault.durable / MIB:.1f} MiB durable"
            )
            lines.append(
                f"            and {fault.carried / MIB:.1f} MiB sent; it was down for "
                f"{fault.down_seconds:.1f} s"
            )
        if (deadline := self.deadline) is not None:
            lines.append(
                f"deadline    {'kept' if deadline.is_kept else 'MISSED'}: rules complete after "
                f"{deadline.taken_seconds:.0f} s of {deadline.allowed_seconds:.0f} s; "
                f"{deadline.promised} of {deadline.transfers} transfers were promised"
            )
        lines.append("steps")
        lines += [f"  {seconds:6.1f} s  {name}" for name, seconds in self.steps.items()]
        lines += [f"NOT KEPT    {problem}" for problem in self.problems()]
        return "\n".join(lines)
