"""The command line, as its own process."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from integration.globus.conftest import HERE, THERE
from integration.globus.service import CLIENT_ID, CLIENT_SECRET, Fault
from integration.globus.tasks import Behaviour

if TYPE_CHECKING:
    from integration.globus.conftest import Globus

pytestmark = pytest.mark.server
SOURCE, DESTINATION = f"globus://{HERE}/f", f"globus://{THERE}/f"


def environment(globus: Globus) -> dict[str, str]:
    own = {
        "CLIENT_ID": CLIENT_ID,
        "CLIENT_SECRET": CLIENT_SECRET,
        "BASE_URL": globus.service.url,
        "AUTH_URL": globus.service.url,
        "STATE": str(globus.state),
    }
    path = os.pathsep.join(sys.path)
    named = {f"DRAY_GLOBUS_{name}": value for name, value in own.items()}
    return {**os.environ, **named, "PYTHONPATH": path}


def run(globus: Globus, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dray_globus", *words],
        env=environment(globus),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_submit_wait_show_and_cancel(globus: Globus) -> None:
    (globus.here / "f").write_bytes(b"data")
    done = run(globus, "submit", SOURCE, DESTINATION, "--id", "night", "--wait", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["transfer"]["state"] == "done"
    assert (globus.there / "f").read_bytes() == b"data"
    shown = run(globus, "show", "night")
    assert "night: done, 1 of 1 files, 4 bytes sent" in shown.stdout
    assert found["task"]["id"] in shown.stdout
    assert run(globus, "cancel", "night").stdout.startswith("night: done")
    assert run(globus, "wait", "night", "--timeout", "5").returncode == 0
    assert len(globus.service.tasks) == 1
    assert CLIENT_SECRET not in done.stdout + done.stderr + shown.stdout


def test_a_killed_worker_leaves_one_task(globus: Globus) -> None:
    (globus.here / "f").write_bytes(b"data")
    # The service accepts the submission, and the process is killed before it gets the answer.
    globus.service.faults.append(Fault("POST /v0.10/transfer", is_done=True, count=1000))
    words = [sys.executable, "-m", "dray_globus", "submit", SOURCE, DESTINATION, "--id", "night"]
    with subprocess.Popen(words, env=environment(globus), stderr=subprocess.DEVNULL) as worker:
        for _ in range(2000):
            if globus.service.tasks:
                break
            time.sleep(0.01)
        worker.send_signal(signal.SIGKILL)
    assert worker.returncode == -signal.SIGKILL
    globus.service.faults.clear()
    again = run(globus, "submit", SOURCE, DESTINATION, "--id", "night", "--wait", "--json")
    assert json.loads(again.stdout)["task"]["id"] == next(iter(globus.service.tasks))
    assert len(globus.service.tasks) == 1


def test_a_terminal_shows_the_progress_of_an_inactive_task(globus: Globus) -> None:
    (globus.here / "f").write_bytes(b"data")
    go = threading.Event()
    globus.service.behaviour = Behaviour(inactive=go)
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "dray_globus", "submit", SOURCE, DESTINATION, "--wait"]
    with subprocess.Popen(
        words, env=environment(globus), stderr=theirs, stdout=subprocess.DEVNULL
    ) as worker:
        os.close(theirs)
        seen = b""
        while b"log in to the collection" not in seen:
            seen += os.read(ours, 4096)
        go.set()
        while b": done" not in seen:
            seen += os.read(ours, 4096)
    os.close(ours)
    assert worker.returncode == 0
    assert b"\r\x1b[K" in seen


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("submit", SOURCE), 2, "--help"),
        (("submit", "/f", DESTINATION), 2, "Globus moves only globus:// URLs"),
        (("submit", SOURCE, DESTINATION, "--deadline", "soon"), 2, "2026-12-01T08:00:00Z"),
        (("show", "unknown"), 3, "no record has this id"),
        (("show", HERE), 3, "No task found"),
        (("submit", SOURCE, DESTINATION, "--wait"), 1, "a file does not exist"),
    ],
)
def test_errors_have_an_exit_code_and_one_message(
    globus: Globus, words: tuple[str, ...], code: int, message: str
) -> None:
    found = run(globus, *words)
    assert found.returncode == code
    assert message in found.stderr + found.stdout
    assert "Traceback" not in found.stderr


def test_a_busy_service_is_a_temporary_error(globus: Globus) -> None:
    globus.service.busy("submission_id", seconds=1, count=99, status=503)
    found = run(globus, "submit", SOURCE, DESTINATION)
    assert found.returncode == 4
    assert "503" in found.stderr


def test_help_is_for_people(globus: Globus) -> None:
    for words in ((), ("submit",), ("show",), ("login",)):
        found = run(globus, *words, "--help")
        assert found.returncode == 0
        assert "globus" in found.stdout.lower()
