"""The crates that cargo links into each program, with their licences."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
ENGINE = ROOT / "engine"

#: The selection of `make build`. cargo unifies the features of all selected crates, so another
#: selection can link other crates into the same program.
RELEASE = ("--workspace", "--exclude", "dray-sim")


@dataclass(frozen=True, slots=True)
class Crate:
    """A crate that is linked into a program.

    :param licence: SPDX expression.
    :param checksum: SHA-256 of the crate's archive in hexadecimal, or None for a crate of dray.
    :param folder: folder with the sources.
    :param uses: names and versions of the linked crates that this crate uses.
    """

    name: str
    version: str
    licence: str
    checksum: str | None
    authors: tuple[str, ...]
    repository: str | None
    folder: Path
    uses: tuple[tuple[str, str], ...]

    @property
    def key(self) -> tuple[str, str]:
        """Return the name and the version, which identify a crate of the lock file."""
        return self.name, self.version

    @property
    def is_ours(self) -> bool:
        """Return true for a crate of this workspace."""
        return self.checksum is None


def cargo(*words: str) -> str:
    """Run cargo in the workspace and return its output."""
    command = ["cargo", *words]
    ended = subprocess.run(command, cwd=ENGINE, check=False, capture_output=True, text=True)
    if ended.returncode != 0:
        raise SystemExit(f"packages: {' '.join(command)} failed:\n{ended.stderr.strip()}")
    return ended.stdout


def edges(tree: str) -> dict[tuple[str, str], list[tuple[str, str]]]:
    """Parse the output of ``cargo tree --prefix depth``: each crate and the crates that it uses.

    cargo prints the subtree of a crate only once, so the result joins all occurrences of a crate.
    """
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    path: list[tuple[str, str]] = []
    for line in tree.splitlines():
        match = re.match(r"(\d+)(\S+) v(\S+)", line)
        if match is None:
            continue
        depth, crate = int(match[1]), (match[2], match[3])
        del path[depth:]
        if path and crate not in found[path[-1]]:
            found[path[-1]].append(crate)
        found.setdefault(crate, [])
        path.append(crate)
    return found


def reachable(
    graph: dict[tuple[str, str], list[tuple[str, str]]], root: tuple[str, str]
) -> set[tuple[str, str]]:
    """Return a crate, and all crates that it uses directly or through other crates."""
    seen: set[tuple[str, str]] = set()
    waiting = [root]
    while waiting:
        crate = waiting.pop()
        if crate not in seen:
            seen.add(crate)
            waiting += graph[crate]
    return seen


def checksums() -> dict[tuple[str, str], str]:
    """Return the checksums in the lock file."""
    text = (ENGINE / "Cargo.lock").read_text(encoding="utf-8")
    pattern = r'name = "(.+)"\nversion = "(.+)"\nsource = ".+"\nchecksum = "(.+)"'
    return {(name, version): sum_ for name, version, sum_ in re.findall(pattern, text)}


def linked(crate: str, selection: tuple[str, ...] = RELEASE) -> list[Crate]:
    """Return the crates that are linked into the program of a crate, sorted by name.

    Build scripts, macros that run in the compiler, and dependencies of tests are left out: no code
    of theirs is in the program.

    :param crate: crate of this workspace that builds the program.
    :param selection: words with which cargo selects the crates of the build.
    """
    tree = ("tree", "--locked", "--edges", "normal,no-proc-macro", "--prefix", "depth")
    graph = edges(cargo(*tree, *selection))
    described: list[dict[str, Any]] = json.loads(
        cargo("metadata", "--locked", "--format-version", "1")
    )["packages"]
    packages = {(package["name"], package["version"]): package for package in described}
    (root,) = [key for key in graph if key[0] == crate]
    sums = checksums()
    crates = []
    for key in sorted(reachable(graph, root)):
        package = packages[key]
        crates.append(
            Crate(
                name=key[0],
                version=key[1],
                # The old form `MIT/Apache-2.0` is no SPDX expression.
                licence=re.sub(r"\s*/\s*", " OR ", package["license"]),
                checksum=sums.get(key),
                authors=tuple(package["authors"]),
                repository=package["repository"],
                folder=Path(package["manifest_path"]).parent,
                uses=tuple(sorted(graph[key])),
            )
        )
    return crates


def rust_version() -> str:
    """Return the version of the compiler, whose standard library is linked into each program."""
    ended = subprocess.run(["rustc", "--version"], check=True, capture_output=True, text=True)
    return ended.stdout.split()[1]


def console_libraries(crates: list[Crate]) -> list[tuple[str, str, str]]:
    """Return name, version and licence of each library in the web console.

    The list is empty if the crates do not contain the console.
    """
    for crate in crates:
        if crate.name == "dray-endpoint":
            lock = json.loads(
                (crate.folder / "console" / "package-lock.json").read_text(encoding="utf-8")
            )
            packages = lock["packages"]
            names = packages[""]["dependencies"]
            found = ((name, packages[f"node_modules/{name}"]) for name in sorted(names))
            return [(name, package["version"], package["license"]) for name, package in found]
    return []


def console_licences(crates: list[Crate]) -> str:
    """Return the licence texts of the libraries in the web console."""
    (crate,) = [crate for crate in crates if crate.name == "dray-endpoint"]
    return (crate.folder / "console" / "built" / "licences.txt").read_text(encoding="utf-8")


def sqlite_version(crates: list[Crate]) -> str | None:
    """Return the version of SQLite whose C sources the crate ``libsqlite3-sys`` compiles."""
    for crate in crates:
        if crate.name == "libsqlite3-sys":
            header = (crate.folder / "sqlite3" / "sqlite3.h").read_text(encoding="utf-8")
            match = re.search(r'#define SQLITE_VERSION\s+"([^"]+)"', header)
            if match is None:
                raise SystemExit(f"packages: {crate.folder} contains no version of SQLite")
            return match[1]
    return None


def nlohmann_version() -> str:
    """Return the version of nlohmann-json, a library of headers that the XRootD plug-ins use."""
    words = ["c++", "-E", "-dM", "-x", "c++", "-include", "nlohmann/json.hpp", "/dev/null"]
    macros = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    parts = [
        re.search(rf"#define NLOHMANN_JSON_VERSION_{part} (\d+)", macros)
        for part in ("MAJOR", "MINOR", "PATCH")
    ]
    return ".".join(part[1] for part in parts if part is not None)
