"""Write software bills of materials (SBOMs) in the format CycloneDX 1.6 (JSON).

    python -m tools.packages.sbom FOLDER

writes one file for each package: ``dray.cdx.json`` (Debian and RPM package `dray`),
``dray-xrootd.cdx.json`` (package `dray-xrootd`) and ``dray-python.cdx.json`` (wheel). An SBOM lists
only the code that is inside the files of its package.
docs/decisions/0067-an-own-writer-of-sboms.md explains why cargo-cyclonedx is not used.
"""

from __future__ import annotations

import configparser
import datetime
import hashlib
import json
import re
import sys
import uuid
from pathlib import Path
from typing import Any

from tools.packages.build import source_date, version
from tools.packages.crates import (
    ROOT,
    Crate,
    console_libraries,
    linked,
    nlohmann_version,
    rust_version,
    sqlite_version,
)

Json = dict[str, Any]

#: Selections of crates with which setuptools-rust builds the program and the module of the wheel.
WHEEL_PROGRAM = ("--package", "dray-cli")
WHEEL_MODULE = ("--package", "dray-py", "--features", "extension-module")


def licences(expression: str) -> list[Json]:
    """Return the field ``licenses`` for an SPDX expression."""
    if re.search(r"\s", expression):
        return [{"expression": expression}]
    return [{"license": {"id": expression}}]


def crate_reference(name: str, number: str) -> str:
    """Return the package URL of a crate, which is also its reference in an SBOM."""
    return f"pkg:cargo/{name}@{number}"


def crate_component(crate: Crate) -> Json:
    """Return the component of a linked crate."""
    reference = crate_reference(crate.name, crate.version)
    component: Json = {
        "type": "library",
        "bom-ref": reference,
        "name": crate.name,
        "version": crate.version,
        "licenses": licences(crate.licence),
        "purl": reference,
    }
    if crate.authors:
        component["authors"] = [{"name": author} for author in crate.authors]
    if crate.checksum is not None:
        component["hashes"] = [{"alg": "SHA-256", "content": crate.checksum}]
    if crate.repository is not None:
        component["externalReferences"] = [{"type": "vcs", "url": crate.repository}]
    return component


def other_component(
    name: str, number: str, licence: str, kind: str = "generic", **more: str
) -> Json:
    """Return the component of a part that is no crate.

    :param kind: type of its package URL.
    """
    reference = f"pkg:{kind}/{name}@{number}"
    return {
        "type": "library",
        "bom-ref": reference,
        "name": name,
        "version": number,
        "licenses": licences(licence),
        "purl": reference,
        **more,
    }


def program(name: str, crates: list[Crate], root: str) -> tuple[Json, list[Json], list[Json]]:
    """Describe one program.

    :param root: crate that builds the program.
    :returns: the component of the program, the components that it contains, and the list of the
        direct dependencies of each.
    """
    standard = other_component("rust-std", rust_version(), "MIT OR Apache-2.0")
    components = [crate_component(crate) for crate in crates] + [standard]
    uses = {
        crate_reference(*crate.key): [crate_reference(*used) for used in crate.uses]
        for crate in crates
    }
    sqlite = sqlite_version(crates)
    if sqlite is not None:
        # The crate compiles a copy of SQLite's sources, which its licence field does not mention.
        component = other_component("sqlite", sqlite, "blessing")
        components.append(component)
        (binding,) = [crate for crate in crates if crate.name == "libsqlite3-sys"]
        uses[crate_reference(*binding.key)].append(component["bom-ref"])
    for library, number, licence in console_libraries(crates):
        component = other_component(library, number, licence, kind="npm")
        components.append(component)
        uses[crate_reference("dray-endpoint", version())].append(component["bom-ref"])
    described: Json = {
        "type": "application",
        "bom-ref": f"program:{name}",
        "name": name,
        "version": version(),
        "licenses": licences("Apache-2.0"),
    }
    uses[described["bom-ref"]] = [crate_reference(root, version()), standard["bom-ref"]]
    dependencies = [{"ref": ref, "dependsOn": sorted(found)} for ref, found in uses.items()]
    return described, components, dependencies


def document(subject: Json, parts: list[tuple[Json, list[Json], list[Json]]]) -> Json:
    """Join the parts of a package into one SBOM.

    The same sources yield the same bytes: the time is that of the last commit, and the serial
    number is derived from the contents.

    :param subject: the component of the package.
    """
    components: dict[str, Json] = {}
    uses: dict[str, set[str]] = {subject["bom-ref"]: {part[0]["bom-ref"] for part in parts}}
    for described, contents, dependencies in parts:
        for component in [described, *contents]:
            components[component["bom-ref"]] = component
        for dependency in dependencies:
            uses.setdefault(dependency["ref"], set()).update(dependency["dependsOn"])
    for reference in components:
        uses.setdefault(reference, set())
    time = datetime.datetime.fromtimestamp(source_date(), datetime.timezone.utc)
    bom: Json = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "lifecycles": [{"phase": "build"}],
            "component": subject,
        },
        "components": [components[reference] for reference in sorted(components)],
        "dependencies": [
            {"ref": reference, "dependsOn": sorted(uses[reference])} for reference in sorted(uses)
        ],
    }
    text = json.dumps(bom, sort_keys=True).encode()
    number = uuid.UUID(bytes=hashlib.sha256(text).digest()[:16], version=4)
    return {"serialNumber": f"urn:uuid:{number}", **bom}


def package(name: str, purl: str) -> Json:
    """Return the component of a package of dray, the subject of an SBOM."""
    return {
        "type": "application",
        "bom-ref": purl,
        "name": name,
        "version": version(),
        "licenses": licences("Apache-2.0"),
        "purl": purl,
    }


def plugins() -> tuple[Json, list[Json], list[Json]]:
    """Describe the C++ libraries of the package `dray-xrootd`.

    They link XRootD, OpenSSL and the C++ library dynamically, so only the headers of nlohmann-json
    are compiled into them.
    """
    headers = other_component("nlohmann-json", nlohmann_version(), "MIT")
    described: Json = {
        "type": "library",
        "bom-ref": "library:xrootd-plugins",
        "name": "XRootD plug-ins of dray",
        "version": version(),
        "licenses": licences("Apache-2.0"),
    }
    dependencies = [{"ref": described["bom-ref"], "dependsOn": [headers["bom-ref"]]}]
    return described, [headers], dependencies


def python_requirements() -> list[Json]:
    """Return the required Python packages of the wheel. pip installs them; they are not inside."""
    options = configparser.ConfigParser()
    options.read(ROOT / "setup.cfg", encoding="utf-8")
    components = []
    for line in options["options"]["install_requires"].strip().splitlines():
        match = re.match(r"([A-Za-z0-9._-]+)(.*)", line)
        if match is None:
            raise SystemExit(f"packages: cannot parse the requirement `{line}` in setup.cfg")
        components.append(
            {
                "type": "library",
                "bom-ref": f"pkg:pypi/{match[1]}",
                "name": match[1],
                "purl": f"pkg:pypi/{match[1]}",
                "scope": "required",
                "properties": [{"name": "dray:version-range", "value": match[2].strip()}],
            }
        )
    return components


def python_sbom() -> Json:
    """Return the SBOM of the wheel: the program, the native module and the required packages."""
    parts = [
        program("dray", linked("dray-cli", WHEEL_PROGRAM), "dray-cli"),
        program("dray._native", linked("dray-py", WHEEL_MODULE), "dray-py"),
    ]
    parts += [(requirement, [], []) for requirement in python_requirements()]
    return document(package("dray", f"pkg:pypi/dray@{version()}"), parts)


def wheel_crates() -> list[Crate]:
    """Return the crates that are linked into the program or the native module of the wheel."""
    crates = {crate.key: crate for crate in linked("dray-cli", WHEEL_PROGRAM)}
    crates |= {crate.key: crate for crate in linked("dray-py", WHEEL_MODULE)}
    return [crates[key] for key in sorted(crates)]


def sboms() -> dict[str, Json]:
    """Return the SBOM of each package, by file name."""
    dray = program("dray", linked("dray-cli"), "dray-cli")
    copier = program("dray-xrootd-tpc", linked("dray-xrootd-tpc"), "dray-xrootd-tpc")
    xrootd = package("dray-xrootd", f"pkg:generic/dray-xrootd@{version()}")
    return {
        "dray.cdx.json": document(package("dray", f"pkg:generic/dray@{version()}"), [dray]),
        "dray-xrootd.cdx.json": document(xrootd, [copier, plugins()]),
        "dray-python.cdx.json": python_sbom(),
    }


def write_json(path: Path, bom: Json) -> None:
    """Write an SBOM to a file."""
    path.write_text(json.dumps(bom, indent=1) + "\n", encoding="utf-8")


def main(words: list[str]) -> int:
    """Write all SBOMs into the folder that the command line names."""
    if len(words) != 1:
        print("usage: python -m tools.packages.sbom FOLDER", file=sys.stderr)
        return 2
    folder = Path(words[0])
    folder.mkdir(parents=True, exist_ok=True)
    for name, bom in sboms().items():
        write_json(folder / name, bom)
        print(f"{folder / name}: {len(bom['components'])} components")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
