"""A rate limit applies from the first byte on, also within an object, and in both directions.

A proxy counts sent bytes; the written bytes of a local copy are read from the file system.
"""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

from dray.testing.proxy import Proxy
from integration.harness import tree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from integration.harness.program import Bench, Process

pytestmark = [pytest.mark.server, pytest.mark.timeout(180)]

MEGA = 1_000_000
#: Interval between two samples, which is shorter than any evaluated window.
SAMPLE_SECONDS = 0.02
WINDOW_SECONDS = 1.0
#: Bytes with TLS, frames and listings, as a factor of the data.
OVERHEAD = 1.05
#: Additional bytes at the start of a copy.
BEGIN_BYTES = 64 << 10


def sample(client: Process, count: Callable[[], int]) -> list[tuple[float, int]]:
    """Read a counter repeatedly until a process has ended. Return times and counts."""
    samples = [(time.monotonic(), count())]
    while client.is_running():
        time.sleep(SAMPLE_SECONDS)
        samples.append((time.monotonic(), count()))
    samples.append((time.monotonic(), count()))
    return samples


def most(samples: list[tuple[float, int]], rate: float) -> float:
    """Return the most bytes beyond ``rate`` within any window of up to a second."""
    worst = 0.0
    for at, (begun, before) in enumerate(samples):
        for ended, after in samples[at + 1 :]:
            if ended - begun > WINDOW_SECONDS:
                break
            # The count at the start of the window may be as old as the previous sample.
            worst = max(worst, after - before - rate * (ended - begun + 2 * SAMPLE_SECONDS))
    return worst


@pytest.mark.parametrize("push", [True, False], ids=["push", "pull"])
@pytest.mark.parametrize(
    ("rate", "size"), [(MEGA, 5 * MEGA), (10_000, 60_000)], ids=["1MB", "10KB"]
)
def test_a_rate_holds_within_an_object_on_the_network(
    bench: Bench, push: bool, rate: int, size: int
) -> None:
    source, to = bench.folder / "source", bench.folder / "to"
    source.mkdir()
    to.mkdir()
    tree.make_file(source / "x", size, seed=1)
    server = bench.serve(to if push else source)
    proxy = Proxy(server.address)
    try:
        far = f"dray://{proxy.address}/"
        ends = [source / "x", far] if push else [f"{far}x", f"{to}/"]
        how = ["--rate", str(rate), "--object-size", "64MiB", *bench.peer(server)]
        client = bench.start_cp(*ends, *how)
        samples = sample(client, lambda: proxy.counted()[0 if push else 1])
        assert client.ended is not None
        ended = client.ended.expect(0)
    finally:
        proxy.close()
    assert tree.hash_file(to / "x") == tree.hash_file(source / "x")
    worst = most(samples, rate * OVERHEAD)
    print(f"{ended.seconds:.2f} s; {worst / 1000:.1f} kB above the rate in a second")
    assert worst <= rate / 5 + BEGIN_BYTES, f"{worst:.0f} bytes above the rate"
    # The copy also uses the rate fully.
    assert size / rate * 0.9 <= ended.seconds <= size / rate * 1.3 + 3, ended.seconds


def written(folder: Path) -> int:
    """Count the bytes that files below ``folder`` occupy."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_blocks * 512 if path.is_file() else 0
        except FileNotFoundError:
            continue
    return total


def test_a_rate_holds_within_an_object_on_one_host(bench: Bench) -> None:
    size, rate = 4 * MEGA, MEGA
    to = bench.folder / "to"
    to.mkdir()
    tree.make_file(bench.folder / "x", size, seed=1)
    how = ["--rate", str(rate), "--object-size", "64MiB", "--reflink", "never"]
    client = bench.start_cp(bench.folder / "x", f"{to}/", *how)
    samples = sample(client, lambda: written(to))
    assert client.ended is not None
    client.ended.expect(0)
    assert tree.hash_file(to / "x") == tree.hash_file(bench.folder / "x")
    begun = samples[0][0]
    early = [
        (at - begun, count) for at, count in samples if count > rate * (at - begun + 0.1) + 65_536
    ]
    assert not early, f"bytes written before their time: {early[:3]}"
    assert client.ended.seconds <= size / rate * 1.3 + 3


@pytest.mark.parametrize("push", [True, False], ids=["push", "pull"])
def test_a_stop_ends_an_object_that_passes_slowly(bench: Bench, push: bool) -> None:
    source, to = bench.folder / "source", bench.folder / "to"
    source.mkdir()
    to.mkdir()
    tree.make_file(source / "x", 40 * MEGA, seed=1)
    server = bench.serve(to if push else source)
    far = f"dray://{server.address}/"
    ends = [source / "x", far] if push else [f"{far}x", f"{to}/"]
    how = ["--rate", "1MB", "--object-size", "64MiB", *bench.peer(server)]
    client = bench.start_cp(*ends, *how)
    time.sleep(2)
    client.send(signal.SIGINT)
    stopped = time.monotonic()
    client.wait(30).expect(5)
    took = time.monotonic() - stopped
    assert took < 5, f"it stopped after {took:.1f} s"
