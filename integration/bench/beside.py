"""Compares commands in interleaved rounds, and writes medians to a table and a JSON file.

A *way* is one command that moves the same bytes as the others. In each round all ways run in turn,
so a change of the machine's speed affects all ways.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import statistics
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from integration.bench import account, machine
from integration.harness.program import ROOT, Process

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from integration.harness.program import Word

MIB = 1 << 20
TMPFS = Path("/dev/shm")  # noqa: S108 - every Linux has it
#: Seconds after which a command is killed.
LIMIT = 300.0


@dataclass(frozen=True)
class Way:
    """One command to measure, and how to measure it."""

    name: str
    words: Sequence[Word]
    #: Number of bytes that the command moves.
    size: int
    #: Process ids of servers that only this command uses. Their CPU seconds are added.
    servers: Sequence[int] = ()
    env: dict[str, str] = field(default_factory=dict)
    #: Function that is called before each run. The measured time does not include it.
    before: Callable[[], object] | None = None
    #: Function that is called after each run. The measured time does not include it.
    after: Callable[[], object] | None = None
    #: Bytes of memory that are touched before the run. Otherwise the time of a copy into memory
    #: would include the first touch of each page.
    warm_bytes: int = 0
    #: Function that reads the seconds from the output of a program that measures itself.
    seconds_of: Callable[[str], float] | None = None


@dataclass(frozen=True)
class Sample:
    """One run of one way to copy."""

    case: str
    round: int
    way: str
    bytes: int
    seconds: float
    #: CPU seconds of the command and its servers.
    cpu_seconds: float
    #: Maximum resident memory of the command in bytes.
    memory_peak: int

    @property
    def rate(self) -> float:
        """The rate in MB/s."""
        return self.bytes / self.seconds / 1e6


@dataclass
class Results:
    """All samples of one measurement, and the facts that explain them."""

    command: str
    #: Description of the host: processor, memory, system and date.
    host: dict[str, Any] = field(default_factory=lambda: dataclasses.asdict(machine.Machine.this()))
    facts: dict[str, Any] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    #: Data of other tables, by name.
    tables: dict[str, Any] = field(default_factory=dict)

    def write(self, path: Path | None) -> None:
        """Write all fields as JSON to ``path``. Do nothing without a path."""
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(dataclasses.asdict(self), indent=1)
        path.write_text(text + "\n", encoding="utf-8")


def find_engine() -> Path:
    """Return the program to measure: ``DRAY_PROGRAM``, or the release build."""
    named = os.environ.get("DRAY_PROGRAM")
    target = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "engine" / "target")
    return Path(named) if named else target / "release" / "dray"


def drop_caches() -> None:
    """Write all dirty data and drop the page cache."""
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("1", encoding="utf-8")


def run_once(way: Way, case: str, turn: int) -> Sample:
    """Run a command once.

    :raises RuntimeError: if it fails.
    """
    if way.before:
        way.before()
    warm = machine.warmed(TMPFS, way.warm_bytes) if way.warm_bytes else contextlib.nullcontext()
    with tempfile.TemporaryDirectory() as logs, warm:
        used = sum(map(account.cpu_seconds_of, way.servers))
        ended = Process(way.words, Path(logs), "command", env=way.env).wait(LIMIT)
        used = sum(map(account.cpu_seconds_of, way.servers)) - used
    if ended.code != 0:
        raise RuntimeError(f"{way.name} ended with {ended.code}: {ended.words}{ended.out}")
    if way.after:
        way.after()
    seconds = way.seconds_of(ended.out) if way.seconds_of else ended.seconds
    cpu = ended.cpu_seconds + used
    return Sample(case, turn, way.name, way.size, seconds, cpu, ended.memory_peak)


def run_all(results: Results, case: str, ways: Sequence[Way], rounds: int) -> None:
    """Run all ways in turn. Each round starts with another way."""
    for turn in range(rounds):
        first = turn % len(ways)
        for way in [*ways[first:], *ways[:first]]:
            sample = run_once(way, case, turn)
            results.samples.append(sample)
            print(
                f"# {case}, round {turn + 1}: {way.name}: {sample.seconds:.2f} s, "
                f"{sample.rate:.0f} MB/s, {sample.cpu_seconds:.2f} CPU s, "
                f"{sample.memory_peak >> 20} MiB",
                flush=True,
            )


def ratio(samples: Sequence[Sample], case: str, way: str, base: str) -> float:
    """Return the median over the rounds of the rate of ``way`` divided by the rate of ``base``."""
    rates = {(each.round, each.way): each.rate for each in samples if each.case == case}
    turns = sorted({turn for turn, name in rates if name == base})
    return statistics.median(
        rates[turn, way] / rates[turn, base] for turn in turns if (turn, way) in rates
    )


def table(samples: Sequence[Sample], case: str, base: str) -> list[str]:
    """Return the table of a case: medians, and the ratio to the rate of ``base``."""
    ours = [each for each in samples if each.case == case]
    lines = [
        f"| {case} | seconds | MB/s | of {base} | CPU s/GB | peak MiB |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name in dict.fromkeys(each.way for each in ours):
        runs = [each for each in ours if each.way == name]
        seconds, rate, cpu, memory = (
            statistics.median(values)
            for values in zip(
                *(
                    (one.seconds, one.rate, one.cpu_seconds * 1e9 / one.bytes, one.memory_peak)
                    for one in runs
                ),
                strict=True,
            )
        )
        lines.append(
            f"| {name} | {seconds:.2f} | {rate:.0f} | {ratio(ours, case, name, base):.2f} "
            f"| {cpu:.2f} | {memory / MIB:.0f} |"
        )
    return lines


def command_of(known: argparse.ArgumentParser, given: argparse.Namespace) -> str:
    """Return the command with its arguments, except the places of files on this host."""
    words = [known.prog]
    for name, value in vars(given).items():
        if name not in ("json", "folder") and value != known.get_default(name):
            values = value if isinstance(value, list) else [value]
            words.append(f"--{name.replace('_', '-')}")
            words += [str(each) for each in values if each is not True]
    return " ".join(words)


def show(lines: Sequence[str]) -> None:
    """Print the lines of a table."""
    print("\n" + "\n".join(lines) + "\n", flush=True)


def options(module: str, what: str) -> argparse.ArgumentParser:
    """Return a parser of the options that each measurement has."""
    parser = argparse.ArgumentParser(prog=f"python -m integration.bench.{module}", description=what)
    parser.add_argument("--rounds", type=int, default=3, help="runs of each command")
    parser.add_argument("--json", type=Path, help="file for the results")
    parser.add_argument(
        "--folder", type=Path, help="folder for the storage system (default: that of the system)"
    )
    return parser
