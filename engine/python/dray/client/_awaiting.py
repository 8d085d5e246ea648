"""Executes the steps of flows by awaiting. Does I/O and waits, and makes no decisions."""

from __future__ import annotations

import asyncio
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
    from collections.abc import AsyncGenerator, AsyncIterator
    from types import TracebackType

    from typing_extensions import Self

__all__ = ["Awaiting"]

T = TypeVar("T")


class Awaiting(Base):
    """Opens connections and executes flows. Belongs to one event loop of :mod:`asyncio`."""

    def _begin(self) -> None:
        self._http: httpx.AsyncClient | None = None
        self._connecting = asyncio.Lock()

    async def __aenter__(self) -> Self:
        """Return the client."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        await self.close()

    async def close(self) -> None:
        """Close all connections; a later call opens new ones."""
        async with self._connecting:
            http, self._http = self._http, None
        if http is not None:
            await http.aclose()

    async def _run(self, flow: Flow[T]) -> T:
        reply: Reply = None
        while True:
            try:
                step = flow.send(reply)
            except StopIteration as end:
                result: T = end.value
                return result
            reply = await self._do(step)

    async def _iterate(self, of: type[T], flow: Flow[None]) -> AsyncGenerator[T, None]:
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
                    await stream.close()
                    reply = await self._send(step.request, stream)
                elif isinstance(step, (Send, Pause)):
                    reply = await self._do(step)
                else:
                    reply = await stream.read(self)
        finally:
            await stream.close()
            flow.close()

    async def _do(self, step: Step) -> Reply:
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
            return None
        if isinstance(step, Send):
            return await self._send(step, None)
        raise AssertionError("a flow without items neither emits nor opens")

    async def _send(self, step: Send, stream: _Stream | None) -> Answer | Opened | Fault:
        until = time.monotonic() + step.seconds
        arguments = request_words(step, self._tokens)
        fault = late(self._address)
        # Try twice if the endpoint is pinned. It may have a new certificate for the pinned key. The
        # first try then fails, because it trusts only the certificate that was fetched before.
        for _ in range(2):
            http = await self._connected(until - time.monotonic())
            if isinstance(http, Fault):
                return http
            try:
                exchange = self._exchange(http, step, arguments, stream)
                return await asyncio.wait_for(exchange, max(0.001, until - time.monotonic()))
            except asyncio.TimeoutError:
                return late(self._address)
            except BROKEN as error:
                fault = fault_of(error, self._address)
                if self._trust.pin is None or not is_untrusted(error):
                    break
            await self.close()
        return fault

    async def _exchange(
        self, http: httpx.AsyncClient, step: Send, words: dict[str, Any], stream: _Stream | None
    ) -> Answer | Opened | Fault:
        response = await http.send(http.build_request(**words), stream=True)
        is_kept = False
        try:
            if stream is not None and response.is_success:
                stream.hold(response)
                is_kept = True
                return Opened(dict(response.headers))
            body = bytearray()
            async for piece in response.aiter_raw():
                body += piece
                if len(body) > step.answer_bytes_max:
                    return too_long(step)
            return Answer(response.status_code, dict(response.headers), bytes(body))
        finally:
            if not is_kept:
                await response.aclose()

    async def _connected(self, seconds: float) -> httpx.AsyncClient | Fault:
        async with self._connecting:
            if self._http is None:
                trust: Any = False
                if not self._address.is_clear:
                    # Runs in another thread, because it reads files, and opens a connection if a
                    # key is pinned.
                    trust = await asyncio.to_thread(
                        self._trust.context, self._address, max(0.001, seconds)
                    )
                    if isinstance(trust, Fault):
                        return trust
                self._http = httpx.AsyncClient(**arguments(self._address, trust))
            return self._http


class _Stream:
    """The answer that an iteration is reading piece by piece."""

    def __init__(self) -> None:
        self._response: httpx.Response | None = None
        self._pieces: AsyncIterator[bytes] | None = None

    def hold(self, response: httpx.Response) -> None:
        self._response, self._pieces = response, response.aiter_raw()

    async def read(self, client: Base) -> bytes | Fault:
        if self._pieces is None:
            return b""
        try:
            return await anext(self._pieces, b"")
        except BROKEN as error:
            return fault_of(error, client._address)

    async def close(self) -> None:
        if self._response is not None:
            await self._response.aclose()
        self._response, self._pieces = None, None
