"""Run an experiment in the simulator, and store its results for the pages."""

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
    """Return the results of an experiment as JSON.

    :raises subprocess.CalledProcessError: if it cannot be built or run.
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
    """Run a table of transfers in the fluid model; ``DRAY_SIM`` may name the program.

    :raises subprocess.CalledProcessError: if it cannot be built or run.
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
    """Write files, each atomically."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")


def measure(
    run: Callable[[Bench], object],
    files: Callable[[str], dict[str, str]],
    folder: Path = PAGES,
) -> None:
    """Run an experiment with the real program, and write its files.

    :param run: function that runs the experiment and returns the results. The experiment runs the
        program ``DRAY_PROGRAM``, or else the program of this tree.
    :param files: function that returns the texts of the files by name. Its argument is the JSON
        text of the results.
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
    """Return a table in Markdown; the first column is text, the others are numbers."""
    rule = ["---", *("---:" for _ in head[1:])]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, rule, *rows])
