"""Audit dray's dependencies: crates, Python packages, and packages of npm.

The audit fails if a crate has a licence outside the allow list, if a crate does not come from
crates.io, or if a crate that may exist only once exists twice. It also fails if a Python package is
not pinned or not listed, if an npm package is not pinned, or if the licence of an npm package is
not on the allow list.
docs/decisions/0002-dependency-audit.md explains why cargo-deny is not used.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CRATES_IO = "registry+https://github.com/rust-lang/crates.io-index"

LICENCES_ALLOWED = frozenset(
    {
        "0BSD",
        "Apache-2.0",
        "Apache-2.0 WITH LLVM-exception",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "BSL-1.0",
        "CC0-1.0",
        "CDLA-Permissive-2.0",
        "ISC",
        "MIT",
        "MIT-0",
        "Unicode-3.0",
        "Unlicense",
        "Zlib",
    }
)

#: Both files fill .venv (docs/decisions/0019-airflow-in-the-common-environment.md).
REQUIREMENTS = ("requirements-dev.txt", "requirements-airflow.txt")
#: These files fill .tools/rucio, .tools/fts, .tools/sbom, .tools/manual and .tools/axe. Their
#: versions differ from those in .venv, so the lines are not compared with the packages that are
#: installed in .venv.
REQUIREMENTS_APART = (
    "requirements-rucio.txt",
    "requirements-fts.txt",
    "requirements-sbom.txt",
    "requirements-manual.txt",
    "requirements-axe.txt",
)

#: Packages of npm that build the web console or are a part of it, and the provider of logins in the
#: tests.
NPM_LOCKS = (
    "engine/crates/dray-endpoint/console/package-lock.json",
    "integration/endpoint/provider/package-lock.json",
)

# Crates whose state or types are shared in a program. Two versions of such a crate in one
# program would not work together.
SINGLE_CRATES = frozenset(
    {
        "crc-fast",
        "crc32c",
        "libsqlite3-sys",
        "openssl-sys",
        "pyo3",
        "ring",
        "rustls",
        "serde",
        "tokio",
        "tracing-core",
    }
)

# Crates that must not be used, each with its successor or the reason.
BANNED_CRATES = {
    "ansi_term": "unmaintained; use anstyle",
    "atty": "unsound and unmaintained; use std::io::IsTerminal",
    "native-tls": "TLS is rustls here",
    "openssl": "TLS is rustls here",
    "failure": "deprecated; use thiserror",
    "structopt": "part of clap now",
}


@dataclass(frozen=True, slots=True)
class Crate:
    """A crate of the lock file.

    :param source: registry of the crate, or None for a crate of this workspace.
    :param licence: SPDX expression that the crate declares, if any.
    """

    name: str
    version: str
    source: str | None
    licence: str | None


def is_licence_allowed(expression: str, allowed: frozenset[str] = LICENCES_ALLOWED) -> bool:
    """Return true if the allowed licences are enough to satisfy an SPDX expression."""
    # `MIT/Apache-2.0` is the old form of `MIT OR Apache-2.0`.
    text = expression.replace("/", " OR ")
    words = re.findall(r"\(|\)|[^\s()]+(?:\s+WITH\s+[^\s()]+)?", text)
    position = 0

    def peek() -> str:
        return words[position] if position < len(words) else ""

    def take() -> str:
        nonlocal position
        position += 1
        return words[position - 1] if position <= len(words) else ""

    def term() -> bool:
        word = take()
        if word == "(":
            inside = alternatives()
            return take() == ")" and inside
        return " ".join(word.split()) in allowed

    def conjunction() -> bool:
        result = term()
        while peek() == "AND":
            take()
            right = term()
            result = result and right
        return result

    def alternatives() -> bool:
        result = conjunction()
        while peek() == "OR":
            take()
            right = conjunction()
            result = result or right
        return result

    return alternatives() and position == len(words)


def audit_crates(crates: list[Crate]) -> list[str]:
    """Return one sentence for each violation of the rules for crates."""
    findings = []
    versions: dict[str, list[str]] = {}
    for crate in crates:
        place = f"crate {crate.name} {crate.version}"
        versions.setdefault(crate.name, []).append(crate.version)
        if crate.name in BANNED_CRATES:
            findings.append(f"{place}: banned ({BANNED_CRATES[crate.name]})")
        if crate.source is None:
            if not crate.name.startswith("dray-"):
                findings.append(f"{place}: a path dependency that is not ours")
            continue
        if crate.source != CRATES_IO:
            findings.append(f"{place}: comes from {crate.source}, not from crates.io")
        if crate.licence is None:
            findings.append(f"{place}: declares no licence")
        elif not is_licence_allowed(crate.licence):
            findings.append(f"{place}: licence {crate.licence} is not on the list")
    for name in sorted(SINGLE_CRATES & versions.keys()):
        if len(versions[name]) > 1:
            findings.append(f"crate {name}: {' and '.join(sorted(versions[name]))} at once")
    return findings


def normalised(name: str) -> str:
    """Return the name of a Python distribution in the form of PEP 503."""
    return re.sub(r"[-_.]+", "-", name).lower()


def audit_requirements(text: str, installed: dict[str, str]) -> list[str]:
    """Return one sentence for each fault in requirements files.

    A fault is a line without a version, an installed package without a line, or an installed
    package whose version differs from its lines.

    :param text: content of the requirements files.
    :param installed: versions by normalised name, of all packages in the environment except dray.
    """
    findings = []
    pinned: dict[str, set[str]] = {}
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.split("#", 1)[0].strip()
        if not line:
            continue
        match = re.fullmatch(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.!+]+)(\s*;.*)?", line)
        if match is None:
            findings.append(f"requirements line {number}: `{line}` is not `name==version`")
            continue
        pinned.setdefault(normalised(match[1]), set()).add(match[2])
    for name, version in sorted(installed.items()):
        if name not in pinned:
            findings.append(f"package {name} {version}: installed in .venv and not listed")
        elif version not in pinned[name]:
            findings.append(f"package {name}: {version} in .venv, pinned {sorted(pinned[name])}")
    return findings


def audit_npm(lock: dict[str, Any]) -> list[str]:
    """Return one sentence for each violation of the rules for packages of npm.

    :param lock: content of the file package-lock.json.
    """
    findings = []
    for path, package in lock["packages"].items():
        if path == "":
            wanted = {**package.get("dependencies", {}), **package.get("devDependencies", {})}
            loose = sorted(name for name, text in wanted.items() if not text[:1].isdigit())
            findings += [f"npm package {name}: not an exact version" for name in loose]
            continue
        place = f"npm package {path.removeprefix('node_modules/')} {package.get('version')}"
        if "integrity" not in package:
            findings.append(f"{place}: has no digest in the lock file")
        licence = package.get("license")
        if licence is None:
            findings.append(f"{place}: declares no licence")
        elif not is_licence_allowed(licence):
            findings.append(f"{place}: licence {licence} is not on the list")
    return findings


def locked_crates() -> list[Crate]:
    """Read the crates in the lock file. Fails if the file is missing or out of date."""
    command = ["cargo", "metadata", "--locked", "--format-version", "1"]
    result = subprocess.run(
        command, cwd=ROOT / "engine", check=False, capture_output=True, text=True
    )
    if result.returncode != 0:
        raise SystemExit(f"audit: {' '.join(command)} failed:\n{result.stderr.strip()}")
    packages: list[dict[str, Any]] = json.loads(result.stdout)["packages"]
    return [
        Crate(package["name"], package["version"], package["source"], package["license"])
        for package in packages
    ]


def installed_packages() -> dict[str, str]:
    """Return the packages of the running environment, without dray."""
    found = {
        normalised(distribution.name): distribution.version
        for distribution in metadata.distributions()
    }
    found.pop("dray", None)
    return found


def main() -> int:
    """Audit the tree and print the faults."""
    crates = locked_crates()
    requirements = "".join(
        (ROOT / "tools" / name).read_text(encoding="utf-8") for name in REQUIREMENTS
    )
    findings = audit_crates(crates) + audit_requirements(requirements, installed_packages())
    for name in REQUIREMENTS_APART:
        text = (ROOT / "tools" / name).read_text(encoding="utf-8")
        findings += [f"{name}: {finding}" for finding in audit_requirements(text, {})]
    for name in NPM_LOCKS:
        findings += audit_npm(json.loads((ROOT / name).read_text(encoding="utf-8")))
    for finding in findings:
        print(f"audit: {finding}", file=sys.stderr)
    if not findings:
        foreign = sum(crate.source is not None for crate in crates)
        print(f"audit: {foreign} crates, the Python pins and the npm locks are in order")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
