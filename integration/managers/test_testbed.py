"""The files of the test bed in containers fit together, and contain no secrets.

These tests start no containers. ``make testbed`` does.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml  # type: ignore[import-untyped]

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
    parts = {"postgresql", "redis", "rucio", "fts", "airflow-worker", "rucio-submitter"}
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


def test_only_init_and_airflow_may_write_facts() -> None:
    writers = {name for name, each in SERVICES.items() if "facts:/facts" in each["volumes"]}
    airflow = {name for name in STAYING if name.startswith("airflow-")}
    assert writers == {"init"} | airflow
    assert all("environment" not in each for each in SERVICES.values())


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
    one, other = ((folder / "facts" / "env").read_text(encoding="utf-8") for folder in made)
    assert one != other
    facts = made[0] / "facts"
    for path in (*facts.iterdir(), *(facts / "tokens").iterdir()):
        assert path.stat().st_mode & 0o077 == 0, path
    story = json.loads((facts / "story.json").read_text(encoding="utf-8"))
    assert story["servers"] == ["root://xrootd-north:1094", "root://xrootd-south:1094"]
    config = facts / "fts.toml"
    text = config.read_text(encoding="utf-8").replace("/home/dray/fts", str(tmp_path / "fts"))
    config.write_text(text, encoding="utf-8")
    words = [sys.executable, "-m", "dray_fts", "--config", str(config), "--check"]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def _init(folder: Path) -> Path:
    for name in ("facts", "sites/north", "sites/south"):
        (folder / name).mkdir(parents=True)
    env = {
        **os.environ,
        "TESTBED_FACTS": str(folder / "facts"),
        "TESTBED_SITES": str(folder / "sites"),
    }
    words = [sys.executable, "-m", "integration.managers.testbed_init"]
    # Created files must be private with any umask.
    subprocess.run(words, check=True, env=env, umask=0o022)
    return folder
