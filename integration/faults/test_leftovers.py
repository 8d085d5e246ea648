"""Leftovers of interrupted runs.

A run removes leftovers of earlier runs of the same transfer. It only reports leftovers of other
transfers.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from integration.harness import tree
from integration.harness.supervise import KILL, Fault, Key, Supervisor, reason_to_skip

if TYPE_CHECKING:
    from pathlib import Path

    from integration.harness.program import Bench

pytestmark = [pytest.mark.server, pytest.mark.timeout(120)]

SMALL = 5000
LARGE = 64 << 20


def test_the_same_command_removes_leftovers_of_a_complete_copy(
    bench: Bench, tmp_path: Path
) -> None:
    reason = reason_to_skip()
    if reason is not None:
        pytest.skip(reason)
    source, into = tmp_path / "source", tmp_path / "into"
    (source / "deep").mkdir(parents=True)
    into.mkdir()
    tree.make_file(source / "deep" / "small", SMALL, seed=1)

    def sort(path: str) -> str | None:
        return "sink" if path == f"{into}/source/deep/small" else None

    for call in ("renameat", "renameat2"):
        with Supervisor(sort) as supervisor:
            supervisor.arm(Fault(Key(call, "sink"), 1, KILL))
            bench.cp("-r", source, f"{into}/", wrap=supervisor.wrap)
            if supervisor.is_hit:
                break
    left = [os.path.basename(name) for name in tree.leftovers(into)]
    assert any(name.endswith(".part") for name in left), left
    # Copy the file with another program, so that the next run has nothing to send.
    shutil.copy2(source / "deep" / "small", into / "source" / "deep" / "small")
    bench.cp("-r", source, f"{into}/").expect(0)
    assert tree.leftovers(into) == []


def test_leftovers_another_transfer_may_resume_are_reported(bench: Bench, tmp_path: Path) -> None:
    source, into = tmp_path / "source", tmp_path / "into"
    source.mkdir()
    tree.make_file(source / "one", LARGE, seed=1)
    tree.make_file(source / "two", SMALL, seed=2)
    broken = bench.start_slow_cp(
        "-r", "--include", "one", "--rate", "8MiB", "--durability", "object", source, into
    )
    broken.kill()
    left = tree.leftovers(into)
    assert left
    ended = bench.cp("-r", "--include", "two", source, into).expect(0)
    assert len(ended.report["notices"]) == 1
    notice = ended.report["notices"][0]
    assert "1 interrupted transfer may resume 1 file" in notice
    assert "dray log sweep" in notice
    assert set(left) <= set(tree.leftovers(into))
    # When the other transfer's data is complete, nothing is reported.
    bench.cp("-r", "--include", "one", source, into).expect(0)
    assert bench.cp("-r", "--include", "two", source, into).expect(0).report["notices"] == []
    assert tree.leftovers(into) == []
