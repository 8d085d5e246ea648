"""The configuration file of the service (TOML)."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from dray_fts.messages import COMPLETE, START, STATE
from dray_fts.sites import NoPlaceError, Prefix, SiteMap

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["NAME", "Endpoint", "Limits", "Messages", "Settings", "SettingsError", "User", "read"]

T = TypeVar("T")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Names of endpoints and owners."""
_DESTINATION = "/topic/transfer.fts_monitoring_complete"
_PATH = re.compile(r"/[^/?#\s]+(/[^?#\s]*)?")


class SettingsError(ValueError):
    """The configuration file is missing or wrong. The message names the key."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint of dray.

    :param token_file: path of the file with the token for this endpoint. ``{owner}`` in the path
        stands for the owner of a job.
    """

    name: str
    url: str
    pin: str | None = None
    ca: str | None = None
    token_file: str | None = None
    certificate: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class User:
    """The owner and the VO of a certificate's subject."""

    subject: str
    owner: str
    vo: str


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits and times.

    :param body_bytes: maximum size of a submission.
    :param metadata_bytes: maximum size of the metadata of one job or one file.
    :param files: maximum number of files of a job.
    :param wait_seconds: time for which a file waits for an endpoint that does not answer.
    :param poll_seconds: time between two queries about live transfers.
    :param keep_days: time for which an ended job is kept.
    :param disk_seconds: time for which an endpoint keeps the fast copy of an archived file.
    """

    body_bytes: int = 32 << 20
    metadata_bytes: int = 64 << 10
    files: int = 10_000
    wait_seconds: float = 3600.0
    poll_seconds: float = 1.0
    keep_days: float = 7.0
    disk_seconds: int = 86_400


@dataclass(frozen=True, slots=True)
class Messages:
    """The STOMP broker that gets messages about files.

    :param destinations: destinations by the kind of message. Other kinds are not published.
    :param ca: authorities of the broker's certificate. ``None``: a connection without TLS.
    :param keep_hours: time for which a message waits for the broker.
    """

    host: str
    port: int
    destinations: Mapping[str, str]
    ca: Path | None
    certificate: Path | None
    key: Path | None
    user: str | None
    password_file: Path | None
    virtual_host: str | None
    keep_hours: float


@dataclass(frozen=True, slots=True)
class Settings:
    """The whole configuration.

    :param host: address on which the service listens.
    :param name: name of the service in its answers.
    :param vo: VO of users without a VO.
    :param crls: file or folder with revocation lists of client certificates.
    :param tokens_at: name of the endpoint that checks bearer tokens. ``None`` refuses tokens.
    :param messages: ``None`` publishes no messages.
    """

    host: str
    port: int
    name: str
    state: Path
    vo: str
    certificate: Path
    key: Path
    client_ca: Path | None
    crls: Path | None
    sites: SiteMap
    endpoints: Mapping[str, Endpoint]
    users: Mapping[str, User]
    administrators: frozenset[str]
    tokens_at: str | None
    limits: Limits = field(default_factory=Limits)
    messages: Messages | None = None


class _Table:
    """A table of the file. Each key that nobody takes is an error."""

    def __init__(self, place: str, found: object) -> None:
        if not isinstance(found, dict):
            raise SettingsError(f"{place} is not a table")
        self._place, self._left = place, dict(found)

    def take(self, key: str, kind: type[T], default: T | None = None) -> T:
        """Return a value. Without a default, the key is required."""
        if key not in self._left:
            if default is None:
                raise SettingsError(f"{self._place}: the key {key} is missing")
            return default
        value = self._left.pop(key)
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise SettingsError(
                f"{self._place}: {key} is {value!r}; write a value of type {_word(kind)}"
            )
        return value

    def has(self, key: str) -> bool:
        """Return true if the table has the key."""
        return key in self._left

    def maybe(self, key: str) -> str | None:
        """Return a text, or ``None`` if the key is missing."""
        return self.take(key, str) if key in self._left else None

    def name(self, key: str) -> str:
        """Return a name that is safe in paths and ids."""
        text = self.take(key, str)
        if not NAME.fullmatch(text):
            raise SettingsError(
                f"{self._place}: {key} is {text!r}; write letters, digits and `._-` only"
            )
        return text

    def tables(self, key: str) -> list[_Table]:
        """Return the tables of an array."""
        found = self.take(key, list, [])
        return [_Table(f"[[{key}]] number {at + 1}", each) for at, each in enumerate(found)]

    def table(self, key: str) -> _Table:
        """Return a table, which may be missing."""
        return _Table(f"[{key}]", self.take(key, dict, {}))

    def end(self) -> None:
        """Refuse keys that the service does not know."""
        if self._left:
            raise SettingsError(f"{self._place}: the key {sorted(self._left)[0]} is unknown")


def read(path: Path) -> Settings:
    """Read the configuration file.

    :raises SettingsError: if the file cannot be read, or if a key is missing, unknown or wrong.
    """
    # Python 3.10 has no tomllib. The extra `fts` installs tomli there.
    reader = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        found = reader.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise SettingsError(f"{path} is not TOML: {error}") from error
    return _settings(_Table(str(path), found))


def check_tls_files(settings: Settings) -> None:
    """Check that the service can read the files of ``[tls]``.

    :raises SettingsError: if a file cannot be read. The errors of OpenSSL do not name the file.
    """
    for key in ("certificate", "key", "client_ca", "crls"):
        expect_readable("[tls]", key, getattr(settings, key))


def check_endpoint_files(settings: Settings) -> None:
    """Check that the service can read the files of each endpoint, except the tokens of owners.

    :raises SettingsError: if a file cannot be read.
    """
    for endpoint in settings.endpoints.values():
        for key in ("ca", "token_file", "certificate", "key"):
            path = getattr(endpoint, key)
            if path is not None and "{owner}" not in path:
                expect_readable(f"endpoint {endpoint.name}", key, Path(path))


def expect_readable(place: str, key: str, path: Path | None) -> None:
    """Check that the service can read a file or folder.

    :raises SettingsError: if not. The message names the key and the path.
    """
    if path is None:
        return
    try:
        next(path.iterdir(), None) if path.is_dir() else path.open("rb").close()
    except OSError as error:
        raise SettingsError(
            f"{place}: cannot read {key} {path}: {error.strerror}; correct the path, or the "
            "permissions of the file"
        ) from error


def _settings(top: _Table) -> Settings:
    host, port = _listen("listen", top.take("listen", str, "127.0.0.1:8446"))
    tls, tokens, limits = top.table("tls"), top.table("tokens"), top.table("limits")
    vo = top.take("vo", str, "default")
    endpoints = {each.name: each for each in map(_endpoint, top.tables("endpoint"))}
    prefixes = [_prefix(table, endpoints) for table in top.tables("prefix")]
    users = {each.subject: each for each in (_user(table, vo) for table in top.tables("user"))}
    tokens_at = tokens.maybe("endpoint")
    if tokens_at is not None and tokens_at not in endpoints:
        raise SettingsError(f"[tokens]: no [[endpoint]] has the name {tokens_at}")
    client_ca, crls = tls.maybe("client_ca"), tls.maybe("crls")
    if client_ca is None and tokens_at is None:
        raise SettingsError(
            "no client could authenticate; set client_ca in [tls], or endpoint in [tokens]"
        )
    try:
        sites = SiteMap(prefixes)
    except NoPlaceError as error:
        raise SettingsError(f"[[prefix]]: {error}") from error
    made = Settings(
        host=host,
        port=port,
        name=top.take("name", str, "dray-fts"),
        state=Path(top.take("state", str)),
        vo=vo,
        certificate=Path(tls.take("certificate", str)),
        key=Path(tls.take("key", str)),
        client_ca=None if client_ca is None else Path(client_ca),
        crls=None if crls is None else Path(crls),
        sites=sites,
        endpoints=endpoints,
        users=users,
        administrators=frozenset(map(str, top.take("administrators", list, []))),
        tokens_at=tokens_at,
        limits=_limits(limits),
        messages=_messages(top.table("messages")) if top.has("messages") else None,
    )
    for table in (top, tls, tokens, limits):
        table.end()
    return made


def _listen(key: str, text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise SettingsError(f"{key} is {text!r}; write ADDRESS:PORT")
    return host.strip("[]"), int(port)


def _messages(table: _Table) -> Messages:
    host, port = _listen("[messages]: broker", table.take("broker", str))
    has_tls = table.take("tls", bool, default=True)
    paths = {name: table.maybe(name) for name in ("ca", "certificate", "key", "password_file")}
    destinations = {COMPLETE: table.take("destination", str, _DESTINATION)}
    others = {kind: table.maybe(f"destination_{kind}") for kind in (START, STATE)}
    destinations |= {kind: text for kind, text in others.items() if text is not None}
    user = table.maybe("user")
    made = Messages(
        host=host,
        port=port,
        destinations=destinations,
        user=user,
        virtual_host=table.maybe("virtual_host"),
        keep_hours=table.take("keep_hours", float, 24.0),
        **{name: None if path is None else Path(path) for name, path in paths.items()},
    )
    table.end()
    if has_tls != (made.ca is not None):
        raise SettingsError(
            "[messages]: ca is missing; set ca to the file with the authority of the broker"
            if has_tls
            else "[messages]: ca is set, but tls is false; leave one of them out"
        )
    if made.certificate is not None and not has_tls:
        raise SettingsError("[messages]: certificate needs TLS; leave tls out, and set ca")
    if (made.certificate is None) != (made.key is None):
        raise SettingsError("[messages]: set both certificate and key, or neither")
    if (user is None) != (made.password_file is None):
        raise SettingsError("[messages]: set both user and password_file, or neither")
    if made.keep_hours <= 0:
        raise SettingsError(f"[messages]: keep_hours is {made.keep_hours}; write a number over 0")
    return made


def _endpoint(table: _Table) -> Endpoint:
    made = Endpoint(
        name=table.name("name"),
        url=table.take("url", str),
        pin=table.maybe("pin"),
        ca=table.maybe("ca"),
        token_file=table.maybe("token_file"),
        certificate=table.maybe("certificate"),
        key=table.maybe("key"),
    )
    table.end()
    if made.token_file is None and made.certificate is None:
        raise SettingsError(
            f"endpoint {made.name}: no credential; set token_file, or certificate and key"
        )
    return made


def _prefix(table: _Table, endpoints: Mapping[str, Endpoint]) -> Prefix:
    made = Prefix(
        url=table.take("url", str),
        endpoint=table.take("endpoint", str),
        path=table.take("path", str),
        is_tape=table.take("tape", bool, default=False),
    )
    table.end()
    if made.endpoint not in endpoints:
        raise SettingsError(f"prefix {made.url}: no [[endpoint]] has the name {made.endpoint}")
    if not _PATH.fullmatch(made.path):
        raise SettingsError(f"prefix {made.url}: path is {made.path!r}; write /ROOT or /ROOT/PATH")
    return made


def _user(table: _Table, vo: str) -> User:
    made = User(table.take("subject", str), table.name("owner"), table.take("vo", str, vo))
    table.end()
    return made


def _limits(table: _Table) -> Limits:
    usual = Limits()
    made = Limits(
        body_bytes=table.take("body_bytes", int, usual.body_bytes),
        metadata_bytes=table.take("metadata_bytes", int, usual.metadata_bytes),
        files=table.take("files", int, usual.files),
        wait_seconds=table.take("wait_seconds", float, usual.wait_seconds),
        poll_seconds=table.take("poll_seconds", float, usual.poll_seconds),
        keep_days=table.take("keep_days", float, usual.keep_days),
        disk_seconds=table.take("disk_seconds", int, usual.disk_seconds),
    )
    for name in ("body_bytes", "files", "poll_seconds", "keep_days", "disk_seconds"):
        if getattr(made, name) <= 0:
            raise SettingsError(f"[limits]: {name} is {getattr(made, name)}; write a number over 0")
    return made


def _word(kind: type[object]) -> str:
    return {
        str: "text",
        bool: "true or false",
        int: "integer",
        float: "number",
        list: "array",
        dict: "table",
    }[kind]
