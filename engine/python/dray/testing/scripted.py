"""A scripted endpoint: an HTTP server on the loopback interface that sends the answers of a test.

The server has no transfers. It can answer in ways that are rare for a real endpoint: truncated,
late, twice or not at all. A test can read every request that the server has received.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import struct
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path
    from types import TracebackType

__all__ = ["Asked", "Reply", "ScriptedEndpoint", "error", "event", "events", "json_reply"]

HEAD_BYTES_MAX = 1 << 16
SOCKET_SECONDS = 20.0
#: SO_LINGER value with which a close resets the connection.
LINGER_NOT = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class Asked:
    """A received request. Names of headers are in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401 - whatever it holds
        """The parsed body."""
        return json.loads(self.body)

    @property
    def path(self) -> str:
        """The path of the request without its query."""
        return self.target.partition("?")[0]

    @property
    def query(self) -> str:
        """The raw query of the request."""
        return self.target.partition("?")[2]


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer.

    :param code: HTTP status.
    :param pieces: the body in pieces. Each piece is sent as an HTTP chunk if there are several
        pieces, if ``is_dropped`` or ``between`` is set, or if the body is a stream of events.
    :param after: seconds before the answer.
    :param between: seconds between pieces.
    :param is_dropped: reset the connection after the pieces, before the end of the body.
    :param is_unanswered: close the connection instead of sending an answer.
    """

    code: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    pieces: tuple[bytes, ...] = ()
    after: float = 0.0
    between: float = 0.0
    is_dropped: bool = False
    is_unanswered: bool = False


Script: TypeAlias = "Reply | Callable[[Asked], Reply]"


def json_reply(words: object, code: int = 200, **headers: str) -> Reply:
    """Return an answer with JSON. ``retry_after=...`` becomes the header ``Retry-After``."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    pieces = (json.dumps(words).encode(),)
    return Reply(code, {"content-type": "application/json", **named}, pieces)


def error(code: int, kind: str, status: str = "permanent", **words: str) -> Reply:
    """Return a refusal in the form of endpoints. ``retry_after=...`` becomes a header."""
    after = words.pop("retry_after", None)
    fields = {
        "kind": kind,
        "status": status,
        "end": "here",
        "operation": "do it",
        "file": None,
        "cause": "the test says so",
        "remedy": "ask the test",
        "message": f"cannot do it: {kind}",
        **words,
    }
    reply = json_reply({"error": fields}, code)
    if after is None:
        return reply
    return Reply(code, {**reply.headers, "retry-after": after}, reply.pieces)


def event(number: int, type: str = "state", **words: object) -> bytes:
    """Return the bytes of one server-sent event."""
    fields = {"id": number, "at": "2026-11-21T17:00:00.000Z", "type": type, **words}
    return f"id: {number}\nevent: {type}\ndata: {json.dumps(fields)}\n\n".encode()


def events(*pieces: bytes, **how: Any) -> Reply:  # noqa: ANN401 - the fields of Reply
    """Return an answer with a stream of events in these pieces."""
    return Reply(200, {"content-type": "text/event-stream"}, pieces, **how)


class ScriptedEndpoint:
    """Answers each request with the next scripted answer. Use it as a context manager.

    Answers for a method and path are used first, in their order. The permanent answer for the
    method and path follows, then :attr:`otherwise`. A request without an answer gets 500 and is
    added to :attr:`surprises`.
    """

    def __init__(self, *, certificate: Path | None = None, port: int = 0) -> None:
        """Listen on the loopback interface, with TLS if there is a certificate (PEM with key)."""
        self._lock = threading.Lock()
        self._scripts: dict[tuple[str, str], deque[Script]] = {}
        self._always: dict[tuple[str, str], Script] = {}
        #: The answer to requests that have no other answer.
        self.otherwise: Script | None = None
        #: All requests, in the order of arrival.
        self.asked: list[Asked] = []
        self.surprises: list[Asked] = []
        #: Number of connections.
        self.connections = 0
        self.is_refusing = False
        self._tls: ssl.SSLContext | None = None
        if certificate is not None:
            self.use_certificate(certificate)
        self._socket = socket.create_server(("127.0.0.1", port), backlog=64)
        self.port: int = self._socket.getsockname()[1]
        self._is_closed = threading.Event()
        self._open: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def url(self) -> str:
        """URL of the endpoint."""
        return f"{'http' if self._tls is None else 'https'}://127.0.0.1:{self.port}"

    def use_certificate(self, certificate: Path) -> None:
        """Use another certificate for new connections."""
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate)
        self._tls = tls

    def then(self, method: str, path: str, *scripts: Script) -> ScriptedEndpoint:
        """Answer the next requests for this method and path with these scripts, in order."""
        with self._lock:
            self._scripts.setdefault((method, path), deque()).extend(scripts)
        return self

    def always(self, method: str, path: str, script: Script) -> ScriptedEndpoint:
        """Answer all further requests for this method and path with this script."""
        with self._lock:
            self._always[method, path] = script
        return self

    def asked_for(self, method: str, path: str) -> list[Asked]:
        """Return the requests for this method and path."""
        with self._lock:
            return [one for one in self.asked if (one.method, one.path) == (method, path)]

    def cut(self) -> None:
        """Break all connections."""
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            # Not closed here, because a thread may wait on the descriptor, and its number could be
            # reused.
            with contextlib.suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Stop the server and its threads."""
        self._is_closed.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self.cut()
        for thread in self._threads:
            thread.join(timeout=5)

    def __enter__(self) -> ScriptedEndpoint:
        """Return the endpoint."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()

    # --- serving --------------------------------------------------------------------------------

    def _accept(self) -> None:
        while not self._is_closed.is_set():
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            if self.is_refusing:
                _reset(connection)
                continue
            with self._lock:
                self.connections += 1
                thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
                self._threads.append(thread)
            thread.start()

    def _serve(self, raw: socket.socket) -> None:
        raw.settimeout(SOCKET_SECONDS)
        connection = raw
        try:
            if self._tls is not None:
                connection = self._tls.wrap_socket(raw, server_side=True)
            with self._lock:
                self._open.add(connection)
            while self._answer(connection):
                pass
        except (OSError, ValueError):
            pass
        finally:
            with self._lock:
                self._open.discard(connection)
            connection.close()

    def _answer(self, connection: socket.socket) -> bool:
        asked = _read(connection)
        if asked is None:
            return False
        key = (asked.method, asked.path)
        with self._lock:
            self.asked.append(asked)
            queue = self._scripts.get(key)
            script = queue.popleft() if queue else self._always.get(key, self.otherwise)
            if script is None:
                self.surprises.append(asked)
        if script is None:
            script = error(500, "internal", cause=f"no answer is scripted for {key}")
        reply = script if isinstance(script, Reply) else script(asked)
        if reply.after and self._is_closed.wait(reply.after):
            return False
        if reply.is_unanswered:
            _reset(connection)
            return False
        return self._send_reply(connection, reply)

    def _send_reply(self, connection: socket.socket, reply: Reply) -> bool:
        is_chunked = len(reply.pieces) > 1 or reply.is_dropped or reply.between > 0
        is_chunked = is_chunked or "event-stream" in reply.headers.get("content-type", "")
        head = [f"HTTP/1.1 {reply.code} As-Told"]
        head += [f"{name}: {value}" for name, value in reply.headers.items()]
        body = b"".join(reply.pieces)
        head += ["transfer-encoding: chunked"] if is_chunked else [f"content-length: {len(body)}"]
        connection.sendall("\r\n".join([*head, "", ""]).encode())
        if not is_chunked:
            connection.sendall(body)
            return True
        for at, piece in enumerate(reply.pieces):
            if at and reply.between and self._is_closed.wait(reply.between):
                return False
            connection.sendall(b"%x\r\n%b\r\n" % (len(piece), piece))
        if reply.is_dropped:
            # Wait, so that the sent bytes arrive before the reset.
            time.sleep(0.05)
            _reset(connection)
            return False
        connection.sendall(b"0\r\n\r\n")
        return True


def _read(connection: socket.socket) -> Asked | None:
    data = bytearray()
    while b"\r\n\r\n" not in data:
        if len(data) > HEAD_BYTES_MAX:
            raise ValueError("a head without end")
        piece = connection.recv(65536)
        if not piece:
            return None
        data += piece
    head, _, body = bytes(data).partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ", 2)
    named: Iterable[tuple[str, str, str]] = (line.partition(":") for line in lines)
    headers = {name.lower(): value.strip() for name, _, value in named}
    missing = int(headers.get("content-length", "0")) - len(body)
    while missing > 0:
        piece = connection.recv(min(missing, 65536))
        if not piece:
            return None
        body += piece
        missing -= len(piece)
    return Asked(method, target, headers, body)


def _reset(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    with contextlib.suppress(OSError):
        connection.close()
