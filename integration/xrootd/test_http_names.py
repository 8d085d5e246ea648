"""HTTP third-party copies: permitted names, and files that a copy may replace."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pytest

from integration.harness import tree
from integration.harness.tree import hash_file, make_file
from integration.xrootd.curl import (
    ask,
    assert_good,
    begin,
    durable,
    failure,
    heard,
    sent,
    status,
)
from integration.xrootd.files import hide
from integration.xrootd.http import ALL_ADDRESSES, copying, nginx
from integration.xrootd.servers import HERE, cluster_lines, give

if TYPE_CHECKING:
    from pathlib import Path

    from integration.harness.program import Process, Word
    from integration.xrootd.http import Copying, Web
    from integration.xrootd.servers import Scene

pytestmark = pytest.mark.server

MIB = 1 << 20
#: Size of a slow copy in bytes. It is larger than a sync group.
LARGE = 144 * MIB
NOBODY = "http://127.0.0.1:1/a"


def test_a_copy_by_http_is_never_taken_for_one_by_root(
    bare: Scene, plugins: Path, certificates: Path
) -> None:
    """A URL with parameters of ``root://`` copies is refused, because it could crash the server."""
    # Let the server make copies by root:// too.
    sink = copying(bare, plugins, certificates, tpc="pgm /usr/bin/xrdcp --server")
    stood = sink.data / "stood"
    make_file(stood, MIB, 1)
    give(stood)
    before = hash_file(stood)
    for query in ("tpc.key=k&tpc.org=o", "a=b&tpc.key=k", "dray.copy=1", "tpc%2ekey=k"):
        for name in ("stood", "new"):
            for header in (f"Destination: {NOBODY}", f"Source: {NOBODY}"):
                assert status(ask(bare, f"{sink.url}/{name}?{query}", header)) == 400, query
    assert hash_file(stood) == before
    assert [path.name for path in sink.data.iterdir()] == ["stood"]
    # Other parameters with similar names are permitted.
    web = nginx(bare)
    make_file(web.data / "a", MIB, 2)
    assert_good(ask(bare, f"{sink.url}/new?x=tpc.key&xtpc.key=k", f"Source: {web.url}/a"))


@pytest.mark.parametrize("is_wrapped", [False, True], ids=["plain", "wrapped"])
def test_a_folders_address_is_refused_and_makes_nothing(
    bare: Scene, plugins: Path, certificates: Path, is_wrapped: bool
) -> None:
    lines = [hide(bare)] if is_wrapped else []
    sink = copying(bare, plugins, certificates, lines=lines)
    for path in ("new/", "new/deep/", ""):
        assert status(ask(bare, f"{sink.url}/{path}", f"Source: {NOBODY}")) == 409, path
    assert list(sink.data.iterdir()) == []


def begin_slowly(bare: Scene, sink: Copying, web: Web, config: Path) -> Process:
    """Start a slow copy to ``b``. Return when some data is durable."""
    config.write_text(f"{ALL_ADDRESSES}rate = {32 * MIB}\n", encoding="ascii")
    client = begin(bare, f"{sink.url}/b", f"Source: {web.url}/a")
    until = time.monotonic() + 60
    while not any(durable(heard(client))):
        assert time.monotonic() < until, heard(client)
        time.sleep(0.02)
    # Copies that are requested later are not slow.
    config.write_text(ALL_ADDRESSES, encoding="ascii")
    return client


@pytest.mark.parametrize("is_wrapped", [False, True], ids=["plain", "wrapped"])
def test_a_file_that_gets_the_name_meanwhile_stays(
    bare: Scene, plugins: Path, certificates: Path, is_wrapped: bool
) -> None:
    """Another client creates the file during a copy: the copy fails. A later copy replaces it."""
    config = bare.folder / "slow.toml"
    config.write_text(ALL_ADDRESSES, encoding="ascii")
    lines = [hide(bare)] if is_wrapped else []
    settings = ["marker_seconds 1", f"config {config}"]
    sink = copying(bare, plugins, certificates, lines=lines, settings=settings)
    web = nginx(bare)
    make_file(web.data / "a", LARGE, 1)
    other = bare.folder / "other"
    make_file(other, 3 * MIB, 2)
    give(other)
    client = begin_slowly(bare, sink, web, config)
    if is_wrapped:
        # The wrapper refuses uploads to the name, but does not see a rename on the disk.
        taken = sink.data / "moved"
        make_file(taken, 3 * MIB, 2)
        give(taken)
        taken.rename(sink.data / "b")
    else:
        # Without the wrapper, another client can upload a file to the name.
        put = bare.run("curl", "-sS", "-w", "\nstatus %{http_code}\n", "-T", other, f"{sink.url}/b")
        assert status(put) in (200, 201)
    assert "another file has been created under this name" in failure(client.wait(120))
    assert hash_file(sink.data / "b") == hash_file(other)
    kept = ask(bare, f"{sink.url}/b", f"Source: {web.url}/a", "Overwrite: F")
    assert status(kept) == 412
    assert_good(ask(bare, f"{sink.url}/b", f"Source: {web.url}/a"))
    now, before = sent(sink)[-1]
    assert (now, before) == (0, LARGE)
    assert hash_file(sink.data / "b") == hash_file(web.data / "a")
    # Copy again immediately, while the wrapper still remembers the previous copy.
    make_file(web.data / "a", 5 * MIB, 3)
    assert_good(ask(bare, f"{sink.url}/b", f"Source: {web.url}/a"))
    assert hash_file(sink.data / "b") == hash_file(web.data / "a")
    assert tree.leftovers(sink.data) == []


def test_a_file_uploaded_before_the_source_answers_stays(
    bare: Scene, plugins: Path, certificates: Path
) -> None:
    """Another client uploads to the name while it has the server's empty file."""
    sink = copying(bare, plugins, certificates, settings=["marker_seconds 1"])
    other = bare.folder / "other"
    make_file(other, 3 * MIB, 2)
    give(other)
    with socket.create_server((HERE, 0)) as silent:
        port = silent.getsockname()[1]
        client = begin(bare, f"{sink.url}/b", f"Source: http://{HERE}:{port}/a")
        asking, _ = silent.accept()
        words: list[Word] = ["-w", "\nstatus %{http_code}\n", "-T", other, f"{sink.url}/b"]
        assert status(bare.run("curl", "-sS", *words)) in (200, 201)
        known = "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Length: 5"
        with asking:
            while said := asking.recv(1 << 16):
                is_known = said.startswith((b"HEAD", b"GET"))
                head = f"200 Good\r\n{known}" if is_known else "405 No\r\nContent-Length: 0"
                asking.sendall(f"HTTP/1.1 {head}\r\n\r\n".encode())
        ended = client.wait(60)
    assert "another file has been created under this name" in failure(ended)
    assert hash_file(sink.data / "b") == hash_file(other)
    assert tree.leftovers(sink.data) == []


def test_a_second_copy_to_one_name_is_refused(
    bare: Scene, plugins: Path, certificates: Path
) -> None:
    config = bare.folder / "slow.toml"
    settings = ["marker_seconds 1", f"config {config}"]
    config.write_text(ALL_ADDRESSES, encoding="ascii")
    sink = copying(bare, plugins, certificates, settings=settings)
    web = nginx(bare)
    make_file(web.data / "a", LARGE, 1)
    first = begin_slowly(bare, sink, web, config)
    second = ask(bare, f"{sink.url}/b", f"Source: {web.url}/a")
    assert status(second) == 423, second.out
    assert_good(first.wait(120))
    assert hash_file(sink.data / "b") == hash_file(web.data / "a")
    assert tree.leftovers(sink.data) == []


def test_a_source_with_one_of_drays_own_names_is_refused(
    bare: Scene, plugins: Path, certificates: Path
) -> None:
    sink = copying(bare, plugins, certificates)
    web = nginx(bare)
    make_file(web.data / ".dray-ab.part", MIB, 1)
    said = failure(ask(bare, f"{sink.url}/b", f"Source: {web.url}/.dray-ab.part"))
    assert "names that begin with .dray-" in said
    assert list(sink.data.iterdir()) == []


def test_a_redirect_has_all_of_a_long_address(
    bare: Scene, plugins: Path, certificates: Path
) -> None:
    """A redirect keeps a long path and the query, with escapes."""
    lines = cluster_lines()
    head, data = (
        copying(bare, plugins, certificates, name=name, lines=lines, own_port=False)
        for name in ("head", "data0")
    )
    for one in (head, data):
        one.server.start_manager()
    (data.data / "x").write_bytes(b"x")
    give(data.data / "x")
    bare.await_found(head.server, "x")
    path = "/".join(["%C3%BC" * 100] * 3) + "/end"
    query = "authz=Bearer%20a.b%23c"
    words = ["-H", f"Source: {NOBODY}", "-o", "/dev/null", "-w", "%{redirect_url}"]
    asked = bare.run("curl", "-sSN", "-X", "COPY", *words, f"{head.url}/{path}?{query}")
    there = asked.out.strip()
    assert there.startswith(data.url), there
    assert there.endswith(f"?{query}"), there
    assert unquote(there.removeprefix(data.url).partition("?")[0]) == "/" + unquote(path)
