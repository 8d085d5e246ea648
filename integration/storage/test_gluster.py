"""Copies from and to volumes of a real GlusterFS, whose bricks are storage targets.

The volumes are distributed, replicated or sharded. All bricks are on this host.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from integration.harness import loop, tree
from integration.harness.program import Process
from integration.storage.gluster import SHARD_BYTES, Volume, make_files, name_of, reason
from integration.storage.trees import same

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.harness.program import Bench, Ended, Word
    from integration.storage.gluster import Gluster

pytestmark = [
    pytest.mark.full,
    pytest.mark.server,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(reason()), reason=reason()),
]

#: Conformance cases that GlusterFS 10.3 does not pass.
LEFT_OUT = [
    # It takes minutes. Other cases cover large folders.
    "100 000 entries are listed as they are found",
    # A brick refuses each path of more than 4096 bytes.
    "paths deeper than PATH_MAX work",
    # Opening a file may fail with ENOENT while another program replaces the file.
    "a reader sees the old or the new file",
    # The attributes of an open file cannot be read after it was replaced (ESTALE).
    "extended attributes and checksums are kept",
]
#: Further conformance cases that a sharded volume does not pass.
LEFT_OUT_SHARDED = [
    # utimensat succeeds, but does not change the times of a file.
    "mode and time are kept as declared",
    "a changed file is noticed",
    # The volume reports holes as data, which is read as zeros.
    "holes are neither filled nor read",
    # Replacing a symbolic link by another one fails with ENOMEM.
    "links are kept and replaced as links",
    "links are listed or refused",
]
#: Read rate of the slow brick. All files of this test have ``SLOW_FILE_BYTES``.
SLOW_BYTES_PER_SECOND = tree.MIB // 2
SLOW_FILE_BYTES = 4 * tree.MIB
#: Number of files on the slow brick, and on all other bricks together.
SLOW_FILES, FAST_FILES = 4, 20


def sums(said: str, way: str) -> dict[str, str]:
    """Return the size of each ``from`` or ``to`` target in the output of ``dray plan``."""
    return dict(re.findall(rf"^ *{way} (.*): ([0-9.]+ \w+)$", said, re.MULTILINE))


def plan(bench: Bench, source: Path, sink: Path) -> Ended:
    """Plan a copy of the folder's contents."""
    sink.mkdir(exist_ok=True)
    return bench.start("plan", "-r", f"{source}/", sink).wait().expect(0)


def test_the_store_passes_the_suite(bench: Bench, volume: Volume) -> None:
    """The store passes all conformance cases, except those left out."""
    target = Path(os.environ.get("CARGO_TARGET_DIR") or "engine/target")
    program = target / "debug" / "examples" / "posix_conformance"
    top = volume.folder / "suite"
    left_out = [*LEFT_OUT, *(LEFT_OUT_SHARDED if volume.name == "sharded" else [])]
    ended = Process([program, top, *left_out], bench.logs, "suite").wait(600)
    shutil.rmtree(top)
    assert ended.code == 0, ended.out + ended.words
    assert " 0 failed" in ended.out, ended.out
    assert ended.out.count("passed   ") >= 28, ended.out


def test_a_plan_has_the_bytes_of_each_brick(bench: Bench, spread: Volume) -> None:
    """The targets of a source are the bricks of its files. Small files belong to the volume."""
    source = spread.folder / "planned"
    make_files(source, size=tree.MIB)
    (source / "small").write_bytes(b"x" * 1000)
    found = sums(plan(bench, source, bench.folder / "out").out, "from")
    wanted = {spread.source: "1000 B"}
    for number, brick in enumerate(spread.bricks):
        on_brick = [each for each in (brick / "planned").iterdir() if each.stat().st_mode & 0o777]
        count = sum(each.name != "small" for each in on_brick)
        if count:
            wanted[spread.target(number)] = f"{count}.0 MiB"
    assert len(wanted) >= 3, wanted
    assert found == wanted
    # The brick of a new file is not known, so its target is the volume.
    found = sums(plan(bench, source, spread.folder / "new").out, "to")
    assert list(found) == [spread.source]


def test_other_users_see_the_bricks_too(bench: Bench, spread: Volume) -> None:
    """Users other than root can read the attribute that names a file's brick."""
    source = spread.folder / "others"
    make_files(source, size=tree.MIB)
    out = bench.folder / "out"
    out.mkdir()
    out.chmod(0o777)
    words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    process = bench.start("plan", "-r", f"{source}/", out, wrap=words)
    found = sums(process.wait().expect(0).out, "from")
    assert len(found) >= 2
    assert set(found) <= {spread.target(number) for number in range(3)}


def test_a_replicated_file_is_on_its_group_of_bricks(bench: Bench, gluster: Gluster) -> None:
    """The bricks of a replica group have the same files. The group is one target."""
    bricks = [gluster.folder / "bricks" / f"pair{number}" for number in range(4)]
    pairs = gluster.volume("pairs", bricks, layout=("replica", "2"))
    make_files(pairs.folder / "in", size=tree.MIB)
    found = sums(plan(bench, pairs.folder / "in", bench.folder / "out").out, "from")
    assert set(found) == {"pairs-replicate-0", "pairs-replicate-1"}


def test_a_sharded_volume_is_one_target(bench: Bench, sharded: Volume) -> None:
    """A client learns only the brick of a file's first block, so the volume is one target."""
    make_files(sharded.folder / "in", count=3, size=2 * SHARD_BYTES)
    found = sums(plan(bench, sharded.folder / "in", bench.folder / "out").out, "from")
    assert found == {sharded.source: "24.0 MiB"}


def ends(trace: Path) -> dict[str, float]:
    """Return for each file the time in seconds at which its last object was sent."""
    paths: dict[int, str] = {}
    last: dict[str, float] = {}
    for line in map(json.loads, trace.read_text(encoding="utf-8").splitlines()):
        if "path" in line:
            paths[line["file"]] = line["path"]
        for part in line.get("parts", []):
            name = paths[part["file"]]
            last[name] = max(last.get(name, 0.0), line["at_us"] / 1e6)
    return last


@pytest.mark.skipif(bool(loop.limits_reason()), reason=loop.limits_reason())
def test_a_slow_brick_delays_only_its_own_files(bench: Bench, gluster: Gluster) -> None:
    """In the order ``layout``, the files of the other bricks do not wait for the slow brick."""
    bricks = [gluster.folder / "bricks" / f"disk{number}" for number in range(3)]
    with (
        loop.disk(bricks[0], 1 << 30) as slow,
        loop.disk(bricks[1], 1 << 30),
        loop.disk(bricks[2], 1 << 30),
    ):
        inner = [brick / "data" for brick in bricks]
        for brick in inner:
            brick.mkdir()
        disks = gluster.volume("disks", inner)
        source = disks.folder / "in"
        source.mkdir()
        # The name of a file determines its brick: make files until each side has enough.
        kept: dict[bool, list[str]] = {True: [], False: []}
        number = 0
        while len(kept[True]) < SLOW_FILES or len(kept[False]) < FAST_FILES:
            name = name_of(number)
            number += 1
            tree.make_file(source / name, SLOW_FILE_BYTES, seed=number)
            entry = inner[0] / "in" / name
            is_slow = entry.exists() and bool(entry.stat().st_mode & 0o777)
            if len(kept[is_slow]) < (SLOW_FILES if is_slow else FAST_FILES):
                kept[is_slow].append(name)
            else:
                (source / name).unlink()
        wanted = tree.describe(source)

        def measure(limit: int, order: str) -> tuple[float, float]:
            os.sync()
            Path("/proc/sys/vm/drop_caches").write_text("3", encoding="ascii")
            slow.limit(0, limit)
            sink, trace = bench.folder / f"out-{order}-{limit}", bench.folder / "trace.jsonl"
            words: list[Word] = ["-r", f"{source}/", sink, "--trace", trace, "--order", order]
            bench.cp(*words, "--pool", "16MiB", "--durability", "none").expect(0)
            slow.limit(0, 0)
            same(wanted, sink)
            shutil.rmtree(sink)
            last = ends(trace)
            return (
                max(last[name] for name in kept[False]),
                max(last[name] for name in kept[True]),
            )

        _, whole = measure(0, "layout")
        fast, slowest = measure(SLOW_BYTES_PER_SECOND, "layout")
        fast_by_file, _ = measure(SLOW_BYTES_PER_SECOND, "file")
        print(
            f"\nother bricks done after {fast:.2f} s by layout, {fast_by_file:.2f} s by file; "
            f"slow brick after {slowest:.2f} s; without a slow brick {whole:.2f} s"
        )
        assert slowest > 0.8 * SLOW_FILES * SLOW_FILE_BYTES / SLOW_BYTES_PER_SECOND
        assert fast * 1.8 < fast_by_file
        gluster.remove(disks)


@pytest.mark.bench
def test_speed_beside_other_copiers(bench: Bench, spread: Volume) -> None:
    """Print the rates of dray, cp and rsync. The programs take turns."""
    here = bench.folder / "here"
    make_files(here, count=32, size=16 * tree.MIB)
    there = spread.folder / "speed"
    shutil.copytree(here, there)
    tools: dict[str, Callable[[Path, Path], list[Word]]] = {
        "dray": lambda source, sink: [bench.program, "cp", "-r", f"{source}/", sink],
        "cp": lambda source, sink: ["sh", "-c", f"cp -r {source} {sink} && sync -f {sink}"],
        "rsync": lambda source, sink: [
            *("sh", "-c", f"rsync -r --whole-file {source}/ {sink} && sync -f {sink}")
        ],
    }
    for way, source, sink in (("in", here, spread.folder / "x"), ("out", there, here.parent / "x")):
        times: dict[str, list[float]] = {name: [] for name in tools}
        for turn in range(3):
            for name, words in tools.items():
                Path("/proc/sys/vm/drop_caches").write_text("3", encoding="ascii")
                began = time.monotonic()
                Process(words(source, sink), bench.logs, f"{name}-{way}-{turn}").wait(300).expect(0)
                times[name].append(time.monotonic() - began)
                shutil.rmtree(sink)
        best = {name: sorted(each)[1] for name, each in times.items()}
        rates = {name: f"{512 / each:.0f} MiB/s" for name, each in best.items()}
        print(
            f"\n{way}: {rates}; ratio to cp {best['cp'] / best['dray']:.2f}, "
            f"to rsync {best['rsync'] / best['dray']:.2f}"
        )
