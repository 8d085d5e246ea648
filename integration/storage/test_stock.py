"""Stock programs read what dray has written to a pool, and dray reads what they have written."""

from __future__ import annotations

import random
import re
import zlib
from typing import TYPE_CHECKING

import pytest

from integration.storage import xrdceph

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from integration.harness.program import Bench
    from integration.storage.ceph import Cluster
    from integration.storage.xrdceph import XrdCeph

pytestmark = [pytest.mark.server]

MIB = 1 << 20
OBJECT = 4 * MIB
POOL = "stock-programs"
TRACED = "stock-traced"
#: Number of copies. The connections of a copy are opened before or after the first read.
COPIES = 4
#: A file that an XRootD server opens or reads, in its log, with the name of the connection.
OPEN = re.compile(r"(\S+) Xrootd_Protocol: \S+ open \S+ /large")
READ = re.compile(r"(\S+) Xrootd_Protocol: .* fh=\S+ read \d+@")
SIZES = {
    "empty": 0,
    "byte": 1,
    "below": OBJECT - 1,
    "object": OBJECT,
    "above": OBJECT + 1,
    "many": 9 * OBJECT + 12345,
}
LAYOUTS = {
    "plain": "",
    "striped": f"&stripe_count=4&stripe_unit={MIB}&object_size={2 * MIB}",
}


@pytest.fixture(scope="module")
def xrootd(ceph: Cluster, shared: Path) -> Iterator[XrdCeph]:
    """Yield a stock XRootD server that serves the pool ``POOL``."""
    if reason := xrdceph.find_missing():
        pytest.skip(reason)
    ceph.make_pool(POOL)
    server = xrdceph.start(ceph, POOL, shared)
    yield server
    server.close()


def _make(folder: Path, sizes: dict[str, int] = SIZES) -> None:
    folder.mkdir()
    for name, size in sizes.items():
        (folder / name).write_bytes(random.Random(name).randbytes(size))


def _url(cluster: Cluster, name: str, layout: str = "") -> str:
    return f"rados://{POOL}/{name}?conf={cluster.configuration}{layout}"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_stock_programs_read_what_dray_wrote(
    bench: Bench, ceph: Cluster, xrootd: XrdCeph, layout: str
) -> None:
    source, back = bench.folder / "source", bench.folder / "back"
    _make(source)
    top = f"/written/{layout}"
    report = bench.cp("-r", f"{source}/", _url(ceph, f"{top}/", LAYOUTS[layout])).expect(0).report
    assert report["files"] == len(SIZES), report
    for name in SIZES:
        data = (source / name).read_bytes()
        got = ceph.rados("-p", POOL, "--striper", "get", f"{top}/{name}", back)
        assert got.returncode == 0, got.stderr
        assert back.read_bytes() == data, name
        back.unlink()
        xrootd.xrdcp(xrootd.at(f"{top}/{name}"), back).expect(0)
        assert back.read_bytes() == data, name
        back.unlink()
        assert xrootd.checksum(f"{top}/{name}") == zlib.adler32(data), name
    objects = [name for name in ceph.names(POOL) if name.startswith(top)]
    many = [name for name in objects if name.startswith(f"{top}/many.")]
    assert len(many) == (10 if layout == "plain" else 20), many
    # Stock programs see no objects except those of the files.
    assert {name.rpartition(".")[0] for name in objects} == {f"{top}/{name}" for name in SIZES}


@pytest.mark.parametrize("writer", ["xrdcp", "striper"])
def test_dray_reads_what_stock_programs_wrote(
    bench: Bench, ceph: Cluster, xrootd: XrdCeph, writer: str
) -> None:
    source, back = bench.folder / "source", bench.folder / "back"
    # Leave out the empty file: neither program writes an object with all its attributes.
    sizes = {name: size for name, size in SIZES.items() if size}
    _make(source, sizes)
    top = f"/stock/{writer}"
    for name in sizes:
        if writer == "xrdcp":
            xrootd.xrdcp(source / name, xrootd.at(f"{top}/{name}")).expect(0)
        else:
            put = ceph.rados("-p", POOL, "--striper", "put", f"{top}/{name}", source / name)
            assert put.returncode == 0, put.stderr
    bench.cp("-r", _url(ceph, f"{top}/"), f"{back}/").expect(0)
    for name in sizes:
        assert (back / name).read_bytes() == (source / name).read_bytes(), name
    assert {path.name for path in back.iterdir()} == set(sizes)
    one = bench.folder / "one"
    bench.cp(_url(ceph, f"{top}/many"), one).expect(0)
    assert one.read_bytes() == (source / "many").read_bytes()


def test_a_stock_reader_sees_no_incomplete_file(
    bench: Bench, ceph: Cluster, xrootd: XrdCeph
) -> None:
    source, back = bench.folder / "source", bench.folder / "back"
    source.write_bytes(random.Random(5).randbytes(10 * OBJECT))
    client = bench.start_slow_cp("--rate", "8MiB", source, _url(ceph, "/slowly"))
    for _ in range(3):
        assert xrootd.xrdcp(xrootd.at("/slowly"), back).code != 0
        assert ceph.rados("-p", POOL, "--striper", "stat", "/slowly").returncode != 0
        assert client.is_running()
    client.wait().expect(0)
    xrootd.xrdcp(xrootd.at("/slowly"), back).expect(0)
    assert back.read_bytes() == source.read_bytes()


def test_a_file_is_read_over_several_connections(bench: Bench, ceph: Cluster, shared: Path) -> None:
    """A copy reads over all its connections, although each read changes the time of the file."""
    ceph.make_pool(TRACED)
    server = xrdceph.start(ceph, TRACED, shared, "xrootd.trace all")
    try:
        source, back = bench.folder / "source", bench.folder / "back"
        source.write_bytes(random.Random(6).randbytes(16 * OBJECT))
        server.xrdcp(source, server.at("/large")).expect(0)
        for _ in range(COPIES):
            begun = len(server.log())
            bench.cp(server.at("/large"), back).expect(0)
            assert back.read_bytes() == source.read_bytes()
            back.unlink()
            log = server.log()[begun:]
            opened, reading = set(OPEN.findall(log)), set(READ.findall(log))
            assert len(opened) > 1, log
            assert reading == opened, log
    finally:
        server.close()
