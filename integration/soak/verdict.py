"""Samples of a process, fitted lines, and permitted growth."""

from __future__ import annotations

import os
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Fraction of a run in which pools fill and tables reach their size.
WARM_UP = 0.25
#: Length of a block of samples in seconds, within which the load varies.
BLOCK_SECONDS = 5.0
#: Number of standard errors up to which a slope is insignificant.
ERRORS = 3.0
MIB = 1 << 20


class Sample(NamedTuple):
    """The state of a process at a moment."""

    seconds: float
    #: Anonymous memory in bytes: heap, stacks and buffers, without the pages of the program file.
    memory: int
    descriptors: int
    threads: int


def sample(pid: int, began: float) -> Sample:
    """Sample a process.

    :raises OSError: if it has ended.
    """
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    found = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    return Sample(
        time.monotonic() - began,
        int(found["RssAnon"].split()[0]) << 10,
        len(os.listdir(f"/proc/{pid}/fd")),
        int(found["Threads"]),
    )


@dataclass(frozen=True)
class Quantity:
    """A measured quantity, and its permitted growth over a run without the warm-up."""

    name: str
    #: Size of the unit in the table.
    unit: int
    unit_name: str
    growth_max: float


QUANTITIES = (
    # The queue's caches fill up to 2.5 MiB, the ring of events to 16 MiB, and allocators keep what
    # they had: 24 MiB over any run, long or short. The value is estimated, not measured.
    Quantity("memory", MIB, "MiB", 24 * MIB),
    Quantity("descriptors", 1, "", 16),
    Quantity("threads", 1, "", 16),
)
#: Maximum increase of counts after the work, for idle connections and sleeping workers.
REST_MAX = 8


@dataclass
class Slope:
    """A line through the medians of blocks."""

    quantity: Quantity
    #: Slope per second, and its standard error.
    slope: float
    error: float
    seconds: float
    first: float
    last: float

    @property
    def growth(self) -> float:
        """Return the rise of the line over the run."""
        return self.slope * self.seconds

    @property
    def is_fault(self) -> bool:
        """True if it grew significantly by more than permitted."""
        return self.growth > self.quantity.growth_max and abs(self.slope) > ERRORS * self.error

    def row(self, name: str) -> str:
        """Return its line of the table."""
        unit = self.quantity.unit
        per_hour = f"{self.slope * 3600 / unit:+.1f} ± {self.error * 3600 / unit:.1f}"
        what = f"{self.quantity.name} {self.quantity.unit_name}".strip()
        said = "FAULT" if self.is_fault else "ok"
        ends = f"{self.first / unit:.1f} | {self.last / unit:.1f}"
        return f"| {name} | {what} | {ends} | {per_hour} | {self.growth / unit:+.1f} | {said} |"


HEAD = "| endpoint | quantity | first | last | slope per hour | growth | |\n" + "|---" * 7 + "|"


def blocks(samples: Sequence[Sample], index: int) -> list[tuple[float, float]]:
    """Return the median of each block of time, after the warm-up."""
    if not samples:
        return []
    begin = samples[-1].seconds * WARM_UP
    found: dict[int, list[Sample]] = {}
    for each in samples:
        if each.seconds >= begin:
            found.setdefault(int(each.seconds // BLOCK_SECONDS), []).append(each)
    return [
        (
            statistics.fmean(each.seconds for each in block),
            statistics.median(float(each[index]) for each in block),
        )
        for block in found.values()
    ]


def fit(samples: Sequence[Sample], quantity: Quantity) -> Slope:
    """Fit a line by least squares.

    :raises ValueError: with fewer than three blocks
    """
    points = blocks(samples, Sample._fields.index(quantity.name))
    if len(points) < 3:
        raise ValueError(f"{len(points)} blocks of {BLOCK_SECONDS:g} s are too few for a slope")
    times, values = zip(*points, strict=True)
    slope, offset = statistics.linear_regression(times, values)
    middle = statistics.fmean(times)
    spread = sum((at - middle) ** 2 for at in times)
    rest = sum((value - offset - slope * at) ** 2 for at, value in points)
    error = (rest / (len(points) - 2) / spread) ** 0.5
    return Slope(quantity, slope, error, times[-1] - times[0], values[0], values[-1])


@dataclass
class Watched:
    """An observed endpoint."""

    name: str
    pid: int
    samples: list[Sample] = field(default_factory=list)
    before: Sample | None = None
    after: Sample | None = None

    def rest_faults(self) -> list[str]:
        """Return the counts that are higher than before the work."""
        assert self.before is not None
        assert self.after is not None
        return [
            f"{self.name}: {after - before} more {name} at rest than before the work"
            for name, before, after in (
                ("descriptors", self.before.descriptors, self.after.descriptors),
                ("threads", self.before.threads, self.after.threads),
            )
            if after - before > REST_MAX
        ]
