"""The Ceph store on a real cluster: conformance, memory errors, replacement, resume, plans."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from integration.harness.marks import in_full
from integration.harness.program import ROOT, Process, find_program

if TYPE_CHECKING:
    from integration.storage.ceph import Cluster

pytestmark = [pytest.mark.server]

MIB = 1 << 20
#: Bytes of ``--pool`` in the test of memory.
BUFFERS = 64 * MIB
#: Number of writers of a copy into a pool with three OSDs. librados copies the bytes of each write.
WRITERS = 12
#: Bytes for the program, its threads, the connections of librados, and freed memory that the
#: allocator keeps.
BESIDE = 128 * MIB
#: A conformance case that takes too long: it makes 100 000 files one after another.
LEFT_OUT = "100 000 entries are listed as they are found"
#: A layout in which a small file has several objects: objects of 128 KiB, three in turn.
STRIPED = "?stripe_count=3&stripe_unit=65536&object_size=131072"
#: Conformance cases that are slow with valgrind. The other cases make the same library calls.
SLOW = [
    "a reader sees the old or the new file",
    "mode and time are kept as declared",
    "names are bytes, up to the longest",
    "groups small and large are made durable",
    "small files are written and published apart",
    "writes come in any order, again and again",
    "a partial file is never seen",
    "dray's own names are not listed",
    "a folder can be skipped",
    "a changed file is noticed",
]


def _built(name: str) -> Path:
    target = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "engine" / "target")
    found = target / "debug" / name
    if not found.exists():
        pytest.fail(f"no {found}; build it: make test-storage")
    return found


def _run(ceph: Cluster, *words: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "CEPH_CONF": str(ceph.configuration), **more}
    return subprocess.run(
        words, env=environment, capture_output=True, text=True, timeout=500, check=False
    )


def _copy(ceph: Cluster, *words: str | Path) -> None:
    ended = _run(ceph, find_program(), "cp", *words)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def _striped(ceph: Cluster, pool: str, name: str, to: Path) -> bytes:
    """Return the content of a file, as libradosstriper reads it."""
    to.unlink(missing_ok=True)
    ended = ceph.rados("-p", pool, "--striper", "get", name, to)
    assert ended.returncode == 0, ended.stderr
    return to.read_bytes()


def _bytes(path: Path, size: int, seed: int) -> Path:
    path.write_bytes(random.Random(seed).randbytes(size))
    return path


@pytest.fixture(scope="module")
def pool(ceph: Cluster) -> str:
    """Make the pool of this module, and return its name."""
    ceph.make_pool("store")
    return "store"


@pytest.mark.parametrize("layout", ["", STRIPED], ids=["plain", "striped"])
def test_the_store_passes_the_suite(ceph: Cluster, pool: str, layout: str) -> None:
    """The store passes all conformance cases, except the one that is left out."""
    url = f"rados://{pool}@suite//{'striped' if layout else 'plain'}{layout}"
    ended = _run(ceph, _built("examples/rados_conformance"), url, LEFT_OUT)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert " 0 failed" in ended.stdout
    assert ended.stdout.count("passed   ") >= 30, ended.stdout


def test_a_folder_lists_its_control_files_while_others_delete_it(ceph: Cluster, pool: str) -> None:
    """Six clients create and delete control files, and delete the folder when it is empty."""
    ended = _run(ceph, _built("examples/control_names"), f"rados://{pool}@names//f")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout == "0 names left\n"
    assert [name for name in ceph.names(pool, "names.dray") if name[0] == "l"] == []


@pytest.mark.full
def test_valgrind_finds_nothing_in_the_bindings(ceph: Cluster, pool: str) -> None:
    """The calls of librados access only valid memory, and free it correctly."""
    if shutil.which("valgrind") is None:
        pytest.fail("valgrind is missing: run `make setup`", pytrace=False)
    valgrind = ["valgrind", "--undef-value-errors=no", "--error-exitcode=99", "-q"]
    program = _built("examples/rados_conformance")
    ended = _run(ceph, *valgrind, program, f"rados://{pool}@valgrind//v", LEFT_OUT, *SLOW)
    assert ended.returncode == 0, ended.stdout + ended.stderr[-4000:]
    assert " 0 failed" in ended.stdout


def test_each_kind_of_file_replaces_each_other_kind(
    ceph: Cluster, pool: str, tmp_path: Path
) -> None:
    """After each replacement, the new file is complete and no object of the old one remains."""
    sizes = {"one object": 3 * MIB, "three": 9 * MIB, "none": 0, "two": 8 * MIB}
    files = [_bytes(tmp_path / name, size, size) for name, size in sizes.items()]
    order = [0, 1, 0, 3, 1, 2, 3, 2, 1, 1, 0]
    for place, number in enumerate(order):
        file = files[number]
        os.utime(file, (place, place))
        _copy(ceph, file, f"rados://{pool}//replaced/f")
        assert _striped(ceph, pool, "/replaced/f", tmp_path / "out") == file.read_bytes()
        count = max(1, -(-file.stat().st_size // (4 * MIB)))
        names = [name for name in ceph.names(pool) if name.startswith("/replaced/f.")]
        assert len(names) == count, (place, names)
    state = ceph.names(pool, namespace=".dray")
    assert [name for name in state if "replaced" in name and name[0] in "pcs"] == []


def test_a_killed_copy_is_invisible_and_resumes(ceph: Cluster, pool: str, tmp_path: Path) -> None:
    """After SIGKILL, no program finds the file. The next run resumes from the durable data."""
    file = _bytes(tmp_path / "big", 96 * MIB, 7)
    url = f"rados://{pool}//killed/big"
    environment = {**os.environ, "CEPH_CONF": str(ceph.configuration)}
    words: list[str | Path] = [find_program(), "cp", "--rate", "16MiB", file, url]
    running = subprocess.Popen(
        words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    until = time.monotonic() + 60
    while not any(name.startswith("l/killed/") for name in ceph.names(pool, ".dray")):
        assert time.monotonic() < until, "no log"
        time.sleep(0.1)
    # Let the copy make some objects durable.
    time.sleep(4)
    running.send_signal(signal.SIGKILL)
    running.wait()
    stat = ceph.rados("-p", pool, "--striper", "stat", "/killed/big")
    assert stat.returncode != 0
    assert any(name.startswith("/killed/big.") for name in ceph.names(pool))
    ended = _run(ceph, find_program(), "cp", file, url)
    assert ended.returncode == 0, ended.stderr
    assert "starting over" not in ended.stderr, ended.stderr
    assert "96.0 MiB sent" not in ended.stdout, ended.stdout
    assert _striped(ceph, pool, "/killed/big", tmp_path / "out") == file.read_bytes()


@pytest.mark.parametrize("size", [256 * MIB, in_full(768 * MIB)])
def test_the_memory_of_a_copy_has_a_bound_that_the_file_does_not_change(
    ceph: Cluster, pool: str, tmp_path: Path, size: int
) -> None:
    """The bound of docs/explanation/measured-ceph.md, in a copy with few buffers."""
    url = f"rados://{pool}//memory{size}?conf={ceph.configuration}"
    words: list[str | Path] = [find_program(), "cp", "--progress", "none", "--quiet"]
    words += ["--pool", str(BUFFERS), f"null:{size}", url]
    ended = Process(words, tmp_path, "dray").wait(120).expect(0)
    for name in ceph.names(pool):
        ceph.remove(pool, name)
    assert ended.memory_peak < BUFFERS + WRITERS * 4 * MIB + BESIDE, f"{ended.memory_peak >> 20}"


def test_a_missing_library_is_named_with_its_package(
    ceph: Cluster, pool: str, tmp_path: Path
) -> None:
    """Without librados, the message names the package to install."""
    words: list[str | Path] = [find_program(), "cp", f"rados://{pool}//x", tmp_path / "x"]
    ended = _run(ceph, *words, DRAY_LIBRADOS="/nonexistent/librados.so.2")
    assert ended.returncode != 0
    assert "librados2" in ended.stderr, ended.stderr


def test_a_plan_shows_the_osd_of_each_object(ceph: Cluster, pool: str, tmp_path: Path) -> None:
    """``dray plan --layout`` shows an OSD for each range, and creates nothing in the pool."""
    source = _bytes(tmp_path / "file", 16 * MIB, 1)
    url = f"rados://{pool}@plan//made/later/"

    def plan(*words: str | Path) -> list[dict[str, Any]]:
        ended = _run(ceph, find_program(), "plan", "--json", "--layout", *words)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return [json.loads(line) for line in ended.stdout.splitlines()]

    def targets(lines: list[dict[str, Any]], key: str) -> list[str]:
        return [line[key] for line in lines if line["event"] == "range"]

    lines = plan(source, f"{url}file")
    planned = targets(lines, "sink_target")
    assert planned, lines
    assert all(re.fullmatch(r"osd\.?[0-9]+", target) for target in planned), planned
    listed = ceph.rados("-p", pool, "-N", "plan", "ls")
    assert listed.stdout == "", listed.stdout
    _copy(ceph, source, f"{url}file")
    assert plan(source, f"{url}file")[-1]["files_adopt"] == 1
    # A plan to read the file names OSDs of the cluster too.
    lines = plan(f"{url}file", tmp_path / "back")
    assert set(targets(lines, "source_target")) <= {f"osd.{number}" for number in range(3)} | {
        f"osd{number}" for number in range(3)
    }
    assert lines[-1]["bytes_to_send"] == 16 * MIB


def _write_files(ceph: Cluster, pool: str, folder: Path) -> list[str]:
    """Write files into a pool; return their names in order."""
    names = [f"{number:04}" for number in range(500)]
    for name in names:
        (folder / name).write_bytes(b"x")
    _copy(ceph, "-r", f"{folder}/", f"rados://{pool}//listed/")
    return names


def _listed(ceph: Cluster, pool: str) -> list[str]:
    """Return the names of files in the listing of a folder, as ``dray plan`` prints them."""
    url = f"rados://{pool}//listed/"
    ended = _run(ceph, find_program(), "plan", "-r", "--json", "--layout", url, "/nonexistent/")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    return [line["path"].rsplit("/", 1)[-1] for line in lines if line["event"] == "range"]


@pytest.mark.parametrize("groups", [1, 12, 64])
def test_a_listing_contains_each_file(ceph: Cluster, tmp_path: Path, groups: int) -> None:
    """A pool may have one group, groups of unequal sizes, or more groups than threads."""
    pool = f"listed-{groups}"
    ceph.make_pool(pool, groups)
    ceph.await_groups(pool)
    names = _write_files(ceph, pool, tmp_path)
    assert _listed(ceph, pool) == names
    ceph.remove_pool(pool)


def test_a_listing_is_complete_while_groups_split(ceph: Cluster, tmp_path: Path) -> None:
    """Each listing contains each file, while a pool of one group gets 32 groups."""
    pool = "listed-split"
    ceph.make_pool(pool, 1)
    ceph.await_groups(pool)
    names = _write_files(ceph, pool, tmp_path)
    ceph.mon("osd pool set", pool=pool, var="pg_num", val="32")
    counts: set[int] = set()
    until = time.monotonic() + 120
    while max(counts, default=0) < 32:
        assert time.monotonic() < until, f"the groups are not split: {counts}"
        assert _listed(ceph, pool) == names
        pools = ceph.mon("osd dump")["pools"]
        counts |= {one["pg_num"] for one in pools if one["pool_name"] == pool}
    ceph.remove_pool(pool)
