"""``dray cp root://`` and third-party copies use the same leases.

While a copy of one kind writes a file, a copy of the other kind to the same name is refused.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from integration.harness import tree
from integration.harness.tree import hash_file, make_file
from integration.xrootd.cp import begin, cp
from integration.xrootd.files import await_safe, make, pair, partial_bytes
from integration.xrootd.moments import await_end

if TYPE_CHECKING:
    from pathlib import Path

    from integration.harness.program import Process
    from integration.xrootd.servers import Scene, Xrootd

pytestmark = [pytest.mark.server, pytest.mark.timeout(600)]

MIB = 1 << 20
SIZE = 64 * MIB


@pytest.fixture
def local(bare: Scene) -> Path:
    """Make a source file for ``dray cp``, and return its path."""
    folder = bare.folder / "in"
    folder.mkdir()
    make_file(folder / "a", SIZE, seed=9)
    (folder / "a").chmod(0o644)
    return folder / "a"


def begin_own(scene: Scene, ours: Path, local: Path, sink: Xrootd) -> Process:
    """Start a slow ``dray cp`` to the file ``a`` of the server, and wait for durable data."""
    rate = ("--progress", "json", "--rate", "12MiB")
    copy = begin(scene, ours, *rate, local, sink.at("a"))
    copy.await_durable()
    return copy


def begin_third(scene: Scene, source: Xrootd, sink: Xrootd) -> tuple[Process, int]:
    """Start a third-party copy to the file ``a``, and wait for durable data."""
    before = partial_bytes(sink)
    client = scene.begin("xrdcp", "--nopbar", "--tpc", "only", source.at("a"), sink.at("a"))
    await_safe(sink, before + 4 * MIB)
    (job,) = sink.jobs()
    return client, job


def test_an_abandoned_copy_does_not_block_the_other_kind(
    scene: Scene, ours: Path, local: Path
) -> None:
    """After a killed ``dray cp``, a third-party copy to the path succeeds, and the reverse."""
    source, sink = pair(scene, f"rate = {24 * MIB}")
    made = make(source, "a", SIZE)
    begin_own(scene, ours, local, sink).kill()
    scene.xrdcp("--tpc", "only", source.at("a"), sink.at("a")).expect(0)
    assert hash_file(sink.path("a")) == hash_file(made)
    sink.path("a").unlink()
    client, job = begin_third(scene, source, sink)
    os.kill(job, signal.SIGKILL)
    client.wait(90)
    await_end(job)
    cp(scene, ours, local, sink.at("a")).expect(0)
    assert hash_file(sink.path("a")) == hash_file(local)


def test_a_live_third_party_copy_is_not_written_beside(
    scene: Scene, ours: Path, local: Path
) -> None:
    """During a third-party copy, ``dray cp`` is refused, and changes nothing."""
    source, sink = pair(scene, f"rate = {8 * MIB}")
    made = make(source, "a", SIZE)
    client, _ = begin_third(scene, source, sink)
    refused = cp(scene, ours, local, sink.at("a"))
    assert refused.code != 0
    assert "another transfer is writing" in refused.out + refused.words
    assert client.is_running(), "the two copies did not overlap"
    client.wait(120).expect(0)
    assert hash_file(sink.path("a")) == hash_file(made)
    assert tree.leftovers(sink.data) == []
    cp(scene, ours, local, sink.at("a")).expect(0)
    assert hash_file(sink.path("a")) == hash_file(local)


def test_a_live_copy_is_not_written_beside_by_a_third_party_copy(
    scene: Scene, ours: Path, local: Path
) -> None:
    """During ``dray cp``, a third-party copy is refused, and changes nothing."""
    source, sink = pair(scene)
    make(source, "a", SIZE)
    copy = begin_own(scene, ours, local, sink)
    refused = scene.xrdcp("--tpc", "only", source.at("a"), sink.at("a"))
    assert refused.code != 0
    assert "another transfer is writing" in refused.out + refused.words + sink.said()
    assert copy.is_running(), "the two copies did not overlap"
    copy.wait(120).expect(0)
    assert hash_file(sink.path("a")) == hash_file(local)
