"""An endpoint writes the object logs of a root in the form that the root sets."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from dray.client import Request, Retry
from dray.testing.endpoints import Root
from integration.harness import tree
from integration.log import decoder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dray.testing.endpoints import Endpoint

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

SIZE = 48 * tree.MIB


def read_log(folder: Path) -> dict[str, Any] | None:
    """Read the log in a folder, if it names a durable range."""
    for log in (folder / ".dray-log").glob("*.log"):
        read = decoder.read_log_file(log)
        if any(file["done"] for file in read.get("files", ())):
            return read
    return None


@pytest.mark.parametrize("form", ["file:bit8:async", "transaction/8:enc:nosums"])
def test_a_root_sets_the_form_and_a_killed_transfer_resumes(
    start_endpoint: Callable[..., Endpoint], tmp_path: Path, form: str
) -> None:
    source, sink = tmp_path / "source", tmp_path / "sink"
    source.mkdir()
    sink.mkdir()
    tree.make_file(source / "file", SIZE, seed=1)
    roots = [
        Root("data", {"path": str(source)}),
        Root("out", {"path": str(sink), "log": form}),
    ]
    endpoint = start_endpoint("one", roots=roots)
    request = Request(
        sources="/data/file",
        destination="/out/file",
        id="t",
        rate_max=12 * tree.MIB,
        retry=Retry(tries=5, interval_seconds=1),
    )
    with endpoint.client() as client:
        client.submit(request)
    until = time.monotonic() + 60
    while read_log(sink) is None:
        assert time.monotonic() < until, "nothing was logged"
        time.sleep(0.05)
    endpoint.kill()
    read = read_log(sink)
    assert read is not None
    assert read["form"] == form
    safe = sum(length for file in read["files"] for _, length, *_ in file["done"])
    endpoint.restart()
    with endpoint.client() as client:
        done = client.wait("t", timeout_seconds=120)
    assert done.state == "done", done
    # The counts cover both tries. Without the log, the second try would send all bytes again.
    assert done.bytes.sent + done.bytes.resumed < SIZE + safe, done.bytes
    assert (sink / "file").read_bytes() == (source / "file").read_bytes()
