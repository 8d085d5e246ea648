"""The sdist and the wheel are complete, and the wheel works in an otherwise empty environment."""

from __future__ import annotations

import email
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VERSION = (ROOT / "VERSION").read_text(encoding="utf-8").strip()

#: True if the wheel is built from the unpacked sdist, so that Cargo compiles all crates of dray.
IS_FULL = os.environ.get("DRAY_FULL") == "1"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def run(command: list[str | Path], **environment: str) -> str:
    """Run a command and return its output. If the command fails, show its output."""
    # With PYTHONPATH, pip would find dray in the source tree and take it for installed.
    inherited = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run(
        [str(word) for word in command],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**inherited, **environment},
    )
    assert result.returncode == 0, f"{command} ended with {result.returncode}:\n{result.stdout}"
    return result.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the sdist and the wheel with the installed build tools.

    In `make test-full`, the wheel is built from the unpacked sdist.
    """
    out = tmp_path_factory.mktemp("dist")
    build: list[str | Path] = [
        sys.executable,
        "-m",
        "build",
        "--no-isolation",
        "--outdir",
        out,
        ROOT,
    ]
    if IS_FULL:
        # Unpack the sdist and build the wheel from it. No test here needs fast code.
        run(build, SETUPTOOLS_RUST_CARGO_PROFILE="dev")
    else:
        # Build both from the tree, whose release programs exist. The folder of an earlier build
        # could contain a removed module.
        places = out / "places.cfg"
        places.write_text(f"[build]\nbuild_base = {tmp_path_factory.mktemp('build')}\n")
        run(
            [*build, "--sdist", "--wheel"],
            SETUPTOOLS_RUST_CARGO_PROFILE="release",
            DIST_EXTRA_CONFIG=str(places),
        )
    run([sys.executable, "-m", "tools.packages.wheel", out], PYTHONPATH=str(ROOT))
    return out


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (found,) = dist.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def sdist(dist: Path) -> Path:
    (found,) = dist.glob("*.tar.gz")
    return found


@pytest.fixture(scope="module")
def clean(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel in an otherwise empty environment, without a package index."""
    home = tmp_path_factory.mktemp("clean")
    venv.create(home, with_pip=True, clear=True)
    # Leave out the dependencies, which only ``dray.client`` needs.
    install = ["-m", "pip", "install", "--no-index", "--no-deps", "--quiet"]
    run([home / "bin" / "python", *install, wheel])
    return home


def test_wheel_is_abi3_for_every_python_from_3_10(wheel: Path) -> None:
    name, version, python, abi, platform = wheel.stem.split("-")
    assert (name, version, python, abi) == ("dray", VERSION, "cp310", "abi3")
    assert platform.startswith("linux_")


def test_wheel_holds_what_it_should_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        packed = archive.read(f"dray-{VERSION}.dist-info/METADATA").decode()
    wanted = {
        "dray/__init__.py",
        "dray/_native.abi3.so",
        "dray/_native.pyi",
        "dray/client/__init__.py",
        "dray/testing/scripted.py",
        "dray/py.typed",
        "dray_airflow/py.typed",
        "dray_airflow_ui/plugin.py",
        "dray_airflow_ui/py.typed",
        "dray_airflow_ui/static/index.html",
        "dray_airflow_ui/static/page.css",
        "dray_airflow_ui/static/page.js",
        "dray_airflow_ui/static/plan.js",
        "dray_airflow_ui/static/text.js",
        "dray_airflow_ui/static/transfers.js",
        "dray_fts/__main__.py",
        "dray_fts/py.typed",
        "dray_globus/executor.py",
        "dray_globus/py.typed",
        "dray_rucio/py.typed",
        f"dray-{VERSION}.data/scripts/dray",
        f"dray-{VERSION}.dist-info/licenses/LICENSE",
        f"dray-{VERSION}.dist-info/licenses/NOTICE",
        f"dray-{VERSION}.dist-info/licenses/THIRD-PARTY",
        f"dray-{VERSION}.dist-info/sboms/dray.cdx.json",
    }
    assert wanted <= set(names)
    strangers = [
        name
        for name in names
        if not name.startswith(("dray", f"dray-{VERSION}."))
        or "/tests/" in name
        or name.endswith((".rs", ".toml", ".lock"))
    ]
    assert strangers == []
    metadata = email.message_from_string(packed)
    assert metadata["Requires-Python"] == ">=3.10"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata.get_all("License-File") == ["LICENSE", "NOTICE", "THIRD-PARTY"]
    assert {"airflow", "rucio", "fts", "globus", "all", "test"} <= set(
        metadata.get_all("Provides-Extra") or []
    )


def test_programs_in_the_wheel_hold_no_debug_information(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for name in (f"dray-{VERSION}.data/scripts/dray", "dray/_native.abi3.so"):
            path = archive.extract(name, tmp_path)
            sections = run(["readelf", "--section-headers", "--wide", path])
            # The section .debug_gdb_scripts is allowed: it contains no debug information.
            assert not {".debug_info", ".debug_line"} & set(sections.split()), name


def test_sdist_holds_the_sources_and_no_build_products(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    assert {"VERSION", "setup.cfg", "engine/Cargo.toml", "engine/Cargo.lock"} <= set(names)
    pages = "plugins/airflow/dray_airflow_ui/static"
    console = "engine/crates/dray-endpoint/console"
    wanted = {f"{pages}/index.html", f"{pages}/page.js", f"{console}/built/app.js"}
    assert wanted <= set(names)
    products = [
        name
        for name in names
        if name.startswith(("engine/target/", f"{console}/node_modules/")) or name.endswith(".so")
    ]
    assert products == []


def test_program_runs_from_the_clean_environment(clean: Path) -> None:
    assert run([clean / "bin" / "dray", "--version"]).split() == ["dray", VERSION]


def test_package_imports_in_the_clean_environment(clean: Path) -> None:
    script = "import dray; print(dray.__version__); print(dray.__file__)"
    version, file = run([clean / "bin" / "python", "-I", "-c", script]).split()
    assert version == VERSION
    assert Path(file).is_relative_to(clean)


def test_installation_is_consistent_and_leaves_cleanly(clean: Path) -> None:
    python = clean / "bin" / "python"
    missing = subprocess.run(
        [python, "-m", "pip", "check"], check=False, capture_output=True, text=True
    )
    assert missing.stdout.splitlines() == [
        f"dray {VERSION} requires httpx, which is not installed."
    ]
    run([python, "-m", "pip", "uninstall", "--yes", "--quiet", "dray"])
    assert not (clean / "bin" / "dray").exists()
    assert list(clean.glob("lib/python*/site-packages/dray/*")) == []
