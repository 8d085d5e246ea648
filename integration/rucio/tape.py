"""An endpoint whose slow root is the storage of a tape RSE."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dray.testing.endpoints import Endpoint, Root
from integration.endpoint.raw import shipped_program

if TYPE_CHECKING:
    from integration.rucio.conftest import Scene


def start(scene: Scene, **more: str) -> Endpoint:
    """Start an endpoint with the RSEs ``T-TAPE`` and ``T-BUFFER``. The scene stops it.

    :param more: options of the fast root.
    """
    roots = [Root("fast", {"tier": "fast", **more}), Root("slow", {"tier": "slow"})]
    end = Endpoint(scene.folder / "t", name="t.example", program=shipped_program(), roots=roots)
    scene.join("t", end)
    slow, fast = end.root("", root="slow"), end.root("", root="fast")
    url = end.place("rse", root="slow")
    (slow / "rse").mkdir()
    (fast / "rse").mkdir()
    made = [
        {
            "name": "T-TAPE",
            "type": "TAPE",
            "prefix": str(slow / "rse"),
            "attributes": {"dray_url": url, "dray_pin": end.key, "staging_buffer": "T-BUFFER"},
        },
        {"name": "T-BUFFER", "staging_area": True, "prefix": str(fast / "rse"), "attributes": {}},
    ]
    scene.do("make_rses", rses=made)
    return end
