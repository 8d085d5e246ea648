"""A real OpenID Connect provider for the tests of logins: oidc-provider, run by Node.js."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urljoin

import pytest

from integration.harness.program import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx

    from integration.endpoint.authority import Authority

Json: TypeAlias = Any

SOURCES = Path(__file__).with_name("provider")
INSTALL_SECONDS = 300
#: Oldest version of Node.js with the cryptographic functions that the provider uses.
NODE_MIN = 20
#: Secret of the confidential client. The characters change in the encoding of a form.
SECRET = "a secret: with + and % in it, 32 bytes"  # noqa: S105 - of this provider
#: Users of the provider, by their login names, with their claims.
ACCOUNTS: Mapping[str, Json] = {
    "alice": {"name": "Alice Adams", "groups": ["cms", "/cms/ops"]},
    "mallory": {"name": "Mallory <b>Moe</b>", "groups": ["atlas"]},
    "nobody": {"name": "No Groups"},
}


def missing() -> str | None:
    """Return the reason why the provider cannot run on this host, or None."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return "no node or no npm on PATH; tools/bootstrap.sh test"
    words = ["node", "--version"]
    text = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
    if int(text.removeprefix("v").partition(".")[0]) < NODE_MIN:
        return f"node is {text}, but the provider needs version {NODE_MIN} or later"
    return None


needs_node = pytest.mark.skipif(missing() is not None, reason=missing() or "")


def modules() -> Path:
    """Return the folder of the provider's modules, which are installed unless up to date."""
    home = ROOT / ".tools" / "oidc"
    home.parent.mkdir(exist_ok=True)
    versions = (SOURCES / "package-lock.json").read_bytes()
    stamp = home / "dray-stamp"
    # Several workers run tests of logins, and only one of them may install the modules.
    with (home.parent / "oidc.lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.is_file() or stamp.read_bytes() != versions:
            shutil.rmtree(home, ignore_errors=True)
            home.mkdir()
            for name in ("package.json", "package-lock.json"):
                shutil.copy(SOURCES / name, home / name)
            words = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
            subprocess.run(words, cwd=home, check=True, timeout=INSTALL_SECONDS)
            stamp.write_bytes(versions)
    return home / "node_modules"


class Provider:
    """A running provider, with one client for each endpoint of a test.

    The host name is ``localhost``, and the endpoints are at 127.0.0.1. So the provider is another
    site for a browser.

    :param folder: existing folder that only this provider uses.
    :param redirects: the redirect URI of each client, by the id of the client. A client whose id
        ends with ``-public`` has no secret.
    :param claims_in_userinfo: send the groups only in the answer about the user.
    """

    def __init__(
        self,
        folder: Path,
        authority: Authority,
        redirects: Mapping[str, str],
        *,
        claims_in_userinfo: bool = False,
    ) -> None:
        """Start the provider. It runs until :meth:`stop`."""
        extensions = "basicConstraints = critical,CA:FALSE\nsubjectAltName = DNS:localhost\n"
        certificate = authority.issue("provider", extensions=extensions).file()
        settings = folder / "provider.json"
        clients = [_client(name, redirect) for name, redirect in redirects.items()]
        settings.write_text(
            json.dumps(
                {
                    "modules": str(modules()),
                    # One file contains the chain and the key.
                    "certificate": str(certificate),
                    "key": str(certificate),
                    "clients": clients,
                    "accounts": ACCOUNTS,
                    "claims_in_userinfo": claims_in_userinfo,
                }
            ),
            encoding="utf-8",
        )
        self.ca = authority.file
        self._log = (folder / "provider.log").open("wb")
        self._popen = subprocess.Popen(
            ["node", str(SOURCES / "server.mjs"), str(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, "NODE_ENV": "test"},
        )
        assert self._popen.stdout is not None
        line = self._popen.stdout.readline().decode().strip()
        if not line.startswith("https://"):
            self.stop()
            raise AssertionError((folder / "provider.log").read_text(encoding="utf-8"))
        #: URL of the provider (``iss``).
        self.url = line

    def login(self, client: str, **more: Json) -> Json:
        """Return the ``[[ui.login]]`` table of an endpoint that uses this provider."""
        return {
            "id": "iam",
            "name": "Test <IAM>",
            "issuer": self.url,
            "client": client,
            "scopes": ["openid", "profile", "groups"],
            "ca": str(self.ca),
            "grants": [
                {"group": "cms", "scope": "storage.read:/ storage.modify:/data/own"},
                {"group": "readers", "scope": "storage.read:/"},
            ],
            **more,
        }

    def stop(self) -> None:
        """End the provider. A second call changes nothing."""
        if self._popen.stdin is not None:
            self._popen.stdin.close()
        try:
            self._popen.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        if self._popen.stdout is not None:
            self._popen.stdout.close()
        self._log.close()


def _client(name: str, redirect: str) -> Json:
    is_public = name.endswith("-public")
    return {
        "client_id": name,
        "redirect_uris": [redirect],
        "response_types": ["code"],
        "grant_types": ["authorization_code"],
        "scope": "openid profile groups",
        **(
            {"token_endpoint_auth_method": "none"}
            if is_public
            else {"token_endpoint_auth_method": "client_secret_basic", "client_secret": SECRET}
        ),
    }


class _Form(HTMLParser):
    """Reads the address and the hidden fields of the first form of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.action: str | None = None
        self.fields: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if tag == "form" and self.action is None:
            self.action = found.get("action", "")
        elif tag == "input" and found.get("type") == "hidden":
            self.fields[found["name"]] = found.get("value", "")


def confirm(http: httpx.Client, address: str, user: str) -> str:
    """Log in at the provider like a browser without scripts.

    :param http: client that keeps the cookies of the user's browser.
    :param address: address to which the endpoint has sent the browser.
    :return: address to which the provider sends the browser back.
    """
    for _ in range(12):
        answer = http.get(address)
        if answer.is_redirect:
            address = urljoin(address, answer.headers["location"])
            if re.search(r"/ui/login/[a-z]+/done\?", address):
                return address
            continue
        form = _Form()
        form.feed(answer.text)
        assert form.action, f"{address}: {answer.status_code} {answer.text[:500]}"
        data = {**form.fields, "login": user, "password": "any"}
        answer = http.post(urljoin(address, form.action), data=data)
        assert answer.is_redirect, f"{answer.status_code} {answer.text[:500]}"
        address = urljoin(address, answer.headers["location"])
        if re.search(r"/ui/login/[a-z]+/done\?", address):
            return address
    raise AssertionError(f"the provider does not send the browser back: {address}")


if __name__ == "__main__":
    # Installs the modules before the tests run.
    sys.stdout.write(f"{modules()}\n")
