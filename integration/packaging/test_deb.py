"""The Debian packages: contents, dependencies, debug information, installation and removal."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from integration.harness.airflow import free_port
from integration.harness.host import is_root
from integration.harness.program import ROOT
from integration.packaging.floor import floor
from integration.packaging.roots import System, debian, kill_tree

if TYPE_CHECKING:
    from pathlib import Path

VERSION = (ROOT / "VERSION").read_text(encoding="utf-8").strip()
PROGRAMS = {"dray": "usr/bin/dray", "dray-xrootd": "usr/bin/dray-xrootd-tpc"}

pytestmark = [pytest.mark.slow, pytest.mark.server, pytest.mark.timeout(900)]


def output(*words: object) -> str:
    """Run a command and return its output."""
    command = [str(word) for word in words]
    ended = subprocess.run(
        command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert ended.returncode == 0, f"{command} ended with {ended.returncode}:\n{ended.stdout}"
    return ended.stdout


def find(debs: Path, name: str) -> Path:
    """Return the path of a package."""
    (path,) = debs.glob(f"{name}_{VERSION}-*.deb")
    return path


def field(package: Path, name: str) -> str:
    """Return a field of a package."""
    return output("dpkg-deb", "--field", package, name).strip()


@pytest.fixture(scope="module")
def unpacked(debs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with one folder for each unpacked package."""
    folder = tmp_path_factory.mktemp("unpacked")
    for package in debs.glob("*.deb"):
        output("dpkg-deb", "--extract", package, folder / package.name.partition("_")[0])
    return folder


@pytest.mark.full
def test_lintian_finds_no_fault(debs: Path) -> None:
    words = ["lintian", "--allow-root", "--fail-on", "error,warning"]
    assert [
        line
        for line in output(*words, *debs.glob("*.deb")).splitlines()
        if line.startswith(("E:", "W:"))
    ] == []


def test_each_package_contains_its_files(unpacked: Path) -> None:
    wanted = {
        "dray": {
            "lib/systemd/system/drayd.service",
            "usr/bin/dray",
            "usr/bin/drayd",
            "usr/lib/sysusers.d/dray.conf",
            "usr/lib/tmpfiles.d/dray.conf",
            "usr/share/bash-completion/completions/dray",
            "usr/share/doc/dray/copyright",
            "usr/share/doc/dray/examples/drayd.toml",
            "usr/share/dray/dray.cdx.json",
            "usr/share/dray/monitoring/alerts.yaml",
            "usr/share/dray/monitoring/dashboard.json",
            "usr/share/man/man1/dray-cp.1.gz",
            "usr/share/man/man8/drayd.8.gz",
        },
        "dray-xrootd": {
            "etc/xrootd/dray-tpc.toml",
            "usr/bin/dray-xrootd-tpc",
            "usr/lib/dray/libDrayXrdCtl-5.so",
            "usr/lib/dray/libDrayXrdHttpTPC-5.so",
            "usr/lib/dray/libDrayXrdOss-5.so",
            "usr/lib/dray/libDrayXrdPrepare-5.so",
            "usr/lib/dray/libdray-xrdcl.so",
            "usr/share/doc/dray-xrootd/copyright",
            "usr/share/dray/dray-xrootd.cdx.json",
            "usr/share/dray/xrootd-tpc.cfg",
        },
    }
    for package, files in wanted.items():
        missing = {file for file in files if not os.path.lexists(unpacked / package / file)}
        assert missing == set(), package


def test_the_unit_starts_the_installed_program(unpacked: Path) -> None:
    unit = (unpacked / "dray/lib/systemd/system/drayd.service").read_text(encoding="utf-8")
    (start,) = re.findall(r"^ExecStart=(\S+)", unit, re.MULTILINE)
    assert (unpacked / "dray" / start.lstrip("/")).exists()
    assert "/usr/local" not in unit


@pytest.mark.parametrize("package", PROGRAMS)
def test_dependency_on_glibc_is_the_floor_of_the_package(
    debs: Path, unpacked: Path, package: str
) -> None:
    (needed,) = re.findall(r"libc6 \(>= ([0-9.]+)\)", field(find(debs, package), "Depends"))
    assert needed == floor(unpacked / package)
    manual = (ROOT / "docs/reference/packages.md").read_text(encoding="utf-8")
    (row,) = [line for line in manual.splitlines() if line.startswith(f"| `{package}` (Debian")]
    assert row.endswith(f"| {needed} |")


def test_the_manual_names_the_oldest_libstdcxx(unpacked: Path) -> None:
    manual = (ROOT / "docs/reference/packages.md").read_text(encoding="utf-8")
    assert f"`GLIBCXX_{floor(unpacked / 'dray-xrootd', 'GLIBCXX')}`" in manual


@pytest.mark.parametrize("package", PROGRAMS)
def test_debug_information_is_in_its_own_package(unpacked: Path, package: str) -> None:
    program = unpacked / package / PROGRAMS[package]
    assert ".debug_info" not in output("readelf", "--section-headers", "--wide", program)
    (number,) = re.findall(r"Build ID: ([0-9a-f]+)", output("readelf", "--notes", program))
    split = unpacked / f"{package}-dbgsym/usr/lib/debug/.build-id" / number[:2]
    sections = output("readelf", "--section-headers", "--wide", split / f"{number[2:]}.debug")
    assert ".debug_info" in sections


@pytest.mark.parametrize("package", PROGRAMS)
def test_copyright_names_each_linked_crate(unpacked: Path, package: str) -> None:
    text = (unpacked / package / "usr/share/doc" / package / "copyright").read_text("utf-8")
    # One crate under each kind of licence: a free choice, only MIT, several at once.
    for crate, part in (
        ("serde 1.", "MIT OR Apache-2.0"),
        ("simd-adler32 0.", "Copyright (c) [2021] [Marvin Countryman]"),
        ("ring 0.", "Licenses for support code"),
    ):
        assert f"{crate}" in text
        assert part in text


def test_settings_of_copies_equal_the_manual() -> None:
    manual = (ROOT / "docs/how-to/xrootd-tpc.md").read_text(encoding="utf-8")
    documented = manual.partition("```toml\n")[2].partition("```")[0]
    shipped = (ROOT / "plugins/xrootd/config/dray-tpc.toml").read_text(encoding="utf-8")
    lines = [line for line in shipped.splitlines() if not line.startswith("# ")]
    assert [line.lstrip("#") for line in lines] == [
        line.removeprefix("# ") for line in documented.splitlines()
    ]


@pytest.fixture(scope="module")
def system(debs: Path, tmp_path_factory: pytest.TempPathFactory) -> System:
    """Return a clean system that contains the packages in /packages."""
    if not is_root() or shutil.which("debootstrap") is None:
        pytest.skip("a clean system needs root and debootstrap")
    system = debian("bookworm", tmp_path_factory.mktemp("system"))
    shutil.copytree(debs, system.path / "packages")
    return system


@pytest.mark.full
def test_an_installed_endpoint_copies_a_file_and_leaves_only_its_state(system: System) -> None:
    system.install("ca-certificates", "systemd")
    before = system.files()
    system.install(f"./packages/dray_{VERSION}-1_amd64.deb")
    port = str(free_port())
    system.run("install", "-d", "-o", "dray", "/srv/data")
    name = ("--name", "localhost", "--listen", f"127.0.0.1:{port}")
    places = ("--state", "/var/lib/dray", "--root", "data=/srv/data")
    printed = system.as_dray("dray", "endpoint", "init", "/etc/dray", *name, *places)
    (key,) = re.findall(r"sha256:[0-9a-f]+", printed)[:1]
    scope = ("--scope", "storage.modify:/ storage.read:/", "--lifetime", "10m")
    mint = ("dray", "token", "mint", "--dir", "/etc/dray", "--sub", "admin", *scope)
    token = system.path / "srv" / "token"
    token.write_text(system.as_dray(*mint), encoding="utf-8")
    token.chmod(0o600)

    unit = (system.path / "lib/systemd/system/drayd.service").read_text(encoding="utf-8")
    start = shlex.split(re.findall(r"^ExecStart=(.+)", unit, re.MULTILINE)[0])
    account = ("setpriv", "--reuid=dray", "--regid=dray", "--clear-groups", "--")
    endpoint = subprocess.Popen(
        system.words(*account, *start), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        access = ("--peer-key", key, "--token-file", "/srv/token")
        deadline = time.monotonic() + 20
        while True:
            try:
                system.run("dray", "endpoint", "status", f"localhost:{port}", *access)
                break
            except AssertionError:
                assert time.monotonic() < deadline
                time.sleep(0.2)
        sent = os.urandom(20_000_000)
        (system.path / "srv/sent").write_bytes(sent)
        system.run("dray", "cp", "/srv/sent", f"dray://localhost:{port}/data/got", *access)
        assert (system.path / "srv/data/got").read_bytes() == sent
    finally:
        kill_tree(endpoint)

    system.run("apt-get", "-q", "-y", "remove", "dray")
    assert not (system.path / "usr/bin/dray").exists()
    assert (system.path / "etc/dray/drayd.toml").exists()
    system.run("apt-get", "-q", "-y", "purge", "dray")
    left = {path for path in system.files() - before if not path.startswith("srv")}
    state = {path for path in left if path == "var/lib/dray" or path.startswith("var/lib/dray/")}
    assert "var/lib/dray/queue.db" in state
    # systemd-sysusers writes these files when it creates an account, and the account stays.
    assert left - state <= {"etc/.pwd.lock", "etc/passwd-", "etc/group-", "etc/shadow-"} | {
        "etc/gshadow-"
    }


@pytest.mark.full
def test_an_xrootd_server_copies_by_the_packaged_recipe(system: System) -> None:
    package = f"./packages/dray-xrootd_{VERSION}-1_amd64.deb"
    system.install(package, "xrootd-server", "xrootd-server-plugins", "xrootd-client")
    script = ROOT / "integration" / "packaging" / "third_party_copy.sh"
    shutil.copy(script, system.path / "srv")
    log = system.run("bash", "/srv/third_party_copy.sh", own_network=True)
    assert "sent=100000000 resumed=0" in log
    assert re.search(r"Plugin loaded DrayXrdOss v5\S+ from osslib /usr/lib/dray/", log)
    system.run("apt-get", "-q", "-y", "purge", "dray-xrootd")
    left = {path for path in system.files() if "dray" in path.lower()}
    assert {path for path in left if not path.startswith(("srv", "packages", "var/"))} == {
        # The test made this link.
        "etc/xrootd/config.d/90-dray.cfg"
    }
