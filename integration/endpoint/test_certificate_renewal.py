"""Renewal of the certificate of a running endpoint."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from integration.endpoint.authority import Authority, Certificate
from integration.endpoint.raw import ask, dray, shipped_program

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dray.testing.endpoints import Endpoint

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

MIB = 1 << 20
#: Maximum seconds until an endpoint uses changed files, with a margin for a busy host.
RENEWED_SECONDS = 30.0
SERVER = """\
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature
extendedKeyUsage = serverAuth,clientAuth
subjectAltName = DNS:localhost
"""


class Pair:
    """The files of the certificate and the key of an endpoint."""

    def __init__(self, folder: Path) -> None:
        """Choose the names. :meth:`write` makes the files."""
        self.certificate = folder / "hostcert.pem"
        self.key = folder / "hostkey.pem"

    def write(self, certificate: Certificate, key: Certificate | None = None) -> None:
        """Replace both files, each by a rename. The key is that of ``key``."""
        key = key or certificate
        for path, text in (
            (self.key, key.key.read_text(encoding="utf-8")),
            (self.certificate, certificate.chain),
        ):
            new = path.with_suffix(".new")
            new.touch(mode=0o600)
            new.write_text(text, encoding="utf-8")
            new.replace(path)


def issue(
    authority: Authority, name: str, *, key_of: Certificate | None = None, end_days: float = 30
) -> Certificate:
    """Issue a certificate for localhost, with a new key or with the key of another one."""
    made = authority.issue(name, extensions=SERVER, start_days=-9, end_days=end_days)
    if key_of is None:
        return made
    return authority.reissue(made, key_of, extensions=SERVER, end_days=end_days)


def served(endpoint: Endpoint) -> str:
    """Return the certificate, in the format PEM, that the endpoint shows to a new connection."""
    host, _, port = endpoint.address.rpartition(":")
    return ssl.get_server_certificate((host, int(port))).strip()


def await_certificate(endpoint: Endpoint, certificate: Certificate) -> None:
    """Wait until the endpoint shows this certificate."""
    wanted = certificate.own.read_text(encoding="utf-8").strip()
    until = time.monotonic() + RENEWED_SECONDS
    while served(endpoint) != wanted:
        assert time.monotonic() < until, endpoint.log_text()
        time.sleep(0.1)


def await_log(endpoint: Endpoint, words: str, count: int = 1) -> str:
    """Wait for a number of lines with these words. Return the newest line."""
    until = time.monotonic() + RENEWED_SECONDS
    while True:
        lines = [line for line in endpoint.log_text().splitlines() if words in line]
        if len(lines) >= count:
            return lines[-1]
        assert time.monotonic() < until, endpoint.log_text()
        time.sleep(0.1)


def metric(endpoint: Endpoint, name: str) -> int:
    """Return the value of a metric."""
    text = ask(endpoint, "GET", "/metrics", token=endpoint.token(subject="root")).text
    (line,) = (line for line in text.splitlines() if line.startswith(f"{name} "))
    return int(line.rpartition(" ")[2])


def fetch(endpoint: Endpoint, to: Path, *options: str | Path) -> subprocess.CompletedProcess[str]:
    """Copy a file from the endpoint over a new session."""
    far = f"dray://localhost:{endpoint.address.rpartition(':')[2]}/data/x"
    return dray("cp", "--json", far, to, *options, DRAY_TOKEN=endpoint.token())


def test_a_renewed_certificate_is_used_while_a_transfer_runs_through(
    start_endpoint: Callable[..., Endpoint], tmp_path: Path
) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    old, new = Authority(tmp_path / "old", "old"), Authority(tmp_path / "new", "new")
    first = issue(old, "first")
    pair = Pair(tmp_path)
    pair.write(first)
    tls = {"certificate": str(pair.certificate), "key": str(pair.key)}
    endpoint = start_endpoint("b", config={"tls": tls})
    assert metric(endpoint, "dray_certificate_expiry_seconds") in range(28 * 86400, 30 * 86400 + 1)
    data = os.urandom(MIB) * 16
    endpoint.root("big").write_bytes(data)
    endpoint.root("x").write_bytes(b"x" * 1000)
    environment = {**os.environ, "DRAY_TOKEN": endpoint.token()}
    far = f"dray://localhost:{endpoint.address.rpartition(':')[2]}/data/big"
    words: list[str | Path] = ["cp", "--json", far, tmp_path / "big", "--ca", old.file]
    # Without retries, the transfer fails if the renewal interrupts its session.
    words += ["--rate", "2MiB", "--retries", "0"]
    running = subprocess.Popen(
        [shipped_program(), *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
    )
    try:
        until = time.monotonic() + RENEWED_SECONDS
        while metric(endpoint, "dray_sessions") == 0:
            assert time.monotonic() < until
        # Another authority signs the same key.
        second = issue(new, "second", key_of=first)
        pair.write(second)
        await_certificate(endpoint, second)
        assert running.poll() is None, "the transfer ended too early for this test"
        # New sessions get the new certificate. The key, which callers may pin, is the same.
        assert fetch(endpoint, tmp_path / "a", "--ca", new.file).returncode == 0
        assert fetch(endpoint, tmp_path / "b", "--ca", old.file).returncode == 3
        assert fetch(endpoint, tmp_path / "c", "--peer-key", endpoint.key).returncode == 0
        output, _ = running.communicate(timeout=60)
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 0, output
    assert json.loads(output.splitlines()[-1])["state"] == "done", output
    assert (tmp_path / "big").read_bytes() == data
    assert "was renewed; it expires in 29 days" in await_log(endpoint, "was renewed")
    assert metric(endpoint, "dray_certificate_rejected") == 0


def test_a_wrong_pair_is_reported_and_the_old_certificate_stays(
    start_endpoint: Callable[..., Endpoint], tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    first = issue(authority, "first")
    pair = Pair(tmp_path)
    pair.write(first)
    tls = {"certificate": str(pair.certificate), "key": str(pair.key)}
    endpoint = start_endpoint("b", config={"tls": tls})
    endpoint.root("x").write_bytes(b"x" * 1000)
    good = first.own.read_text(encoding="utf-8").strip()
    second = issue(authority, "second")
    expired = issue(authority, "expired", end_days=-1)
    told = 0
    for write, reason in (
        (lambda: pair.write(second, key=first), "does not belong to the certificate"),
        (lambda: pair.write(expired), "expired 24 hours ago"),
        (lambda: pair.certificate.write_bytes(b"<html>503</html>"), "certificate chain"),
    ):
        write()
        told += 1
        line = await_log(endpoint, "cannot use the new certificate", told)
        assert reason in line, line
        assert str(pair.certificate) in line, line
        assert "continues with the certificate that it loaded before" in line, line
        assert metric(endpoint, "dray_certificate_rejected") == 1
        assert served(endpoint) == good
        assert fetch(endpoint, tmp_path / f"got{told}", "--ca", authority.file).returncode == 0
    # A correct pair with a new key is used, and the new key is reported.
    pair.write(second)
    await_certificate(endpoint, second)
    line = await_log(endpoint, "was renewed with a new key")
    about = ask(endpoint, "GET", "/v1/endpoint", token=endpoint.token()).json
    assert about["key"] in line, line
    assert about["key"] != endpoint.key
    assert fetch(endpoint, tmp_path / "d", "--peer-key", endpoint.key).returncode == 3
    assert fetch(endpoint, tmp_path / "e", "--peer-key", about["key"]).returncode == 0
    assert metric(endpoint, "dray_certificate_rejected") == 0
    assert endpoint.log_text().count("cannot use the new certificate") == told


def test_a_certificate_that_expires_soon_is_reported_at_the_start(
    start_endpoint: Callable[..., Endpoint], tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    pair = Pair(tmp_path)
    tls = {"certificate": str(pair.certificate), "key": str(pair.key)}
    for name, days, words in (("soon", 2, "expires in"), ("late", -1, "expired 24 hours ago")):
        pair.write(issue(authority, name, end_days=days))
        endpoint = start_endpoint(name, config={"tls": tls})
        line = await_log(endpoint, words)
        assert str(pair.certificate) in line, line
        left = metric(endpoint, "dray_certificate_expiry_seconds")
        assert (left < 0) == (days < 0), left
