"""Tests that a failed test program runs again alone, and fails the run if it fails twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools import rust_tests

if TYPE_CHECKING:
    from pathlib import Path


def twice_failed(folder: Path, scripts: list[str]) -> list[str]:
    """Run the scripts as test programs, and return the names of those that failed twice."""
    programs = []
    for number, script in enumerate(scripts):
        path = folder / f"t{number}"
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="ascii")
        path.chmod(0o755)
        programs.append(rust_tests.TestProgram(path, folder, path.name))
    outcomes = rust_tests.run_all(programs, 2, [])
    return rust_tests.run_again(outcomes, [])


def test_a_program_that_fails_twice_fails_the_run(tmp_path: Path) -> None:
    once = 'mkdir "$0.mark" 2>/dev/null && exit 101; exit 0'
    assert twice_failed(tmp_path, ["exit 0", once, "exit 101"]) == ["t2"]


def test_many_failed_programs_do_not_run_again(tmp_path: Path) -> None:
    scripts = ['echo run >> "$0.runs"; exit 101'] * (rust_tests.RERUN_MAX + 1)
    assert twice_failed(tmp_path, scripts) == ["t0", "t1", "t2", "t3"]
    assert (tmp_path / "t0.runs").read_text(encoding="ascii") == "run\n"
