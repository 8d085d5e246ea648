"""Run cells from the command line, and write the page of the results."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from integration.fault_matrix import report
from integration.fault_matrix.cells import Outcome, chosen
from integration.fault_matrix.runs import run_all
from integration.harness import host
from integration.harness.program import find_program

if TYPE_CHECKING:
    from collections.abc import Sequence

EXAMPLES = """\
examples:
  python -m integration.fault_matrix --list                      the names of all cells
  python -m integration.fault_matrix --cells 'sink-killed/*'     one fault
  python -m integration.fault_matrix --cells '*/50/big/file:*' -j 2
  python -m integration.fault_matrix --results all.jsonl --report
"""


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m integration.fault_matrix",
        description="Try every fault at three moments of a transfer between two endpoints.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--cells", action="append", default=[], metavar="PATTERN", help="repeatable; default: all"
    )
    parser.add_argument("--list", action="store_true", help="print the names of the cells")
    parser.add_argument("-j", "--jobs", type=int, default=3, help="cells side by side")
    parser.add_argument(
        "--results", type=Path, help="append one JSON object for each cell to this file"
    )
    parser.add_argument(
        "--again", action="store_true", help="also run cells that the file of results contains"
    )
    parser.add_argument(
        "--report", action="store_true", help="write the results into the page of the manual"
    )
    parser.add_argument("--program", type=Path, help="default: the release program of this tree")
    return parser.parse_args(words)


def known(results: Path | None) -> dict[str, Outcome]:
    """Read the results of earlier runs, the last result of each cell."""
    if results is None or not results.exists():
        return {}
    lines = results.read_text(encoding="utf-8").splitlines()
    outcomes = [Outcome(**json.loads(line)) for line in lines if line.strip()]
    return {outcome.cell: outcome for outcome in outcomes}


def main() -> int:
    """Run the chosen cells. Return 1 if a cell has failed."""
    given = arguments()
    host.clean_up_when_ended()
    cells = chosen(given.cells)
    if given.list:
        print(*cells, sep="\n")
        return 0
    before = known(given.results)
    wanted = [cell for cell in cells if given.again or str(cell) not in before]
    program = (given.program or find_program()).resolve()
    with tempfile.TemporaryDirectory(
        prefix="dray-matrix-", dir=os.environ.get("DRAY_TEST_DIR")
    ) as folder:
        began = time.monotonic()
        ran = run_all(wanted, Path(folder), program, given.jobs, given.results)
        print(f"{len(ran)} cells in {time.monotonic() - began:.0f} s")
    outcomes = {**before, **{outcome.cell: outcome for outcome in ran}}
    if given.report:
        report.write([outcomes[str(cell)] for cell in chosen([]) if str(cell) in outcomes])
    failed = [each for each in outcomes.values() if each.faults]
    for outcome in failed:
        print(f"FAILED {outcome.cell}: {'; '.join(outcome.faults)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
