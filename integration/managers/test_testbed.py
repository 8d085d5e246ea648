"""The files of the test bed in containers fit together, and contain no secrets.

These tests start no containers. ``make testbed`` does.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pytest
import yaml  # type: ignore[import-untyped]

from integration.harness.airflow import Airflow
from integration.harness.program import ROOT
from integration.rucio.server import ENVIRONMENT

if TYPE_CHECKING:
    from pathlib import Path

DOCKER = ROOT / "docker"
ENTRY = (DOCKER / "testbed-entry.sh").read_text(encoding="utf-8")
SCRIPT = (ROOT / "tools" / "testbed.sh").read_text(encoding="utf-8")
BED: dict[str, Any] = yaml.safe_load((DOCKER / "testbed.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = BED["services"]
ONCE = sorted(name for name, each in SERVICES.items() if each.get("restart") == "no")
STAYING = sorted(SERVICES.keys() - set(ONCE))
FILES = (
    DOCKER / "testbed.yaml",
    DOCKER / "testbed.Dockerfile",
    DOCKER / "testbed-programs.Dockerfile",
    DOCKER / "testbed-entry.sh",
)


def test_the_bed_has_all_parts() -> None:
    parts = {"ceph", "xrootd-archive", "postgresql", "redis", "rucio", "fts", "airflow-worker"}
    parts |= {"rucio-submitter", "proxy-north"}
    parts |= {f"{kind}-{site}" for kind in ("endpoint", "xrootd") for site in ("north", "south")}
    assert parts <= set(STAYING)
    assert ONCE == ["airflow-init", "init", "rucio-init", "rucio-rses"]


@pytest.mark.parametrize("name", STAYING)
def test_each_service_that_stays_has_a_health_check(name: str) -> None:
    check = SERVICES[name]["healthcheck"]
    assert check["test"][0] in ("CMD", "CMD-SHELL")
    assert len(check["test"]) > 1
    assert check["retries"] > 0


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_each_service_is_started_once_and_known(name: str) -> None:
    command = SERVICES[name]["command"][0]
    assert re.search(rf"^{command}\)", ENTRY, re.MULTILINE), f"{command} is not in the entry script"
    starts = [line.strip(" \\").split() for line in SCRIPT.replace("\\\n", " ").splitlines()]
    word = "once" if name in ONCE else "start"
    assert sum(line[0] == word and name in line[1:] for line in starts if line) == 1


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_service_waits_only_for_services_that_it_can_wait_for(name: str) -> None:
    for other, how in SERVICES[name]["depends_on"].items():
        wanted = "service_completed_successfully" if other in ONCE else "service_healthy"
        assert how["condition"] == wanted, f"{name} waits for {other}"


def test_each_service_mounts_only_the_facts_that_it_needs() -> None:
    sites = {f"{kind}-{site}" for kind in ("endpoint", "xrootd") for site in ("north", "south")}
    sites.add("xrootd-archive")
    control = {f"airflow-{each}" for each in ("init", "api", "scheduler", "dag-processor")}
    daemons = {f"rucio-{each}" for each in ("submitter", "finisher", "repairer")}
    wanted = {name: {name} for name in (*sites, "postgresql", "redis", "fts", "airflow-api")}
    wanted |= {
        "airflow": control | {"airflow-triggerer"},
        "airflow-queue": {"airflow-scheduler", "airflow-worker"},
        "airflow-rucio": {"airflow-triggerer", "airflow-worker"},
        "ceph-client": {"ceph", "endpoint-south", "xrootd-archive"},
        "rucio": {"rucio", "rucio-init"} | daemons,
        "rucio-client": {"rucio-rses", "story"},
        "rucio-dray": {"rucio-submitter", "rucio-poller-dray"},
        "rucio-fts3": {"rucio-submitter", "rucio-poller-fts3"},
        "story": {"story"},
    }
    found: dict[str, set[str]] = {}
    for name in SERVICES.keys() - {"init"}:
        for folder in _mounts(name):
            found.setdefault(folder, set()).add(name)
    assert found == wanted
    # The service `ceph` makes the key of its clients.
    assert set(_mounts("init")) == wanted.keys() - {"ceph-client"}


def test_only_init_and_services_with_own_state_may_write_facts() -> None:
    writers = {name: [at for at, mode in _mounts(name).items() if not mode] for name in SERVICES}
    del writers["init"]
    written = {name: folders for name, folders in writers.items() if folders}
    owners = ("airflow-api", "endpoint-north", "endpoint-south")
    assert written == {"ceph": ["ceph-client"], **{name: [name] for name in owners}}
    assert all("environment" not in each for each in SERVICES.values())


def test_the_image_has_each_folder_of_facts() -> None:
    text = FILES[1].read_text(encoding="utf-8").replace("\\\n", " ")
    (made,) = re.findall(r"cd /facts +&& install -d -m 700 -o dray -g dray ([^\n]*)", text)
    assert set(made.split()) == {folder for name in SERVICES for folder in _mounts(name)}


def _mounts(service: str) -> dict[str, str]:
    """Return the folders of /facts that a service mounts, and their modes (``:ro`` or nothing)."""
    found = {}
    for each in SERVICES[service].get("volumes", ()):
        volume, _, rest = each.partition(":")
        path, colon, mode = rest.partition(":")
        if path.startswith("/facts"):
            assert path == f"/facts/{volume}"
            found[volume] = colon + mode
    return found


def test_all_services_know_the_fixed_addresses() -> None:
    known = dict(line.split(":", 1) for line in BED["x-hosts"])
    assert len(set(known.values())) == len(known)
    assert {"postgresql", "airflow-api", "airflow-worker", "xrootd-south"} <= known.keys()
    for name, each in SERVICES.items():
        assert each["extra_hosts"] == BED["x-hosts"]
        fixed = {"ipv4_address": known[name]} if name in known else None
        assert each["networks"] == ({"bed": fixed} if fixed else ["bed"]), name
    # The XRootD servers find names in /etc/hosts only for IPv4 addresses.
    assert re.search(r"^xrootd\) exec xrootd -I v4 ", ENTRY, re.MULTILINE)


def test_images_and_packages_are_pinned() -> None:
    for path in FILES[1:3]:
        text = path.read_text(encoding="utf-8")
        (base,) = re.findall(r"^ARG BASE=(.*)", text, re.MULTILINE)
        assert re.fullmatch(r"docker\.io/library/debian:bookworm-\d{8}-slim", base)
        for image in re.findall(r"^FROM (\S+)", text, re.MULTILINE):
            assert image in ("${BASE}", "${PROGRAMS}", "scratch")
    lines = FILES[1].read_text(encoding="utf-8").replace("\\\n", " ")
    for words in re.findall(r"pip install ([^&\n]*)", lines):
        named = [each for each in words.split() if not each.startswith("-")]
        assert named
        assert all("==" in each or each.startswith("tools/requirements-") for each in named), words


def test_the_files_contain_no_secrets() -> None:
    secret = re.compile(r"(password|passwd|secret|token|_key)\w*\s*[=:]\s*['\"]?\w{6,}", re.I)
    for path in FILES:
        for line in path.read_text(encoding="utf-8").splitlines():
            assert not secret.search(line.partition("#")[0]), f"{path.name}: {line}"


@pytest.mark.server
@pytest.mark.skipif(not ENVIRONMENT.exists(), reason="tools/bootstrap.sh test installs Rucio")
def test_init_generates_new_secrets_that_only_their_owner_can_read(
    tmp_path: Path, program: Path
) -> None:
    assert program.exists()
    made = [_init(tmp_path / name) for name in ("one", "other")]
    facts, others = (folder / "facts" for folder in made)
    assert {path.name for path in facts.iterdir()} == set(_mounts("init"))
    for name in ("airflow/env", "airflow-queue/env", "postgresql/password", "redis/password"):
        assert (facts / name).read_bytes() != (others / name).read_bytes()
    files = [path for path in facts.rglob("*") if path.is_file()]
    # The endpoint chooses the modes of its own files.
    for path in files:
        if path.relative_to(facts).parts[0] not in ("endpoint-north", "endpoint-south"):
            assert path.stat().st_mode & 0o077 == 0, path
    story = json.loads((facts / "story" / "story.json").read_text(encoding="utf-8"))
    assert story["servers"] == ["root://xrootd-north:1094", "root://xrootd-south:1094"]
    config = facts / "fts" / "fts.toml"
    text = config.read_text(encoding="utf-8").replace("/home/dray/fts", str(tmp_path / "fts"))
    config.write_text(text, encoding="utf-8")
    words = [sys.executable, "-m", "dray_fts", "--config", str(config), "--check"]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    _check_passwords(facts)


@pytest.mark.server
@pytest.mark.skipif(not ENVIRONMENT.exists(), reason="tools/bootstrap.sh test installs Rucio")
def test_init_begins_again_after_an_interruption_and_then_changes_nothing(
    tmp_path: Path, program: Path
) -> None:
    assert program.exists()
    facts = _init(tmp_path) / "facts"
    made = _contents(facts)
    _init(tmp_path)
    assert _contents(facts) == made
    # Interrupted before the last step.
    (facts / "story" / "story.json").rename(facts / "story" / "story.new")
    _init(tmp_path)
    again = _contents(facts)
    assert again.keys() == made.keys()
    for name in ("endpoint-north/etc/identity.pem", "rucio-client/rses.json", "fts/fts.toml"):
        assert again[name] != made[name]
    # The additional settings are in the file once.
    assert again["endpoint-north/etc/drayd.toml"] == made["endpoint-north/etc/drayd.toml"]
    _check_passwords(facts)


def _contents(folder: Path) -> dict[str, bytes]:
    """Return the contents of all files below a folder."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def _check_passwords(facts: Path) -> None:
    """Check that a password is only in the folders of the services that need it."""
    text = (facts / "postgresql" / "databases.sql").read_text(encoding="utf-8")
    found = dict(re.findall(r"ROLE (\w+) LOGIN PASSWORD '(\w+)'", text))
    found["superuser"] = (facts / "postgresql" / "password").read_text(encoding="utf-8")
    found["redis"] = (facts / "redis" / "password").read_text(encoding="utf-8")
    wanted = {
        "airflow": {"airflow"},
        "celery": {"airflow-queue"},
        "rucio": {"rucio", "rucio-dray", "rucio-fts3"},
        "superuser": set(),
        "redis": {"airflow-queue"},
    }
    assert found.keys() == wanted.keys()
    for name, password in found.items():
        folders = {
            path.relative_to(facts).parts[0]
            for path in facts.rglob("*")
            if path.is_file() and password.encode() in path.read_bytes()
        }
        assert folders - {"postgresql", "redis"} == wanted[name], name


def _init(folder: Path) -> Path:
    for name in ("facts", "sites/north", "sites/south"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    env = {
        **os.environ,
        "TESTBED_FACTS": str(folder / "facts"),
        "TESTBED_SITES": str(folder / "sites"),
    }
    words = [sys.executable, "-m", "integration.managers.testbed_init"]
    # Created files must be private with any umask.
    subprocess.run(words, check=True, env=env, umask=0o022)
    return folder


def test_the_bed_logs_in_with_the_password_alone(tmp_path: Path) -> None:
    """The container with the steps cannot read the file of passwords of the API server."""
    asked: list[tuple[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            asked.append((self.path, json.loads(body)))
            answer = b'{"access_token": "a-token"}'
            self.send_response(201)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    airflow = Airflow(tmp_path / "none", [])
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        airflow.url = f"http://127.0.0.1:{server.server_port}"
        with airflow.client as client:
            assert client.headers["Authorization"] == "Bearer a-token"
        server.shutdown()
    assert asked == [("/auth/token", {"username": "admin", "password": airflow.password})]
