"""Direct I/O: large files are read and written without the page cache."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from dray.client import Request
from dray.testing.endpoints import Root
from integration.harness import tree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dray.testing.endpoints import Endpoint
    from integration.harness.program import Bench

pytestmark = [pytest.mark.server, pytest.mark.timeout(120)]

#: Size of the file. The last bytes do not fill a block, so they are written through the page cache.
FILE_BYTES = 24 * tree.MIB + 123
#: Maximum number of bytes of the file in the page cache, with read-ahead.
CACHED_MAX = tree.MIB


def cached(path: Path) -> int:
    """Count the bytes of a file that the page cache holds."""
    words: list[str | Path] = ["fincore", "--bytes", "--noheadings", "--output", "RES", path]
    return int(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


@pytest.fixture(autouse=True)
def direct(bench: Bench) -> None:
    """Skip the test if the file system of the tests is in memory or has no direct I/O."""
    probe = bench.folder / "probe"
    probe.touch()
    kind: list[str | Path] = ["stat", "--file-system", "--format", "%T", probe]
    file_system = subprocess.run(kind, check=True, capture_output=True, text=True).stdout.strip()
    try:
        os.close(os.open(probe, os.O_RDONLY | os.O_DIRECT))
    except OSError as error:
        pytest.skip(f"{file_system} takes no direct I/O: {error}")
    if file_system == "tmpfs":
        pytest.skip("memory takes direct I/O by name only")


def drop(path: Path) -> None:
    """Drop a file from the page cache."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@pytest.mark.parametrize("way", ["here", "served"])
def test_direct_copy_leaves_the_page_cache_alone(bench: Bench, way: str) -> None:
    source, sink = bench.folder / "source", bench.folder / "sink"
    source.mkdir()
    sink.mkdir()
    tree.make_file(source / "large", FILE_BYTES, seed=1)
    tree.make_file(source / "small", 999, seed=2)
    drop(source / "large")
    if way == "here":
        ended = bench.cp("-r", "--direct-io", f"{source}/", f"{sink}/")
    else:
        server = bench.serve(sink, "--direct-io")
        words = [f"dray://{server.address}/", *bench.peer(server)]
        ended = bench.cp("-r", "--direct-io", f"{source}/", *words)
    assert ended.code == 0, ended
    held = {path: cached(path / "large") for path in (source, sink)}
    for name in ("large", "small"):
        assert (sink / name).read_bytes() == (source / name).read_bytes()
    for path, count in held.items():
        assert count <= CACHED_MAX, (path, count)
    # Without the option the whole file is cached, so the count shows the effect of the option.
    drop(source / "large")
    again = bench.folder / "again"
    assert bench.cp(source / "large", again).code == 0
    assert cached(again) >= FILE_BYTES


def test_root_of_an_endpoint_leaves_the_page_cache_alone(
    start_endpoint: Callable[..., Endpoint],
) -> None:
    endpoint = start_endpoint("a", roots=(Root("data", {"direct_io": True}),))
    tree.make_file(endpoint.root("one"), FILE_BYTES, seed=1)
    drop(endpoint.root("one"))
    with endpoint.client() as client:
        client.submit(Request(endpoint.place("one"), endpoint.place("two"), id="x"))
        assert client.wait("x").state == "done"
    for name in ("one", "two"):
        assert cached(endpoint.root(name)) <= CACHED_MAX
    assert endpoint.root("two").read_bytes() == endpoint.root("one").read_bytes()
