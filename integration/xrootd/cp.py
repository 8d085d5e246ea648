"""``dray cp`` as an ordinary user, with real XRootD servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from integration.xrootd.servers import SHIM, find

if TYPE_CHECKING:
    from pathlib import Path

    from integration.harness.program import Ended, Process, Word
    from integration.xrootd.servers import Scene


def begin(scene: Scene, program: Path, *words: Word, env: dict[str, str] | None = None) -> Process:
    """Start ``dray cp``."""
    return scene.begin(
        program, "cp", "--json", *words, env={"DRAY_XRDCL": str(find(SHIM)), **(env or {})}
    )


def cp(scene: Scene, program: Path, *words: Word, env: dict[str, str] | None = None) -> Ended:
    """Run ``dray cp`` until it ends."""
    return begin(scene, program, *words, env=env).wait(120)
