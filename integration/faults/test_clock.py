"""The real-time clock steps back: during a copy, between two runs, and on the source's host."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from integration.harness import tree

if TYPE_CHECKING:
    from integration.harness.program import Bench, Word

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

YEAR = 365 * 86400
STEP_BACK = -10 * YEAR
SHIM = Path(__file__).parents[1] / "harness" / "stepped_clock.c"


class Calendar:
    """The real-time clock of programs started with :attr:`wrap`, which can be stepped back."""

    def __init__(self, folder: Path) -> None:
        """Build the library that is preloaded."""
        library = folder / "stepped_clock.so"
        flags = ["-Wall", "-Wextra", "-Werror", "-O1", "-fPIC", "-shared"]
        subprocess.run(["cc", *flags, "-o", library, SHIM, "-ldl"], check=True)
        self.sign = folder / "clock-has-stepped"
        self.wrap = [
            "env",
            f"LD_PRELOAD={library}",
            f"STEPPED_CLOCK_FILE={self.sign}",
            f"STEPPED_CLOCK_SECONDS={STEP_BACK}",
        ]

    def year(self) -> int:
        """Return the year that a program with this clock reads."""
        code = "import time; print(time.gmtime().tm_year)"
        output = subprocess.run(
            [*self.wrap, sys.executable, "-c", code], check=True, capture_output=True, text=True
        )
        return int(output.stdout)


@pytest.fixture
def calendar(bench: Bench) -> Calendar:
    """Make a clock, and check that it steps."""
    calendar = Calendar(bench.folder)
    now = calendar.year()
    calendar.sign.touch()
    assert now - 11 <= calendar.year() <= now - 9, "the clock does not step"
    calendar.sign.unlink()
    return calendar


@pytest.fixture
def source(bench: Bench) -> Path:
    """Make a tree with a large file, so that its copy can be interrupted in the middle."""
    top = bench.folder / "source"
    tree.make_tree(top, 100, seed=3)
    tree.make_file(top / "large", 64 * tree.MIB, seed=8)
    return top


@pytest.mark.parametrize("push", [True, False], ids=["push", "pull"])
def test_clock_steps_back_during_a_copy(
    bench: Bench, source: Path, calendar: Calendar, push: bool
) -> None:
    sink = bench.folder / "sink"
    sink.mkdir()
    server = bench.serve(sink if push else bench.folder, wrap=calendar.wrap)
    far = f"dray://{server.address}/"
    ends: list[Word] = [source, far] if push else [f"{far}source", f"{sink}/"]
    words: list[Word] = ["-r", *ends, *bench.peer(server), "--rate", "32MiB"]
    client = bench.start_cp(*words, "--progress", "json", wrap=calendar.wrap)
    client.await_durable()
    calendar.sign.touch()
    ended = client.wait().expect(0)
    assert 0 < ended.report["seconds"] < 120, "the report was made with the calendar"
    tree.assert_same(tree.describe(source), sink / "source")
    assert tree.leftovers(sink) == []
    # Run the same command with the clock ten years before the times of the files. The command still
    # finds all files complete.
    again = bench.cp(*words, wrap=calendar.wrap).expect(0)
    assert again.report["objects_sent"] == 0


def test_clock_steps_back_between_two_runs(bench: Bench, source: Path, calendar: Calendar) -> None:
    sink = bench.folder / "sink"
    sink.mkdir()
    server = bench.serve(sink, wrap=calendar.wrap)
    words: list[Word] = ["-r", source, f"dray://{server.address}/", *bench.peer(server)]
    client = bench.start_cp(*words, "--rate", "16MiB", "--progress", "json", wrap=calendar.wrap)
    client.await_durable(8 * tree.MIB)
    client.kill()
    server.kill()
    calendar.sign.touch()
    server = bench.serve(sink, wrap=calendar.wrap)
    words = ["-r", source, f"dray://{server.address}/", *bench.peer(server)]
    ended = bench.cp(*words, wrap=calendar.wrap).expect(0)
    assert ended.report["objects_resumed"] > 0
    assert ended.report["bytes_sent"] < 64 * tree.MIB
    tree.assert_same(tree.describe(source), sink / "source")
    assert tree.leftovers(sink) == []


@pytest.mark.parametrize("finished", [False, True], ids=["half", "whole"])
def test_source_changed_into_the_past(bench: Bench, source: Path, finished: bool) -> None:
    """A source file is rewritten with an older modification time, as after a clock step back."""
    sink = bench.folder / "sink"
    sink.mkdir()
    words: list[Word] = ["-r", source, f"{sink}/"]
    if finished:
        bench.cp(*words).expect(0)
    else:
        client = bench.start_cp(*words, "--rate", "16MiB", "--progress", "json")
        client.await_durable(8 * tree.MIB)
        client.kill()
    large = source / "large"
    before = large.stat().st_mtime_ns
    tree.make_file(large, 64 * tree.MIB, seed=9)
    os.utime(large, ns=(before + STEP_BACK * 10**9,) * 2)
    ended = bench.cp(*words).expect(0)
    assert ended.report["bytes_sent"] >= 64 * tree.MIB
    tree.assert_same(tree.describe(source), sink / "source")
    assert tree.leftovers(sink) == []
