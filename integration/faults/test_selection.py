"""Excluded entries cause no failure. Named entries are copied or refused. No entry is an error."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
from typing import TYPE_CHECKING

import pytest

from integration.harness import host
from integration.harness.program import find_program

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from integration.harness.program import Bench, Word

pytestmark = [pytest.mark.server, pytest.mark.timeout(120)]

SAFE, SOME_FAILED, REFUSED = 0, 1, 3
ODD = ("pipe", "socket", "device", "dangling", "closed")


@pytest.fixture
def source(bench: Bench) -> Path:
    """Return a tree with one valid file, and with one entry of each kind that cannot be copied."""
    top = bench.folder / "source"
    (top / "deep").mkdir(parents=True)
    (top / "good").write_bytes(b"good")
    for folder in (top, top / "deep"):
        os.mkfifo(folder / "pipe")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(os.fspath(folder / "socket"))
        if host.is_root():
            os.mknod(folder / "device", stat.S_IFCHR | 0o600, os.makedev(1, 3))
        (folder / "dangling").symlink_to("nowhere")
        (folder / "closed").mkdir(mode=0)
    return top


def excluded(names: Sequence[str] = ODD) -> list[str]:
    return [word for name in names for word in ("--exclude", name)]


@pytest.mark.parametrize("links", ["keep", "follow", "refuse"])
def test_excluded_entries_cause_no_failure(bench: Bench, source: Path, links: str) -> None:
    to = bench.folder / "to"
    words: list[Word] = ["-r", f"{source}/", to, "--links", links]
    bench.cp(*words, *excluded()).expect(SAFE)
    assert (to / "good").read_bytes() == b"good"
    assert sorted(os.listdir(to)) == ["deep", "good"]
    # An included name selects, too.
    bench.cp(*words, "--include", "go*", "--exclude", "closed").expect(SAFE)
    # Over the network the source selects as well.
    server = bench.serve(source.parent)
    far: list[Word] = [f"dray://{server.address}/source/", bench.folder / "far", "--links", links]
    bench.cp("-r", *far, *excluded(), *bench.peer(server)).expect(SAFE)


def test_entries_not_excluded_still_fail(bench: Bench, source: Path) -> None:
    some = [name for name in ODD if name not in ("pipe", "dangling")]
    ended = bench.cp("-r", f"{source}/", bench.folder / "to", *excluded(some)).expect(SOME_FAILED)
    failed = {each["path"] for each in ended.report["files_failed"]}
    assert failed == {"pipe", "deep/pipe"}


def test_a_link_that_is_named_is_followed(bench: Bench, source: Path) -> None:
    (source / "to-file").symlink_to("good")
    (source / "to-folder").symlink_to(source / "below")
    (source / "below").mkdir()
    (source / "below" / "x").write_bytes(b"x")
    to = bench.folder / "to"
    bench.cp(source / "to-file", f"{to}/").expect(SAFE)
    bench.cp("-r", source / "to-folder", to).expect(SAFE)
    assert sorted(os.listdir(to)) == ["to-file", "to-folder"]
    assert (to / "to-folder" / "x").read_bytes() == b"x"
    assert not (to / "to-file").is_symlink()
    assert (to / "to-file").read_bytes() == b"good"
    assert not (to / "to-folder").is_symlink()


@pytest.mark.parametrize("name", ["pipe", "device", "dangling"])
def test_a_link_to_what_cannot_be_copied_is_refused(bench: Bench, source: Path, name: str) -> None:
    (source / "link").symlink_to(name)
    ended = bench.cp(source / "link", bench.folder / "to")
    assert ended.code in (2, REFUSED), ended.words
    assert f"{source / 'link'}" in ended.words
    assert not os.path.lexists(bench.folder / "to")


@pytest.mark.parametrize("typed", ["/dev/stdin", "<(echo hello)"])
def test_a_pipe_is_no_source(bench: Bench, typed: str) -> None:
    to = bench.folder / "to"
    words = f"echo hello | {find_program()} cp {typed} {to}"
    ended = subprocess.run(["bash", "-c", words], check=False, capture_output=True, text=True)
    assert ended.returncode == REFUSED, ended
    assert "a pipe" in ended.stderr
    assert not os.path.lexists(to)


def test_nothing_to_copy_is_no_success(bench: Bench, source: Path) -> None:
    (source / "empty").mkdir()
    to = bench.folder / "to"
    cases: list[list[Word]] = [
        ["-r", source / "empty"],
        ["-r", f"{source}/", "--include", "*.root", *excluded()],
    ]
    for words in cases:
        ended = bench.cp(words[0], words[1], to, *words[2:]).expect(REFUSED)
        assert ended.report["error"]["kind"] == "nothing_matched"
        assert "--allow-empty" in ended.words
        bench.cp(words[0], words[1], to, *words[2:], "--allow-empty").expect(SAFE)
