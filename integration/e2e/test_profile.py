"""A copy reports its bottleneck, whether it is here, at the other host or in the network.

The rate limits and the proxy slow one part of the copy down by sleeping. So the bottleneck does not
depend on the speed of this machine.
"""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from dray.testing.proxy import Proxy
from integration.harness import tree

if TYPE_CHECKING:
    from pathlib import Path

    from integration.harness.program import Bench, Word

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

SIZE = 32 * tree.MIB
SLOW = 8 * tree.MIB
#: Options for buffers that are smaller than the data, so that the slow part delays the rest.
SMALL: list[Word] = ["--object-size", "256KiB", "--pool", "8MiB", "--durability", "none"]


@pytest.fixture
def source(bench: Bench) -> Path:
    """Make a folder with one file."""
    source = bench.folder / "source"
    source.mkdir()
    tree.make_file(source / "data", SIZE, seed=7)
    return source


def times_of(report: dict[str, Any], end: str) -> dict[str, float]:
    """Return the seconds of an end by stage. Their sum must not exceed the duration of the copy."""
    times: dict[str, float] = report["profile"][end]
    assert all(time >= 0 for time in times.values())
    assert 0 < sum(times.values()) <= report["seconds"] + 0.01, report
    return times


def held_up(report: dict[str, Any], stage: str, end: str) -> None:
    """Expect the bottleneck ``stage``, in which ``end`` spends most of its time."""
    assert report["bottleneck"] == stage, report["profile"]
    source, sink = times_of(report, "source"), times_of(report, "sink")
    times = source if end == "source" else sink
    assert times[stage] > 0.6 * SIZE / SLOW, report["profile"]


def slow(folder: Path) -> list[Word]:
    """Return the options that limit the storage in a folder to the rate ``SLOW``."""
    return ["--target", f"{folder}=slow", f"--limit-target=slow={SLOW}"]


def test_a_rate_limited_copy_reports_rate(bench: Bench, source: Path) -> None:
    words: list[Word] = [source / "data", bench.folder / "sink/data", f"--rate={SLOW}"]
    held_up(bench.cp(*words).expect(0).report, "rate", "source")


@pytest.mark.parametrize(
    ("which", "stage", "end"), [("source", "read", "source"), ("sink", "write", "sink")]
)
def test_the_profile_distinguishes_slow_storage_from_the_other_end(
    bench: Bench, source: Path, which: str, stage: str, end: str
) -> None:
    sink = bench.folder / "sink"
    sink.mkdir()
    words: list[Word] = [source / "data", sink / "data", *slow(bench.folder / which), *SMALL]
    held_up(bench.cp(*words).expect(0).report, stage, end)


@pytest.mark.parametrize(
    ("push", "stage", "end"), [(True, "write", "sink"), (False, "read", "source")]
)
def test_slow_storage_of_another_host_is_named_here(
    bench: Bench, source: Path, push: bool, stage: str, end: str
) -> None:
    root = bench.folder / "root"
    root.mkdir()
    (source / "data").rename(root / "data")
    server = bench.serve(root, *slow(root), "--pool", "8MiB")
    here = bench.folder / "here"
    if push:
        (root / "data").rename(here)
    far = f"dray://{server.address}/data"
    ways: list[Word] = [here, far] if push else [far, here]
    held_up(bench.cp(*ways, *SMALL, *bench.peer(server)).expect(0).report, stage, end)


@pytest.mark.parametrize("push", [True, False], ids=["push", "pull"])
def test_a_slow_network_reports_network(bench: Bench, source: Path, push: bool) -> None:
    root = bench.folder / "root"
    root.mkdir()
    if not push:
        (source / "data").rename(root / "data")
    server = bench.serve(root)
    with closing(Proxy(server.address, bytes_per_second=SLOW)) as proxy:
        far = f"dray://{proxy.address}/data"
        ways: list[Word] = [source / "data", far] if push else [far, source / "data"]
        # Use one stream, because the system buffers megabytes of each stream before an end waits.
        words: list[Word] = [*ways, "--streams", "1", *bench.peer(server)]
        report = bench.cp(*words).expect(0).report
    assert report["bottleneck"] == "network", report["profile"]
    assert times_of(report, "source")["network"] > 0.5 * report["seconds"]
    assert times_of(report, "sink")["arrival"] > 0.5 * report["seconds"]


def test_the_summary_and_progress_name_the_bottleneck(bench: Bench, source: Path) -> None:
    words: list[Word] = ["cp", source / "data", bench.folder / "sink/data", f"--rate={SLOW}"]
    ended = bench.start(*words).wait().expect(0)
    assert ended.out.strip().endswith("; bottleneck: the rate limit of the transfer"), ended.out
    ended = bench.start(*words, "--overwrite=always", "--progress=json").wait().expect(0)
    lines = [json.loads(line) for line in ended.words.splitlines()]
    progress = [line for line in lines if line["event"] == "progress"]
    assert [line["bottleneck"] for line in progress[1:]] == ["rate"] * (len(progress) - 1)
    spent = [line["profile"]["source"].get("rate", 0) for line in progress]
    assert spent == sorted(spent), "they only grow"
    assert spent[-1] > 0.6 * SIZE / SLOW
    assert len(progress) >= 3
