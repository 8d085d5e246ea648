"""Compare two builds of dray: medians, and the median ratio of interleaved pairs.

``python -m integration.bench versions --before PROGRAM`` copies each data set with both programs in
each turn. The program that runs first alternates from turn to turn. A ratio of seconds below 1
means that the newer program is faster. Both programs run under the same load, so the ratios are
steadier than the times.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from integration.bench import datasets
from integration.bench.begin import TMPFS, names_of
from integration.harness.program import Bench, find_program

if TYPE_CHECKING:
    from collections.abc import Iterator

    from integration.harness.program import Ended, Word

#: Ways to copy: locally in one process, to ``dray serve`` without encryption, and with encryption.
WAYS = ("copy", "clear", "tls")


@dataclass(frozen=True)
class Sample:
    """One copy: wall seconds, and CPU seconds of all processes."""

    seconds: float
    cpu_seconds: float


def copy_once(program: Path, way: str, source: Path, folder: Path) -> Sample:
    """Copy a folder into a new one, check the number of bytes, and remove the copy."""
    sink = folder / "sink"
    sink.mkdir()
    state = folder / "state"
    state.mkdir()
    bench = Bench(state, program)
    try:
        servers: list[Ended] = []
        if way == "copy":
            copied = bench.cp("-r", f"{source}/", sink)
        else:
            may: list[Word] = ["--allow-clear-data"] if way == "clear" else []
            clear: list[Word] = ["--clear-data"] if way == "clear" else []
            server = bench.serve(sink, *may)
            to = f"dray://{server.address}/"
            copied = bench.cp("-r", f"{source}/", to, *clear, *bench.peer(server))
            servers = [server.stop()]
        copied.expect(0)
        return Sample(
            copied.seconds, copied.cpu_seconds + sum(each.cpu_seconds for each in servers)
        )
    finally:
        bench.close()
        shutil.rmtree(sink)
        shutil.rmtree(state)


def pairs_of(
    before: Path, after: Path, way: str, source: Path, folder: Path, rounds: int
) -> Iterator[tuple[Sample, Sample]]:
    """Yield one sample of each program per round. The first program alternates."""
    for turn in range(rounds):
        if turn % 2:
            newer = copy_once(after, way, source, folder)
            yield copy_once(before, way, source, folder), newer
        else:
            older = copy_once(before, way, source, folder)
            yield older, copy_once(after, way, source, folder)


def row(name: str, way: str, pairs: list[tuple[Sample, Sample]]) -> str:
    """Return a line with the medians of one data set and way."""
    before = statistics.median(older.seconds for older, _ in pairs)
    after = statistics.median(newer.seconds for _, newer in pairs)
    ratio = statistics.median(newer.seconds / older.seconds for older, newer in pairs)
    cpu = statistics.median(newer.cpu_seconds / older.cpu_seconds for older, newer in pairs)
    return f"{name:3}  {way:5}  {before:8.3f}  {after:8.3f}  {ratio:7.3f}  {cpu:7.3f}\n"


def options() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    words = argparse.ArgumentParser(
        prog="python -m integration.bench versions",
        description="Compare two builds of dray in interleaved pairs of copies.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    words.add_argument("--before", type=Path, required=True, help="the older program")
    words.add_argument("--after", type=Path, help="the newer program (default: this tree's)")
    sets = list(datasets.USUAL)
    words.add_argument(
        "--sets", type=names_of(sets, "set"), default=["a", "d"], help="by commas", metavar="NAMES"
    )
    words.add_argument(
        "--ways",
        type=names_of(list(WAYS), "way"),
        default=list(WAYS),
        help="by commas",
        metavar="NAMES",
    )
    words.add_argument("--scale", type=float, default=0.25, help="how much of each set")
    words.add_argument("--rounds", type=int, default=7, help="pairs of each set and way")
    words.add_argument("--where", type=Path, default=TMPFS, help="a folder with space for two sets")
    return words


def main(arguments: list[str]) -> int:
    """Copy with both programs, and print the medians."""
    given = options().parse_args(arguments)
    after = given.after or find_program()
    sys.stdout.write("set  way    before s   after s    ratio  CPU ratio\n")
    for name in given.sets:
        with tempfile.TemporaryDirectory(dir=given.where) as made:
            folder = Path(made)
            data = datasets.make(folder, name, given.scale)
            for way in given.ways:
                # The first copy of each program warms the memory.
                copy_once(given.before, way, data.path, folder)
                copy_once(after, way, data.path, folder)
                pairs = list(pairs_of(given.before, after, way, data.path, folder, given.rounds))
                sys.stdout.write(row(name, way, pairs))
                sys.stdout.flush()
    return 0
