"""``dray tier calibrate`` measures real devices, and leaves nothing behind."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from integration.endpoint.raw import dray, shipped_program
from integration.harness import loop

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

MIB = 1 << 20
FAST_WRITE = 80 * MIB
SLOW_WRITE = 20 * MIB
SHORT = ["--size", "128MiB", "--time", "2s", "--rounds", "1"]


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[tuple[loop.Disk, loop.Disk]]:
    """Mount two file systems on loop devices. The tests limit their rates."""
    if loop.limits_reason():
        pytest.skip(loop.limits_reason())
    with (
        loop.disk(tmp_path / "fast", 400 * MIB) as fast,
        loop.disk(tmp_path / "slow", 400 * MIB) as slow,
    ):
        yield fast, slow


def names(folder: Path) -> list[str]:
    """Return the names in a folder, without ``lost+found``."""
    return sorted(path.name for path in folder.iterdir() if path.name != "lost+found")


def test_the_measured_rates_are_those_of_the_devices(disks: tuple[loop.Disk, loop.Disk]) -> None:
    fast, slow = disks
    fast.limit(FAST_WRITE)
    slow.limit(SLOW_WRITE)
    done = dray("tier", "calibrate", fast.folder, slow.folder, *SHORT)
    # With separate limits of reads and writes, writes need not slow down beside reads.
    assert done.returncode in (0, 3), done
    head, *rest = (line for line in done.stdout.splitlines() if line.startswith("#"))
    found = re.fullmatch(r"# slow device \(direct I/O\): ([\d.]+) MiB/s written", head)
    assert found is not None, done
    assert float(found[1]) * MIB == pytest.approx(SLOW_WRITE, rel=0.25)
    samples = [re.findall(r"([\d.]+) (?:MiB|KiB|B)/s", line) for line in rest[1:]]
    assert len(samples) == 6, done
    for written, _ in samples:
        assert float(written) * MIB == pytest.approx(FAST_WRITE, rel=0.25)
    fastest = max(float(read) for _, read in samples[1:5])
    assert fastest * MIB == pytest.approx(SLOW_WRITE, rel=0.25)
    if done.returncode == 0:
        keys = re.findall(r'^(\w+) = "\d+[KM]iB/s"$', done.stdout, re.MULTILINE)
        assert keys == ["write_max", "write_min", "read_max", "read_min"], done
    else:
        assert "reads do not slow down the writes" in done.stderr
        assert "set write_max and write_min to" in done.stderr
    assert names(fast.folder) == names(slow.folder) == []


def test_json_has_the_model_and_the_samples(tmp_path: Path) -> None:
    done = dray("tier", "calibrate", tmp_path, tmp_path, *SHORT, "--json")
    said = json.loads(done.stdout)
    assert done.returncode in (0, 3), done
    if done.returncode == 0:
        assert said["write_max"] >= said["write_min"] > 0
        assert said["read_max"] > said["read_min"] > 0
        assert len(said["samples"]) == 6
        assert said["is_one_file_system"]
    else:
        assert said["error"]["kind"] == "unsupported"
    assert "both folders are on one file system" in done.stderr
    assert names(tmp_path) == []


def test_bad_input_gets_one_clear_error(tmp_path: Path) -> None:
    cases: list[tuple[list[str | Path], int, str, str]] = [
        ([tmp_path / "missing", tmp_path], 3, "missing", "give an existing folder"),
        ([tmp_path, tmp_path, "--size", "1000TiB"], 3, "are free", "smaller --size"),
        ([tmp_path, tmp_path, "--size", "1MiB"], 2, "64.0 MiB", "--size"),
        ([tmp_path, tmp_path, "--time", "2m"], 2, "at most 60s", "--time"),
    ]
    for words, code, what, remedy in cases:
        done = dray("tier", "calibrate", *words)
        assert (done.returncode, done.stdout) == (code, ""), done
        assert what in done.stderr, done
        assert remedy in done.stderr, done
    assert names(tmp_path) == []


def opened(descriptor: Path) -> str:
    """Return the path of an open file, or an empty text if the file was closed in the meantime."""
    try:
        return str(descriptor.readlink())
    except FileNotFoundError:
        return ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_remains_after_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    words: list[str | Path] = [shipped_program(), "tier", "calibrate"]
    words += [tmp_path, tmp_path, "--size", "128MiB"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        files = Path(f"/proc/{process.pid}/fd")
        end = time.monotonic() + 30
        while not any(".dray-calibrate" in opened(one) for one in list(files.iterdir())):
            assert time.monotonic() < end
            time.sleep(0.05)
        process.send_signal(number)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == (5 if number == signal.SIGINT else -number)
    assert out == b""
    assert names(tmp_path) == []
