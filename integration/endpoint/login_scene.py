"""An endpoint whose console has a login, and the provider of this login."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import httpx

from dray.testing.endpoints import Endpoint
from integration.endpoint.authority import Authority
from integration.endpoint.login_provider import SECRET, Provider, confirm
from integration.endpoint.raw import shipped_program, trusting
from integration.harness.airflow import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Json: TypeAlias = Any


class LoginScene(NamedTuple):
    """An endpoint with a login, and the provider."""

    site: Endpoint
    provider: Provider

    @property
    def origin(self) -> str:
        """The address of the console in browsers."""
        return f"https://{self.site.address}"

    @property
    def start(self) -> str:
        """The address at which a login starts."""
        return f"{self.origin}/ui/login/iam"

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a call that the console makes with a session."""
        return {"Dray-Console": "active", "Origin": self.origin}


@contextlib.contextmanager
def open_login(
    *,
    ui: Mapping[str, Json] | None = None,
    login: Mapping[str, Json] | None = None,
    is_public: bool = False,
    claims_in_userinfo: bool = False,
) -> Iterator[LoginScene]:
    """Yield an endpoint with a login and the provider of the login.

    :param ui: further keys of ``[ui]``.
    :param login: further keys of ``[[ui.login]]``.
    :param is_public: the endpoint is a client without a secret.
    :param claims_in_userinfo: see :class:`Provider`.
    """
    folder = Path(tempfile.mkdtemp(prefix="dray-login-"))
    address = f"127.0.0.1:{free_port()}"
    client = "dray-public" if is_public else "dray a:b"
    provider = None
    endpoint = None
    try:
        provider = Provider(
            folder,
            Authority(folder),
            {client: f"https://{address}/ui/login/iam/done"},
            claims_in_userinfo=claims_in_userinfo,
        )
        secret = folder / "secret"
        secret.write_text(f"{SECRET}\n", encoding="utf-8")
        secret.chmod(0o600)
        more = {} if is_public else {"secret_file": str(secret)}
        rules = [
            {"issuer": "https://a", "subject": "*", "owner": "*"},
            {"issuer": provider.url, "group": "cms", "owner": "alice"},
        ]
        endpoint = Endpoint(
            folder / "endpoint",
            config={
                "rate": "32MiB",
                "audit": {"file": str(folder / "audit.jsonl")},
                "map": {"unmapped": "refuse", "rules": rules},
                "ui": {
                    "enabled": True,
                    "url": f"https://{address}",
                    **(ui or {}),
                    "login": [provider.login(client, **more, **(login or {}))],
                },
            },
            program=shipped_program(),
            listen=address,
        )
        yield LoginScene(endpoint.start(), provider)
    finally:
        if endpoint is not None:
            endpoint.close()
        if provider is not None:
            provider.stop()
        shutil.rmtree(folder, ignore_errors=True)


def agent() -> httpx.Client:
    """Return a client that keeps cookies like a browser. The caller must close it."""
    # The endpoint closes a connection on which it has refused a call without reading its body.
    limits = httpx.Limits(max_keepalive_connections=0)
    return httpx.Client(verify=trusting(), timeout=60, trust_env=False, limits=limits)


def begin(scene: LoginScene, http: httpx.Client, page: str = "") -> str:
    """Start a login. Return the address of the provider."""
    answer = http.get(scene.start, params={"page": page} if page else None)
    assert answer.status_code == 303, answer.text
    address: str = answer.headers["location"]
    assert urlsplit(address).netloc == urlsplit(scene.provider.url).netloc
    return address


def come_back(
    scene: LoginScene, http: httpx.Client, user: str = "alice", page: str = ""
) -> httpx.Response:
    """Log in at the provider. Return the endpoint's answer to the browser's return."""
    return http.get(confirm(http, begin(scene, http, page), user))
