"""Figures 8 to 10 of FT-LADS: movers that are killed at a part of the copy, and continue.

All movers share one private network, whose rate is limited by ``tc``, so that a copy without a
fault takes the same time with each of them. A fault comes at a part of this time.
"""

from __future__ import annotations

import contextlib
import shutil
import statistics
import subprocess
import time
from typing import TYPE_CHECKING

from integration.bench.recovery_data import Kept, Key, Sample, arrived, difference

if TYPE_CHECKING:
    from collections.abc import Iterator

    from integration.bench.recovery_movers import Mover, Scene

#: Parts of the copy at which the faults come (FT-LADS, section VI-D), in percent.
POINTS = (20, 40, 60, 80)
#: A copy may take this many times the pace, and some seconds more.
PATIENCE = 5
PATIENCE_SECONDS = 45.0
POLL_SECONDS = 0.02
#: Bytes in a burst and longest queue of the limited network. A packet of the loopback has 64 KiB.
BURST, LATENCY = "1mb", "100ms"


@contextlib.contextmanager
def limited(rate: float) -> Iterator[None]:
    """Limit the loopback of the private network of this process to ``rate`` bytes per second."""
    words = ["tc", "qdisc", "replace", "dev", "lo", "root", "tbf", "rate", f"{rate * 8:.0f}bit"]
    subprocess.run([*words, "burst", BURST, "latency", LATENCY], check=True)
    try:
        yield
    finally:
        subprocess.run(["tc", "qdisc", "del", "dev", "lo", "root"], check=True)


def case_of(mover: Mover, side: str = "", point: int = 0) -> str:
    """Return the case of a run: the mover, and the side and the point of the fault."""
    return f"{mover.name}/{side}/{point}" if side else f"{mover.whole}/whole"


def await_end(mover: Mover, began: float, limit: float) -> None:
    """Wait until a mover is done.

    :raises RuntimeError: if this takes longer than ``limit`` seconds.
    """
    while not mover.is_done():
        if time.monotonic() - began > limit:
            raise RuntimeError(f"no end after {limit:.0f} s")
        time.sleep(POLL_SECONDS)


def run(
    mover: Mover, scene: Scene, pace: float, side: str = "", after: float = 0.0
) -> dict[str, float]:
    """Run a mover once, with a fault after ``after`` seconds if a side is given.

    :raises RuntimeError: if the mover fails, or the destination is not complete.
    """
    limit = PATIENCE * pace + PATIENCE_SECONDS
    values: dict[str, float] = {}
    shutil.rmtree(scene.folder, ignore_errors=True)
    scene.folder.mkdir(parents=True)
    mover.open(scene)
    try:
        began = time.monotonic()
        mover.start()
        if side:
            while (left := began + after - time.monotonic()) > 0:
                if mover.is_done():
                    raise RuntimeError(f"done before the fault at {after:.1f} s")
                time.sleep(min(POLL_SECONDS, left))
            mover.kill(side)
            values["before"] = time.monotonic() - began
            values["arrived"] = arrived(mover.sink) / scene.one.size
            values |= mover.mend(side)
            began = time.monotonic()
            mover.resume(side)
            await_end(mover, began, limit)
            values["after"] = time.monotonic() - began
        else:
            await_end(mover, began, limit)
            values["seconds"] = time.monotonic() - began
        if wrong := difference(scene.one, mover.sink):
            raise RuntimeError(f"the destination has {wrong}")
    finally:
        mover.close()
    return values


def whole_seconds(kept: Kept, key: Key, mover: Mover) -> float | None:
    """Return TT: the median time of the copies without a fault, or None without such a copy."""
    found = [
        each.values["seconds"]
        for each in kept.good("recovery", key.set, case_of(mover))
        if (each.key.pace, each.key.files) == (key.pace, key.files)
    ]
    return statistics.median(found) if found else None


def cases(movers: list[Mover]) -> list[tuple[Mover, str, int]]:
    """List the runs of a round: first the whole copies, then the faults, interleaved by mover."""
    whole = [mover for mover in movers if mover.whole == mover.name]
    found: list[tuple[Mover, str, int]] = [(mover, "", 0) for mover in whole]
    for point in POINTS:
        for side in ("source", "sink", "client"):
            found += [(mover, side, point) for mover in movers if side in mover.sides]
    return found


def sample(kept: Kept, mover: Mover, scene: Scene, key: Key, side: str, point: int) -> Sample:
    """Run one case, and return its sample. A failure is a sample with an error."""
    after = 0.0
    if side:
        whole = whole_seconds(kept, key, mover)
        if whole is None:
            return Sample(key, error="no copy without a fault succeeded")
        after = whole * point / 100
    try:
        with limited(scene.one.size / key.pace):
            return Sample(key, run(mover, scene, key.pace, side, after))
    except (RuntimeError, OSError, TimeoutError, AssertionError) as error:
        return Sample(key, error=str(error)[:400])
