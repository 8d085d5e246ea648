"""A peer that dials a listener, written from docs/design/wire-protocol.md alone."""

from __future__ import annotations

import importlib.util
import socket
import ssl
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["Peer", "connect", "data_of", "decoder", "frame_of", "hello"]

# Types of frames that may arrive at any time. The peer ignores them.
PASSED_OVER = {"CREDIT", "PONG", "PROFILE", "STREAMS", "STRIPES", "unknown"}


def load() -> ModuleType:
    """Import the decoder by its path, because this folder is no package."""
    spec = importlib.util.spec_from_file_location(
        "captured_wire_decoder", Path(__file__).parent / "decoder.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


decoder = load()


def data_of(data: bytes) -> bytes:
    """Write bytes after their length (4)."""
    return struct.pack("<I", len(data)) + data


def frame_of(number: int, body: bytes) -> bytes:
    """Write a frame (3)."""
    prefix = struct.pack("<IBBH", len(body), number, 0, 0)
    return prefix + struct.pack("<I", decoder.crc32c(prefix + body)) + body


def hello(token: bytes) -> bytes:
    """Write HELLO (6)."""
    limits = struct.pack("<IQII", 1 << 20, 1 << 20, 256, 1024)
    return frame_of(
        0x01,
        struct.pack("<HHQQ", 1, 1, 1, 0)
        + limits
        + data_of(b"\x01")
        + data_of(b"a peer written from the document")
        + data_of(token),
    )


def connect(role: int, *paths: bytes, transfer: bytes = b"from-the-document:1") -> bytes:
    """Write CONNECT (6): the paths with everything below them, and default options."""
    selection = struct.pack("<BIIBBBB", 1, 0, 0, 0, 0, 0, 0)
    options = struct.pack("<BBBQBBBB", 1, 1, 0, 1 << 20, 0, 0, 0, 0)
    return frame_of(
        0x02,
        data_of(transfer)
        + struct.pack("<IB", 1, role)
        + struct.pack("<I", len(paths))
        + b"".join(map(data_of, paths))
        + selection
        + options
        + struct.pack("<BHBI", 0, 1, 0, 0),
    )


class Peer:
    """The control connection of a peer that dials."""

    def __init__(self, address: str, certificate: Path | None = None) -> None:
        """Dial with TLS. ``certificate`` is a file with a client certificate and its key."""
        host, _, port = address.rpartition(":")
        plain = socket.create_connection((host, int(port)), timeout=20)
        plain.sendall(b"DRAY\x01\x00\x00\x00")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        if certificate is not None:
            context.load_cert_chain(certificate)
        self.tls = context.wrap_socket(plain)
        assert self.tls.version() == "TLSv1.3"

    def take(self, count: int) -> bytes:
        """Read exactly ``count`` bytes."""
        taken = b""
        while len(taken) < count:
            piece = self.tls.recv(count - len(taken))
            assert piece, "the listener closed the connection"
            taken += piece
        return taken

    def next(self) -> dict[str, Any]:
        """Read the next frame that is not ignored, and answer each PING."""
        while True:
            prefix = self.take(decoder.PREFIX_BYTES)
            whole = prefix + self.take(struct.unpack_from("<I", prefix)[0])
            frame, rest = decoder.decode_frame(whole)
            assert rest == b""
            if frame["type"] == "PING":
                self.tls.sendall(frame_of(0x31, struct.pack("<Q", frame["fields"]["value"])))
            elif frame["type"] not in PASSED_OVER:
                return dict(frame)

    def expect(self, kind: str) -> dict[str, Any]:
        """Read the next frame, which must have the type ``kind``. Return its fields."""
        frame = self.next()
        assert frame["type"] == kind, frame
        return dict(frame["fields"] or {})
