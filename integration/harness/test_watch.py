"""Tests of the watcher of a destination."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from integration.harness import tree
from integration.harness.watch import Content, Watcher

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_an_unreadable_file_hides_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_bytes(b"wrong")
    allowed = {name: {Content(5, b"another sum")} for name in (b"a", b"b", b"c")}
    read = tree.hash_file

    def hash_file(path: bytes) -> bytes:
        if path.endswith(b"b"):
            raise OSError(errno.EIO, "the disk fails")
        return read(path)

    monkeypatch.setattr(tree, "hash_file", hash_file)
    with Watcher(tmp_path, allowed) as watcher:
        pass
    assert sorted(watcher.violations) == [
        "b'a' stood there with wrong content",
        "b'c' stood there with wrong content",
    ]
    monkeypatch.setattr(tree, "hash_file", read)
    watcher = Watcher(tmp_path, allowed)
    with watcher:
        pass
    assert len(watcher.violations) == 3
