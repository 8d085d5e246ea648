"""Third-party copies between two XRootD servers: by XRootD's own means, and by dray.

The server of the source is at the client's end of the network path, and the server of the
destination is at the far end. Both servers and the client run as an ordinary user.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import re
import shlex
import zlib
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from integration.bench import ours, peers, xrootd
from integration.bench.tools import LIMIT, Command, Scene, Tool
from integration.xrootd import gsi
from integration.xrootd.files import set_checksum
from integration.xrootd.http import PLUGIN, http_lines, make_certificates
from integration.xrootd.servers import PROGRAM, SHIM
from integration.xrootd.servers import Scene as Servers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from integration.harness.program import Word

STOCK = "by XRootD's own means"
DRAY = "dray at the destination"
BOTH = "dray at both ends"
#: Kind of a tool without a goal, for comparison only.
PAGES = "dray at the destination, by page reads"
#: Kind of tools that are compared only with each other, because their handshakes are so expensive.
DELEGATED = "with delegated credentials"
#: Kind of tools that query the checksum, as data managers do after each copy. They are compared
#: only with each other.
ASKED = "and then the destination is asked for the checksum"
KINDS = (LIMIT, STOCK, DRAY, PAGES, BOTH, DELEGATED, ASKED)

#: Maximum number of files that are copied concurrently. One client of a data manager copies the
#: same number of files concurrently.
AT_ONCE = 10
#: Start of the server's configuration line for copies. The name of the program follows. Copies
#: beyond ``AT_ONCE`` wait.
TPC = f"ofs.tpc ttl 60 120 xfr {AT_ONCE} streams 0,8 echo logok pgm"
XRDCP = "/usr/bin/xrdcp --server"
#: Number of data connections if a tool requests several.
STREAMS = 4
#: Number of data connections that is dray's default and the servers' limit.
STREAMS_MORE = 8

#: Wrapper of the copy program that a server starts. It records the start and end of this program.
#: The duration of the client's xrdcp would be inaccurate, because the client asks the server only
#: every 2.5 seconds whether the copy is done.
TIMED = """\
notes=$1; shift
began=$(date +%s.%N)
"$@"
code=$?
echo "ran $began $(date +%s.%N)" >> "$notes"
exit $code
"""
RAN = re.compile(r"^ran ([0-9.]+) ([0-9.]+)$", re.MULTILINE)

#: Script that copies by HTTP. It fails unless the server's answer reports success.
COPY = """\
said=$(curl -sS -X COPY -H "X-Number-Of-Streams: $1" -H "Source: $2" "$3")
case "$said" in
*success:*) ;;
*) printf '%s\\n' "$said" >&2; exit 1 ;;
esac
"""

#: Script that copies, and then queries the checksum. It fails unless the answer is the algorithm
#: and the expected checksum.
ASK = """\
{} >/dev/null || exit
said=$({}) || exit
case "$said" in
"adler32 $1") ;;
*) echo "it should say adler32 $1, and says: $said" >&2; exit 1 ;;
esac
cat "$0"
"""


def copying_seconds(said: str) -> float:
    """Return the seconds from the start of the first to the end of the last program in ``said``.

    :raises ValueError: if no program has run.
    """
    ran = _ran(said)
    return max(ended for _, ended in ran) - min(began for began, _ in ran)


def asking_seconds(said: str) -> float:
    """Return the seconds of a copy plus those of the checksum query after the copy.

    The wait of the client between the copy and the query does not count.

    :raises ValueError: unless exactly two programs have run.
    """
    copied, asked = _ran(said)
    return copied[1] - copied[0] + asked[1] - asked[0]


def _ran(said: str) -> list[tuple[float, float]]:
    return [(float(began), float(ended)) for began, ended in RAN.findall(said)]


# --- the two servers ------------------------------------------------------------------------------


def _source(
    scene: Scene, *, sums: str = "adler32", lines: Sequence[str] = (), env: dict[str, str]
) -> str:
    """Start the source's server, which also speaks HTTP. Return its address.

    :param sums: the checksum algorithms of the server. The adler32 checksums of the files are
        stored in advance if this is ``adler32``.
    """
    if sums == "adler32":
        for path in scene.data.path.iterdir():
            keep_checksum(path)
    port = xrootd.server(
        scene,
        "from",
        scene.data.path.parent,
        f"{TPC} {XRDCP}",
        f"xrootd.chksum max 4 {sums}",
        *http_lines(0),
        *lines,
        env=env,
        is_near=True,
    )
    return f"{scene.ends.here}:{port}"


def keep_checksum(path: Path) -> None:
    """Store a file's adler32 as a server does when a file arrives, unless it is stored already."""
    with contextlib.suppress(OSError):
        os.getxattr(path, "user.XrdCks.adler32")
        return
    # If the file system keeps no attributes, the server computes the checksum on request.
    with contextlib.suppress(OSError):
        set_checksum(path, adler32(path))


@functools.cache
def adler32(path: Path) -> int:
    """Return the adler32 of a file, which never changes. Cached, because each round asks again."""
    value = 1
    with path.open("rb") as file:
        while block := file.read(4 << 20):
            value = zlib.adler32(block, value)
    return value


def _sink(scene: Scene, *lines: str, env: dict[str, str]) -> str:
    """Start the destination's server. Return its address."""
    # Export the parent of the sink folder, because the server does not accept its root as the
    # folder of a copy.
    root = scene.sink.parent
    sums = "xrootd.chksum max 4 adler32 crc32c"
    return f"{scene.ends.there}:{xrootd.server(scene, 'to', root, sums, *lines, env=env)}"


def _timed(scene: Scene, program: str) -> str:
    """Return the server's line for copies by ``program`` in a script that records its times."""
    script = scene.write("timed", [TIMED])
    return f"{TPC} /bin/sh {script} {scene.folder / 'to' / 'ran'} {program}"


# --- copies and queries ---------------------------------------------------------------------------


def _asked(scene: Scene, words: list[Word], source: str, sink: str) -> list[Word]:
    """Return a command that copies each file of the data set, ``AT_ONCE`` files at a time.

    :param words: the command that copies one file, without the two URLs.
    :param source: scheme and host of the source's URLs. ``sink`` has those of the destination's
        URLs.
    """
    user = scene.give_to_nobody()
    folder = scene.data.path.name
    names = sorted(path.name for path in scene.data.path.iterdir())
    urls = [(f"{source}/{folder}/{name}", f"{sink}/sink/{name}") for name in names]
    if len(urls) == 1:
        return [*user, *words, *urls[0]]
    # Copy file by file, as data managers do, because `xrdcp --recursive` gives all files of a
    # folder the same name.
    asked = scene.write("asked", [" ".join(pair) for pair in urls])
    return [*user, "xargs", "-a", asked, "-P", str(AT_ONCE), "-n", "2", *words]


def _xrdcp(
    scene: Scene, source: str, sink: str, *more: Word, env: dict[str, str] | None = None
) -> Command:
    """Return the stock client's command for a copy by the program of the destination's server."""
    words: list[Word] = ["xrdcp", "--nopbar", "--tpc", *(more or ("only",))]
    asked = _asked(scene, words, f"root://{source}/", f"root://{sink}/")
    notes = scene.folder / "to" / "ran"
    return Command(
        ["sh", "-c", '"$@" && cat "$0"', notes, *asked], env or {}, seconds=copying_seconds
    )


def _curl(scene: Scene, streams: int, source: str, sink: str) -> Command:
    """Return the command for a copy by HTTP."""
    words: list[Word] = ["sh", scene.write("copy", [COPY]), str(streams)]
    return Command(_asked(scene, words, f"http://{source}", f"http://{sink}"))


def _then_asked(prepare: Callable[[Scene], Command]) -> Callable[[Scene], Command]:
    """Extend a copy of one file: then query the destination for the checksum of the file."""

    def prepare_both(scene: Scene) -> Command:
        copied = prepare(scene)
        (file,) = scene.data.path.iterdir()
        there = urlsplit(os.fsdecode(copied.words[-1]))
        notes, user = scene.folder / "to" / "ran", scene.give_to_nobody()
        timed: list[Word] = [*user, "sh", scene.write("timed", [TIMED]), notes]
        # If the server runs a program, the server's script records the times of the copy.
        copy = copied.words if copied.seconds else [*timed, *copied.words[len(user) :]]
        path = f"/{there.path.lstrip('/')}"
        ask = [*timed, "xrdfs", f"root://{there.netloc}", "query", "checksum", path]
        lines = [shlex.join(os.fsdecode(word) for word in words) for words in (copy, ask)]
        words: list[Word] = ["sh", "-c", ASK.format(*lines), notes, f"{adler32(file):08x}"]
        return Command(words, copied.env, seconds=asking_seconds)

    return prepare_both


# --- by XRootD's own means ------------------------------------------------------------------------


def _stock(streams: int = 1, env: dict[str, str] | None = None) -> Callable[[Scene], Command]:
    def prepare(scene: Scene) -> Command:
        source = _source(scene, env={})
        sink = _sink(scene, _timed(scene, XRDCP), env=env or {})
        more = ("only", "--streams", str(streams)) if streams > 1 else ()
        return _xrdcp(scene, source, sink, *more)

    return prepare


def _http_sink(scene: Scene, *handler: str) -> str:
    """Start a destination's server that accepts copies by HTTP. Return its address."""
    certificates = scene.folder / "certificates"
    certificates.mkdir()
    # This version of XRootD loads the plug-in for copies only if TLS is configured. The data is
    # sent without TLS.
    make_certificates(certificates)
    return _sink(
        scene,
        *http_lines(0),
        f"xrd.tls {certificates}/host.pem {certificates}/host.key",
        f"xrd.tlsca certdir {certificates}/authorities",
        *handler,
        env={"X509_CERT_DIR": str(certificates / "authorities")},
    )


def _stock_http(streams: int) -> Callable[[Scene], Command]:
    def prepare(scene: Scene) -> Command:
        source = _source(scene, env={})
        sink = _http_sink(scene, "http.exthandler xrdtpc libXrdHttpTPC.so")
        return _curl(scene, streams, source, sink)

    return prepare


# --- with delegated credentials -------------------------------------------------------------------


def _delegated(
    program: Callable[[Scene], str], env: dict[str, str] | None = None
) -> Callable[[Scene], Command]:
    """Prepare a copy with delegated credentials, which may open the source more than once."""

    def prepare(scene: Scene) -> Command:
        own = scene.folder / "gsi"
        scene.give_to_nobody(own)
        own.mkdir(exist_ok=True)
        grid = gsi.make(Servers(own, own, own))
        source = _source(scene, lines=grid.lines(), env=grid.env)
        what = _timed(scene, program(scene)).replace(" pgm ", " fcreds gsi =X509_USER_PROXY pgm ")
        sink = _sink(scene, what, *grid.lines(), env={**grid.env, **(env or {})})
        # Use names, because the certificates contain names and no addresses.
        ends = [end.replace("127.0.0.1", "localhost") for end in (source, sink)]
        return _xrdcp(scene, *ends, "delegate", "only", env=grid.person)

    return prepare


# --- by dray --------------------------------------------------------------------------------------


def _program(scene: Scene, *settings: str) -> str:
    """Return the command of dray's program, with these settings in its configuration."""
    config = scene.write("tpc.toml", list(settings))
    return f"{scene.program.parent / PROGRAM} --config {config}"


def _dray(*settings: str, sums: str = "adler32") -> Callable[[Scene], Command]:
    def prepare(scene: Scene) -> Command:
        source = _source(scene, sums=sums, env={})
        sink = _sink(scene, _timed(scene, _program(scene, *settings)), env={})
        return _xrdcp(scene, source, sink)

    return prepare


def _dray_both(*, is_clear: bool) -> Callable[[Scene], Command]:
    def prepare(scene: Scene) -> Command:
        source = _source(scene, env={})
        user = scene.give_to_nobody(scene.folder / "dray")
        bench, server = ours.serve(
            scene, scene.data.path.parent, is_clear=is_clear, is_near=True, user=user
        )
        settings = [
            "[[endpoint]]",
            f"servers = {json.dumps([source])}",
            f"address = {json.dumps(server.address)}",
            f"peer_key = {json.dumps(server.fingerprint)}",
            f"token_file = {json.dumps(str(bench.token))}",
            f"clear_data = {json.dumps(is_clear)}",
        ]
        sink = _sink(scene, _timed(scene, _program(scene, *settings)), env={})
        return _xrdcp(scene, source, sink)

    return prepare


def _dray_http(scene: Scene) -> Command:
    programs = scene.program.parent
    settings = scene.write("http.cf", [f"program {programs / PROGRAM}"])
    # The server appends its version number to the name of the library.
    library = programs / PLUGIN.replace("-5.so", ".so")
    source = _source(scene, env={})
    sink = _http_sink(scene, f"http.exthandler dray {library} {settings}")
    return _curl(scene, STREAMS, source, sink)


# --- all of them ----------------------------------------------------------------------------------

#: Tools that show the machine's own limits for the same bytes: TCP without files, a copy without a
#: network, and a minimal transfer that still computes checksums at both ends.
LIMITS = ("iperf3-4", "cp", "by-hand")
#: XRootD's own copy as shipped, with one stream. The other tools are compared with it.
BASE = "stock"
DELEGATED_BASE = "stock-delegated"
NEEDS = ("xrootd", "xrdcp")
VERSION = ("xrdcp", "--version")
PLAIN = {"XRD_CPUSEPGWRTRD": "0"}


def _tool(
    name: str,
    title: str,
    kind: str,
    prepare: Callable[[Scene], Command],
    needs: tuple[str, ...] = NEEDS,
    *,
    travels: bool = True,
) -> Tool:
    is_ours = name.startswith("dray")
    return Tool(
        name, title, kind, prepare, needs, VERSION, is_ours=is_ours, is_open=True, travels=travels
    )


HTTP = ("xrootd", "curl", "openssl")
GSI = (*NEEDS, "xrdgsiproxy", "openssl")
TOOLS = (
    *(dataclasses.replace(tool, kind=LIMIT) for tool in peers.TOOLS if tool.name in LIMITS),
    _tool(BASE, "xrdcp --server, as shipped", STOCK, _stock()),
    _tool("stock-plain", "xrdcp --server, XRD_CPUSEPGWRTRD=0", STOCK, _stock(env=PLAIN)),
    _tool(
        "stock-plain-4",
        f"xrdcp --server, XRD_CPUSEPGWRTRD=0, {STREAMS} streams",
        STOCK,
        _stock(STREAMS, PLAIN),
    ),
    _tool(
        "stock-plain-8",
        f"xrdcp --server, XRD_CPUSEPGWRTRD=0, {STREAMS_MORE} streams",
        STOCK,
        _stock(STREAMS_MORE, PLAIN),
    ),
    _tool("stock-http-1", "HTTP COPY, 1 stream", STOCK, _stock_http(1), HTTP),
    _tool("stock-http-4", f"HTTP COPY, {STREAMS} streams", STOCK, _stock_http(STREAMS), HTTP),
    _tool("dray", "dray", DRAY, _dray()),
    _tool("dray-1", "dray, connections = 1", DRAY, _dray("connections = 1")),
    _tool(
        "dray-2-reads",
        "dray, connections = 1, readers = 2",
        DRAY,
        _dray("connections = 1", "readers = 2"),
    ),
    _tool("dray-pages", "dray, pages = true", PAGES, _dray("pages = true")),
    _tool(
        "dray-pages-only",
        "dray, pages = true, no checksum compared",
        PAGES,
        _dray("pages = true", 'compare = "never"'),
    ),
    _tool("dray-sum", "dray, a source that has to sum the file", DRAY, _dray(sums="crc32c")),
    _tool("dray-http", "dray, HTTP COPY", DRAY, _dray_http, HTTP),
    _tool("dray-both", "dray from a dray", BOTH, _dray_both(is_clear=True)),
    _tool(
        "dray-both-tls", "dray from a dray, encrypted (default)", BOTH, _dray_both(is_clear=False)
    ),
    # The certificates are valid only for the name of the loopback.
    _tool(
        DELEGATED_BASE,
        "xrdcp --server, XRD_CPUSEPGWRTRD=0, delegated credentials",
        DELEGATED,
        _delegated(lambda _: XRDCP, PLAIN),
        GSI,
        travels=False,
    ),
    _tool(
        "dray-delegated",
        "dray, delegated credentials",
        DELEGATED,
        _delegated(_program),
        GSI,
        travels=False,
    ),
    *(
        # The checksum query is about one file, so use only the sets with one file.
        dataclasses.replace(
            _tool(f"{name}-asked", f"{title}, then asked", ASKED, _then_asked(prepare), needs),
            sets="aw",
        )
        for name, title, prepare, needs in (
            ("stock-plain", "xrdcp --server, XRD_CPUSEPGWRTRD=0", _stock(env=PLAIN), NEEDS),
            (
                "stock-plain-8",
                f"xrdcp --server, XRD_CPUSEPGWRTRD=0, {STREAMS_MORE} streams",
                _stock(STREAMS_MORE, PLAIN),
                NEEDS,
            ),
            ("stock-http-1", "HTTP COPY, 1 stream", _stock_http(1), HTTP),
            ("dray", "dray", _dray(), NEEDS),
            ("dray-http", "dray, HTTP COPY", _dray_http, HTTP),
            ("dray-both", "dray from a dray", _dray_both(is_clear=True), NEEDS),
        )
    ),
)

OURS_BY_HTTP = {"dray-http", "dray-http-asked"}
#: The programs and libraries that are built, and the tools that need each of them.
BUILT = {
    PROGRAM: {tool.name for tool in TOOLS if tool.is_ours},
    SHIM: {tool.name for tool in TOOLS if tool.is_ours} - OURS_BY_HTTP,
    PLUGIN: OURS_BY_HTTP,
}
