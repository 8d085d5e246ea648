"""``dray chaos`` against real programs: it injects its faults, and its verdict is true."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from integration.harness import tree
from integration.harness.chaos import (
    BROKEN,
    HOLDS,
    LARGE_BYTES,
    NO_VERDICT,
    STOPPED,
    USAGE,
    Scene,
    is_free,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.harness.program import Bench

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(300)]

SEED = int(os.environ.get("DRAY_SEED", "29"))

#: Each fault of processes and connections, in the order of moments. The programs need some seconds
#: to recover from some of them.
PROCESS_FAULTS = (
    {"kind": "delay", "at": "0s", "duration": "500ms", "delay": "5ms", "probability": 0.5},
    {"kind": "kill", "target": "end", "at": "10%", "restart_after": "200ms"},
    {"kind": "kill", "target": "client", "at": "20%"},
    {"kind": "stop", "target": "end", "at": "30%", "duration": "400ms"},
    {"kind": "stop", "target": "client", "at": "35%", "duration": "400ms"},
    {"kind": "cut", "target": "end", "at": "40%"},
    {"kind": "corrupt", "at": "50%", "count": 2},
    {"kind": "reorder", "at": "60%"},
    {"kind": "duplicate", "at": "70%"},
)


@pytest.mark.parametrize(
    "push",
    [
        pytest.param(True, id="push"),
        # The copy may end before its last fault on a busy host.
        pytest.param(False, id="pull", marks=pytest.mark.full),
    ],
)
def test_each_fault_of_processes_and_connections_is_injected(bench: Bench, push: bool) -> None:
    scene = Scene(bench, push=push)
    ended = scene.run(scene.plan(*PROCESS_FAULTS, head=f"seed = {SEED}"))
    verdict = scene.check_holds(ended, len(PROCESS_FAULTS))
    injections = {fault["kind"]: fault["injections"] for fault in verdict["faults"]}
    assert injections["corrupt"] == 2
    assert len(verdict["attempts"]) >= 2, "the killed command was not repeated"
    assert verdict["attempts"][0]["signal"] == signal.SIGKILL
    assert verdict["sent_again"]["bytes"] > 0
    print(
        f"{verdict['sent_again']['bytes'] / tree.MIB:.1f} MiB sent again in {ended.seconds:.1f} s"
    )


#: Folder of the shared memory that libfaketime creates.
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the kernel's folder, not a temporary file
#: Lets processes of the endpoint's group write their time to a file, one after another.
CLOCK_SCRIPT = 'while sleep 0.1; do date +%s >>"$0"; done & exec "$@"'


@pytest.mark.skipif(shutil.which("faketime") is None, reason="libfaketime is not installed")
def test_clocks_step_and_the_copy_continues(bench: Bench) -> None:
    times = bench.folder / "times"
    scene = Scene(bench, wrap=("sh", "-c", CLOCK_SCRIPT, str(times)))
    faults = (
        {"kind": "clock_step", "target": "end", "at": "20%"},
        {"kind": "clock_step", "target": "client", "at": "30%", "step": "-2h"},
        {"kind": "kill", "target": "end", "at": "50%"},
        {"kind": "clock_step", "target": "end", "at": "70%", "step": "-3h"},
    )
    before = set(SHARED_MEMORY.glob("*faketime*"))
    ended = scene.run(scene.plan(*faults, head=f"seed = {SEED}"))
    scene.check_holds(ended, len(faults))
    assert [path for path in SHARED_MEMORY.glob("*faketime*") if path not in before] == []
    read = [int(line) for line in times.read_text(encoding="ascii").split()]
    jumps = [after - before for before, after in itertools.pairwise(read)]
    # The clock of a program stays stepped after the restart.
    assert [round(jump / 3600) for jump in jumps if abs(jump) > 1800] == [1, -3]


@pytest.mark.skipif(shutil.which("faketime") is None, reason="libfaketime is not installed")
def test_a_program_without_the_library_keeps_its_clock(bench: Bench) -> None:
    scene = Scene(bench, wrap=("env", "-u", "LD_PRELOAD"))
    plan = scene.plan({"kind": "clock_step", "target": "end", "at": "20%"})
    verdict = scene.run(plan).expect(NO_VERDICT).report
    assert verdict["verdict"] == "unproven"
    (fault,) = verdict["faults"]
    assert fault["injections"] == 0
    assert re.fullmatch(r"process \d+ has not loaded .*/libfaketimeMT\.so\.1", fault["refusal"])


def test_a_step_of_a_clock_needs_its_library(bench: Bench) -> None:
    scene = Scene(bench)
    head = f'clock_library = "{bench.folder}/missing.so"'
    ended = scene.run(scene.plan({"kind": "clock_step", "at": "20%"}, head=head)).expect(USAGE)
    assert "missing.so" in ended.words
    assert "correct `clock_library` in the plan" in ended.words


def test_drawn_faults_hold_and_their_schedule_depends_on_the_seed_only(bench: Bench) -> None:
    print(f"\nseed {SEED} (DRAY_SEED replays it)")
    scene = Scene(bench)
    plan = scene.plan(tail="[random]\nfaults = 10")
    shown = [
        bench.start("chaos", "--dry-run", "--seed", seed, plan).wait().expect(HOLDS).out
        for seed in (str(SEED), str(SEED), str(SEED + 1))
    ]
    assert shown[0] == shown[1]
    assert shown[0] != shown[2]
    ended = scene.run(plan, "--seed", str(SEED))
    scene.check_holds(ended, 10)
    for line in shown[0].splitlines()[1:]:
        assert line in ended.words, "the run has another schedule"


def await_published(scene: Scene, meanwhile: Callable[[Path], None]) -> threading.Thread:
    """Call ``meanwhile`` with the first large file that is published at the sink."""

    def look() -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            found = [path for path in scene.sink.glob("large[01]") if path.is_file()]
            if found:
                meanwhile(found[0])
                return
            time.sleep(0.01)

    thread = threading.Thread(target=look)
    thread.start()
    return thread


def flip(path: Path) -> None:
    """Flip one bit of a file, and keep its size and modification time."""
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(LARGE_BYTES // 2)
        byte = file.read(1)[0]
        file.seek(LARGE_BYTES // 2)
        file.write(bytes([byte ^ 4]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_flipped_bit_of_a_published_file_breaks_the_verdict(bench: Bench) -> None:
    scene = Scene(bench)
    liar = await_published(scene, flip)
    ended = scene.run(scene.plan({"kind": "cut", "at": "30%"}))
    liar.join()
    verdict = ended.expect(BROKEN).report
    assert verdict["verdict"] == "broken"
    assert not verdict["nothing_false"]
    assert not verdict["identical"]
    wrong = [words for words in verdict["violations"] if "wrong content" in words]
    assert wrong, verdict["violations"]
    assert any("reported a success" in words for words in verdict["violations"])
    # The outputs of a broken run are kept.
    assert (bench.folder / verdict["folder"] / "attempt-1.log").exists()


@pytest.mark.full  # the watcher must look while the lie lasts
def test_a_repaired_lie_and_a_leftover_break_the_verdict(bench: Bench) -> None:
    scene = Scene(bench)

    def lie(path: Path) -> None:
        flip(path)
        time.sleep(0.3)
        flip(path)
        (scene.sink / ".dray-planted.part").touch()

    liar = await_published(scene, lie)
    ended = scene.run(scene.plan({"kind": "cut", "at": "30%"}))
    liar.join()
    verdict = ended.expect(BROKEN).report
    assert verdict["identical"]
    assert not verdict["nothing_false"]
    assert verdict["leftovers"] == [".dray-planted.part"]


def test_a_fault_that_is_not_injected_gives_no_verdict(bench: Bench) -> None:
    scene = Scene(bench, rate="400MiB")
    ended = scene.run(scene.plan({"kind": "kill", "target": "client", "at": "100s"}))
    verdict = ended.expect(NO_VERDICT).report
    assert verdict["verdict"] == "unproven"
    assert verdict["nothing_false"]


def test_control_c_kills_all_processes(bench: Bench) -> None:
    scene = Scene(bench)
    running = scene.start(scene.plan({"kind": "stop", "target": "end", "at": "1s"}))
    until = time.monotonic() + 60
    while "fault 1 at" not in running.log_path.read_text(encoding="utf-8"):
        assert running.is_running(), "it ended before the fault"
        assert time.monotonic() < until
        time.sleep(0.02)
    running.send(signal.SIGINT)
    running.wait(20).expect(STOPPED)
    assert is_free(scene.address), "the stopped endpoint still runs"


def test_mistakes_are_reported_before_anything_runs(bench: Bench) -> None:
    scene = Scene(bench)
    ended = scene.run(scene.plan({"kind": "cut", "target": "nobody"})).expect(USAGE)
    assert "plan.toml, line 13" in ended.words
    assert "the targets are end" in ended.words
    cut = {"kind": "cut", "at": "30%"}
    with socket.create_server(("127.0.0.1", int(scene.address.rpartition(":")[2]))):
        ended = scene.run(scene.plan(cut)).expect(NO_VERDICT)
        assert "another program accepts connections" in ended.words
    plan = scene.plan(cut)
    text = plan.read_text(encoding="utf-8")
    plan.write_text(text.replace("{end.key}", "sha256:" + "A" * 43), encoding="utf-8")
    ended = scene.run(plan).expect(NO_VERDICT)
    assert "before any fault" in ended.words
    plan.write_text(text.replace("{end.key}", "{other}"), encoding="utf-8")
    assert "{other}" in scene.run(plan).expect(USAGE).words
    shown = bench.start("chaos", "--example").wait().expect(HOLDS)
    plan.write_text(shown.out, encoding="utf-8")
    bench.start("chaos", "--dry-run", plan).wait().expect(HOLDS)


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("push", [True, False], ids=["push", "pull"])
@pytest.mark.parametrize("number", range(10))
def test_many_seeds_hold(bench: Bench, number: int, push: bool) -> None:
    seed = SEED + number
    print(f"\nseed {seed}")
    scene = Scene(bench, push=push)
    ended = scene.run(scene.plan(tail="[random]\nfaults = 10"), "--seed", str(seed))
    if ended.code == NO_VERDICT:
        # A fault with a small probability may affect no call before the copy ends.
        verdict = ended.report
        assert verdict["verdict"] == "unproven"
        missed = [fault for fault in verdict["faults"] if fault["injections"] == 0]
        assert missed
        assert all("probability" in fault["words"] for fault in missed)
        assert verdict["nothing_false"]
        assert verdict["identical"]
        assert verdict["leftovers"] == verdict["crashes"] == []
        assert verdict["sent_again"]["within_bound"]
        return
    scene.check_holds(ended, 10)
