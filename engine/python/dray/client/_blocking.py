"""Executes the steps of flows by blocking. Does I/O and waits, and makes no decisions."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, TypeVar

import httpx

from dray.client._base import Base
from dray.client._steps import Answer, Emit, Fault, Flow, Open, Opened, Pause, Reply, Send, Step
from dray.client._wire import (
    BROKEN,
    arguments,
    fault_of,
    is_untrusted,
    late,
    request_words,
    too_long,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from types import TracebackType

    from typing_extensions import Self

__all__ = ["Blocking"]

T = TypeVar("T")


class Blocking(Base):
    """Sends the requests of calls, and blocks until the answers. Threads may share an instance."""

    def _begin(self) -> None:
        self._http: httpx.Client | None = None
        self._connecting = threading.Lock()

    def __enter__(self) -> Self:
        """Return the client."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Close all connections; a later call opens new ones."""
        with self._connecting:
            http, self._http = self._http, None
        if http is not None:
            http.close()

    def _run(self, flow: Flow[T]) -> T:
        reply: Reply = None
        while True:
            try:
                step = flow.send(reply)
            except StopIteration as end:
                result: T = end.value
                return result
            reply = self._do(step)

    def _iterate(self, of: type[T], flow: Flow[None]) -> Generator[T, None, None]:
        stream = _Stream()
        reply: Reply = None
        try:
            while True:
                try:
                    step = flow.send(reply)
                except StopIteration:
                    return
                reply = None
                if isinstance(step, Emit):
                    if not isinstance(step.item, of):
                        raise TypeError("a flow emits what it says")
                    yield step.item
                elif isinstance(step, Open):
                    stream.close()
                    reply = self._send(step.request, stream)
                elif isinstance(step, (Send, Pause)):
                    reply = self._do(step)
                else:
                    reply = stream.read(self)
        finally:
            stream.close()
            flow.close()

    def _do(self, step: Step) -> Reply:
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return None
        if isinstance(step, Send):
            return self._send(step, None)
        raise AssertionError("a flow without items neither emits nor opens")

    def _send(self, step: Send, stream: _Stream | None) -> Answer | Opened | Fault:
        until = time.monotonic() + step.seconds
        arguments = request_words(step, self._tokens)
        fault = late(self._address)
        # Try twice if the endpoint is pinned. It may have a new certificate for the pinned key. The
        # first try then fails, because it trusts only the certificate that was fetched before.
        for _ in range(2):
            http = self._connected(until - time.monotonic())
            if isinstance(http, Fault):
                return http
            try:
                return self._exchange(http, step, arguments, until, stream)
            except BROKEN as error:
                fault = fault_of(error, self._address)
                if self._trust.pin is None or not is_untrusted(error):
                    break
            self.close()
        return fault

    def _exchange(
        self,
        http: httpx.Client,
        step: Send,
        arguments: dict[str, Any],
        until: float,
        stream: _Stream | None,
    ) -> Answer | Opened | Fault:
        response = http.send(http.build_request(**arguments), stream=True)
        is_kept = False
        try:
            if stream is not None and response.is_success:
                stream.hold(response)
                is_kept = True
                return Opened(dict(response.headers))
            body = bytearray()
            for piece in response.iter_raw():
                body += piece
                if len(body) > step.answer_bytes_max:
                    return too_long(step)
                if time.monotonic() > until:
                    return late(self._address)
            return Answer(response.status_code, dict(response.headers), bytes(body))
        finally:
            if not is_kept:
                response.close()

    def _connected(self, seconds: float) -> httpx.Client | Fault:
        with self._connecting:
            if self._http is None:
                trust: Any = False
                if not self._address.is_clear:
                    trust = self._trust.context(self._address, max(0.001, seconds))
                    if isinstance(trust, Fault):
                        return trust
                self._http = httpx.Client(**arguments(self._address, trust))
            return self._http


class _Stream:
    """The answer that an iteration is reading piece by piece."""

    def __init__(self) -> None:
        self._response: httpx.Response | None = None
        self._pieces: Iterator[bytes] = iter(())

    def hold(self, response: httpx.Response) -> None:
        self._response, self._pieces = response, response.iter_raw()

    def read(self, client: Base) -> bytes | Fault:
        try:
            return next(self._pieces, b"")
        except BROKEN as error:
            return fault_of(error, client._address)

    def close(self) -> None:
        if self._response is not None:
            self._response.close()
        self._response, self._pieces = None, iter(())
