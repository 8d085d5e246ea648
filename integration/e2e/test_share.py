"""A copy within a file system whose files can share blocks needs no new blocks for data."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from integration.harness import tree
from integration.harness.host import sharing_file_system

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from integration.harness.program import Bench

pytestmark = [pytest.mark.server, pytest.mark.timeout(120)]

#: Size of the file. Its last bytes do not fill a block.
FILE_BYTES = 48 * tree.MIB + 123
#: Maximum bytes of the file system's metadata of a copy.
RECORDS_MAX = 4 * tree.MIB


@pytest.fixture
def place(bench: Bench) -> Iterator[Path]:
    with sharing_file_system(bench.folder / "xfs") as at:
        yield at


def taken(place: Path) -> int:
    """Sync, and return the bytes in use on the file system."""
    with (place / "large").open("rb") as file:
        os.fsync(file.fileno())
    os.sync()
    found = os.statvfs(place)
    return (found.f_blocks - found.f_bfree) * found.f_frsize


@pytest.mark.parametrize("how", ["--reflink=auto", "--reflink=never", "--checksum-attributes"])
def test_a_copy_shares_blocks_unless_disabled(bench: Bench, place: Path, how: str) -> None:
    tree.make_file(place / "large", FILE_BYTES, seed=1)
    before = taken(place)
    ended = bench.cp(how, place / "large", place / "copy").expect(0)
    assert ended.report["bytes_sent"] == FILE_BYTES
    more = taken(place) - before
    if how == "--reflink=auto":
        assert more <= RECORDS_MAX
    else:
        assert more >= FILE_BYTES
    content = (place / "large").read_bytes()
    assert (place / "copy").read_bytes() == content
    # The two files stop sharing a block as soon as one file is changed.
    with (place / "large").open("r+b") as file:
        file.write(b"changed")
    assert (place / "copy").read_bytes() == content


def test_byte_range_that_is_no_block_is_written(bench: Bench, place: Path) -> None:
    tree.make_file(place / "large", FILE_BYTES, seed=2)
    start, length = 12_345, 8 * tree.MIB
    bench.cp("--range", f"{start}:{length}", place / "large", place / "part").expect(0)
    content = (place / "large").read_bytes()
    assert (place / "part").read_bytes() == content[start : start + length]


def test_a_killed_copy_resumes_in_shared_blocks(bench: Bench, place: Path) -> None:
    tree.make_file(place / "large", FILE_BYTES, seed=3)
    before = taken(place)
    slow = ("--rate", "16MiB", "--durability", "object")
    copy = bench.start_slow_cp(*slow, place / "large", place / "copy")
    copy.kill()
    ended = bench.cp(place / "large", place / "copy").expect(0)
    report = ended.report
    assert report["bytes_resumed"] > 0
    assert report["bytes_sent"] + report["bytes_resumed"] == FILE_BYTES
    assert (place / "copy").read_bytes() == (place / "large").read_bytes()
    assert taken(place) - before <= RECORDS_MAX
