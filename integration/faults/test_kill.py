"""Kills, cuts, interruptions: the same command resumes, resends little, shows nothing early."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from dray.testing.proxy import Proxy
from integration.harness import tree
from integration.harness.chaos import Scene
from integration.harness.watch import Watcher

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from integration.harness.program import Bench, Ended, Process, Server, Word

pytestmark = [pytest.mark.server, pytest.mark.timeout(1200)]

MOMENTS = int(os.environ.get("DRAY_KILLS") or (20 if os.environ.get("DRAY_FULL") == "1" else 6))
DATA_BYTES = 192 * tree.MIB
POOL_BYTES = 32 * tree.MIB
SYNC_GROUP_BYTES = 64 * tree.MIB
#: Overhead of frames, TLS records and object heads, as a fraction of the data.
OVERHEAD = 0.01
RUNS_MAX = 4
REFUSED = 3
INTERRUPTED = 5
#: Maximum seconds until a lost session releases the lease. The session may first sync a group to a
#: slow disk.
HELD_SECONDS = 30.0


@dataclass
class Data:
    """The tree to copy."""

    source: Path
    wanted: dict[bytes, tree.Entry]
    size: int


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Data]:
    """Make large, medium and small files."""
    top = tmp_path_factory.mktemp("data") / "tree"
    tree.make_tree(top, 400, seed=9)
    for number, mebibytes in enumerate((100, 40, 32)):
        tree.make_file(top / f"large{number}", mebibytes * tree.MIB + 11 * number, seed=number)
    wanted = tree.describe(top)
    size = sum(entry.size for entry in wanted.values())
    left = DATA_BYTES - size
    tree.make_file(top / "rest", left, seed=77)
    yield Data(top, tree.describe(top), DATA_BYTES)
    shutil.rmtree(top.parent, ignore_errors=True)


class Pair:
    """Two processes with a proxy between them, and a watched destination."""

    def __init__(self, bench: Bench, data: Data, *, push: bool, name: str) -> None:
        """Make an empty destination; start the listening end and the proxy."""
        self.bench, self.data, self.push = bench, data, push
        self.sink = bench.folder / name
        self.sink.mkdir()
        self.served = self.sink if push else data.source.parent
        self.server = self._serve()
        self.proxy = Proxy(self.server.address)

    def _serve(self) -> Server:
        return self.bench.serve(self.served, "--pool", str(POOL_BYTES))

    def restart(self) -> None:
        """Start the listening end again if it was killed."""
        if not self.server.is_running():
            self.server = self._serve()
            self.proxy.upstream = self.server.address

    def start(self, *words: Word, source: Path | None = None) -> Process:
        """Start the copy. Each call without arguments starts the same command."""
        name = (source or self.data.source).name
        far = f"dray://{self.proxy.address}/"
        ends: list[Word] = (
            [source or self.data.source, far] if self.push else [f"{far}{name}", f"{self.sink}/"]
        )
        peer = self.bench.peer(self.server)
        return self.bench.start_cp("-r", *ends, "--pool", str(POOL_BYTES), *peer, *words)

    def finish(self, *words: Word, source: Path | None = None) -> Ended:
        """Run the command again and again until a run succeeds.

        :raises AssertionError: if no run succeeds.
        """
        said = ""
        runs, began = 0, time.monotonic()
        while runs < RUNS_MAX:
            self.restart()
            ended = self.start("--retries", "0", *words, source=source).wait()
            if ended.code == 0:
                return ended
            said = ended.words
            if ended.code == REFUSED and "another transfer is writing" in said:
                # The lost session still has the lease, while the listening end syncs its data.
                assert time.monotonic() - began < HELD_SECONDS, f"held for ever: {said}"
                time.sleep(0.1)
                continue
            assert ended.code == INTERRUPTED, f"{ended.code}: {said}"
            runs += 1
        raise AssertionError(f"not done after {RUNS_MAX} runs; the last said:\n{said}")

    def watch(self) -> Watcher:
        """Watch the files under final names."""
        return Watcher(self.sink, Watcher.of(self.data.wanted, b"tree"))

    def carried(self) -> int:
        """Count the bytes on data connections, in the direction of the data."""
        return self.proxy.counted()[0 if self.push else 1]

    def check_identical(self) -> None:
        """Fail unless the copied tree is identical, without leftovers of dray."""
        tree.assert_same(self.data.wanted, self.sink / "tree")
        assert tree.leftovers(self.sink) == []

    def close(self) -> None:
        """Stop the proxy and the server, and remove the destination folder."""
        self.proxy.close()
        self.server.kill()
        shutil.rmtree(self.sink, ignore_errors=True)


def excess_allowed(data: Data, faults: int = 1) -> int:
    return faults * (POOL_BYTES + SYNC_GROUP_BYTES) + int(OVERHEAD * 2 * data.size)


def whole_run(bench: Bench, data: Data, *, push: bool) -> float:
    """Return the seconds of a copy without a fault."""
    pair = Pair(bench, data, push=push, name=f"whole-{push}")
    try:
        with pair.watch() as watcher:
            ended = pair.start().wait().expect(0)
        assert watcher.violations == []
        assert pair.carried() <= data.size * (1 + OVERHEAD)
        pair.check_identical()
        return ended.seconds
    finally:
        pair.close()


@pytest.mark.parametrize("victim", ["source", "sink"])
def test_a_copy_killed_at_any_moment_resumes_with_the_same_command(
    bench: Bench, data: Data, victim: str
) -> None:
    seed = int(os.environ.get("DRAY_SEED", "1106"))
    chance = random.Random(f"{seed} {victim}")
    print(f"\nseed {seed} (DRAY_SEED replays it), {MOMENTS} moments")
    whole = {push: whole_run(bench, data, push=push) for push in (True, False)}
    worst, resumed = 0, 0
    for moment in range(MOMENTS):
        # Push and pull alternate.
        push = moment % 2 == 0
        after = chance.uniform(0.0, 1.0) * whole[push]
        pair = Pair(bench, data, push=push, name=f"sink-{victim}-{moment}")
        try:
            with pair.watch() as watcher:
                client = pair.start("--retries", "0")
                time.sleep(after)
                doomed = client if (victim == "source") == push else pair.server
                doomed.kill()
                first = client.wait()
                assert first.code in {0, INTERRUPTED, -signal.SIGKILL, 4}, first.words
                second = pair.finish()
            where = f"{victim} killed after {after:.3f} s, {'push' if push else 'pull'}"
            assert watcher.violations == [], where
            pair.check_identical()
            excess = pair.carried() - data.size
            assert excess <= excess_allowed(data), f"{where}: {excess} bytes more than the data"
            worst = max(worst, excess)
            resumed += second.report["objects_resumed"] + second.report["files_adopted"] > 0
        finally:
            pair.close()
    print(f"{victim}: at worst {worst / tree.MIB:.1f} MiB sent twice; {resumed} runs resumed")
    assert resumed >= MOMENTS // 4, "nearly every run started from zero: resuming was not tested"


def test_both_ends_killed_again_and_again(bench: Bench, data: Data) -> None:
    scene = Scene(bench, given=data.source, rate="32MiB")
    kills = [
        {"kind": "kill", "target": ("client", "end")[kill % 2], "at": f"{5 + 12 * kill}%"}
        for kill in range(6)
    ]
    verdict = scene.check_holds(scene.run(scene.plan(*kills)), len(kills))
    # The scene makes the folder at the top, so the copy does not set its attributes.
    below = [
        {path: entries[path] for path in entries if path}
        for entries in (data.wanted, tree.describe(scene.sink))
    ]
    assert tree.differences(below[0], below[1]) == []
    assert verdict["sent_again"]["bytes"] <= excess_allowed(data, len(kills))


@pytest.mark.parametrize("push", [True, False], ids=["push", "pull"])
def test_a_copy_resumes_by_itself_after_a_cut_connection(
    bench: Bench, data: Data, push: bool
) -> None:
    pair = Pair(bench, data, push=push, name="sink")
    try:
        with pair.watch() as watcher:
            # Cut the connection more often than the number of tries. A try with new durable data
            # does not count, so the copy must still succeed.
            client = pair.start("--retries", "4", "--rate", "100MiB")
            for cut in range(6):
                pair.proxy.await_bytes((cut + 1) * 24 * tree.MIB)
                assert pair.proxy.cut() > 0
            ended = client.wait().expect(0)
        assert watcher.violations == []
        pair.check_identical()
        assert pair.carried() - data.size <= excess_allowed(data, 6)
        assert ended.report["state"] == "done"
    finally:
        pair.close()


def test_single_streams_cut(bench: Bench, data: Data) -> None:
    pair = Pair(bench, data, push=True, name="sink")
    try:
        with pair.watch() as watcher:
            client = pair.start("--streams", "4", "--rate", "100MiB")
            for cut in range(3):
                pair.proxy.await_bytes((cut + 1) * 40 * tree.MIB)
                pair.proxy.cut(data_only=True)
            client.wait().expect(0)
        assert watcher.violations == []
        pair.check_identical()
        assert pair.carried() - data.size <= excess_allowed(data, 3)
    finally:
        pair.close()


@pytest.mark.parametrize("push", [True, False], ids=["push", "pull"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=lambda how: str(how.name))
def test_a_copy_resumes_by_itself_after_a_server_restart(
    bench: Bench, data: Data, how: signal.Signals, push: bool
) -> None:
    pair = Pair(bench, data, push=push, name="sink")
    try:
        with pair.watch() as watcher:
            client = pair.start("--retries", "10", "--rate", "100MiB")
            pair.proxy.await_bytes(80 * tree.MIB)
            pair.server.send(how)
            pair.server.wait(30)
            pair.restart()
            ended = client.wait().expect(0)
        assert watcher.violations == []
        if how == signal.SIGTERM:
            assert any("the server is stopping" in notice for notice in ended.report["notices"])
        pair.check_identical()
        assert pair.carried() - data.size <= excess_allowed(data)
    finally:
        pair.close()


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("push", [True, False], ids=["push", "pull"])
def test_control_c_keeps_durable_data(bench: Bench, data: Data, times: int, push: bool) -> None:
    pair = Pair(bench, data, push=push, name="sink")
    try:
        with pair.watch() as watcher:
            client = pair.start("--rate", "100MiB")
            pair.proxy.await_bytes(90 * tree.MIB)
            for _ in range(times):
                client.send(signal.SIGINT)
                time.sleep(0.01)
            asked = time.monotonic()
            stopped = client.wait(30).expect(INTERRUPTED)
            # A process whose thread waits for the disk cannot end before the disk answers.
            assert time.monotonic() - asked < (2 if times == 2 and push else 20)
            assert "Run the same command to resume" in stopped.words
            if times == 1:
                assert stopped.report["state"] == "cancelled"
            resumed = pair.finish()
        assert watcher.violations == []
        pair.check_identical()
        report = resumed.report
        assert report["objects_resumed"] + report["files_adopted"] > 0
        assert pair.carried() - data.size <= excess_allowed(data)
    finally:
        pair.close()


def interrupt(pair: Pair, after: int) -> Ended:
    """Start the copy, and kill it when ``after`` bytes have been sent."""
    client = pair.start("--rate", "100MiB")
    pair.proxy.await_bytes(after)
    return client.kill()


def test_any_allowed_user_resumes_from_an_equal_replica(bench: Bench, data: Data) -> None:
    pair = Pair(bench, data, push=True, name="sink")
    replica = bench.folder / "replica" / "tree"
    shutil.copytree(data.source, replica, symlinks=True)
    shutil.copystat(data.source, replica)
    try:
        with pair.watch() as watcher:
            interrupt(pair, 110 * tree.MIB)
            pair.proxy.cut()
            ended = pair.finish("--transfer-id", "somebody-else:1", source=replica)
        assert ended.report["transfer_id"] == "somebody-else:1"
        assert watcher.violations == []
        pair.check_identical()
        assert ended.report["objects_resumed"] + ended.report["files_adopted"] > 0
        assert pair.carried() - data.size <= excess_allowed(data)
    finally:
        pair.close()


@pytest.mark.parametrize("push", [True, False], ids=["push", "pull"])
def test_changed_source_is_sent_from_the_start_and_never_mixed(bench: Bench, push: bool) -> None:
    source = bench.folder / "source" / "tree"
    source.mkdir(parents=True)
    tree.make_file(source / "changes", 150 * tree.MIB, seed=1)
    tree.make_file(source / "stays", 8 * tree.MIB, seed=2)
    data = Data(source, tree.describe(source), 158 * tree.MIB)
    pair = Pair(bench, data, push=push, name="sink")
    try:
        with pair.watch() as watcher:
            interrupt(pair, 120 * tree.MIB)
        assert watcher.violations == []
        assert list(pair.sink.rglob("*.part")), "no partial data was left"
        before = pair.carried()
        # Replace the source file by a file of the same length, with other bytes and another time.
        tree.make_file(source / "changes", 150 * tree.MIB, seed=3)
        pair.data.wanted = tree.describe(source)
        with pair.watch() as watcher:
            ended = pair.finish()
        assert watcher.violations == []
        pair.check_identical()
        assert pair.carried() - before >= 150 * tree.MIB, "old and new bytes were mixed"
        # The sink, which has the log, reports the changed source.
        notices = [json.dumps(notice) for notice in pair.server.transfers()]
        notices += ended.report["notices"]
        assert any("changes: the source has changed" in notice for notice in notices), ended.words
        assert ended.report["state"] == "done"
    finally:
        pair.close()


def test_a_killed_local_copy_resumes(bench: Bench, data: Data) -> None:
    sink = bench.folder / "sink"
    words: list[Word] = ["-r", data.source, f"{sink}/", "--pool", str(2 * POOL_BYTES)]
    with Watcher(bench.folder / "sink", Watcher.of(data.wanted, b"tree")) as watcher:
        client = bench.start_cp(*words, "--rate", "60MiB", "--progress", "json")
        client.await_durable(40 * tree.MIB)
        client.kill()
        ended = bench.cp(*words).expect(0)
    assert watcher.violations == []
    tree.assert_same(data.wanted, sink / "tree")
    assert tree.leftovers(sink) == []
    report = ended.report
    assert report["objects_resumed"] + report["files_adopted"] > 0
    assert report["bytes_sent"] < data.size
