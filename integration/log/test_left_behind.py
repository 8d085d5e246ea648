"""The decoder reads the logs of killed copies. The logged ranges are in the partial files."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import pytest

from integration.harness import tree
from integration.log import decoder, values

if TYPE_CHECKING:
    from integration.harness.program import Bench

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    ("durability", "form"),
    [
        ("file", None),
        ("object", None),
        ("none", None),
        ("file", "file:bit8"),
        ("object", "file:char"),
        ("none", "file:enc"),
        ("file", "transaction/2:enc"),
        ("object", "transaction:bit64"),
        ("file", "universal:int"),
        ("file", "universal:binary"),
        ("file", "universal:ranges:async"),
        ("object", "file:bit64:async"),
        ("none", "transaction:char:async"),
        ("file", "transaction/2:bit8:nosums"),
        ("object", "universal:ranges:nosums"),
        ("none", "file:int:nosums:async"),
    ],
)
def test_the_logged_ranges_are_in_the_partial_files(
    bench: Bench, durability: str, form: str | None
) -> None:
    source, sink = bench.folder / "source", bench.folder / "sink"
    source.mkdir()
    for number in range(3):
        tree.make_file(source / f"file{number}", 24 * tree.MIB + number, seed=number)
    words = ["-r", str(source), f"{sink}/", "--durability", durability]
    words += ["--log", form] if form else []
    client = bench.start_cp(*words, "--rate", "16MiB", "--progress", "json", "--transfer-id", "t:1")
    client.await_durable()
    client.kill()
    (log,) = (sink / ".dray-log").glob("*.log")
    (lease,) = (sink / ".dray-log").glob("*.lease")
    read = decoder.read_log_file(log)
    assert read["form"] == (form or "universal:ranges")
    holder = decoder.read_lease(lease.read_bytes())
    assert holder is not None
    assert holder["transfer"] == "t:1"
    assert str(client.pid) in holder["holder"]
    assert read["tenure"]["transfer"] == "t:1"
    assert read["damage"] is None
    safe = 0
    for file in read["files"]:
        original = source.parent / file["path"]
        assert file["size"] == original.stat().st_size
        assert file["is_weak"] is (durability == "none")
        seconds, nanoseconds = file["modified"]
        assert seconds * 10**9 + nanoseconds == original.stat().st_mtime_ns
        partial = (sink / file["path"]).with_name(file["partial"]["name"])
        assert partial.stat().st_ino == file["partial"]["inode"]
        with partial.open("rb") as left, original.open("rb") as right:
            for count, (offset, length, *sums) in enumerate(file["done"]):
                left.seek(offset)
                right.seek(offset)
                data = left.read(length)
                assert data == right.read(length), f"{file['path']} at {offset}"
                assert len(sums) == (0 if "nosums" in read["form"] else 2)
                assert not sums or zlib.adler32(data) == sums[1]
                if count == 0:
                    # Call crc32c only on no bytes, because it is slow in plain Python.
                    assert values.crc32c(data[:0]) == 0
                safe += length
    assert safe > 0, "nothing was logged"
    ended = bench.cp(*words).expect(0)
    tree.assert_same(tree.describe(source), sink / "source")
    size = sum(file.stat().st_size for file in source.iterdir())
    assert ended.report["bytes_resumed"] >= safe
    assert ended.report["bytes_sent"] == size - ended.report["bytes_resumed"]
    assert not (sink / ".dray-log").exists(), "the log and its part logs are removed"


def test_a_rerun_keeps_the_form_of_the_log_it_finds(bench: Bench) -> None:
    source, sink = bench.folder / "source", bench.folder / "sink"
    source.mkdir()
    for number in range(3):
        tree.make_file(source / f"file{number}", 24 * tree.MIB + number, seed=number)
    words = ["-r", str(source), f"{sink}/", "--rate", "16MiB", "--progress", "json"]
    client = bench.start_cp(*words, "--log", "file:bit8")
    client.await_durable()
    client.kill()
    again = bench.start_cp(*words, "--log", "universal:int")
    again.await_durable(4)
    told = again.kill().words
    assert "the form file:bit8" in told, told
    assert "not universal:int" in told, told
    (log,) = (sink / ".dray-log").glob("*.log")
    read = decoder.read_log_file(log)
    assert read["form"] == "file:bit8"
    assert read["tenure"]["epoch"] == 2
    ended = bench.cp("-r", str(source), f"{sink}/").expect(0)
    tree.assert_same(tree.describe(source), sink / "source")
    assert ended.report["bytes_resumed"] > 0


@pytest.mark.parametrize("form", ["file:bit8", "universal:int"])
def test_destinations_that_hold_no_such_log_refuse_it(bench: Bench, form: str) -> None:
    source = bench.folder / "source"
    source.write_bytes(b"data")
    first, second = bench.folder / "one", bench.folder / "two"
    first.mkdir()
    second.mkdir()
    disks = f"disks://{first},{second}//"
    for destination, why in [
        ("null:", "keeps no files"),
        (disks, "on several disks"),
        ("dray://host.example:1/x", "destination on this host"),
    ]:
        ended = bench.cp(str(source), destination, "--log", form)
        assert ended.code != 0, destination
        assert why in ended.words, ended.words
        assert form in ended.words, ended.words


@pytest.mark.parametrize(
    ("form", "own"), [("file:bit64", None), ("transaction/2:char", "file:enc")]
)
def test_another_transfer_inherits_from_part_logs(bench: Bench, form: str, own: str | None) -> None:
    source, sink = bench.folder / "source", bench.folder / "sink"
    source.mkdir()
    for number in range(3):
        tree.make_file(source / f"file{number}", 24 * tree.MIB + number, seed=number)
    words = ["-r", str(source), f"{sink}/"]
    client = bench.start_slow_cp(*words, "--rate", "16MiB", "--log", form, "--transfer-id", "t:1")
    client.kill()
    (log,) = (sink / ".dray-log").glob("*.log")
    files = decoder.read_log_file(log)["files"]
    safe = sum(length for file in files for _, length, *_ in file["done"])
    assert safe > 0
    words += ["--log", own] if own else []
    ended = bench.cp(*words, "--transfer-id", "t:2").expect(0)
    tree.assert_same(tree.describe(source), sink / "source")
    assert ended.report["bytes_resumed"] >= safe
    assert not (sink / ".dray-log").exists()
