"""Endpoints whose root is a folder of an XRootD server or of a web server."""

from __future__ import annotations

import http.server
import threading
from typing import TYPE_CHECKING

import pytest

from dray import DrayError
from dray.testing.endpoints import Root
from dray.testing.proxy import Proxy
from integration.harness import tree
from integration.harness.program import Process
from integration.harness.tree import MIB, hash_file, make_file
from integration.xrootd.servers import PATIENCE, SHIM, find, give

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dray.testing.endpoints import Endpoint
    from integration.xrootd.servers import Scene, Xrootd

pytestmark = [pytest.mark.server, pytest.mark.timeout(900)]

SIZE = 128 * MIB + 7
#: Rate of a transfer that takes long enough to be interrupted.
RATE = "24MiB"
#: Maximum bytes that are sent again after a lost session: those of a sync group, and those in
#: flight.
TWICE_MAX = 80 * MIB
END_SECONDS = 240.0


@pytest.fixture
def server(bare: Scene, monkeypatch: pytest.MonkeyPatch) -> Xrootd:
    """Start a server with a folder ``top``. Let endpoints load the library over XrdCl."""
    for name, value in {**PATIENCE, "DRAY_XRDCL": str(find(SHIM))}.items():
        monkeypatch.setenv(name, value)
    server = bare.server("grid", tpc=None)
    top = server.path("top")
    top.mkdir()
    give(top)
    return server


@pytest.fixture
def proxies() -> Iterator[list[Proxy]]:
    """Yield a list. At the end of the test, close the proxies in it."""
    started: list[Proxy] = []
    yield started
    for proxy in started:
        proxy.close()


class Pair:
    """An endpoint with a folder, and an endpoint whose root is on an XRootD server."""

    def __init__(
        self,
        start: Callable[..., Endpoint],
        proxies: list[Proxy],
        server: Xrootd,
        folder: Path,
        *,
        into: bool,
    ) -> None:
        """Start both endpoints, and a proxy in front of the source.

        :param into: whether the endpoint with the XRootD server is the sink.
        """
        self.folder = folder
        self.proxy = Proxy("127.0.0.1:1")
        proxies.append(self.proxy)
        behind = {"advertise": self.proxy.address}
        store = [Root("data", {"store": server.at("top")})]
        self.near = start("near", config=behind if into else {})
        self.grid = start("grid", roots=store, config={} if into else behind)
        self.source, self.sink = (self.near, self.grid) if into else (self.grid, self.near)
        self.proxy.upstream = self.source.address

    def begin(self, source: str, to: str) -> Process:
        """Start ``dray cp`` from the source to the sink. The sink drives the transfer."""
        words: list[str | Path] = ["-r"] if source.endswith("/") else []
        for endpoint in (self.source, self.sink):
            token = self.folder / f"{endpoint.name}.token"
            token.write_text(endpoint.token())
            token.chmod(0o600)
            words += ["--token-file", f"{endpoint.address}={token}"]
            words += ["--peer-key", f"{endpoint.address}={endpoint.key}"]
        ends = [self.source.place(source), self.sink.place(to)]
        how = ["--progress", "json", "--json", "--rate", RATE]
        return Process([self.sink.program, "cp", *how, *ends, *words], self.folder, "cp")

    def sent(self) -> int:
        """Return how many bytes the source has sent through the proxy."""
        return self.proxy.counted()[1]


@pytest.mark.full
def test_a_transfer_into_a_server_survives_killed_endpoints(
    start_endpoint: Callable[..., Endpoint],
    proxies: list[Proxy],
    server: Xrootd,
    tmp_path: Path,
) -> None:
    pair = Pair(start_endpoint, proxies, server, tmp_path, into=True)
    made = pair.near.root("a")
    make_file(made, SIZE, seed=5)
    copy = pair.begin("a", "in/a")
    pair.proxy.await_bytes(80 * MIB)
    pair.sink.kill()
    pair.sink.start()
    pair.proxy.await_bytes(100 * MIB)
    pair.source.kill()
    pair.source.start()
    ended = copy.wait(END_SECONDS).expect(0)
    assert ended.report["state"] == "done", ended.out
    assert hash_file(server.path("top/in/a")) == hash_file(made)
    assert pair.sent() < SIZE + 2 * TWICE_MAX
    print(f"sent twice: {(pair.sent() - SIZE) / MIB:.1f} MiB")
    assert tree.leftovers(server.data) == []


def test_a_transfer_out_of_a_server_survives_a_killed_endpoint(
    start_endpoint: Callable[..., Endpoint],
    proxies: list[Proxy],
    server: Xrootd,
    tmp_path: Path,
) -> None:
    pair = Pair(start_endpoint, proxies, server, tmp_path, into=False)
    made = server.path("top/a")
    make_file(made, SIZE, seed=6)
    give(made)
    copy = pair.begin("a", "in/a")
    pair.proxy.await_bytes(80 * MIB)
    pair.source.kill()
    pair.source.start()
    copy.wait(END_SECONDS).expect(0)
    assert hash_file(pair.near.root("in/a")) == hash_file(made)
    assert pair.sent() < SIZE + TWICE_MAX
    print(f"sent twice: {(pair.sent() - SIZE) / MIB:.1f} MiB")
    assert tree.leftovers(pair.near.root()) == []


def test_calls_of_the_api_work_or_are_refused(
    start_endpoint: Callable[..., Endpoint], server: Xrootd
) -> None:
    grid = start_endpoint("grid", roots=[Root("data", {"store": server.at("top")})])
    with grid.client() as client:
        assert client.mkdir("/data/d/e", parents=True).type == "directory"
        made = server.path("top/d/f")
        made.write_bytes(b"12345")
        give(made)
        assert client.stat("/data/d/f").size == 5
        assert [entry.name for entry in client.list("/data/d")] == ["e", "f"]
        assert client.checksum("/data/d/f", "adler32").checksum == "02f80100"
        with pytest.raises(DrayError) as caught:
            client.rename("/data/d/f", "/data/d/g")
        assert "storage system" in str(caught.value)
        with pytest.raises(DrayError):
            client.stat("/data/none")
        client.rm("/data/d", recursive=True)
        assert not server.path("top/d").exists()


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A web server without WebDAV."""

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


def test_a_store_unfit_as_a_root_ends_the_start(
    start_endpoint: Callable[..., Endpoint], server: Xrootd
) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as web:
        threading.Thread(target=web.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{web.server_port}/"
        for options, words in [
            ({"store": url}, "read_only = true"),
            ({"store": server.at("none")}, "does not exist"),
            ({"store": "root://127.0.0.1:1//d"}, "Connection error"),
            ({"store": "ftp://127.0.0.1/d"}, "dray supports no storage system with URLs"),
            ({"store": server.at("top"), "tier": "fast"}, '"fast" needs a folder'),
        ]:
            with pytest.raises(RuntimeError) as caught:
                start_endpoint("x", roots=[Root("data", options)])
            message = str(caught.value)
            assert words in message, message
            assert "data" in message, message
        web.shutdown()
