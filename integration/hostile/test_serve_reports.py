"""``dray serve`` reports that it made the requested objects smaller."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from integration.harness.program import Bench

pytestmark = [pytest.mark.server, pytest.mark.timeout(120)]

MIB = 1 << 20


def test_objects_that_are_made_smaller_are_reported(bench: Bench) -> None:
    root = bench.folder / "root"
    root.mkdir()
    server = bench.serve(root, "--pool", "4MiB")
    source = bench.folder / "source"
    source.write_bytes(b"y" * MIB)
    words = [source, f"dray://{server.address}/g", *bench.peer(server)]
    bench.cp(*words, "--object-size", "16MiB").expect(0)
    [notice] = [line for line in server.transfers() if line["event"] == "notice"]
    assert "--pool" in notice["error"]["cause"]
