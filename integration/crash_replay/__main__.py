"""Record and replay from the command line."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from integration.crash_replay.record import OPTIONS, SIZES, Copier, Data, record
from integration.crash_replay.replay import WAYS, points, replay
from integration.harness import fuse_block, host
from integration.harness.program import Bench, find_program

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from integration.crash_replay.record import Way
    from integration.crash_replay.replay import Outcome

EXAMPLES = """\
examples:
  python -m integration.crash_replay --images 50                    50 images of each way
  python -m integration.crash_replay --way xfs-object-cp --images 300 --seed 7
  python -m integration.crash_replay --way ext4-file-cp --points 120:torn,200:some

A recording differs from run to run (threads, timers), so a seed repeats the choice of points and
subsets, not the very same bytes. --keep keeps the images that came to a fault.
"""


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m integration.crash_replay",
        description="Lose the power at random moments of a copy onto ext4 and XFS. Needs root.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [str(way) for way in WAYS]
    parser.add_argument("--way", action="append", choices=names, help="repeatable; default: all")
    parser.add_argument("--images", type=int, default=25, help="of each way")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--points", help="POINT:SHAPE, by commas, instead of random ones")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep images with faults there")
    parser.add_argument("--program", type=Path, help="default: the release program of this tree")
    parser.add_argument("--json", type=Path, help="write one JSON object for each image there")
    return parser.parse_args(words)


def lose_power(
    way: Way, bench: Bench, data: Data, folder: Path, images: int, seed: int, given: str | None
) -> Iterator[Outcome]:
    """Record one copy, and replay a power loss at the chosen points of the recording."""
    copier = Copier(bench, data, way)
    where = folder / str(way)
    with fuse_block.faulty_disk(where, way.kind, SIZES[way.kind], OPTIONS[way.kind]) as disk:
        recording = record(disk, where, copier)
        chosen = points(recording, images, seed)
        if given:
            pairs = (each.split(":") for each in given.split(","))
            chosen = sorted((int(point), shape) for point, shape in pairs)
        yield from replay(disk, recording, copier, where, chosen, seed)


def main() -> int:
    """Record and replay all ways. Return 1 if an image has a fault."""
    given = arguments()
    host.clean_up_when_ended()
    ways = [way for way in WAYS if given.way is None or str(way) in given.way]
    for kind in sorted({way.kind for way in ways}):
        reason = fuse_block.reason_to_skip(kind)
        if reason is not None:
            print(f"cannot replay on {kind}: {reason}", file=sys.stderr)
            return 3
    program = (given.program or find_program()).resolve()
    bad = 0
    with contextlib.ExitStack() as stack:
        report = stack.enter_context(given.json.open("w")) if given.json else None
        folder = Path(
            stack.enter_context(
                tempfile.TemporaryDirectory(
                    prefix="dray-crash-", dir=os.environ.get("DRAY_TEST_DIR")
                )
            )
        )
        bench = Bench(folder, program)
        stack.callback(bench.close)
        data = Data(folder / "data")
        print("| way | images | shapes | sent again at most, MiB | faults | seconds |")
        print("|---|---|---|---|---|---|")
        for way in ways:
            began, outcomes = time.monotonic(), []
            for outcome in lose_power(
                way, bench, data, folder, given.images, given.seed, given.points
            ):
                outcomes.append(outcome)
                if report is not None:
                    print(outcome.line(), file=report, flush=True)
                for fault in outcome.faults:
                    print(f"{outcome.name}: {fault}", file=sys.stderr)
                if outcome.faults and given.keep:
                    given.keep.mkdir(parents=True, exist_ok=True)
                    name = outcome.name.replace("/", "-")
                    (folder / str(way) / "crashed").rename(given.keep / name)
            print(_row(str(way), outcomes, time.monotonic() - began), flush=True)
            bad += sum(bool(outcome.faults) for outcome in outcomes)
    return 1 if bad else 0


def _row(name: str, outcomes: list[Outcome], seconds: float) -> str:
    shapes = Counter(outcome.shape for outcome in outcomes)
    said = ", ".join(f"{count} {shape}" for shape, count in sorted(shapes.items()))
    most = max((outcome.bytes_sent for outcome in outcomes), default=0) / (1 << 20)
    bad = sum(bool(outcome.faults) for outcome in outcomes)
    return f"| {name} | {len(outcomes)} | {said} | {most:.1f} | {bad} | {seconds:.0f} |"


if __name__ == "__main__":
    sys.exit(main())
