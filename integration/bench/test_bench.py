"""Run the measurements on so little data that their numbers mean nothing, to test the program."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from integration.bench.results import Results
from integration.harness.program import ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]


def words(folder: Path, *more: str) -> list[str]:
    few = [
        "--congestion",
        "system",
        "--scale",
        "0.002",
        "--wait",
        "0",
        "--tries",
        "1",
        "--out",
        str(folder / "out"),
    ]
    return [sys.executable, "-m", "integration.bench", *few, "--where", str(folder), *more]


def environment(program: Path) -> dict[str, str]:
    paths = os.pathsep.join(str(ROOT / part) for part in ("engine/python", "operators", "."))
    return {**os.environ, "DRAY_PROGRAM": str(program), "PYTHONPATH": paths}


@pytest.mark.full
def test_cp_rsync_and_dray_are_measured_and_compared(folder: Path, program: Path) -> None:
    if shutil.which("rsync") is None:
        pytest.skip("no rsync")
    tools = ["rsync", "dray", "dray-tls", "dray-third", "escp"]
    asked = words(folder, "--tools", ",".join(tools), "--sets", "a,d", "--rounds", "2")
    ran = subprocess.run(
        asked, check=False, capture_output=True, text=True, cwd=ROOT, env=environment(program)
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    results = Results.read((folder / "out" / "results.json").read_text(encoding="utf-8"))
    counted = {(each.set, each.round, each.tool) for each in results.samples if not each.error}
    running = {"cp", "rsync", "dray", "dray-tls", "dray-third"}
    expected = {(name, turn, tool) for name in "ad" for turn in (0, 1) for tool in running}
    assert counted == expected, [each.error for each in results.samples]
    assert all(each.cpu_seconds > 0 for each in results.samples)
    # ``cp`` may end before its memory is sampled for the first time. Servers do not.
    assert all(each.memory_peak > 0 for each in results.samples if each.tool != "cp")
    assert "| EScp 0.9 | in no package registry" in ran.stdout
    assert [path.name for path in folder.glob("dray-bench-*")] == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_everything(folder: Path, program: Path, number: signal.Signals) -> None:
    asked = words(folder, "--tools", "dray-third", "--sets", "d", "--rounds", "1000")
    log = folder / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            asked, stdout=out, stderr=out, cwd=ROOT, env=environment(program)
        )
    # Wait until the benchmark has started an endpoint, which then has a folder.
    until = time.monotonic() + 120
    while not list(folder.glob("dray-bench-*/dray-bench-*/to/endpoint")):
        assert process.poll() is None, log.read_text(encoding="utf-8")
        assert time.monotonic() < until, log.read_text(encoding="utf-8")
        time.sleep(0.01)
    process.send_signal(number)
    assert process.wait(60) == 128 + number
    assert list(folder.glob("dray-bench-*")) == []
    assert running_in(folder) == []


def running_in(folder: Path) -> list[str]:
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                line = file.read()
        except OSError:
            continue
        if os.fsencode(folder) in line and int(pid) != os.getpid():
            found.append(os.fsdecode(line.replace(b"\0", b" ")))
    return found


def test_a_debug_engine_is_refused(folder: Path, program: Path) -> None:
    (folder / "debug").mkdir()
    shutil.copy(program, folder / "debug" / "dray")
    ran = subprocess.run(
        words(folder),
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment(folder / "debug" / "dray"),
    )
    assert ran.returncode != 0
    assert "debug build" in ran.stderr
