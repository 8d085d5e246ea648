"""Commands that make several calls use one connection, and continue if the connection is lost."""

from __future__ import annotations

import os
import subprocess
import time
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

import pytest

from dray.client import Request
from dray.testing.endpoints import find_program
from dray.testing.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dray.testing.endpoints import Endpoint

pytestmark = [pytest.mark.server, pytest.mark.timeout(120)]

#: Number of names in a folder. A listing needs three pages for them.
NAMES = 2100
#: Maximum seconds that a test waits for an event.
SECONDS = 30.0


@pytest.fixture
def asked(start_endpoint: Callable[..., Endpoint]) -> Iterator[tuple[Endpoint, Proxy]]:
    """Return an endpoint, and a proxy in front of it."""
    endpoint = start_endpoint("a")
    proxy = Proxy(endpoint.address)
    yield endpoint, proxy
    proxy.close()


def begin(endpoint: Endpoint, *words: str) -> subprocess.Popen[str]:
    """Start ``dray`` with a valid token for the endpoint."""
    environment = {**os.environ, "DRAY_TOKEN": endpoint.token()}
    whole: list[str | Path] = [find_program(), *words, "--peer-key", endpoint.key]
    pipe = subprocess.PIPE
    return subprocess.Popen(whole, stdout=pipe, stderr=pipe, text=True, env=environment)


def await_connections(proxy: Proxy, count: int) -> None:
    """Wait until the proxy has seen ``count`` connections."""
    until = time.monotonic() + SECONDS
    while len(proxy.connections) < count:
        assert time.monotonic() < until, f"{len(proxy.connections)} connections"
        time.sleep(0.02)


def test_pages_of_one_listing_come_by_one_connection(asked: tuple[Endpoint, Proxy]) -> None:
    endpoint, proxy = asked
    for number in range(NAMES):
        (endpoint.root() / f"{number:04}").touch()
    listing = begin(endpoint, "ls", f"dray://{proxy.address}/data/")
    out, words = listing.communicate(timeout=SECONDS)
    assert (listing.returncode, len(out.splitlines())) == (0, NAMES), words
    assert len(proxy.connections) == 1


def test_a_wait_continues_when_its_connection_is_cut(asked: tuple[Endpoint, Proxy]) -> None:
    endpoint, proxy = asked
    (endpoint.root() / "file").write_text("some", encoding="utf-8")
    with endpoint.client() as client:
        later = datetime.now(timezone.utc) + timedelta(hours=1)
        source, sink = (f"dray://{endpoint.address}/data/{name}" for name in ("file", "copy"))
        client.submit(Request(sources=[source], destination=sink, id="x", not_before=later))
        waiting = begin(endpoint, "show", "x", "--wait", "--endpoint", proxy.address)
        await_connections(proxy, 1)
        time.sleep(0.5)
        proxy.cut()
        await_connections(proxy, 2)
        assert waiting.poll() is None
        client.cancel("x")
    out, words = waiting.communicate(timeout=SECONDS)
    assert "cancelled" in out, (out, words)
