"""A driver with the right to write sends frames that no honest source sends."""

from __future__ import annotations

import os
import struct
import time
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from integration.harness import tree
from integration.harness.program import peak_memory
from integration.hostile.actors import (
    FOLDER,
    FOLDER_END,
    LINK,
    SINK,
    Driver,
    Options,
    block,
    crc32c,
    entry,
    new_files,
    segment,
)
from integration.wire.peer import frame_of

if TYPE_CHECKING:
    from pathlib import Path

    from integration.harness.program import Bench, Server

pytestmark = [pytest.mark.server, pytest.mark.timeout(60)]

PROTOCOL, LIMIT, ESCAPES, INVALID_NAME = 20, 21, 9, 10
#: A value of ``security.capability`` with which a program may read all files.
CAPABILITY = bytes.fromhex("0100000204000000000000000000000000000000")
POOL = 32 << 20
#: Limit of a server's memory: the pool, and 64 MiB for everything else.
MEMORY = POOL + (64 << 20)


@pytest.fixture
def root(bench: Bench) -> Path:
    """Make the folder ``evil`` in the served folder, and a folder ``outside`` the served folder."""
    root = bench.folder / "root" / "evil"
    root.mkdir(parents=True)
    (bench.folder / "outside").mkdir()
    return root


@pytest.fixture
def server(bench: Bench, root: Path) -> Server:
    """Serve the parent folder of ``root``."""
    return bench.serve(root.parent, "--pool", "32MiB")


def push(
    server: Server,
    token: bytes,
    *frames: bytes,
    options: Options | None = None,
    **more: Any,  # noqa: ANN401
) -> Driver:
    """Start a session that writes to ``evil``, and send ``frames`` after READY."""
    driver = Driver(server.address, token, SINK, b"evil", options=options, **more).begin()
    driver.until("READY")
    driver.send(*frames)
    return driver


def list_end(count: int) -> bytes:
    """Write LIST_END."""
    return frame_of(0x11, struct.pack("<Q", count))


def upload(
    server: Server,
    token: bytes,
    data: bytes,
    options: Options,
    *,
    size: int,
    **of_entry: Any,  # noqa: ANN401
) -> dict[str, Any]:
    """Push one small file. Return the last frame about it: FILE_CLOSE, FILE_IDS or GO_AWAY."""
    announced = new_files(entry(0, b"file", size=size, **of_entry))
    driver = push(server, token, announced, list_end(1), options=options)
    answer = driver.until("FILE_IDS", "FILE_CLOSE", "GO_AWAY")
    if answer["type"] != "FILE_IDS" or answer["fields"]["files"][0]["verdict"] != "want":
        return answer
    target = answer["fields"]["files"][0]["layout"]["single"]
    if size:
        stream = driver.stream()
        if not any(frame["type"] == "CREDIT" for frame in driver.said):
            driver.until("CREDIT")
        stream.send(block(1, target, segment(0, 0, data)))
    closed = driver.until("FILE_CLOSE", "GO_AWAY")
    if closed["type"] == "FILE_CLOSE":
        driver.until("VERDICT")
        driver.send(frame_of(0x35, b""))
        driver.until("BYE")
    return closed


def assert_unharmed(server: Server, bench: Bench) -> None:
    """Check that the server still serves, used little memory, and wrote nothing to ``outside``."""
    assert list((bench.folder / "outside").iterdir()) == []
    assert server.is_running()
    peak = peak_memory(server.pid)
    print(f"peak {peak >> 20} MiB")
    assert peak < MEMORY
    source = bench.folder / "honest"
    if not source.exists():
        source.write_bytes(b"honest")
    bench.cp(source, f"dray://{server.address}/honest", *bench.peer(server)).expect(0)


RESERVED = [
    b"security.capability",
    b"security.ima",
    b"trusted.overlay.opaque",
    b"system.posix_acl_access",
    b"user.dray.sums",
]


@pytest.mark.parametrize("name", RESERVED, ids=bytes.decode)
@pytest.mark.parametrize("is_folder", [False, True], ids=["file", "folder"])
def test_reserved_attributes_end_the_session(
    bench: Bench, server: Server, root: Path, token: bytes, name: bytes, is_folder: bool
) -> None:
    pairs = [(b"user.note", b"1"), (name, CAPABILITY)]
    if is_folder:
        entries = [entry(0, b"made", FOLDER), entry(0, b"made", FOLDER_END, xattrs=pairs)]
    else:
        entries = [entry(0, b"made", mode=0o755, xattrs=pairs)]
    driver = push(server, token, new_files(*entries), list_end(1), options=Options(xattrs=True))
    error = driver.error()
    assert error is not None
    assert error["kind"] == PROTOCOL, error
    assert name.decode() in error["cause"]
    made = root / "made"
    assert not made.exists() or os.listxattr(made) == []
    assert_unharmed(server, bench)


def test_unrequested_attributes_end_the_session(
    bench: Bench, server: Server, root: Path, token: bytes
) -> None:
    entries = new_files(entry(0, b"made", xattrs=[(b"user.note", b"1")]))
    error = push(server, token, entries, list_end(1)).error()
    assert error is not None
    assert error["kind"] == PROTOCOL, error
    assert not (root / "made").exists()
    assert_unharmed(server, bench)


def test_attributes_of_storage_systems_are_left_out(
    bench: Bench, server: Server, root: Path, token: bytes
) -> None:
    pairs = [(b"user.XrdCks.adler32", b"forged"), (b"user.note", b"kept")]
    closed = upload(server, token, b"abc", Options(xattrs=True), size=3, xattrs=pairs)
    assert closed["type"] == "FILE_CLOSE"
    assert os.listxattr(root / "file") == ["user.note"]
    assert_unharmed(server, bench)


def test_modes_grant_no_rights_of_other_users(
    bench: Bench, server: Server, root: Path, token: bytes
) -> None:
    upload(server, token, b"abc", Options(), size=3, mode=0o7777)
    assert (root / "file").stat().st_mode & 0o7777 == 0o777
    entries = new_files(entry(0, b"d", FOLDER), entry(0, b"d", FOLDER_END, mode=0o7777))
    push(server, token, entries, list_end(1)).until("VERDICT")
    assert (root / "d").stat().st_mode & 0o6000 == 0
    assert_unharmed(server, bench)


@pytest.mark.parametrize("seconds", [-(2**63), 2**63 - 1])
def test_times_out_of_range_fail_no_more_than_their_file(
    bench: Bench, server: Server, token: bytes, seconds: int
) -> None:
    upload(server, token, b"abc", Options(), size=3, seconds=seconds)
    assert_unharmed(server, bench)


NAMES = {
    "reserved": b".dray-log",
    "control": b"\x01\n\x1b[2J",
    "not-utf8": b"\xff\xfe",
    "longest": b"n" * 255,
}


@pytest.mark.parametrize("name", NAMES)
def test_odd_names_stay_beneath_the_root(
    bench: Bench, server: Server, root: Path, token: bytes, name: str
) -> None:
    driver = push(server, token, new_files(entry(0, NAMES[name])), list_end(1))
    closed = driver.until("FILE_CLOSE")["fields"]["files"][0]
    if name == "reserved":
        assert closed["error"]["kind"] == INVALID_NAME
    else:
        assert os.fsencode(root) + b"/" + NAMES[name] in {
            os.fsencode(path) for path in root.iterdir()
        }
    driver.close()
    assert_unharmed(server, bench)


def test_nothing_is_written_through_a_link(
    bench: Bench, server: Server, root: Path, token: bytes
) -> None:
    outside = os.fsencode(bench.folder / "outside")
    entries = new_files(entry(0, b"way", LINK, target=outside))
    push(server, token, entries, list_end(1)).until("VERDICT")
    assert (root / "way").is_symlink()
    through = new_files(
        entry(0, b"way", FOLDER),
        entry(1, b"file", parent=0),
        entry(2, b"deeper", FOLDER, parent=0),
        entry(2, b"deeper", FOLDER_END, parent=0),
        entry(0, b"way", FOLDER_END),
    )
    driver = push(server, token, through, list_end(3))
    assert driver.until("VERDICT")["fields"]["files_failed"] == 3
    assert_unharmed(server, bench)


def test_an_entry_twice_fails_and_an_index_twice_ends_the_session(
    bench: Bench, server: Server, token: bytes
) -> None:
    size = 2 << 20
    driver = push(server, token, new_files(entry(0, b"a", size=size), entry(1, b"a", size=size)))
    closed = driver.until("FILE_CLOSE")["fields"]["files"][0]
    assert closed["index"] == 1
    driver.close()
    twice = push(server, token, new_files(entry(0, b"b"), entry(0, b"c")))
    error = twice.error()
    assert error is not None
    assert error["kind"] == PROTOCOL
    assert_unharmed(server, bench)


def test_absurd_sizes_take_no_memory_and_no_space(
    bench: Bench, server: Server, root: Path, token: bytes
) -> None:
    sizes = [2**63 - 1, 2**64 - 1, 2**63, 1 << 60]
    entries = [entry(at, b"%d" % at, size=size) for at, size in enumerate(sizes)]
    driver = push(server, token, new_files(*entries), list_end(len(sizes)))
    for _ in sizes:
        driver.until("FILE_CLOSE", "FILE_IDS")
    driver.close()
    used = sum(path.lstat().st_blocks for path in root.rglob("*"))
    assert used * 512 < 1 << 20
    assert_unharmed(server, bench)


def test_wrong_sums_are_refused_and_never_published(
    bench: Bench, server: Server, root: Path, token: bytes
) -> None:
    driver = push(server, token, new_files(entry(0, b"a", size=3)), list_end(1))
    ids = driver.until("FILE_IDS")["fields"]["files"][0]
    if not any(frame["type"] == "CREDIT" for frame in driver.said):
        driver.until("CREDIT")
    stream = driver.stream()
    stream.send(block(1, ids["layout"]["single"], segment(0, 0, b"abc", sums=(1, 2))))
    state = driver.until("BLOCK_SYNC")["fields"]["blocks"][0]
    assert state["state"] == "nack"
    driver.close()
    assert not (root / "a").exists()
    assert_unharmed(server, bench)


def pieces_of_a_hole(count: int, step: int) -> list[bytes]:
    """Write blocks that are holes of one object. Between two holes, one object is missing."""
    return [block(at, 0, segment(0, 2 * at * step, step)) for at in range(count)]


def test_holes_do_not_pile_up(bench: Bench, server: Server, token: bytes) -> None:
    size = 1 << 42
    driver = push(server, token, new_files(entry(0, b"a", size=size)), list_end(1))
    object_bytes = driver.until("FILE_IDS")["fields"]["files"][0]["object_bytes"]
    stream = driver.stream()
    stream.send(*pieces_of_a_hole(6000, object_bytes))
    driver.until("GO_AWAY", "BLOCK_SYNC")
    driver.close()
    assert_unharmed(server, bench)


def test_many_large_entries_are_bounded(bench: Bench, server: Server, token: bytes) -> None:
    value = bytes(60_000)
    pairs = [(b"user.a", value), (b"user.b", value)]
    driver = push(server, token, options=Options(xattrs=True))
    sent = 0
    try:
        # The server remembers a folder until the source has ended it.
        for at in range(60):
            driver.send(new_files(entry(at, b"%d" % at, FOLDER, xattrs=pairs)))
            driver.send(new_files(entry(at, b"%d" % at, FOLDER_END, xattrs=pairs)))
            sent += 1
    except OSError:
        pass
    print(f"{sent} folders with 120 KiB of attributes each")
    driver.close()
    assert_unharmed(server, bench)


@pytest.mark.full
def test_deep_and_long_paths_are_bounded(bench: Bench, server: Server, token: bytes) -> None:
    driver = push(server, token)
    try:
        parent = None
        for at in range(255):
            driver.send(new_files(entry(at, b"d" * 250, FOLDER, parent=parent)))
            parent = at
        # The path of each of these files has 64 KiB.
        for at in range(255, 2000):
            driver.send(new_files(entry(at, b"%d" % at, size=9 << 20, parent=parent)))
    except OSError:
        pass
    error = driver.error()
    print(error)
    assert_unharmed(server, bench)


FLOODS = {
    "credit": frame_of(
        0x20, struct.pack("<I", 1000) + b"".join(struct.pack("<II", at, 0) for at in range(1000))
    ),
    "list-failed": frame_of(
        0x16,
        struct.pack("<I", 500)
        + (struct.pack("<HBB", 0, 0, 0) + b"\0" + struct.pack("<I", 0) * 3) * 500,
    ),
    "ping": b"".join(frame_of(0x30, struct.pack("<Q", at)) for at in range(1000)),
    "abort": b"".join(
        frame_of(0x15, struct.pack("<QHBB", at, 0, 0, 0) + b"\0" + struct.pack("<I", 0) * 3)
        for at in range(500)
    ),
    "stream-lost": frame_of(
        0x22, struct.pack("<II", 7, 1000) + b"".join(struct.pack("<Q", at) for at in range(1000))
    ),
    "rate": b"".join(frame_of(0x23, struct.pack("<BQ", 1, at)) for at in range(1000)),
    "profile": frame_of(0x80, struct.pack("<IBQ", 1, 1, 2**64 - 1)) * 1000,
}


@pytest.mark.parametrize("flood", FLOODS)
def test_floods_of_messages_are_bounded(
    bench: Bench, server: Server, token: bytes, flood: str
) -> None:
    driver = push(server, token)
    driver.tls.settimeout(2)
    sent = 0
    try:
        while sent < 2 << 20:
            driver.send(FLOODS[flood])
            sent += len(FLOODS[flood])
    except OSError as error:
        print(f"after {sent >> 10} KiB: {error}")
    driver.close()
    assert_unharmed(server, bench)


def test_failed_files_leave_nothing_behind(
    bench: Bench, server: Server, root: Path, token: bytes
) -> None:
    """Start 300 files of 3 MiB, and abort each."""
    driver = push(server, token)
    error = struct.pack("<HBB", 27, 1, 0) + b"\0" + struct.pack("<I", 0) * 3
    for at in range(300):
        driver.send(new_files(entry(at, b"%d" % at, size=3 << 20)))
        driver.send(frame_of(0x15, struct.pack("<Q", at) + error))
    driver.send(list_end(300))
    assert driver.until("VERDICT")["fields"]["files_failed"] == 300
    driver.send(frame_of(0x35, b""))
    driver.until("BYE")
    # The server removes the partial files after it has sent BYE.
    until = time.monotonic() + 10
    while tree.leftovers(root) and time.monotonic() < until:
        time.sleep(0.05)
    assert tree.leftovers(root) == []
    assert_unharmed(server, bench)


def test_stored_checksums_of_a_peer_are_not_trusted(
    bench: Bench, server: Server, root: Path, token: bytes
) -> None:
    """The file at the sink has an attribute with a false checksum. dray reads the file instead."""
    good, bad = bench.folder / "good", root / "file"
    good.write_bytes(b"the right bytes")
    bad.write_bytes(b"the wrong bytes")
    os.utime(good, ns=(0, 1_700_000_000_000_000_000))
    os.utime(bad, ns=(0, 1_700_000_000_000_000_000))
    data = good.read_bytes()
    adler = f"adler32:{zlib.adler32(data):08x}"
    kept = f"crc32c:{crc32c(data):08x} {adler} size:15 modified:1700000000.000000000"
    os.setxattr(bad, "user.dray.sums", kept.encode())
    words = ["--checksum", adler, *bench.peer(server)]
    ended = bench.cp(good, f"dray://{server.address}/evil/file", *words).expect(0)
    assert ended.report["files_adopted"] == 0
    assert bad.read_bytes() == good.read_bytes()
    again = bench.cp(good, f"dray://{server.address}/evil/file", *words).expect(0)
    assert again.report["files_adopted"] == 1
