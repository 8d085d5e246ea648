"""Compile all Rust tests, then run several test programs concurrently.

`cargo test` runs one test program after another. Many of the programs wait for sockets and timers,
so one program at a time leaves half of a two-core host idle.

On a busy host a test can miss a time limit because other tests use the processors. A test program
that failed therefore runs a second time, alone. If it passes then, the run succeeds and names the
program. If many programs fail, the busy host is not the cause, and no program runs again.

    python tools/rust_tests.py [--jobs N] [-- ARGUMENTS OF THE TEST PROGRAMS]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

WORKSPACE = Path(__file__).resolve().parent.parent / "engine"
# The longest test programs start first, so that all cores stay busy until the end.
LONGEST = ("dray-sim/experiments", "dray-sim/seeds", "dray-runtime/slow_target", "dray-cli/cli")
CARGO_TEST = ("cargo", "test", "--locked", "--workspace")
# Largest number of failed test programs that run again.
RERUN_MAX = 3


@dataclass(frozen=True)
class TestProgram:
    """A compiled test program and the folder of its crate, where Cargo would start the program."""

    path: Path
    crate: Path
    name: str


@dataclass(frozen=True)
class Outcome:
    """Exit code, output and duration in seconds of one run of a test program."""

    program: TestProgram
    code: int
    output: str
    seconds: float


def compile_tests() -> list[TestProgram]:
    """Compile the tests of the workspace and return their programs.

    Raises SystemExit with Cargo's exit code if the compilation fails; Cargo has printed the errors.
    """
    command = [*CARGO_TEST, "--no-run", "--message-format=json-render-diagnostics"]
    built = subprocess.run(command, cwd=WORKSPACE, stdout=subprocess.PIPE, text=True, check=False)
    if built.returncode != 0:
        raise SystemExit(built.returncode)
    return test_programs(built.stdout)


def test_programs(messages: str) -> list[TestProgram]:
    """Return the test programs that Cargo's JSON messages name, the longest ones first."""
    programs = []
    for line in messages.splitlines():
        message = json.loads(line) if line.startswith("{") else {}
        if message.get("executable") and message["profile"]["test"]:
            crate = Path(message["manifest_path"]).parent
            name = f"{crate.name}/{message['target']['name']}"
            programs.append(TestProgram(Path(message["executable"]), crate, name))
    return sorted(programs, key=lambda program: (program.name not in LONGEST, program.name))


def run(program: TestProgram, arguments: list[str]) -> Outcome:
    """Run one test program in the folder of its crate, as `cargo test` does."""
    environment = {**os.environ, "CARGO_MANIFEST_DIR": str(program.crate)}
    start = time.monotonic()
    ended = subprocess.run(
        [program.path, "--quiet", *arguments],
        cwd=program.crate,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    return Outcome(program, ended.returncode, ended.stdout, time.monotonic() - start)


def run_all(programs: list[TestProgram], jobs: int, arguments: list[str]) -> list[Outcome]:
    """Run all test programs, at most `jobs` concurrently, and print each outcome as it comes."""
    outcomes = []
    with ThreadPoolExecutor(jobs) as pool:
        runs = [pool.submit(run, program, arguments) for program in programs]
        for ended in as_completed(runs):
            outcome = ended.result()
            outcomes.append(outcome)
            verdict = "ok" if outcome.code == 0 else f"FAILED with exit code {outcome.code}"
            print(f"{outcome.program.name}: {verdict}, {outcome.seconds:.1f} s", flush=True)
            if outcome.code != 0:
                print(outcome.output, flush=True)
    return outcomes


def run_again(outcomes: list[Outcome], arguments: list[str]) -> list[str]:
    """Run the failed programs again, one after another; return the names of those that fail twice.

    If more than `RERUN_MAX` programs failed, none runs again, and all their names are returned.
    """
    failed = sorted((each for each in outcomes if each.code != 0), key=lambda it: it.program.name)
    if len(failed) > RERUN_MAX:
        return [outcome.program.name for outcome in failed]
    twice = []
    for outcome in failed:
        print(f"{outcome.program.name} failed; it runs again without other programs.", flush=True)
        (again,) = run_all([outcome.program], 1, arguments)
        if again.code == 0:
            print(f"Failed beside other programs, and passed alone: {outcome.program.name}")
        else:
            twice.append(outcome.program.name)
    return twice


def main() -> int:
    """Compile and run all tests; return 1 if a test program or a documentation test failed."""
    parser = argparse.ArgumentParser(description="Compile and run all Rust tests.")
    parser.add_argument("--jobs", type=int, default=3, help="concurrent test programs (3)")
    parser.add_argument("arguments", nargs="*", help="arguments of the test programs")
    options = parser.parse_args()
    outcomes = run_all(compile_tests(), options.jobs, options.arguments)
    failed = run_again(outcomes, options.arguments)
    documentation = subprocess.run([*CARGO_TEST, "--doc", "--quiet"], cwd=WORKSPACE, check=False)
    if failed:
        print(f"{len(failed)} of {len(outcomes)} test programs failed: {', '.join(failed)}")
    return 1 if failed or documentation.returncode != 0 else 0


if __name__ == "__main__":
    sys.exit(main())
