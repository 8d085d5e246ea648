"""Run an experiment in the simulator, and keep its results where the pages find them."""

from __future__ import annotations

import subprocess
from pathlib import Path

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


def write(folder: Path, files: dict[str, str]) -> None:
    """Write files, each in one go."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")


def table(head: list[str], rows: list[list[str]]) -> str:
    """Lay out a table in Markdown; the first column is text, the others are numbers."""
    rule = ["---", *("---:" for _ in head[1:])]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, rule, *rows])
