"""Run an experiment in the simulator, and keep its results where the pages find them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "explanation" / "experiments"


def run(name: str) -> str:
    """Give the results of an experiment as JSON.

    :raises subprocess.CalledProcessError: when it cannot be built or run.
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

    :raises subprocess.CalledProcessError: when it cannot be built or run.
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
    """Write files, each in one go."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")


def table(head: list[str], rows: list[list[str]]) -> str:
    """Lay out a table in Markdown; the first column is text, the others are numbers."""
    rule = ["---", *("---:" for _ in head[1:])]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, rule, *rows])
