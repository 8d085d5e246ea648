"""The command in the profile of docs/how-to/hpe-rabbit.md copies, and resumes after a kill.

The test replaces the variables of the command and runs it by ``/bin/bash -c``, as nnf-dm does. A
script stands for ``mpirun``, and starts the command on this host.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dray.testing.endpoints import find_program
from integration.harness import tree
from integration.harness.program import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = ROOT / "docs" / "how-to" / "hpe-rabbit.md"
MIB = tree.MIB
NOBODY = 65534
MPIRUN = """#!/bin/bash
# Starts one process on the first host of the file: this host.
[ "$1 $2 $3 $4 $6" = "--allow-run-as-root -np 1 --hostfile --" ] || exit 64
read -r host rest < "$5"
[ "$host $rest" = "rabbit-1 slots=1" ] || exit 65
exec "${@:7}"
"""
pytestmark = [pytest.mark.server, pytest.mark.timeout(120)]


def profile(name: str) -> str:
    """Return a field of the profile on the page ``PAGE``."""
    found = re.search(rf"^  {name}: (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None, name
    return found[1]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Make a folder that other users may enter, unlike the folders of pytest."""
    made = Path(tempfile.mkdtemp(prefix="dray-rabbit-", dir=os.environ.get("DRAY_TEST_DIR")))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.mark.full
@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv"
)
def test_the_command_of_the_profile_resumes_after_a_kill(folder: Path) -> None:
    programs = folder / "bin"
    programs.mkdir()
    (programs / "mpirun").write_text(MPIRUN, encoding="utf-8")
    (programs / "mpirun").chmod(0o755)
    shutil.copy(find_program(), programs / "dray")
    hostfile = folder / "hostfile"
    hostfile.write_text("rabbit-1 slots=1\nrabbit-2 slots=1\n", encoding="utf-8")
    source, there = folder / "lus" / "mesh42", folder / "mnt" / "scratch"
    (source / "sub").mkdir(parents=True)
    tree.make_file(source / "large", 600 * MIB, seed=1)
    tree.make_file(source / "sub" / "small", 1000, seed=2)
    there.mkdir(parents=True)
    for path in (source, source / "sub", source / "large", source / "sub" / "small", there):
        os.chown(path, NOBODY, NOBODY)
    command = profile("command")
    for name, value in {
        "HOSTFILE": str(hostfile),
        "UID": str(NOBODY),
        "GID": str(NOBODY),
        "SRC": str(source),
        "DEST": str(there),
    }.items():
        assert f"${name}" in command, name
        command = command.replace(f"${name}", value)
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(folder)}

    def run() -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["/bin/bash", "-c", command],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    first = run()
    # Kill the copy when some data has arrived and no file is complete.
    end = time.monotonic() + 60
    while not (partial := [*there.rglob("*.part")]) or partial[0].stat().st_blocks < 200 * 2048:
        assert first.poll() is None, first.communicate()
        assert time.monotonic() < end
        time.sleep(0.005)
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    assert not (there / "mesh42" / "large").exists()
    second = run()
    said, _ = second.communicate(timeout=60)
    assert second.returncode == 0, said
    copied = there / "mesh42"
    assert tree.differences(tree.describe(source), tree.describe(copied)) == []
    assert (copied / "large").stat().st_uid == NOBODY
    assert tree.leftovers(there) == []
    assert "from an earlier run" in said, said
    # When all data has arrived, the same command succeeds once more.
    third = run()
    said, _ = third.communicate(timeout=60)
    assert third.returncode == 0, said
    assert tree.differences(tree.describe(source), tree.describe(copied)) == []
