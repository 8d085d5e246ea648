"""The report of XRootD's third-party copies: its computations, and the servers' options."""

from __future__ import annotations

import dataclasses
import os
import struct
import subprocess
import zlib
from contextlib import ExitStack
from typing import TYPE_CHECKING, cast

import pytest

from integration.bench import datasets, goals, tpc, tpc_report, tpc_tools
from integration.bench.results import Results, Row, Sample, Set
from integration.bench.tools import LIMIT, Command, Scene
from integration.bench.tpc_tools import ASKED, BOTH, DRAY, STOCK
from integration.xrootd.servers import PROGRAM

if TYPE_CHECKING:
    from pathlib import Path

    from integration.bench import account
    from integration.harness.program import Word

MACHINE = {"processor": "x", "cpus": 2, "memory_mib": 8192, "system": "Linux", "kernel": "6"}
NEAR = ("a", "tmpfs", "cubic")
FAR = ("a", "50 ms 1 Gbit", "cubic")
MANY = ("h", "tmpfs", "cubic")
#: By tool: kind, seconds of the copy, seconds for which the client waits, CPU seconds.
TOOLS = {
    "iperf3-4": (LIMIT, 1.0, 0.0, 1.0),
    "by-hand": (LIMIT, 1.5, 0.0, 1.5),
    "stock": (STOCK, 9.0, 10.0, 16.0),
    "stock-plain": (STOCK, 3.0, 5.0, 4.0),
    "stock-http-1": (STOCK, 4.0, 0.0, 3.0),
    "dray": (DRAY, 2.0, 2.5, 2.4),
    "dray-both": (BOTH, 2.5, 5.0, 3.3),
    "stock-plain-asked": (ASKED, 4.5, 6.0, 6.0),
    "dray-asked": (ASKED, 2.25, 2.5, 2.4),
}


def some_results() -> Results:
    rows = [
        Row(name, f"by {name}", kind, is_ours=name.startswith("dray"), version="")
        for name, (kind, *_) in TOOLS.items()
    ]
    results = Results({**MACHINE, "date": "2026-11-22"}, rows, command="make it", base="stock")
    results.sets += [Set("a", "one file: 1 file", 10**9, 1), Set("h", "100 files", 10**8, 100)]
    # In the second round, all tools take twice as long.
    for case in (NEAR, FAR, MANY):
        for turn, slow in enumerate((1, 2, 1)):
            for name, (_, seconds, waited, cpu) in TOOLS.items():
                far = 2 if case is FAR and name == "iperf3-4" else 1
                one = (*case, turn, name, seconds * slow * far, cpu * slow, 1 << 20, 0.1)
                results.samples.append(Sample(*one, waited=waited * slow))
    return results


def test_rates_are_of_the_copy_and_waits_of_the_client() -> None:
    text = tpc_report.table(some_results(), NEAR)
    assert text[0] == "one file: 1 file; tmpfs, cubic, 3 rounds:"
    assert "| **by dray** | 500 | 250 to 500 | 2.5 | 2.40 | 1 | 4.50 | 1.50 | 0.1 |  |" in text
    # For a copy by HTTP, the client waits as long as the copy takes.
    assert "| by stock-http-1 | 250 | 125 to 250 | 4.0 | 3.00 | 1 | 2.25 | 0.75 | 0.1 |  |" in text
    assert all(row.count("|") == len(tpc_report.HEADS) + 1 for row in text[2:])
    assert text[4].startswith("| *the machine* |")
    assert text[7] == f"| *{STOCK}* |{' |' * (len(tpc_report.HEADS) - 1)}"


def test_the_best_tuned_is_the_fastest_that_is_not_as_shipped() -> None:
    results = some_results()
    assert tpc_report.best_tuned(results, NEAR) == "stock-plain"
    results.samples = [
        dataclasses.replace(each, error="lost") if each.tool == "stock-plain" else each
        for each in results.samples
    ]
    assert tpc_report.best_tuned(results, NEAR) == "stock-http-1"
    results.samples = [each for each in results.samples if each.tool == "stock"]
    assert tpc_report.best_tuned(results, NEAR) == ""


def test_goals_report_the_result_and_the_limit_of_the_same_round() -> None:
    text = goals.table(tpc_report.reached(some_results()))
    near = "a, tmpfs, cubic"
    words = "4.50 (by the client's wait 4.00)"
    assert f"| {tpc_report.DEFAULT.title} | by dray | {near} | {words} | 6.00 | yes |" in text
    words = "3.60 (by the client's wait 2.00)"
    assert f"| {tpc_report.DEFAULT.title} | by dray-both | {near} | {words} | 6.00 | no |" in text
    assert f"| {tpc_report.TUNED.title} | by dray | {near} | 1.50 | 2.00 | yes |" in text
    assert f"| {tpc_report.TUNED_BOTH.title} | by dray-both | {near} | 1.20 | 2.00 | no |" in text
    # The CPU seconds are compared with the least of XRootD's own copies, not with the fastest copy.
    assert f"| {tpc_report.CPU.title} | by dray | {near} | 0.80 | 0.50 | yes |" in text
    assert f"| {tpc_report.CPU.title} | by dray-both | {near} | 1.10 | 0.50 | no |" in text
    words = "4.50 (by the client's wait 4.00)"
    far = "a, 50 ms 1 Gbit, cubic"
    assert f"| {tpc_report.FAR.title} | by dray | {far} | {words} | 4.50 | yes |" in text
    assert f"| {tpc_report.WAIT.title} | by dray | h, tmpfs, cubic | 0.25 |  | yes |" in text


def test_copies_with_a_checksum_query_are_compared_among_themselves() -> None:
    results = some_results()
    text = goals.table(tpc_report.reached(results))
    near = "a, tmpfs, cubic"
    assert f"| {tpc_report.ASKED_BEST.title} | by dray-asked | {near} | 2.00 | 3.00 | yes |" in text
    assert f"| {tpc_report.ASKED_CPU.title} | by dray-asked | {near} | 0.40 |  | yes |" in text
    assert not any("by stock" in row for row in text)
    # Copies without a checksum query are not compared with copies with a query.
    assert tpc_report.best_tuned(results, NEAR) == "stock-plain"
    assert tpc_report.best_tuned(results, NEAR, ASKED) == "stock-plain-asked"
    assert sum("by dray-asked" in row and near in row for row in text) == 2
    table = "\n".join(tpc_report.table(results, NEAR))
    assert "| by stock-plain-asked | 222 | 111 to 222 | 6.0 | 6.00 | 1 |  | 1.00 |" in table
    assert "| **by dray-asked** | 444 | 222 to 444 | 2.5 | 2.40 | 1 |  | 2.00 |" in table


def test_a_failed_row_meets_no_goal_and_gives_the_reason() -> None:
    results = some_results()
    results.samples = [each for each in results.samples if each.tool != "dray"]
    results.samples.append(
        Sample(*NEAR, 0, "dray", 0.0, 0.0, 0, 0.0, error="ended with 54: no\0 | way")
    )
    text = tpc_report.tables(results)
    assert "ended with 54: no \\| way" in text
    assert "\0" not in text
    assert "| by dray |" not in text
    assert goals.table(tpc_report.reached(Results(MACHINE, []))) == []


def test_the_page_has_each_case_with_its_picture() -> None:
    results = some_results()
    assert sorted(tpc_report.pictures(results)) == ["a-50ms1Gbit.svg", "a-tmpfs.svg", "h-tmpfs.svg"]
    text = tpc_report.page(results)
    assert "(measured-tpc/a-50ms1Gbit.svg)" in text
    assert text.index("## Goals") < text.index("## one file: 1 file (1.00 GB): tmpfs")
    assert Results.read(results.text()) == results


def test_the_time_of_a_copy_is_that_of_its_programs() -> None:
    said = "[100%]\nran 10.25 11.5\nran 10.5 13.75\n"
    assert tpc_tools.copying_seconds(said) == 3.5
    with pytest.raises(ValueError, match="empty"):
        tpc_tools.copying_seconds("no program has run\n")


def test_the_time_with_the_query_excludes_the_wait_of_the_client() -> None:
    said = "ran 10.25 11.5\nCkSum of /f\nran 13.75 14.25\n"
    assert tpc_tools.asking_seconds(said) == 1.75
    for lacks in ("ran 10.25 11.5\n", "nothing\n", f"{said}ran 15.0 16.0\n"):
        with pytest.raises(ValueError, match="unpack"):
            tpc_tools.asking_seconds(lacks)


@pytest.mark.parametrize(
    ("copy", "answer", "code"),
    [
        ("true", "adler32 {}", 0),
        ("true", "adler32 00000001", 1),
        ("true", "crc32c {}", 1),
        ("true", "", 1),
        ("exit 7", "adler32 {}", 7),
    ],
)
def test_a_copy_counts_when_the_answer_is_the_sources_sum(
    folder: Path, monkeypatch: pytest.MonkeyPatch, copy: str, answer: str, code: int
) -> None:
    data, sums = folder / "set", f"{zlib.adler32(b'it has'):08x}"
    for each in (data, folder / "to"):
        each.mkdir()
        each.chmod(0o777)
    (data / "it's a file").write_bytes(b"it has")
    program = folder / "xrdfs"
    program.write_text(
        f'#!/bin/sh\necho "$@" >&2\necho "{answer.format(sums)}"\n', encoding="utf-8"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    known = datasets.Data("set", "set", data, 6, 1)
    with ExitStack() as stack:
        scene = Scene(known, folder, folder, cast("account.Processes", None), folder, stack)
        words: list[Word] = [*scene.give_to_nobody(), "sh", "-c", copy, "root://a:1//set/f"]
        command = tpc_tools._then_asked(lambda _: Command([*words, "root://b:2//it's a file"]))(
            scene
        )
        ran = subprocess.run(command.words, check=False, capture_output=True, text=True, timeout=30)
    assert ran.returncode == code, ran.stderr
    asked = "root://b:2 query checksum /it's a file"
    assert (asked in ran.stderr) == (copy == "true")
    if code == 0:
        assert command.seconds
        assert command.seconds(ran.stdout) > 0


def test_a_timed_program_keeps_its_exit_code(tmp_path: Path) -> None:
    script, notes = tmp_path / "timed", tmp_path / "notes"
    script.write_text(tpc_tools.TIMED, encoding="utf-8")
    for code in (0, 7):
        words: list[Word] = ["sh", script, notes, "sh", "-c", 'exit "$0"', str(code)]
        assert subprocess.run(words, check=False, timeout=30).returncode == code
    ran = notes.read_text(encoding="utf-8")
    assert len(tpc_tools.RAN.findall(ran)) == 2
    assert tpc_tools.copying_seconds(ran) > 0


def test_a_copy_by_http_without_a_success_line_has_failed(tmp_path: Path) -> None:
    script, curl = tmp_path / "copy", tmp_path / "curl"
    script.write_text(tpc_tools.COPY, encoding="utf-8")
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for said, code in (("success: Created", 0), ("failure: gone", 1), ("", 1)):
        curl.write_text(f"#!/bin/sh\necho '{said}'\n", encoding="utf-8")
        curl.chmod(0o755)
        words: list[Word] = ["sh", script, "4", "http://from/a", "http://to/a"]
        ran = subprocess.run(words, check=False, capture_output=True, env=env, timeout=30)
        assert ran.returncode == code, said
        assert ran.stderr.decode().strip() == ("" if code == 0 else said)


def test_a_checksum_is_stored_once_with_the_files_own_time(tmp_path: Path) -> None:
    if not tpc.keeps_attributes(tmp_path):
        pytest.skip("no attributes of files here")
    file = tmp_path / "file"
    file.write_bytes(b"abc" * 1000)
    tpc_tools.keep_checksum(file)
    kept = os.getxattr(file, "user.XrdCks.adler32")
    name, seconds = struct.unpack(">16sq", kept[:24])
    assert (name.rstrip(b"\0"), seconds) == (b"adler32", int(file.stat().st_mtime))
    assert kept[32:36] == struct.pack(">I", zlib.adler32(b"abc" * 1000))
    os.setxattr(file, "user.XrdCks.adler32", b"mine")
    tpc_tools.keep_checksum(file)
    assert os.getxattr(file, "user.XrdCks.adler32") == b"mine"


@pytest.mark.parametrize("files", [1, 12])
def test_each_file_is_asked_for_by_itself(folder: Path, files: int) -> None:
    data = folder / "set"
    data.mkdir()
    for number in range(files):
        (data / f"f{number:02}").write_bytes(b"x")
    known = datasets.Data("set", "set", data, files, files)
    with ExitStack() as stack:
        nothing = cast("account.Processes", None)
        scene = Scene(known, folder, folder, nothing, folder, stack)
        words = tpc_tools._asked(scene, ["echo"], "root://a:1/", "root://b:2/")
        output = subprocess.run(
            words, check=True, capture_output=True, text=True, timeout=30
        ).stdout
    wanted = {
        f"root://a:1//set/f{number:02} root://b:2//sink/f{number:02}" for number in range(files)
    }
    assert set(output.splitlines()) == wanted


def test_cases_have_a_round_trip_a_line_and_a_set() -> None:
    assert tpc.Case.read("50@4000:w") == (50.0, 4000.0, "w")
    assert tpc.Case.read("50@4000:w").label == "50 ms 4 Gbit"
    assert tpc.Case.read("0:a") == (0.0, 1000.0, "a")
    assert tpc.options().parse_args([]).cases == tpc.CASES.split(",")
    for word in ("50", "50:z", "x:a", "50@0:a", "-1:a"):
        with pytest.raises(SystemExit):
            tpc.options().parse_args([f"--cases={word}"])


def test_a_missing_build_is_reported_only_for_rows_that_need_it(tmp_path: Path) -> None:
    program = tmp_path / "dray"
    program.write_bytes(b"")
    (tmp_path / PROGRAM).write_bytes(b"")
    rows = [Row(name, name, DRAY, is_ours=True, version="") for name in ("dray", "dray-http")]
    rows.append(Row("stock", "stock", STOCK, is_ours=False, version=""))
    with tpc.programs(program, rows) as (copied, found):
        assert copied.name == "dray"
        assert (copied.parent / PROGRAM).stat().st_mode & 0o005 == 0o005
    why = "no libdray-xrdcl.so beside dray: make build-xrootd"
    root, http, stock = found
    assert root.missing == why
    assert "libDrayXrdHttpTPC-5.so" in http.missing
    assert stock.missing == ""
    assert not copied.exists()


def test_every_way_has_a_name_and_those_that_are_built_are_known() -> None:
    names = [tool.name for tool in tpc_tools.TOOLS]
    assert len(set(names)) == len(names)
    titles = [tool.title for tool in tpc_tools.TOOLS]
    assert len(set(titles)) == len(titles), "pictures distinguish rows by their titles"
    assert set().union(*tpc_tools.BUILT.values()) <= set(names)
    assert {tool.kind for tool in tpc_tools.TOOLS} == set(tpc_tools.KINDS)
