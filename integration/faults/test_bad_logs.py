"""Unreadable object logs, and two copies that need the same log: the message names the log."""

from __future__ import annotations

import shutil
import signal
import struct
import time
from typing import TYPE_CHECKING

import pytest

from integration.faults.words import (
    REFUSED,
    SAFE,
    explains,
    works,
)
from integration.harness import tree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from integration.harness.program import Bench, Process, Word

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]


# Logs


def leave_log(bench: Bench, source: Path, sink: Path) -> Path:
    """Kill a copy when some data is durable. Return its log."""
    client = bench.start_cp("-r", source, f"{sink}/", "--rate", "16MiB", "--progress", "json")
    client.await_durable()
    client.kill()
    (log,) = (sink / ".dray-log").glob("*.log")
    assert list(sink.rglob("*.part")), "no partial file was left"
    return log


@pytest.fixture
def middle(bench: Bench) -> Path:
    """Make a tree with a large file, so that its copy can be killed in the middle."""
    top = bench.folder / "middle"
    top.mkdir()
    tree.make_file(top / "large", 64 * tree.MIB, seed=8)
    (top / "small").write_bytes(b"small")
    return top


def other_version(log: Path) -> None:
    data = bytearray(log.read_bytes())
    data[8:10] = struct.pack("<H", 77)
    data[12:16] = struct.pack("<I", crc32c(bytes(data[:12])))
    log.write_bytes(data)


def other_thing(log: Path) -> None:
    log.write_bytes(b"To whom it may concern: this is not a log.\n" * 9)


def flipped_in_the_header(log: Path) -> None:
    data = bytearray(log.read_bytes())
    data[40] ^= 1
    log.write_bytes(data)


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (other_version, ("cannot read", "77")),
        (other_thing, ("cannot read", "not an object log")),
        (flipped_in_the_header, ("damaged",)),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_log_that_cannot_be_read(
    bench: Bench,
    middle: Path,
    sink: Path,
    damage: Callable[[Path], None],
    words: tuple[str, ...],
) -> None:
    log = leave_log(bench, middle, sink)
    damage(log)
    before = log.read_bytes()
    again: list[Word] = ["-r", middle, f"{sink}/"]
    ended = bench.cp(*again).expect(REFUSED)
    # The message names the log, so that a person can remove it.
    explains(ended, "sink", *words, log.name, "remove")
    assert log.read_bytes() == before, "an unreadable log was changed"
    assert not (sink / "middle" / "large").exists()
    log.unlink()
    works(bench, middle, again, sink / "middle")


def test_torn_log(bench: Bench, middle: Path, sink: Path) -> None:
    log = leave_log(bench, middle, sink)
    log.write_bytes(log.read_bytes()[:-5])
    works(bench, middle, ["-r", middle, f"{sink}/"], sink / "middle")


def test_log_with_a_flipped_bit_anywhere(bench: Bench, middle: Path, sink: Path) -> None:
    log = leave_log(bench, middle, sink)
    saved = bench.folder / "saved"
    shutil.copytree(sink, saved, symlinks=True)
    length = len(log.read_bytes())
    resumed = refused = 0
    for at in range(16, length, max(1, length // 9)):
        # Reuse the same files. A copied partial file has another inode, so dray would not use it.
        data = bytearray(log.read_bytes() if log.exists() else b"")
        if not data:
            log = leave_log(bench, middle, sink)
            data = bytearray(log.read_bytes())
        data[min(at, len(data) - 1)] ^= 1 << at % 8
        log.write_bytes(data)
        ended = bench.cp("-r", middle, f"{sink}/")
        if ended.code == REFUSED:
            explains(ended, "damaged", "remove")
            refused += 1
            log.unlink()
            ended = bench.cp("-r", middle, f"{sink}/")
        ended.expect(SAFE)
        resumed += ended.report["objects_resumed"] > 0
        tree.assert_same(tree.describe(middle), sink / "middle")
        assert tree.leftovers(sink) == []
        shutil.rmtree(sink / "middle")
    print(f"\n{resumed} resumed, {refused} refused")


def test_the_partial_file_of_a_log_is_missing(bench: Bench, middle: Path, sink: Path) -> None:
    leave_log(bench, middle, sink)
    (part,) = sink.rglob("*.part")
    part.unlink()
    ended = works(bench, middle, ["-r", middle, f"{sink}/"], sink / "middle")
    explains(ended, "sink", "large", "partial file", "starting over")


def test_log_of_a_changed_source(bench: Bench, middle: Path, sink: Path) -> None:
    leave_log(bench, middle, sink)
    tree.make_file(middle / "large", 64 * tree.MIB, seed=9)
    ended = works(bench, middle, ["-r", middle, f"{sink}/"], sink / "middle")
    explains(ended, "sink", "large", "the source has changed", "starting over")
    assert ended.report["bytes_sent"] >= 64 * tree.MIB


# Two concurrent copies


def start_slow(bench: Bench, source: Path, destination: str, *words: Word) -> Process:
    return bench.start_slow_cp("-r", source, destination, "--rate", "3MiB", *words)


@pytest.mark.parametrize("where", ["here", "there"])
def test_two_copies_to_one_destination(bench: Bench, source: Path, sink: Path, where: str) -> None:
    words: list[Word] = []
    destination = f"{sink}/"
    if where == "there":
        server = bench.serve(sink)
        destination = f"dray://{server.address}/"
        words = bench.peer(server)
    first = start_slow(bench, source, destination, "--transfer-id", "the-first:1", *words)
    second = bench.cp("-r", source, destination, *words).expect(REFUSED)
    explains(
        second,
        "sink",
        "another transfer is writing",
        "the-first:1",
        "wait until the other transfer ends",
    )
    assert second.report["state"] == "refused"
    # A local copy is refused too, because the lease belongs to the destination and not to the
    # route.
    local = bench.cp("-r", source, f"{sink}/").expect(REFUSED)
    explains(local, "the-first:1")
    first.wait().expect(SAFE)
    tree.assert_same(tree.describe(source), sink / "source")
    assert tree.leftovers(sink) == []
    # The first copy has ended, so there is no conflict any more.
    works(bench, source, ["-r", source, destination, *words], sink / "source")


def test_killed_holder_does_not_hold(bench: Bench, source: Path, sink: Path) -> None:
    start_slow(bench, source, f"{sink}/").send(signal.SIGKILL)
    time.sleep(0.1)
    works(bench, source, ["-r", source, f"{sink}/"], sink / "source")
