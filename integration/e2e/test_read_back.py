"""Reading back: holes cost nothing, a stop takes effect immediately, and bytes are counted."""

from __future__ import annotations

import os
import re
import signal
import time
from typing import TYPE_CHECKING

import pytest

from integration.harness import fuse_block, tree

if TYPE_CHECKING:
    from integration.harness.program import Bench

pytestmark = [pytest.mark.server, pytest.mark.slow]

INTERRUPTED = 5
#: Number of pieces of data in a file with many holes. Each piece is followed by a hole.
DATA = 64
STRIDE = tree.GIB
#: Size of a file on a disk that reads some 10 MiB per second.
SLOW_BYTES = 48 * tree.MIB


def test_holes_are_not_read_back(bench: Bench) -> None:
    source = bench.folder / "sparse"
    with source.open("wb") as file:
        for number in range(DATA):
            file.seek(number * STRIDE)
            file.write(os.urandom(4096))
        file.truncate(DATA * STRIDE)
    began = time.monotonic()
    report = bench.cp("--verify", source, bench.folder / "copy").expect(0).report
    # Reading back 1 GiB of zeros takes longer than a quarter of a second.
    assert time.monotonic() - began < DATA / 4
    assert DATA * 4096 <= report["bytes_read_back"] <= 4 * DATA * tree.MIB


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_ends_the_reading_back(bench: Bench, number: signal.Signals) -> None:
    if why := fuse_block.reason_to_skip("ext4"):
        pytest.skip(why)
    source = bench.folder / "source"
    tree.make_file(source, SLOW_BYTES, seed=3)
    with fuse_block.faulty_disk(bench.folder / "disk", "ext4", 4 * SLOW_BYTES) as disk:
        copy = disk.at / "copy"
        reads: list[int] = []

        def read(_offset: int, size: int) -> None:
            reads.append(size)
            time.sleep(0.02)

        disk.block.on_read = read
        client = bench.start_cp("--verify", "--progress", "json", source, copy)
        until = time.monotonic() + 60
        while not (
            counts := re.findall(
                r'"bytes_read_back":([1-9])', client.log_path.read_text(encoding="utf-8")
            )
        ):
            assert client.is_running(), client.log_path.read_text(encoding="utf-8")
            assert time.monotonic() < until, counts
            time.sleep(0.01)
        asked, read_before = time.monotonic(), sum(reads)
        client.send(number)
        ended = client.wait(60)
        assert ended.code == INTERRUPTED, ended.words
        assert time.monotonic() - asked < 2
        assert sum(reads) - read_before < SLOW_BYTES / 4
        assert not copy.exists()
        disk.block.on_read = None
        bench.cp("--verify", source, copy).expect(0)
        assert tree.hash_file(copy) == tree.hash_file(source)
        bench.close()
