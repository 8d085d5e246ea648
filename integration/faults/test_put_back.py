"""A source file is rewritten in place during a copy, and then gets its old modification time."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from integration.harness.program import Bench, Process

pytestmark = pytest.mark.timeout(120)

MIB = 1 << 20
SIZE = 24 * MIB
SLOWLY = ["--rate", "8MiB", "--object-size", "1MiB", "--pool", "8MiB"]


@pytest.fixture
def source(bench: Bench) -> Path:
    """Make a file that consists of equal bytes."""
    made = bench.folder / "source"
    made.write_bytes(b"a" * SIZE)
    return made


def rewrite(file: Path, reader: Process) -> None:
    """Overwrite a file in place, but keep its size and time, as ``rsync --inplace -t`` does.

    The reader is stopped during the change, so it never sees another modification time.
    """
    before = file.stat()
    reader.send(signal.SIGSTOP)
    try:
        with file.open("r+b") as opened:
            opened.write(b"b" * SIZE)
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    finally:
        reader.send(signal.SIGCONT)
    after = file.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)


@pytest.mark.parametrize("way", ["local", "push"])
def test_two_versions_are_not_mixed_under_the_final_name(
    bench: Bench, source: Path, way: str
) -> None:
    there = bench.folder / "there"
    there.mkdir()
    to: str | Path = there / "copy"
    words = list(SLOWLY)
    if way == "push":
        server = bench.serve(there)
        to = f"dray://{server.address}/copy"
        words += [str(word) for word in bench.peer(server)]
    client = bench.start_slow_cp(source, to, *words)
    rewrite(source, client)
    ended = client.wait()
    copy = there / "copy"
    kinds = set(copy.read_bytes()) if copy.exists() else set()
    assert len(kinds) < 2, "bytes of both versions"
    assert ended.code == 1, ended.words
    [failure] = ended.report["files_failed"]
    assert failure["kind"] == "source_changed", failure
    assert not copy.exists()
    # The next run copies the present content, and uses no data of the first version.
    again = [word for word in words if word not in SLOWLY]
    bench.cp(source, to, *again).expect(0)
    assert copy.read_bytes() == b"b" * SIZE


def chmod(file: Path) -> None:
    """Remove permissions of a file."""
    file.chmod(0o600)


def keep_checksum(file: Path) -> None:
    """Store a checksum as an attribute, as an XRootD server does while it reads the file."""
    os.setxattr(file, "user.XrdCks.adler32", os.urandom(16))


def link(file: Path) -> None:
    """Add a hard link to a file, as some snapshots do."""
    os.link(file, f"{file}.linked")


@pytest.mark.parametrize("change", [chmod, link, keep_checksum])
def test_attributes_may_change_while_a_file_is_read(
    bench: Bench, source: Path, change: Callable[[Path], None]
) -> None:
    copy = bench.folder / "copy"
    client = bench.start_slow_cp(source, copy, *SLOWLY)
    change(source)
    client.wait().expect(0)
    assert copy.read_bytes() == source.read_bytes()


def test_a_rewrite_after_another_change_is_found_too(bench: Bench, source: Path) -> None:
    copy = bench.folder / "copy"
    client = bench.start_slow_cp(source, copy, *SLOWLY[2:], "--rate", "4MiB")
    chmod(source)
    # Wait until dray has checked the changed attributes, which it does after each read. The
    # progress has one line each second, and the first line has at most 4 MiB.
    client.await_durable(6 * MIB)
    rewrite(source, client)
    assert client.wait().code == 1
    assert not copy.exists()
