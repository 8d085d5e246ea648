"""A collector of spans: an OTLP/HTTP service that decodes what dray sends."""

from __future__ import annotations

import base64
import json
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from google.protobuf import json_format  # type: ignore[import-untyped]
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

if TYPE_CHECKING:
    from collections.abc import Callable

#: Fields that the JSON form of OTLP writes in hexadecimal digits, and the JSON form of protobuf in
#: Base64.
IDS = ("traceId", "spanId", "parentSpanId")


@dataclass(frozen=True)
class Span:
    """A decoded span. Times are in nanoseconds since 1970."""

    instance: str
    name: str
    kind: int
    trace: str
    id: str
    parent: str
    begin: int
    end: int
    attributes: dict[str, Any]
    is_error: bool


def _value(value: Any) -> Any:  # noqa: ANN401 - a message of protobuf
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind)


def _with_base64(node: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(node, list):
        return [_with_base64(each) for each in node]
    if not isinstance(node, dict):
        return node
    return {
        key: base64.b64encode(bytes.fromhex(value)).decode() if key in IDS else _with_base64(value)
        for key, value in node.items()
    }


def decode(body: bytes) -> list[Span]:
    """Decode a request with the messages of ``opentelemetry-proto``. Unknown fields are errors."""
    message = trace_service_pb2.ExportTraceServiceRequest()
    json_format.ParseDict(_with_base64(json.loads(body)), message)
    spans = []
    for resource in message.resource_spans:
        about = {each.key: _value(each.value) for each in resource.resource.attributes}
        for scope in resource.scope_spans:
            for span in scope.spans:
                assert len(span.trace_id) == 16, span
                assert len(span.span_id) == 8, span
                assert span.start_time_unix_nano <= span.end_time_unix_nano, span
                spans.append(
                    Span(
                        instance=about.get("service.instance.id", about["service.name"]),
                        name=span.name,
                        kind=span.kind,
                        trace=span.trace_id.hex(),
                        id=span.span_id.hex(),
                        parent=span.parent_span_id.hex(),
                        begin=span.start_time_unix_nano,
                        end=span.end_time_unix_nano,
                        attributes={each.key: _value(each.value) for each in span.attributes},
                        is_error=span.status.code == 2,
                    )
                )
    return spans


class Collector:
    """Receives spans on a port of the loopback interface.

    :param code: HTTP status code of all answers.
    :param delay: seconds before each answer.
    """

    def __init__(self, code: int = 200, delay: float = 0.0) -> None:
        """Start to listen."""
        self.spans: list[Span] = []
        self.requests = 0
        self.errors: list[Exception] = []
        self._changed = threading.Condition()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                collector.take(self.path, self.headers["content-type"], body, code)
                collector.stopping.wait(delay)
                self.send_response(code)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_: object) -> None:
                pass

        self.stopping = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def take(self, path: str, kind: str, body: bytes, code: int) -> None:
        """Decode and keep the spans of one request."""
        with self._changed:
            self.requests += 1
            try:
                assert (path, kind) == ("/v1/traces", "application/json")
                spans = decode(body)
                self.spans += spans if code == 200 else []
            except Exception as error:
                self.errors.append(error)
            self._changed.notify_all()

    def wait(self, is_enough: Callable[[list[Span]], bool], seconds: float = 20.0) -> list[Span]:
        """Wait for spans. Return all spans."""
        until = time.monotonic() + seconds
        with self._changed:
            while not is_enough(self.spans):
                assert self.errors == []
                left = until - time.monotonic()
                assert left > 0, [(each.instance, each.name) for each in self.spans]
                self._changed.wait(left)
            assert self.errors == []
            return list(self.spans)

    def close(self) -> None:
        """End the service."""
        self.stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
