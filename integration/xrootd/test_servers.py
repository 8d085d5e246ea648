"""The XRootD servers of the tests work with stock programs, and are safe to run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from integration.harness.tree import hash_file, make_file
from integration.xrootd.servers import give

if TYPE_CHECKING:
    from integration.xrootd.servers import Scene

pytestmark = pytest.mark.server

LISTENING = "0A"


def test_a_server_listens_on_the_loopback_only_and_not_as_root(bare: Scene) -> None:
    """A server does not run as root, and listens only on the loopback."""
    server = bare.server("one", tpc=None)
    assert server.process is not None
    status = Path(f"/proc/{server.process.pid}/status").read_text(encoding="ascii")
    (uids,) = (line.split()[1:] for line in status.splitlines() if line.startswith("Uid:"))
    assert "0" not in uids
    sockets = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    port = f":{server.port:04X}"
    bound = [line.split()[1] for line in sockets if line.split()[3] == LISTENING]
    assert [address for address in bound if address.endswith(port)] == [f"0100007F{port}"]


def test_a_stock_copy_between_two_servers(bare: Scene) -> None:
    """A third-party copy by stock ``xrdcp`` succeeds with the servers of the tests."""
    source = bare.server("source", tpc="pgm /usr/bin/xrdcp --server")
    sink = bare.server("sink", tpc="pgm /usr/bin/xrdcp --server")
    make_file(source.path("a"), 3 << 20, seed=1)
    give(source.path("a"))
    bare.xrdcp("--tpc", "only", source.at("a"), sink.at("b")).expect(0)
    assert hash_file(sink.path("b")) == hash_file(source.path("a"))
    assert sink.checksum("b", "adler32") == source.checksum("a", "adler32")
    sink.kill()
    sink.start()
    assert sink.checksum("b", "crc32c") == source.checksum("a", "crc32c")
