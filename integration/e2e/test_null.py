"""Null ends: bytes from nowhere and to nowhere, of which nothing is ever called safe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from integration.harness import tree

if TYPE_CHECKING:
    from integration.harness.program import Bench, Ended, Word

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

SIZE = 3 * tree.MIB + 5


def nothing_safe(ended: Ended, sent: int) -> None:
    """Expect that all was sent, and nothing of it is said to be anywhere."""
    report = ended.expect(0).report
    assert (report["state"], report["bytes_sent"]) == ("done", sent)
    assert (report["keeps_nothing"], report["files"], report["bytes"]) == (True, 0, 0)
    assert any("null end" in notice for notice in report["notices"])
    events = [json.loads(line) for line in ended.words.splitlines()]
    assert [event for event in events if event["event"] == "file"] == []
    assert {event["bytes_durable"] for event in events if event["event"] == "progress"} == {0}


def all_safe(ended: Ended, sent: int) -> None:
    """Expect a copy like any other."""
    report = ended.expect(0).report
    assert (report["bytes_sent"], report["bytes"], report["keeps_nothing"]) == (sent, sent, False)


def mixed(value: int) -> int:
    """Give what splitmix64 (Steele, Lea and Flood 2014) makes of a number."""
    mask = (1 << 64) - 1
    value = (value + 0x9E3779B97F4A7C15) & mask
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & mask
    value = (value ^ value >> 27) * 0x94D049BB133111EB & mask
    return value ^ value >> 31


def made_up(number: int, offset: int, length: int) -> bytes:
    """Make bytes of one file again, without dray: eight from each place's number."""
    seed = mixed(1 ^ mixed(number))
    words = range(offset // 8, (offset + length) // 8 + 1)
    whole = b"".join(mixed(seed ^ word).to_bytes(8, "little") for word in words)
    return whole[offset % 8 :][:length]


def test_from_nowhere_to_a_folder_come_the_same_bytes_in_every_run(bench: Bench) -> None:
    one = bench.folder / "one"
    all_safe(bench.cp(f"null:{SIZE}", one), SIZE)
    data = one.read_bytes()
    assert len(data) == SIZE
    for offset in (0, 4093, tree.MIB - 3, SIZE - 77):
        assert data[offset : offset + 77] == made_up(0, offset, 77)
    # It is there already, as what is copied twice is.
    again = bench.cp(f"null:{SIZE}", one).expect(0).report
    assert (again["files_adopted"], again["bytes_sent"]) == (1, 0)
    many = bench.folder / "many"
    all_safe(bench.cp("-r", "null:1000x3x2", many), 6000)
    files = sorted(path.relative_to(many).as_posix() for path in many.rglob("f*"))
    assert files == [f"d{folder}/f{file}" for folder in range(2) for file in range(3)]
    assert (many / "d1/f2").read_bytes() == made_up(5, 0, 1000)


def test_what_goes_nowhere_leaves_nothing(bench: Bench) -> None:
    place = bench.folder / "place"
    place.mkdir()
    tree.make_file(place / "data", SIZE, seed=3)
    before = tree.describe(place)
    words: list[Word] = ["--progress=json", "--durability=object"]
    process = bench.start("cp", "--json", place / "data", "null:", *words, cwd=place)
    nothing_safe(process.wait(), SIZE)
    process = bench.start("cp", "--json", "-r", "null:4096x100", "null:", *words, cwd=place)
    nothing_safe(process.wait(), 409600)
    tree.assert_same(before, place)


def test_a_server_without_storage_is_known_as_such(bench: Bench, tmp_path: Path) -> None:
    server = bench.serve(Path(f"null:{SIZE}x2"))
    far, peer = f"dray://{server.address}/", bench.peer(server)
    tree.make_file(tmp_path / "data", SIZE, seed=3)
    words: list[Word] = [*peer, "--progress=json"]
    nothing_safe(bench.cp(tmp_path / "data", far + "null:", *words), SIZE)
    nothing_safe(bench.cp("-r", f"null:{SIZE}x1", far + "null:", *words), SIZE)
    nothing_safe(bench.cp("-r", far, "null:", *words), 2 * SIZE)
    # What it made up is as good as anything when it comes to rest.
    all_safe(bench.cp(far + "f1", tmp_path / "one", *peer), SIZE)
    assert (tmp_path / "one").read_bytes()[-9:] == made_up(1, SIZE - 9, 9)
    server.stop().expect(0)
    told = [line for line in server.transfers() if line["event"] == "transfer"]
    assert [(line["state"], line["bytes"], line["files"]) for line in told] == [("done", 0, 0)] * 4
    # A folder that is real at a server: it hears that what it sends is kept nowhere.
    root = bench.folder / "root"
    root.mkdir()
    (tmp_path / "data").rename(root / "data")
    real = bench.serve(root)
    nothing_safe(bench.cp(f"dray://{real.address}/data", "null:", *words), SIZE)
    real.stop().expect(0)
    told = [line for line in real.transfers() if line["event"] == "transfer"]
    assert [(line["bytes"], line["keeps_nothing"]) for line in told] == [(0, True)]


def test_who_did_not_ask_for_a_null_end_is_refused_by_one(bench: Bench, tmp_path: Path) -> None:
    server = bench.serve(Path("null:4096"))
    peer = bench.peer(server)
    run = tmp_path / "run"
    run.mkdir()
    tree.make_file(run / "data", SIZE, seed=3)
    copies: list[tuple[list[Word], str]] = [
        ([run / "data"], "data"),
        (["-r", run], "in/"),
        (["null:5"], ""),
    ]
    for sources, path in copies:
        ended = bench.cp(*sources, f"dray://{server.address}/{path}", *peer)
        report = ended.expect(3).report
        error = report["error"]
        assert (report["state"], report["bytes_sent"], report["files"]) == ("refused", 0, 0)
        assert (error["kind"], error["end"]) == ("incompatible_peer", "sink")
        assert "keeps nothing" in error["cause"]
        assert f"dray://{server.address}/null:" in error["remedy"]
    server.stop().expect(0)
    assert [line for line in server.transfers() if line["event"] == "transfer"] == []


def test_a_server_that_keeps_what_it_gets_is_no_null_end(bench: Bench, tmp_path: Path) -> None:
    root = bench.folder / "root"
    root.mkdir()
    server = bench.serve(root)
    far, peer = f"dray://{server.address}/", bench.peer(server)
    ended = bench.cp("null:4096", far + "null:", *peer)
    error = ended.expect(3).report["error"]
    assert (error["kind"], error["end"]) == ("invalid_request", "sink")
    assert "keeps what it is sent" in error["cause"]
    assert list(root.iterdir()) == []
    # The remedy's way to a file of that name.
    assert f"{far}./null:" in error["remedy"]
    all_safe(bench.cp("null:4096", far + "./null:", *peer), 4096)
    assert (root / "null:").read_bytes() == made_up(0, 0, 4096)


def test_bytes_to_nowhere_are_compared_with_their_sums(bench: Bench) -> None:
    words: list[Word] = ["null:4096", "null:", "--checksum", "crc32c:00000000"]
    report = bench.cp(*words).expect(1).report
    assert report["files_failed"][0]["kind"] == "checksum_mismatch"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["null:", "x"], "write null:SIZE"),
        (["null:5", "null:5"], "write null: for it"),
        (["null:5", "dray://127.0.0.1:1/null:5"], "write null: for it"),
        (["x", "dray://127.0.0.1:1/null:", "--dry-run"], "leave --dry-run out"),
        (["null:5x2", "x"], "--recursive"),
        (["-r", "null:5x2", "y", "x"], "name it alone"),
        (["null:five", "x"], "./null:"),
        (["null:5", "null:", "--verify"], "leave --verify out"),
        (["null:5", "null:", "--dry-run"], "leave --dry-run out"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_null_end_that_makes_no_sense_is_refused(
    bench: Bench, words: list[str], said: str
) -> None:
    ended = bench.start("cp", *words, cwd=bench.folder).wait()
    assert ended.code in {2, 3}
    assert said in ended.words
    assert not (bench.folder / "x").exists()


def test_a_server_without_storage_has_no_targets_to_limit(bench: Bench) -> None:
    words: list[Word] = ["serve", "--root", "null:5", "--token-file", bench.token]
    words += ["--identity", bench.folder / "identity", "--listen", "127.0.0.1:0"]
    ended = bench.start(*words, "--limit-target=null=1MiB").wait(20)
    assert (ended.code, "no storage targets" in ended.words) == (2, True), ended.words


def test_a_file_of_that_name_is_a_file(bench: Bench) -> None:
    (bench.folder / "null:7").write_bytes(b"not made up")
    bench.start("cp", "./null:7", "copy", cwd=bench.folder).wait().expect(0)
    assert (bench.folder / "copy").read_bytes() == b"not made up"
