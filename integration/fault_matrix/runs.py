"""Runs cells side by side, each in a process of its own."""

from __future__ import annotations

import multiprocessing
import shutil
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from integration.fault_matrix import sets
from integration.fault_matrix.cells import Cell, Outcome, measure, run


def _one(cell: Cell, wholes: dict[str, int], top: Path, program: Path) -> Outcome:
    data = sets.load(cell.data, top / "data")
    folder = Path(tempfile.mkdtemp(prefix="cell-", dir=top))
    try:
        return run(cell, data, wholes[cell.data], folder / "c", program)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_all(
    cells: list[Cell], top: Path, program: Path, jobs: int, results: Path | None
) -> list[Outcome]:
    """Run cells side by side. Print and store each result as soon as it is there."""
    wholes = {}
    for name in sorted({cell.data for cell in cells}):
        data = sets.load(name, top / "data")
        wholes[name] = measure(data, top / f"whole-{name}", program)
    outcomes = []
    began = time.monotonic()
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        waiting = [pool.submit(_one, cell, wholes, top, program) for cell in cells]
        try:
            for done in as_completed(waiting):
                outcome = done.result()
                outcomes.append(outcome)
                said = "; ".join(outcome.faults) or outcome.skipped or "passed"
                count = f"{len(outcomes)}/{len(cells)} {time.monotonic() - began:.0f}s"
                print(f"[{count}] {outcome.cell}: {said} ({outcome.seconds} s)", flush=True)
                if results is not None:
                    with results.open("a", encoding="utf-8") as file:
                        print(outcome.line(), file=file)
        finally:
            # After an interruption, only the cells that run now come to their end.
            pool.shutdown(cancel_futures=True)
    return outcomes
