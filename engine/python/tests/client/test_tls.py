"""Tests of the client's trust: pins and authorities. The token is sent only after the check."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import re
import socket
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dray
from dray.client import Client
from dray.client._der import fingerprint, public_key
from dray.testing.scripted import ScriptedEndpoint, json_reply

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SECRET = "a-token-that-nobody-guesses"  # noqa: S105 - it is not one
HEALTH = json_reply({"status": "ok"})
INFO = json_reply({"name": "a", "version": "0", "key": "sha256:00"})
#: The structure of a self-signed P-256 certificate, reduced to its required parts.
MINIMAL = bytes.fromhex("3011300f020101300030003000300030020500")


def der(path: Path) -> bytes:
    match = re.search(r"BEGIN CERTIFICATE-----(.*?)-----END", path.read_text(), re.DOTALL)
    assert match
    return base64.b64decode(match[1])


def test_the_fingerprint_equals_that_of_openssl(
    certificates: dict[str, Path], fingerprint_by_openssl: Callable[[Path], str]
) -> None:
    for path in certificates.values():
        assert fingerprint(der(path)) == fingerprint_by_openssl(path)


def test_the_key_of_a_minimal_certificate_is_found() -> None:
    assert public_key(MINIMAL) == bytes.fromhex("30020500")
    with_version = bytes.fromhex("30163014a003020102") + MINIMAL[4:]
    assert public_key(with_version) == bytes.fromhex("30020500")
    assert fingerprint(MINIMAL) == f"sha256:{hashlib.sha256(public_key(MINIMAL)).hexdigest()}"


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"0",
        MINIMAL[:-1],
        MINIMAL + b"x",
        b"0\x80" + MINIMAL[2:],
        b"0\x81\x11" + MINIMAL[2:],
        b"0\x82\x00\x84" + b"x" * 0x84,
        b"0\x85\x00\x00\x00\x00\x11" + MINIMAL[2:],
        b"0\x84\xff\xff\xff\xff" + MINIMAL[2:],
        b"1" + MINIMAL[1:],
        MINIMAL.replace(b"\x30\x02\x05\x00", b"\x31\x02\x05\x00"),
        MINIMAL.replace(b"\x30\x02\x05\x00", b"\x30\x03\x05\x00"),
    ],
)
def test_malformed_certificates_have_no_key(wrong: bytes) -> None:
    with pytest.raises(ValueError, match="certificate"):
        public_key(wrong)


@given(garbage=st.binary(max_size=200))
def test_garbage_yields_no_key_from_outside_its_bytes(garbage: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert public_key(garbage) in garbage


@given(data=st.data())
def test_a_damaged_certificate_never_reads_beyond_itself(
    data: st.DataObject, certificates: dict[str, Path]
) -> None:
    whole = bytearray(der(certificates["ec"]))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ValueError):
        assert public_key(bytes(whole)) in bytes(whole)


@pytest.mark.parametrize("kind", ["ec", "rsa", "ed25519"])
def test_a_pinned_endpoint_is_trusted_under_any_name(
    certificates: dict[str, Path], make_face: Callable[..., Any], kind: str
) -> None:
    certificate = certificates[kind]
    with ScriptedEndpoint(certificate=certificate) as endpoint:
        endpoint.always("GET", "/v1/endpoint", INFO)
        pin = fingerprint(der(certificate))
        assert make_face(endpoint.url, pin=pin, token=SECRET)("endpoint").name == "a"
        # The case of the digits does not matter, because users may copy a fingerprint in upper
        # case.
        upper = "sha256:" + pin.removeprefix("sha256:").upper()
        assert make_face(endpoint.url, pin=upper, token=SECRET)("endpoint").name == "a"


def test_another_key_gets_no_request_and_no_token(
    certificates: dict[str, Path], make_face: Callable[..., Any]
) -> None:
    with ScriptedEndpoint(certificate=certificates["ec"]) as endpoint:
        endpoint.always("GET", "/v1/endpoint", INFO)
        wrong = fingerprint(der(certificates["rsa"]))
        with pytest.raises(dray.DrayPermanentError) as caught:
            make_face(endpoint.url, pin=wrong, token=SECRET)("endpoint")
        assert caught.value.kind == "unauthorized"
        assert wrong in caught.value.cause
        assert fingerprint(der(certificates["ec"])) in caught.value.cause
        assert endpoint.asked == []


def test_an_impostor_after_the_first_call_gets_no_token(
    certificates: dict[str, Path], make_face: Callable[..., Any]
) -> None:
    """The first connection shows the right certificate, and the second one leads to an attacker."""
    with ScriptedEndpoint(certificate=certificates["ec"]) as endpoint:
        endpoint.always("GET", "/v1/endpoint", INFO)
        face = make_face(endpoint.url, pin=fingerprint(der(certificates["ec"])), token=SECRET)
        face("endpoint")
        endpoint.use_certificate(certificates["ed25519"])
        endpoint.cut()
        with pytest.raises(dray.DrayPermanentError) as caught:
            face("endpoint")
        assert caught.value.kind == "unauthorized"
        assert len(endpoint.asked) == 1


def test_a_new_certificate_of_the_same_key_needs_no_new_pin(
    tmp_path: Path,
    certificates: dict[str, Path],
    new_certificate: Callable[..., Path],
    make_face: Callable[..., Any],
) -> None:
    renewed = new_certificate(tmp_path, "renewed", key=certificates["ec"].with_suffix(".key"))
    assert der(renewed) != der(certificates["ec"])
    with ScriptedEndpoint(certificate=certificates["ec"]) as endpoint:
        endpoint.always("GET", "/v1/endpoint", INFO)
        face = make_face(endpoint.url, pin=fingerprint(der(certificates["ec"])), token=SECRET)
        face("endpoint")
        endpoint.use_certificate(renewed)
        endpoint.cut()
        assert face("endpoint").name == "a"


CA_CONFIG = """
[ca]
default_ca = it
[it]
new_certs_dir = {folder}
database = {folder}/index
rand_serial = yes
default_md = sha256
policy = any
[any]
commonName = supplied
"""


def test_a_pinned_certificate_may_be_old(
    tmp_path: Path, certificates: dict[str, Path], make_face: Callable[..., Any]
) -> None:
    (tmp_path / "config").write_text(CA_CONFIG.format(folder=tmp_path))
    (tmp_path / "index").touch()
    key = certificates["ec"].with_suffix(".key")
    asked, old = tmp_path / "request", tmp_path / "old"
    request: list[str | Path] = [
        "openssl",
        "req",
        "-new",
        "-key",
        key,
        "-subj",
        "/CN=old",
        "-out",
        asked,
    ]
    sign: list[str | Path] = [
        "openssl",
        "ca",
        "-selfsign",
        "-batch",
        "-config",
        tmp_path / "config",
        "-notext",
    ]
    dates = ["-startdate", "20200101000000Z", "-enddate", "20200102000000Z"]
    subprocess.run(request, check=True, capture_output=True)
    words: list[str | Path] = [*sign, *dates, "-keyfile", key, "-in", asked, "-out", old]
    subprocess.run(words, check=True, capture_output=True)
    made = tmp_path / "both.pem"
    made.write_bytes(key.read_bytes() + old.read_bytes())
    with ScriptedEndpoint(certificate=made) as endpoint:
        endpoint.always("GET", "/v1/endpoint", INFO)
        face = make_face(endpoint.url, pin=fingerprint(der(made)), token=SECRET)
        assert face("endpoint").name == "a"
        with pytest.raises(dray.DrayPermanentError):
            make_face(endpoint.url, ca=old, token=SECRET)("endpoint")


def test_an_untrusted_certificate_gets_no_token(
    certificates: dict[str, Path], make_face: Callable[..., Any]
) -> None:
    with ScriptedEndpoint(certificate=certificates["ec"]) as endpoint:
        with pytest.raises(dray.DrayPermanentError) as caught:
            make_face(endpoint.url, token=SECRET)("endpoint")
        assert caught.value.kind == "unauthorized"
        assert "pin=" in caught.value.remedy
        assert endpoint.asked == []


def test_an_authority_is_trusted_only_for_the_certified_name(
    tmp_path: Path, make_face: Callable[..., Any]
) -> None:
    made = tmp_path / "named.pem"
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=x", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(
        [*request, *names, "-keyout", tmp_path / "key", "-out", tmp_path / "ca.pem"],
        check=True,
        capture_output=True,
    )
    made.write_bytes((tmp_path / "key").read_bytes() + (tmp_path / "ca.pem").read_bytes())
    with ScriptedEndpoint(certificate=made) as endpoint:
        endpoint.always("GET", "/v1/endpoint", INFO)
        ca = tmp_path / "ca.pem"
        assert make_face(endpoint.url, ca=ca, token=SECRET)("endpoint").name == "a"
        other = endpoint.url.replace("127.0.0.1", "localhost")
        with pytest.raises(dray.DrayPermanentError):
            make_face(other, ca=ca, token=SECRET)("endpoint")
        assert len(endpoint.asked) == 1


def test_a_listener_without_a_handshake_times_out(make_face: Callable[..., Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"dray://127.0.0.1:{silent.getsockname()[1]}"
        policy = dray.client.Policy(seconds=0.5, tries=1)
        with pytest.raises(dray.DrayTemporaryError):
            make_face(url, pin="sha256:" + "0" * 64, policy=policy)("endpoint")


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("ftp://host", {}),
        ("dray://", {}),
        ("dray://user:password@host", {}),
        ("dray://host:port", {}),
        ("dray://host/data", {}),
        ("dray://host?x", {}),
        ("http://host.example.org", {}),
        ("http://10.0.0.1", {}),
        ("dray://host", {"pin": "sha256:12"}),
        ("dray://host", {"pin": "0" * 64}),
        ("dray://host", {"pin": "sha256:" + "0" * 64, "ca": "ca.pem"}),
        ("dray://host", {"key": "key.pem"}),
    ],
)
def test_invalid_arguments_are_usage_errors(url: str, options: dict[str, str]) -> None:
    with pytest.raises(dray.DrayUsageError) as caught:
        Client(url, **options)  # type: ignore[arg-type]
    assert "password" not in str(caught.value) or "contains a user" in str(caught.value)


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("dray://host", "https://host:4735"),
        ("dray://host:1/", "https://host:1"),
        ("dray://[2001:db8::1]", "https://[2001:db8::1]:4735"),
        ("https://host", "https://host:443"),
        ("http://localhost:8080", "http://localhost:8080"),
        ("http://[::1]:8080", "http://[::1]:8080"),
    ],
)
def test_urls_are_parsed(url: str, base: str) -> None:
    assert Client(url).url == base


def test_an_invalid_key_file_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "broken.pem").write_text("nothing")
    for options in ({"certificate": tmp_path / "broken.pem"}, {"ca": tmp_path / "broken.pem"}):
        with Client("dray://127.0.0.1:9", token=None, **options) as client:  # type: ignore[arg-type]
            with pytest.raises(dray.DrayUsageError) as caught:
                client.health()
            assert "broken.pem" in str(caught.value)
