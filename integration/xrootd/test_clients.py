"""``xrdcp``, ``gfal-copy`` and ``curl`` request copies of a large file and a mixed folder.

The clients have no code of dray. At least one of the servers runs dray's plug-in. With
``DRAY_FULL=1``, the large file has 4 GiB.
"""

from __future__ import annotations

import os
import time
import urllib.parse
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from integration.harness import tree
from integration.harness.airflow import free_port
from integration.harness.tree import GIB, MIB, hash_file
from integration.xrootd import curl, gsi, tokens
from integration.xrootd.beside import serve, settings
from integration.xrootd.files import configured, copies, make
from integration.xrootd.http import copying, http_lines
from integration.xrootd.moments import FULL
from integration.xrootd.servers import HERE, PROGRAM, cluster_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from integration.harness.program import Server, Word
    from integration.xrootd.http import Copying
    from integration.xrootd.servers import Scene, Xrootd

pytestmark = [pytest.mark.server, pytest.mark.timeout(3600)]

LARGE = 4 * GIB if FULL else 24 * MIB
#: Files of a mixed folder, with their sizes in bytes.
MIXED = {
    "empty": 0,
    "one byte": 1,
    "small/a b/c d.txt": 4096,
    "small/ümläut/файл": 70_001,
    "small/50% off + 1": 9973,
    "small/quote'(s)": 17,
    "deep/" + "/".join(f"level{number}" for number in range(16)) + "/bottom": 123,
    "large enough": 9 * MIB + 5,
}
#: Files with confusing names: an unescaped or shortened name is the name of another file.
CONFUSED = {"my file": 5003, "my%20file": 5011, "run": 311, "run#1": 313}
STOCK = "pgm /usr/bin/xrdcp --server"
#: Number of concurrent clients. A client asks for the state of its copy only every few seconds, so
#: one client at a time would be slow.
AT_ONCE = 9
#: Maximum bytes that a server reads from files to return a stored checksum.
KNOWN_BYTES = 64 << 10


def fill(server: Xrootd, top: str) -> dict[str, Path]:
    """Make the large file and the mixed folder below ``top``, with a time 10 s ago."""
    made = {
        name: make(server, f"{top}/{name}", size, seed=size + 1)
        for name, size in {"large": LARGE, **MIXED}.items()
    }
    old = int(time.time()) - 10
    for path in made.values():
        os.utime(path, (old, old))
    return made


def quoted(path: str) -> str:
    """Return a path with the escapes of a URL."""
    return urllib.parse.quote(path)


@dataclass
class Ends:
    """For a path at the source or the sink, the URL that a client uses."""

    scene: Scene
    source: Callable[[str], str]
    sink: Callable[[str], str]
    env: dict[str, str] | None = None


def by_xrdcp(ends: Ends, paths: dict[str, str], *options: str) -> None:
    """Run ``xrdcp`` for each file: ``--recursive`` would give all files of a folder one name."""
    _some_at_once(ends, paths, ["xrdcp", "--nopbar", "--tpc", *options], ends.env)


def by_gfal(ends: Ends, paths: dict[str, str], *options: str) -> None:
    """Run ``gfal-copy`` for each file: its recursion fails at blanks in servers' answers."""
    words: list[Word] = ["gfal-copy", "--parent", "--timeout", "600", *options]
    # The scripts of gfal need the Python of the host, which has gfal's modules.
    own = {"GFAL_PYTHONBIN": "/usr/bin/python3", "PYTHONPATH": ""}
    # Without a token, gfal would request a delegation, which neither dray nor stock XRootD
    # supports for HTTP copies.
    own["BEARER_TOKEN"] = "a.token.nobody-asks-for"  # noqa: S105 - it opens nothing
    _some_at_once(ends, paths, words, {**own, **(ends.env or {})})


def _some_at_once(
    ends: Ends, paths: dict[str, str], words: list[Word], env: dict[str, str] | None
) -> None:
    pairs = list(paths.items())
    for first in range(0, len(pairs), AT_ONCE):
        clients = [
            ends.scene.begin(*words, ends.source(one), ends.sink(other), env=env)
            for one, other in pairs[first : first + AT_ONCE]
        ]
        for client in clients:
            client.wait(600).expect(0)


def by_curl(scene: Scene, asked: str, header: str, other: str, paths: dict[str, str]) -> None:
    """Request each file by COPY at the URL ``asked``. ``header`` names the end at ``other``."""
    for one, two in paths.items():
        at, away = (two, one) if header == "Source" else (one, two)
        ended = curl.begin(
            scene, f"{asked}/{quoted(at)}", f"{header}: {other}/{quoted(away)}"
        ).wait(600)
        curl.assert_good(ended)


def check(made: dict[str, Path], sinks: list[Xrootd], top: str) -> None:
    """Fail unless each file is complete, and its checksum is stored with it."""
    for name, source in made.items():
        found = [path for sink in sinks if (path := sink.path(f"{top}/{name}")).exists()]
        assert len(found) == 1, f"{top}/{name}: {found}"
        assert found[0].stat().st_size == source.stat().st_size, name
        assert hash_file(found[0]) == hash_file(source), name
    # Check one file. Ask its server, because the redirector may not know the file yet.
    (sink,) = (sink for sink in sinks if sink.path(f"{top}/large").exists())
    read = bytes_read(sink)
    value = sink.checksum(f"{top}/large", "adler32")
    other = sink.checksum(f"{top}/large", "crc32c")
    read = bytes_read(sink) - read
    assert read < KNOWN_BYTES, "the server has read the file for its checksum"
    assert int(value, 16) == adler32(made["large"])
    os.removexattr(sink.path(f"{top}/large"), "user.XrdCks.crc32c")
    assert sink.checksum(f"{top}/large", "crc32c") == other
    for each in sinks:
        assert tree.leftovers(each.data) == []


def adler32(path: Path) -> int:
    """Compute the adler32 of a file without dray."""
    value = 1
    with path.open("rb") as file:
        while piece := file.read(MIB):
            value = zlib.adler32(piece, value)
    return value


def bytes_read(server: Xrootd) -> int:
    """Return how many bytes the server's process has read from files."""
    assert server.process is not None
    said = Path(f"/proc/{server.process.pid}/io").read_text(encoding="ascii")
    return int(said.split("rchar:")[1].split()[0])


@pytest.fixture
def drays() -> Iterator[list[Server]]:
    """Yield a list. At the end of the test, kill the servers in it."""
    started: list[Server] = []
    yield started
    for server in started:
        server.kill()


def beside(scene: Scene, source: Xrootd, program: Path) -> tuple[Server, list[str]]:
    """Start ``dray serve`` beside a source. Return it and the settings of a destination."""
    server = serve(scene, source.data, program)
    return server, settings(scene, server, f"{HERE}:{source.port}")


@pytest.mark.parametrize("sides", ["one", "both"])
def test_clients_by_xrootds_protocol(
    scene: Scene, program: Path, drays: list[Server], sides: str
) -> None:
    """``xrdcp --tpc only`` and gfal copy, with and without ``dray serve`` at the source."""
    source = scene.server("source", tpc=STOCK)
    made = fill(source, "in")
    lines: list[str] = []
    if sides == "both":
        server, lines = beside(scene, source, program)
        drays.append(server)
    sink = scene.server("sink", tpc=configured(scene, *lines))
    ends = Ends(scene, source.at, sink.at)
    by_xrdcp(ends, {f"in/{name}": f"xrdcp/{name}" for name in made}, "only")
    check(made, [sink], "xrdcp")
    by_gfal(ends, {f"in/{name}": f"gfal/{name}" for name in made})
    check(made, [sink], "gfal")
    # dray made all copies, and sent all bytes.
    sizes = sorted(path.stat().st_size for path in made.values())
    assert sorted(sent for sent, _ in copies(sink)) == sorted(2 * sizes)
    if sides == "both":
        # dray serve had a session for each file except empty files.
        assert len(drays[0].transfers()) == 2 * len([size for size in sizes if size > 0])


# A login with gsi takes seconds of processor time.
@pytest.mark.parametrize("how", ["ztn", "gsi"] if FULL else ["ztn"])
def test_delegated_clients(scene: Scene, certificates: Path, how: str) -> None:
    """With a delegated token or proxy, dray reads as the person who delegated it."""
    if how == "ztn":
        realm = tokens.make(scene, certificates)
        lines, env, scheme = realm.lines(), realm.env, "roots"
        person = realm.person(realm.issuer.token(tokens.READ, *tokens.WRITE))
        what = "fcreds ztn =BEARER_TOKEN_FILE"
    else:
        grid = gsi.make(scene)
        lines, env, scheme = grid.lines(), grid.env, "root"
        person = grid.person
        what = "fcreds gsi =X509_USER_PROXY"
    source = scene.server("source", tpc=None, lines=lines, env=env)
    what += f" pgm {scene.programs / PROGRAM}"
    sink = scene.server("sink", tpc=what, lines=lines, env=env)
    made = fill(source, "in")

    def named(server: Xrootd) -> Callable[[str], str]:
        # The certificates contain the name localhost, and not the address.
        return lambda path: f"{scheme}://localhost:{server.port}//{path}"

    ends = Ends(scene, named(source), named(sink), person)
    by_xrdcp(ends, {f"in/{name}": f"out/{name}" for name in made}, "delegate", "only")
    for name, path in made.items():
        assert hash_file(sink.path(f"out/{name}")) == hash_file(path), name
    sizes = sorted(path.stat().st_size for path in made.values())
    assert sorted(sent for sent, _ in copies(sink)) == sizes
    assert tree.leftovers(sink.data) == []


# The test through a redirector covers dray at both ends too.
@pytest.mark.parametrize("sides", ["one", "both"] if FULL else ["one"])
def test_clients_by_http(bare: Scene, plugins: Path, certificates: Path, sides: str) -> None:
    """``curl -X COPY`` and gfal pull and push. dray's plug-in is at one end or at both ends."""
    here = copying(bare, plugins, certificates, name="here")
    if sides == "both":
        away = copying(bare, plugins, certificates, name="away")
        there, url = away.server, away.url
    else:
        port = free_port()
        there = bare.server("there", tpc=None, lines=http_lines(port))
        url = f"http://127.0.0.1:{port}"
    made = fill(there, "in")
    by_curl(bare, here.url, "Source", url, {f"in/{name}": f"pull/{name}" for name in made})
    check(made, [here.server], "pull")
    by_curl(bare, here.url, "Destination", url, {f"pull/{name}": f"push/{name}" for name in made})
    for name, path in made.items():
        assert hash_file(there.path(f"push/{name}")) == hash_file(path), name

    def ours(path: str) -> str:
        return f"{here.url}/{quoted(path)}"

    def other(path: str) -> str:
        return f"{url}/{quoted(path)}"

    names = {f"in/{name}": f"gfal/{name}" for name in made}
    by_gfal(Ends(bare, other, ours), names, "--copy-mode", "pull")
    check(made, [here.server], "gfal")
    names = {f"gfal/{name}": f"gfal/{name}" for name in made}
    by_gfal(Ends(bare, ours, other), names, "--copy-mode", "push")
    for name, path in made.items():
        assert hash_file(there.path(f"gfal/{name}")) == hash_file(path), name
    # dray logged each copy, so no client moved the data itself.
    assert here.server.said().count(": done") >= 4 * len(made)


def test_clients_through_a_redirector_with_three_servers(
    bare: Scene, scene: Scene, plugins: Path, certificates: Path
) -> None:
    """A server that the redirector chooses copies each file from the server that has it."""
    assert bare is scene
    lines = cluster_lines()
    names = ["head", "data0", "data1", "data2"]
    head, *data = (
        copying(bare, plugins, certificates, name=name, lines=lines, own_port=False, tpc="")
        for name in names
    )
    for one in (head, *data):
        one.server.start_manager()
    made = fill(data[0].server, "in")
    for name, size in CONFUSED.items():
        make(data[0].server, f"in/{name}", size, seed=size)
    bare.await_found(head.server, "in/large")
    sinks = [one.server for one in data]
    ends = Ends(bare, head.server.at, head.server.at)
    # -f: on a busy host, a client may open its destination twice. Without -f, the second open
    # finds the file of the first, and fails.
    by_xrdcp(ends, {f"in/{name}": f"xrdcp/{name}" for name in made}, "only", "-f")
    check(made, sinks, "xrdcp")
    by_gfal(ends, {f"in/{name}": f"gfal/{name}" for name in made}, "-f")
    check(made, sinks, "gfal")
    pull(bare, head, {f"in/{name}": f"pull/{name}" for name in made})
    check(made, sinks, "pull")
    # The copies get plain names, because curl must follow a redirect to them.
    plain = {f"in/{name}": f"plain/{number}" for number, name in enumerate(CONFUSED)}
    pull(bare, head, plain)
    for confused, name in plain.items():
        (found,) = [path for sink in sinks if (path := sink.path(name)).exists()]
        assert hash_file(found) == hash_file(data[0].server.path(confused)), confused
    # XRootD's web server ends a name at a question mark, even at an escaped one.
    for name in ("a", "a?b=c"):
        make(data[0].server, f"in/{name}", 9)
    asked = f"Source: {data[0].url}/{quoted('in/a?b=c')}"
    refused = curl.begin(bare, f"{data[1].url}/plain/question", asked).wait(60)
    assert "question mark" in curl.failure(refused)
    assert not any(head.data.iterdir()), "the redirector has files"


def pull(scene: Scene, head: Copying, paths: dict[str, str]) -> None:
    """Request each file by COPY at a redirector, and follow its redirects."""
    for one, other in paths.items():
        words = ["-H", f"Source: {head.url}/{quoted(one)}", "-w", "\nstatus %{http_code}\n"]
        asked = f"{head.url}/{quoted(other)}"
        curl.assert_good(scene.run("curl", "-sSNL", "-X", "COPY", *words, asked, seconds=600))
