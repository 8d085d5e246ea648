"""Compares copies by dray and other tools, to and from four loop-mounted disks, one of them slow.

``python -m integration.bench.disks`` prints the tables of docs/explanation/measured-disks.md. The
program needs root, loop devices and blkio (cgroup v1). Each disk has a separate file system. The
blkio controller limits the rates of reads and writes of each device.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from integration.bench.begin import catch_signals
from integration.bench.beside import Results, command_of, drop_caches, find_engine
from integration.harness.loop import Disk, disk, limits_reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MIB = 1 << 20
DISKS = 4
#: Index of the slow disk. It is the second disk, so that a copy in file order reaches it early.
SLOW = 1


@dataclass(frozen=True)
class Sizes:
    """Sizes of the data, and rates of the disks, in one measurement."""

    files: int = 48
    file_bytes: int = 8 * MIB
    #: Rate of each disk except the slow disk, in bytes per second.
    rate: int = 20 * MIB
    #: Rate of the slow disk in bytes per second.
    slow_rate: int = 5 * MIB
    pool: str = "32MiB"

    @property
    def disk_bytes(self) -> int:
        """Size of each disk in bytes. Its part of the data fits twice."""
        return 2 * self.files * self.file_bytes // DISKS + 256 * MIB


@dataclass(frozen=True)
class Ended:
    """Seconds from the start of a copy until two events.

    ``others``: the last object of the fast disks was sent. ``whole``: the copy has ended.
    ``files``: number of files that are on fast disks only. If both ends are on disks, each end
    places the files by itself, so this number may differ between runs.
    """

    others: float
    whole: float
    files: int

    @property
    def per_file(self) -> float:
        """Seconds per file on the fast disks."""
        return self.others / self.files


@contextlib.contextmanager
def disks(top: Path, size: int, count: int = DISKS) -> Iterator[list[Disk]]:
    """Mount ``count`` disks below ``top``."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(disk(top / f"d{number}", size)) for number in range(count)]


def url(mounted: Sequence[Disk], path: str) -> str:
    """Return the URL of a path on the disks."""
    return f"disks://{','.join(str(one.folder) for one in mounted)}//{path}"


def limit(mounted: Sequence[Disk], rate: int, slow: int | None = None) -> None:
    """Limit all disks to ``rate``, and the slow disk to ``slow``."""
    for number, one in enumerate(mounted):
        here = slow if slow is not None and number == SLOW else rate
        one.limit(here, here)


def make_files(top: Path, sizes: Sizes) -> Path:
    """Make the files to copy. Return their folder."""
    top.mkdir(parents=True)
    block = os.urandom(sizes.file_bytes)
    for number in range(sizes.files):
        (top / f"{number:04}").write_bytes(number.to_bytes(8, "little") + block[8:])
    return top


def places(mounted: Sequence[Disk], below: str) -> dict[str, int]:
    """Return the index of the disk of each file, by the name of the file."""
    found = {}
    for number, one in enumerate(mounted):
        for file in (one.folder / below).glob("*"):
            found[file.name] = number
    return found


def copy(source: str, target: str, order: str, sizes: Sizes, trace: Path) -> float:
    """Copy with dray. Return the seconds of the whole command."""
    words = [find_engine(), "cp", "-r", source, target, "--order", order, "--direct-io"]
    words += ["--pool", sizes.pool, "--trace", trace, "--progress", "none"]
    began = time.monotonic()
    done = subprocess.run(
        [str(word) for word in words], check=False, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise RuntimeError(f"dray ended with {done.returncode}: {done.stderr}")
    return time.monotonic() - began


def last_sent(trace: Path, fast: set[str]) -> float:
    """Return the second at which the last object of the files ``fast`` was sent."""
    names, last = {}, 0.0
    for line in map(json.loads, trace.read_text(encoding="utf-8").splitlines()):
        if "path" in line:
            names[line["file"]] = line["path"].rsplit("/", 1)[-1]
        for part in line.get("parts", []):
            if names[part["file"]] in fast:
                last = max(last, line["at_us"] / 1e6)
    return last


class Bench:
    """Two sets of disks, ``into`` and ``out_of``, and the data to copy."""

    def __init__(self, top: Path, sizes: Sizes, stack: contextlib.ExitStack) -> None:
        """Mount the disks and make the data."""
        self.top, self.sizes = top, sizes
        self.data = make_files(top / "data", sizes)
        self.into = stack.enter_context(disks(top / "into", sizes.disk_bytes))
        self.out_of = stack.enter_context(disks(top / "from", sizes.disk_bytes))
        copy(f"{self.data}/", url(self.out_of, "data/"), "layout", sizes, top / "trace")

    def run(self, way: str, order: str, *, is_slow: bool) -> Ended:
        """Copy once. ``way`` names the ends on disks: ``sink``, ``source`` or ``both``."""
        trace, plain = self.top / "trace", self.top / "plain"
        source = url(self.out_of, "data/") if way != "sink" else f"{self.data}/"
        target = url(self.into, "copy/") if way != "source" else f"{plain}/"
        ends = [self.into] if way == "sink" else [self.out_of]
        if way == "both":
            ends.append(self.into)
        drop_caches()
        for end in ends:
            limit(end, self.sizes.rate, self.sizes.slow_rate if is_slow else None)
        try:
            whole = copy(source, target, order, self.sizes, trace)
        finally:
            for end in ends:
                limit(end, 0)
        slow = {
            name
            for end, below in ((self.out_of, "data"), (self.into, "copy"))
            if end in ends
            for name, number in places(end, below).items()
            if number == SLOW
        }
        fast = {file.name for file in self.data.iterdir()} - slow
        for folder in [plain, *(one.folder / "copy" for one in self.into)]:
            shutil.rmtree(folder, ignore_errors=True)
        return Ended(last_sent(trace, fast), whole, len(fast))


@contextlib.contextmanager
def bench(sizes: Sizes, folder: Path | None = None) -> Iterator[Bench]:
    """Mount the disks and make the data in a new folder."""
    with tempfile.TemporaryDirectory(dir=folder) as top, contextlib.ExitStack() as stack:
        yield Bench(Path(top), sizes, stack)


def congestion(sizes: Sizes, rounds: int, results: Results) -> None:
    """Measure copies with one slow disk, and print the table."""
    kept: dict[str, list[list[dict[str, float]]]] = {}
    results.tables["a slow disk"] = kept
    print(
        "| slow disk | fast disks undisturbed, s | layout, s | file, s | layout / undisturbed "
        "| file / layout | whole copy, layout, s | file, s |"
    )
    print("|---|---|---|---|---|---|---|---|")
    with bench(sizes) as it:
        for way in ("sink", "source", "both"):
            runs = [
                (
                    it.run(way, "layout", is_slow=False),
                    it.run(way, "layout", is_slow=True),
                    it.run(way, "file", is_slow=True),
                )
                for _ in range(rounds)
            ]
            kept[way] = [[dataclasses.asdict(ended) for ended in each] for each in runs]
            calm, layout, file = (statistics.median(r[i].others for r in runs) for i in range(3))
            by_file = [statistics.median(r[i].per_file for r in runs) for i in range(3)]
            wholes = [statistics.median(r[i].whole for r in runs) for i in (1, 2)]
            print(
                f"| {way} | {calm:.2f} | {layout:.2f} | {file:.2f} | {by_file[1] / by_file[0]:.2f} "
                f"| {by_file[2] / by_file[1]:.2f} | {wholes[0]:.1f} | {wholes[1]:.1f} |",
                flush=True,
            )


def timed(*words: str | Path) -> float:
    """Run a command. Return its duration in seconds."""
    began = time.monotonic()
    subprocess.run([str(word) for word in words], check=True, capture_output=True)
    return time.monotonic() - began


def speed(sizes: Sizes, rounds: int, rate: int, results: Results) -> None:
    """Measure and print the seconds of copies into disks of ``rate`` bytes per second."""
    parts = [f"{number:04}" for number in range(sizes.files)]
    with bench(sizes) as it:
        folders = [one.folder for one in it.into]

        def parallel(tool: str) -> str:
            """Return a command that copies a quarter of the files to each disk, concurrently."""
            lines = [
                f"(cd {it.data} && {tool} {' '.join(parts[at::DISKS])} {folder}/copy/) &"
                for at, folder in enumerate(folders)
            ]
            made = " ".join(f"{folder}/copy" for folder in folders)
            return f"mkdir -p {made}; {' '.join(lines)} wait; sync -f {' '.join(map(str, folders))}"

        ways: dict[str, Sequence[str | Path]] = {
            "cp -r, one disk": [
                "sh",
                "-c",
                f"cp -r {it.data} {folders[0]}/copy; sync -f {folders[0]}",
            ],
            "rsync -r, one disk": [
                "sh",
                "-c",
                f"rsync -r {it.data}/ {folders[0]}/copy/; sync -f {folders[0]}",
            ],
            "four cp, one for each disk": ["sh", "-c", parallel("cp")],
            "four rsync, one for each disk": ["sh", "-c", parallel("rsync")],
            "**dray**, four disks": [
                find_engine(),
                "cp",
                "-r",
                f"{it.data}/",
                url(it.into, "copy/"),
            ],
        }
        taken: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, words in ways.items():
                drop_caches()
                subprocess.run(["sh", "-c", f"cat {it.data}/* > /dev/null"], check=True)
                limit(it.into, rate)
                try:
                    taken[name].append(timed(*words))
                finally:
                    limit(it.into, 0)
                for folder in folders:
                    shutil.rmtree(folder / "copy", ignore_errors=True)
        results.tables[f"seconds of copies, disks of {rate} bytes/s"] = taken
        print("| command | seconds | MB/s |")
        print("|---|---|---|")
        total = sizes.files * sizes.file_bytes
        for name, seconds in taken.items():
            middle = statistics.median(seconds)
            print(f"| {name} | {middle:.2f} | {total / middle / 1e6:.0f} |")


def main() -> None:
    """Run the measurements."""
    prog = "python -m integration.bench.disks"
    parser = argparse.ArgumentParser(prog=prog, description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["congestion", "speed"])
    parser.add_argument("--files", type=int, default=Sizes.files)
    parser.add_argument("--json", type=Path, help="file for the results")
    arguments = parser.parse_args()
    if limits_reason():
        raise SystemExit(limits_reason())
    sizes = Sizes(files=arguments.files)
    catch_signals()
    results = Results(command_of(parser, arguments))
    if arguments.only != "speed":
        congestion(sizes, arguments.rounds, results)
        results.write(arguments.json)
    if arguments.only != "congestion":
        for rate in (100 * MIB, 0):
            print(f"\nDisks of {rate // MIB} MiB/s (0: no limit)\n")
            speed(sizes, arguments.rounds, rate, results)
            results.write(arguments.json)


if __name__ == "__main__":
    main()
