"""Concurrent transfers into one folder: a file has one writer, which removes only its own files."""

from __future__ import annotations

import random
import signal
import statistics
import time
from typing import TYPE_CHECKING

import pytest

from integration.harness import tree
from integration.harness.program import POLL_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from integration.harness.program import Bench, Process, Word

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

SAFE, SOME_FAILED = range(2)

MIB = tree.MIB
#: Size of each group of files at the source in bytes.
GROUP_BYTES = 3 * 8 * MIB
#: Rate of a limited transfer in bytes per second. One group takes twelve seconds.
RATE = 2 * MIB
#: Number of measurements of one transfer and of three transfers, in turn.
PAIRS = 3

#: Destination: a folder of this process, or a folder that `dray serve` writes to.
WHERE = pytest.mark.parametrize("where", ["here", "there"])


@pytest.fixture
def source(bench: Bench) -> Path:
    """Make a folder with three groups of three files."""
    top = bench.folder / "source"
    top.mkdir()
    for group in range(3):
        for number in range(3):
            seed = 10 * group + number
            tree.make_file(top / f"ev{group}-{number}", 8 * MIB, seed=seed)
    return top


def ends_of(bench: Bench, where: str) -> tuple[Path, str, list[Word]]:
    """Return the destination's folder, its name for ``dray cp``, and the options to reach it."""
    sink = bench.folder / "sink"
    sink.mkdir()
    if where == "here":
        return sink, f"{sink}/", []
    server = bench.serve(sink)
    return sink, f"dray://{server.address}/", bench.peer(server)


def parts(sink: Path) -> set[str]:
    """Return the partial files and logs in the destination folder."""
    found = {path.name for path in sink.rglob(".dray-*.part")}
    return found | {path.name for path in sink.glob(".dray-log/*.log")}


def await_logs(copies: list[Process], sink: Path, count: int) -> None:
    """Wait until the logs of this many transfers exist at the same time."""
    until = time.monotonic() + 60
    while len(list(sink.glob(".dray-log/*.log"))) < count:
        assert all(copy.is_running() for copy in copies), "one ended before all had begun"
        assert time.monotonic() < until, "not at the same time within a minute"
        time.sleep(POLL_SECONDS)


def slow_copy(bench: Bench, source: Path, to: str, *words: Word) -> Process:
    """Start a copy of a folder's contents that takes some seconds."""
    return bench.start_cp(
        "-r", f"{source}/", to, "--rate", "8MiB", "--progress", "json", "--retries", "0", *words
    )


@WHERE
def test_a_finished_transfer_keeps_durable_data_of_another(
    bench: Bench, source: Path, where: str
) -> None:
    sink, to, words = ends_of(bench, where)
    first = slow_copy(bench, source, to, "--include", "ev0*", *words)
    first.await_durable(4 * MIB)
    first.kill()
    left = parts(sink)
    assert left, "nothing was left"
    await_free(sink)
    for pattern, files in (("ev1*", 3), ("none*", 0)):
        ended = bench.cp(
            "-r", f"{source}/", to, "--include", pattern, "--allow-empty", *words
        ).expect(SAFE)
        assert ended.report["files"] == files
        assert parts(sink) == left, "durable data of the first transfer was changed"
    again = bench.cp("-r", f"{source}/", to, "--include", "ev0*", *words).expect(SAFE)
    assert again.report["bytes_resumed"] >= 4 * MIB
    for path in source.glob("ev[01]*"):
        assert (sink / path.name).read_bytes() == path.read_bytes()
    assert tree.leftovers(sink) == []


def await_free(sink: Path) -> None:
    """Wait until no log changes, so the loss of the killed transfers was detected."""
    before: dict[str, int] = {}
    until = time.monotonic() + 30
    while time.monotonic() < until:
        now = {str(path): path.stat().st_mtime_ns for path in sink.glob(".dray-log/*.log")}
        if now == before:
            return
        before = now
        time.sleep(1.5)


@WHERE
def test_transfers_of_other_files_move_side_by_side(bench: Bench, source: Path, where: str) -> None:
    sink, to, words = ends_of(bench, where)
    alone = slow_copy(bench, source, to, "--include", "ev0*", *words).wait().expect(SAFE)
    for path in sink.glob("ev0*"):
        path.unlink()
    began = time.monotonic()
    copies = [
        slow_copy(bench, source, to, "--include", f"ev{group}*", *words) for group in range(3)
    ]
    await_logs(copies, sink, 3)
    for copy in copies:
        copy.await_durable()
    assert all(copy.is_running() for copy in copies), "one transfer waited for another"
    for copy in copies:
        ended = copy.wait().expect(SAFE)
        assert ended.report["files"] == 3
    took = time.monotonic() - began
    print(f"one took {alone.seconds:.2f} s, three side by side {took:.2f} s")
    for path in source.iterdir():
        assert (sink / path.name).read_bytes() == path.read_bytes()
    assert tree.leftovers(sink) == []


def seconds_of(copies: list[Process]) -> float:
    """Return the seconds from the first start to the last end."""
    ended = [copy.wait().expect(SAFE) for copy in copies]
    ends = [copy.started + each.seconds for copy, each in zip(copies, ended, strict=True)]
    return max(ends) - min(copy.started for copy in copies)


@pytest.mark.full
@pytest.mark.slow
def test_three_limited_transfers_take_about_as_long_as_one(bench: Bench, source: Path) -> None:
    """Three transfers with a rate limit each send different files to one ``dray serve`` folder."""
    sink, to, words = ends_of(bench, "there")

    def moved(groups: range) -> float:
        for path in sink.glob("ev*"):
            path.unlink()
        copies = [
            bench.start_cp(
                *("-r", f"{source}/", to, "--include", f"ev{group}*"),
                *("--rate", f"{RATE >> 20}MiB", *words),
            )
            for group in groups
        ]
        seconds = seconds_of(copies)
        assert len(list(sink.glob("ev*"))) == 3 * len(groups)
        assert tree.leftovers(sink) == []
        return seconds

    pairs = [(moved(range(1)), moved(range(3))) for _ in range(PAIRS)]
    ratios = [three / one for one, three in pairs]
    one, three = (statistics.median(each) for each in zip(*pairs, strict=True))
    print(
        f"\none took {one:.2f} s, three side by side {three:.2f} s (medians of {PAIRS}); "
        f"{statistics.median(ratios):.3f} times (median of pairs)"
    )
    assert one >= GROUP_BYTES / RATE * 0.8, "the rate was not kept"
    # Three transfers in turn would take three times as long. The limit allows for a busy host.
    assert statistics.median(ratios) < 1.5


@WHERE
def test_a_file_that_another_writes_is_refused_by_name_and_the_others_move(
    bench: Bench, source: Path, where: str
) -> None:
    sink, to, words = ends_of(bench, where)
    other = bench.folder / "other"
    other.mkdir()
    tree.make_file(other / "ev0-0", 40 * MIB, seed=77)
    # The first copy must still run when the second one ends, also on a busy host.
    slow = ("--rate", "2MiB", "--progress", "json", "--transfer-id", "the-first:1")
    first = bench.start_cp("-r", f"{other}/", to, *slow, *words)
    first.await_durable()
    second = bench.cp("-r", f"{source}/", to, *words).expect(SOME_FAILED)
    assert first.is_running(), "the two did not overlap"
    (failure,) = second.report["files_failed"]
    assert failure["path"] == "ev0-0"
    assert failure["kind"] == "lease_held"
    assert "the-first:1" in second.words
    assert second.report["files"] == 8
    first.wait().expect(SAFE)
    assert (sink / "ev0-0").read_bytes() == (other / "ev0-0").read_bytes()
    bench.cp("-r", f"{source}/", to, *words).expect(SAFE)
    for path in source.iterdir():
        assert (sink / path.name).read_bytes() == path.read_bytes()
    assert tree.leftovers(sink) == []


@WHERE
def test_a_transfer_resumes_the_partial_data_of_another(
    bench: Bench, source: Path, where: str
) -> None:
    sink, to, words = ends_of(bench, where)
    first = slow_copy(bench, source, to, "--transfer-id", "first", *words)
    first.await_durable(12 * MIB)
    first.kill()
    await_free(sink)
    # The copy also resumes locally, without the server.
    ended = bench.cp("-r", f"{source}/", f"{sink}/", "--transfer-id", "second").expect(SAFE)
    assert ended.report["bytes_resumed"] + 8 * MIB * ended.report["files_adopted"] >= 12 * MIB
    tree_of = {path.name: path.read_bytes() for path in source.iterdir()}
    assert {path.name: path.read_bytes() for path in sink.glob("ev*")} == tree_of
    assert tree.leftovers(sink) == []


def test_kills_while_one_takes_over_from_another_lose_nothing(bench: Bench, source: Path) -> None:
    sink = bench.folder / "sink"
    sink.mkdir()
    chance = random.Random(11)
    for number in range(24):
        copy = bench.start_cp(
            *("-r", f"{source}/", f"{sink}/", "--rate", "40MiB", "--durability", "object"),
            *("--transfer-id", f"t{number % 3}", "--progress", "json"),
        )
        time.sleep(chance.uniform(0.02, 0.5))
        copy.send(signal.SIGKILL)
        copy.wait()
    ended = bench.cp("-r", f"{source}/", f"{sink}/", "--transfer-id", "last").expect(SAFE)
    durable = ended.report["bytes_resumed"] + 8 * MIB * ended.report["files_adopted"]
    print(f"{durable >> 20} MiB of 72 were there")
    for path in source.iterdir():
        assert (sink / path.name).read_bytes() == path.read_bytes()
    logs = list(sink.glob(".dray-log/*.log"))
    assert logs == [], "every reported leftover was taken over"
