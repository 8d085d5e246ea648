"""The RPM packages: fields, dependencies, debug information, and a start of the unpacked files."""

from __future__ import annotations

import os
import re
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from integration.harness.airflow import free_port
from integration.harness.program import ROOT
from integration.packaging.floor import floor

if TYPE_CHECKING:
    from pathlib import Path

VERSION = (ROOT / "VERSION").read_text(encoding="utf-8").strip()
PACKAGES = ("dray", "dray-xrootd")

pytestmark = [pytest.mark.slow, pytest.mark.server, pytest.mark.timeout(600)]


def output(*words: object, **environment: str) -> str:
    """Run a command and return its output."""
    command = [str(word) for word in words]
    ended = subprocess.run(
        command,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **environment},
    )
    assert ended.returncode == 0, f"{command} ended with {ended.returncode}:\n{ended.stdout}"
    return ended.stdout


def find(rpms: Path, name: str) -> Path:
    """Return the path of a package."""
    (path,) = rpms.glob(f"{name}-{VERSION}-*.rpm")
    return path


def query(package: Path, *options: str) -> list[str]:
    """Return the lines of a query about a package file."""
    return output("rpm", "--query", "--package", *options, package).splitlines()


@pytest.fixture(scope="module")
def unpacked(rpms: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with one folder for each unpacked package."""
    top = tmp_path_factory.mktemp("unpacked")
    for name in PACKAGES:
        folder = top / name
        folder.mkdir()
        packed = subprocess.run(
            ["rpm2cpio", str(find(rpms, name))], check=True, capture_output=True
        ).stdout
        words = ["cpio", "--extract", "--make-directories", "--quiet", "--no-absolute-filenames"]
        subprocess.run(words, cwd=folder, input=packed, check=True)
    return top


def test_fields_and_files(rpms: Path) -> None:
    dray = find(rpms, "dray")
    assert query(dray, "--queryformat", "%{VERSION} %{ARCH}") == [f"{VERSION} x86_64"]
    files = set(query(dray, "--list"))
    assert {
        "/usr/bin/drayd",
        "/usr/lib/systemd/system/drayd.service",
        "/usr/lib/sysusers.d/dray.conf",
        "/usr/share/dray/dray.cdx.json",
        "/usr/share/dray/monitoring/alerts.yaml",
        "/usr/share/licenses/dray/LICENSE",
        "/usr/share/licenses/dray/copyright",
        "/usr/share/man/man1/dray-cp.1.gz",
    } <= files
    xrootd = find(rpms, "dray-xrootd")
    assert query(xrootd, "--configfiles") == ["/etc/xrootd/dray-tpc.toml"]
    assert not [name for name in query(xrootd, "--provides") if ".so" in name]
    # Both packages can be installed together.
    assert files & set(query(xrootd, "--list")) == {"/usr/lib/.build-id", "/usr/share/dray"}


@pytest.mark.parametrize("name", PACKAGES)
def test_newest_required_glibc_is_the_floor(rpms: Path, unpacked: Path, name: str) -> None:
    requires = "\n".join(query(find(rpms, name), "--requires"))
    versions = re.findall(r"\(GLIBC_([0-9.]+)\)", requires)
    newest = max(versions, key=lambda version: [int(part) for part in version.split(".")])
    assert newest == floor(unpacked / name)


@pytest.mark.parametrize("name", PACKAGES)
def test_debug_information_is_in_its_own_package(rpms: Path, unpacked: Path, name: str) -> None:
    program = unpacked / name / "usr/bin" / {"dray-xrootd": "dray-xrootd-tpc"}.get(name, name)
    assert ".debug_info" not in output("readelf", "--section-headers", "--wide", program)
    (number,) = re.findall(r"Build ID: ([0-9a-f]+)", output("readelf", "--notes", program))
    debug = f"/usr/lib/debug/.build-id/{number[:2]}/{number[2:]}.debug"
    assert debug in query(find(rpms, f"{name}-debuginfo"), "--list")


def test_the_unpacked_endpoint_starts_and_serves_a_copy(unpacked: Path, tmp_path: Path) -> None:
    programs = unpacked / "dray" / "usr" / "bin"
    port = free_port()
    served, state, home = tmp_path / "served", tmp_path / "state", tmp_path / "etc"
    served.mkdir()
    name = ("--name", "localhost", "--listen", f"127.0.0.1:{port}")
    places = ("--state", state, "--root", f"data={served}")
    printed = output(programs / "dray", "endpoint", "init", home, *name, *places)
    key = re.findall(r"sha256:[0-9a-f]+", printed)[0]
    scope = ("--scope", "storage.modify:/ storage.read:/", "--lifetime", "10m")
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text(
        output(programs / "dray", "token", "mint", "--dir", home, "--sub", "a", *scope)
    )
    endpoint = subprocess.Popen(
        [programs / "drayd", "--config", home / "drayd.toml"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        sent = tmp_path / "sent"
        sent.write_bytes(os.urandom(5_000_000))
        access = ("--peer-key", key, "--token-file", token)
        copy = [programs / "dray", "cp", sent, f"dray://localhost:{port}/data/got", *access]
        deadline = time.monotonic() + 20
        while subprocess.run(copy, check=False, capture_output=True).returncode != 0:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert (served / "got").read_bytes() == sent.read_bytes()
    finally:
        endpoint.terminate()
        endpoint.wait(timeout=60)
