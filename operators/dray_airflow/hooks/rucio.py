"""The hook of Rucio: makes a client of a Rucio server from a connection of Airflow.

No other module makes clients of Rucio. The package ``rucio-clients`` is imported when a client is
made. docs/reference/airflow.md explains the fields of a connection.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from dray_airflow.errors import DrayTaskFailure, DrayTaskRetry, bad_input, translated_rucio
from dray_airflow.hooks.fields import (
    extra_of,
    invalid_connection,
    seconds_of,
    text_of,
)
from dray_airflow.hooks.parsed import ParsedHook

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk import Connection

__all__ = ["RUCIO_EXTRAS", "RucioHook", "RucioSettings", "rucio_settings_of"]

RUCIO_EXTRAS = (
    "account",
    "auth_host",
    "auth_type",
    "vo",
    "ca",
    "certificate",
    "key",
    "proxy",
    "seconds",
    "outage_seconds",
)
AUTH_TYPES = ("userpass", "x509", "x509_proxy")


@dataclass(frozen=True, slots=True)
class RucioSettings:
    """The parsed fields of a connection.

    :param conn_id: name of the connection.
    :param url: URL of the REST server.
    :param auth_url: URL of the server that issues tokens.
    :param account: account in Rucio. With ``None``, Rucio uses the default account of the identity.
    :param auth_type: a word of :data:`AUTH_TYPES`.
    :param credentials: the credentials for ``auth_type``. ``repr`` does not show them.
    :param vo: virtual organisation of the server, if it has several.
    :param ca: file or folder of authorities. With ``None``, the authorities of the system.
    :param seconds: time limit of one call.
    :param outage_seconds: time for which a waiting task or trigger retries an unreachable server.
    """

    conn_id: str
    url: str
    auth_url: str
    account: str | None
    auth_type: str
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)
    vo: str | None = None
    ca: str | None = None
    seconds: float = 60.0
    outage_seconds: float = 300.0

    @property
    def authority(self) -> str:
        """``HOST[:PORT]`` of the server, as in URIs of assets."""
        return urlsplit(self.url).netloc.lower()

    def about(self, what: str) -> str:
        """Return text for messages with the operation and the server."""
        return f"{what} at {self.url} (connection {self.conn_id!r})"

    def token_folder(self) -> Path:
        """Return the folder for the token of this server, identity and account.

        Rucio's client otherwise uses one file for all servers on which an account has the same
        name.
        """
        words = "\n".join([self.url, self.auth_url, self.vo or "", *map(str, self._identity())])
        digest = hashlib.sha256(words.encode()).hexdigest()[:32]
        return Path(tempfile.gettempdir()) / f"dray-rucio-{os.getuid()}" / digest

    def _identity(self) -> tuple[str | None, ...]:
        # The secret is part of the digest, so that a changed password does not use the old token.
        return (self.account, self.auth_type, *sorted(self.credentials.values()))


def rucio_settings_of(connection: Connection) -> RucioSettings:
    """Parse a connection. Pure: no file or connection is opened.

    :raises DrayTaskFailure: if the connection is invalid. The message names the field.
    """
    conn_id = connection.conn_id
    extra = extra_of(conn_id, connection.extra, RUCIO_EXTRAS, '{"account": "prod"}')
    url = _url(connection, conn_id)
    words = {name: text_of(conn_id, extra, name) for name in RUCIO_EXTRAS[:8]}
    auth_type = words["auth_type"] or _usual_auth_type(connection, words)
    if auth_type not in AUTH_TYPES:
        raise invalid_connection(
            conn_id,
            f"auth_type {auth_type!r} is not supported",
            f"write one of {', '.join(AUTH_TYPES)}",
        )
    choices: dict[str, dict[str, str | None]] = {
        "userpass": {"username": connection.login, "password": connection.password},
        "x509": {
            "client_cert": words["certificate"],
            "client_key": words["key"] or words["certificate"],
        },
        "x509_proxy": {"client_proxy": words["proxy"]},
    }
    given = choices[auth_type]
    credentials = {name: value for name, value in given.items() if value}
    if len(credentials) < len(given):
        raise invalid_connection(
            conn_id,
            f"the credentials for auth_type {auth_type} are incomplete",
            "give login and password, or certificate and key, or proxy",
        )
    return RucioSettings(
        conn_id,
        url,
        words["auth_host"] or url,
        words["account"] or None,
        auth_type,
        credentials,
        vo=words["vo"] or None,
        ca=words["ca"] or None,
        seconds=seconds_of(conn_id, extra, "seconds", 60.0),
        outage_seconds=seconds_of(conn_id, extra, "outage_seconds", 300.0),
    )


def _usual_auth_type(connection: Connection, words: Mapping[str, str]) -> str:
    if words["proxy"]:
        return "x509_proxy"
    return "x509" if words["certificate"] and not connection.login else "userpass"


def _url(connection: Connection, conn_id: str) -> str:
    host = (connection.host or "").strip().rstrip("/")
    if "://" not in host:
        scheme = (connection.schema or "https").strip()
        port = f":{connection.port}" if connection.port else ""
        host = f"{scheme}://{host}{port}"
    parts = urlsplit(host)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise invalid_connection(
            conn_id,
            f"{host!r} is not the URL of a Rucio server",
            "write https://HOST[:PORT] into the field host",
        )
    return host


class RucioHook(ParsedHook[RucioSettings]):
    """Calls the Rucio server of a connection.

    :param rucio_conn_id: name of a connection of type ``rucio``.
    """

    conn_name_attr = "rucio_conn_id"
    default_conn_name = "rucio_default"
    conn_type = "rucio"
    hook_name = "Rucio server"

    def __init__(self, rucio_conn_id: str = default_conn_name) -> None:
        """Store the name of the connection. The connection is not looked up yet."""
        super().__init__(rucio_conn_id)
        self.rucio_conn_id = rucio_conn_id

    def _parse(self, connection: Connection) -> RucioSettings:
        return rucio_settings_of(connection)

    def get_conn(self) -> Any:  # noqa: ANN401 - rucio.client is not typed
        """Return a ``rucio.client.Client``, which has logged in.

        :raises DrayTaskFailure: if the connection is invalid (see :attr:`settings`), if the login
            is refused, or if the package ``rucio-clients`` is missing.
        :raises DrayTaskRetry: if the server is unreachable.
        """
        settings = self.settings
        try:
            from rucio.client import Client
        except ImportError as error:
            raise bad_input(
                settings.about("use Rucio"),
                f"the package rucio-clients cannot be imported: {error}",
                "install dray with the extra rucio-client on all workers and triggerers",
            ) from None

        class OwnToken(Client):  # type: ignore[misc]
            """A client with a separate folder for the token of its connection."""

            TOKEN_PATH_PREFIX = f"{_private(settings.token_folder())}/"

        with translated_rucio(settings.about("log in")):
            return OwnToken(
                rucio_host=settings.url,
                auth_host=settings.auth_url,
                account=settings.account,
                ca_cert=settings.ca,
                auth_type=settings.auth_type,
                creds=dict(settings.credentials),
                timeout=max(1, round(settings.seconds)),
                user_agent="dray_airflow",
                vo=settings.vo,
            )

    def test_connection(self) -> tuple[bool, str]:
        """Log in, and ask the server for its version and the caller's account.

        Airflow calls this on its page of connections.
        """
        try:
            client = self.get_conn()
            with translated_rucio(self.settings.about("ask for the account")):
                you = client.whoami()["account"]
                version = client.ping()["version"]
        except (DrayTaskFailure, DrayTaskRetry) as error:
            return False, str(error)
        return True, f"Rucio {version} at {self.settings.url}; you are {you}"


def _private(folder: Path) -> Path:
    """Create a folder that only this user can read. Return it.

    :raises DrayTaskFailure: if another user owns the folder or its parent, or if other users have
        access to one of them.
    """
    for each in (folder.parent, folder):
        each.mkdir(mode=0o700, exist_ok=True)
        found = each.lstat()
        if each.is_symlink() or found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise bad_input(
                "store a token of Rucio",
                f"{each} belongs to another user, or other users can read the folder",
                "remove the folder, or set TMPDIR to a private folder",
            )
    return folder
