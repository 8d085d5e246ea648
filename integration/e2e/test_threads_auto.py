"""``--threads auto`` with storage of high latency, at either end.

Each slow read or write sleeps, so its duration does not depend on the speed of this machine.
"""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from integration.harness import tree
from integration.harness.marks import in_full

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from integration.harness.program import Bench, Ended, Word

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

FILES = 24
FILE_BYTES = 12 * tree.MIB
#: Default number of threads of each target.
USUAL = 4
#: Maximum number of threads that is tried.
MOST = 64
#: Seconds that each call takes: a read of 256 KiB at the source, a write of an object at the sink.
WAITS = {"source": "0.05", "sink": "0.2"}


def counts(ended: Ended, what: str) -> list[int]:
    """Return the number of readers or writers in each progress report."""
    lines: list[dict[str, Any]] = [
        json.loads(line) for line in ended.words.splitlines() if line.startswith("{")
    ]
    return [line[what] for line in lines if line["event"] == "progress"]


@pytest.fixture
def source(bench: Bench) -> Path:
    """Make a folder with files."""
    source = bench.folder / "source"
    source.mkdir()
    for number in range(FILES):
        tree.make_file(source / f"{number:02}", FILE_BYTES, seed=number)
    return source


def far(folder: Path, slow: str) -> list[Word]:
    """Return options that give all storage in a folder a high latency."""
    return ["--target", f"{folder}=far", f"--limit-target=far=10GiB,+{WAITS[slow]}"]


@pytest.mark.parametrize("way", [in_full("local"), "push", in_full("pull")])
@pytest.mark.parametrize("slow", [in_full("source"), "sink"])
def test_distant_storage_gets_as_many_threads_as_help(
    bench: Bench, source: Path, way: str, slow: str
) -> None:
    sink = bench.folder / "sink"
    sink.mkdir()
    folder = source if slow == "source" else sink
    took = {}
    for threads in [str(USUAL), "auto"]:
        how = [*far(folder, slow), "--threads", threads]
        here: list[Word] = ["--durability", "none", "--overwrite=always", "--progress", "json"]
        # The end with the slow storage tunes the number of its threads. This end is `dray serve` if
        # `is_there` is true, and otherwise `dray cp`.
        is_there = {"push": slow == "sink", "pull": slow == "source"}.get(way, False)
        here += [] if is_there else how
        ends: list[Word] = [f"{source}/", f"{sink}/"]
        if way != "local":
            server = bench.serve(sink if way == "push" else source, *(how if is_there else []))
            there = f"dray://{server.address}/"
            ends = [ends[0], there] if way == "push" else [there, ends[1]]
            here += bench.peer(server)
        began = time.monotonic()
        ended = bench.cp("-r", *ends, *here, seconds=120).expect(0)
        took[threads] = time.monotonic() - began
        differences = tree.differences(tree.describe(source), tree.describe(sink))
        assert [line for line in differences if "b''" not in line] == []
        if not is_there:
            found = counts(ended, "readers" if slow == "source" else "writers")
            print(f"\n{found}")
            assert max(found) <= MOST
            assert (max(found) >= 2 * USUAL) == (threads == "auto")
            other = counts(ended, "writers" if slow == "source" else "readers")
            # The number of threads of the end that is not the bottleneck changes little.
            assert max(other) < 2 * USUAL
    print(f"\n{took}")
    # A busy host delays both copies equally.
    assert took["auto"] < 0.85 * took[str(USUAL)]


class Crowded:
    """A web server that gets slower with the number of concurrent requests, also in total."""

    BODY = bytes(range(256)) * (4 * FILE_BYTES // 256)
    #: Duration of an answer in seconds without other requests.
    SECONDS = 0.03
    #: Exponent with which the duration grows with the number of concurrent requests.
    POWER = 1.6

    def __init__(self) -> None:
        """Start the server."""
        lock, self.at_once, self.most = threading.Lock(), 0, 0
        crowded = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(Crowded.BODY)))
                self.send_header("Accept-Ranges", "bytes")
                self.send_header("Last-Modified", "Mon, 02 Nov 2026 10:00:00 GMT")
                self.end_headers()

            def do_GET(self) -> None:
                first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
                with lock:
                    crowded.at_once += 1
                    crowded.most = max(crowded.most, crowded.at_once)
                    at_once = crowded.at_once
                time.sleep(Crowded.SECONDS * at_once**Crowded.POWER)
                body = Crowded.BODY[int(first) : int(last) + 1]
                self.send_response(206)
                self.send_header("Content-Length", str(len(body)))
                whole = len(Crowded.BODY)
                self.send_header("Content-Range", f"bytes {first}-{last}/{whole}")
                self.send_header("Last-Modified", "Mon, 02 Nov 2026 10:00:00 GMT")
                self.end_headers()
                # Count before the body is sent, because its receiver then sends the next request.
                with lock:
                    crowded.at_once -= 1
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self) -> None:
        """Stop the server."""
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def crowded() -> Iterator[Crowded]:
    """Start a web server that gets slower with many requests."""
    server = Crowded()
    yield server
    server.close()


def test_storage_that_slows_with_threads_gets_few(bench: Bench, crowded: Crowded) -> None:
    url = f"http://127.0.0.1:{crowded.server.server_address[1]}/data"
    took, most = {}, {}
    for threads in [str(USUAL), "auto"]:
        crowded.most = 0
        how: list[Word] = ["--threads", threads, "--overwrite=always", "--progress", "json"]
        how += ["--object-size", "256KiB", "--durability", "none"]
        began = time.monotonic()
        ended = bench.cp(url, bench.folder / "data", *how, seconds=120).expect(0)
        took[threads], most[threads] = time.monotonic() - began, crowded.most
        print(f"\n{counts(ended, 'readers')}")
        assert (bench.folder / "data").read_bytes() == Crowded.BODY
    print(f"\n{took}, {most} at once")
    assert most["auto"] <= 4 * USUAL
    assert took["auto"] < 1.5 * took[str(USUAL)]
