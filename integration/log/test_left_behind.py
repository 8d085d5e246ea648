"""The decoder reads the logs of killed copies. The logged ranges are in the partial files."""

from __future__ import annotations

import importlib.util
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from integration.harness import tree

if TYPE_CHECKING:
    from types import ModuleType

    from integration.harness.program import Bench

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]


def load() -> ModuleType:
    """Import the decoder by its path, because this folder is no package."""
    spec = importlib.util.spec_from_file_location(
        "left_behind_log_decoder", Path(__file__).parent / "decoder.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


decoder = load()


@pytest.mark.parametrize("durability", ["file", "object", "none"])
def test_the_logged_ranges_are_in_the_partial_files(bench: Bench, durability: str) -> None:
    source, sink = bench.folder / "source", bench.folder / "sink"
    source.mkdir()
    for number in range(3):
        tree.make_file(source / f"file{number}", 24 * tree.MIB + number, seed=number)
    words = ["-r", str(source), f"{sink}/", "--durability", durability]
    client = bench.start_cp(*words, "--rate", "16MiB", "--progress", "json", "--transfer-id", "t:1")
    client.await_durable()
    client.kill()
    (log,) = (sink / ".dray-log").glob("*.log")
    (lease,) = (sink / ".dray-log").glob("*.lease")
    read = decoder.read_log(log.read_bytes())
    holder = decoder.read_lease(lease.read_bytes())
    assert holder is not None
    assert holder["transfer"] == "t:1"
    assert str(client.pid) in holder["holder"]
    assert read["tenure"]["transfer"] == "t:1"
    assert read["damage"] is None
    safe = 0
    for file in read["files"]:
        original = source.parent / file["path"]
        assert file["size"] == original.stat().st_size
        assert file["is_weak"] is (durability == "none")
        seconds, nanoseconds = file["modified"]
        assert seconds * 10**9 + nanoseconds == original.stat().st_mtime_ns
        partial = (sink / file["path"]).with_name(file["partial"]["name"])
        assert partial.stat().st_ino == file["partial"]["inode"]
        with partial.open("rb") as left, original.open("rb") as right:
            for count, (offset, length, _, adler) in enumerate(file["done"]):
                left.seek(offset)
                right.seek(offset)
                data = left.read(length)
                assert data == right.read(length), f"{file['path']} at {offset}"
                assert zlib.adler32(data) == adler
                if count == 0:
                    # Call crc32c only on no bytes, because it is slow in plain Python.
                    assert decoder.crc32c(data[:0]) == 0
                safe += length
    assert safe > 0, "nothing was logged"
    ended = bench.cp(*words).expect(0)
    tree.assert_same(tree.describe(source), sink / "source")
    assert ended.report["bytes_resumed"] >= safe
