"""The measurement ``recovery``: its arithmetic against values computed by hand, and a tiny run."""

from __future__ import annotations

import json
import math
import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from integration.bench import recovery, recovery_report, recovery_report_faults
from integration.bench.recovery_data import (
    OBJECT_BYTES,
    SETS,
    TARGETS,
    Kept,
    Key,
    Sample,
    Set,
    differences,
    make,
    middle,
    recovery_seconds,
)
from integration.bench.recovery_pair import NO_LOG, Ways, bits_per_object, copy, forms, pair
from integration.bench.recovery_prefix import record, reduced
from integration.harness.program import find_program
from integration.log import decoder

if TYPE_CHECKING:
    from collections.abc import Sequence

GOLDEN = Path(decoder.__file__).parent / "golden"


def sample(
    case: str, turn: int, story: str = "overhead", error: str = "", **values: float
) -> Sample:
    """Return a sample of the set small."""
    return Sample(Key(story, "small", case, turn, 10.0, 20), values, error)


def kept(path: Path, samples: Sequence[Sample]) -> Kept:
    """Return results with these samples."""
    found = Kept(path)
    for each in samples:
        found.add(each)
    return found


def test_the_recovery_time_is_that_of_equation_1() -> None:
    # 12 s before the fault, 50 s after it, and 60 s without a fault.
    assert recovery_seconds(12.0, 50.0, 60.0) == 2.0


def test_the_interval_is_that_of_student() -> None:
    # Mean 5, standard deviation sqrt(10/4) = 1.5811, 4 degrees of freedom: t = 4.604.
    found = middle([3.0, 4.0, 5.0, 6.0, 7.0])
    assert (found.median, found.mean, found.count) == (5.0, 5.0, 5)
    assert math.isclose(found.half, 4.604 * math.sqrt(2.5) / math.sqrt(5))
    assert found.text() == "5.00 (5.00 ± 3.26)"
    assert math.isinf(middle([3.0]).half)
    assert middle([3.0]).text() == "3.00"
    assert middle([3.0, 4.0]).text() == "3.50"
    with pytest.raises(ValueError, match="no values"):
        middle([])


def test_differences_are_taken_within_a_round() -> None:
    base = [sample("none", 0, cpu_seconds=2.0), sample("none", 1, cpu_seconds=5.0)]
    ours = [sample("x", turn, cpu_seconds=6.0) for turn in (0, 1, 2)]
    assert [value for _, value in differences(ours, base, "cpu_seconds")] == [4.0, 1.0]


def test_the_cost_of_an_object_is_a_difference(tmp_path: Path) -> None:
    # 20 files of one object; 0.4 ms and 0.8 ms more: 20 and 40 microseconds for each object.
    samples = [sample(NO_LOG, turn, cpu_seconds=1.0, seconds=10.0) for turn in (0, 1)]
    samples += [sample("file:int", turn, cpu_seconds=1.0004 + turn * 4e-4) for turn in (0, 1)]
    results = kept(tmp_path / "r", samples)
    found = recovery_report.per_object(results, "small", (10.0, 20), "file:int")
    assert found is not None
    assert math.isclose(found.mean, 30.0, rel_tol=1e-6)
    assert recovery_report.per_object(results, "small", (10.0, 20), "file:enc") is None


def test_results_continue_after_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "results.jsonl"
    one, failed = sample("a", 0, seconds=1.0), sample("b", 0, error="it failed")
    results = kept(path, [one, failed])
    results.describe({"command": "x"})
    results.describe({"command": "x"})
    with path.open("a", encoding="utf-8") as file:
        file.write('{"key": {"st')
    again = Kept(path)
    assert again.samples == [one, failed]
    assert again.runs == [{"command": "x"}]
    assert again.has(one.key)
    # A run that failed is repeated.
    assert not again.has(failed.key)
    again.add(sample("b", 0, seconds=2.0))
    assert Kept(path).has(failed.key)


def test_sets_have_the_counts_of_the_paper() -> None:
    assert {one.name: (one.files, one.objects) for one in SETS.values()} == {
        "big": (100, 1024),
        "small": (10_000, 1),
    }
    assert SETS["big"].scaled(0.001).files == TARGETS
    # Ten files on the first target, and nine on each other target.
    assert SETS["big"].target_rate(10.0) == 64 * (1 << 20)
    assert len(set(forms())) == 2 * (1 + 3 * 6)


def test_a_reduced_log_has_only_prefixes() -> None:
    data = (GOLDEN / "plain.log").read_bytes()
    before = {file["path"]: file for file in decoder.read_log(data)["files"]}
    out, done, stays = reduced(data)
    after = decoder.read_log(out)
    assert (after["damage"], after["torn_bytes"]) == (None, 0)
    assert {file["path"] for file in after["files"]} == before.keys()
    for file in after["files"]:
        wanted = [run for run in before[file["path"]]["done"] if run[0] == 0]
        assert file["done"] == wanted
    assert done == sum(run[1] for file in before.values() for run in file["done"])
    assert stays == sum(run[1] for file in after["files"] for run in file["done"])
    assert stays < done, "the golden log shows nothing"


def test_bits_of_objects_are_those_of_their_records() -> None:
    data = (GOLDEN / "plain.log").read_bytes()
    out, _, _ = reduced(data)
    head, replay, _ = decoder.replay_of(out)
    number = next(number for number, file in replay.files.items() if not file.runs)
    # Without its Commit, a Range of one object of 64 KiB has 16 + 32 bytes: 384 bits.
    body = struct.pack("<IIQQII", number, 0, 0, 4096, 1, 1)
    log = out + record(decoder.RANGE, body, len(out), head["nonce"])
    objects = sum(
        -(-(run[1]) // OBJECT_BYTES)
        for file in decoder.read_log(log)["files"]
        for run in file["done"]
    )
    found, bits = bits_per_object(log)
    ranges = sum(len(file["done"]) for file in decoder.read_log(log)["files"])
    assert (found, bits) == (objects, 384.0 * ranges / objects)


def test_the_page_has_each_table(tmp_path: Path) -> None:
    samples = [sample("push/whole", 0, "recovery", seconds=10.0)]
    samples += [
        sample(f"push/source/{point}", 0, "recovery", before=point / 10, after=10.5 - point / 10)
        for point in (20, 40, 60, 80)
    ]
    samples.append(sample("bbcp/whole", 0, "recovery", error="no | end\nafter 5 s"))
    results = kept(tmp_path / "r", samples)
    rows = recovery_report_faults.recovery(results)
    assert "| dray, client to server | source | 10.00 | 0.50 | 0.50 | 0.50 | 0.50 | 5.0 |" in rows
    assert recovery_report_faults.unavailable(results)[1] == (
        "- bbcp, set small (whole): no / end after 5 s"
    )
    marks = [
        f"<!-- begin {name} -->\nold\n<!-- end {name} -->" for name in recovery_report.SECTIONS
    ]
    text = recovery_report.filled("\n".join(marks), results)
    assert "old" not in text
    assert recovery_report.filled(text, results) == text
    with pytest.raises(ValueError, match="no comments of the table"):
        recovery_report.filled("nothing", results)


# --- with the real program ------------------------------------------------------------------------


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the program, and let all parts of the measurement use it."""
    found = Path(os.environ.get("DRAY_PROGRAM") or find_program())
    monkeypatch.setenv("DRAY_PROGRAM", str(found))
    return found


@pytest.mark.server
@pytest.mark.timeout(300)
def test_a_copy_is_measured_with_its_log(program: Path, tmp_path: Path) -> None:
    one = Set("big", 11, 64)
    data = make(one, tmp_path / "big")
    ways = Ways(form="file:bit8:nosums", rate=one.target_rate(1.0))
    found = copy(tmp_path, program, one, data, ways, 1.0)
    assert found["log_peak"] > 0
    assert found["log_files"] > 1
    assert found["log_end"] == 0
    assert found["sink_cpu_seconds"] > 0
    assert min(found["source_memory"], found["sink_memory"]) > 1 << 20


@pytest.mark.server
@pytest.mark.timeout(300)
def test_a_log_in_memory_leaves_no_file_and_resumes_nothing(program: Path, tmp_path: Path) -> None:
    one = Set("big", 11, 64)
    data = make(one, tmp_path / "big")
    ways = Ways(form=NO_LOG, more=("--rate", "16MiB"))
    with pair(tmp_path, program, one, data, ways) as made:
        client = made.start()
        wanted = one.size // 4
        while sum(path.stat().st_blocks for path in made.sink.rglob("*")) * 512 < wanted:
            assert client.is_running(), client.wait().words
        assert list(made.sink.glob(".dray-log/*.lease")) != []
        assert list(made.sink.glob(".dray-log/*.log")) == []
        client.kill()
        made.server.kill()
        made.serve()
        made.ways = Ways()
        again = made.start().wait().expect(0)
    assert again.report["objects_resumed"] == 0
    assert again.report["bytes_sent"] >= one.size * 3 // 4


@pytest.mark.server
@pytest.mark.timeout(300)
def test_a_run_continues_and_skips_what_it_has(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert program.exists()
    monkeypatch.setitem(SETS, "small", Set("small", 22, 1))
    # The test may run a debug build, which a measurement refuses.
    monkeypatch.setattr("integration.bench.recovery.find_engine", lambda: program)
    results = tmp_path / "results.jsonl"
    words = ["--only", "overhead", "--sets", "small", "--pace", "0", "--rounds", "1"]
    words += ["--results", str(results), "--folder", str(tmp_path)]
    assert recovery.main([*words, "--forms", "none"]) == 0
    first = results.read_text(encoding="utf-8")
    assert recovery.main([*words, "--forms", "none", "universal:ranges"]) == 0
    text = results.read_text(encoding="utf-8")
    assert text.startswith(first)
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["key"]["case"] for line in lines if "key" in line] == ["none", "universal:ranges"]
    assert [line["error"] for line in lines if "key" in line] == ["", ""]
    assert sum("run" in line for line in lines) == 2
