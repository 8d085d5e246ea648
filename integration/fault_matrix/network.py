"""Connections that are cut, and bytes that change on the wire."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from integration.fault_matrix.fault import Fault

if TYPE_CHECKING:
    from dray.testing.proxy import Connection
    from integration.fault_matrix.scene import Scene

GROUP = "network"
FLIP_SECONDS = 60.0


def _cut(scene: Scene) -> None:
    if scene.proxy.cut() == 0:
        scene.seen.found.append("there was no connection to cut")
    scene.look()


def _flip(scene: Scene) -> None:
    """Flip one bit in the middle of the next piece of a data connection."""
    is_done = threading.Event()

    def flip(connection: Connection, piece: memoryview) -> None:
        if connection.is_data and len(piece) >= 1024 and not is_done.is_set():
            is_done.set()
            piece[len(piece) // 2] ^= 0x10

    scene.proxy.on_down = flip
    if not is_done.wait(FLIP_SECONDS):
        scene.seen.found.append("no data travelled after the moment of the flip")
    time.sleep(0.1)
    scene.proxy.on_down = None
    scene.look()


def _clear(scene: Scene) -> None:
    scene.config["clear_data"] = True
    scene.request["clear_data"] = True


FAULTS = (
    Fault("connections-cut", GROUP, "a proxy resets all connections of the transfer", _cut),
    Fault("wire-flip", GROUP, "a proxy flips a bit of a TLS record with data", _flip),
    Fault(
        "wire-flip-clear",
        GROUP,
        "a proxy flips a bit of data on a connection without TLS (`clear_data`)",
        _flip,
        prepare=_clear,
    ),
)
