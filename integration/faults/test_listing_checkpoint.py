"""A listing that was interrupted by ``kill -9`` continues from its checkpoint."""

from __future__ import annotations

import os
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from integration.faults.words import SAFE

if TYPE_CHECKING:
    from pathlib import Path

    from integration.harness.program import Bench, Word

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

FOLDERS = 60
FILES = 40


@pytest.fixture
def source(bench: Bench) -> Path:
    """Make a tree of small files in many folders, older than the minimum age of a folder."""
    source = bench.folder / "source"
    for folder in range(FOLDERS):
        (source / f"d{folder:03}").mkdir(parents=True)
        for file in range(FILES):
            (source / f"d{folder:03}" / f"f{file:03}").write_text(f"{folder} {file}")
    time.sleep(2.1)
    return source


def folders_read(trace: Path) -> set[str]:
    """Return the folders below the source whose entries a traced program has read."""
    read = set()
    for line in trace.read_text(encoding="utf-8", errors="replace").splitlines():
        if "getdents64(" in line and "/source/d" in line:
            read.add(line.split("/source/", 1)[1].split(">", 1)[0])
    return read


def same(one: Path, other: Path) -> bool:
    """Compare two trees with ``diff``."""
    return subprocess.run(["diff", "-r", one, other], check=False).returncode == 0


@pytest.mark.parametrize("way", ["cp", pytest.param("push", marks=pytest.mark.full)])
def test_a_killed_copy_lists_only_the_other_folders_again(
    bench: Bench, source: Path, way: str
) -> None:
    """The second run reads no folder that the first run recorded, unless the folder changed."""
    sink = bench.folder / "sink"
    sink.mkdir()
    file = bench.folder / "listing"
    words: list[Word] = ["-r", "--listing-checkpoint", file, f"{source}/"]
    if way == "cp":
        words.append(f"{sink}/")
    else:
        server = bench.serve(sink)
        words += [f"dray://{server.address}/", *bench.peer(server)]
    first = bench.start_cp("--progress", "json", *words)
    while len(list(sink.glob("*/f*"))) < 150:
        assert first.is_running()
        time.sleep(0.02)
    first.kill()
    recorded = file.stat().st_size
    assert recorded > 5_000, "the first run recorded folders"
    (source / "d001" / "new").write_text("new")
    (source / "d002" / "f000").unlink()
    (sink / "d002" / "f000").unlink(missing_ok=True)
    trace = bench.folder / "trace"
    watch = ["strace", "-f", "-y", "-e", "trace=getdents64", "-o", str(trace)]
    until = time.monotonic() + 60
    second = bench.cp(*words, wrap=watch)
    # The server may need a moment to end the session of the killed client.
    while "lease_held" in second.out and time.monotonic() < until:
        second = bench.cp(*words, wrap=watch)
    second.expect(SAFE)
    assert same(source, sink)
    read = folders_read(trace)
    assert {"d001", "d002"} <= read, "changed folders are listed again"
    assert "d000" not in read, "an unchanged folder is not"
    assert len(read) < FOLDERS - 10
    assert not file.exists(), "the checkpoint of a finished copy is removed"


@pytest.mark.parametrize("damage", ["flipped", pytest.param("other", marks=pytest.mark.full)])
def test_a_bad_checkpoint_costs_a_listing_and_one_note(
    bench: Bench, source: Path, damage: str
) -> None:
    """A checkpoint with a wrong byte, or of another copy, is not used, and one note says so."""
    file = bench.folder / "listing"
    sink, other = bench.folder / "sink", bench.folder / "other"
    first = bench.start_cp(
        "-r", "--progress", "json", "--listing-checkpoint", file, f"{source}/", f"{sink}/"
    )
    while not file.exists() or file.stat().st_size < 30_000:
        assert first.is_running()
        time.sleep(0.02)
    first.kill()
    if damage == "flipped":
        with file.open("r+b") as opened:
            opened.seek(file.stat().st_size // 2)
            byte = opened.read(1)[0]
            opened.seek(-1, os.SEEK_CUR)
            opened.write(bytes([byte ^ 1]))
    to = sink if damage == "flipped" else other
    ended = bench.cp("-r", "--listing-checkpoint", file, f"{source}/", f"{to}/")
    ended.expect(SAFE)
    assert same(source, to)
    assert ended.words.count("use the checkpoint of the listing") == 1, ended.words
