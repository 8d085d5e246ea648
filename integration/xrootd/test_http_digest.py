"""Checksums (``Repr-Digest``, ``Digest``) and denied addresses of HTTP third-party copies."""

from __future__ import annotations

import base64
import os
import time
import zlib
from typing import TYPE_CHECKING

import pytest

from integration.web.server import WebServer
from integration.xrootd.curl import ask, assert_good, failure
from integration.xrootd.http import copying, nginx, xrootd
from integration.xrootd.servers import give

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from integration.web.server import Asked, Reply
    from integration.xrootd.http import Copying
    from integration.xrootd.servers import Scene

pytestmark = pytest.mark.server

CONTENT = bytes(range(256)) * 8192 + b"end"
REQUIRED = "RequireChecksumVerification: true"


@pytest.fixture
def sink(bare: Scene, plugins: Path, certificates: Path) -> Copying:
    """Start the server that gets the requests to copy."""
    return copying(bare, plugins, certificates)


def repr_digest(content: bytes, algorithm: str = "adler") -> str:
    """Return the value of ``Repr-Digest`` for a content (RFC 9530)."""
    value = zlib.adler32(content).to_bytes(4, "big")
    return f"{algorithm}=:{base64.b64encode(value).decode()}:"


def unchanged(asked: Asked, reply: Reply) -> None:
    """Answer as a server without checksums."""


def make(folder: Path, name: str, content: bytes) -> Path:
    """Make a file with a time 10 s ago. HTTP has times in whole seconds."""
    at = folder / name
    at.write_bytes(content)
    old = int(time.time()) - 10
    os.utime(at, (old, old))
    give(at)
    return at


# --- pulls ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["nginx", "xrootd"])
def test_the_clients_checksum_is_compared(bare: Scene, sink: Copying, kind: str) -> None:
    """A wrong ``Repr-Digest`` of the client fails the pull, also if the source has no checksum."""
    web = nginx(bare) if kind == "nginx" else xrootd(bare)[0]
    make(web.data, "a", CONTENT)
    source = f"Source: {web.url}/a"
    wrong = ask(bare, f"{sink.url}/b", source, f"Repr-Digest: {repr_digest(b'other')}")
    assert "checksum" in failure(wrong)
    assert list(sink.data.iterdir()) == []
    # The checksum of the client replaces the checksum that nginx does not have.
    right = f"Repr-Digest: sha-256=:AAAA:, {repr_digest(CONTENT)}"
    assert_good(ask(bare, f"{sink.url}/b", source, right, REQUIRED))
    assert (sink.data / "b").read_bytes() == CONTENT


def test_an_unsupported_checksum_of_the_client_is_ignored(bare: Scene, sink: Copying) -> None:
    """The copy succeeds without the checksum. The server's log says that it was not compared."""
    web = nginx(bare)
    make(web.data, "a", CONTENT)
    header = "Repr-Digest: sha-256=:AAAA:"
    assert_good(ask(bare, f"{sink.url}/b", f"Source: {web.url}/a", header))
    assert "dray ignores the header" in sink.server.said()
    refused = ask(bare, f"{sink.url}/c", f"Source: {web.url}/a", header, REQUIRED)
    assert "checksum" in failure(refused)


@pytest.mark.parametrize("algorithm", ["adler", "adler32"])
def test_a_source_with_repr_digest_only_is_compared(
    bare: Scene, sink: Copying, algorithm: str
) -> None:
    """The source answers ``Want-Repr-Digest``, and does not know ``Want-Digest``."""
    sent = [repr_digest(b"other", algorithm)]

    def change(asked: Asked, reply: Reply) -> None:
        if "want-repr-digest" in asked.headers:
            reply.headers["Repr-Digest"] = sent[0]

    with WebServer(CONTENT, change) as server:
        source = f"Source: {server.url}/a"
        assert "checksum" in failure(ask(bare, f"{sink.url}/b", source, REQUIRED))
        assert list(sink.data.iterdir()) == []
        sent[0] = repr_digest(CONTENT, algorithm)
        assert_good(ask(bare, f"{sink.url}/b", source, REQUIRED))
        wanted = [each.headers for each in server.asked if "want-digest" in each.headers]
        assert {each["want-repr-digest"] for each in wanted} == {"adler=10, crc32c=5"}
    assert (sink.data / "b").read_bytes() == CONTENT


# --- pushes ---------------------------------------------------------------------------------------


def test_a_push_sends_the_clients_checksum(bare: Scene, sink: Copying) -> None:
    """The other server gets ``Repr-Digest`` with the file. A wrong checksum fails the push."""
    make(sink.data, "a", CONTENT)
    with WebServer(b"", unchanged) as server:
        to = f"Destination: {server.url}/b"
        right = repr_digest(CONTENT)
        assert_good(ask(bare, f"{sink.url}/a", to, f"Repr-Digest: {right}"))
        assert server.content == CONTENT
        wrong = repr_digest(b"other")
        said = failure(ask(bare, f"{sink.url}/a", to, f"Repr-Digest: {wrong}"))
        assert "the header Repr-Digest contains the checksum" in said
        puts = [each.headers for each in server.asked if each.method == "PUT"]
        assert [each.get("repr-digest") for each in puts] == [right, wrong]


def test_a_push_sends_the_stored_checksum(bare: Scene, sink: Copying) -> None:
    """A file that dray copied has its checksum in an attribute. A later push sends the checksum."""
    web = nginx(bare)
    make(web.data, "a", CONTENT)
    assert_good(ask(bare, f"{sink.url}/a", f"Source: {web.url}/a"))
    make(sink.data, "plain", CONTENT)
    with WebServer(b"", unchanged) as server:
        for name in ("a", "plain"):
            assert_good(ask(bare, f"{sink.url}/{name}", f"Destination: {server.url}/b"))
        puts = [each.headers for each in server.asked if each.method == "PUT"]
        assert [each.get("repr-digest") for each in puts] == [repr_digest(CONTENT), None]


def test_a_receiver_with_repr_digest_only_is_compared(bare: Scene, sink: Copying) -> None:
    """After a push, the receiver's ``Repr-Digest`` is compared with the sent bytes."""
    make(sink.data, "a", CONTENT)
    sent = [repr_digest(CONTENT)]

    def change(asked: Asked, reply: Reply) -> None:
        if "want-repr-digest" in asked.headers:
            reply.headers["Repr-Digest"] = sent[0]

    with WebServer(b"", change) as server:
        to = f"Destination: {server.url}/b"
        assert_good(ask(bare, f"{sink.url}/a", to, REQUIRED))
        sent[0] = repr_digest(b"other")
        assert "has the checksum" in failure(ask(bare, f"{sink.url}/a", to))


# --- addresses ------------------------------------------------------------------------------------


def limited(bare: Scene, plugins: Path, certificates: Path, lines: Sequence[str] = ()) -> Copying:
    """Start a server whose copies have these settings."""
    config = bare.folder / "limited.toml"
    config.write_text("\n".join([*lines, ""]), encoding="ascii")
    config.chmod(0o644)
    return copying(bare, plugins, certificates, settings=[f"config {config}"])


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.2", "[::ffff:127.0.0.1]"])
def test_local_addresses_are_denied_by_default(
    bare: Scene, plugins: Path, certificates: Path, host: str
) -> None:
    """A client cannot read or write services of the server's own host."""
    sink = limited(bare, plugins, certificates)
    make(sink.data, "a", b"secret")
    with WebServer(CONTENT, unchanged) as server:
        url = server.url.replace("127.0.0.1", host)
        for name, header in [("b", f"Source: {url}/x"), ("a", f"Destination: {url}/x")]:
            said = failure(ask(bare, f"{sink.url}/{name}", header))
            assert "is denied by the settings of this host" in said, said
            assert "allow_addresses" in said
        assert server.asked == []
    assert not (sink.data / "b").exists()


def test_a_redirect_to_a_denied_address_is_not_followed(
    bare: Scene, plugins: Path, certificates: Path
) -> None:
    """An allowed server redirects to another address of the host, which is denied."""
    allowed = ["allow_addresses = ['127.0.0.2']"]
    sink = limited(bare, plugins, certificates, allowed)

    def redirect(asked: Asked, reply: Reply) -> None:
        if asked.method != "PROPFIND":
            reply.status, reply.body = 307, b""
            reply.headers = {"Location": f"{inner.url}/x"}

    with WebServer(CONTENT, unchanged) as inner:
        with WebServer(CONTENT, redirect, host="127.0.0.2") as outer:
            said = failure(ask(bare, f"{sink.url}/b", f"Source: {outer.url}/x"))
        assert "127.0.0.1 is denied by the settings of this host" in said
        assert inner.asked == []
    with WebServer(CONTENT, unchanged, host="127.0.0.2") as server:
        assert_good(ask(bare, f"{sink.url}/b", f"Source: {server.url}/x"))
    assert (sink.data / "b").read_bytes() == CONTENT


def test_a_malformed_set_of_addresses_fails_the_copy(
    bare: Scene, plugins: Path, certificates: Path
) -> None:
    """A setting that cannot be parsed denies everything, and the answer names the setting."""
    sink = limited(bare, plugins, certificates, ["deny_addresses = ['lokal']"])
    web = nginx(bare)
    make(web.data, "a", CONTENT)
    said = failure(ask(bare, f"{sink.url}/b", f"Source: {web.url}/a"))
    assert "deny_addresses" in said
    assert "is not `local`, `private`" in said
    assert web.requests() == []
