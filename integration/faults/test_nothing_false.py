"""Files that only look equal, and files that a careless copy would destroy."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from integration.harness import tree
from integration.harness.program import Bench, Way

if TYPE_CHECKING:
    from integration.harness.program import Word

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

SAFE, SOME_FAILED, USAGE, REFUSED = range(4)


@pytest.mark.parametrize("size", [5000, 5 * tree.MIB])
@pytest.mark.parametrize("where", ["here", "push", "pull"])
def test_another_range_is_not_taken_for_this_one(bench: Bench, where: str, size: int) -> None:
    source, sink = bench.folder / "source", bench.folder / "sink"
    source.mkdir()
    sink.mkdir()
    tree.make_file(source / "whole", 2 * size + 7, seed=4)
    ends: list[Word] = [source / "whole", sink / "part"]
    if where == "push":
        server = bench.serve(sink)
        ends = [source / "whole", f"dray://{server.address}/part", *bench.peer(server)]
    elif where == "pull":
        server = bench.serve(source)
        ends = [f"dray://{server.address}/whole", sink / "part", *bench.peer(server)]
    for offset in (0, size, 7):
        ended = bench.cp("--range", f"{offset}:{size}", *ends).expect(SAFE)
        wanted = (source / "whole").read_bytes()[offset : offset + size]
        assert (sink / "part").read_bytes() == wanted, f"another range than {offset}"
        assert ended.report["files_adopted"] == 0
    assert tree.leftovers(sink) == []


def test_a_link_never_replaces_the_file_that_it_leads_to(bench: Bench) -> None:
    top = bench.folder / "top"
    (top / "deep").mkdir(parents=True)
    (top / "precious").write_bytes(b"precious")
    (top / "link").symlink_to("precious")
    (top / "deep" / "precious").symlink_to("../precious")
    always = ["--overwrite", "always"]
    for more in ([], always):
        # A link on the command line means its target, which is the file itself.
        for link, destination in (("link", "precious"), ("deep/precious", ".")):
            ended = bench.start("cp", "--json", *more, link, destination, cwd=top).wait()
            assert "are the same" in ended.expect(USAGE).words
            assert (top / "precious").read_bytes() == b"precious"
    # A link inside a copied folder is copied as a link.
    words = ["-r", "deep/", "."]
    ended = bench.start("cp", "--json", *words, cwd=top).wait().expect(SOME_FAILED)
    assert (
        "a file with the name of the new link already exists" in ended.words
        or "leads to" in ended.words
    )
    assert (top / "precious").read_bytes() == b"precious"
    (top / "itself").mkdir()
    (top / "itself" / "precious").symlink_to("precious")
    ended = bench.start("cp", "--json", *always, "-r", "itself/", ".", cwd=top).wait()
    assert ended.expect(SOME_FAILED).report["files_failed"][0]["kind"] == "already_exists"
    assert (top / "precious").read_bytes() == b"precious"
    # With `--overwrite always`, the link replaces another file.
    (top / "other").write_bytes(b"other")
    (top / "more").mkdir()
    (top / "more" / "other").symlink_to("precious")
    bench.start("cp", "--json", *always, "-r", "more/", ".", cwd=top).wait().expect(SAFE)
    assert os.readlink(top / "other") == "precious"


@pytest.mark.parametrize("where", ["here", "there"])
def test_a_nested_folder_has_one_writer_for_each_file(bench: Bench, where: str) -> None:
    inner, outer, sink = (bench.folder / name for name in ("inner", "outer", "sink"))
    for number, top in enumerate((inner / "t", outer / "t")):
        top.mkdir(parents=True)
        tree.make_file(top / "large", 40 * tree.MIB, seed=number)
        (top / f"small-{number}").write_bytes(b"small")
        (top / "below").mkdir()
        (top / "below" / f"link-{number}").symlink_to(f"of-{number}")
    (sink / "t").mkdir(parents=True)
    (outer / "beside").write_bytes(b"beside")
    to, words = str(sink), []
    if where == "there":
        server = bench.serve(sink)
        to, words = f"dray://{server.address}", bench.peer(server)
    rate = ("--rate", "2MiB", "--progress", "json")
    first = bench.start_cp("-r", f"{inner}/t/", f"{to}/t", *rate, *words)
    # Wait only until some data is durable. On a busy disk, nearly all data is written by then.
    first.await_durable()
    second = bench.cp("-r", f"{outer}/", f"{to}/", *words)
    assert first.is_running(), "the two did not overlap"
    second.expect(SOME_FAILED)
    assert "another transfer is writing to the destination" in second.words
    assert [failure["path"] for failure in second.report["files_failed"]] == ["t/large"]
    assert second.report["files"] == 2
    first.wait().expect(SAFE)
    assert (sink / "t" / "large").read_bytes() == (inner / "t" / "large").read_bytes()
    bench.cp("-r", f"{outer}/", f"{to}/", *words).expect(SAFE)
    assert (sink / "t" / "large").read_bytes() == (outer / "t" / "large").read_bytes()
    for number, top in enumerate((inner, outer)):
        assert (sink / "t" / f"small-{number}").read_bytes() == b"small"
        assert (sink / "t" / "below" / f"link-{number}").is_symlink()
        assert top.is_dir()
    assert tree.leftovers(sink) == []


def test_a_trace_replaces_only_a_trace(bench: Bench) -> None:
    source, trace = bench.folder / "source", bench.folder / "trace"
    source.write_bytes(b"not a trace")
    ended = bench.cp(source, bench.folder / "copy", "--trace", source)
    assert ended.code in {USAGE, REFUSED}, ended.words
    assert "is not a trace" in ended.words
    assert source.read_bytes() == b"not a trace"
    for _ in range(2):
        bench.cp(source, bench.folder / "copy", "--trace", trace).expect(SAFE)


@pytest.mark.parametrize("name", [".dray-log/", ".dray-x/y", "a/.dray-x/b/"])
@pytest.mark.parametrize("where", ["here", "there"])
def test_nothing_is_written_into_drays_own_folders(bench: Bench, name: str, where: str) -> None:
    sink = bench.folder / "sink"
    sink.mkdir()
    source = bench.folder / "source"
    source.write_bytes(b"data")
    words: list[Word] = [f"{sink}/{name}"]
    if where == "there":
        server = bench.serve(sink)
        words = [f"dray://{server.address}/{name}", *bench.peer(server)]
    ended = bench.cp(source, *words).expect(USAGE)
    assert "names that begin with .dray- are reserved" in ended.words
    assert list(sink.iterdir()) == []


def test_a_token_file_without_end_is_refused(bench: Bench) -> None:
    words: list[Word] = ["serve", "--root", bench.folder, "--token-file", "/dev/zero"]
    ended = bench.start(*words).wait(20)
    assert ended.code in {USAGE, REFUSED}, ended.words
    assert ended.memory_peak < 64 * tree.MIB


def test_a_token_file_that_is_not_there_is_named(bench: Bench) -> None:
    away = bench.folder / "away"
    serve: list[Word] = ["serve", "--root", bench.folder, "--token-file", away]
    ended = bench.start(*serve).wait(20).expect(REFUSED)
    assert f"read the token file {away}: not found" in ended.words
    assert "one line of random characters" in ended.words


@pytest.mark.parametrize("way", [Way(push=True), Way(push=False)], ids=str)
def test_three_sources_with_one_name(bench: Bench, way: Way) -> None:
    """Copy the first source. The others fail by name, and no file has bytes of two sources."""
    tops = [bench.folder / "roots" / f"d{number}" for number in range(3)]
    for number, top in enumerate(tops):
        top.mkdir(parents=True)
        (top / "small").write_bytes(b"%d" % number * 1000)
        tree.make_file(top / "large", 8 * tree.MIB, seed=number)
    sink = bench.folder / "sink"
    sink.mkdir()
    if way.push:
        server = bench.serve(sink)
        ends = [*(f"{top}/" for top in tops), f"dray://{server.address}/"]
    else:
        server = bench.serve(bench.folder / "roots")
        ends = [*(f"dray://{server.address}/{top.name}/" for top in tops), f"{sink}/"]
    ended = bench.cp("-r", *ends, *bench.peer(server))
    assert ended.code in {SAFE, SOME_FAILED}, ended.words
    for name in ("small", "large"):
        candidates = {(top / name).read_bytes() for top in tops}
        assert (sink / name).read_bytes() in candidates, "bytes of several sources"
    assert tree.leftovers(sink) == []


@pytest.mark.parametrize("where", ["here", "push", "pull"])
def test_a_moved_destination_is_detected(bench: Bench, where: str) -> None:
    source, sink = bench.folder / "served" / "source", bench.folder / "sink" / "d"
    source.mkdir(parents=True)
    sink.mkdir(parents=True)
    tree.make_file(source / "large", 16 * tree.MIB, seed=1)
    ends: list[Word] = [f"{source}/", f"{sink}/"]
    if where == "push":
        server = bench.serve(sink.parent)
        ends = [f"{source}/", f"dray://{server.address}/d/", *bench.peer(server)]
    elif where == "pull":
        server = bench.serve(source.parent)
        ends = [f"dray://{server.address}/source/", f"{sink}/", *bench.peer(server)]
    client = bench.start_slow_cp("-r", *ends, "--rate", "5MiB")
    elsewhere = sink.with_name("elsewhere")
    sink.rename(elsewhere)
    ended = client.wait()
    assert ended.code not in {SAFE, USAGE}, ended.words
    assert "elsewhere" in ended.words
    elsewhere.rename(sink)
    bench.cp("-r", *ends).expect(SAFE)
    assert tree.hash_file(sink / "large") == tree.hash_file(source / "large")
    assert tree.leftovers(sink.parent) == []


def test_files_without_a_size_are_refused(bench: Bench) -> None:
    ended = bench.cp("/proc/cpuinfo", bench.folder / "copy").expect(SOME_FAILED)
    assert "reports no size" in ended.words
    assert not (bench.folder / "copy").exists()


def test_a_damaged_log_hides_no_other(bench: Bench) -> None:
    source, sink = bench.folder / "source", bench.folder / "sink"
    source.mkdir()
    for name in ("a", "b"):
        tree.make_file(source / name, 32 * tree.MIB, seed=ord(name))
        client = bench.start_cp(source / name, f"{sink}/", "--rate", "8MiB", "--progress", "json")
        client.await_durable()
        client.kill()
    one, other = sorted((sink / ".dray-log").glob("*.log"))
    one.write_bytes(b"damaged " * 100)
    for what in ("show", "verify"):
        ended = bench.start("log", what, "--json", sink).wait().expect(REFUSED)
        assert [log["path"] for log in ended.report["logs"]] == [str(other)]
        assert [error["kind"] for error in ended.report["unreadable"]] == ["log_version"]
        assert one.name in ended.words
