"""Injected faults: killed and suspended processes, and broken networks."""

from __future__ import annotations

import contextlib
import os
import random
import time
from typing import TYPE_CHECKING

from dray.testing.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dray.client import Client, Transfer
    from dray.testing.endpoints import Endpoint

__all__ = ["Faults"]

POLL_SECONDS = 0.01


class Faults:
    """Injects faults. :meth:`close` resumes suspended endpoints and closes all proxies.

    :param seed: seed of the random times of faults. A test prints its seed. The environment
        variable ``DRAY_SEED`` sets the seed, so that the same times are used again.
    """

    def __init__(self, seed: int | None = None) -> None:
        """Choose the seed: the argument, ``DRAY_SEED``, or a new one."""
        named = os.environ.get("DRAY_SEED")
        if seed is None:
            seed = int(named) if named else random.SystemRandom().randrange(1 << 32)
        self.seed = seed
        self.chance = random.Random(seed)  # noqa: S311 - a moment, no secret
        self._proxies: list[Proxy] = []
        self._suspended: list[Endpoint] = []

    def between(self, endpoint: Endpoint) -> Proxy:
        """Put a proxy in front of an endpoint, so that its clients can be cut off.

        Control calls and data pass through the proxy. Use it as ``Place(...,
        address=proxy.address)``, or as the host of a URL.
        """
        proxy = Proxy(endpoint.address)
        self._proxies.append(proxy)
        return proxy

    def await_durable(
        self, client: Client, id: str, count: int = 1, *, seconds: float = 60.0
    ) -> Transfer:
        """Wait until at least ``count`` bytes of a transfer are durable.

        :raises AssertionError: if the transfer ends with fewer durable bytes.
        :raises TimeoutError: after ``seconds``.
        """
        until = time.monotonic() + seconds
        while True:
            transfer = client.transfer(id)
            if transfer.bytes.durable >= count:
                return transfer
            if transfer.is_terminal:
                raise AssertionError(
                    f"the transfer is {transfer.state}, and fewer than {count} bytes are safe"
                )
            if time.monotonic() > until:
                safe = transfer.bytes.durable
                raise TimeoutError(f"{safe} bytes are safe after {seconds:g} s, not {count}")
            time.sleep(POLL_SECONDS)

    def kill_after(
        self, endpoint: Endpoint, client: Client, id: str, count: int = 1, *, seconds: float = 60.0
    ) -> Transfer:
        """Kill an endpoint when at least ``count`` bytes of a transfer are durable.

        Return the state of the transfer just before the kill.
        """
        transfer = self.await_durable(client, id, count, seconds=seconds)
        endpoint.kill()
        return transfer

    def kill_at_random(self, endpoint: Endpoint, within_seconds: float = 2.0) -> float:
        """Kill an endpoint at a random time. Return the time, in seconds from now."""
        moment = self.chance.uniform(0.0, within_seconds)
        time.sleep(moment)
        endpoint.kill()
        return moment

    @contextlib.contextmanager
    def suspended(self, endpoint: Endpoint) -> Iterator[None]:
        """Suspend an endpoint's process while the context is active."""
        endpoint.suspend()
        self._suspended.append(endpoint)
        try:
            yield
        finally:
            self._suspended.remove(endpoint)
            endpoint.resume()

    def close(self) -> None:
        """Continue suspended processes, and close all proxies."""
        for endpoint in self._suspended:
            endpoint.resume()
        for proxy in self._proxies:
            proxy.close()
