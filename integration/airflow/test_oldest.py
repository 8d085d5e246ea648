"""Every module of the provider can be imported with the oldest supported Airflow."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from integration.harness.program import ROOT

pytestmark = [pytest.mark.slow]

LOCK = ROOT / "tools" / "requirements-airflow-oldest.txt"
IMPORTS = """
import importlib, json, pkgutil, runpy, sys
import airflow, dray_airflow, dray_airflow_ui
failed = []
names = [
    each.name
    for package in (dray_airflow, dray_airflow_ui)
    for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
]
for name in names:
    try:
        importlib.import_module(name)
    except Exception as error:
        failed.append(f"{name}: {error!r}")
for path in sys.argv[1:]:
    try:
        runpy.run_path(path)
    except Exception as error:
        failed.append(f"{path}: {error!r}")
print(json.dumps([airflow.__version__, len(names), failed]))
"""


def environment() -> Path:
    """Make the Python environment unless it is up to date. Return its interpreter."""
    home = ROOT / ".tools" / "airflow-oldest"
    stamp, python = home / "dray-stamp", home / "bin" / "python"
    wanted = f"{sys.version} {LOCK.read_text(encoding='utf-8')}"
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != wanted:
        uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        assert uv is not None, "tools/bootstrap.sh installs uv"
        made: list[str | Path] = [
            uv,
            "venv",
            "--quiet",
            "--clear",
            "--python",
            sys.executable,
            home,
        ]
        subprocess.run(made, check=True)
        filled: list[str | Path] = [
            uv,
            "pip",
            "install",
            "--quiet",
            "--compile-bytecode",
            "--python",
            python,
            "--requirement",
            LOCK,
        ]
        subprocess.run(filled, check=True)
        stamp.write_text(wanted, encoding="utf-8")
    return python


def test_all_modules_and_stories_are_imported(tmp_path: Path) -> None:
    kept = ("PATH", "HOME", "LANG")
    done = subprocess.run(
        [environment(), "-c", IMPORTS, *sorted((ROOT / "dags").glob("*.py"))],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        env={
            **{name: os.environ[name] for name in kept if name in os.environ},
            "AIRFLOW_HOME": str(tmp_path),
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
            "PYTHONPATH": f"{ROOT}/engine/python:{ROOT}/operators:{ROOT}/plugins/airflow",
            "PYTHONDONTWRITEBYTECODE": "1",
        },
    )
    assert done.returncode == 0, done.stderr
    # Parse only the last line. Before this line, modules may print which features this version of
    # Airflow lacks.
    version, count, failed = json.loads(done.stdout.splitlines()[-1])
    assert version.startswith("3.1.")
    assert count > 20
    assert failed == []
