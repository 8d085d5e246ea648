"""The decoder, which was written from the specification alone, reads frames of real sessions.

Data frames are captured between two processes without TLS. The control connection always uses TLS,
so for its frames the test itself is one end (``peer.py``).
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, Any

import pytest

from dray.testing.proxy import PREAMBLE_BYTES, Proxy
from integration.harness import tree
from integration.wire.peer import Peer, connect, data_of, decoder, frame_of, hello

if TYPE_CHECKING:
    from integration.harness.program import Bench, Word

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]


def frames(data: bytes) -> list[dict[str, Any]]:
    """Decode all frames. Fail if a byte remains."""
    found = []
    while data:
        frame, data = decoder.decode_frame(data)
        found.append(frame)
    return found


@pytest.mark.parametrize("push", [True, False], ids=["push", "pull"])
def test_captured_streams_hold_what_was_sent(bench: Bench, push: bool) -> None:
    source, sink = bench.folder / "source", bench.folder / "sink"
    sink.mkdir()
    tree.make_tree(source, 30, seed=1)
    tree.make_file(source / "large", 300_001, seed=2)
    with (source / "sparse").open("wb") as file:
        file.write(b"begin")
        file.truncate(4 * tree.MIB)
    server = bench.serve(sink if push else bench.folder, "--allow-clear-data")
    proxy = Proxy(server.address, keep=True)
    far = f"dray://{proxy.address}/"
    ends: list[Word] = [source, far] if push else [f"{far}source", f"{sink}/"]
    options = ["--clear-data", "--streams", "3", "--object-size", "64KiB"]
    try:
        ended = bench.cp("-r", *ends, *options, *bench.peer(server)).expect(0)
    finally:
        proxy.close()
    tree.assert_same(tree.describe(source), sink / "source")
    sent: dict[tuple[int, int], bytes] = {}
    holes = 0
    streams = [connection for connection in proxy.connections if connection.is_data]
    assert len(streams) == 3
    for connection in streams:
        up = bytes(connection.kept_up)
        preamble = decoder.decode_preamble(up[:PREAMBLE_BYTES])
        assert preamble["fields"] == {"connection": "data", "security": "clear"}
        dialled, listened = frames(up[PREAMBLE_BYTES:]), frames(bytes(connection.kept_down))
        assert listened[0]["type"] == "CHALLENGE"
        assert dialled[0]["type"] == "JOIN"
        for block in dialled[1:] + listened[1:]:
            assert block["type"] == "BLOCK"
            payload = bytes.fromhex(block["payload"])
            for segment in block["fields"]["segments"]:
                length = segment["range"]["length"]
                key = (segment["file"], segment["range"]["offset"])
                assert key not in sent, "sent twice"
                if segment["kind"] == "hole":
                    holes += length
                    sent[key] = bytes(length)
                    continue
                sent[key], payload = payload[:length], payload[length:]
            assert payload == b""
    assert sum(map(len, sent.values())) - holes == ended.report["bytes_sent"]
    assert holes >= 3 * tree.MIB
    # Join the segments of each file. Their names are unknown: only control frames contain names.
    files: dict[int, dict[int, bytes]] = {}
    for (file_number, offset), data in sent.items():
        files.setdefault(file_number, {})[offset] = data
    whole = {b"".join(parts[at] for at in sorted(parts)) for parts in files.values()}
    wanted = {path.read_bytes() for path in source.rglob("*") if path.is_file()}
    assert {data for data in wanted if data} <= whole


@pytest.fixture
def token(bench: Bench) -> bytes:
    """Return the token that ``bench.serve`` accepts."""
    return bench.token.read_bytes().strip()


def test_peer_from_the_document_pushes_a_folder(bench: Bench, token: bytes) -> None:
    root = bench.folder / "root"
    root.mkdir()
    peer = Peer(bench.serve(root).address)
    peer.tls.sendall(hello(token))
    assert "dray" in peer.expect("HELLO")["software"]
    peer.tls.sendall(connect(1, b"new"))
    assert peer.expect("ACCEPT")["streams"] == 1
    ready = peer.expect("READY")
    assert ready["precision_nanoseconds"] == 1
    assert ready["holes"] is True
    entry = struct.pack("<QB", 0, 0) + data_of(b"sub")
    times = struct.pack("<IqII", 0o750, 1_000_000_000, 5, 0)
    begin, end = entry + b"\x02" + times, entry + b"\x03" + times
    peer.tls.sendall(frame_of(0x10, struct.pack("<I", 2) + begin + end))
    peer.tls.sendall(frame_of(0x11, struct.pack("<Q", 1)))
    closed = peer.expect("FILE_CLOSE")["files"]
    assert [file["index"] for file in closed] == [0]
    verdict = peer.expect("VERDICT")
    assert (verdict["others"], verdict["files_failed"]) == (1, 0)
    peer.tls.sendall(frame_of(0x35, b""))
    peer.expect("BYE")
    state = (root / "new" / "sub").stat()
    assert state.st_mode & 0o777 == 0o750
    assert state.st_mtime_ns == 1_000_000_000_000_000_005
    assert tree.leftovers(root) == []


def test_peer_from_the_document_lists_a_tree(bench: Bench, token: bytes) -> None:
    root = bench.folder / "root"
    (root / "sub").mkdir(parents=True)
    (root / "sub" / "file").write_bytes(os.urandom(4321))
    (root / "link").symlink_to("sub/file")
    peer = Peer(bench.serve(root).address)
    peer.tls.sendall(hello(token))
    peer.expect("HELLO")
    peer.tls.sendall(connect(0, b""))
    peer.expect("ACCEPT")
    ready = struct.pack("<IQIQBB", 1, 1 << 20, 1024, 1 << 20, 1, 0)
    peer.tls.sendall(frame_of(0x05, ready))
    entries: list[dict[str, Any]] = []
    while (frame := peer.next())["type"] == "NEW_FILES":
        entries += frame["fields"]["entries"]
    assert frame["type"] == "LIST_END"
    assert frame["fields"]["entries"] == 3
    found = {(entry["name"], entry["kind"]) for entry in entries}
    assert found == {
        ("sub", "directory"),
        ("sub", "directory_end"),
        ("file", "file"),
        ("link", "symlink"),
    }
    (file,) = (entry for entry in entries if entry["kind"] == "file")
    assert file["size"] == 4321
    peer.tls.close()


@pytest.mark.parametrize("path", [b"../out", b"/etc", b"a/../../b"])
def test_refusals_can_be_read(bench: Bench, token: bytes, path: bytes) -> None:
    root = bench.folder / "root"
    root.mkdir()
    server = bench.serve(root)
    peer = Peer(server.address)
    peer.tls.sendall(hello(token))
    peer.expect("HELLO")
    peer.tls.sendall(connect(1, path))
    error = peer.expect("REFUSE")["error"]
    assert error["kind"] == 9, "path_escapes"
    assert error["end"] == "sink"
    peer = Peer(server.address)
    peer.tls.sendall(hello(b"a wrong token of more than enough bytes"))
    error = peer.expect("REFUSE")["error"]
    assert error["kind"] == 23, "unauthorized"


def evil(name: bytes, kind: bytes = b"\x02") -> bytes:
    """Write NEW_FILES with one entry that has this forbidden name."""
    body = struct.pack("<QB", 0, 0) + data_of(name) + kind
    if kind == b"\x04":
        body += data_of(b"/etc")
    times = struct.pack("<IqII", 0o755, 0, 0, 0)
    return frame_of(0x10, struct.pack("<I", 1) + body + times)


HOSTILE = {
    "dot-dot": evil(b".."),
    "slash": evil(b"a/b"),
    "absolute": evil(b"/etc"),
    "zero": evil(b"a\0b"),
    "empty": evil(b""),
    "absurd-count": frame_of(0x10, struct.pack("<I", 0xFFFFFFFF)),
    "oversize": struct.pack("<IBBHI", 0xFFFFFFFF, 0x10, 0, 0, 0),
    "wrong-crc": frame_of(0x11, struct.pack("<Q", 0))[:-1] + b"\x01",
    "unknown-type": frame_of(0x7F, b""),
    "other-role": frame_of(0x34, bytes(48)),
}


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_peer_with_the_token_ends_only_its_own_session(
    bench: Bench, token: bytes, hostile: str
) -> None:
    root, source = bench.folder / "root", bench.folder / "source"
    root.mkdir()
    tree.make_tree(source, 20, seed=5)
    server = bench.serve(root)
    peer = Peer(server.address)
    peer.tls.sendall(hello(token))
    peer.expect("HELLO")
    peer.tls.sendall(connect(1, b"evil"))
    peer.expect("ACCEPT")
    peer.expect("READY")
    peer.tls.sendall(HOSTILE[hostile])
    answers: list[dict[str, Any]] = []
    ending = ""
    try:
        while True:
            answers.append(peer.next())
    except (AssertionError, OSError) as error:
        ending = f"{type(error).__name__}: {error}"
    print(f"\n{hostile}: {answers} {ending}")
    errors = [frame["fields"]["error"] for frame in answers if frame["type"] == "GO_AWAY"]
    # The specification only says that the server SHOULD send an error. If an error arrives, it
    # must have the right kind.
    assert all(error["kind"] in {20, 21} for error in errors), errors
    assert len(errors) <= 1
    ended = bench.cp("-r", source, f"dray://{server.address}/", *bench.peer(server)).expect(0)
    assert ended.report["state"] == "done"
    tree.assert_same(tree.describe(source), root / "source")
    assert {path.name for path in root.iterdir()} <= {"source", "evil"}
    assert server.is_running()
