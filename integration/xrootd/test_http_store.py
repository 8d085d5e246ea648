"""``dray cp`` from web servers: XRootD with HTTP, and nginx."""

from __future__ import annotations

import os
import struct
import time
import zlib
from typing import TYPE_CHECKING

import pytest

from integration.harness import tree
from integration.harness.tree import hash_file, make_file
from integration.xrootd.cp import begin, cp
from integration.xrootd.http import nginx, xrootd
from integration.xrootd.servers import give

if TYPE_CHECKING:
    from pathlib import Path

    from integration.harness.program import Word
    from integration.xrootd.http import Web
    from integration.xrootd.servers import Scene

pytestmark = pytest.mark.server

MIB = 1 << 20


def make(web: Web, path: str, size: int, seed: int = 1) -> Path:
    """Make a file with a time 10 s ago. HTTP has times in whole seconds."""
    at = web.data / path
    for folder in reversed(at.relative_to(web.data).parents[:-1]):
        (web.data / folder).mkdir(exist_ok=True)
        give(web.data / folder)
    make_file(at, size, seed)
    old = int(time.time()) - 10
    os.utime(at, (old, old))
    give(at)
    return at


def both(scene: Scene) -> list[Web]:
    """Start an XRootD server and an nginx."""
    return [xrootd(scene)[0], nginx(scene)]


def test_files_of_every_size_arrive(bare: Scene, ours: Path) -> None:
    """The copied file has the bytes and the time of its source, and no leftover remains."""
    for number, web in enumerate(both(bare)):
        for size in (0, 1, MIB, 9 * MIB + 13):
            source = make(web, f"in/a %&+{size}", size, seed=size)
            to = bare.folder / "out" / f"{number}-{size}"
            ended = cp(bare, ours, f"{web.url}/in/a%20%25%26%2B{size}", to).expect(0)
            assert ended.report["bytes_sent"] == size
            assert hash_file(to) == hash_file(source)
            assert to.stat().st_mtime == source.stat().st_mtime
    assert tree.leftovers(bare.folder / "out") == []


def test_a_file_may_begin_as_an_answer_does(bare: Scene, ours: Path) -> None:
    """A file whose content looks like the head of an HTTP answer is copied unchanged."""
    for number, web in enumerate(both(bare)):
        for fields in ("", "A: b\r\n"):
            source = web.data / f"a{len(fields)}"
            rest = b"" if fields else b"\r\n" + bytes(9000)
            source.write_bytes(f"HTTP/1.1 100 Continue\r\n{fields}".encode() + rest)
            old = int(time.time()) - 10
            os.utime(source, (old, old))
            give(source)
            to = bare.folder / "out" / f"{number}-{len(fields)}"
            cp(bare, ours, f"{web.url}/{source.name}", to).expect(0)
            assert hash_file(to) == hash_file(source)


def test_a_folder_arrives_whole(bare: Scene, ours: Path) -> None:
    """A tree with empty folders and odd names is copied by WebDAV."""
    web, _ = xrootd(bare)
    for number in range(30):
        make(web, f"top/d{number % 5}/deep %20 {number}/ä{number}", number * 9973, seed=number)
    empty = web.data / "top/empty"
    empty.mkdir()
    give(empty)
    to = bare.folder / "out"
    cp(bare, ours, "-r", f"{web.url}/top/", f"{to}/").expect(0)
    wanted = sorted(path.relative_to(web.data / "top") for path in (web.data / "top").rglob("*"))
    assert sorted(path.relative_to(to) for path in to.rglob("*")) == wanted
    for path in wanted:
        source = web.data / "top" / path
        assert source.is_dir() or hash_file(to / path) == hash_file(source)


def test_a_killed_copy_resumes(bare: Scene, ours: Path) -> None:
    """After a kill, the same command requests only the missing data."""
    web = nginx(bare)
    source = make(web, "a", 64 * MIB)
    to = bare.folder / "out" / "a"
    killed = begin(bare, ours, "--progress", "json", "--rate", "16MiB", f"{web.url}/a", to)
    killed.await_durable()
    assert killed.kill().code != 0
    assert not to.exists()
    asked = len(web.requests())
    ended = cp(bare, ours, f"{web.url}/a", to).expect(0)
    resumed = ended.report["bytes_resumed"]
    assert resumed > 0
    assert ended.report["bytes_sent"] == 64 * MIB - resumed
    gets = [line for line in web.requests()[asked:] if line.startswith("GET")]
    assert 0 < len(gets) <= 64 - resumed // MIB + 1
    assert hash_file(to) == hash_file(source)


def test_a_source_that_changes_gets_no_name(bare: Scene, ours: Path) -> None:
    """If the source changes during the copy, the copy fails. It never mixes two versions."""
    for number, web in enumerate(both(bare)):
        make(web, "a", 64 * MIB, seed=1)
        to = bare.folder / "out" / str(number)
        running = begin(bare, ours, "--progress", "json", "--rate", "16MiB", f"{web.url}/a", to)
        running.await_durable()
        # Replace the source by another file of the same size.
        os.replace(make(web, "b", 64 * MIB, seed=2), web.data / "a")
        os.utime(web.data / "a")
        ended = running.wait(120)
        assert ended.code != 0
        assert "changed" in ended.out + ended.words
        assert not to.exists()
        fresh = cp(bare, ours, f"{web.url}/a", to).expect(0)
        assert fresh.report["bytes_resumed"] == 0
        assert hash_file(to) == hash_file(web.data / "a")


def test_the_servers_checksum_is_trusted(bare: Scene, ours: Path) -> None:
    """If the copied bytes do not have the checksum of the server, the copy fails."""
    web, _ = xrootd(bare)
    source = make(web, "a", 3 * MIB)
    to = bare.folder / "out" / "a"
    value = zlib.adler32(source.read_bytes()) ^ 1
    fields = (b"adler32", int(source.stat().st_mtime), 0, 0, 0, 4, struct.pack(">I", value))
    os.setxattr(source, "user.XrdCks.adler32", struct.pack(">16sqiHBB64s", *fields))
    ended = cp(bare, ours, f"{web.url}/a", to)
    assert ended.code != 0
    assert f"{value:08x}" in ended.out + ended.words
    assert not to.exists()


def test_credentials_stay_with_their_server(bare: Scene, ours: Path) -> None:
    """The token is sent to the server of the URL, but not to the target of a redirect."""
    other = nginx(bare, "other")
    make(other, "a", MIB)
    web = nginx(bare, "first", [f"location /moved/ {{ return 307 {other.url}/a; }}"])
    make(web, "a", MIB)
    token = bare.folder / "token"
    token.write_text("to.k.en\n", encoding="ascii")
    env = {"BEARER_TOKEN_FILE": str(token)}
    out = bare.folder / "out"
    cp(bare, ours, f"{web.url}/moved/a", out / "a", env=env).expect(0)
    cp(bare, ours, f"{web.url}/a", out / "b", env=env).expect(0)
    assert hash_file(out / "a") == hash_file(other.data / "a")
    assert all("Bearer to.k.en" in line for line in web.requests())
    assert len(other.requests()) > 0
    assert not any("to.k.en" in line for line in other.requests())
    # dray follows a redirect once for a file, and not for each object.
    gets = [line for line in web.requests() if line.startswith("GET /moved")]
    assert len(gets) == 1


def test_errors_name_file_cause_and_remedy(bare: Scene, ours: Path) -> None:
    """An error names the cause. It does not contain secrets of the URL."""
    web = nginx(
        bare,
        places=[
            "location /whole/ { max_ranges 0; }",
            "location /round/ { return 302 /round/; }",
            "location /closed/ { return 403; }",
            "location /busy/ { return 503; }",
        ],
    )
    make(web, "whole/a", 3 * MIB)
    make(web, "whole/small", 1000)
    to = bare.folder / "out"
    for path, why in [
        ("none", "not found"),
        ("whole/a", "ignores ranges"),
        ("round/a", "redirects"),
        ("closed/a", "permission denied"),
        ("busy/a", "busy"),
    ]:
        ended = cp(bare, ours, f"{web.url}/{path}?sig=se-cret", to / "a")
        output = ended.out + ended.words
        assert ended.code != 0, path
        assert why in output, output
        assert "se-cret" not in output
        assert not (to / "a").exists()
    # The server ignores ranges in ``whole``. A small file is still copied, because dray requests
    # all its bytes at once.
    cp(bare, ours, f"{web.url}/whole/small", to / "small").expect(0)
    commands: list[tuple[list[Word], int, str]] = [
        (["-r", f"{web.url}/whole/", f"{to}/all/"], 1, "PROPFIND"),
        (["http://127.0.0.1:1/a", to / "a"], 4, "Connection refused"),
        ([to / "small", f"{web.url}/b"], 2, "but not write"),
        (["http://user:se-cret@h/a", to / "a"], 2, "BEARER_TOKEN_FILE"),
    ]
    for command, code, why in commands:
        ended = cp(bare, ours, *command)
        assert ended.code == code, why
        assert why in ended.out + ended.words
        assert "se-cret" not in ended.out + ended.words
