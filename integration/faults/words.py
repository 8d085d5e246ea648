"""Checks of the message of a failed copy, and of its leftovers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from integration.harness import tree

if TYPE_CHECKING:
    from integration.harness.program import Bench, Ended, Word

SAFE, SOME_FAILED, USAGE, REFUSED, UNREACHABLE, INTERRUPTED = range(6)


def explains(ended: Ended, *words: str) -> None:
    """Fail unless one line of the output contains all ``words``."""
    lines = ended.words.splitlines()
    assert any(all(word in line for word in words) for line in lines), (
        f"no line says {words}:\n{ended.words}"
    )


def failed(ended: Ended) -> dict[str, dict[str, str]]:
    """Return the failures in a report, by path."""
    return {failure["path"]: failure for failure in ended.report["files_failed"]}


def check_rest(source: Path, arrived: Path, *but: str) -> None:
    """Check that all files except ``but`` have arrived, and that no file of ``but`` exists."""
    wanted, found = tree.describe(source), tree.describe(arrived)
    for name in but:
        path = os.fsencode(name)
        wanted = {key: entry for key, entry in wanted.items() if not key.startswith(path)}
        assert not [key for key in found if key.startswith(path)], f"{name} is there"
    # If a file is missing, the folder that should contain it has a later modification time than the
    # source folder. Leave such folders out.
    parents = {os.fsencode(str(Path(name).parent)).strip(b".") for name in but}
    lines = tree.differences(
        {key: entry for key, entry in wanted.items() if key not in parents},
        {key: entry for key, entry in found.items() if key not in parents},
    )
    assert lines == []


def works(bench: Bench, source: Path, words: list[Word], arrived: Path) -> Ended:
    """Run a copy again. Fail unless it succeeds and leaves no file of dray."""
    ended = bench.cp(*words).expect(SAFE)
    tree.assert_same(tree.describe(source), arrived)
    assert tree.leftovers(arrived.parent) == []
    return ended
