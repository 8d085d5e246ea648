"""The hook: makes a client of an endpoint's control API from a connection of Airflow.

No other module makes clients. docs/reference/airflow.md explains the fields of a connection.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dray_airflow.errors import DrayTaskFailure
from dray_airflow.hooks.fields import (
    extra_of,
    invalid_connection,
    seconds_of,
    text_of,
)
from dray_airflow.hooks.parsed import ParsedHook
from dray_airflow.tokens import FileToken, RenewedToken, expires_at, is_expired

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from airflow.sdk import Connection

    from dray.client import AsyncClient, Client, TokenSource

__all__ = ["DEFAULT_PORT", "DrayHook", "Settings", "settings_of"]

DEFAULT_PORT = 4735
SCHEMES = ("dray", "https", "http")
EXTRAS = (
    "pin",
    "ca",
    "certificate",
    "key",
    "token_file",
    "seconds",
    "outage_seconds",
    "namespace",
    "link",
)


@dataclass(frozen=True, slots=True)
class Settings:
    """The parsed fields of a connection.

    :param conn_id: name of the connection.
    :param url: URL of the endpoint, ``SCHEME://HOST:PORT``.
    :param authority: ``HOST:PORT``, as in URLs of files.
    :param token: password of the connection. ``repr`` does not show it.
    :param token_file: path of a file with a token on the worker.
    :param trust: the arguments ``pin``, ``ca``, ``certificate`` and ``key`` of a client.
    :param seconds: time limit of one call, including retries.
    :param outage_seconds: time for which a waiting task or trigger retries an unreachable endpoint.
    :param namespace: see :func:`dray_airflow.identity.transfer_id`.
    :param link: URL of a page about a transfer, with ``{id}`` for the transfer's id.
    """

    conn_id: str
    url: str
    authority: str
    token: str | None = field(default=None, repr=False)
    token_file: str | None = None
    trust: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 60.0
    outage_seconds: float = 300.0
    namespace: str = ""
    link: str = ""

    def arguments(self, renewed: Callable[[], str | None] | None = None) -> dict[str, Any]:
        """Return the arguments of a client.

        :param renewed: function that reads the connection again and returns its password.
        """
        from dray.client import DISCOVER, Policy

        token: TokenSource = DISCOVER
        if self.token:
            token = RenewedToken(self.token, renewed) if renewed is not None else self.token
        elif self.token_file:
            token = _file_token(Path(self.token_file))
        elif "certificate" in self.trust:
            token = None
        policy = Policy(seconds=self.seconds, outage_seconds=self.outage_seconds)
        return {"url": self.url, "token": token, "policy": policy, **self.trust}

    def token_expired_at(self) -> datetime | None:
        """Return the time at which the token expired. ``None`` if it is valid or states no time."""
        token = self.token or ""
        if self.token_file:
            try:
                token = Path(self.token_file).read_text(encoding="ascii").strip()
            except (OSError, ValueError):
                return None
        return expires_at(token) if is_expired(token) else None

    def about(self, what: str) -> str:
        """Return text for messages with the operation and the endpoint."""
        return f"{what} at {self.url} (connection {self.conn_id!r})"

    def link_to(self, id: str) -> str:
        """Return the URL of the page about a transfer. Empty if the connection has no such URL."""
        return self.link.replace("{id}", id)


def settings_of(connection: Connection) -> Settings:
    """Parse a connection. Pure: no file or connection is opened.

    :raises DrayTaskFailure: if the connection is invalid. The message names the field.
    """
    conn_id = connection.conn_id
    extra = extra_of(conn_id, connection.extra, EXTRAS, '{"pin": "sha256:..."}')
    scheme, host, port = _address(connection, conn_id)
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    token_file = text_of(conn_id, extra, "token_file")
    if connection.password and token_file:
        raise invalid_connection(
            conn_id, "the connection has a password and a token_file", "remove one of them"
        )
    trust = {
        name: text
        for name in ("pin", "ca", "certificate", "key")
        if (text := text_of(conn_id, extra, name))
    }
    return Settings(
        conn_id,
        f"{scheme}://{authority}",
        authority,
        token=connection.password or None,
        token_file=token_file or None,
        trust=trust,
        seconds=seconds_of(conn_id, extra, "seconds", 60.0),
        outage_seconds=seconds_of(conn_id, extra, "outage_seconds", 300.0),
        namespace=text_of(conn_id, extra, "namespace"),
        link=text_of(conn_id, extra, "link"),
    )


def _address(connection: Connection, conn_id: str) -> tuple[str, str, int]:
    host = (connection.host or "").strip()
    scheme = (connection.schema or "").strip()
    if "://" in host:
        written, _, host = host.partition("://")
        if scheme and scheme != written:
            raise invalid_connection(
                conn_id,
                f"the field host begins with {written}://, but the field schema is {scheme}",
                "remove one of them",
            )
        scheme = written
    scheme = scheme or "dray"
    if scheme not in SCHEMES:
        raise invalid_connection(
            conn_id, f"the scheme {scheme!r} is not supported", f"write one of {', '.join(SCHEMES)}"
        )
    port = connection.port
    bare = host.rstrip("/")
    if bare.startswith("["):
        host, _, after = bare[1:].partition("]")
        after = after.removeprefix(":")
    elif bare.count(":") == 1:
        host, _, after = bare.partition(":")
    else:
        host, after = bare, ""
    if after:
        if not after.isdigit() or (port is not None and port != int(after)):
            raise invalid_connection(
                conn_id,
                f"the port in the host {bare!r} is not a number, or differs from the field port",
                "write the port as a number, in one field only",
            )
        port = int(after)
    if not host or any(mark in host for mark in "/?#@ "):
        raise invalid_connection(
            conn_id,
            f"the host {host!r} is not a host name or an IP address",
            "give the name or the address of an endpoint",
        )
    return scheme, host, port or {"dray": DEFAULT_PORT, "https": 443, "http": 80}[scheme]


def _file_token(path: Path) -> TokenSource:
    """Return a source of the token in a file. The client reports a file that cannot be read."""
    try:
        return FileToken(path)
    except (OSError, ValueError):
        return path


class DrayHook(ParsedHook[Settings]):
    """Calls the endpoint of a connection.

    :param dray_conn_id: name of a connection of type ``dray``.
    """

    conn_name_attr = "dray_conn_id"
    default_conn_name = "dray_default"
    conn_type = "dray"
    hook_name = "dray endpoint"

    def __init__(self, dray_conn_id: str = default_conn_name) -> None:
        """Store the name of the connection. The connection is not looked up yet."""
        super().__init__(dray_conn_id)
        self.dray_conn_id = dray_conn_id

    def _parse(self, connection: Connection) -> Settings:
        return settings_of(connection)

    def _renewed_token(self) -> str | None:
        """Read the Airflow connection again, and return the password of the connection."""
        settings = settings_of(self.get_connection(self.dray_conn_id))
        self._settings = settings
        return settings.token

    def get_conn(self) -> Client:
        """Return a blocking client. The caller must close it.

        If a job later writes a new token into the connection, the client sends the new token with
        its next request.

        :raises DrayTaskFailure: as :attr:`settings`.
        """
        from dray.client import Client
        from dray.errors import DrayUsageError

        settings = self.settings
        try:
            return Client(**settings.arguments(self._renewed_token))
        except DrayUsageError as error:
            raise invalid_connection(settings.conn_id, error.cause, error.remedy) from None

    async def get_async_conn(self) -> AsyncClient:
        """Return an awaiting client for the running event loop. The caller must close it."""
        from dray.client import AsyncClient
        from dray.errors import DrayUsageError

        settings = await self.asettings()
        try:
            return AsyncClient(**settings.arguments())
        except DrayUsageError as error:
            raise invalid_connection(settings.conn_id, error.cause, error.remedy) from None

    def test_connection(self) -> tuple[bool, str]:
        """Ask the endpoint for its name and the caller's identity.

        Airflow calls this on its page of connections.
        """
        from dray.errors import DrayError

        try:
            with self.get_conn() as client:
                info = client.endpoint()
        except (DrayError, DrayTaskFailure) as error:
            return False, str(error)
        roots = ", ".join(root.name for root in info.roots) or "none"
        you = info.you.owner or info.you.principal or "unknown to the endpoint"
        return True, f"endpoint {info.name}, version {info.version}; you are {you}; roots: {roots}"
