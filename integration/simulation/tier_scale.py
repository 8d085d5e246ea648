"""The scales of the run of a tier with real file systems, and the bound of a burst."""

from __future__ import annotations

import math
from dataclasses import dataclass

MIB = 1 << 20
MB = 1_000_000


@dataclass(frozen=True)
class Scale:
    """The sizes in bytes, the rates in bytes per second, and the period in seconds."""

    capacity: int
    version: int
    write_max: int
    write_min: int
    read_max: int
    read_min: int
    period: int
    #: Seconds before the end of a period at which its versions are counted and checked.
    margin: int
    #: Additional size of the fast file system in bytes, for its journal and its inode tables.
    reserve: int
    #: Bytes of one write of an application.
    chunk: int

    @property
    def slow_write(self) -> int:
        """Return the write limit of the slow device, which is above the rate of any demotion."""
        return 3 * self.read_max


#: Scale of the paper on BBOS (docs/design/tiers.md). The sizes of the paper (S of 2.2 TB, and
#: checkpoints of 80 GB) are divided by 1000, and its bandwidths by 25.
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
#: A small scale for the tests. A version has a twelfth of S.
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
    """The measured numbers of a burst, and the bound that follows from them."""

    scale: Scale
    #: Rate of the writes in bytes per second.
    write: float
    #: Seconds until the tier found a complete version.
    found: float
    #: Seconds from the end of a demotion to the end of the next one. None if they were not
    #: measured.
    cycle: float | None = None

    def freed(self, count: int) -> int:
        """Return the number of versions demoted before the last of ``count`` is written."""
        last = (count - 1) * self.scale.version / self.write - self.found
        cycle = self.cycle or self.scale.version / self.scale.read_max
        return max(0, math.floor(last / cycle))

    def largest(self) -> int:
        """Return the largest number of versions of which a burst never fills the fast root."""
        most = self.scale.capacity // self.scale.version
        count = most
        while (count + 1 - self.freed(count + 1)) * self.scale.version <= self.scale.capacity:
            count += 1
            if count > 8 * most:
                break
        return count


def ideal(scale: Scale) -> Burst:
    """Return a burst without any delay."""
    return Burst(scale, scale.write_min, 0.0)
