"""Samples of a process, the lines fitted to them, and the permitted growth."""

from __future__ import annotations

import os
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

#: First fraction of a run, which is not fitted: caches and tables are still filling.
WARM_UP = 0.25
#: Seconds of samples that are replaced by their median, because the load varies.
BLOCK_SECONDS = 5.0
#: A slope of at most this many standard errors is not a fault.
ERRORS = 3.0
MIB = 1 << 20


class Sample(NamedTuple):
    """The resources that a process used at one time."""

    seconds: float
    #: Anonymous memory in bytes. It does not include the pages of the program file.
    memory: int
    descriptors: int
    threads: int


def sample(pid: int, began: float) -> Sample:
    """Sample a process. ``began`` is the monotonic time of the first sample.

    :raises OSError: if the process has ended.
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
    """A sampled quantity, and its permitted growth over a run after the warm-up."""

    name: str
    #: Number of bytes, or of items, in one unit of the table.
    unit: int
    unit_name: str
    growth_max: float


QUANTITIES = (
    # The limit of 24 MiB allows for caches, the ring of events and memory that the allocator
    # keeps. It is estimated, not measured, and does not depend on the length of the run.
    Quantity("memory", MIB, "MiB", 24 * MIB),
    Quantity("descriptors", 1, "", 16),
    Quantity("threads", 1, "", 16),
)
#: Permitted increase of descriptors and of threads after the work.
REST_MAX = 8


@dataclass
class Slope:
    """The line that fits the medians of one quantity."""

    quantity: Quantity
    #: Slope per second, and its standard error.
    slope: float
    error: float
    seconds: float
    first: float
    last: float

    @property
    def growth(self) -> float:
        """Return the rise of the line from the first to the last median."""
        return self.slope * self.seconds

    @property
    def is_fault(self) -> bool:
        """Return whether the growth is larger than permitted, and significant."""
        return self.growth > self.quantity.growth_max and abs(self.slope) > ERRORS * self.error

    def row(self, name: str) -> str:
        """Return the row of the table for the endpoint ``name``."""
        unit = self.quantity.unit
        per_hour = f"{self.slope * 3600 / unit:+.1f} ± {self.error * 3600 / unit:.1f}"
        what = f"{self.quantity.name} {self.quantity.unit_name}".strip()
        said = "FAULT" if self.is_fault else "ok"
        ends = f"{self.first / unit:.1f} | {self.last / unit:.1f}"
        return f"| {name} | {what} | {ends} | {per_hour} | {self.growth / unit:+.1f} | {said} |"


HEAD = "| endpoint | quantity | first | last | slope per hour | growth | |\n" + "|---" * 7 + "|"


def blocks(samples: Sequence[Sample], index: int) -> list[tuple[float, float]]:
    """Return time and median of each block of samples after the warm-up."""
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
    """Fit a line to the medians of a quantity by least squares.

    :raises ValueError: if the samples after the warm-up have fewer than three blocks.
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
    """An endpoint with its samples: during, before and after the work."""

    name: str
    pid: int
    samples: list[Sample] = field(default_factory=list)
    before: Sample | None = None
    after: Sample | None = None

    def rest_faults(self) -> list[str]:
        """Return the counts that are more than ``REST_MAX`` higher than before the work."""
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
