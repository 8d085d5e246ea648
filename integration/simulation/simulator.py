"""Run experiments in the simulator or with the real program, and write their pages."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from integration.harness.program import Bench, find_program

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "explanation" / "experiments"


def run(name: str) -> str:
    """Run an experiment of ``dray-sim``, and return its results as JSON.

    :raises subprocess.CalledProcessError: if the simulator cannot be built or fails.
    """
    words = ["cargo", "run", "--locked", "--quiet", "--release", "-p", "dray-sim", "--"]
    ran = subprocess.run(
        [*words, "experiment", name],
        cwd=ROOT / "engine",
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return ran.stdout


def run_table(table: dict[str, Any]) -> dict[str, Any]:
    """Run a table of transfers in the fluid model. ``DRAY_SIM`` may name the simulator's program.

    :raises subprocess.CalledProcessError: if the simulator cannot be built or fails.
    """
    named = os.environ.get("DRAY_SIM")
    words = ["cargo", "run", "--locked", "--quiet", "--release", "-p", "dray-sim", "--"]
    ran = subprocess.run(
        [*([named] if named else words), "table"],
        cwd=ROOT / "engine",
        check=True,
        input=json.dumps(table),
        stdout=subprocess.PIPE,
        text=True,
    )
    results: dict[str, Any] = json.loads(ran.stdout)
    return results


def write(folder: Path, files: dict[str, str]) -> None:
    """Write files into a folder. Create the folder if it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")


def measure(
    run: Callable[[Bench], object],
    files: Callable[[str], dict[str, str]],
    folder: Path = PAGES,
) -> None:
    """Run an experiment with the real program, and write its files.

    :param run: runs the experiment and returns the results. The program is ``DRAY_PROGRAM``, by
        default that of this tree.
    :param files: returns the contents of the files by file name. Its argument is the results as
        JSON.
    """
    program = Path(os.environ.get("DRAY_PROGRAM") or find_program())
    with tempfile.TemporaryDirectory(prefix="dray-experiment-") as name:
        bench = Bench(Path(name), program)
        try:
            results = run(bench)
        finally:
            bench.close()
    write(folder, files(json.dumps(results, indent=1) + "\n"))


def table(head: list[str], rows: list[list[str]]) -> str:
    """Return a table in Markdown. The first column is aligned left, the others right."""
    rule = ["---", *("---:" for _ in head[1:])]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, rule, *rows])
