"""A stock ACME client renews the certificate of a running endpoint, as the manual describes."""

from __future__ import annotations

import re
import shlex
import socket
import ssl
import time
from typing import TYPE_CHECKING

import pytest

from integration.endpoint.acme import NAME, Pebble
from integration.endpoint.raw import dray
from integration.harness.program import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dray.testing.endpoints import Endpoint

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

PAGE = ROOT / "docs" / "how-to" / "secure-endpoint.md"
#: Maximum seconds until an endpoint uses changed files, with a margin for a busy host.
RENEWED_SECONDS = 30.0
#: Without a terminal, certbot waits for up to eight minutes, to spread the load of an authority.
NOW = ("--no-random-sleep-on-renew",)


@pytest.fixture
def pebble(tmp_path: Path) -> Iterator[Pebble]:
    folder = tmp_path / "acme"
    folder.mkdir()
    server = Pebble(folder)
    try:
        yield server
    finally:
        server.stop()


def hook(folder: Path) -> Path:
    """Write the script of the manual, with another folder and without another owner."""
    page = PAGE.read_text(encoding="utf-8")
    (script,) = re.findall(r"```sh\n(#!/bin/sh\n.*?/etc/dray/tls.*?)```", page, re.DOTALL)
    script, count = re.subn(r"/etc/dray/tls", shlex.quote(str(folder)), script)
    assert count == 1, script
    script, count = re.subn(r" -o dray -g dray", "", script)
    assert count > 0, script
    path = folder / "hook"
    path.write_text(script, encoding="utf-8")
    path.chmod(0o755)
    return path


def served(endpoint: Endpoint, root: Path) -> str:
    """Return the endpoint's certificate, in PEM. The handshake checks its chain and its name."""
    host, _, port = endpoint.address.rpartition(":")
    trusted = ssl.create_default_context(cafile=str(root))
    with (
        socket.create_connection((host, int(port)), timeout=10) as plain,
        trusted.wrap_socket(plain, server_hostname=NAME) as connection,
    ):
        certificate = connection.getpeercert(binary_form=True)
    assert certificate is not None
    return ssl.DER_cert_to_PEM_cert(certificate)


def test_certbot_renews_the_certificate_of_a_running_endpoint(
    start_endpoint: Callable[..., Endpoint], tmp_path: Path, pebble: Pebble
) -> None:
    folder = tmp_path / "tls"
    folder.mkdir()
    words = "certonly", "--standalone", "--domain", NAME, "--reuse-key", "--agree-tos"
    more = "--register-unsafely-without-email", "--deploy-hook", hook(folder)
    ended = pebble.certbot(*words, *more)
    assert ended.returncode == 0, ended
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    assert key.stat().st_mode & 0o777 == 0o600
    tls = {"certificate": str(certificate), "key": str(key)}
    endpoint = start_endpoint("b", config={"tls": tls})
    first = served(endpoint, pebble.root)
    assert certificate.read_text(encoding="utf-8").startswith(first)
    ended = pebble.certbot("renew", "--force-renewal", *NOW)
    assert ended.returncode == 0, ended
    second = certificate.read_text(encoding="utf-8").partition("-----END")[0]
    assert not first.startswith(second), "certbot has not renewed the certificate"
    until = time.monotonic() + RENEWED_SECONDS
    while not served(endpoint, pebble.root).startswith(second):
        assert time.monotonic() < until, endpoint.log_text()
        time.sleep(0.1)
    assert "was renewed; it expires in" in endpoint.log_text()
    # The key is the same, so a caller that pins the key still connects.
    ended = dray(
        "ls",
        f"dray://{endpoint.address}/data",
        "--peer-key",
        endpoint.key,
        DRAY_TOKEN=endpoint.token(),
    )
    assert ended.returncode == 0, ended


def test_a_failed_renewal_leaves_the_certificate_in_use(
    start_endpoint: Callable[..., Endpoint], tmp_path: Path, pebble: Pebble
) -> None:
    folder = tmp_path / "tls"
    folder.mkdir()
    words = "certonly", "--standalone", "--domain", NAME, "--agree-tos"
    more = "--register-unsafely-without-email", "--deploy-hook", hook(folder)
    ended = pebble.certbot(*words, *more)
    assert ended.returncode == 0, ended
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    tls = {"certificate": str(certificate), "key": str(key)}
    endpoint = start_endpoint("b", config={"tls": tls})
    first = served(endpoint, pebble.root)
    # Another program occupies the port of the validation, so certbot cannot answer the authority.
    with socket.create_server(("127.0.0.1", pebble.http_port)):
        ended = pebble.certbot("renew", "--force-renewal", *NOW)
    assert ended.returncode != 0, ended
    assert certificate.read_text(encoding="utf-8").startswith(first)
    assert served(endpoint, pebble.root) == first
    assert "was renewed" not in endpoint.log_text()
