"""``dray chaos`` against real programs: it injects its faults, and its verdict is true."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from integration.harness import tree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from integration.harness.program import Bench, Ended, Process

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(300)]

HOLDS, BROKEN, USAGE, NO_VERDICT, _, STOPPED = range(6)
SEED = int(os.environ.get("DRAY_SEED", "29"))
LARGE_BYTES = 24 * tree.MIB
RATE = "8MiB"

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


def free_address() -> str:
    """Return an address of this host that no program uses."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


@dataclass
class Scene:
    """A source, a destination and a plan for a copy through ``dray serve``."""

    bench: Bench
    push: bool = True
    rate: str = RATE
    source: Path = field(init=False)
    sink: Path = field(init=False)
    address: str = field(default_factory=free_address)

    def __post_init__(self) -> None:
        """Make a tree of two large and some small files."""
        self.source = self.bench.folder / "source"
        tree.make_tree(self.source, 60, seed=SEED)
        for number in range(2):
            tree.make_file(self.source / f"large{number}", LARGE_BYTES, seed=number)
        self.sink = self.bench.folder / "sink" / "copy"
        self.sink.mkdir(parents=True)

    def plan(self, *faults: dict[str, Any], head: str = "", tail: str = "") -> Path:
        """Write a plan with these faults."""
        served = self.sink.parent if self.push else self.bench.folder
        far = "dray://{end}/"
        ends = [f"{self.source}/", far + "copy"] if self.push else [f"{far}source/", str(self.sink)]
        pool = ["--pool", "32MiB", "--token-file", str(self.bench.token)]
        copy = ["dray", "cp", "-r", "--rate", self.rate, *pool, "--peer-key", "{end.key}", *ends]
        serve = ["dray", "serve", "--root", str(served), "--listen", self.address, *pool]
        serve += ["--identity", "{folder}/identity"]
        tables: list[tuple[str, dict[str, Any]]] = [
            ("[copy]", {"source": str(self.source), "destination": str(self.sink)}),
            ("", {"command": copy}),
            ("[[endpoint]]", {"name": "end", "command": serve, "address": self.address}),
            *(("[[fault]]", fault) for fault in faults),
        ]
        lines = [head]
        for title, entries in tables:
            lines += [title, *(f"{key} = {json.dumps(value)}" for key, value in entries.items())]
        path = self.bench.folder / "plan.toml"
        path.write_text("\n".join([*lines, tail, ""]), encoding="utf-8")
        return path

    def start(self, plan: Path, *words: str) -> Process:
        """Start ``dray chaos`` with its temporary files in the folder of the test."""
        env = {"TMPDIR": str(self.bench.folder)}
        return self.bench.start("chaos", "--json", *words, plan, name="chaos", env=env)

    def run(self, plan: Path, *words: str) -> Ended:
        """Run ``dray chaos``, and wait until it has ended."""
        return self.start(plan, *words).wait(280)

    def check_holds(self, ended: Ended, faults: int) -> dict[str, Any]:
        """Check the verdict with other tools than those of ``dray chaos``."""
        verdict = ended.expect(HOLDS).report
        assert verdict["verdict"] == "holds"
        assert [fault for fault in verdict["faults"] if fault["injections"] == 0] == []
        assert len(verdict["faults"]) == faults
        assert verdict["sent_again"]["measured_by"] == "proxy"
        assert tree.differences(files(self.source), files(self.sink)) == []
        assert tree.leftovers(self.sink) == []
        assert verdict["folder"] is None
        assert list(self.bench.folder.glob("dray-chaos-*")) == []
        assert is_free(self.address), "an endpoint is still running"
        return verdict


def files(top: Path) -> dict[bytes, tree.Entry]:
    """Describe the files of a tree, without its folders."""
    return {path: entry for path, entry in tree.describe(top).items() if entry.kind == "file"}


def is_free(address: str) -> bool:
    """Return whether no program accepts connections at an address."""
    host, _, port = address.rpartition(":")
    with socket.socket() as client:
        return client.connect_ex((host, int(port))) != 0


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
        time.sleep(3)
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
    assert "before the first fault" in ended.words
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
    scene.check_holds(ended, 10)
