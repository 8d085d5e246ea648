"""Many simulated transfers with many faults each, and the planted defects of the simulator.

``python -m integration.simulation.night`` (``make sim-night``) runs both, and writes their outputs
into docs/explanation/experiments: ``night.txt`` and ``night-defects.txt``. It ends with exit code 1
if a promise was broken, or if a planted defect was not detected.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from integration.simulation import simulator

#: Seeds of the transfers, and seeds for each planted defect.
SEEDS = 10_000
DEFECT_SEEDS = 200
#: Faults of each transfer.
FAULTS = 10


def program() -> Path:
    """Return the simulator: ``DRAY_SIM``, or the release build of this tree."""
    named = os.environ.get("DRAY_SIM")
    target = os.environ.get("CARGO_TARGET_DIR") or simulator.ROOT / "engine" / "target"
    return Path(named or Path(target) / "release" / "dray-sim")


def run(words: list[str], name: str, folder: Path) -> bool:
    """Run the simulator, show its output, and write the command with the output into a file.

    :return: true if no promise was broken, and each planted defect was detected.
    """
    lines = ["$ dray-sim " + " ".join(words)]
    print(lines[0], flush=True)
    with subprocess.Popen([program(), *words], stdout=subprocess.PIPE, text=True) as running:
        for line in running.stdout or ():
            print(line, end="", flush=True)
            lines.append(line.rstrip())
    simulator.write(folder, {name: "\n".join([*lines, f"exit code {running.returncode}", ""])})
    return running.returncode == 0


def main(words: list[str]) -> int:
    """Run the transfers and the planted defects."""
    parser = argparse.ArgumentParser(prog="integration.simulation.night", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--defect-seeds", type=int, default=DEFECT_SEEDS)
    parser.add_argument("--folder", type=Path, default=simulator.PAGES)
    options = parser.parse_args(words)
    transfers = ["--seeds", str(options.seeds), "--faults", str(FAULTS)]
    defects = ["--seeds", str(options.defect_seeds), "--mutants"]
    kept = run(transfers, "night.txt", options.folder)
    detected = run(defects, "night-defects.txt", options.folder)
    return 0 if kept and detected else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
