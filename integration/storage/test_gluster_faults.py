"""Copies from and to GlusterFS, while programs, endpoints or bricks are killed."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import time
from typing import TYPE_CHECKING

import pytest

from dray.client import Policy, Request, Retry, Selection, copy
from dray.testing.endpoints import Root
from integration.harness import tree
from integration.storage.gluster import make_files, reason
from integration.storage.moments import kills
from integration.storage.trees import same

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dray.client import Copy, Transfer
    from dray.testing.endpoints import Endpoint
    from integration.harness.program import Bench, Ended, Word
    from integration.storage.gluster import Gluster, Volume

pytestmark = [
    pytest.mark.full,
    pytest.mark.server,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(reason()), reason=reason()),
]

#: Rate in bytes per second at which a copy takes long enough to be killed.
RATE_BYTES = 4 * tree.MIB
#: Number and size of the files in a distributed volume, and of those in a sharded volume.
SPREAD_FILES, SPREAD_BYTES = 16, 3 * tree.MIB + 5
LARGE_FILES, LARGE_BYTES = 2, 20 * tree.MIB + 5
KILLS = kills(full=10)
#: Maximum seconds from the start of a copy to its kill.
KILL_SECONDS = 2.0
#: Maximum seconds of a copy. GlusterFS takes some seconds to notice a killed or revived brick.
PATIENT_SECONDS = 180.0
CALLS = Policy(seconds=60, tries=60, first_pause=0.1, longest_pause=1.0)
PATIENT = Retry(tries=60, interval_seconds=1)
#: Maximum bytes that a transfer sends again after a kill.
AGAIN_BYTES = 16 * tree.MIB


def make_source(top: Path, volume: Volume) -> dict[bytes, tree.Entry]:
    """Make files that suit the volume. Return their description."""
    if volume.name == "sharded":
        make_files(top, LARGE_FILES, LARGE_BYTES)
    else:
        make_files(top, SPREAD_FILES, SPREAD_BYTES)
    tree.make_tree(top / "small", 40, seed=3)
    # Wait until the times are stable: GlusterFS changes them again after the last write.
    before: dict[bytes, tree.Entry] = {}
    after = tree.describe(top)
    while before != after:
        time.sleep(0.5)
        before, after = after, tree.describe(top)
    return after


def has_times(volume: Volume) -> bool:
    """Return whether dray can set the times of a volume's files.

    No program can set the times of files on a sharded volume.
    """
    return volume.name != "sharded"


@pytest.mark.parametrize("way", ["in", "out"])
def test_a_killed_copy_resumes(bench: Bench, volume: Volume, way: str) -> None:
    """A killed copy into or out of a volume resumes from its durable data."""
    here, there = bench.folder / "here", volume.folder / f"killed-{way}"
    source, sink = (here, there) if way == "in" else (there, here)
    wanted = make_source(source, volume)
    words: list[Word] = ["-r", f"{source}/", sink, "--pool", "16MiB"]
    for _ in range(2):
        client = bench.start_cp("--progress", "json", "--rate", str(RATE_BYTES), *words)
        client.await_durable(RATE_BYTES)
        assert client.kill().code == -signal.SIGKILL
    report = bench.cp(*words).expect(0).report
    same(wanted, sink, has_times=has_times(volume))
    assert tree.leftovers(sink) == []
    # Without correct times, the copy cannot adopt the finished files. It resumes the others.
    least = RATE_BYTES if has_times(volume) else 1
    assert report["bytes_resumed"] + report["bytes_adopted"] >= least, report
    shutil.rmtree(there)


@pytest.mark.parametrize("way", ["in", "out"])
def test_a_copy_killed_at_many_moments_is_identical(
    bench: Bench, sharded: Volume, way: str
) -> None:
    """After many kills, the copied files are equal to their source."""
    here, there = bench.folder / "here", sharded.folder / f"many-{way}"
    source, sink = (here, there) if way == "in" else (there, here)
    wanted = make_source(source, sharded)
    moments = random.Random(int(os.environ.get("DRAY_SEED", "11")))
    words: list[Word] = ["-r", f"{source}/", sink, "--pool", "16MiB"]
    # At this rate, all killed runs together copy at most 0.8 of the large files.
    rate = int(0.8 * LARGE_FILES * LARGE_BYTES / (KILLS * KILL_SECONDS))
    for _ in range(KILLS):
        client = bench.start_cp("--rate", str(rate), *words)
        until = time.monotonic() + moments.uniform(0, KILL_SECONDS)
        while time.monotonic() < until:
            assert client.is_running()
            time.sleep(0.005)
        assert client.kill().code == -signal.SIGKILL
    # Let one more run make some data durable, which the last run can resume.
    client = bench.start_cp("--progress", "json", "--rate", str(rate), *words)
    client.await_durable()
    client.kill()
    report = bench.cp(*words).expect(0).report
    same(wanted, sink, has_times=has_times(sharded))
    assert tree.leftovers(sink) == []
    assert report["bytes_resumed"] > 0, report
    shutil.rmtree(there)


def finish(bench: Bench, words: list[Word], ended: Ended) -> int:
    """Repeat a failed copy until it succeeds. Return the bytes that the repetitions sent."""
    until = time.monotonic() + PATIENT_SECONDS
    sent = 0
    while ended.code != 0:
        assert time.monotonic() < until, ended.words
        ended = bench.cp(*words, seconds=PATIENT_SECONDS)
        sent += int(ended.report["bytes_sent"])
    return sent


@pytest.mark.parametrize("way", ["in", "out"])
def test_a_copy_completes_after_the_return_of_a_killed_brick(
    bench: Bench, gluster: Gluster, volume: Volume, way: str
) -> None:
    """A brick is killed and revived. The running copy, or its repetition, completes the files."""
    here, there = bench.folder / "here", volume.folder / f"brick-{way}"
    source, sink = (here, there) if way == "in" else (there, here)
    wanted = make_source(source, volume)
    words: list[Word] = ["-r", f"{source}/", sink, "--pool", "16MiB"]
    client = bench.start_cp("--progress", "json", "--rate", str(RATE_BYTES), *words)
    client.await_durable(RATE_BYTES)
    gluster.kill_brick(volume, 1)
    time.sleep(1.0)
    gluster.revive_bricks(volume)
    ended = client.wait(PATIENT_SECONDS)
    sent = finish(bench, words, ended)
    print(f"\n{volume.name} {way}: exit code {ended.code}, then {sent} bytes sent again")
    if has_times(volume):
        assert sent <= SPREAD_FILES * SPREAD_BYTES
    same(wanted, sink, has_times=has_times(volume))
    assert tree.leftovers(sink) == []
    shutil.rmtree(there)


def test_a_copy_to_a_replicated_volume_continues_without_a_brick(
    bench: Bench, gluster: Gluster
) -> None:
    """A copy continues while one of three replica bricks is dead, and its files are correct."""
    bricks = [gluster.folder / "bricks" / f"three{number}" for number in range(3)]
    three = gluster.volume("three", bricks, layout=("replica", "3"))
    here, there = bench.folder / "here", three.folder / "in"
    wanted = make_source(here, three)
    words: list[Word] = ["-r", f"{here}/", there, "--pool", "16MiB"]
    client = bench.start_cp("--progress", "json", "--rate", str(RATE_BYTES), *words)
    client.await_durable(RATE_BYTES)
    gluster.kill_brick(three, 2)
    time.sleep(2.0)
    gluster.revive_bricks(three)
    client.wait(PATIENT_SECONDS).expect(0)
    same(wanted, there)
    gluster.remove(three)


# --- endpoints ------------------------------------------------------------------------------------


@pytest.fixture
def release_program(monkeypatch: pytest.MonkeyPatch, program: Path) -> None:
    """Make endpoints run the release program."""
    monkeypatch.setenv("DRAY_PROGRAM", str(program))


@pytest.fixture
def ends(
    release_program: None, start_endpoint: Callable[..., Endpoint], sharded: Volume
) -> Iterator[tuple[Endpoint, Endpoint]]:
    """Yield an endpoint with a root on a local disk, and one with a root on a volume's mount."""
    top = sharded.folder / "root"
    top.mkdir()
    local = start_endpoint("local")
    far = start_endpoint("gluster", roots=(Root("data", {"path": str(top)}),))
    yield local, far
    shutil.rmtree(top)


@contextlib.contextmanager
def moving(source: Endpoint, sink: Endpoint, id: str, rate: int | None) -> Iterator[Copy]:
    """Submit a transfer of the folder ``id``, which the sink drives. Yield its handle."""
    request = Request(
        sources=(),
        destination="",
        id=id,
        selection=Selection(recursive=True),
        rate_max=rate,
        retry=PATIENT,
    )
    with (
        source.client(policy=CALLS) as there,
        sink.client(policy=CALLS) as here,
        copy(
            source.place(id),
            sink.place("got/"),
            source=there,
            destination=here,
            active="destination",
            request=request,
        ) as handle,
    ):
        yield handle


def expect_done(transfer: Transfer) -> None:
    """Fail unless the transfer is done."""
    assert transfer.state == "done", f"{transfer.state}: {transfer.error} {transfer.notices}"


def test_an_endpoint_on_a_mount_takes_and_gives_transfers(
    bench: Bench, sharded: Volume, ends: tuple[Endpoint, Endpoint]
) -> None:
    """An endpoint with a root on a mount is the sink of one transfer, and the source of another."""
    local, far = ends
    top = sharded.folder / "root"
    for source, sink, source_top, sink_top in (
        (local, far, local.root(), top),
        (far, local, top, local.root()),
    ):
        way = "in" if sink is far else "out"
        wanted = make_source(source_top / way, sharded)
        with moving(source, sink, way, None) as handle:
            expect_done(handle.wait(timeout_seconds=PATIENT_SECONDS))
        same(wanted, sink_top / "got" / way, has_times=has_times(sharded))
        assert tree.leftovers(sink_top) == []


@pytest.mark.parametrize("way", ["in", "out"])
def test_an_endpoint_on_a_mount_is_killed_at_many_moments(
    sharded: Volume, ends: tuple[Endpoint, Endpoint], way: str
) -> None:
    """The endpoint on the mount is killed and restarted. Its transfer resumes each time."""
    local, far = ends
    top = sharded.folder / "root"
    source, sink = (local, far) if way == "in" else (far, local)
    source_top, sink_top = (local.root(), top) if way == "in" else (top, local.root())
    wanted = make_source(source_top / way, sharded)
    size = sum(entry.size for entry in wanted.values() if entry.kind == "file")
    moments = random.Random(int(os.environ.get("DRAY_SEED", "12")))
    kills = 0
    with moving(source, sink, way, RATE_BYTES) as handle:
        for _ in range(KILLS):
            time.sleep(moments.uniform(0.2, 2.0))
            with sink.client(policy=CALLS) as client:
                if client.transfer(way).is_terminal:
                    break
            far.kill()
            far.start()
            kills += 1
        done = handle.wait(timeout_seconds=PATIENT_SECONDS)
    expect_done(done)
    assert kills >= min(3, KILLS), kills
    print(f"\n{way}: {kills} kills, {done.tries} tries, {done.bytes}")
    assert done.bytes.sent <= size + kills * AGAIN_BYTES
    same(wanted, sink_top / "got" / way, has_times=has_times(sharded))
    assert tree.leftovers(sink_top) == []


# --- tiers ----------------------------------------------------------------------------------------


def test_a_hanging_mount_of_a_tier_does_not_delay_another_tier(
    release_program: None,
    gluster: Gluster,
    spread: Volume,
    start_endpoint: Callable[..., Endpoint],
) -> None:
    """The second tier finds new versions while the mount of the first tier does not answer."""
    top = spread.folder / "tier"
    top.mkdir()
    roots = [Root("hangs", {"path": str(top)}), Root("fast"), Root("slow"), Root("other")]
    common = {
        "capacity": 32 * tree.MIB,
        "period": 600,
        "write_max": "400MiB",
        "write_min": "300MiB",
        "read_max": "200MiB",
        "read_min": "10MiB",
        "versions": "{application}/{version}",
        "complete": "marker:DONE",
        "owner": "alice",
    }
    tiers = [
        {"name": "first", "fast": ["hangs"], "slow": "other", **common},
        {"name": "second", "fast": ["fast"], "slow": "slow", **common},
    ]
    endpoint = start_endpoint("tiers", roots=roots, config={"tier": tiers})
    with endpoint.client(policy=CALLS) as client:

        def await_demoted(tier: str, application: str) -> None:
            until = time.monotonic() + 60.0
            while not any(
                one.application == application and one.state == "demoted"
                for one in client.tier(tier).versions
            ):
                assert time.monotonic() < until, client.tier(tier)
                time.sleep(0.1)

        def write(fast: Path, application: str) -> None:
            (fast / application / "1").mkdir(parents=True)
            (fast / application / "1" / "state").write_bytes(b"x" * 1000)
            (fast / application / "1" / "DONE").write_bytes(b"")

        write(top, "a")
        write(endpoint.root(root="fast"), "a")
        await_demoted("first", "a")
        await_demoted("second", "a")
        with gluster.stopped_mount(spread):
            # Wait until the thread of the first tier calls the mount and hangs.
            time.sleep(6.0)
            write(endpoint.root(root="fast"), "b")
            await_demoted("second", "b")
        write(top, "b")
        await_demoted("first", "b")
    endpoint.stop()
    shutil.rmtree(top)
