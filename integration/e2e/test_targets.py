"""A storage target that is ten times slower than the others delays only its own objects.

The targets limit their rate by sleeping, so the rates do not depend on this machine. Each test
compares several copies, and runs them one after another.
"""

from __future__ import annotations

import os
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from integration.harness import tree
from integration.harness.marks import in_full

if TYPE_CHECKING:
    from integration.harness.program import Bench, Word

pytestmark = [pytest.mark.server, pytest.mark.timeout(900)]

FAST_BYTES_PER_SECOND = 40 * tree.MIB
FILE_BYTES = 4 * tree.MIB
ROUNDS = 3
#: Names of the folders: one slow folder, then four fast ones, and so on. A copy in file order waits
#: for each slow folder.
FOLDERS = [f"{'slow' if index % 5 == 0 else 'fast'}{index:02}" for index in range(25)]
#: Memory for buffers. It is less than the data of the slow target, which would otherwise fit into
#: memory as a whole.
POOL = "4MiB"
OBJECTS = ["--object-size", "256KiB", "--durability", "none"]

#: Rate of one of many targets, such as an OST of Lustre with other users.
EACH_BYTES_PER_SECOND = 2 * tree.MIB
PART_BYTES = tree.MIB // 2
#: Names of folders: four folders for each of eight targets. The order repeats the eight targets.
PARTS = [
    f"{turn}{'slow' if target == 5 else f'fast{target}'}"
    for turn in range(4)
    for target in range(8)
]


@dataclass
class Course:
    """Samples of one copy, until the fast target's data was complete."""

    seconds: float
    bytes_seen: int
    fast_bytes: int
    #: Longest time in seconds without data for the fast target.
    idle_seconds: float

    @property
    def rate(self) -> float:
        """Bytes per second at the fast and the slow target together."""
        return self.bytes_seen / self.seconds


def arrived(folder: Path, file_bytes: int) -> int:
    """Count the bytes below a folder that are written, under final and hidden names."""
    total = 0
    for base, _, names in os.walk(folder):
        for name in names:
            try:
                state = os.lstat(Path(base) / name)
            except FileNotFoundError:
                continue
            total += min(state.st_blocks * 512, state.st_size or file_bytes)
    return total


def watch(
    bench: Bench,
    words: list[Word],
    sink: Path,
    folders: list[str] = FOLDERS,
    file_bytes: int = FILE_BYTES,
) -> Course:
    """Run a copy, and poll the sizes of the files at the destination until it ends."""
    fast_total = file_bytes * sum("fast" in name for name in folders)
    client = bench.start_cp(*words)
    began: float | None = None
    last_change, last, idle, course = 0.0, 0, 0.0, None
    running = True
    while running:
        # Ask before the folders are read, so that they are read once more after the end.
        running = client.is_running()
        now = time.monotonic()
        seen = {name: arrived(sink / name, file_bytes) for name in folders}
        fast = sum(count for name, count in seen.items() if "fast" in name)
        if began is None:
            if sum(seen.values()) == 0:
                time.sleep(0.005)
                continue
            began = last_change = now
        if course is None:
            if fast > last:
                idle = max(idle, now - last_change)
                last_change, last = now, fast
            if fast >= fast_total:
                course = Course(now - began, sum(seen.values()), fast, idle)
        time.sleep(0.01)
    client.wait().expect(0)
    assert course is not None, "the copy ended before all fast data was seen"
    return course


@pytest.mark.full
@pytest.mark.parametrize("limited", ["sink", "source"])
def test_the_fast_target_never_waits_for_the_slow_one(bench: Bench, limited: str) -> None:
    source = bench.folder / "source"
    for number, name in enumerate(FOLDERS):
        (source / name).mkdir(parents=True)
        tree.make_file(source / name / "data", FILE_BYTES, seed=number)
    wanted = tree.describe(source)
    top = bench.folder / "root"
    limits = [
        f"--limit-target=fast={FAST_BYTES_PER_SECOND}",
        f"--limit-target=slow={FAST_BYTES_PER_SECOND // 10}",
    ]
    print(f"\n{limited}: fast {FAST_BYTES_PER_SECOND >> 20} MiB/s, slow a tenth of it")
    courses: dict[str, list[Course]] = {"layout": [], "file": []}
    for turn in range(ROUNDS):
        for order, seen in courses.items():
            sink = top / f"{order}{turn}"
            sink.mkdir(parents=True)
            at = sink if limited == "sink" else source
            targets = [f"--target={at / name}={name[:4]}" for name in FOLDERS]
            words: list[Word] = ["-r", *(source / name for name in FOLDERS)]
            ordering: list[Word] = ["--order", order, "--pool", POOL, *OBJECTS]
            if limited == "sink":
                server = bench.serve(sink, *targets, *limits, "--pool", POOL)
                far = f"dray://{server.address}/"
                seen.append(watch(bench, [*words, far, *ordering, *bench.peer(server)], sink))
                server.stop()
            else:
                words += [f"{sink}/", *targets, *limits, *ordering]
                seen.append(watch(bench, words, sink))
            entries = tree.describe(sink)
            assert [line for line in tree.differences(wanted, entries) if "b''" not in line] == []
    for order, seen in courses.items():
        for course in seen:
            print(f"\n{limited} {order}: {course}, {course.rate / tree.MIB:.1f} MiB/s", end="")
    layout = statistics.median(course.rate for course in courses["layout"])
    by_file = statistics.median(course.rate for course in courses["file"])
    print(f"\n{limited}: {layout / by_file:.2f} times the throughput of --order file")
    assert layout >= 1.8 * by_file
    fast = statistics.median(course.fast_bytes / course.seconds for course in courses["layout"])
    assert fast >= 0.8 * FAST_BYTES_PER_SECOND, "the fast target idled"
    idle = statistics.median(course.idle_seconds for course in courses["layout"])
    assert idle < 0.5, "the fast target stood still"


@pytest.mark.parametrize("limited", ["sink", in_full("source")])
def test_one_slow_target_of_eight_costs_the_others_nothing(bench: Bench, limited: str) -> None:
    source = bench.folder / "source"
    for number, name in enumerate(PARTS):
        (source / name).mkdir(parents=True)
        tree.make_file(source / name / "data", PART_BYTES, seed=number)
    wanted = tree.describe(source)
    top = bench.folder / "root"

    def run(name: str, order: str, slow_bytes_per_second: int) -> Course:
        sink = top / name
        sink.mkdir(parents=True)
        at = sink if limited == "sink" else source
        ends: list[Word] = [f"--target={at / part}={part[1:]}" for part in PARTS]
        rates = {part[1:]: EACH_BYTES_PER_SECOND for part in PARTS}
        rates["slow"] = slow_bytes_per_second
        ends += [f"--limit-target={target}={rate}" for target, rate in rates.items()]
        how: list[Word] = ["--order", order, "--object-size", "64KiB", "--durability", "none"]
        words: list[Word] = ["-r", *(source / part for part in PARTS)]
        if limited == "sink":
            server = bench.serve(sink, *ends, "--pool", "1MiB")
            words += [f"dray://{server.address}/", *how, "--pool", "1MiB", *bench.peer(server)]
            course = watch(bench, words, sink, PARTS, PART_BYTES)
            server.stop()
        else:
            words += [f"{sink}/", *ends, *how, "--pool", "1MiB"]
            course = watch(bench, words, sink, PARTS, PART_BYTES)
        entries = tree.describe(sink)
        assert [line for line in tree.differences(wanted, entries) if "b''" not in line] == []
        print(f"\n{limited} {name}: {course}, {course.rate / tree.MIB:.1f} MiB/s", end="")
        return course

    free = run("free", "layout", EACH_BYTES_PER_SECOND)
    layout = run("layout", "layout", EACH_BYTES_PER_SECOND // 10)
    by_file = run("file", "file", EACH_BYTES_PER_SECOND // 10)
    print(f"\n{limited}: {layout.rate / by_file.rate:.2f} times --order file until the tail")
    print(
        f"{limited}: the others took {layout.seconds / free.seconds:.2f} times as long as without"
    )
    assert layout.rate >= 1.5 * by_file.rate
    # The test in the simulator checks the exact bound, 1.05. This bound is larger, because other
    # processes use this machine.
    assert layout.seconds <= 1.5 * free.seconds
