"""``--preallocate``: space is reserved when a file starts; a hole of the source stays a hole."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from integration.harness import tree

if TYPE_CHECKING:
    from pathlib import Path

    from integration.harness.program import Bench, Word

pytestmark = [pytest.mark.server, pytest.mark.timeout(120)]

FILE_BYTES = 40 * tree.MIB


def taken(path: Path) -> int:
    """Return the bytes of storage that a file occupies."""
    return path.stat().st_blocks * 512


@pytest.mark.parametrize("way", ["here", "served"])
def test_holes_are_holes_again(bench: Bench, way: str) -> None:
    source, sink = bench.folder / "source", bench.folder / "sink"
    sink.mkdir()
    with source.open("wb") as file:
        file.truncate(FILE_BYTES)
        for at in (0, FILE_BYTES // 2 + 12_345):
            file.seek(at)
            file.write(b"x" * tree.MIB)
    if taken(source) >= FILE_BYTES:
        pytest.skip("this file system keeps no holes")
    if way == "served":
        server = bench.serve(sink, "--preallocate")
        words: list[Word] = [f"dray://{server.address}/", *bench.peer(server)]
    else:
        words = [f"{sink}/", "--preallocate", "--reflink", "never"]
    bench.cp(source, *words).expect(0)
    assert tree.hash_file(sink / "source") == tree.hash_file(source)
    assert taken(sink / "source") <= taken(source) + 64 * 1024


def test_space_is_reserved_before_the_bytes_arrive(bench: Bench) -> None:
    source, sink = bench.folder / "source", bench.folder / "sink"
    sink.mkdir()
    tree.make_file(source, FILE_BYTES, seed=1)
    words: list[Word] = [source, f"{sink}/", "--preallocate", "--reflink", "never"]
    client = bench.start_slow_cp(*words, "--rate", "4MiB")
    client.send(signal.SIGKILL)
    client.wait()
    begun = [path for path in sink.iterdir() if path.is_file()]
    assert [path.stat().st_size for path in begun] == [FILE_BYTES]
    assert taken(begun[0]) >= FILE_BYTES
    ended = bench.cp(*words).expect(0)
    assert ended.report["bytes_resumed"] > 0
    assert tree.hash_file(sink / "source") == tree.hash_file(source)
