"""The first session of a process costs as much as the later ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from integration.harness import tree

if TYPE_CHECKING:
    from integration.harness.program import Bench, Server

pytestmark = [pytest.mark.server, pytest.mark.timeout(120)]

FILE_BYTES = 256 * tree.MIB
#: Maximum number of page faults of a session. A session touches about 5 000 pages, mostly its
#: buffers. If the server returned the memory of TLS records to the system while it sends, the
#: session would touch about 35 000 pages.
FAULTS_MAX = 12_000


def faults(server: Server) -> int:
    """Return the number of page faults of a server's process."""
    # Skip the name of the program, which is in brackets and may contain blanks.
    fields = Path(f"/proc/{server.pid}/stat").read_text(encoding="ascii").rpartition(")")[2]
    return int(fields.split()[7])


def test_memory_that_tls_has_freed_is_kept(bench: Bench) -> None:
    tree.make_file(bench.folder / "a", FILE_BYTES, seed=1)
    server = bench.serve(bench.folder)
    before = faults(server)
    bench.cp(f"dray://{server.address}/a", bench.folder / "b", *bench.peer(server)).expect(0)
    assert tree.hash_file(bench.folder / "b") == tree.hash_file(bench.folder / "a")
    assert faults(server) - before < FAULTS_MAX
