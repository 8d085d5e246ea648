"""Mode and extended attributes: of a file that is already there, and too large for the disk."""

from __future__ import annotations

import os
import subprocess
import tempfile
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from integration.harness.program import Bench, Word

pytestmark = [pytest.mark.server, pytest.mark.timeout(120)]


def test_an_adopted_file_gets_the_mode_of_its_source(bench: Bench) -> None:
    source, copied = bench.folder / "source", bench.folder / "copied"
    source.write_bytes(b"content")
    bench.cp(source, copied).expect(0)
    source.chmod(0o600)
    ended = bench.cp(source, copied).expect(0)
    assert copied.stat().st_mode & 0o777 == 0o600
    assert (ended.report["files_adopted"], ended.report["files_updated"]) == (1, 1)
    again = bench.cp(source, copied).expect(0)
    assert (again.report["files_adopted"], again.report["files_updated"]) == (1, 0)


@pytest.mark.parametrize("push", [True, False], ids=["push", "pull"])
def test_attributes_that_are_asked_for_later_are_set(bench: Bench, push: bool) -> None:
    here, root = bench.folder / "here", bench.folder / "root"
    here.mkdir()
    root.mkdir()
    source, copied = (here, root) if push else (root, here)
    (source / "file").write_bytes(b"content")
    server = bench.serve(root)
    url = f"dray://{server.address}/file"
    words: list[Word] = [here / "file", url] if push else [url, here / "file"]
    bench.cp(*words, *bench.peer(server)).expect(0)
    os.setxattr(source / "file", "user.note", b"later")
    ended = bench.cp(*words, "--xattrs", *bench.peer(server)).expect(0)
    assert ended.report["files_adopted"] == 1
    assert os.getxattr(copied / "file", "user.note") == b"later"


@pytest.fixture
def small_attributes(bench: Bench) -> Iterator[Path]:
    """Mount ext4 without ea_inode: a file has room for a few KiB of attributes."""
    image, mounted = bench.folder / "image", bench.folder / "mounted"
    image.touch()
    os.truncate(image, 64 << 20)
    mounted.mkdir()
    made = subprocess.run(["mkfs.ext4", "-q", image], check=False, capture_output=True)
    done = subprocess.run(["mount", "-o", "loop", image, mounted], check=False, capture_output=True)
    if made.returncode or done.returncode:
        pytest.skip(f"no loop device: {made.stderr!r} {done.stderr!r}")
    yield mounted
    subprocess.run(["umount", mounted], check=True)


def test_an_attribute_that_is_too_large_is_no_full_disk(
    bench: Bench, small_attributes: Path
) -> None:
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as source:
        try:
            os.setxattr(source.name, "user.big", bytes(30_000))
        except OSError as error:
            pytest.skip(f"no file system here keeps such an attribute: {error}")
        ended = bench.cp(source.name, f"{small_attributes}/", "--xattrs")
    assert ended.code != 0
    (failed,) = ended.report["files_failed"]
    assert failed["kind"] == "limit_exceeded", failed
    assert "user.big has 30000 bytes" in failed["message"]
    assert "--xattrs" in failed["remedy"]
