"""The system refuses to start any one of the threads: dray reports an error and does not hang."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dray.testing.endpoints import Endpoint
from integration.harness import tree
from integration.harness.host import is_root

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.harness.program import Bench, Ended, Process, Server, Word

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

#: Limit of threads with which a copy succeeds.
THREADS_ENOUGH = 40


def counted(uid: int) -> int:
    """Return the number of threads of a user."""
    count = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if process.stat().st_uid == uid:
                count += len(list((process / "task").iterdir()))
        except OSError:
            continue
    return count


def as_somebody() -> tuple[list[str], int]:
    """Return a command prefix that changes the user, and the id of the user.

    The system's limit of threads does not apply to root, so as root the command runs as another
    user with root's file permissions.
    """
    if not is_root():
        return [], os.geteuid()
    uid = 200_000 + os.getpid()
    words = ["setpriv", f"--reuid={uid}", "--inh-caps=+dac_override,+fowner,+chown"]
    return [*words, "--ambient-caps=+dac_override,+fowner,+chown"], uid


def said(server: Process, key: str) -> list[str]:
    """Return a field of a server's listening message, or an empty list without a message."""
    first = server.out_path.read_text(encoding="utf-8").partition("\n")
    found: list[str] = json.loads(first[0]).get(key, []) if first[1] else []
    return found


def has_begun(server: Process) -> bool:
    """Wait until a server listens or has ended. Return whether it runs a second later."""
    until = time.monotonic() + 20
    while server.is_running() and not said(server, "addresses"):
        assert time.monotonic() < until, server.log_path.read_text(encoding="utf-8")
        time.sleep(0.02)
    until = time.monotonic() + 1
    while server.is_running() and time.monotonic() < until:
        time.sleep(0.02)
    return server.is_running()


def greet(address: str) -> None:
    """Send an invalid preamble to a server, and wait until the server closes the connection."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(b"no preamble of anybody's\r\n\r\n" * 4)
        with contextlib.suppress(ConnectionResetError):
            while connection.recv(4096):
                pass


def limit(somebody: list[str], server: Server, threads: int) -> None:
    """Set the limit of threads for the user of a running server."""
    words = [*somebody, "prlimit", f"--pid={server.pid}", f"--nproc={threads}:"]
    subprocess.run(words, check=True)


def empty(folder: Path) -> None:
    """Empty a folder, but keep the folder itself, because a server may have it open."""
    for entry in folder.iterdir():
        shutil.rmtree(entry)


def names_it(ended: Ended, sink: Path) -> None:
    """Check the message and the leftovers of a copy that had too few threads."""
    assert "panicked" not in ended.words, ended.words
    assert ended.code in {3, 4, 5}, f"{ended.code}\n{ended.out}\n{ended.words}"
    assert "thread" in ended.words + ended.out, ended.words
    whole = sink / "source" / "m" / "large"
    assert not whole.exists() or whole.stat().st_size == 24 * tree.MIB


def test_a_copy_within_a_host(bench: Bench, source: Path, sink: Path) -> None:
    somebody, uid = as_somebody()
    went_well = 0
    for more in range(1, THREADS_ENOUGH + 1):
        wrap = [*somebody, "prlimit", f"--nproc={counted(uid) + more}"]
        words: list[Word] = ["-r", source, f"{sink}/", "--retries", "0"]
        ended = bench.cp(*words, wrap=wrap, seconds=60)
        if ended.code != 0:
            names_it(ended, sink)
            continue
        went_well += 1
        tree.assert_same(tree.describe(source), sink / "source")
        empty(sink)
    assert went_well, "no copy succeeded"
    assert went_well < THREADS_ENOUGH, "each copy succeeded: no thread was refused"


@pytest.mark.parametrize("push", [True, False], ids=["push", "pull"])
@pytest.mark.parametrize("end", ["driver", "server"])
def test_a_copy_to_another(bench: Bench, source: Path, sink: Path, end: str, push: bool) -> None:
    somebody, uid = as_somebody()
    is_there = end == "server"
    server = bench.serve(bench.folder, wrap=somebody if is_there else [])
    far = f"dray://{server.address}"
    words: list[Word] = [source, f"{far}/sink/"] if push else [f"{far}/source", f"{sink}/"]
    words += ["-r", "--retries", "0", "--streams", "2", *bench.peer(server)]
    refused = 0
    for more in range(0, THREADS_ENOUGH + 1, 2):
        most = counted(uid) + more
        if is_there:
            limit(somebody, server, most)
        wrap = [] if is_there else [*somebody, "prlimit", f"--nproc={most}"]
        ended = bench.cp(*words, wrap=wrap, seconds=60)
        assert server.is_running(), ended.words
        if ended.code == 0:
            tree.assert_same(tree.describe(source), sink / "source")
            empty(sink)
            continue
        refused += 1
        assert "panicked" not in ended.words, ended.words
        assert "panicked" not in server.log_path.read_text(encoding="utf-8")
        names_it(ended, sink)
        if is_there:
            at = "at the sink" if push else "at the source"
            assert f"cannot start a thread {at}: busy" in ended.words, ended.words
    assert refused, "each copy succeeded: no thread was refused"
    # A failed copy is resumed.
    if is_there:
        limit(somebody, server, counted(uid) + THREADS_ENOUGH)
    bench.cp(*words, seconds=60).expect(0)
    tree.assert_same(tree.describe(source), sink / "source")


def test_a_server_begins_with_all_its_threads_or_not_at_all(bench: Bench, sink: Path) -> None:
    somebody, uid = as_somebody()
    listen: list[Word] = ["--listen", "127.0.0.1:0"] * 2
    words: list[Word] = ["serve", "--json", "--root", sink, "--token-file", bench.token]
    words += ["--identity", bench.folder / "identity", *listen]
    lived, refused = 0, 0
    for more in range(1, 10):
        wrap = [*somebody, "prlimit", f"--nproc={counted(uid) + more}"]
        server = bench.start(*words, wrap=wrap, name="serve")
        if not has_begun(server):
            refused += 1
            names_it(server.wait(20), sink)
            continue
        lived += 1
        for address in said(server, "addresses"):
            greet(address)
        server.send(signal.SIGTERM)
        server.wait(20).expect(0)
        assert "panicked" not in server.log_path.read_text(encoding="utf-8")
    assert lived
    assert refused


def test_an_endpoint_begins_with_all_its_threads_or_not_at_all(bench: Bench) -> None:
    """If a thread is refused after the start, calls are slow, but get their answers."""
    somebody, uid = as_somebody()
    lived, refused, later = 0, 0, 0
    for more in range(1, 24):
        name = f"threads{more}.example"
        wrap = [*somebody, "prlimit", f"--nproc={counted(uid) + more}"]
        folder = bench.folder / name
        made = Endpoint(folder, name=name, program=Path(bench.program), wrap=wrap)
        with contextlib.closing(made) as endpoint:
            with contextlib.suppress(RuntimeError):
                # The message of an immediate exit is checked below.
                endpoint.start()
                time.sleep(0.5)
            is_well = endpoint.is_running
            lived += is_well
            refused += not is_well
            if is_well:
                with endpoint.client() as client, ThreadPoolExecutor(8) as callers:
                    calls: list[Callable[[], object]] = [client.endpoint] * 20
                    calls += [lambda: list(client.list("/data/"))] * 20
                    asked = [callers.submit(call) for call in calls]
                    assert all(call.result() is not None for call in asked)
                endpoint.stop()
            log = endpoint.log_text()
            later += "calls are waiting" in log
            assert "start a thread" in log or is_well, log
            assert "panicked" not in log, log
    assert lived
    assert refused
    # Some endpoints started, and later got no further threads.
    assert later
