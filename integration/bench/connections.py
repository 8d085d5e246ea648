"""``python -m integration.bench connections``: the rate of several connections to one server."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import subprocess
from pathlib import Path

from integration.bench import connections_report, machine, runs
from integration.bench.begin import catch_signals, command, write
from integration.bench.connections_report import Cell, Results, Run
from integration.bench.examples import example
from integration.bench.results import rotated
from integration.harness.program import ROOT

POLICIES = ("single", "multiple", "auto")
THREADS = (1, 2, 16)
CONNECTIONS = (1, 2, 4, 8)
#: Usual fraction of a write's duration for which the server locks the file.
LOCKED = 0.25
#: Fraction if the server locks the file for the whole write.
ALL_LOCKED = 1.0
#: Seconds of the phase before the measurement. In this phase, connections are opened and dray's
#: policy compares settings.
BEFORE = 0.5
#: Seconds of this phase if the server locks the file for the whole write.
BEFORE_LOCKED = 5.0
#: Maximum rate of the server over all connections, in MiB per second. The maximum rate of one
#: connection is 16 MiB per second.
SERVER_MIB = 80


def options() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    words = argparse.ArgumentParser(
        prog="python -m integration.bench connections",
        description="Compare thread to single, thread to multiple, and what is chosen by itself.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    words.add_argument("--rounds", type=int, default=3, help="how often each case runs")
    words.add_argument("--seconds", type=float, default=2.0, help="what is counted of a run")
    words.add_argument(
        "--program", type=Path, help="the experiment's program; else it is built", metavar="FILE"
    )
    words.add_argument(
        "--out",
        type=Path,
        default=ROOT / "integration" / "out" / "connections",
        help="folder for tables.md, and results.json with every run",
    )
    words.add_argument("--page", action="store_true", help="write the manual's page anew")
    return words


def cells() -> list[Cell]:
    """List the cases to measure."""
    found = [
        Cell(direction, mode, threads, connections, LOCKED)
        for direction, mode, threads, connections in itertools.product(
            ("read", "write"), ("sync", "async"), THREADS, CONNECTIONS
        )
    ]
    found += [
        Cell("write", mode, threads, max(CONNECTIONS), ALL_LOCKED)
        for mode, threads in itertools.product(("sync", "async"), THREADS)
    ]
    found += [
        Cell("read", "sync", max(THREADS), connections, LOCKED, SERVER_MIB)
        for connections in CONNECTIONS
    ]
    return found


def run(program: Path, cell: Cell, policy: str, turn: int, seconds: float) -> Run:
    """Run a case with one policy.

    :raises SystemExit: when the program fails.
    """
    before = BEFORE_LOCKED if cell.locked == ALL_LOCKED else BEFORE
    words: list[str | Path] = [
        *(program, cell.direction, cell.mode, str(cell.threads), str(cell.connections), policy),
        *(f"before={before}", f"seconds={seconds}", f"locked={cell.locked}"),
        *([f"server={cell.server_mib}"] if cell.server_mib else []),
    ]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise SystemExit(f"bench: {program} failed: {ended.stderr.strip()}")
    said = json.loads(ended.stdout)
    return Run(
        cell,
        policy,
        turn,
        of_one=said["of_one"],
        lock_waits=said["lock_waits"],
        lock_seconds=said["lock_seconds"],
    )


def main(arguments: list[str]) -> int:
    """Run all cases with all policies, print the tables, and write the results."""
    known = options()
    given = known.parse_args(arguments)
    catch_signals()
    try:
        program = given.program or example("connections")
    except RuntimeError as error:
        raise SystemExit(f"bench: {error}") from None
    results = Results(
        machine=dataclasses.asdict(machine.Machine.this()),
        # Leave out ``--program``: the server sleeps, so the build hardly changes the times.
        command=command(
            argparse.Namespace(**{**vars(given), "program": None}), known, ("connections",)
        ),
    )
    given.out.mkdir(parents=True, exist_ok=True)
    for turn in range(given.rounds):
        for cell in cells():
            for policy in rotated(POLICIES, turn, given.rounds):
                found = run(program, cell, policy, turn, given.seconds)
                results.runs.append(found)
                runs.say(f"{turn} {cell.title} {policy}: {found.of_one:.2f}")
        write(given.out / "results.json", results.text())
        write(given.out / "tables.md", connections_report.tables(results))
    runs.say("\n" + connections_report.tables(results))
    runs.say(f"bench: results and tables are in {given.out}")
    if given.page:
        connections_report.publish(results.text())
    return 0
