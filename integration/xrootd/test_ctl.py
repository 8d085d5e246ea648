"""An XRootD server with dray's plug-in, which gives readers tickets for the endpoint beside it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dray.testing.endpoints import Root
from integration.harness import tree
from integration.harness.tree import hash_file
from integration.wire.peer import Peer, connect, hello
from integration.xrootd import gsi
from integration.xrootd.asker import ask
from integration.xrootd.files import await_safe, configured, copies, make
from integration.xrootd.servers import HERE, PATIENCE, SHIM, copy_programs, exported, find, give

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dray.testing.endpoints import Endpoint
    from integration.harness.program import Word
    from integration.xrootd.servers import Scene, Xrootd

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

MIB = 1 << 20
#: File name of dray's plug-in. A server's configuration names it without the number.
PLUGIN = "libDrayXrdCtl-5.so"
SOURCE = 0
NOWHERE = "no endpoint was found"


@pytest.fixture(scope="module")
def plugin(shared: Path) -> Path:
    """Return a folder with the plug-in, which the servers' user may read."""
    folder = shared / "ctl"
    copy_programs(folder, [PLUGIN])
    return folder


@pytest.fixture(autouse=True)
def release_program(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make endpoints run the release program."""
    monkeypatch.setenv("DRAY_PROGRAM", str(program))


class Site:
    """An XRootD server with the plug-in, and an endpoint that exports the same folder."""

    def __init__(
        self,
        scene: Scene,
        plugin: Path,
        start_endpoint: Callable[..., Endpoint],
        *,
        settings: Sequence[str] = (),
        lines: Sequence[str] = (),
        env: dict[str, str] | None = None,
    ) -> None:
        """Start the endpoint and the XRootD server.

        :param settings: last lines of the plug-in's configuration. They override earlier lines.
        :param lines: additional lines of the server's configuration.
        """
        self.scene = scene
        tpc = "pgm /bin/false"
        self.source = scene.server("source", tpc=tpc, lines=lines, env=env, start=False)
        self.audit = scene.folder / "audit"
        self.endpoint = start_endpoint(
            "beside",
            roots=[Root(options={"path": str(self.source.data)})],
            config={"audit": {"file": str(self.audit)}},
        )
        self.token = scene.folder / "token"
        self.token.write_text(self.endpoint.token("storage.read:/data") + "\n", encoding="ascii")
        self.token.chmod(0o600)
        give(self.token)
        said = [
            f"endpoint {self.endpoint.address}",
            f"peer_key {self.endpoint.key}",
            f"token_file {self.token}   # of mode 600",
            f"root data {self.source.data}",
            *settings,
        ]
        own = scene.folder / "ctl.cf"
        own.write_text("\n".join([*said, ""]), encoding="utf-8")
        self.source.lines.append(f"ofs.ctllib {plugin}/libDrayXrdCtl.so {own}")
        self.source.start()

    def sessions(self) -> list[dict[str, Any]]:
        """Return the audit records of the sessions that the endpoint has served or refused."""
        if not self.audit.exists():
            return []
        lines = self.audit.read_text(encoding="utf-8").splitlines()
        return [line for line in map(json.loads, lines) if line["audit"] == "session"]

    def tickets(self) -> list[Any]:
        """Return the issued tickets, oldest first."""
        with self.endpoint.client() as client:
            return list(client.tickets())[::-1]

    def ask(self, path: str, question: str) -> dict[str, Any]:
        """Open a file for reading, and send the server a query about the open file."""
        return ask(find(SHIM), self.source.at(path), question, PATIENCE)

    def ticket(self, path: str, key: str, transfer: str = "t") -> dict[str, str]:
        """Open a file for reading, and get a ticket that is bound to ``key``."""
        said = self.ask(path, f"dray ticket 1 {transfer} {key}")
        assert "answer" in said, f"{said}\n{self.source.said()}"
        answer: dict[str, str] = json.loads(said["answer"])
        return answer


def sink_of(scene: Scene, *config: str) -> Xrootd:
    """Start a destination whose copies dray makes. Its settings name no endpoint."""
    return scene.server("sink", tpc=configured(scene, *config))


def copy(site: Site, sink: Xrootd, path: str) -> None:
    """Copy a file by ``xrdcp``, and compare it with its source."""
    name = Path(path).name
    site.scene.xrdcp("--tpc", "only", site.source.at(path), sink.at(name)).expect(0)
    assert hash_file(sink.path(name)) == hash_file(site.source.path(path))


def test_the_bytes_come_from_the_dray_that_the_server_names(
    scene: Scene, plugin: Path, start_endpoint: Callable[..., Endpoint]
) -> None:
    """The destination learns the endpoint from the source. Each ticket is for one file and key."""
    site, sink = Site(scene, plugin, start_endpoint), sink_of(scene)
    sizes = {"a": 64 * MIB + 5, "b%d": 3 * MIB}
    for name, size in sizes.items():
        make(site.source, name, size)
        copy(site, sink, name)
        checksum = site.source.checksum(name, "adler32")
        assert sink.checksum(name, "adler32") == checksum
    sessions = site.sessions()
    assert [each["bytes_durable"] for each in sessions] == list(sizes.values()), sessions
    assert copies(sink) == [(size, 0) for size in sizes.values()]
    first, second = site.tickets()
    assert (first.paths, second.paths) == (("/data/a",), ("/data/b%25d",))
    assert first.peer_key != second.peer_key
    # A ticket is valid for at most one hour, including its renewals: another file may get its path
    # later.
    assert first.renewable_until - first.issued_at <= timedelta(hours=1)
    assert tree.leftovers(sink.data) == []
    # The logs contain no token and no ticket.
    log_text = site.source.said() + sink.said()
    assert "ticket for" in log_text
    assert site.token.read_text(encoding="ascii").strip() not in log_text
    assert "drt_" not in log_text


def test_an_empty_file_needs_no_endpoint(
    scene: Scene, plugin: Path, start_endpoint: Callable[..., Endpoint]
) -> None:
    site, sink = Site(scene, plugin, start_endpoint), sink_of(scene)
    make(site.source, "a", 0)
    copy(site, sink, "a")
    assert site.tickets() == []


def test_a_ticket_opens_its_own_file_for_its_own_key_and_its_time(
    scene: Scene, plugin: Path, start_endpoint: Callable[..., Endpoint]
) -> None:
    """A ticket is valid for one file, one transfer and one key, and for a limited time."""
    settings = ["lifetime_seconds 12", "renewable_seconds 12"]
    site = Site(scene, plugin, start_endpoint, settings=settings)
    for name in ("a", "b", "deep/a"):
        make(site.source, name, MIB)
    reader, thief = start_endpoint("reader"), start_endpoint("thief")
    given = site.ticket("a", reader.key)
    until = time.monotonic() + 12
    assert given["key"] == site.endpoint.key
    assert given["path"] == "/data/a"

    def dial(
        secret: str, holder: Endpoint | None, path: str = "/data/a", transfer: str = "t"
    ) -> dict[str, Any]:
        identity = holder.folder / "endpoint" / "identity.pem" if holder else None
        peer = Peer(given["address"], identity)
        try:
            peer.tls.sendall(hello(secret.encode()))
            frame = peer.next()
            if frame["type"] == "HELLO":
                peer.tls.sendall(connect(SOURCE, path.encode(), transfer=transfer.encode()))
                frame = peer.next()
            return frame
        finally:
            peer.tls.close()

    ticket = given["ticket"]
    forged = ticket[:-1] + ("A" if ticket[-1] != "A" else "B")
    other = "the other end of the connection"
    refused = {
        "the ticket does not allow the path /data/b": dial(ticket, reader, "/data/b"),
        "the ticket does not allow the path /data/deep/a": dial(ticket, reader, "/data/deep/a"),
        "the ticket does not allow the path /data": dial(ticket, reader, "/data"),
        "the ticket was issued for transfer t, not for transfer u": dial(
            ticket, reader, transfer="u"
        ),
        "this endpoint did not issue the ticket": dial(forged, reader),
        f"the ticket is bound to a key that differs from the key of {other}": dial(ticket, thief),
        f"the ticket is bound to a key, but {other} presented no key": dial(ticket, None),
    }
    good = dial(ticket, reader)
    for why, frame in refused.items():
        assert frame["type"] == "REFUSE", f"{why}: {frame}"
        assert frame["fields"]["error"]["cause"].endswith(why), frame
    assert good["type"] == "ACCEPT", good
    # Its session has ended, so the ticket is not renewed, and expires.
    time.sleep(max(0.0, until - time.monotonic()) + 1)
    late = dial(ticket, reader)
    assert late["type"] == "REFUSE", late
    assert "the ticket expired" in late["fields"]["error"]["cause"], late


def test_a_client_without_read_permission_gets_no_ticket(
    scene: Scene, plugin: Path, start_endpoint: Callable[..., Endpoint]
) -> None:
    """A client gets a ticket only for an open file. A query by path gets none."""
    rights = scene.folder / "rights"
    rights.write_text("u * /open rl\n", encoding="ascii")
    lines = ["ofs.authorize 1", f"acc.authdb {rights}"]
    site, sink = Site(scene, plugin, start_endpoint, lines=lines), sink_of(scene)
    for name in ("open/a", "closed/a"):
        make(site.source, name, 2 * MIB)
    refused = scene.xrdcp("--tpc", "only", site.source.at("closed/a"), sink.at("a"))
    assert refused.code != 0
    assert "denied" in refused.out + refused.words
    question = f"dray ticket 1 t sha256:{'0' * 64}"
    for asked in (site.ask("closed/a", question), site.ask("open/../closed/a", question)):
        assert asked["failed"] == "open", asked
    for query in (["opaque", question], ["opaquefile", f"/closed/a?{question}"]):
        answer = scene.run("xrdfs", site.source.url, "query", *query)
        assert answer.code != 0, answer.out
        assert "drt_" not in answer.out + answer.words
    for bad in ("dray ticket 2 t sha256:0", "dray ticket 1 t sha256:00", "dray ticket 1"):
        assert site.ask("open/a", bad)["failed"] == "ask", bad
    assert "not supported" in site.ask("open/a", "something else")["error"]
    assert site.tickets() == []
    assert not sink.path("a").exists()
    copy(site, sink, "open/a")
    assert [each.paths for each in site.tickets()] == [("/data/open/a",)]


def test_a_handle_open_for_update_gets_no_ticket(
    scene: Scene, plugin: Path, start_endpoint: Callable[..., Endpoint]
) -> None:
    """A client that has opened a file for update may not be allowed to read it."""
    asker = scene.folder / "update_asker"
    source = Path(__file__).parent / "update_asker.cc"
    words: list[Word] = [
        "c++",
        "-std=c++17",
        "-I/usr/include/xrootd",
        source,
        "-o",
        asker,
        "-lXrdCl",
    ]
    subprocess.run(words, check=True, capture_output=True, timeout=120)
    site = Site(scene, plugin, start_endpoint)
    make(site.source, "a", MIB)
    question = f"dray ticket 1 t sha256:{'0' * 64}"
    asked = scene.run(asker, site.source.at("a"), question).expect(0)
    assert asked.out.startswith("refused: "), asked.out
    assert "the file is not open for reading only" in site.source.said()
    assert site.tickets() == []


def test_delegated_credentials_get_a_ticket(
    scene: Scene, plugin: Path, start_endpoint: Callable[..., Endpoint]
) -> None:
    """A destination with the delegated proxy of a person gets a ticket for the person's file."""
    grid = gsi.make(scene)
    site = Site(scene, plugin, start_endpoint, lines=grid.lines(), env=grid.env)
    what = f"fcreds gsi =X509_USER_PROXY pgm {scene.programs / 'dray-xrootd-tpc'}"
    sink = scene.server("sink", lines=grid.lines(), env=grid.env, tpc=what)
    made = make(site.source, "a", 20 * MIB)
    urls = [server.at("a").replace("127.0.0.1", "localhost") for server in (site.source, sink)]
    scene.xrdcp("--tpc", "delegate", "only", *urls, env=grid.person).expect(0)
    assert hash_file(sink.path("a")) == hash_file(made)
    assert [each["bytes_durable"] for each in site.sessions()] == [20 * MIB]
    assert len(site.tickets()) == 1


@pytest.mark.parametrize("fault", ["away", "another key", "no token", "no such token"])
def test_without_its_endpoint_the_server_is_read(
    scene: Scene, plugin: Path, start_endpoint: Callable[..., Endpoint], fault: str
) -> None:
    """If the source's endpoint fails, the copy reads from the XRootD server. Both logs say why."""
    settings = [f"peer_key sha256:{'0' * 64}"] if fault == "another key" else []
    site, sink = Site(scene, plugin, start_endpoint, settings=settings), sink_of(scene)
    if fault == "away":
        site.endpoint.kill()
    elif fault == "no token":
        site.token.unlink()
    elif fault == "no such token":
        site.token.write_text("one-that-nobody-knows\n", encoding="ascii")
    make(site.source, "a", 5 * MIB)
    copy(site, sink, "a")
    words = {
        "away": "Connection refused",
        "another key": "not the configured peer_key",
        "no token": "token file",
        "no such token": "answers 401",
    }
    assert re.search(rf"no ticket for /a .*{words[fault]}", site.source.said())
    assert "the endpoint at the source denied access" in sink.said()
    assert site.sessions() == []


@pytest.fixture
def trickle() -> Iterator[int]:
    """Yield the port of a peer that sends a long TLS record, one byte every 0.2 s."""
    ends = threading.Event()

    def serve(client: socket.socket) -> None:
        # Send the header of a TLS record of 16 KiB, and then only 100 bytes of it.
        with client, contextlib.suppress(OSError):
            client.sendall(b"\x16\x03\x03\x40\x00")
            for _ in range(100):
                if ends.wait(0.2):
                    return
                client.sendall(b"\x02")

    def accept() -> None:
        with contextlib.suppress(OSError):
            while not ends.is_set():
                client, _ = listener.accept()
                threads.append(threading.Thread(target=serve, args=(client,)))
                threads[-1].start()

    with socket.create_server((HERE, 0)) as listener:
        threads = [threading.Thread(target=accept)]
        threads[0].start()
        yield listener.getsockname()[1]
        ends.set()
        listener.shutdown(socket.SHUT_RDWR)
    for thread in threads:
        thread.join()


def test_an_endpoint_that_trickles_is_given_up(
    scene: Scene, plugin: Path, start_endpoint: Callable[..., Endpoint], trickle: int
) -> None:
    """The plug-in waits at most ``wait_seconds``, even if bytes keep arriving."""
    settings = ["wait_seconds 1", f"endpoint {HERE}:{trickle}"]
    site = Site(scene, plugin, start_endpoint, settings=settings)
    make(site.source, "a", MIB)
    asked = site.ask("a", f"dray ticket 1 t sha256:{'0' * 64}")
    assert asked["failed"] == "ask", asked
    # The peer closes the connection after 20 s. The plug-in gave up before.
    assert (
        "cannot call the endpoint: the endpoint did not answer within the time limit"
        in site.source.said()
    )


def test_an_endpoints_name_is_resolved_at_the_start(
    scene: Scene, plugin: Path, start_endpoint: Callable[..., Endpoint]
) -> None:
    """The server resolves the endpoint's name at its start. If this fails, it does not start."""
    site = Site(scene, plugin, start_endpoint)
    make(site.source, "a", MIB)
    own = scene.folder / "ctl.cf"
    settings_text = own.read_text(encoding="utf-8")
    port = site.endpoint.address.rpartition(":")[2]
    own.write_text(f"{settings_text}endpoint localhost:{port}\n", encoding="utf-8")
    site.source.kill()
    site.source.start()
    assert site.ticket("a", f"sha256:{'0' * 64}")["path"] == "/data/a"
    site.source.kill()
    # This name is invalid without a query of a name server: a label has at most 63 characters.
    own.write_text(f"{settings_text}endpoint {'x' * 64}:{port}\n", encoding="utf-8")
    with contextlib.suppress(AssertionError):
        site.source.start()
    assert site.source.process is not None
    assert site.source.process.wait(60).code != 0
    assert f"the endpoint {'x' * 64} has no address" in site.source.said()


@pytest.mark.parametrize("first", ["dray", "server"])
def test_durable_data_is_kept_across_routes(
    scene: Scene, plugin: Path, start_endpoint: Callable[..., Endpoint], first: str
) -> None:
    """A killed copy keeps its durable data, also if the endpoint fails or returns meanwhile."""
    site, sink = Site(scene, plugin, start_endpoint), sink_of(scene, f"rate = {32 * MIB}")
    make(site.source, "a", 64 * MIB)
    if first == "server":
        site.endpoint.kill()
    words = ["--tpc", "only", site.source.at("a"), sink.at("a")]
    client = scene.begin("xrdcp", "--nopbar", *words)
    await_safe(sink, 16 * MIB)
    (job,) = sink.jobs()
    if first == "dray":
        site.endpoint.kill()
    os.kill(job, signal.SIGKILL)
    assert client.wait(60).code != 0
    if first == "server":
        site.endpoint.start()
        # The server does not call a failed endpoint again for some seconds.
        time.sleep(6)
    copy(site, sink, "a")
    ((sent, resumed),) = copies(sink)
    assert resumed > 0
    assert sent + resumed == 64 * MIB
    # A copy that began to read from the XRootD server continues to do so: the endpoint uses
    # smaller objects, and would have to send all data again.
    assert ("reading from the XRootD server instead" in sink.said()) == (first == "server")
    assert [each for each in site.sessions() if not each["error"]] == []
    assert tree.leftovers(sink.data) == []


def test_a_file_that_lies_elsewhere_is_read_from_the_server(
    scene: Scene, plugin: Path, start_endpoint: Callable[..., Endpoint]
) -> None:
    """The server follows a link out of the exported folder. The endpoint does not."""
    site, sink = Site(scene, plugin, start_endpoint), sink_of(scene)
    other = scene.folder / "other"
    other.mkdir()
    make(site.source, "a", 2 * MIB).rename(other / "a")
    site.source.path("a").symlink_to(other / "a")
    copy(site, sink, "a")
    assert "is in none of the folders" in site.source.said()
    assert site.tickets() == []


@pytest.mark.parametrize("fault", ["missing", "open to others", "empty"])
def test_without_a_token_the_server_does_not_start(
    scene: Scene, plugin: Path, start_endpoint: Callable[..., Endpoint], fault: str
) -> None:
    """The error names the token file and its fault."""
    token = scene.folder / "other-token"
    if fault != "missing":
        token.write_text("" if fault == "empty" else "a-token\n", encoding="ascii")
        token.chmod(0o640 if fault == "open to others" else 0o600)
        give(token)
    # The server exits when it loads the plug-in. If it has not listened before, ``Site`` raises
    # an AssertionError.
    with contextlib.suppress(AssertionError):
        Site(scene, plugin, start_endpoint, settings=[f"token_file {token}"])
    (source,) = scene.servers
    assert source.process is not None
    assert source.process.wait(60).code != 0
    log_text = source.said()
    words = {
        "missing": "No such file",
        "open to others": "can be read by other users: run chmod 600",
        "empty": "is empty",
    }
    assert f"the token file {token} {words[fault]}" in log_text.replace("cannot be read: ", "")


def test_a_server_without_an_endpoint_is_asked_once(scene: Scene) -> None:
    """The destination queries a stock source once, and remembers for all copies that it failed."""
    source = scene.server("source", tpc="pgm /bin/false")
    sink = sink_of(scene)
    for name in ("a", "b", "c"):
        make(source, name, MIB)
        scene.xrdcp("--tpc", "only", source.at(name), sink.at(name)).expect(0)
        assert sink.said().count(NOWHERE) == 1
    assert sink.said().count("skipping the endpoint lookup at ") == 2
    (known,) = sink.admin.rglob("dray-deaf-servers")
    assert f"127.0.0.1]:{source.port}" in known.read_text(encoding="ascii") or (
        f"127.0.0.1:{source.port}" in known.read_text(encoding="ascii")
    )


def test_a_destination_configured_not_to_ask_does_not(
    scene: Scene, plugin: Path, start_endpoint: Callable[..., Endpoint]
) -> None:
    site, sink = Site(scene, plugin, start_endpoint), sink_of(scene, "ask_source = false")
    make(site.source, "a", MIB)
    copy(site, sink, "a")
    assert site.tickets() == []
    assert NOWHERE not in sink.said()


def test_the_plugin_exports_its_entry_alone() -> None:
    assert exported(PLUGIN) == {"XrdOfsFSctl", "XrdOfsFSctl_"}
