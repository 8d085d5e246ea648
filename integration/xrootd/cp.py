"""``dray cp``, run as an ordinary user beside real servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from integration.xrootd.servers import SHIM, find

if TYPE_CHECKING:
    from pathlib import Path

    from integration.harness.program import Ended, Process, Word
    from integration.xrootd.servers import Scene


def begin(scene: Scene, program: Path, *words: Word, env: dict[str, str] | None = None) -> Process:
    """Begin ``dray cp``."""
    return scene.begin(
        program, "cp", "--json", *words, env={"DRAY_XRDCL": str(find(SHIM)), **(env or {})}
    )


def cp(scene: Scene, program: Path, *words: Word, env: dict[str, str] | None = None) -> Ended:
    """Run ``dray cp``."""
    return begin(scene, program, *words, env=env).wait(120)
