"""Programs of the benchmark's own, written beside the engine."""

from __future__ import annotations

import functools
import os
import subprocess
from pathlib import Path

from integration.harness.program import ROOT


@functools.cache
def example(name: str) -> Path:
    """Build a program of ``engine/crates/dray-store/examples``, as a release.

    :raises RuntimeError: when it cannot be built.
    """
    words = ["build", "--locked", "--release", "-p", "dray-store", "--example", name]
    if subprocess.run(["cargo", *words], cwd=ROOT / "engine", check=False).returncode != 0:
        raise RuntimeError(f"the program {name} cannot be built")
    target = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "engine" / "target")
    return target / "release" / "examples" / name
