"""Memory depends on --pool, not on the number of entries nor on the size of files."""

from __future__ import annotations

import os
import stat
import time
from typing import TYPE_CHECKING

import pytest

from dray.testing.proxy import Proxy
from integration.harness import tree
from integration.harness.program import Bench, Ended, Word, peak_memory

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.server, pytest.mark.timeout(3000)]

FULL = os.environ.get("DRAY_FULL") == "1"
ENTRIES = 1_000_000 if FULL else 100_000
POOL_BYTES = 64 * tree.MIB
BOUND_BYTES = POOL_BYTES + 128 * tree.MIB
SPARSE_BYTES = 64 * tree.GIB
EXTENT_BYTES = tree.MIB


def make_empty_entries(top: Path, count: int) -> None:
    """Make empty files. One of ten entries is an empty folder, and one is a link."""
    top.mkdir()
    made = 1
    folder = top
    while made < count:
        if made % 1000 == 1:
            folder = top / f"folder{made:07}"
            folder.mkdir()
        elif made % 10 == 4:
            (folder / f"d{made:07}").mkdir()
        elif made % 10 == 7:
            (folder / f"l{made:07}").symlink_to("nowhere")
        else:
            os.close(os.open(folder / f"f{made:07}", os.O_CREAT | os.O_WRONLY, 0o644))
        made += 1


def shape(top: Path) -> dict[bytes, tuple[int, int, int]]:
    """Describe each entry by its kind and mode, its size and its time. Contents are empty."""
    base = os.fsencode(top)
    return {
        path: (
            state.st_mode,
            0 if stat.S_ISDIR(state.st_mode) else state.st_size,
            state.st_mtime_ns,
        )
        for path, state in tree.walk(base)
    }


def check_memory(name: str, client: int, server: int) -> None:
    """Fail unless the peak memory of each end was measured and is at most ``BOUND_BYTES``."""
    words = f"{name}: cp {client / tree.MIB:.0f} MiB, serve {server / tree.MIB:.0f} MiB"
    print(f"\n{words}, pool {POOL_BYTES >> 20} MiB")
    assert client > 0, "memory was not measured"
    assert server > 0, "memory was not measured"
    assert max(client, server) <= BOUND_BYTES, words


@pytest.mark.full
@pytest.mark.parametrize("push", [True, False], ids=["push", "pull"])
def test_very_many_empty_entries(bench: Bench, push: bool) -> None:
    source, sink = bench.folder / "tree", bench.folder / "sink"
    make_empty_entries(source, ENTRIES)
    wanted = shape(source)
    sink.mkdir()
    server = bench.serve(sink if push else bench.folder, "--pool", str(POOL_BYTES))
    far = f"dray://{server.address}/"
    ends: list[Word] = [source, far] if push else [f"{far}tree", f"{sink}/"]
    pool = ["--pool", str(POOL_BYTES)]
    began = time.monotonic()
    ended = bench.cp("-r", *ends, *pool, *bench.peer(server), seconds=2400).expect(0)
    took = time.monotonic() - began
    check_memory(f"{len(wanted)} entries, {took:.1f} s", ended.memory_peak, peak_memory(server.pid))
    assert shape(sink / "tree") == wanted
    assert tree.leftovers(sink) == []
    server.stop().expect(0)


def extents(path: Path) -> list[tuple[int, int]]:
    """List the ranges of a file that have data, as start and end."""
    found, at = [], 0
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        while at < size:
            try:
                begin = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError:
                break
            at = os.lseek(file.fileno(), begin, os.SEEK_HOLE)
            found.append((begin, at))
    return found


@pytest.fixture
def sparse(bench: Bench) -> Path:
    """Make a file of 64 GiB with data at its start, in its middle and at its end."""
    path = bench.folder / "sparse"
    data = os.urandom(EXTENT_BYTES)
    try:
        with path.open("wb") as file:
            for at in (0, SPARSE_BYTES // 2, SPARSE_BYTES - EXTENT_BYTES):
                file.seek(at)
                file.write(data)
    except OSError as error:
        pytest.skip(f"this file system takes no file of 64 GiB: {error}")
    if path.stat().st_blocks * 512 > 64 * tree.MIB:
        pytest.skip("this file system keeps no holes")
    return path


def check_sparse(source: Path, arrived: Path) -> None:
    """Compare size, time, data and allocated blocks. The blocks show that the holes are holes."""
    assert arrived.stat().st_size == SPARSE_BYTES
    assert arrived.stat().st_mtime_ns == source.stat().st_mtime_ns
    assert arrived.stat().st_blocks * 512 <= 3 * EXTENT_BYTES + 8 * tree.MIB
    with source.open("rb") as left, arrived.open("rb") as right:
        for begin, end in sorted({*extents(source), *extents(arrived)}):
            left.seek(begin)
            right.seek(begin)
            assert left.read(end - begin) == right.read(end - begin), f"at {begin}"


@pytest.mark.parametrize("push", [True, False], ids=["push", "pull"])
def test_holes_do_not_travel(bench: Bench, sparse: Path, push: bool) -> None:
    sink = bench.folder / "sink"
    sink.mkdir()
    server = bench.serve(sink if push else bench.folder, "--pool", str(POOL_BYTES))
    proxy = Proxy(server.address)
    far = f"dray://{proxy.address}/"
    ends: list[Word] = [sparse, far] if push else [f"{far}sparse", f"{sink}/"]
    pool = ["--pool", str(POOL_BYTES)]
    try:
        ended = bench.cp(*ends, *pool, *bench.peer(server), seconds=300).expect(0)
        carried = sum(proxy.counted())
    finally:
        proxy.close()
    check_memory(
        f"64 GiB, sparse, {ended.seconds:.1f} s", ended.memory_peak, peak_memory(server.pid)
    )
    check_sparse(sparse, sink / "sparse")
    print(f"{carried} bytes on the wire for {3 * EXTENT_BYTES} of data")
    assert carried < 3 * EXTENT_BYTES + 8 * tree.MIB
    assert tree.leftovers(sink) == []
    server.stop().expect(0)


def test_holes_stay_holes_in_one_process(bench: Bench, sparse: Path) -> None:
    sink = bench.folder / "sink"
    ended: Ended = bench.cp(sparse, f"{sink}/", "--pool", str(POOL_BYTES), seconds=300).expect(0)
    assert ended.memory_peak <= BOUND_BYTES
    assert ended.report["bytes_sent"] <= 3 * EXTENT_BYTES + tree.MIB
    check_sparse(sparse, sink / "sparse")
