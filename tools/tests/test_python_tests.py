"""Tests that a failed test runs again alone, and that a test that fails twice fails the run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[1] / "python_tests.py"
PASSES = "def test_passes():\n    pass\n"
FAILS = "def test_fails():\n    raise AssertionError\n"
#: Fails in the first run only, because the first run makes the file.
FAILS_ONCE = """
from pathlib import Path

def test_fails_once():
    mark = Path(__file__).with_suffix(".mark")
    was_there = mark.exists()
    mark.touch()
    assert was_there
"""
FAILS_TOO_OFTEN = "\n".join(f"def test_{n}():\n    raise AssertionError\n" for n in range(9))


@pytest.mark.parametrize(
    ("body", "code", "says"),
    [
        (PASSES, 0, "1 passed"),
        (PASSES + FAILS_ONCE, 0, "passed alone:\n  test_one.py::test_fails_once"),
        (FAILS_ONCE + FAILS, 1, "Failed tests: 2. They run again"),
        (FAILS_TOO_OFTEN, 1, "9 failed"),
        ("", 5, "no tests ran"),
    ],
)
def test_the_exit_code_is_that_of_the_tests_alone(
    tmp_path: Path, body: str, code: int, says: str
) -> None:
    (tmp_path / "test_one.py").write_text(body, encoding="utf-8")
    words = [sys.executable, str(TOOL), "test_one.py", "-p", "no:randomly"]
    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == code, ended.stdout
    assert says in ended.stdout
    assert ("run again" in ended.stdout) == (FAILS_ONCE in body)
