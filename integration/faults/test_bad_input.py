"""Bad input: a message names file, end, cause and remedy, and a later copy succeeds."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import stat
import struct
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from integration.faults.words import (
    INTERRUPTED,
    REFUSED,
    SAFE,
    SOME_FAILED,
    UNREACHABLE,
    USAGE,
    check_rest,
    explains,
    failed,
    works,
)
from integration.harness import host, tree
from integration.harness.program import Bench, Server, Word, peak_memory
from integration.harness.watch import Content, Watcher

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]


# Source


def test_missing_source(bench: Bench, source: Path, sink: Path) -> None:
    ended = bench.cp(source / "nothing-here", f"{sink}/new/").expect(SOME_FAILED)
    explains(ended, "source", "not found", "nothing-here", "check the path")
    assert list(sink.iterdir()) == [], "a mistyped name left something"
    ended = bench.cp("-r", source, source / "nothing-here", f"{sink}/").expect(SOME_FAILED)
    explains(ended, "source", "nothing-here", "not found")
    tree.assert_same(tree.describe(source), sink / "source")
    assert tree.leftovers(sink) == []


def test_missing_source_of_a_server(bench: Bench, source: Path, sink: Path) -> None:
    server = bench.serve(source)
    far = f"dray://{server.address}"
    ended = bench.cp(f"{far}/nothing-here", f"{sink}/", *bench.peer(server)).expect(SOME_FAILED)
    explains(ended, "source", "nothing-here", "not found", "check the path")
    assert tree.describe(sink).keys() == {b""}
    words: list[Word] = ["-r", f"{far}/m", f"{sink}/", *bench.peer(server)]
    works(bench, source / "m", words, sink / "m")


@pytest.mark.parametrize("what", ["file", "folder"])
def test_unreadable_in_the_middle(bench: Bench, source: Path, sink: Path, what: str) -> None:
    name = "m/large" if what == "file" else "m"
    words: list[Word] = ["-r", source, f"{sink}/"]
    mode = (source / name).stat().st_mode
    (source / name).chmod(0)
    try:
        ended = bench.cp(*words, wrap=host.without_power()).expect(SOME_FAILED)
    finally:
        (source / name).chmod(mode)
    explains(ended, "source", name, "permission denied", "give the user access")
    assert failed(ended).keys() == {f"source/{name}"}
    assert ended.report["state"] == "failed"
    check_rest(source, sink / "source", name)
    works(bench, source, words, sink / "source")


def test_source_changes_during_the_copy(bench: Bench, source: Path, sink: Path) -> None:
    words: list[Word] = ["-r", source, f"{sink}/"]
    large = source / "m" / "large"
    old = tree.hash_file(large)
    allowed = Watcher.of(tree.describe(source), b"source")
    client = bench.start_slow_cp(*words, "--rate", "6MiB")
    # Stop the program, so that it sees only the final modification time, and none during the write.
    client.send(signal.SIGSTOP)
    # Write in place, so that the length and the inode of the source file do not change.
    with large.open("r+b") as file:
        file.write(os.urandom(24 * tree.MIB))
    allowed[b"source/m/large"] |= {Content(24 * tree.MIB, tree.hash_file(large))}
    with Watcher(sink, allowed) as watcher:
        client.send(signal.SIGCONT)
        ended = client.wait()
    assert watcher.violations == [], "bytes of two versions were mixed"
    assert ended.code in {SAFE, SOME_FAILED}, ended.words
    if ended.code == SOME_FAILED:
        explains(ended, "source", "m/large", "changed")
        check_rest(source, sink / "source", "m/large")
    else:
        assert tree.hash_file(sink / "source/m/large") != old
    works(bench, source, words, sink / "source")


# Destination


def test_destination_full(bench: Bench, source: Path) -> None:
    with host.small_file_system(bench.folder / "small", 16 * tree.MIB) as small:
        words: list[Word] = ["-r", source, f"{small}/"]
        filler = small / "filler"
        filler.write_bytes(bytes(2 * tree.MIB))
        # Copy slowly, so that some data is synced and durable before the storage is full.
        ended = bench.cp(*words, "--rate", "10MiB").expect(SOME_FAILED)
        explains(ended, "sink", "m/large", "no space left", "free some space")
        assert "source/m/large" in failed(ended)
        entries = tree.describe(small / "source")
        wanted = tree.describe(source)
        for path, entry in entries.items():
            assert entry.kind != "file" or entry == wanted[path], f"{path!r} is not complete"
        filler.unlink()
        # With more space, the same command succeeds.
        assert os.system(f"mount -o remount,size=64m {small}") == 0  # noqa: S605
        ended = bench.cp(*words).expect(SAFE)
        tree.assert_same(wanted, small / "source")
        assert tree.leftovers(small) == []
        assert ended.report["objects_resumed"] > 0, "durable data was sent again"


def test_destination_full_at_a_server(bench: Bench, source: Path) -> None:
    with host.small_file_system(bench.folder / "small", 16 * tree.MIB) as small:
        server = bench.serve(small)
        words: list[Word] = ["-r", source, f"dray://{server.address}/", *bench.peer(server)]
        ended = bench.cp(*words).expect(SOME_FAILED)
        explains(ended, "sink", "m/large", "no space left", "free some space")
        assert os.system(f"mount -o remount,size=64m {small}") == 0  # noqa: S605
        works(bench, source, words, small / "source")
        server.stop().expect(SAFE)


@pytest.mark.parametrize("way", ["here", "served"])
def test_a_too_small_destination_is_detected_immediately(
    bench: Bench, source: Path, way: str
) -> None:
    rest = sum(entry.size for entry in tree.describe(source).values() if entry.kind == "file")
    rest -= (source / "m/large").stat().st_size
    with host.small_file_system(bench.folder / "small", 16 * tree.MIB) as small:
        if way == "served":
            server = bench.serve(small, "--preallocate")
            words: list[Word] = [f"dray://{server.address}/", *bench.peer(server)]
        else:
            words = [f"{small}/", "--preallocate"]
        ended = bench.cp("-r", source, *words).expect(SOME_FAILED)
        explains(ended, "sink", "m/large", "no space left", "free some space")
        assert ended.report["bytes_sent"] <= rest, "bytes were sent for a file that does not fit"
        assert tree.leftovers(small) == []
        check_rest(source, small / "source", "m/large")
        assert os.system(f"mount -o remount,size=64m {small}") == 0  # noqa: S605
        works(bench, source, ["-r", source, *words], small / "source")
        if way == "served":
            server.stop().expect(SAFE)


def test_disk_full_while_logging(bench: Bench, source: Path, sink: Path) -> None:
    # Mount a file system of two pages for the folder of the log: one page for the log, and one for
    # the lease. The copied files lie on another file system.
    with host.small_file_system(sink / ".dray-log", 2 * 4096):
        many = bench.folder / "many"
        many.mkdir()
        for number in range(4):
            tree.make_file(many / f"file{number}", 200 * 4096, seed=number)
        words: list[Word] = ["-r", many, f"{sink}/", "--object-size", "4KiB"]
        ended = bench.cp(*words)
        for path, entry in tree.describe(sink / "many").items():
            assert entry.kind != "file" or entry == tree.describe(many)[path], path
        assert ended.code in {SOME_FAILED, REFUSED, INTERRUPTED}, ended.words
        explains(ended, "sink", "no space left", "free some space")
        assert ".dray-log" in ended.words or "log" in ended.words
    shutil.rmtree(sink / ".dray-log", ignore_errors=True)
    works(bench, many, words, sink / "many")


@pytest.mark.parametrize("how", ["mode", "mount"])
def test_read_only_destination(bench: Bench, source: Path, sink: Path, how: str) -> None:
    if how == "mode":
        sink.chmod(0o555)
        words: list[Word] = ["-r", source, f"{sink}/"]
        ended = bench.cp(*words, wrap=host.without_power()).expect(REFUSED)
        explains(ended, "sink", "permission denied", "give the user access")
        assert list(sink.iterdir()) == []
        sink.chmod(0o755)
        works(bench, source, words, sink / "source")
        return
    with host.small_file_system(bench.folder / "small", 64 * tree.MIB) as small:
        words = ["-r", source, f"{small}/"]
        assert os.system(f"mount -o remount,ro {small}") == 0  # noqa: S605
        ended = bench.cp(*words).expect(REFUSED)
        explains(ended, "sink", "read-only")
        assert os.system(f"mount -o remount,rw {small}") == 0  # noqa: S605
        assert list(small.iterdir()) == []
        works(bench, source, words, small / "source")


def test_server_that_only_lets_read(bench: Bench, source: Path, sink: Path) -> None:
    server = bench.serve(sink, "--read-only")
    words: list[Word] = ["-r", source, f"dray://{server.address}/", *bench.peer(server)]
    ended = bench.cp(*words).expect(REFUSED)
    explains(ended, "sink", "read-only", "--read-only", "a different server")
    assert list(sink.iterdir()) == []


def test_folder_where_a_file_should_be(bench: Bench, source: Path, sink: Path) -> None:
    (sink / "source" / "m" / "large").mkdir(parents=True)
    (sink / "source" / "m" / "large" / "precious").write_bytes(b"mine")
    words: list[Word] = ["-r", source, f"{sink}/"]
    ended = bench.cp(*words).expect(SOME_FAILED)
    explains(ended, "sink", "m/large", "folder with the file's name", "move the folder away")
    assert failed(ended).keys() == {"source/m/large"}
    assert (sink / "source/m/large/precious").read_bytes() == b"mine", "a stranger's file is gone"
    shutil.rmtree(sink / "source/m/large")
    works(bench, source, words, sink / "source")
    ended = bench.cp(source / "a" / "file1", sink / "source").expect(REFUSED)
    explains(ended, "sink", "is a folder", "to copy into the folder")


@pytest.mark.parametrize("overwrite", ["if-different", "always"])
def test_pipe_where_a_file_should_be(
    bench: Bench, source: Path, sink: Path, overwrite: str
) -> None:
    """Replace no device, pipe or socket. For root, a rename would replace even ``/dev/null``."""
    (sink / "source" / "m").mkdir(parents=True)
    os.mkfifo(sink / "source/m/large")
    os.mkfifo(sink / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.fspath(sink / "socket"))
    (source / "link").symlink_to("a")
    os.mkfifo(sink / "source/link")
    words: list[Word] = ["-r", source, f"{sink}/", "--overwrite", overwrite]
    ended = bench.cp(*words).expect(SOME_FAILED)
    explains(ended, "sink", "m/large", "a device, pipe or socket", "another destination")
    assert failed(ended).keys() == {"source/m/large", "source/link"}
    assert (sink / "source/m/large").is_fifo()
    assert (sink / "source/link").is_fifo()
    tree.assert_same(tree.describe(source / "a"), sink / "source/a")
    cases = [("a/file1", "pipe"), ("a/file1", "socket")]
    with contextlib.suppress(PermissionError):
        # The device has the numbers of /dev/null.
        os.mknod(sink / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        cases.append(("a/file1", "null"))
    for one, name in cases:
        ended = bench.cp(source / one, sink / name, "--overwrite", overwrite).expect(REFUSED)
        explains(ended, "sink", name, "a device, pipe or socket", "null:")
    server = bench.serve(sink)
    words = [source / "a/file1", f"dray://{server.address}/pipe", "--overwrite", overwrite]
    ended = bench.cp(*words, *bench.peer(server)).expect(SOME_FAILED)
    explains(ended, "sink", "pipe", "a device, pipe or socket")
    assert (sink / "pipe").is_fifo()
    assert (sink / "socket").is_socket()
    assert ("a/file1", "null") not in cases or (sink / "null").is_char_device()


@pytest.mark.skipif(not host.is_root(), reason="only root may put a link there")
def test_link_of_the_system_is_no_place_for_a_file(bench: Bench, source: Path) -> None:
    """A copy to a link in /dev, such as /dev/stdout, is refused, and the link is kept."""
    link = Path("/dev") / f"dray-test-{os.getpid()}"
    link.symlink_to("/proc/self/fd/1")
    try:
        ended = bench.cp(source / "a" / "file1", link, "--overwrite", "always").expect(REFUSED)
        assert link.is_symlink()
    finally:
        link.unlink()
    explains(ended, "sink", link.name, "a device, pipe or socket", "null:")
    assert not Path("/dev/.dray-log").exists()


def test_pipe_is_left_where_files_are(bench: Bench, source: Path, sink: Path) -> None:
    os.mkfifo(sink / "file1")
    for name in ("", "file1"):
        bench.cp(source / "a" / "file1", f"{sink}/{name}", "--overwrite", "never").expect(0)
    assert (sink / "file1").is_fifo()


def test_file_where_a_folder_should_be(bench: Bench, source: Path, sink: Path) -> None:
    (sink / "source").mkdir()
    (sink / "source" / "m").write_bytes(b"mine")
    words: list[Word] = ["-r", source, f"{sink}/"]
    ended = bench.cp(*words).expect(SOME_FAILED)
    explains(ended, "sink", "source/m", "a file or a link exists where a folder is needed", "move")
    assert (sink / "source" / "m").read_bytes() == b"mine"
    for name in ("a", "z"):
        tree.assert_same(tree.describe(source / name), sink / "source" / name)
    (sink / "source" / "m").unlink()
    works(bench, source, words, sink / "source")
    (sink / "plain").write_bytes(b"mine")
    ended = bench.cp(source / "a" / "file1", f"{sink}/plain/").expect(REFUSED)
    explains(ended, "sink", "a file or a link exists where a folder is needed", "plain", "another")


# Out of the root


@pytest.fixture
def linked_root(bench: Bench) -> tuple[Server, Path, Path]:
    """Serve a folder that has links to files outside the folder."""
    root, outside = bench.folder / "root", bench.folder / "outside"
    (root / "inner").mkdir(parents=True)
    (outside / "folder").mkdir(parents=True)
    (outside / "secret").write_bytes(b"secret")
    (root / "inner" / "hello").write_bytes(b"hello")
    (root / "link").symlink_to(outside)
    (root / "inner" / "relative").symlink_to("../../outside")
    (root / "secret-link").symlink_to(outside / "secret")
    return bench.serve(root), root, outside


OUT = ["../x", "inner/../../x", "/etc", "//etc", "link/x", "link/folder", "inner/relative/x"]


@pytest.mark.parametrize("path", [*OUT, "link", "inner/relative"])
def test_no_push_leaves_the_root(
    bench: Bench, linked_root: tuple[Server, Path, Path], path: str
) -> None:
    server, root, outside = linked_root
    before = (tree.describe(root), tree.describe(outside))
    words: list[Word] = [root / "inner" / "hello", f"dray://{server.address}/{path}/"]
    ended = bench.cp(*words, *bench.peer(server))
    assert ended.code in {SOME_FAILED, REFUSED}, ended.words
    explains(ended, "sink")
    assert "leaves its root" in ended.words or "where a folder is needed" in ended.words
    found = (tree.describe(root), tree.describe(outside))
    changed = [tree.differences(*pair) for pair in zip(before, found, strict=True)]
    assert changed == [[], []]
    far = f"dray://{server.address}/inner/new/"
    bench.cp(root / "inner" / "hello", far, *bench.peer(server)).expect(SAFE)
    assert (root / "inner" / "new" / "hello").read_bytes() == b"hello"


@pytest.mark.parametrize("path", [*OUT, "link/secret", "link/", "inner/relative/secret"])
@pytest.mark.parametrize("links", ["keep", "follow"])
def test_no_pull_leaves_the_root(
    bench: Bench, linked_root: tuple[Server, Path, Path], sink: Path, path: str, links: str
) -> None:
    server, _, _ = linked_root
    far = f"dray://{server.address}"
    words: list[Word] = ["-r", f"{far}/{path}", f"{sink}/", "--links", links]
    ended = bench.cp(*words, *bench.peer(server))
    assert ended.code in {SOME_FAILED, REFUSED}, ended.words
    explains(ended, "source")
    assert not [entry for entry in tree.describe(sink).values() if entry.kind == "file"]
    bench.cp("-r", f"{far}/inner/hello", f"{sink}/", *bench.peer(server)).expect(SAFE)
    assert (sink / "hello").read_bytes() == b"hello"


def test_followed_link_out_of_the_root_is_refused(
    bench: Bench, linked_root: tuple[Server, Path, Path], sink: Path
) -> None:
    server, _, _ = linked_root
    words: list[Word] = ["-r", f"dray://{server.address}/", f"{sink}/", "--links", "follow"]
    ended = bench.cp(*words, *bench.peer(server)).expect(SOME_FAILED)
    explains(ended, "source", "secret-link", "leaves its root")
    contents = {entry.content for entry in tree.describe(sink).values() if entry.kind == "file"}
    assert contents == {tree.hash_file(sink / "inner" / "hello")}


# Authentication


def test_wrong_key(bench: Bench, source: Path, sink: Path) -> None:
    server = bench.serve(sink)
    words: list[Word] = ["-r", source, f"dray://{server.address}/"]
    wrong: list[Word] = ["--token-file", bench.token, "--peer-key", "sha256:" + "0" * 64]
    ended = bench.cp(*words, *wrong).expect(REFUSED)
    explains(ended, "not authorized", server.fingerprint, "compare")
    assert list(sink.iterdir()) == []
    works(bench, source, [*words, *bench.peer(server)], sink / "source")


def test_wrong_token(bench: Bench, source: Path, sink: Path) -> None:
    server = bench.serve(sink)
    words: list[Word] = ["-r", source, f"dray://{server.address}/"]
    other = bench.folder / "other-token"
    other.write_text("another-token-that-is-as-long-as-the-right-one\n", encoding="utf-8")
    key = ["--peer-key", server.fingerprint]
    ended = bench.cp(*words, *key, "--token-file", other).expect(REFUSED)
    explains(ended, "not authorized", "token")
    assert list(sink.iterdir()) == []
    works(bench, source, [*words, *bench.peer(server)], sink / "source")
    # The server may write its line after the client has ended.
    log_text = server.stop().words
    assert "rejected" in log_text
    for token in (bench.token, other):
        assert token.read_text(encoding="utf-8").strip() not in log_text + ended.words


def test_clear_data_needs_both_ends_will(bench: Bench, source: Path, sink: Path) -> None:
    server = bench.serve(sink)
    words: list[Word] = ["-r", source, f"dray://{server.address}/", *bench.peer(server)]
    ended = bench.cp(*words, "--clear-data").expect(REFUSED)
    explains(ended, "unencrypted data", "not supported", "omit the option")
    assert list(sink.iterdir()) == []
    works(bench, source, words, sink / "source")


def test_an_unreachable_server_is_named(bench: Bench, source: Path, sink: Path) -> None:
    server = bench.serve(sink)
    server.stop()
    words: list[Word] = ["-r", source, f"dray://{server.address}/", *bench.peer(server)]
    ended = bench.cp(*words).expect(UNREACHABLE)
    explains(ended, server.address, "refused", "dray serve")


# Unknown clients at the port


def garbage(port: socket.socket) -> None:
    port.sendall(os.urandom(1 << 16))


def oversize(port: socket.socket) -> None:
    """Announce a control frame of 4 GiB before TLS."""
    port.sendall(b"DRAY\x01\x01\0\0" + struct.pack("<IBBHI", 0xFFFFFFFF, 1, 0, 0, 0) + bytes(4096))


def truncated(port: socket.socket) -> None:
    port.sendall(b"DRAY\x01\0\0\0\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(20))


def absurd(port: socket.socket) -> None:
    """Join a session as a stream, with invalid numbers."""
    body = b"\xff" * 52
    port.sendall(b"DRAY\x02\x01\0\0" + struct.pack("<IBBHI", len(body), 0x41, 0, 0, 0) + body * 50)


def web_browser(port: socket.socket) -> None:
    port.sendall(b"GET / HTTP/1.1\r\nHost: dray\r\n" + b"X: y\r\n" * 2000 + b"\r\n")


def slow_loris(port: socket.socket) -> None:
    for byte in b"DRAY\x01\0\0\0\x16\x03\x01":
        port.sendall(bytes([byte]))
        time.sleep(0.5)


def nothing_at_all(port: socket.socket) -> None:
    time.sleep(4)


STRANGERS: list[Callable[[socket.socket], None]] = [
    garbage,
    oversize,
    truncated,
    absurd,
    web_browser,
    slow_loris,
    nothing_at_all,
]


def test_unauthenticated_connections_cost_nothing(bench: Bench, source: Path, sink: Path) -> None:
    pool = 32 * tree.MIB
    server = bench.serve(sink, "--pool", str(pool))
    before = peak_memory(server.pid)
    address = server.address.rpartition(":")
    is_over = threading.Event()
    visits = [0] * len(STRANGERS)

    def visit(number: int) -> None:
        while not is_over.is_set():
            try:
                target = (address[0], int(address[2]))
                with socket.create_connection(target, timeout=5) as port:
                    visits[number] += 1
                    STRANGERS[number](port)
                    while port.recv(4096):
                        pass
            except OSError:
                pass

    # Ten clients of each kind connect all the time.
    crowd = [
        threading.Thread(target=visit, args=(index % len(STRANGERS),), daemon=True)
        for index in range(10 * len(STRANGERS))
    ]
    for stranger in crowd:
        stranger.start()
    try:
        words: list[Word] = ["-r", source, f"dray://{server.address}/", *bench.peer(server)]
        ended = bench.cp(*words, "--rate", "8MiB", "--retries", "0").expect(SAFE)
    finally:
        is_over.set()
        for stranger in crowd:
            stranger.join(timeout=15)
    tree.assert_same(tree.describe(source), sink / "source")
    assert ended.report["objects_sent"] == ended.report["objects"]
    assert all(count > 0 for count in visits), visits
    peak = peak_memory(server.pid)
    counted = dict(zip((each.__name__ for each in STRANGERS), visits, strict=True))
    print(f"\n{counted}; memory {before >> 20} to {peak >> 20} MiB, pool {pool >> 20} MiB")
    assert peak - before <= pool + 64 * tree.MIB
    assert "panicked" not in server.log_path.read_text(encoding="utf-8")
    # The server logs few lines for many unknown clients.
    assert len(server.log_path.read_text(encoding="utf-8").splitlines()) < 200
    again = sink / "again"
    far = f"dray://{server.address}/again/"
    bench.cp("-r", source, far, *bench.peer(server)).expect(SAFE)
    tree.assert_same(tree.describe(source), again / "source")
    server.stop().expect(SAFE)


# The command line


@pytest.mark.parametrize(
    "words",
    [
        ["cp", "only-one"],
        ["cp", "a", "b", "--object-size", "1"],
        ["cp", "a", "b", "--pool", "100TiB"],
        ["cp", "a", "b", "--order", "sideways"],
        ["cp", "a", "dray://host:port/x"],
        ["cp", "dray://one/a", "dray://two/b", "dray://three/c"],
        ["cp", "dray://one", "dray://two/b"],
        ["cp", "--checksum", "md5:00", "a", "b"],
        ["cp", "--range", "5", "a", "b"],
        ["fly"],
    ],
    ids=" ".join,
)
def test_an_invalid_command_line_is_refused(bench: Bench, words: list[str]) -> None:
    ended = bench.start(*words).wait()
    assert ended.code == USAGE, ended.words
    assert ended.words
