"""Permission bits of a copy: those of the source, without the set-user-id and set-group-id bits.

A later run resumes even if the owner has no permission to write to a copied file or folder.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from integration.harness import tree
from integration.harness.host import without_power
from integration.harness.program import Way

if TYPE_CHECKING:
    from pathlib import Path

    from integration.harness.program import Bench, Word

pytestmark = pytest.mark.server

KIB = 1 << 10
SIZES = {"small": 1, "large": 3000 * KIB}


def mode(path: Path) -> int:
    """Return the permission bits of a file or folder."""
    return path.stat().st_mode & 0o7777


@pytest.mark.parametrize("way", [None, Way(push=True), Way(push=False)], ids=str)
def test_set_id_bits_of_the_source_are_dropped(bench: Bench, way: Way | None) -> None:
    source = bench.folder / "source"
    (source / "group").mkdir(parents=True)
    for name, size in SIZES.items():
        for bits in (0o4755, 0o2750, 0o6711, 0o640):
            file = source / "group" / f"{name}-{bits:o}"
            file.write_bytes(os.urandom(size))
            file.chmod(bits)
    (source / "group").chmod(0o2775)
    sink = bench.folder / "sink"
    sink.mkdir()
    # The set-group-id bit lets new entries, also in subfolders, inherit the folder's group.
    (sink / "shared").mkdir()
    (sink / "shared").chmod(0o2775)
    for place in ("own", "shared"):
        words: list[Word] = ["-r", f"{source}/", f"{sink}/{place}/"]
        if way is not None:
            server = bench.serve(sink if way.push else source)
            far = f"dray://{server.address}/"
            ends = [f"{source}/", f"{far}{place}/"] if way.push else [far, f"{sink}/{place}/"]
            words = ["-r", *ends, *bench.peer(server)]
        bench.cp(*words).expect(0)
        there = sink / place / "group"
        assert {path.name: mode(path) for path in there.iterdir()} == {
            path.name: mode(path) & 0o777 for path in (source / "group").iterdir()
        }
        assert mode(there) == (0o2775 if place == "shared" else 0o775)


def test_a_folder_made_read_only_still_receives_new_entries(bench: Bench) -> None:
    source, sink = bench.folder / "source", bench.folder / "sink"
    deep = source / "run" / "deep"
    deep.mkdir(parents=True)
    (deep / "first").write_bytes(os.urandom(KIB))
    folders, there = [source / "run", deep], sink / "source"
    words: list[Word] = ["-r", source, f"{sink}/"]
    for bits in (0o555, 0o500):
        for folder in folders:
            folder.chmod(bits)
        bench.cp(*words, wrap=without_power()).expect(0)
        assert {mode(there / "run"), mode(there / "run" / "deep")} == {bits}
        for folder in folders:
            folder.chmod(0o755)
        for name, size in SIZES.items():
            (deep / f"{name}-{bits:o}").write_bytes(os.urandom(size))
    for folder in folders:
        folder.chmod(0o555)
    bench.cp(*words, wrap=without_power()).expect(0)
    tree.assert_same(tree.describe(source), there)


def test_a_partial_file_with_its_final_mode_is_resumed(bench: Bench) -> None:
    source, sink = bench.folder / "large", bench.folder / "sink"
    size = 48 * tree.MIB
    source.write_bytes(os.urandom(size))
    source.chmod(0o444)
    sink.mkdir()
    words: list[Word] = [source, f"{sink}/"]
    client = bench.start_cp(*words, "--rate", "40MiB", wrap=without_power())
    until = time.monotonic() + 20
    while not list(sink.glob(".*.part")):
        assert time.monotonic() < until
        time.sleep(0.01)
    # The publication of the complete file fails, because its final name is a folder with a file.
    (sink / "large").mkdir()
    (sink / "large" / "taken").touch()
    ended = client.wait()
    assert ended.code == 1, ended.words
    (left,) = sink.glob(".*.part")
    assert mode(left) == 0o444
    (sink / "large" / "taken").unlink()
    (sink / "large").rmdir()
    again = bench.cp(*words, wrap=without_power()).expect(0)
    assert again.report["bytes_resumed"] == size
    assert again.report["bytes_sent"] == 0
    assert (sink / "large").read_bytes() == source.read_bytes()
    assert mode(sink / "large") == 0o444
