"""Killed processes: the source, the sink, the client, and all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from integration.fault_matrix.fault import ALL_FORMS, Fault

if TYPE_CHECKING:
    from integration.fault_matrix.scene import Scene

GROUP = "processes"


def _kill_source(scene: Scene) -> None:
    scene.source.kill()
    scene.look()
    scene.source.start()


def _kill_sink(scene: Scene) -> None:
    scene.sink.kill()
    scene.look()
    scene.sink.start()


def _kill_client(scene: Scene) -> None:
    scene.client.kill()
    scene.look()


def _kill_all(scene: Scene) -> None:
    scene.sink.kill()
    scene.source.kill()
    scene.client.kill()
    scene.look()
    scene.source.start()
    scene.sink.start()


FAULTS = (
    Fault("source-killed", GROUP, "`kill -9` of the source's endpoint", _kill_source),
    Fault("sink-killed", GROUP, "`kill -9` of the sink's endpoint", _kill_sink),
    Fault("client-killed", GROUP, "`kill -9` of the client", _kill_client),
    Fault(
        "all-killed",
        GROUP,
        "`kill -9` of both endpoints and the client",
        _kill_all,
        forms=ALL_FORMS,
    ),
)
