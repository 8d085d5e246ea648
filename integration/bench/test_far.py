"""The parts for paths, growth and jobs run, on little data: their numbers mean nothing here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from integration.bench.results import Results
from integration.harness.program import ROOT

pytestmark = [pytest.mark.server, pytest.mark.full, pytest.mark.timeout(300)]

#: Options for small parts of the sets, with the host's own congestion control.
TINY = ("--scale", "0.004", "--congestion", "system")
#: Final error of an XRootD copy if the source's server has lost its answer to the copy's key.
LOST = "tpc authorization expired"


def run(folder: Path, program: Path, *words: str) -> tuple[Results, str]:
    paths = os.pathsep.join(str(ROOT / part) for part in ("engine/python", "operators", "."))
    asked = [sys.executable, "-m", "integration.bench", *words, "--wait", "0", "--tries", "1"]
    asked += ["--rounds", "1", "--out", str(folder / "out"), "--json", str(folder / "again.json")]
    ran = subprocess.run(
        asked,
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "DRAY_PROGRAM": str(program), "PYTHONPATH": paths},
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    text = (folder / "again.json").read_text(encoding="utf-8")
    assert (folder / "out" / "results.json").read_text(encoding="utf-8") == text
    return Results.read(text), ran.stdout


def test_a_copy_over_a_path_takes_its_delay_and_bandwidth(folder: Path, program: Path) -> None:
    if os.geteuid() != 0 or not Path("/dev/net/tun").exists():
        pytest.skip("a path needs root and /dev/net/tun")
    words = ["--cases", "40:w", "--scale", "0.004", "--megabits", "100", "--congestion", "system"]
    found, said = run(folder, program, "wan", *words, "--tools", "dray,dray-tls,dray-third")
    by_tool = {each.tool: each for each in found.samples}
    assert set(by_tool) == {"iperf3-4", "dray", "dray-tls", "dray-third"}
    assert [each.error for each in found.samples if each.error] == []
    size = found.sets[0].size / 1e6
    for name in ("dray", "dray-tls", "dray-third"):
        sample = by_tool[name]
        # The connection, the handshake and one answer take at least two round trips.
        assert sample.seconds > size * 8 / 100 + 0.08, sample
        assert size < sample.seen.arrived[-1][1] < 1.1 * size, sample
        assert sample.where == "40 ms"
    assert "bound to 100 Mbit/s" in found.facts[0]
    assert "**dray between two endpoints**" in said
    assert (folder / "out" / f"w-40ms-{found.samples[0].congestion}.svg").exists()


def test_growth_is_measured_with_the_memory_of_each_end(folder: Path, program: Path) -> None:
    # The sets are so large that the memory of each copy is sampled while it runs.
    words = ["--sets", "f5,g1", "--scale", "0.1", "--where", str(folder)]
    found, _ = run(folder, program, "growth", *words, "--tools", "dray")
    ours = [each for each in found.samples if each.tool == "dray"]
    assert [(each.set, each.error) for each in ours] == [("f5", ""), ("g1", "")]
    # The peak memory of the client and that of the server both exceed 1 MiB.
    assert all(min(each.peaks[:2]) > 1 << 20 for each in ours), ours
    assert {each.where for each in ours} >= {"tmpfs"}
    assert list(folder.glob("dray-bench-*")) == []


def test_jobs_run_at_one_time_and_all_arrive(folder: Path, program: Path) -> None:
    words = ["--jobs", "2", "--scale", "0.002", "--congestion", "system"]
    found, said = run(folder, program, "jobs", *words)
    (ours,) = [each for each in found.samples if each.tool == "dray-third"]
    assert (ours.error, ours.set) == ("", "j2")
    assert "| jobs | dray MB/s |" in said
    assert json.loads((folder / "again.json").read_text(encoding="utf-8"))["base"] == "iperf3-4"


def failures(found: Results) -> list[tuple[str, str]]:
    """List the failed tools and their errors, except XRootD's own tools with the error ``LOST``."""
    is_ours = {row.name for row in found.rows if row.is_ours}
    return [
        (each.tool, each.error)
        for each in found.samples
        if each.error and (each.tool in is_ours or LOST not in each.error)
    ]


def test_third_party_copies_of_xrootd_arrive_every_way(folder: Path, program: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("servers that listen everywhere need a network of their own: root")
    found, said = run(folder, program, "tpc", "--cases", "0:a", *TINY)
    assert [each.missing for each in found.rows if each.missing] == []
    assert failures(found) == []
    assert {each.tool for each in found.samples} == {row.name for row in found.rows}
    for each in found.samples:
        if each.tool in ("stock", "dray") and not each.error:
            assert each.waited > each.seconds > 0, each
    assert "| less CPU than the least of XRootD's own | dray, HTTP COPY | a, tmpfs" in said


def test_third_party_copies_of_xrootd_go_over_a_path(folder: Path, program: Path) -> None:
    if os.geteuid() != 0 or not Path("/dev/net/tun").exists():
        pytest.skip("a path needs root and /dev/net/tun")
    few = ["--cases", "0:h,10@500:w", "--tools", "dray,dray-http,dray-both"]
    found, _ = run(folder, program, "tpc", *few, *TINY)
    assert failures(found) == []
    both = {"iperf3-4", "stock", "dray", "dray-http", "dray-both"}
    for name, where, tools in (("h", "tmpfs", {*both, "cp"}), ("w", "10 ms 0.5 Gbit", both)):
        there = {each.tool for each in found.samples if (each.set, each.where) == (name, where)}
        assert there == tools, name
    size = next(each.size for each in found.sets if each.name == "w") / 1e6
    for each in found.samples:
        if each.set == "w" and each.tool != "iperf3-4":
            # The bytes crossed the path once, and not through the client.
            assert size < each.seen.arrived[-1][1] < 1.2 * size, each
