"""A web server with one file. It answers correctly, except where a test changes an answer.

A PUT replaces the content of the file.
"""

from __future__ import annotations

import http.server
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from typing_extensions import Self

MODIFIED = "Sun, 06 Nov 1994 08:49:37 GMT"


@dataclass
class Reply:
    """The answer to one request."""

    status: int
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Asked:
    """One request.

    :param number: number of earlier requests with the same method.
    """

    method: str
    path: str
    headers: dict[str, str]
    number: int
    at: float = field(default_factory=time.monotonic)


class WebServer:
    """Serve ``content`` at every path. ``change`` may alter each answer before it is sent."""

    def __init__(
        self, content: bytes, change: Callable[[Asked, Reply], None], host: str = "127.0.0.1"
    ) -> None:
        """Bind a port of a loopback address."""
        self.content = content
        self.host = host
        self.asked: list[Asked] = []
        self._change = change
        self._lock = threading.Lock()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                """Log nothing."""

            def _answer(self) -> None:
                asked = outer._note(self)
                reply = outer._reply(asked)
                outer._change(asked, reply)
                self.send_response_only(reply.status)
                headers = {"Content-Length": str(len(reply.body)), **reply.headers}
                for name, value in headers.items():
                    if value:
                        self.send_header(name, value)
                self.end_headers()
                if asked.method != "HEAD":
                    self.wfile.write(reply.body)

            do_GET = do_HEAD = do_PROPFIND = do_PUT = _answer

        self._server = http.server.ThreadingHTTPServer((host, 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """The URL of the server."""
        return f"http://{self.host}:{self._server.server_port}"

    def gets(self) -> list[Asked]:
        """Return the GET requests so far."""
        return [each for each in self.asked if each.method == "GET"]

    def __enter__(self) -> Self:
        """Start to serve."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()

    def _note(self, request: http.server.BaseHTTPRequestHandler) -> Asked:
        length = int(request.headers.get("Content-Length") or 0)
        body = request.rfile.read(length)
        headers = {name.lower(): value for name, value in request.headers.items()}
        method = request.command
        with self._lock:
            number = sum(each.method == method for each in self.asked)
            asked = Asked(method, request.path, headers, number)
            self.asked.append(asked)
            if method == "PUT":
                self.content = body
        return asked

    def _reply(self, asked: Asked) -> Reply:
        """Return the answer of a correct server."""
        headers = {"Last-Modified": MODIFIED, "Accept-Ranges": "bytes"}
        if asked.method == "PROPFIND":
            return Reply(405, {}, b"")
        if asked.method == "PUT":
            return Reply(201, {}, b"")
        wanted = asked.headers.get("range", "")
        if not wanted.startswith("bytes=") or asked.method == "HEAD":
            length = {"Content-Length": str(len(self.content))}
            return Reply(200, {**headers, **length}, self.content)
        first, last = (int(each) for each in wanted.removeprefix("bytes=").split("-"))
        part = self.content[first : last + 1]
        headers["Content-Range"] = f"bytes {first}-{first + len(part) - 1}/{len(self.content)}"
        return Reply(206, headers, part)
