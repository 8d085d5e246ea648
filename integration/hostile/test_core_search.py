"""The memory of an idle server contains no token of an ended call or session."""

from __future__ import annotations

import contextlib
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from integration.endpoint.raw import ask, bearer, dial
from integration.harness import tree
from integration.harness.program import find_program
from integration.hostile.actors import ABORTED, SINK, SOURCE, Driver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dray.testing.endpoints import Endpoint
    from integration.harness.program import Bench

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

CALLS = 90
SESSIONS = 24
#: Seconds between the last call and the search of the memory. By then the server has stopped
#: waiting for the peer to close.
IDLE_SECONDS = 4.0


@pytest.fixture(autouse=True)
def this_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make endpoints run the release program of this tree."""
    monkeypatch.setenv("DRAY_PROGRAM", str(find_program()))


def core_of(pid: int) -> bytes:
    """Return the content of a process's writable memory."""
    pieces = []
    maps = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").splitlines()
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in maps:
            where, rights, *_ = line.split()
            if not rights.startswith("rw"):
                continue
            first, last = (int(part, 16) for part in where.split("-"))
            with contextlib.suppress(OSError, ValueError):
                memory.seek(first)
                while first < last:
                    piece = memory.read(min(last - first, 16 << 20))
                    if not piece:
                        break
                    pieces.append(piece)
                    first += len(piece)
    return b"\n".join(pieces)


def found(pid: int, secrets: Iterable[bytes]) -> dict[bytes, int]:
    """Count each of the secrets in a process's memory. Secrets that are absent have no count."""
    core = core_of(pid)
    counts = {secret: core.count(secret) for secret in secrets}
    return {secret: count for secret, count in counts.items() if count}


def parts_of(token: str) -> list[bytes]:
    """Return the claims and the signature of a bearer token: the parts to search for."""
    _, claims, signature = token.split(".")
    return [claims.encode(), signature.encode()]


def test_an_idle_endpoint_holds_no_token_of_its_callers(
    start_endpoint: Callable[..., Endpoint],
) -> None:
    endpoint = start_endpoint("a")
    tokens = [endpoint.token(subject=f"caller{number}") for number in range(CALLS)]
    for number, token in enumerate(tokens[: CALLS // 2]):
        if number % 3:
            assert ask(endpoint, "GET", "/v1/transfers", token=token).code == 200
        else:
            body = {
                "sources": [{"url": "/data/none"}],
                "destination": {"url": "/data/copy"},
                "not_before": "2099-01-01T00:00:00Z",
            }
            assert ask(endpoint, "POST", "/v1/transfers", body, token=token).code == 201
        ask(endpoint, "GET", "/v1/transfers", token=f"{token}x")
    connection = dial(endpoint.address)
    for token in tokens[CALLS // 2 :]:
        connection.request("GET", "/v1/transfers", headers=dict(bearer(token)))
        assert connection.getresponse().read()
    connection.close()
    for number, token in enumerate(tokens[:SESSIONS]):
        role = SINK if number % 2 else SOURCE
        driver = Driver(endpoint.address, token.encode(), role, b"data/x%d" % number)
        with contextlib.suppress(*ABORTED):
            driver.begin()
        driver.close()
    time.sleep(IDLE_SECONDS)
    left = found(endpoint.pid, [part for token in tokens for part in parts_of(token)])
    print(f"{sum(left.values())} pieces of {len(left)} of {2 * CALLS} secrets")
    assert left == {}


def test_an_idle_server_holds_no_token_that_it_was_offered(bench: Bench) -> None:
    root = bench.folder / "root"
    root.mkdir()
    server = bench.serve(root)
    offered = [b"offered-%03d-" % number + b"Zq7" * 30 for number in range(CALLS)]
    for token in offered:
        driver = Driver(server.address, token, SOURCE, b"")
        assert driver.error() is not None
        driver.close()
    good = Driver(server.address, bench.token.read_bytes().strip(), SOURCE, b"").begin()
    good.close()
    time.sleep(IDLE_SECONDS)
    left = found(server.pid, [token[:40] for token in offered])
    print(f"{sum(left.values())} pieces of {len(left)} of {CALLS} secrets")
    assert left == {}


def test_the_heap_of_a_server_passes_memcheck(bench: Bench) -> None:
    """The server's allocator clears freed blocks. It must not write outside a block."""
    if shutil.which("valgrind") is None:
        pytest.fail("valgrind is missing: run `make setup`", pytrace=False)
    source, sink = bench.folder / "source", bench.folder / "sink"
    tree.make_tree(source, 20, seed=1)
    sink.mkdir()
    # Ignore uninitialised values: Memcheck takes the output of the cipher for uninitialised.
    wrap = ["valgrind", "--undef-value-errors=no", "--error-exitcode=99"]
    server = bench.serve(sink, wrap=wrap)
    bench.cp("-r", source, f"dray://{server.address}/", *bench.peer(server)).expect(0)
    ended = server.stop()
    assert "ERROR SUMMARY: 0 errors" in ended.words
    assert ended.code == 0
    tree.assert_same(tree.describe(source), sink / "source")
