"""Measure whether io_uring would write small files faster: seconds and CPU seconds for each way.

``python -m integration.bench.uring FOLDER`` makes files below ``FOLDER``, in turns: ``calls`` by
one system call after the other, as dray does; ``ring`` by batches of linked requests. Needs a C
compiler and ``liburing-dev``.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")
WAYS = ("calls", "ring")


def used() -> float:
    """Return the processor seconds of ended children."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


def run(program: Path, way: str, folder: Path, args: argparse.Namespace) -> tuple[float, float]:
    """Make all files in one way. Return seconds and CPU seconds."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        numbers = map(str, (args.files, args.bytes, args.batch))
        words = [str(program), way, place, *numbers]
        before = used()
        ended = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
        return float(ended.stdout), used() - before


def main() -> int:
    """Measure both ways, and print the results."""
    parser = argparse.ArgumentParser(
        prog="python -m integration.bench.uring",
        description="Write small files by system calls and by io_uring, by turns.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="where the files are made, and removed again")
    parser.add_argument("--files", type=int, default=20_000, help="how many")
    parser.add_argument("--bytes", type=int, default=16 << 10, help="of each")
    parser.add_argument("--batch", type=int, default=32, help="files of one batch")
    parser.add_argument("--rounds", type=int, default=5, help="of both ways")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        program = Path(made) / "uring"
        words = ["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(program), str(SOURCE)]
        built = subprocess.run([*words, "-luring"], check=False, stderr=subprocess.PIPE, text=True)
        if built.returncode:
            sys.stderr.write(f"uring: it does not compile; is liburing-dev there?\n{built.stderr}")
            return 1
        samples: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
        for _ in range(args.rounds):
            for way in WAYS:
                os.sync()
                samples[way].append(run(program, way, args.folder, args))
    sys.stdout.write("way    seconds  CPU seconds\n")
    for way in WAYS:
        seconds, cpu = (statistics.median(column) for column in zip(*samples[way], strict=True))
        sys.stdout.write(f"{way:5}  {seconds:7.3f}  {cpu:11.3f}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
