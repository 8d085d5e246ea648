"""``dray cp`` with a ``globus://`` URL, as a process that becomes ``python3 -m dray_globus``."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dray.testing.endpoints import find_program
from integration.globus.conftest import HERE, THERE
from integration.globus.tasks import Behaviour
from integration.globus.test_cli import environment

if TYPE_CHECKING:
    from integration.globus.conftest import Globus

pytestmark = pytest.mark.server
SOURCE, DESTINATION = f"globus://{HERE}/f", f"globus://{THERE}/f"


def command(globus: Globus, *words: str) -> tuple[list[str], dict[str, str]]:
    """Return the words and the environment of ``dray cp``. ``python3`` is this interpreter's."""
    own = environment(globus)
    path = os.pathsep.join((str(Path(sys.executable).parent), own["PATH"]))
    return [str(find_program()), "cp", *words], {**own, "PATH": path}


def run(globus: Globus, *words: str) -> subprocess.CompletedProcess[str]:
    whole, own = command(globus, *words)
    return subprocess.run(whole, env=own, capture_output=True, text=True, timeout=60, check=False)


def test_a_file_is_copied_once(globus: Globus) -> None:
    """The same command finds the file unchanged, and copies it again after a change."""
    (globus.here / "f").write_bytes(b"data")
    first = run(globus, "--json", SOURCE, DESTINATION)
    assert first.returncode == 0, first.stderr
    assert json.loads(first.stdout)["transfer"]["bytes"]["durable"] == 4
    assert (globus.there / "f").read_bytes() == b"data"
    again = run(globus, SOURCE, DESTINATION)
    assert again.returncode == 0, again.stderr
    assert "0 bytes sent" in again.stdout
    (globus.here / "f").write_bytes(b"other")
    changed = run(globus, "--quiet", SOURCE, DESTINATION)
    assert (changed.returncode, changed.stdout, changed.stderr) == (0, "", "")
    assert (globus.there / "f").read_bytes() == b"other"


def test_a_folder_is_copied_into_a_folder(globus: Globus) -> None:
    """The destination of a recursive copy is a folder, as between endpoints."""
    (globus.here / "run" / "deep").mkdir(parents=True)
    (globus.here / "run" / "deep" / "f").write_bytes(b"data")
    done = run(globus, "-r", f"globus://{HERE}/run", f"globus://{THERE}/in")
    assert done.returncode == 0, done.stderr
    assert (globus.there / "in" / "run" / "deep" / "f").read_bytes() == b"data"


def test_a_killed_command_leaves_one_task(globus: Globus) -> None:
    """After a kill -9 during the wait, the same command finds the same task."""
    (globus.here / "f").write_bytes(b"data")
    go = threading.Event()
    globus.service.behaviour = Behaviour(inactive=go)
    words, own = command(globus, SOURCE, DESTINATION)
    with subprocess.Popen(words, env=own, stderr=subprocess.DEVNULL) as killed:
        for _ in range(2000):
            if globus.service.tasks:
                break
            time.sleep(0.01)
        killed.send_signal(signal.SIGKILL)
    (task,) = globus.service.tasks
    go.set()
    again = run(globus, "--json", SOURCE, DESTINATION)
    assert json.loads(again.stdout)["task"]["id"] == task
    assert len(globus.service.tasks) == 1


def test_a_detached_copy_is_not_awaited(globus: Globus) -> None:
    """The id of the transfer is the id for ``show`` and ``wait``."""
    (globus.here / "f").write_bytes(b"data")
    done = run(globus, "--detach", "--transfer-id", "night", SOURCE, DESTINATION)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("night: ")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--threads", "4", SOURCE, DESTINATION), 2, "--threads does not work with a globus://"),
        (("--dry-run", SOURCE, DESTINATION), 2, "only Globus can list a collection"),
        (("/f", DESTINATION), 2, "Globus moves only globus:// URLs"),
        (("globus://x/f", DESTINATION), 2, "'x' is not the UUID of a collection"),
        (("--checksum", "crc32c:00000000", SOURCE, DESTINATION), 2, "crc32c"),
        (("-q", SOURCE, DESTINATION), 1, "a file does not exist"),
    ],
)
def test_bad_input_has_one_clear_error(
    globus: Globus, words: tuple[str, ...], code: int, message: str
) -> None:
    found = run(globus, *words)
    assert (found.returncode, found.stdout) == (code, ""), found.stderr
    assert message in found.stderr
    assert "Traceback" not in found.stderr


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no PYTHONSAFEPATH")
def test_a_file_with_the_name_of_a_module_is_not_executed(globus: Globus, tmp_path: Path) -> None:
    """Python searches no modules in the working folder of ``dray cp``."""
    (globus.here / "f").write_bytes(b"data")
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "json.py").write_text("raise SystemExit('json.py was executed')\n")
    words, own = command(globus, SOURCE, DESTINATION)
    done = subprocess.run(
        words, cwd=folder, env=own, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (globus.there / "f").read_bytes() == b"data"


def test_a_missing_package_is_named(globus: Globus, tmp_path: Path) -> None:
    """A Python interpreter without ``dray_globus`` is not used."""
    words, own = command(globus, SOURCE, DESTINATION)
    program = shutil.copy(words[0], tmp_path)
    python = tmp_path / "python3"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    found = subprocess.run(
        [program, *words[1:]],
        env={**own, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert found.returncode == 3, found.stderr
    assert "pip install 'WHEEL[globus]'" in found.stderr
