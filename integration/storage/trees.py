"""Comparison of copied trees of files with their source."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from integration.harness import tree

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["same"]


def same(wanted: dict[bytes, tree.Entry], top: Path, *, has_times: bool = True) -> None:
    """Compare the files below ``top`` with ``wanted``, and their times if ``has_times`` is true."""

    def below(entries: dict[bytes, tree.Entry]) -> dict[bytes, tree.Entry]:
        def entry(each: tree.Entry) -> tree.Entry:
            return each if has_times else dataclasses.replace(each, mtime_ns=0)

        return {path: entry(each) for path, each in entries.items() if path}

    differences = tree.differences(below(wanted), below(tree.describe(top)))
    assert not differences, "\n".join(differences)
