"""A server and an endpoint write logs of the form that their configuration sets."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from integration.harness import tree
from integration.log import decoder

if TYPE_CHECKING:
    from pathlib import Path

    from integration.harness.program import Bench

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

SIZE = 24 * tree.MIB


def left_behind(sink: Path) -> dict[str, Any]:
    """Read the log that a killed program left in a folder."""
    (log,) = (sink / ".dray-log").glob("*.log")
    return decoder.read_log_file(log)


def told(bench: Bench, command: str, place: Path, *words: str) -> Any:  # noqa: ANN401 - any JSON
    """Run ``dray log COMMAND`` and read its output."""
    whole = [str(bench.program), "log", command, str(place), *words]
    ended = subprocess.run(whole, capture_output=True, text=True, check=True)
    return json.loads(ended.stdout)


def make_tree(folder: Path) -> Path:
    """Make three files that take a while at the rate of the tests."""
    folder.mkdir()
    for number in range(3):
        tree.make_file(folder / f"file{number}", SIZE + number, seed=number)
    return folder


def test_a_server_sets_the_form_and_a_resume_keeps_it(bench: Bench) -> None:
    source, root = make_tree(bench.folder / "source"), bench.folder / "root"
    root.mkdir()
    server = bench.serve(root, "--log", "transaction/2:bit64:async")
    words = ["-r", str(source), f"dray://{server.address}/", *bench.peer(server)]
    client = bench.start_slow_cp(*words, "--rate", "16MiB", "--transfer-id", "t:1")
    server.kill()
    client.kill()
    read = left_behind(root)
    assert read["form"] == "transaction/2:bit64:async"
    safe = sum(length for file in read["files"] for _, length, *_ in file["done"])
    assert safe > 0
    again = bench.serve(root, "--log", "file:char")
    words = ["-r", str(source), f"dray://{again.address}/", *bench.peer(again)]
    client = bench.start_slow_cp(*words, "--rate", "16MiB", "--transfer-id", "t:1")
    again.kill()
    client.kill()
    read = left_behind(root)
    assert read["form"] == "transaction/2:bit64:async", "a resume keeps the form"
    assert read["tenure"]["epoch"] == 2
    last = bench.serve(root)
    words = ["-r", str(source), f"dray://{last.address}/", *bench.peer(last)]
    ended = bench.cp(*words, "--transfer-id", "t:1").expect(0)
    assert ended.report["bytes_resumed"] >= safe
    tree.assert_same(tree.describe(source), root / "source")


@pytest.mark.parametrize(
    "form", ["universal:ranges", "file:bit8:nosums", "transaction/2:enc:nosums:async"]
)
def test_log_commands_explain_each_form(bench: Bench, form: str) -> None:
    source, sink = make_tree(bench.folder / "source"), bench.folder / "sink"
    words = ["-r", str(source), f"{sink}/", "--log", form]
    bench.start_slow_cp(*words, "--rate", "16MiB").kill()
    read = left_behind(sink)
    (log,) = (sink / ".dray-log").glob("*.log")
    assert told(bench, "export", log) == read, "the decoder and dray agree"
    (listed,) = told(bench, "list", sink, "--json")["logs"]
    assert (listed["form"], listed["files"]) == (form, len(read["files"]))
    (shown,) = told(bench, "show", sink, "--json")["logs"]
    has_sums = "nosums" not in form
    assert shown["sums"] is has_sums
    assert shown["async"] is ("async" in form)
    assert f"{shown['mechanism']}:{shown['method']}" == ":".join(form.split(":")[:2])
    (explained,) = told(bench, "explain", sink, "--json")["logs"]
    for file, entry in zip(read["files"], explained["files"], strict=True):
        assert entry["verdict"] == "trusted"
        trusted = [(one["offset"], one["length"]) for one in entry["trusted"]]
        assert trusted == [(offset, length) for offset, length, *_ in file["done"]]
        sizes = [one["length"] for one in entry["trusted"] + entry["sent_again"]]
        assert sum(sizes) == file["size"]
        assert ("no checksums" in entry["why"]) is (not has_sums)
    verified = told(bench, "verify", sink, "--json")
    assert verified["mismatches"] == 0
    assert (verified["files_without_sums"] == 0) is has_sums
    # Another file takes the place of a partial file.
    entry = read["files"][0]
    partial = (sink / entry["path"]).with_name(entry["partial"]["name"])
    partial.rename(partial.with_name("moved"))
    partial.write_bytes(bytes(entry["size"]))
    (explained,) = told(bench, "explain", sink, "--json")["logs"]
    assert explained["files"][0]["verdict"] == "not trusted"
    assert "is not the partial file" in explained["files"][0]["why"]
    assert explained["files"][0]["trusted"] == []


@pytest.mark.parametrize(("form", "is_noticed"), [("file:int", True), ("file:int:nosums", False)])
def test_only_a_log_with_sums_notices_changed_bytes(
    bench: Bench, form: str, *, is_noticed: bool
) -> None:
    source, sink = bench.folder / "source", bench.folder / "sink"
    source.mkdir()
    tree.make_file(source / "file", 3 * SIZE, seed=1)
    words = ["-r", str(source), f"{sink}/", "--log", form]
    bench.start_slow_cp(*words, "--rate", "16MiB").kill()
    (entry,) = left_behind(sink)["files"]
    partial = (sink / entry["path"]).with_name(entry["partial"]["name"])
    offset = entry["done"][0][0]
    with partial.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))
    ended = bench.cp(*words).expect(0)
    assert ended.report["log"] == form
    is_same = (sink / "source" / "file").read_bytes() == (source / "file").read_bytes()
    assert is_same is is_noticed, "this is the documented cost of :nosums"
