"""Trees of files on storage systems, and their comparison."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from integration.harness import tree

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["same"]


def same(wanted: dict[bytes, tree.Entry], top: Path, *, has_times: bool = True) -> None:
    """Compare the contents of two folders, but not the mode and time of the folders themselves."""

    def below(entries: dict[bytes, tree.Entry]) -> dict[bytes, tree.Entry]:
        def entry(each: tree.Entry) -> tree.Entry:
            return each if has_times else dataclasses.replace(each, mtime_ns=0)

        return {path: entry(each) for path, each in entries.items() if path}

    differences = tree.differences(below(wanted), below(tree.describe(top)))
    assert not differences, "\n".join(differences)
