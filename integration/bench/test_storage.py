"""The measurements of storage systems run, with small sizes."""

from __future__ import annotations

import pytest

from integration.bench import ceph, ceph_slow, gluster
from integration.bench.beside import (
    MIB,
    Results,
    Sample,
    command_of,
    options,
    ratio,
    run_all,
    table,
)
from integration.harness.loop import limits_reason
from integration.storage.ceph import find_missing
from integration.storage.gluster import reason

SERVERS = [pytest.mark.server, pytest.mark.full, pytest.mark.timeout(400)]


def _sample(turn: int, way: str, seconds: float) -> Sample:
    return Sample("c", turn, way, 1000, seconds, 1.0, MIB)


def test_a_ratio_is_the_median_of_the_ratios_of_the_rounds() -> None:
    rounds = [(2.0, 1.0), (4.0, 1.0), (9.0, 3.0)]
    samples = [
        _sample(turn, way, seconds)
        for turn, pair in enumerate(rounds)
        for way, seconds in zip(("base", "ours"), pair, strict=True)
    ]
    assert ratio(samples, "c", "ours", "base") == pytest.approx(3.0)
    assert "| ours | 1.00 |" in table(samples, "c", "base")[3]


def test_the_results_name_the_command_without_places_of_files() -> None:
    known = options("ceph", "")
    known.add_argument("--memory", type=int, nargs="*", default=[1024])
    known.add_argument("--no-servers", action="store_true")
    given = known.parse_args(["--json", "out", "--rounds", "2", "--memory", "--no-servers"])
    whole = "python -m integration.bench.ceph --rounds 2 --memory --no-servers"
    assert command_of(known, given) == whole


def test_the_seconds_of_rados_bench_are_its_own() -> None:
    assert ceph.bench_seconds("x\nTotal time run:         1.52\nTotal reads: 3") == 1.52


@pytest.mark.parametrize("_", [pytest.param(0, marks=SERVERS)])
def test_copies_into_and_out_of_ceph_are_measured(_: int) -> None:
    if why := find_missing():
        pytest.skip(why)
    results = Results("")
    with ceph.speed(None, 32 * MIB, results.facts) as it:
        run_all(results, "into", it.into(), 1)
        run_all(results, "out of", it.out_of(), 1)
        found = ceph.memory(it, [32 * MIB])
    assert {each.case for each in results.samples} == {"into", "out of"}
    assert all(each.rate > 0 for each in results.samples)
    assert [way for way, *_ in found] == ["into", "out of"]


@pytest.mark.parametrize("way", [pytest.param("source", marks=SERVERS)])
def test_reads_of_other_osds_are_not_delayed(way: str) -> None:
    if why := find_missing():
        pytest.skip(why)
    with ceph_slow.bench(ceph_slow.Sizes(files=3)) as it:
        row = ceph_slow.congestion(it, way)
    assert row.file.others > 1.8 * row.layout.others


@pytest.mark.parametrize("way", [pytest.param("source", marks=SERVERS)])
def test_reads_of_other_bricks_are_not_delayed(way: str) -> None:
    if why := reason() or limits_reason():
        pytest.skip(why)
    with gluster.bench(gluster.Sizes(files=24)) as it:
        layout = it.run(way, "layout", is_slow=True)
        file = it.run(way, "file", is_slow=True)
    assert file.others > 1.8 * layout.others
