"""The benchmark's own programs, in the engine's examples."""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from integration.harness.program import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from integration.bench.tools import Tool


@functools.cache
def example(name: str) -> Path:
    """Build a program of ``engine/crates/dray-store/examples``, as a release.

    :raises RuntimeError: if it cannot be built.
    """
    words = ["build", "--locked", "--release", "-p", "dray-store", "--example", name]
    if subprocess.run(["cargo", *words], cwd=ROOT / "engine", check=False).returncode != 0:
        raise RuntimeError(f"the program {name} cannot be built")
    target = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "engine" / "target")
    return target / "release" / "examples" / name


def build_of(tools: Iterable[Tool]) -> None:
    """Build the examples of these tools before the tools run in a network without internet access.

    A failed build is noted in the tool's row.
    """
    for tool in tools:
        if tool.example:
            with contextlib.suppress(RuntimeError):
                example(tool.example)
