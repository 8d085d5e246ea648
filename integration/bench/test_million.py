"""Tests of the reader of system calls, with lines as strace writes them, and of a small run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from integration.bench import million
from integration.bench.million_calls import Calls, calls

LINES = """\
100 10.000000 statx(AT_FDCWD</home>, "/s", AT_STATX_SYNC_AS_STAT, STATX_ALL, {...}) = 0
101 10.500000 statx(5</s/d>, ""..., AT_STATX_SYNC_AS_STAT|AT_SYMLINK_NOFOLLOW, STATX_ALL, {...}) = 0
101 10.600000 getdents64(5</s/d>, 0x7f /* 3 entries */, 8192) = 72
101 10.700000 getdents64(5</s/d>, 0x7f /* 0 entries */, 8192) = 0
102 11.000000 pread64(7</s/d/a>, ""..., 4096, 8192) = 4096
103 11.100000 preadv2(7</s/d/a>, [{iov_base=""..., iov_len=100}], 1, 20480, 0 <unfinished ...>
102 11.200000 sendto(9<socket:[77]>, ""..., 40, MSG_NOSIGNAL, NULL, 0) = 40
103 11.300000 <... preadv2 resumed>) = 100
104 11.400000 writev(9<socket:[77]>, [{iov_base=""..., iov_len=9000}], 1) = 9000
104 11.500000 pread64(8</elsewhere/d/a>, ""..., 4096, 0) = 4096
105 11.600000 pread64(7</s/d/a>, ""..., 4096, 40960) = -1 EIO (Input/output error)
"""


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace"
    path.write_text(LINES, encoding="utf-8")
    return path


def test_reads_of_the_source_have_ranges(trace: Path) -> None:
    found = Calls.of_data(trace, Path("/s"))
    assert found.ranges == {"/s/d/a": [(8192, 12288), (20480, 20580)]}
    assert found.read_bytes == 4196
    assert (found.first_read, found.first_send) == (11.0, 11.4)
    assert found.overlap({"/s/d/a": [(0, 8192), (12280, 20500)]}) == 8 + 20
    assert found.overlap({"/s/other": [(0, 1 << 20)]}) == 0


def test_calls_that_list_are_counted(trace: Path) -> None:
    found = Calls.of_listing(trace, Path("/s"))
    assert (found.folders, found.attributes) == (1, 1)


def test_an_interrupted_call_has_the_words_of_its_first_line(trace: Path) -> None:
    (one,) = [call for call in calls(trace) if call.name == "preadv2"]
    assert (one.file, one.offset, one.result) == ("/s/d/a", 20480, 100)


def test_a_process_that_sends_nothing_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text("", encoding="utf-8")
    with pytest.raises(ValueError, match="sent no data"):
        Calls.of_data(path, tmp_path)


@pytest.mark.slow
def test_a_small_run_reads_nothing_twice(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    words = ["--count", "20000", "--folder", str(tmp_path), "--json", str(results)]
    assert million.main([*words, "--only", "resume"]) == 0
    (resumed,) = json.loads(results.read_text(encoding="utf-8"))
    assert resumed["read_again_bytes"] == 0
    assert 0 < resumed["durable_objects"] < resumed["objects"] == 20000
    assert resumed["read_bytes"] == resumed["missing_bytes"]
