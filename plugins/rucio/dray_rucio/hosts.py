"""Clients of endpoints, by what Rucio notes as the external host; opened when first asked for."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from dray.client import DISCOVER, Client, Policy
from dray_rucio import settings

if TYPE_CHECKING:
    from dray_rucio.settings import Settings

__all__ = ["Hosts"]


class Hosts:
    """Clients, each by one endpoint's ``dray://HOST:PORT[#PIN]``. Used by many threads."""

    def __init__(self, how: Settings | None = None) -> None:
        """Ask by these settings; by default those of Rucio's configuration, when first needed."""
        self._how = how
        self._clients: dict[str, Client] = {}
        self._lock = threading.Lock()

    @property
    def settings(self) -> Settings:
        """How endpoints are asked."""
        if self._how is None:
            self._how = settings.read()
        return self._how

    def of(self, host: str) -> Client:
        """Give the client of an endpoint."""
        with self._lock:
            client = self._clients.get(host)
            if client is None:
                client = self._clients[host] = self._open(host)
            return client

    def _open(self, host: str) -> Client:
        url, _, pin = host.partition("#")
        how = self.settings
        token = how.token_of(url.removeprefix("dray://"))
        # With a certificate alone nobody's token is looked for.
        usual = DISCOVER if how.certificate is None else None
        return Client(
            url,
            token=usual if token is None else token,
            ca=None if pin or how.ca is None else str(how.ca),
            certificate=None if how.certificate is None else str(how.certificate),
            key=None if how.key is None else str(how.key),
            pin=pin or None,
            policy=Policy(seconds=how.call_seconds),
        )
