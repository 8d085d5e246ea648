"""dray and the cluster compute the same OSD for each object."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from integration.harness.program import ROOT

if TYPE_CHECKING:
    from integration.storage.ceph import Cluster

pytestmark = [pytest.mark.full, pytest.mark.server]

NAMES = 10_000


def _program() -> Path:
    target = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "engine" / "target")
    found = target / "debug" / "examples" / "placement"
    if not found.exists():
        pytest.fail(f"no {found}; build it: cargo build -p dray-store-rados --example placement")
    return found


def _names(count: int) -> list[str]:
    """Return names like those of a file's objects, and plain names of many lengths."""
    return [
        f"run{number % 17}/file.{number:016x}" if number % 2 else f"o{number}" + "x" * (number % 60)
        for number in range(count)
    ]


def _computed(
    cluster: Cluster, folder: Path, pool: str, names: list[str], namespace: str
) -> list[tuple[str, int]]:
    """Return for each name the placement group and primary OSD that dray computes."""
    answers = {"osd": cluster.mon("osd dump"), "pg": cluster.groups()}
    words: list[str | Path] = [_program(), pool]
    for name, answer in answers.items():
        path = folder / name
        path.write_text(json.dumps(answer), encoding="utf-8")
        words.append(path)
    given = "".join(f"{name}\n" for name in names)
    ended = subprocess.run(
        [*words, namespace], input=given, check=True, capture_output=True, text=True, timeout=60
    )
    lines = [line.split() for line in ended.stdout.splitlines()]
    return [(group, int(osd)) for group, osd in lines]


def _differences(
    cluster: Cluster, folder: Path, pool: str, names: list[str], namespace: str = ""
) -> list[str]:
    """Describe the names for which dray and the cluster differ."""
    asked = cluster.map(pool, names, namespace)
    ours = _computed(cluster, folder, pool, names, namespace)
    assert len(ours) == len(names)
    theirs = [(each["pgid"], each["acting_primary"]) for each in asked]
    return [
        f"{name}: {mine}, not {right}"
        for name, mine, right in zip(names, ours, theirs, strict=True)
        if mine != right
    ]


@pytest.mark.parametrize("groups", [24, 32, 100])
def test_ten_thousand_names_are_placed_as_the_cluster_does(
    ceph: Cluster, tmp_path: Path, groups: int
) -> None:
    pool = f"placed{groups}"
    ceph.make_pool(pool, groups)
    ceph.await_groups(pool)
    names = _names(NAMES)
    spread = Counter(osd for _, osd in _computed(ceph, tmp_path, pool, names, ""))
    assert set(spread) == {0, 1, 2}
    half = NAMES // 2
    assert _differences(ceph, tmp_path, pool, names[:half]) == []
    assert _differences(ceph, tmp_path, pool, names[half:], "a namespace") == []


@pytest.mark.slow
def test_pools_of_three_copies_moved_groups_and_splits(ceph: Cluster, tmp_path: Path) -> None:
    ceph.make_pool("moving", 16, size=3)
    ceph.await_groups("moving")
    names = _names(500)
    before = ceph.map("moving", names)
    assert {len(each["acting"]) for each in before} == {3}
    assert _differences(ceph, tmp_path, "moving", names) == []
    # Move the primary of each group away from OSD 0.
    ceph.mon("osd primary-affinity", id=0, weight=0.0)
    _await_same(ceph, tmp_path, names)
    moved = ceph.map("moving", names)
    moves = [a["acting_primary"] != b["acting_primary"] for a, b in zip(before, moved, strict=True)]
    assert any(moves)
    assert all(each["acting_primary"] != 0 for each in moved)
    ceph.mon("osd primary-affinity", id=0, weight=1.0)
    # Split the groups. The cluster raises their number in steps.
    ceph.mon("osd pool set", pool="moving", var="pg_num", val="48")
    until = time.monotonic() + 60
    while _pool(ceph, "moving")["pg_num"] != 48:
        assert time.monotonic() < until, _pool(ceph, "moving")
        time.sleep(0.2)
    _await_same(ceph, tmp_path, names)


def _pool(cluster: Cluster, name: str) -> dict[str, int]:
    pools = cluster.mon("osd dump")["pools"]
    found: dict[str, int] = next(pool for pool in pools if pool["pool_name"] == name)
    return found


def _await_same(cluster: Cluster, folder: Path, names: list[str]) -> None:
    """Wait until dray computes the cluster's placement from the manager's list of groups."""
    until = time.monotonic() + 60
    while found := _differences(cluster, folder, "moving", names):
        assert time.monotonic() < until, found[:5]
        time.sleep(0.5)
