"""Raw HTTP: duplicate headers, bodies that are no JSON, arbitrary certificates."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote

from integration.harness import program as harness

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dray.testing.endpoints import Endpoint

__all__ = ["Answer", "ask", "bearer", "dial", "dray", "query", "shipped_program", "trusting"]

Json: TypeAlias = Any
SECONDS = 60.0
#: Fields of an error (docs/reference/api.md).
FIELDS = {"kind", "status", "end", "operation", "file", "cause", "remedy", "message"}


def shipped_program() -> Path:
    """Return the program, for fixtures that live longer than a test."""
    named = os.environ.get("DRAY_PROGRAM")
    return Path(named) if named else harness.find_program()


def dray(
    *words: str | Path, seconds: float = 120.0, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run ``dray`` with the environment variables ``env``, PATH and HOME."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return subprocess.run(
        [shipped_program(), *words],
        check=False,
        capture_output=True,
        text=True,
        timeout=seconds,
        stdin=subprocess.DEVNULL,
        env={**kept, **env},
    )


@dataclass(frozen=True)
class Answer:
    """An HTTP answer."""

    code: int
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> Json:
        """The body of the answer, which must be JSON."""
        return json.loads(self.text)

    @property
    def error(self) -> Json:
        """The error of the answer, which must have the documented fields."""
        error = self.json["error"]
        assert error.keys() >= FIELDS, f"{sorted(FIELDS - error.keys())} are missing: {error}"
        return error

    def refused(self, code: int, kind: str) -> Json:
        """Fail unless the answer is an error of this code and kind, with a remedy."""
        assert self.code == code, f"{self.code}, not {code}: {self.text}"
        error = self.error
        assert error["kind"] == kind, f"{error['kind']}, not {kind}: {error}"
        assert error["cause"], f"it gives no cause: {error}"
        assert error["remedy"], f"it gives no remedy: {error}"
        if code == 401:
            assert self.headers.get("www-authenticate") == "Bearer"
        return error


def trusting(certificate: Path | None = None) -> ssl.SSLContext:
    """Trust any endpoint; present a certificate, with the key in the same file, if given."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if certificate is not None:
        context.load_cert_chain(certificate)
    return context


def dial(
    address: str, certificate: Path | None = None, source: str = "127.0.0.1"
) -> http.client.HTTPSConnection:
    """Return a connection to ``address`` from the local address ``source``."""
    return http.client.HTTPSConnection(
        address, timeout=SECONDS, context=trusting(certificate), source_address=(source, 0)
    )


def ask(
    endpoint: Endpoint | str,
    method: str,
    path: str,
    body: Json = None,
    *,
    headers: Iterable[tuple[str, str]] = (),
    token: str | None = None,
    certificate: Path | None = None,
    raw: bytes | None = None,
    source: str = "127.0.0.1",
) -> Answer:
    """Make one request, on a new connection.

    :param body: sent as JSON.
    :param headers: headers, which are sent in this order, including duplicates.
    :param raw: a raw body, in place of ``body``.
    """
    address = endpoint if isinstance(endpoint, str) else endpoint.address
    payload = raw if body is None else json.dumps(body).encode()
    with contextlib.closing(dial(address, certificate, source)) as connection:
        connection.putrequest(method, path, skip_accept_encoding=True)
        for name, value in [*headers, *bearer(token)]:
            connection.putheader(name, value)
        if payload is not None:
            connection.putheader("Content-Type", "application/json")
            connection.putheader("Content-Length", str(len(payload)))
        connection.endheaders(payload)
        answer = connection.getresponse()
        text = answer.read().decode()
        return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, text)


def bearer(token: str | None) -> list[tuple[str, str]]:
    """Return the header with a token, or no header without a token."""
    return [] if token is None else [("Authorization", f"Bearer {token}")]


def query(path: str, **more: object) -> str:
    """Write the query of a storage call: the API path unchanged, and further parameters."""
    pairs = {"path": path, **more}
    return "&".join(f"{name}={quote(str(value), safe='')}" for name, value in pairs.items())
