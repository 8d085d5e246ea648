"""``dray cp`` from a stock XRootD server."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from integration.harness import tree
from integration.harness.tree import hash_file
from integration.xrootd.cp import begin, cp
from integration.xrootd.files import make, set_checksum
from integration.xrootd.servers import SHIM, find, give

if TYPE_CHECKING:
    from pathlib import Path

    from integration.harness.program import Word
    from integration.xrootd.servers import Scene

pytestmark = pytest.mark.server

MIB = 1 << 20
#: Exit code of ``dray cp`` after a signal. Durable data is kept.
INTERRUPTED = 5


def test_an_unreachable_server_is_reported_soon(bare: Scene, ours: Path) -> None:
    """The copy fails within a minute. By default, XRootD's client retries for eight minutes."""
    wrap = ("env", "-u", "XRD_CONNECTIONRETRY", "-u", "XRD_CONNECTIONWINDOW")
    env = {"DRAY_XRDCL": str(find(SHIM))}
    words: list[Word] = [*wrap, ours, "cp", "--json", "root://127.0.0.1:1//in/a", bare.folder / "a"]
    ended = bare.run(*words, env=env, seconds=60)
    assert ended.code != 0
    assert "Connection error" in ended.words, ended.words


def test_files_of_every_size_arrive(bare: Scene, ours: Path) -> None:
    """The copied file has the bytes and the time of its source, and no leftover remains."""
    server = bare.server("source", tpc=None)
    for size in (0, 1, 4096, MIB, MIB + 1, 40 * MIB + 13):
        source = make(server, f"in/{size}", size, seed=size)
        to = bare.folder / "out" / str(size)
        ended = cp(bare, ours, server.at(f"in/{size}"), to).expect(0)
        assert ended.report["bytes_sent"] == size
        assert hash_file(to) == hash_file(source)
        assert int(to.stat().st_mtime) == int(source.stat().st_mtime)
    assert tree.leftovers(bare.folder / "out") == []


def test_a_folder_arrives_whole(bare: Scene, ours: Path) -> None:
    """Copy a tree with an empty folder, and with blanks in names."""
    server = bare.server("source", tpc=None)
    for number in range(40):
        make(server, f"top/d{number % 7}/deep {number}/f{number}", number * 9973, seed=number)
    empty = server.path("top/empty")
    empty.mkdir()
    give(empty)
    to = bare.folder / "out"
    cp(bare, ours, "-r", server.at("top/"), f"{to}/").expect(0)
    for path in server.path("top").rglob("*"):
        copied = to / path.relative_to(server.path("top"))
        assert copied.is_dir() == path.is_dir()
        assert path.is_dir() or hash_file(copied) == hash_file(path)
    assert sum(1 for _ in to.rglob("*")) == sum(1 for _ in server.path("top").rglob("*"))


def test_the_checksum_of_the_server_is_trusted(bare: Scene, ours: Path) -> None:
    """If the copied bytes do not have the checksum of the server, the copy fails."""
    server = bare.server("source", tpc=None)
    source = make(server, "a", 3 * MIB)
    set_checksum(source, 0xDEADBEEF)
    assert server.checksum("a", "adler32") == "deadbeef"
    to = bare.folder / "out" / "a"
    ended = cp(bare, ours, server.at("a"), to)
    assert ended.code != 0
    assert "deadbeef" in ended.out + ended.words
    assert not to.exists()


def test_a_missing_file_and_an_unreachable_server_are_reported(bare: Scene, ours: Path) -> None:
    """An error names its cause. It does not contain secrets of the URL."""
    server = bare.server("source", tpc=None)
    to = bare.folder / "out"
    missing = cp(bare, ours, f"{server.at('none')}?authz=se-cret", to / "a")
    assert missing.code != 0
    assert "not found" in missing.out + missing.words
    assert "se-cret" not in missing.out + missing.words
    server.kill()
    gone = cp(bare, ours, server.at("none"), to / "a")
    assert gone.code != 0
    assert "Connection error" in gone.out + gone.words


def test_a_killed_copy_resumes(bare: Scene, ours: Path) -> None:
    """After a kill, the same command sends only the missing data."""
    server = bare.server("source", tpc=None)
    source = make(server, "a", 256 * MIB)
    to = bare.folder / "out" / "a"
    killed = begin(bare, ours, "--progress", "json", "--rate", "64MiB", server.at("a"), to)
    killed.await_durable()
    assert killed.kill().code != 0
    assert not to.exists()
    ended = cp(bare, ours, server.at("a"), to).expect(0)
    assert ended.report["bytes_resumed"] > 0
    assert ended.report["bytes_sent"] == 256 * MIB - ended.report["bytes_resumed"]
    assert hash_file(to) == hash_file(source)


def test_another_content_is_never_mixed_in(bare: Scene, ours: Path) -> None:
    """If the source is replaced after a killed copy, the next copy starts from the beginning."""
    server = bare.server("source", tpc=None)
    make(server, "a", 128 * MIB, seed=1)
    to = bare.folder / "out" / "a"
    killed = begin(bare, ours, "--progress", "json", "--rate", "64MiB", server.at("a"), to)
    killed.await_durable()
    killed.kill()
    source = make(server, "a", 128 * MIB, seed=2)
    os.utime(source, (time.time() + 10, time.time() + 10))
    ended = cp(bare, ours, server.at("a"), to).expect(0)
    assert ended.report["bytes_resumed"] == 0
    assert hash_file(to) == hash_file(source)


def test_without_the_library_the_message_names_the_build_target(bare: Scene, ours: Path) -> None:
    """On a host without dray's library over XrdCl, the error says how to build it."""
    env = {"DRAY_XRDCL": "/nonexistent/libdray-xrdcl.so"}
    ended = bare.run(ours, "cp", "root://127.0.0.1:1//a", bare.folder / "b", env=env)
    assert ended.code != 0
    assert "make build-xrootd" in ended.out + ended.words


def test_a_folder_of_a_cluster_is_not_called_whole_without_all_its_servers(
    bare: Scene, ours: Path
) -> None:
    """If a server of the cluster cannot list a folder, the copy of the folder fails."""
    head, data = bare.cluster(2, tpc=None)
    for number, server in enumerate(data):
        make(server, f"in/f{number}", 4096, seed=number)
    until = time.monotonic() + 90
    while not all(
        f":{server.port} " in bare.run("xrdfs", head.url, "locate", "/in").out for server in data
    ):
        assert time.monotonic() < until, bare.run("xrdfs", head.url, "locate", "/in").out
        time.sleep(0.5)
    whole = bare.folder / "whole"
    cp(bare, ours, "-r", head.at("in/"), f"{whole}/").expect(0)
    assert sorted(path.name for path in whole.rglob("f*")) == ["f0", "f1"]
    # dray asks each server to list the folder. Make the second server fail.
    data[1].path("in").chmod(0)
    part = bare.folder / "part"
    ended = cp(bare, ours, "-r", head.at("in/"), f"{part}/")
    assert ended.code != 0
    assert "not all servers of the cluster have listed the folder" in ended.out + ended.words
    assert [path.name for path in part.rglob("f*")] == ["f0"]


def test_a_change_in_the_last_second_of_a_copy_is_seen(bare: Scene, ours: Path) -> None:
    """The source is checked after the last byte, so a late change makes the copy fail."""
    server = bare.server("source", tpc=None)
    source = make(server, "in/a", 32 * MIB, seed=1)
    first = hash_file(source)
    to = bare.folder / "out"
    words = ("--progress", "json", "--rate", "8MiB", "-r", server.at("in/"), f"{to}/")
    copy = begin(bare, ours, *words)
    copy.await_durable()
    # At the limited rate, less than a second of the copy remains after this pause.
    time.sleep(2.4)
    with source.open("r+b") as written:
        written.seek(24 * MIB)
        written.write(b"\xff" * (8 * MIB))
    os.utime(source, (time.time() + 10, time.time() + 10))
    ended = copy.wait(120)
    if ended.code == 0:
        assert hash_file(to / "a") == first
    else:
        assert not (to / "a").exists()


@pytest.mark.parametrize("is_overwritten", [False, True])
def test_a_file_that_gets_a_new_time_is_compared_with_a_new_checksum(
    bare: Scene, ours: Path, is_overwritten: bool
) -> None:
    """A single file gets its name only if the server's new checksum is that of the copied bytes."""
    server = bare.server("source", tpc=None)
    source = make(server, "a", 32 * MIB, seed=1)
    to = bare.folder / "out" / "a"
    copy = begin(bare, ours, "--progress", "json", "--rate", "8MiB", server.at("a"), to)
    copy.await_durable()
    if is_overwritten:
        with source.open("r+b") as written:
            written.write(b"other bytes")
    os.utime(source, (time.time() + 10, time.time() + 10))
    ended = copy.wait(120)
    if is_overwritten:
        assert ended.code != 0
        assert "the modification time of the file changed after the copy began" in ended.words
        assert not to.exists()
    else:
        ended.expect(0)
        assert hash_file(to) == hash_file(source)


def test_a_file_with_a_known_checksum_is_copied_once(bare: Scene, ours: Path) -> None:
    """A second run of the same command sends nothing."""
    server = bare.server("source", tpc=None)
    make(server, "a", 3 * MIB)
    to = bare.folder / "out" / "a"
    cp(bare, ours, server.at("a"), to).expect(0)
    inode = to.stat().st_ino
    again = cp(bare, ours, server.at("a"), to).expect(0)
    assert again.report["bytes_sent"] == 0
    assert to.stat().st_ino == inode


def test_a_stopped_copy_does_not_wait_for_a_checksum(bare: Scene, ours: Path) -> None:
    """SIGINT ends a copy that waits for the server's checksum. Durable data is kept."""
    slow = bare.folder / "slow"
    # The server runs this script to compute a checksum. The script ends when the server has ended.
    script = "#!/bin/sh\nwhile kill -0 $PPID; do sleep 0.2; done\n"
    slow.write_text(script, encoding="ascii")
    slow.chmod(0o755)
    server = bare.server("source", tpc=None, lines=[f"xrootd.chksum max 4 adler32 {slow}"])
    source = make(server, "a", 32 * MIB)
    to = bare.folder / "out" / "a"
    copy = begin(bare, ours, "--progress", "json", server.at("a"), to)
    copy.await_durable(32 * MIB)
    time.sleep(0.5)
    assert copy.is_running(), "it does not wait for the server's checksum"
    copy.send(signal.SIGINT)
    # Without the signal, the copy would wait for two minutes.
    stopped = copy.wait(60)
    assert stopped.code == INTERRUPTED, stopped.words
    assert not to.exists()
    server.lines = []
    server.kill()
    server.start()
    ended = cp(bare, ours, server.at("a"), to).expect(0)
    assert ended.report["bytes_resumed"] == 32 * MIB
    assert hash_file(to) == hash_file(source)


def test_pages_travel_with_checksums_where_the_url_asks_for_them(bare: Scene, ours: Path) -> None:
    """``dray.pages=1`` selects reads and writes with page checksums. The server does not see it."""
    server = bare.server("source", tpc=None, lines=["xrootd.trace all"])
    source = make(server, "in/a", 40 * MIB + 13)
    to = bare.folder / "out" / "a"
    cp(bare, ours, server.at("in/a"), bare.folder / "out" / "plain").expect(0)
    assert "pgread" not in server.said()
    cp(bare, ours, f"{server.at('in/a')}?dray.pages=1", to).expect(0)
    assert hash_file(to) == hash_file(source)
    assert "pgread" in server.said()
    cp(bare, ours, to, f"{server.at('back')}?dray.pages=1").expect(0)
    assert hash_file(server.path("back")) == hash_file(source)
    assert "pgwrite" in server.said()
    assert "dray.pages" not in server.said()
    refused = cp(bare, ours, f"{server.at('in/a')}?dray.pages=yes", to)
    assert "dray.pages is 0 or 1" in refused.out + refused.words
