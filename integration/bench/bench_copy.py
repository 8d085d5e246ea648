"""Measure a copy beside ``cp -r`` and ``rsync -a``: MB/s, CPU seconds per GB, peak memory.

``make bench`` runs it; ``python integration/bench/bench_copy.py --help`` lists the options. All
ways take turns within one run, so that a change of the machine's load meets all of them; medians
are printed. Every copy ends with a ``sync`` of its destination inside the measured time, because
dray does so too: what is not on stable storage has not arrived.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import stat
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from integration.harness import tree  # noqa: E402 - found by the path above
from integration.harness.program import Bench, Word, find_program, peak_memory  # noqa: E402

LINUX = Path("/usr/src/linux-source-6.1.tar.xz")
MB = 1e6
GB = 1e9


@dataclass(frozen=True)
class Sample:
    """One copy."""

    seconds: float
    cpu_seconds: float
    #: of all processes together
    memory_peak: int


@dataclass(frozen=True)
class Data:
    """One data set."""

    name: str
    path: Path
    size: int


def refuse_debug(program: Path) -> None:
    """Stop unless the program was optimised.

    :raises SystemExit: when it is a debug build.
    """
    if program.parent.name != "release":
        raise SystemExit(f"bench: {program} is no release build; measure only those: make build")


def family(pid: int) -> set[int]:
    """List a process and those it started."""
    found = {pid}
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    except OSError:
        return found
    return found.union(*(family(int(child)) for child in text.split()))


def follow(process: subprocess.Popen[bytes]) -> tuple[float, int]:
    """Wait for a process; give the CPU seconds of it and its children, and the memory peak."""
    peaks: dict[int, int] = {}
    while True:
        for pid in family(process.pid):
            peaks[pid] = max(peaks.get(pid, 0), peak_memory(pid))
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        time.sleep(0.01)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"bench: {process.args!r} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime, sum(peaks.values())


def plain(words: list[Word], sink: Path) -> Sample:
    """Run a foreign program, then sync what it wrote."""
    began = time.monotonic()
    cpu, peak = follow(subprocess.Popen(words, stdout=subprocess.DEVNULL))
    cpu_sync, _ = follow(subprocess.Popen(["sync", "-f", sink]))
    return Sample(time.monotonic() - began, cpu + cpu_sync, peak)


def by_cp(_: Bench, data: Data, sink: Path) -> Sample:
    """Copy with coreutils."""
    return plain(["cp", "-a", data.path, sink], sink)


def by_rsync(_: Bench, data: Data, sink: Path) -> Sample:
    """Copy with rsync, on one host."""
    return plain(["rsync", "-a", "--whole-file", data.path, f"{sink}/"], sink)


def by_dray(bench: Bench, data: Data, sink: Path) -> Sample:
    """Copy with dray in one process."""
    ended = bench.cp("-r", data.path, f"{sink}/", seconds=3600).expect(0)
    return Sample(ended.seconds, ended.cpu_seconds, ended.memory_peak)


def by_two(bench: Bench, data: Data, sink: Path, *words: Word) -> Sample:
    """Copy with two dray processes over loopback."""
    server = bench.serve(sink, "--allow-clear-data")
    far = f"dray://{server.address}/"
    ended = bench.cp("-r", data.path, far, *words, *bench.peer(server), seconds=3600).expect(0)
    peak = peak_memory(server.pid)
    server.send(signal.SIGTERM)
    served = server.wait(60)
    cpu = ended.cpu_seconds + served.cpu_seconds
    return Sample(ended.seconds, cpu, ended.memory_peak + peak)


def by_two_tls(bench: Bench, data: Data, sink: Path) -> Sample:
    """Copy with two dray processes, data in TLS."""
    return by_two(bench, data, sink)


def by_two_clear(bench: Bench, data: Data, sink: Path) -> Sample:
    """Copy with two dray processes, data in clear."""
    return by_two(bench, data, sink, "--clear-data")


Way = Callable[[Bench, Data, Path], Sample]
WAYS: dict[str, Way] = {
    "cp -a": by_cp,
    "rsync -a": by_rsync,
    "dray, one process": by_dray,
    "dray, two, TLS": by_two_tls,
    "dray, two, clear": by_two_clear,
}


def make_data(place: Path, names: list[str], file_bytes: int) -> list[Data]:
    """Make the data sets."""
    found = []
    if "file" in names:
        path = place / "file"
        tree.make_file(path, file_bytes, seed=1)
        found.append(Data(f"one file of {file_bytes >> 20} MiB", path, file_bytes))
    if "tree" in names:
        path = place / "tree"
        if LINUX.exists():
            path.mkdir()
            subprocess.run(["tar", "-xJf", LINUX, "-C", path], check=True)
        else:
            tree.make_tree(path, 20_000, seed=61)
        found_there = [state for _, state in tree.walk(os.fsencode(path))]
        files = [state for state in found_there if stat.S_ISREG(state.st_mode)]
        size = sum(state.st_size for state in files)
        what = "Linux's sources" if LINUX.exists() else "generated tree"
        found.append(Data(f"{what}: {len(files)} files, {size >> 20} MiB", path, size))
    return found


def measure(place: Path, data: Data, rounds: int) -> dict[str, list[Sample]]:
    """Let all ways take turns, after one copy each that nobody counts."""
    samples: dict[str, list[Sample]] = {name: [] for name in WAYS}
    for turn in range(rounds + 1):
        for name, way in WAYS.items():
            folder = Path(tempfile.mkdtemp(prefix="bench-", dir=place))
            sink = folder / "sink"
            sink.mkdir()
            bench = Bench(folder, find_program())
            try:
                sample = way(bench, data, sink)
            finally:
                bench.close()
                shutil.rmtree(folder)
            if turn > 0:
                samples[name].append(sample)
            os.sync()
    return samples


def table(data: Data, samples: dict[str, list[Sample]]) -> list[str]:
    """Write medians, with the lowest and highest rate beside them."""
    lines = [
        "",
        data.name,
        f"{'':20} {'MB/s':>7} {'(low to high)':>17} {'CPU s/GB':>9} {'peak MiB':>9}",
    ]
    for name, each in samples.items():
        rates = sorted(data.size / MB / sample.seconds for sample in each)
        cpu = statistics.median(sample.cpu_seconds for sample in each) / (data.size / GB)
        peak = statistics.median(sample.memory_peak for sample in each) / tree.MIB
        span = f"({rates[0]:.0f} to {rates[-1]:.0f})"
        lines.append(f"{name:20} {statistics.median(rates):7.0f} {span:>17} {cpu:9.2f} {peak:9.0f}")
    return lines


def file_system(place: Path, mounts: str) -> str:
    """Name the file system that a place lies on, as the kernel calls it.

    ``stat -f`` knows ext2 to ext4 by one number and calls all of them the same.

    :param place: absolute, without links
    :param mounts: what ``/proc/self/mountinfo`` says
    """
    found, kind = Path("/"), "unknown"
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        point = Path(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), before.split()[4]))
        # Of several mounts on one another the last one is seen.
        if place.is_relative_to(point) and point.is_relative_to(found):
            found, kind = point, after.split()[0]
    return kind


def main() -> None:
    """Measure and print."""
    words = argparse.ArgumentParser(description="Measure dray cp beside cp and rsync.")
    words.add_argument("--rounds", type=int, default=3, help="measured rounds (default: 3)")
    words.add_argument("--file-mib", type=int, default=1024, help="size of the one file")
    words.add_argument("--data", action="append", choices=["file", "tree"], help="default: both")
    places = "where to copy (repeatable; default: /dev/shm and the temporary folder)"
    words.add_argument("--dir", action="append", type=Path, help=places)
    words.add_argument("--json", type=Path, help="also write every sample here")
    asked = words.parse_args()
    program = find_program()
    refuse_debug(program)
    if shutil.which("rsync") is None:
        WAYS.pop("rsync -a")
    version = subprocess.run([program, "--version"], check=True, capture_output=True, text=True)
    load = os.getloadavg()
    host = f"{os.cpu_count()} CPUs, load {load[0]:.1f}"
    print(f"{version.stdout.strip()}; {host}; {asked.rounds} rounds")
    kept: dict[str, dict[str, list[list[float]]]] = {}
    for where in asked.dir or [Path("/dev/shm"), Path(tempfile.gettempdir())]:  # noqa: S108
        with tempfile.TemporaryDirectory(prefix="dray-bench-", dir=where) as name:
            mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8")
            kind = file_system(Path(name).resolve(), mounts)
            for data in make_data(Path(name), asked.data or ["file", "tree"], asked.file_mib << 20):
                samples = measure(Path(name), data, asked.rounds)
                print("\n".join(table(data, samples)), f"\n(on {kind})", flush=True)
                kept[f"{data.name} on {kind}"] = {
                    way: [[s.seconds, s.cpu_seconds, s.memory_peak] for s in each]
                    for way, each in samples.items()
                }
    if asked.json:
        asked.json.write_text(json.dumps(kept, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
