"""``dray cp`` and ``dray plan`` with several disks, while copies are killed and disks fail."""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING

import pytest

from integration.harness import loop, tree
from integration.harness.tree import MIB, hash_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from integration.harness.program import Bench

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

MARK = ".dray-disk"
DISK_BYTES = 96 * MIB
#: Rate of a copy that takes long enough to be interrupted.
RATE = "16MiB"
#: Rate of a copy that must not end before another copy of the same files.
SLOW_RATE = "6MiB"
INTERRUPTED = 5
FILES_FAILED = 1
#: Maximum bytes that a resumed copy sends again: those of a sync group, and those in flight.
TWICE_MAX = 80 * MIB


def url(dirs: list[Path], below: str = "") -> str:
    """Return the ``disks:`` URL of the folder ``below`` on these disks."""
    return f"disks://{','.join(map(str, dirs))}//{below}"


def make_dirs(folder: Path, count: int) -> list[Path]:
    """Make folders that stand for disks. They are on one file system."""
    dirs = [folder / f"disk{number}" for number in range(count)]
    for at in dirs:
        at.mkdir()
    return dirs


def found(dirs: list[Path], below: str) -> dict[str, bytes]:
    """Return the finished files with their checksums. Fail if a file is on two disks."""
    sums: dict[str, bytes] = {}
    for top in (folder / below for folder in dirs):
        for path in top.rglob("*") if top.is_dir() else ():
            name = str(path.relative_to(top))
            if path.is_file() and not name.startswith(".dray-"):
                assert name not in sums, f"{name} is on two disks"
                sums[name] = hash_file(path)
    return sums


def own_names(dirs: list[Path]) -> list[str]:
    """Return dray's own files on the disks, except the marks of the disks."""
    names = [name for folder in dirs for name in tree.leftovers(folder)]
    return [name for name in names if not name.endswith(MARK)]


def sums_of(top: Path) -> dict[str, bytes]:
    """Return the checksums of the files ``*.dat`` below a folder."""
    return {str(path.relative_to(top)): hash_file(path) for path in top.rglob("*.dat")}


def make_source(top: Path, count: int, size: int) -> dict[str, bytes]:
    """Make ``count`` files of ``size`` bytes each. Return their checksums by name."""
    top.mkdir()
    for number in range(count):
        tree.make_file(top / f"{number}.dat", size, seed=number)
    return sums_of(top)


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[list[loop.Disk]]:
    """Yield three mounted disks of ``DISK_BYTES``."""
    if loop.reason():
        pytest.skip(loop.reason())
    with contextlib.ExitStack() as stack:
        disks = [tmp_path / f"disk{number}" for number in range(3)]
        yield [stack.enter_context(loop.disk(at, DISK_BYTES)) for at in disks]


def test_a_killed_copy_resumes_on_each_disk(bench: Bench) -> None:
    dirs = make_dirs(bench.folder, 3)
    source = bench.folder / "source"
    wanted = make_source(source, 6, 24 * MIB)
    words = ["-r", f"{source}/", url(dirs, "in/")]
    for _ in range(2):
        bench.start_slow_cp("--rate", RATE, *words).kill()
    partial = {
        folder.name
        for folder in dirs
        for path in folder.rglob(".dray-*")
        if path.is_file() and path.stat().st_size == 24 * MIB
    }
    assert len(partial) > 1, f"partial files are on {partial}"
    ended = bench.cp(*words).expect(0)
    assert ended.report["bytes_resumed"] > 0, ended.report
    assert ended.report["bytes_sent"] < 6 * 24 * MIB
    assert found(dirs, "in") == wanted
    used = [len(list((folder / "in").iterdir())) for folder in dirs]
    assert used == [2, 2, 2], "equal files are spread evenly"
    assert own_names(dirs) == []


def test_a_copy_to_a_failed_disk_resumes_when_the_disk_is_back(
    bench: Bench, mounted: list[loop.Disk]
) -> None:
    dirs = [disk.folder for disk in mounted]
    source = bench.folder / "source"
    wanted = make_source(source, 6, 20 * MIB)
    words = ["-r", f"{source}/", url(dirs, "in/")]
    client = bench.start_slow_cp("--rate", RATE, *words)
    # Let a disk fail that does not have the log. The log is on the first disk.
    mounted[1].fail()
    ended = client.wait(120)
    # If a sync fails first, the session ends. If a write fails first, only its file fails.
    assert ended.code in (INTERRUPTED, FILES_FAILED), ended.words
    assert str(dirs[1]) in ended.words, ended.words
    # Each file with a final name is complete.
    good = [dirs[0], dirs[2]]
    before = found(good, "in")
    assert before.items() <= wanted.items()
    # Mount the disk again: the same command completes the copy.
    mounted[1].unmount()
    mounted[1].mount()
    again = bench.cp(*words).expect(0)
    assert again.report["bytes_resumed"] > 0, again.report
    assert found(dirs, "in") == wanted
    assert own_names(dirs) == []


def test_an_unmounted_disk_is_not_replaced_by_its_empty_folder(
    bench: Bench, mounted: list[loop.Disk]
) -> None:
    dirs = [disk.folder for disk in mounted]
    source = bench.folder / "source"
    wanted = make_source(source, 6, 20 * MIB)
    words = ["-r", f"{source}/", url(dirs, "in/")]
    client = bench.start_slow_cp("--rate", RATE, *words)
    mounted[1].unmount()
    ended = client.wait(120)
    # A lazy unmount leaves open folders usable, so the copy may still succeed. The mount point
    # itself gets no file.
    assert list(dirs[1].iterdir()) == [], "nothing is written into the folder below the disk"
    again = bench.cp(*words)
    assert again.code not in (0, None), again.words
    assert str(dirs[1]) in again.words, again.words
    assert list(dirs[1].iterdir()) == []
    mounted[1].mount()
    if ended.code == 0:
        assert found(dirs, "in") == wanted
    bench.cp(*words).expect(0)
    assert found(dirs, "in") == wanted
    assert own_names(dirs) == []


def test_a_copy_continues_on_the_other_disks_when_one_is_full(
    bench: Bench, mounted: list[loop.Disk]
) -> None:
    dirs = [disk.folder for disk in mounted]
    source = bench.folder / "source"
    wanted = make_source(source, 6, 20 * MIB)
    client = bench.start_slow_cp("--rate", RATE, "-r", f"{source}/", url(dirs, "in/"))
    with (dirs[1] / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(MIB))
    client.wait(120).expect(0)
    assert found(dirs, "in") == wanted
    used = [len(list((folder / "in").iterdir())) for folder in dirs]
    assert used[1] < 2 < max(used), used
    assert own_names(dirs) == []


def test_a_full_set_of_disks_fails_the_file_that_does_not_fit(
    bench: Bench, mounted: list[loop.Disk]
) -> None:
    dirs = [disk.folder for disk in mounted]
    source = bench.folder / "source"
    wanted = make_source(source, 3, 16 * MIB)
    tree.make_file(source / "large.dat", 2 * DISK_BYTES, seed=9)
    ended = bench.cp("-r", f"{source}/", url(dirs, "in/")).expect(1)
    assert "no space left" in ended.words, ended.words
    assert found(dirs, "in") == wanted


def test_a_plan_of_disks_shows_the_disk_of_each_file(bench: Bench) -> None:
    dirs, others = make_dirs(bench.folder, 3), [bench.folder / f"other{n}" for n in range(2)]
    for folder in others:
        folder.mkdir()
    source = bench.folder / "source"
    wanted = make_source(source, 6, 3 * MIB)

    def plan(*words: str) -> list[dict[str, object]]:
        ended = bench.start("plan", "--layout", "--json", "-r", *words).wait().expect(0)
        return [json.loads(line) for line in ended.out.splitlines()]

    def ranges(lines: list[dict[str, object]], key: str) -> dict[str, object]:
        return {str(line["path"]): line[key] for line in lines if line["event"] == "range"}

    # A plan writes nothing to the disks.
    lines = plan(f"{source}/", url(dirs, "in/"))
    to = ranges(lines, "sink_target")
    assert to.keys() == wanted.keys()
    assert sorted(map(str, to.values())) == sorted([str(folder) for folder in dirs] * 2)
    assert [os.listdir(folder) for folder in dirs] == [[], [], []]

    bench.cp("-r", f"{source}/", url(dirs, "in/")).expect(0)
    lines = plan(f"{source}/", url(dirs, "in/"))
    assert lines[-1]["files_adopt"] == 6, lines[-1]
    lines = plan(url(dirs, "in/"), url(others, "copy/"))
    places = {path.name: str(folder) for folder in dirs for path in (folder / "in").iterdir()}
    assert ranges(lines, "source_target") == places
    assert set(ranges(lines, "sink_target").values()) == {str(folder) for folder in others}
    assert lines[-1]["source_targets"] == {str(folder): 6 * MIB for folder in dirs}

    # ``dray plan`` reads the log of an interrupted copy, and plans to resume one file.
    tree.make_file(source / "6.dat", 48 * MIB, seed=7)
    bench.start_slow_cp("--rate", RATE, "-r", f"{source}/", url(dirs, "in/")).kill()
    lines = plan(f"{source}/", url(dirs, "in/"))
    assert lines[-1]["files_resume"] == 1, lines[-1]

    ended = bench.start("plan", "--layout", f"{source}/0.dat", "dray://127.0.0.1:1/x/").wait()
    assert ended.code == 2, ended.words
    assert "disks://" in ended.words, ended.words


def partials(dirs: list[Path]) -> set[tuple[str, int]]:
    """Return the paths and the inodes of the partial files on the disks."""
    files = [path for folder in dirs for path in folder.rglob(".dray-*.part")]
    return {(str(path), path.stat().st_ino) for path in files}


def remove_finished(dirs: list[Path]) -> None:
    """Remove the finished files from the disks."""
    for path in (path for folder in dirs for path in folder.rglob("*.dat")):
        path.unlink()


def test_copies_to_all_disks_and_to_one_disk_keep_the_partial_files_of_each_other(
    bench: Bench,
) -> None:
    dirs = make_dirs(bench.folder, 2)
    source = bench.folder / "source"
    wanted = make_source(source, 2, 24 * MIB)
    all_disks = ["-r", f"{source}/", url(dirs, "in/")]

    def one_disk(at: Path) -> list[str]:
        return ["-r", f"{source}/", f"{at}/in/"]

    # A copy to the last disk begins and ends while a copy to all disks runs. The log of the copy to
    # all disks is on the first disk.
    running = bench.start_slow_cp("--rate", SLOW_RATE, *all_disks)
    before = partials(dirs)
    assert before
    bench.cp(*one_disk(dirs[1])).expect(0)
    assert sums_of(dirs[1] / "in") == wanted
    assert before <= partials(dirs)
    running.wait(120).expect(0)
    assert own_names(dirs) == []

    # A copy to all disks begins and ends while a copy to the last disk runs.
    remove_finished(dirs)
    running = bench.start_slow_cp("--rate", SLOW_RATE, *one_disk(dirs[1]))
    before = partials(dirs)
    assert before
    bench.cp(*all_disks).expect(0)
    assert before <= partials(dirs)
    running.wait(120).expect(0)
    assert sums_of(dirs[1] / "in") == wanted
    assert partials(dirs) == set()

    # Both copies were killed, and both resume.
    remove_finished(dirs)
    bench.start_slow_cp("--rate", RATE, *all_disks).kill()
    bench.start_slow_cp("--rate", RATE, *one_disk(dirs[1])).kill()
    for words in (one_disk(dirs[1]), all_disks):
        remove_finished(dirs)
        ended = bench.cp(*words).expect(0)
        assert ended.report["bytes_resumed"] > 0, ended.report
    assert found(dirs, "in") == wanted
    assert own_names(dirs) == []
