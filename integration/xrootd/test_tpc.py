"""``xrdcp --tpc only`` between two servers. dray makes the copies of the destination."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from integration.harness import tree
from integration.harness.tree import hash_file
from integration.xrootd.files import (
    await_safe,
    configured,
    copies,
    make,
    pair,
    set_checksum,
)
from integration.xrootd.moments import await_end
from integration.xrootd.servers import PROGRAM

if TYPE_CHECKING:
    from integration.xrootd.servers import Scene, Xrootd

pytestmark = pytest.mark.server

MIB = 1 << 20


def test_files_of_every_size_arrive_with_their_checksums(scene: Scene) -> None:
    """A copied file is complete, its checksums are stored with it, and no leftover remains."""
    source, sink = pair(scene)
    for size in (0, 1, MIB, 64 * MIB + 17):
        made = make(source, f"in{size}", size, seed=size)
        scene.xrdcp("--tpc", "only", source.at(f"in{size}"), sink.at(f"out{size}")).expect(0)
        copied = sink.path(f"out{size}")
        assert hash_file(copied) == hash_file(made)
        assert copied.stat().st_mtime > made.stat().st_mtime - 1
        for algorithm in ("adler32", "crc32c"):
            kept = os.getxattr(copied, f"user.XrdCks.{algorithm}")
            assert sink.checksum(f"out{size}", algorithm) == source.checksum(f"in{size}", algorithm)
            assert os.getxattr(copied, f"user.XrdCks.{algorithm}") == kept
    assert tree.leftovers(sink.data) == []
    assert [sent for sent, _ in copies(sink)] == [0, 1, MIB, 64 * MIB + 17]


@pytest.mark.parametrize("begun", ["a stored checksum", "no stored checksum"])
def test_a_source_that_only_gets_a_new_time_is_copied(scene: Scene, begun: str) -> None:
    """The copy compares the checksum that the server computes after the change of the time."""
    source, sink = pair(scene, f"rate = {16 * MIB}")
    made = make(source, "a", 48 * MIB)
    if begun == "a stored checksum":
        source.checksum("a", "adler32")
    client = scene.begin("xrdcp", "--nopbar", "--tpc", "only", source.at("a"), sink.at("a"))
    await_safe(sink, 8 * MIB)
    later = made.stat().st_mtime + 10
    os.utime(made, (later, later))
    client.wait(60).expect(0)
    assert hash_file(sink.path("a")) == hash_file(made)
    assert copies(sink) == [(48 * MIB, 0)]


@pytest.mark.parametrize("compare", ["offered", "never"])
def test_a_source_that_is_overwritten_during_the_copy_is_reported(
    scene: Scene, compare: str
) -> None:
    """The size stays the same, and the copy has already read the overwritten bytes."""
    source, sink = pair(scene, f"rate = {16 * MIB}", f'compare = "{compare}"')
    made = make(source, "a", 48 * MIB)
    client = scene.begin("xrdcp", "--nopbar", "--tpc", "only", source.at("a"), sink.at("a"))
    await_safe(sink, 16 * MIB)
    later = made.stat().st_mtime + 10
    with made.open("r+b") as written:
        written.write(b"other bytes")
    os.utime(made, (later, later))
    ended = client.wait(60)
    assert ended.code != 0
    assert "the source has changed" in ended.out + ended.words
    assert not sink.path("a").exists()


def test_a_source_without_checksums_that_gets_a_new_time_is_reported(scene: Scene) -> None:
    """No checksum shows that the content is the same."""
    source, sink = pair(scene, f"rate = {16 * MIB}")
    source.sums = ""
    source.kill()
    source.start()
    made = make(source, "a", 48 * MIB)
    client = scene.begin("xrdcp", "--nopbar", "--tpc", "only", source.at("a"), sink.at("a"))
    await_safe(sink, 8 * MIB)
    later = made.stat().st_mtime + 10
    os.utime(made, (later, later))
    ended = client.wait(60)
    assert ended.code != 0
    assert "the source has changed" in ended.out + ended.words
    assert not sink.path("a").exists()


def test_a_failed_copy_leaves_nothing_and_reports_the_cause(scene: Scene) -> None:
    """The client gets the cause, and the name has no file."""
    source, sink = pair(scene)
    broken = make(source, "a", 3 * MIB)
    set_checksum(broken, 0xDEADBEEF)
    ended = scene.xrdcp("--tpc", "only", source.at("a"), sink.at("a"))
    assert ended.code != 0
    assert "deadbeef" in ended.out + ended.words
    assert not sink.path("a").exists()
    assert tree.leftovers(sink.data) == []
    # Copy to the same name without --force: no file is in the way.
    os.removexattr(broken, "user.XrdCks.adler32")
    scene.xrdcp("--tpc", "only", source.at("a"), sink.at("a")).expect(0)
    assert hash_file(sink.path("a")) == hash_file(broken)


def test_force_replaces_and_without_it_nothing_is_replaced(scene: Scene) -> None:
    """Only ``--force`` replaces a file, even if both copies are made within one second."""
    source, sink = pair(scene)
    make(source, "old", 5 * MIB, seed=1)
    new = make(source, "new", 5 * MIB, seed=2)
    scene.xrdcp("--tpc", "only", source.at("old"), sink.at("a")).expect(0)
    old = hash_file(sink.path("a"))
    assert scene.xrdcp("--tpc", "only", source.at("new"), sink.at("a")).code != 0
    assert hash_file(sink.path("a")) == old
    scene.xrdcp("--tpc", "only", "--force", source.at("new"), sink.at("a")).expect(0)
    assert hash_file(sink.path("a")) == hash_file(new)
    assert sink.checksum("a", "adler32") == source.checksum("new", "adler32")


def assert_nothing_false(sink: Xrootd, name: str) -> None:
    """Fail unless the name of an incomplete copy has an empty file or no file."""
    path = sink.path(name)
    assert not path.exists() or path.stat().st_size == 0


@pytest.mark.parametrize("force", [True, False], ids=["force", "plain"])
@pytest.mark.parametrize("victim", ["program", "client", "sink", "source"])
def test_after_a_kill_the_next_copy_resumes(scene: Scene, victim: str, force: bool) -> None:
    """After each kind of kill, the name has no wrong file, and the next copy resumes."""
    source, sink = pair(scene, f"rate = {48 * MIB}")
    made = make(source, "a", 96 * MIB)
    chance = random.Random(int(os.environ.get("DRAY_SEED", "1")))
    client = scene.begin("xrdcp", "--nopbar", "--tpc", "only", source.at("a"), sink.at("a"))
    await_safe(sink, chance.randrange(8, 56) * MIB)
    (job,) = sink.jobs()
    if victim == "program":
        os.kill(job, signal.SIGKILL)
    elif victim == "client":
        client.send(signal.SIGKILL)
    else:
        (sink if victim == "sink" else source).kill()
    if victim in ("sink", "source"):
        (sink if victim == "sink" else source).start()
    assert client.wait(90).code != 0
    await_end(job)
    assert_nothing_false(sink, "a")
    options = ["--force"] if force else []
    scene.xrdcp("--tpc", "only", *options, source.at("a"), sink.at("a")).expect(0)
    sent, resumed = copies(sink)[-1]
    assert resumed > 0
    assert sent == 96 * MIB - resumed
    assert hash_file(sink.path("a")) == hash_file(made)
    assert sink.checksum("a", "adler32") == source.checksum("a", "adler32")
    assert tree.leftovers(sink.data) == []


def test_a_source_that_comes_back_is_not_asked_with_the_old_key(scene: Scene) -> None:
    """A copy must not open the source again with its key: a restarted source does not know it."""
    source, sink = pair(scene, f"rate = {24 * MIB}")
    made = make(source, "a", 64 * MIB)
    client = scene.begin("xrdcp", "--nopbar", "--tpc", "only", source.at("a"), sink.at("a"))
    await_safe(sink, 8 * MIB)
    source.kill()
    source.start()
    ended = client.wait(60)
    output = ended.out + ended.words
    assert ended.code != 0
    assert "the connection to the server was lost" in output
    assert "tpc auth" not in output + source.said()
    scene.xrdcp("--tpc", "only", source.at("a"), sink.at("a")).expect(0)
    assert hash_file(sink.path("a")) == hash_file(made)


def test_another_source_is_never_mixed_in(scene: Scene) -> None:
    """A copy does not resume the copy of another source, even if their size and time are equal."""
    source, sink = pair(scene, f"rate = {48 * MIB}")
    begun = make(source, "a", 64 * MIB, seed=1)
    other = make(source, "b", 64 * MIB, seed=2)
    os.utime(other, ns=(begun.stat().st_atime_ns, begun.stat().st_mtime_ns))
    client = scene.begin("xrdcp", "--nopbar", "--tpc", "only", source.at("a"), sink.at("c"))
    await_safe(sink, 16 * MIB)
    (job,) = sink.jobs()
    os.kill(job, signal.SIGKILL)
    assert client.wait(60).code != 0
    scene.xrdcp("--tpc", "only", source.at("b"), sink.at("c")).expect(0)
    assert copies(sink)[-1] == (64 * MIB, 0)
    assert hash_file(sink.path("c")) == hash_file(other)
    # The durable data of the first copy belongs to another transfer, and stays until
    # ``dray log sweep`` removes it.
    left = {Path(path).suffix or Path(path).name for path in tree.leftovers(sink.data)}
    assert left == {".dray-log", ".part"}


def test_settings_are_followed(scene: Scene) -> None:
    """The program follows its settings. An unknown setting makes a copy fail."""
    source, sink = pair(scene, "pages = true", "keep_time = true", "readers = 1")
    made = make(source, "a", 9 * MIB + 3)
    os.utime(made, (1_000_000_000, 1_000_000_000))
    scene.xrdcp("--tpc", "only", source.at("a"), sink.at("a")).expect(0)
    assert hash_file(sink.path("a")) == hash_file(made)
    assert int(sink.path("a").stat().st_mtime) == 1_000_000_000
    assert sink.checksum("a", "adler32") == source.checksum("a", "adler32")
    configured(scene, "readres = 1")
    ended = scene.xrdcp("--tpc", "only", source.at("a"), sink.at("b"))
    assert ended.code != 0
    assert "readres" in ended.out + ended.words
    assert not sink.path("b").exists()


def test_exit_handlers_do_not_run(scene: Scene) -> None:
    """The program runs no exit handlers: XrdCl's would destroy objects that are still in use."""
    said = "exit handlers ran"
    library, script = scene.folder / "at_exit.so", scene.folder / "tpc"
    code = Path(__file__).with_name("at_exit.c")
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Werror"]
    subprocess.run(["cc", *flags, "-o", library, code], check=True, timeout=60)
    preloaded = f"LD_PRELOAD={library}"
    script.write_text(f'#!/bin/sh\nexec env {preloaded} "$DRAY_RUNS" "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    true = shutil.which("true") or "true"
    assert said in scene.run(script, env={"DRAY_RUNS": true}).words, "its list is empty"
    source = scene.server("source", tpc="pgm /usr/bin/xrdcp --server")
    runs = {"DRAY_RUNS": str(scene.programs / PROGRAM)}
    sink = scene.server("sink", tpc=f"pgm {script}", env=runs)
    made = make(source, "a", 3 * MIB)
    copy = ("--tpc", "only", source.at("a"), sink.at("in/a"))
    scene.xrdcp(*copy).expect(0)
    assert hash_file(sink.path("in/a")) == hash_file(made)
    sink.path("in/a").unlink()
    # dray cannot make its log. The copy fails while the query of the checksum may still run.
    (sink.path("in") / ".dray-log").write_bytes(b"no folder")
    ended = scene.xrdcp(*copy)
    assert ended.code != 0
    assert ".dray-log" in ended.out + ended.words
    assert said not in sink.said()
    assert "killed by signal" not in sink.said()


def test_a_name_may_be_of_any_bytes(scene: Scene) -> None:
    """A file whose name is not UTF-8 is copied too."""
    source, sink = pair(scene)
    for size, name in ((3 * MIB, b"odd \xff\xfe"), (0, b"\xe4"), (10, "ä".encode())):
        odd = os.fsdecode(name)
        made = make(source, odd, size, seed=size)
        scene.xrdcp("--tpc", "only", source.at(odd), sink.at(odd)).expect(0)
        assert hash_file(sink.path(odd)) == hash_file(made)
    assert tree.leftovers(sink.data) == []
