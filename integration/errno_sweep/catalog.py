"""The kinds of copies into which the sweep injects faults, by name."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from integration.errno_sweep.scenes import Copy, OneFile, Served, ThirdParty
from integration.errno_sweep.xrootd import XrootdCopy

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from integration.errno_sweep.scenes import Data, Scene
    from integration.harness.program import Bench

EVERYTHING = ("--durability", "object", "--preallocate", "--xattrs", "--checksum-attributes")
SCENES: Mapping[str, tuple[type, Mapping[str, Any]]] = {
    "local": (Copy, {}),
    "local-object": (Copy, {"words": EVERYTHING}),
    "local-direct": (Copy, {"words": ("--direct-io", "--verify")}),
    "local-older": (Copy, {"before": "older"}),
    "local-broken": (Copy, {"before": "broken", "words": ("--durability", "object")}),
    "local-file": (OneFile, {}),
    "push-client": (Served, {"push": True, "victim": "client"}),
    "push-server": (Served, {"push": True, "victim": "server"}),
    "pull-client": (Served, {"push": False, "victim": "client"}),
    "pull-server": (Served, {"push": False, "victim": "server"}),
    "tpc-push-source": (ThirdParty, {"push": True, "victim": "source"}),
    "tpc-push-sink": (ThirdParty, {"push": True, "victim": "sink"}),
    "tpc-pull-source": (ThirdParty, {"push": False, "victim": "source"}),
    "tpc-pull-sink": (ThirdParty, {"push": False, "victim": "sink"}),
    "xrootd": (XrootdCopy, {}),
    "xrootd-hidden": (XrootdCopy, {"hides": True}),
    "xrootd-beside": (XrootdCopy, {"beside": True}),
}


@contextlib.contextmanager
def scene(name: str, bench: Bench, data: Data) -> Iterator[Scene]:
    """Yield a scene, and close it."""
    kind, options = SCENES[name]
    made: Scene = kind(bench, data, name, options)
    try:
        yield made
    finally:
        made.close()
