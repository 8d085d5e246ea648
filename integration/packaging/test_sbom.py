"""The SBOMs: valid documents that list the code inside the packages, and only this code."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from integration.harness.program import ROOT, find_program

if TYPE_CHECKING:
    from pathlib import Path

#: The environment with the library that contains the schemas of CycloneDX (tools/bootstrap.sh).
VALIDATOR = ROOT / ".tools" / "sbom" / "bin" / "python"
VALIDATE = """\
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(sys.stdin.read())
sys.exit(f"{error}" if error else 0)
"""
NAMES = ("dray.cdx.json", "dray-xrootd.cdx.json", "dray-python.cdx.json")
#: Crates of the standard library. The SBOM lists the library as one component.
STANDARD = frozenset(
    {"addr2line", "adler2", "alloc", "compiler_builtins", "core", "gimli", "hashbrown"}
    | {"miniz_oxide", "object", "panic_unwind", "rustc_demangle", "std", "std_detect"}
)
#: Names of libraries that differ from the names of their crates.
LIBRARIES = {"webpki": "rustls_webpki"}

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def sboms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the SBOMs, written by the command of `make sbom`."""
    folder = tmp_path_factory.mktemp("sboms")
    words = [sys.executable, "-m", "tools.packages.sbom", str(folder)]
    ended = subprocess.run(
        words,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
        text=True,
        capture_output=True,
    )
    assert ended.returncode == 0, ended.stderr
    return folder


def read(path: Path) -> dict[str, Any]:
    """Return the contents of an SBOM."""
    bom: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return bom


def validate(text: str) -> subprocess.CompletedProcess[str]:
    """Compare a text with the schema of CycloneDX 1.6."""
    if not VALIDATOR.exists():
        pytest.skip(f"{VALIDATOR} is missing: run tools/bootstrap.sh test")
    words = [str(VALIDATOR), "-c", VALIDATE]
    return subprocess.run(words, input=text, check=False, capture_output=True, text=True)


@pytest.mark.parametrize("name", NAMES)
def test_the_document_is_valid(sboms: Path, name: str) -> None:
    ended = validate((sboms / name).read_text(encoding="utf-8"))
    assert ended.returncode == 0, ended.stderr


def test_the_validator_refuses_an_invalid_document(sboms: Path) -> None:
    bom = read(sboms / "dray.cdx.json")
    del bom["components"][0]["name"]
    assert validate(json.dumps(bom)).returncode != 0


@pytest.mark.parametrize("name", NAMES)
def test_each_component_has_version_licence_and_dependencies(sboms: Path, name: str) -> None:
    bom = read(sboms / name)
    references = {component["bom-ref"] for component in bom["components"]}
    assert len(references) == len(bom["components"])
    for component in bom["components"]:
        assert component["type"] in {"application", "library"}
        # A required Python package has no fixed version and is not inside the wheel.
        if component.get("scope") != "required":
            assert component["version"], component["name"]
            assert component["licenses"], component["name"]
    listed = {dependency["ref"] for dependency in bom["dependencies"]}
    assert references <= listed
    for dependency in bom["dependencies"]:
        assert set(dependency["dependsOn"]) <= references


@pytest.mark.parametrize(
    ("program", "name"),
    [("dray", "dray.cdx.json"), ("dray-xrootd-tpc", "dray-xrootd.cdx.json")],
)
def test_each_crate_with_code_in_the_program_is_listed(
    sboms: Path, program: str, name: str
) -> None:
    path = find_program().with_name(program)
    symbols = subprocess.run(["nm", str(path)], check=True, capture_output=True, text=True).stdout
    # In both forms of Rust's mangled names, the name of a crate follows its length.
    found = {
        text.lstrip("_")[: int(length)]
        for form in (r"Cs[A-Za-z0-9]*_(\d+)([a-z_0-9]+)", r"_ZN(\d+)([a-z][a-z_0-9]*)")
        for length, text in re.findall(form, symbols)
    }
    crates = {LIBRARIES.get(crate, crate) for crate in found if not re.match(r"rustc\d", crate)}
    assert len(crates) > 50, "the program contains no symbols: it is stripped"
    components = {each["name"].replace("-", "_") for each in read(sboms / name)["components"]}
    assert crates - components - STANDARD == set()


@pytest.mark.parametrize("name", NAMES)
def test_tools_of_the_build_are_not_listed(sboms: Path, name: str) -> None:
    components = {component["name"] for component in read(sboms / name)["components"]}
    # Macros run in the compiler, and proptest in tests.
    assert components & {"syn", "serde_derive", "proptest", "dray-sim", "cc"} == set()


def test_versions_of_c_code_and_of_the_standard_library_are_those_in_the_program(
    sboms: Path,
) -> None:
    versions = {each["name"]: each["version"] for each in read(sboms / NAMES[0])["components"]}
    program = find_program().read_bytes()
    assert f"rustc version {versions['rust-std']}".encode() in program
    assert versions["sqlite"].encode() in program


def test_the_wheel_requires_what_setup_cfg_requires(sboms: Path) -> None:
    components = read(sboms / "dray-python.cdx.json")["components"]
    required = {each["name"] for each in components if each.get("scope") == "required"}
    assert required == {"httpx"}
