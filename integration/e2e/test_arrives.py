"""A real tree and a large file arrive identical: both directions and channels, 1 and 8 streams."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from integration.harness import tree
from integration.harness.program import Bench, Ended, Way

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.server, pytest.mark.timeout(1800)]

FULL = os.environ.get("DRAY_FULL") == "1"
LINUX = Path("/usr/src/linux-source-6.1.tar.xz")
LARGE_BYTES = (4 * tree.GIB) if FULL else (512 * tree.MIB)
EVERY_WAY = [
    Way(push=push, streams=streams, is_clear=is_clear)
    for push in (True, False)
    for is_clear in (False, True)
    for streams in (1, 8)
]
# The whole tree takes long. By default it is sent in two ways, which cover both directions, both
# channels and both numbers of streams. The smaller data is sent in every way.
TREE_WAYS = EVERY_WAY if FULL else [Way(push=True, streams=8), Way(False, 1, is_clear=True)]


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(
        prefix="dray-data-", dir=os.environ.get("DRAY_TEST_DIR")
    ) as name:
        yield Path(name)


@pytest.fixture(scope="module")
def real(place: Path) -> tuple[Path, dict[bytes, tree.Entry]]:
    """Unpack Linux's sources, or generate a similar tree."""
    top = place / "real"
    if LINUX.exists():
        top.mkdir()
        subprocess.run(["tar", "-xJf", LINUX, "-C", top], check=True)
        print(f"\nthe tree: {LINUX.name}, unpacked")
    else:
        tree.make_tree(top, 20_000, seed=61)
        print("\nthe tree: 20 000 generated files (there is no package linux-source-6.1 here)")
    return top, tree.describe(top)


@pytest.fixture(scope="module")
def small(place: Path) -> tuple[Path, dict[bytes, tree.Entry]]:
    """Make a tree with every kind of odd entry, and one file of many objects."""
    top = place / "small"
    tree.make_tree(top, 600, seed=2)
    tree.make_file(top / "many-objects", 40 * tree.MIB + 4097, seed=3)
    return top, tree.describe(top)


@pytest.fixture(scope="module")
def large(place: Path) -> tuple[Path, dict[bytes, tree.Entry]]:
    """Make a file of random bytes, which do not compress."""
    path = place / "large"
    tree.make_file(path, LARGE_BYTES, seed=4)
    print(f"\nthe file: {LARGE_BYTES >> 20} MiB")
    return path, tree.describe(path)


def carry(bench: Bench, source: Path, way: Way, *words: str) -> tuple[Path, Ended]:
    """Copy ``source`` from one process to another. Return the path of the copy, and the end."""
    sink = bench.folder / "sink"
    sink.mkdir()
    served = sink if way.push else source.parent
    server = bench.serve(served, "--allow-clear-data")
    far = f"dray://{server.address}/"
    ends = [source, far] if way.push else [far + source.name, f"{sink}/"]
    recursive = ["-r"] if source.is_dir() else []
    ended = bench.cp(
        *recursive, *ends, *way.words(), *words, *bench.peer(server), seconds=900
    ).expect(0)
    server.stop().expect(0)
    return sink / source.name, ended


@pytest.mark.parametrize("way", TREE_WAYS, ids=str)
def test_real_tree(bench: Bench, real: tuple[Path, dict[bytes, tree.Entry]], way: Way) -> None:
    source, wanted = real
    arrived, ended = carry(bench, source, way)
    tree.assert_same(wanted, arrived)
    assert tree.leftovers(arrived.parent) == []
    files = [entry for entry in wanted.values() if entry.kind == "file"]
    assert ended.report["state"] == "done"
    assert ended.report["files"] == len(files)
    assert ended.report["bytes"] == sum(entry.size for entry in files)
    print(f"{way}: {len(files)} files in {ended.report['seconds']} s")


@pytest.mark.parametrize("way", EVERY_WAY, ids=str)
def test_odd_tree(bench: Bench, small: tuple[Path, dict[bytes, tree.Entry]], way: Way) -> None:
    source, wanted = small
    arrived, _ = carry(bench, source, way)
    tree.assert_same(wanted, arrived)
    assert tree.leftovers(arrived.parent) == []


@pytest.mark.parametrize("way", EVERY_WAY if FULL else EVERY_WAY[::3], ids=str)
def test_large_file(bench: Bench, large: tuple[Path, dict[bytes, tree.Entry]], way: Way) -> None:
    source, wanted = large
    arrived, ended = carry(bench, source, way)
    tree.assert_same(wanted, arrived)
    assert tree.leftovers(arrived.parent) == []
    assert ended.report["bytes_sent"] == LARGE_BYTES
    rate = LARGE_BYTES / ended.report["seconds"] / tree.MIB
    print(f"{way}: {rate:.0f} MiB/s")


@pytest.mark.parametrize("seed", [1, 20261])
def test_random_order(bench: Bench, small: tuple[Path, dict[bytes, tree.Entry]], seed: int) -> None:
    source, wanted = small
    arrived, _ = carry(bench, source, Way(), "--order", f"random:{seed}")
    tree.assert_same(wanted, arrived)


def interleaved(trace: Path) -> int:
    """Return how many files of several objects were in progress at one time, at most."""
    parts: list[int] = []
    for line in trace.read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        if "object" in event:
            parts += {part["file"] for part in event["parts"]}
    first = {file: parts.index(file) for file in set(parts)}
    last = {file: len(parts) - 1 - parts[::-1].index(file) for file in set(parts)}
    return max(
        sum(first[other] <= at <= last[other] for other in first if first[other] < last[other])
        for at in range(len(parts))
    )


@pytest.mark.parametrize("order", ["layout", "random:7"])
def test_objects_of_many_files_interleave(bench: Bench, order: str) -> None:
    source = bench.folder / "source"
    source.mkdir()
    for number in range(12):
        tree.make_file(source / f"file{number:02}", 8 * tree.MIB + number, seed=number)
    wanted = tree.describe(source)
    trace = bench.folder / "trace"
    arrived, _ = carry(bench, source, Way(), "--order", order, "--trace", str(trace))
    tree.assert_same(wanted, arrived)
    assert interleaved(trace) >= 8, trace.read_text(encoding="utf-8")[:4000]
