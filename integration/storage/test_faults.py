"""Faults of a Ceph cluster during copies of ``dray cp``, and killed copies."""

from __future__ import annotations

import os
import random
import time
from typing import TYPE_CHECKING

import pytest

from integration.storage.moments import kills

if TYPE_CHECKING:
    from pathlib import Path

    from integration.harness.program import Bench, Ended, Process, Word
    from integration.storage.ceph import Cluster

pytestmark = [pytest.mark.server, pytest.mark.full, pytest.mark.timeout(900)]

MIB = 1 << 20
POOL = "faults"
SIZE = 64 * MIB + 12345
#: Maximum seconds of a copy with a fault. Requests to a stopped OSD wait until the cluster finds it
#: dead.
PATIENT_SECONDS = 180.0
KILLS = kills(full=20)


@pytest.fixture(scope="module")
def cluster(ceph_on_disk: Cluster) -> Cluster:
    """Return a cluster with the pool ``POOL``. Its OSDs may be restarted."""
    ceph_on_disk.make_pool(POOL)
    return ceph_on_disk


@pytest.fixture
def source(folder: Path) -> Path:
    """Return the path of a file of random bytes."""
    path = folder / "source"
    path.write_bytes(random.Random(7).randbytes(SIZE))
    return path


def _url(cluster: Cluster, name: str) -> str:
    return f"rados://{POOL}/{name}?conf={cluster.configuration}"


def _words(cluster: Cluster, source: Path, name: str, rate: str = "12MiB") -> list[Word]:
    """Return the arguments of a copy into the pool, which takes some seconds."""
    return ["--rate", rate, "--object-size", "1MiB", source, _url(cluster, name)]


def _begin(bench: Bench, words: list[Word]) -> Process:
    """Start a copy, and wait until some data is durable."""
    client = bench.start_cp("--progress", "json", *words)
    # While the manager starts, the first answer of the cluster may take half a minute.
    client.await_durable(seconds=PATIENT_SECONDS)
    return client


def _finish(bench: Bench, words: list[Word], ended: Ended) -> int:
    """Repeat a failed copy until it succeeds. Return the bytes that the last run sent."""
    until = time.monotonic() + PATIENT_SECONDS
    while ended.code != 0:
        assert time.monotonic() < until, ended.words
        ended = bench.cp(*words, seconds=PATIENT_SECONDS)
    return int(ended.report["bytes_sent"])


def _expect_equal(cluster: Cluster, source: Path, name: str) -> None:
    """Compare a file in the pool with ``source``, and check that no leftover is in the pool."""
    back = source.with_name("back")
    got = cluster.rados("-p", POOL, "--striper", "get", name, back)
    assert got.returncode == 0, got.stderr
    assert back.read_bytes() == source.read_bytes()
    ours = [each for each in cluster.names(POOL) if each.startswith(f"{name}.")]
    assert len(ours) == SIZE // (4 * MIB) + 1
    left = [each for each in cluster.names(POOL, ".dray") if each.endswith(name)]
    assert left == [], left


def test_an_osd_is_killed_and_comes_back(bench: Bench, cluster: Cluster, source: Path) -> None:
    words = _words(cluster, source, "osd")
    client = _begin(bench, words)
    cluster.kill("osd.1")
    time.sleep(3)
    cluster.begin_osd(1)
    cluster.await_up(3)
    sent = _finish(bench, words, client.wait(PATIENT_SECONDS))
    assert sent <= SIZE + 16 * MIB
    _expect_equal(cluster, source, "osd")


def test_the_monitor_restarts(bench: Bench, cluster: Cluster, source: Path) -> None:
    client = _begin(bench, _words(cluster, source, "monitor"))
    cluster.kill("mon.a")
    time.sleep(3)
    cluster.start_monitor()
    client.wait(PATIENT_SECONDS).expect(0)
    _expect_equal(cluster, source, "monitor")


def test_all_connections_stall(bench: Bench, cluster: Cluster, source: Path) -> None:
    words = _words(cluster, source, "stalled")
    client = _begin(bench, words)
    with cluster.stopped("osd.0", "osd.1", "osd.2"):
        time.sleep(6)
        assert client.is_running()
    sent = _finish(bench, words, client.wait(PATIENT_SECONDS))
    assert sent <= SIZE + 16 * MIB
    _expect_equal(cluster, source, "stalled")


def test_killed_at_many_moments_and_resumed_by_others(
    bench: Bench, cluster: Cluster, source: Path
) -> None:
    words = ["--progress", "json", *_words(cluster, source, "killed", rate="6MiB")]
    moments = random.Random(int(os.environ.get("DRAY_SEED", "11")))
    kills = 0
    for _ in range(KILLS):
        client = bench.start_cp(*words)
        # The lease of the killed process expires after some seconds. Only then data moves.
        while client.is_running() and '"event":"progress"' not in client.log_path.read_text():
            time.sleep(0.01)
        until = time.monotonic() + moments.uniform(0, 1.2)
        while client.is_running() and time.monotonic() < until:
            time.sleep(0.005)
        kills += client.is_running()
        client.kill()
    assert kills >= KILLS // 2
    sent = _finish(bench, words, bench.cp(*words, seconds=PATIENT_SECONDS))
    assert sent <= SIZE
    _expect_equal(cluster, source, "killed")
