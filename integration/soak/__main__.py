"""Run the soak from the command line."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from dray.testing.endpoints import Endpoint
from integration.harness import host
from integration.harness.program import find_program
from integration.soak.verdict import HEAD, QUANTITIES, Slope, Watched, fit, sample
from integration.soak.work import KINDS, WORKERS, Pair, Worker

if TYPE_CHECKING:
    from collections.abc import Sequence

SAMPLE_SECONDS = 0.5
#: Maximum seconds to wait until sessions of killed clients end and idle connections time out.
REST_SECONDS = 45.0
LIMITS = {"memory": "128MiB", "transfers_active": 8}


@dataclass
class Verdict:
    """The result of a soak."""

    slopes: dict[str, list[Slope]]
    work: Counter[str]
    watched: list[Watched]
    faults: list[str] = field(default_factory=list)

    def table(self) -> str:
        """Return the slopes, the work and the faults as text."""
        rows = [slope.row(name) for name, slopes in sorted(self.slopes.items()) for slope in slopes]
        work = ", ".join(f"{count} {kind}" for kind, count in sorted(self.work.items()))
        rest = [
            f"{each.name} at rest: {name} {getattr(each.before, name)} before the work, "
            f"{getattr(each.after, name)} after it"
            for each in self.watched
            for name in ("descriptors", "threads")
        ]
        said = self.faults or ["no fault"]
        total = f"{sum(self.work.values())} pieces of work: {work}"
        return "\n".join([HEAD, *rows, total, *rest, *said])


def soak(minutes: float, seed: int, folder: Path, program: Path) -> Verdict:
    """Keep two endpoints busy for ``minutes``. Return the verdict on their growth."""
    os.environ["DRAY_PROGRAM"] = str(program)
    ends = [
        Endpoint(folder / name, name, config={"limits": LIMITS}, program=program).start()
        for name in ("one", "two")
    ]
    try:
        return _soak(minutes, seed, folder, program, ends)
    finally:
        for end in ends:
            end.close()


def _soak(minutes: float, seed: int, folder: Path, program: Path, ends: list[Endpoint]) -> Verdict:
    pair = Pair(ends[0], ends[1], folder, program)
    is_over = threading.Event()
    workers = [Worker(pair, number, seed, is_over) for number in range(WORKERS)]
    # Do each kind of work once: one-time allocations must precede the first sample.
    for kind in KINDS:
        workers[0].work(kind)
    watched = [Watched(end.name, end.pid) for end in ends]
    began = time.monotonic()
    _rest(watched, began, 2.0)
    for each in watched:
        each.before = sample(each.pid, began)
    began = time.monotonic()
    for worker in workers:
        worker.start()
    while time.monotonic() < began + minutes * 60 and all(end.is_running for end in ends):
        for each in watched:
            each.samples.append(sample(each.pid, began))
        time.sleep(SAMPLE_SECONDS)
    is_over.set()
    for worker in workers:
        worker.join()
    faults = [fault for worker in workers for fault in worker.faults]
    faults += [f"{end.name} ended with {end.exit_code}" for end in ends if not end.is_running]
    slopes: dict[str, list[Slope]] = {}
    if not faults:
        _rest(watched, began, REST_SECONDS)
        for each in watched:
            slopes[each.name] = [fit(each.samples, quantity) for quantity in QUANTITIES]
            faults += each.rest_faults()
            grown = [slope for slope in slopes[each.name] if slope.is_fault]
            faults += [f"{each.name}: {slope.quantity.name} grows" for slope in grown]
    return Verdict(slopes, sum((worker.done for worker in workers), Counter()), watched, faults)


def _rest(watched: list[Watched], began: float, seconds: float) -> None:
    """Sample until each process has rested, at most for ``seconds``."""
    until = time.monotonic() + seconds
    while True:
        for each in watched:
            each.after = sample(each.pid, began)
        if time.monotonic() > until or (
            all(each.before is not None and not each.rest_faults() for each in watched)
        ):
            return
        time.sleep(SAMPLE_SECONDS)


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m integration.soak",
        description="Keep two endpoints busy; say whether memory, descriptors or threads grow.",
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="default: 10")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--program", type=Path, help="default: the release program of this tree")
    parser.add_argument("--json", type=Path, help="write the samples there, one object a line")
    return parser.parse_args(words)


def main() -> int:
    """Run the soak. Return the exit code 1 if the verdict has a fault."""
    given = arguments()
    host.clean_up_when_ended()
    program = (given.program or find_program()).resolve()
    with tempfile.TemporaryDirectory(
        prefix="dray-soak-", dir=os.environ.get("DRAY_TEST_DIR")
    ) as name:
        verdict = soak(given.minutes, given.seed, Path(name), program)
    print(verdict.table())
    if given.json:
        with given.json.open("w") as file:
            for each in verdict.watched:
                for one in each.samples:
                    print(json.dumps({"endpoint": each.name, **one._asdict()}), file=file)
    return 1 if verdict.faults else 0


if __name__ == "__main__":
    sys.exit(main())
