"""Builds of one program and builds of the workspace enable the same features of all crates.

Cargo chooses the features of a crate from all packages of a build. If two builds choose different
features, Cargo compiles the crate twice, and also every crate that depends on it. `make test`
builds the programs, the Python module and the simulator, so different features cost minutes.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

WORKSPACE = Path(__file__).resolve().parents[2] / "engine"


def features(*selection: str) -> set[str]:
    """Return one line per crate in the build of the selected packages: name, version, features."""
    command = ["cargo", "tree", "--locked", "--offline", "--edges", "normal,build"]
    command += ["--prefix", "none", "--no-dedupe", "--format", "{p} {f}", *selection]
    tree = subprocess.run(command, cwd=WORKSPACE, capture_output=True, text=True, check=True)
    return {line.strip() for line in tree.stdout.splitlines() if line.strip()}


@pytest.fixture(scope="module")
def programs() -> set[str]:
    """Return the crates of `make build`."""
    return features("--workspace", "--exclude", "dray-sim")


@pytest.mark.parametrize(
    "selection",
    [
        ("--package", "dray-cli"),
        ("--package", "dray-py", "--features", "dray-py/extension-module"),
        ("--package", "dray-sim"),
    ],
    ids=lambda selection: selection[1],
)
def test_a_build_of_one_package_uses_the_features_of_all_programs(
    selection: tuple[str, ...], programs: set[str]
) -> None:
    """Only crates that differ on purpose are compiled again."""
    on_purpose: tuple[str, ...] = ("dray-py ", "pyo3")
    if selection[1] == "dray-sim":
        # Only the simulator contains planted defects.
        on_purpose = ("dray-sim ", "dray-session ")
    again = {line for line in features(*selection) - programs if not line.startswith(on_purpose)}
    assert not again, (
        f"{selection[1]}: other features than in `make build`; add the missing features to its "
        f"Cargo.toml:\n" + "\n".join(sorted(again))
    )
