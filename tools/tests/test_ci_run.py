"""Tests that `.ci/run` passes the verdict on and leaves no process."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / ".ci" / "run"


def tree(folder: Path, recipe: str) -> Path:
    (folder / ".ci").mkdir()
    shutil.copy(SCRIPT, folder / ".ci" / "run")
    (folder / "Makefile").write_text(f"test:\n\t{recipe}\n")
    return folder / ".ci" / "run"


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.parametrize(("recipe", "expected"), [("true", 0), ("exit 3", 2)])
def test_verdict_of_make_is_passed_on(tmp_path: Path, recipe: str, expected: int) -> None:
    result = subprocess.run([tree(tmp_path, recipe)], check=False, capture_output=True, timeout=60)
    assert result.returncode == expected


def test_process_left_behind_is_ended_and_fails_the_run(tmp_path: Path) -> None:
    # The process runs in its own session, as a daemon does.
    recipe = "setsid sh -c 'echo $$$$ > pid; exec sleep 300' >/dev/null 2>&1 & sleep 1"
    result = subprocess.run(
        [tree(tmp_path, recipe)], check=False, capture_output=True, text=True, timeout=60
    )
    pid = int((tmp_path / "pid").read_text())
    assert result.returncode == 1
    assert f"left behind: {pid} sleep 300" in result.stderr
    # On a busy host, a killed process needs a moment to end.
    until = time.monotonic() + 10
    while is_alive(pid) and time.monotonic() < until:
        time.sleep(0.05)
    assert not is_alive(pid)


def test_interrupted_run_ends_what_it_started(tmp_path: Path) -> None:
    script = tree(tmp_path, "echo $$$$ > pid; sleep 300; true")
    process = subprocess.Popen([script], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    pid_file = tmp_path / "pid"
    deadline = time.monotonic() + 20
    while not (pid_file.exists() and pid_file.read_text().strip()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(timeout=30) != 0
    assert not is_alive(int(pid_file.read_text()))
