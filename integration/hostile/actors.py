"""Peers that send arbitrary frames, written from docs/design/wire-protocol.md alone.

:class:`Driver` dials a listener. :class:`Listener` waits until ``dray cp`` dials it. Each can be
the source or the sink. A number such as 4.7 in a comment is a section of wire-protocol.md.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
import ssl
import struct
import subprocess
import threading
import time
import zlib
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from integration.wire.peer import data_of, decoder, frame_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

__all__ = [
    "ABORTED",
    "HOLE",
    "Driver",
    "Listener",
    "Options",
    "Talk",
    "block",
    "connect",
    "crc32c",
    "entry",
    "hello",
    "identity",
    "new_files",
    "ready",
    "segment",
]

FILE, FOLDER, FOLDER_END, LINK = 1, 2, 3, 4
SOURCE, SINK = 0, 1
HOLE = 2
SECONDS = 20.0
#: What a socket raises when the other end has closed the connection.
ABORTED = (OSError, EOFError)

crc32c = decoder.crc32c


@dataclass
class Options:
    """Fields of a CONNECT frame (4.7, 4.8)."""

    xattrs: bool = False
    checksum_attributes: bool = False
    overwrite: int = 1
    recursive: bool = True
    include: Sequence[bytes] = ()
    exclude: Sequence[bytes] = ()
    links: int = 0
    object_bytes: int = 1 << 20
    #: The adler32 that the file must have. None: any checksum.
    demanded: int | None = None
    durability: int = 1
    streams: int = 1
    transfer: bytes = b"hostile:1"


def hello(token: bytes = b"", *, live: int = 1 << 16, optional: int = 3) -> bytes:
    """Write HELLO. The default of ``optional`` offers HOLES and XATTRS."""
    limits = struct.pack("<IQII", 1 << 20, 64 << 20, 4096, live)
    body = struct.pack("<HHQQ", 1, 1, 1, optional) + limits + data_of(b"\x01")
    return frame_of(0x01, body + data_of(b"a hostile peer") + data_of(token))


def connect(role: int, paths: Sequence[bytes], options: Options) -> bytes:
    """Write CONNECT. ``role`` is the role of the listener: SOURCE or SINK."""
    patterns = b"".join(
        struct.pack("<I", len(list_)) + b"".join(map(data_of, list_))
        for list_ in (options.include, options.exclude)
    )
    selection = bytes([options.recursive]) + patterns + bytes([0, 0, 0, options.links])
    asked = struct.pack(
        "<BBBQBBBB",
        options.durability,
        options.overwrite,
        0,
        options.object_bytes,
        0,
        options.xattrs,
        options.checksum_attributes,
        0,
    )
    demanded = b"\0" if options.demanded is None else struct.pack("<BI", 2, options.demanded)
    body = data_of(options.transfer) + struct.pack("<IB", 1, role)
    body += struct.pack("<I", len(paths)) + b"".join(map(data_of, paths))
    body += selection + asked + demanded + struct.pack("<HBI", options.streams, 0, 0)
    return frame_of(0x02, body)


def ready(
    *, live: int = 1024, object_bytes: int = 1 << 20, pack: int = 1 << 20, window: int | None = None
) -> bytes:
    """Write READY."""
    body = struct.pack("<IQIQB", 1, object_bytes, live, pack, 1)
    return frame_of(0x05, body + (b"\0" if window is None else struct.pack("<BI", 1, window)))


def entry(
    index: int,
    name: bytes,
    kind: int = FILE,
    *,
    parent: int | None = None,
    size: int = 0,
    target: bytes = b"x",
    mode: int = 0o644,
    seconds: int = 1_700_000_000,
    xattrs: Iterable[tuple[bytes, bytes]] = (),
) -> bytes:
    """Write one entry of a NEW_FILES frame (4.5)."""
    body = struct.pack("<Q", index)
    body += b"\0" if parent is None else struct.pack("<BQ", 1, parent)
    body += data_of(name) + bytes([kind])
    if kind == FILE:
        body += struct.pack("<QB", size, 1)
    elif kind == LINK:
        body += data_of(target)
    pairs = [data_of(name) + data_of(value) for name, value in xattrs]
    body += struct.pack("<IqII", mode, seconds, 0, len(pairs))
    return body + b"".join(pairs)


def new_files(*entries: bytes) -> bytes:
    """Write NEW_FILES."""
    return frame_of(0x10, struct.pack("<I", len(entries)) + b"".join(entries))


def segment(
    file: int, offset: int, data: bytes | int, *, sums: tuple[int, int] | None = None
) -> tuple[bytes, bytes]:
    """Return a segment's head (7.3) and payload. A number ``data`` is the size of a hole."""
    if isinstance(data, int):
        return struct.pack("<BQQQ", HOLE, file, offset, data), b""
    found = sums or (crc32c(data), zlib.adler32(data))
    return struct.pack("<BQQQII", 1, file, offset, len(data), *found), data


def block(number: int, target: int, *segments: tuple[bytes, bytes]) -> bytes:
    """Return a BLOCK frame, followed by the payload of its segments."""
    head = struct.pack("<QII", number, target, len(segments))
    head += b"".join(head for head, _ in segments)
    return frame_of(0x42, head) + b"".join(payload for _, payload in segments)


class Talk:
    """Send and receive frames on one TLS connection."""

    def __init__(self, tls: ssl.SSLSocket) -> None:
        """Keep the connected socket."""
        self.tls = tls
        self.said: list[dict[str, Any]] = []
        #: Monotonic time at which :meth:`next` gives up.
        self.over = time.monotonic() + 2 * SECONDS

    def send(self, *frames: bytes) -> None:
        """Send the frames as they are, without a check."""
        self.tls.sendall(b"".join(frames))

    def take(self, count: int) -> bytes:
        """Read exactly ``count`` bytes."""
        taken = bytearray()
        while len(taken) < count:
            piece = self.tls.recv(count - len(taken))
            if not piece:
                raise EOFError("closed")
            taken += piece
        return bytes(taken)

    def next(self) -> dict[str, Any]:
        """Read the next frame, except those that may arrive at any time. Answer each PING."""
        while True:
            if time.monotonic() > self.over:
                raise TimeoutError("the other end neither closes nor sends the expected frame")
            prefix = self.take(decoder.PREFIX_BYTES)
            body = self.take(struct.unpack_from("<I", prefix)[0])
            frame, _ = decoder.decode_frame(prefix + body)
            if frame["type"] == "PING":
                self.send(frame_of(0x31, struct.pack("<Q", frame["fields"]["value"])))
            elif frame["type"] not in {"PONG", "PROFILE", "STREAMS", "RATE", "unknown"}:
                self.said.append(frame)
                return dict(frame)

    def until(self, *kinds: str) -> dict[str, Any]:
        """Read frames until one has a type of ``kinds``, and return this frame."""
        while True:
            frame = self.next()
            if frame["type"] in kinds:
                return frame

    def rest(self) -> list[dict[str, Any]]:
        """Read until the other end closes, and return all frames since the start."""
        with suppress(*ABORTED, decoder.FrameError):
            while True:
                self.next()
        return self.said

    def error(self) -> dict[str, Any] | None:
        """Wait until the other end closes, and return the error of its last GO_AWAY or REFUSE."""
        ends = [frame for frame in self.rest() if frame["type"] in {"GO_AWAY", "REFUSE"}]
        return ends[-1]["fields"]["error"] if ends else None

    def close(self) -> None:
        """Close the connection."""
        with suppress(OSError):
            self.tls.close()


def _trusting() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def proof_of(accept: dict[str, Any], stream: int, challenge: bytes) -> bytes:
    """Write the body of JOIN (2.3)."""
    ticket, key = bytes.fromhex(accept["ticket"]), bytes.fromhex(accept["key"])
    label = b"dray join v1".ljust(16, b"\0")
    what = label + ticket + struct.pack("<I", stream) + challenge
    proof = hmac.new(key, what, hashlib.sha256).digest()
    return ticket + struct.pack("<I", stream) + proof


class Driver(Talk):
    """Dial a listener. ``role`` is the role of the listener: SOURCE or SINK."""

    def __init__(
        self,
        address: str,
        token: bytes,
        role: int,
        *paths: bytes,
        options: Options | None = None,
        live: int = 1 << 16,
        source: str = "127.0.0.1",
    ) -> None:
        """Dial, and send HELLO and CONNECT without waiting for an answer."""
        self.address = address
        self.source = source
        super().__init__(self._dial(1))
        self.accept: dict[str, Any] = {}
        self.send(hello(token, live=live), connect(role, paths, options or Options()))

    def _dial(self, connection: int) -> ssl.SSLSocket:
        host, _, port = self.address.rpartition(":")
        plain = socket.create_connection(
            (host, int(port)), timeout=SECONDS, source_address=(self.source, 0)
        )
        plain.sendall(b"DRAY" + bytes([connection, 0, 0, 0]))
        return _trusting().wrap_socket(plain)

    def begin(self) -> Driver:
        """Wait until the listener has accepted the session."""
        self.until("HELLO")
        answer = self.until("ACCEPT", "REFUSE", "GO_AWAY")
        assert answer["type"] == "ACCEPT", answer
        self.accept = answer["fields"]
        return self

    def stream(self, number: int = 0) -> Talk:
        """Open one data stream of the session."""
        talk = Talk(self._dial(2))
        prefix = talk.take(decoder.PREFIX_BYTES)
        challenge = talk.take(struct.unpack_from("<I", prefix)[0])
        talk.send(frame_of(0x41, proof_of(self.accept, number, challenge)))
        return talk


def identity(folder: Path) -> tuple[Path, str]:
    """Make a key and a certificate. Return the path of their file, and the key's pin (2.2)."""
    made = folder / "hostile.pem"
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    words += ["-nodes", "-days", "2", "-subj", "/CN=hostile"]
    words += ["-keyout", str(made), "-out", f"{made}.crt"]
    subprocess.run(words, check=True, capture_output=True)
    certificate = (folder / "hostile.pem.crt").read_bytes()
    made.write_bytes(made.read_bytes() + certificate)
    public = subprocess.run(
        ["openssl", "x509", "-pubkey", "-noout"], input=certificate, check=True, capture_output=True
    ).stdout
    der = subprocess.run(
        ["openssl", "pkey", "-pubin", "-outform", "der"],
        input=public,
        check=True,
        capture_output=True,
    ).stdout
    return made, f"sha256:{hashlib.sha256(der).hexdigest()}"


@dataclass
class Listener:
    """Accept the sessions of ``dray cp``. ``script`` runs in each session after ACCEPT was sent."""

    folder: Path
    script: Callable[[Listener, Talk], None]
    #: Fields of the CONNECT frames that ``dray cp`` sent, one for each session.
    asked: list[dict[str, Any]] = field(default_factory=list)
    #: Data streams that ``dray cp`` has opened.
    streams: list[Talk] = field(default_factory=list)
    #: Exceptions of ``script``, except those of a closed connection.
    errors: list[BaseException] = field(default_factory=list)
    sessions: int = 0

    def __post_init__(self) -> None:
        """Listen on a free port of the loopback address."""
        made, self.key = identity(self.folder)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(made)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_3
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.socket.getsockname()[1]}"
        self.joined = threading.Condition()
        self.open: list[Talk] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                plain, _ = self.socket.accept()
                threading.Thread(target=self._serve, args=(plain,), daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        talk: Talk | None = None
        try:
            plain.settimeout(SECONDS)
            preamble = plain.recv(8, socket.MSG_WAITALL)
            if len(preamble) < 8:
                return
            talk = Talk(self.context.wrap_socket(plain, server_side=True))
            self.open.append(talk)
            if preamble[4] == 2:
                self._join(talk)
                return
            talk.until("HELLO")
            self.asked.append(talk.until("CONNECT")["fields"])
            self.sessions += 1
            accept = bytes(16) + bytes(32) + struct.pack("<IH", 0, 4)
            talk.send(hello(), frame_of(0x03, accept))
            self.script(self, talk)
        except ABORTED:
            pass
        except BaseException as error:  # shown by the test
            self.errors.append(error)
        finally:
            if talk is not None and talk not in self.streams:
                talk.close()

    def _join(self, talk: Talk) -> None:
        talk.send(frame_of(0x40, bytes(32)))
        prefix = talk.take(decoder.PREFIX_BYTES)
        talk.take(struct.unpack_from("<I", prefix)[0])
        with self.joined:
            self.streams.append(talk)
            self.joined.notify_all()

    def stream(self) -> Talk:
        """Wait for the first data stream, and return it."""
        with self.joined:
            assert self.joined.wait_for(lambda: bool(self.streams), SECONDS), "no stream"
            return self.streams[0]

    def close(self) -> None:
        """Stop listening, and close all connections."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        for talk in self.open:
            talk.close()
