"""Sizes and rates of the experiment in :mod:`tier_real`, and the largest burst that fits."""

from __future__ import annotations

import math
from dataclasses import dataclass

MIB = 1 << 20
MB = 1_000_000


@dataclass(frozen=True)
class Scale:
    """Sizes in bytes, rates in bytes per second, and a period in seconds."""

    capacity: int
    version: int
    write_max: int
    write_min: int
    read_max: int
    read_min: int
    period: int
    #: Seconds before the end of a period at which the state of its versions is counted.
    margin: int
    #: Bytes of the fast file system beside ``capacity``, for its journal and inode tables.
    reserve: int
    #: Bytes of one write call of an application.
    chunk: int

    @property
    def slow_write(self) -> int:
        """Return the write limit of the slow device, which is above the rate of a demotion."""
        return 3 * self.read_max


#: The paper on BBOS (docs/design/tiers.md), with sizes divided by 1000 and bandwidths by 25. In the
#: paper, a checkpoint has 80 GB. The paper does not state the capacity S of the fast tier; 2.2 TB
#: is assumed.
PAPER = Scale(
    capacity=2200 * MB,
    version=80 * MB,
    write_max=142_400_000,
    write_min=120 * MB,
    read_max=64 * MB,
    read_min=3_200_000,
    period=88,
    margin=12,
    reserve=136 * MIB,
    chunk=4 * MIB,
)
#: Small sizes for the tests. Twelve versions fit into S.
SMALL = Scale(
    capacity=256 * MIB,
    version=256 * MIB // 12,
    write_max=26 * MIB + 700 * 1024,
    write_min=22 * MIB + 512 * 1024,
    read_max=12 * MIB,
    read_min=615 * 1024,
    period=60,
    margin=2,
    reserve=34 * MIB,
    chunk=MIB,
)


@dataclass(frozen=True)
class Burst:
    """The measured rate and delays of a burst, and the largest burst that fits."""

    scale: Scale
    #: Bytes per second that the applications wrote.
    write: float
    #: Seconds from the end of a version until the tier finds that the version is complete.
    found: float
    #: Seconds between the ends of two demotions. None if not measured.
    cycle: float | None = None

    def freed(self, count: int) -> int:
        """Return how many versions are demoted when the write of the last of ``count`` begins."""
        last = (count - 1) * self.scale.version / self.write - self.found
        cycle = self.cycle or self.scale.version / self.scale.read_max
        return max(0, math.floor(last / cycle))

    def largest(self) -> int:
        """Return the number of versions in the largest burst that fits into the fast root."""
        most = self.scale.capacity // self.scale.version
        count = most
        while (count + 1 - self.freed(count + 1)) * self.scale.version <= self.scale.capacity:
            count += 1
            if count > 8 * most:
                break
        return count


def ideal(scale: Scale) -> Burst:
    """Return a burst at ``write_min`` without delays."""
    return Burst(scale, scale.write_min, 0.0)
