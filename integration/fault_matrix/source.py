"""Sources that change between two runs, other hosts and replicas."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from integration.fault_matrix.fault import Fault
from integration.fault_matrix.logs import ranges_of, read
from integration.fault_matrix.storage import other_host, other_host_reason
from integration.harness import tree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from integration.fault_matrix.scene import Scene

GROUP = "source"


def _own_copy(scene: Scene) -> None:
    """Let the source serve a copy of the tree, which the fault may change."""
    served = scene.folder / "served"
    _copy(scene.data.served, served)
    scene.served = served


def _copy(served: Path, to: Path) -> None:
    shutil.copytree(served, to, symlinks=True)
    for folder, _, _ in os.walk(served, topdown=False):
        shutil.copystat(folder, to / os.path.relpath(folder, served))


def _victims(scene: Scene) -> list[Path]:
    """Return an unfinished file and a finished file, as far as there are such files."""
    started = [path for path, ranges in ranges_of(read(scene.top)).items() if ranges]
    done = [path for path in sorted((scene.top / "tree").rglob("*")) if path.is_file()]
    chosen = [scene.served / path for path in started[:1]]
    chosen += [scene.served / path.relative_to(scene.top) for path in done if not _is_own(path)][:1]
    return chosen or [next(path for path in sorted(scene.served.rglob("*")) if path.is_file())]


def _is_own(path: Path) -> bool:
    return path.name.startswith(".dray-")


def _changed(change: Callable[[Path], None]) -> Callable[[Scene], None]:
    def strike(scene: Scene) -> None:
        scene.client.kill()
        scene.sink.kill()
        scene.source.kill()
        scene.look()
        for path in _victims(scene):
            times = path.parent.stat()
            change(path)
            os.utime(path.parent, ns=(times.st_atime_ns, times.st_mtime_ns))
            # All bytes of the file are sent once more.
            scene.seen.destroyed += path.stat().st_size
        scene.unwatch()
        scene.versions.append(tree.describe(scene.served / "tree"))
        scene.watch()
        scene.source.start()
        scene.sink.start()

    return strike


def _grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more bytes" * 100)


def _touch(path: Path) -> None:
    state = path.stat()
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns + 5 * 10**9))


def _rewrite(path: Path) -> None:
    size = path.stat().st_size
    tree.make_file(path, size, seed=size)


def _elsewhere(scene: Scene) -> None:
    """Continue on another host, which has the same storage."""
    scene.client.kill()
    scene.sink.kill()
    scene.stopped.append(scene.sink.name)
    scene.look()
    scene.sink_words = other_host(scene.folder, "otherhost")
    scene.sink = scene.sink_endpoint("sink-b")


def _prepare_replica(scene: Scene) -> None:
    _copy(scene.data.served, scene.folder / "replica")
    scene.replica = scene.folder / "replica"


def _from_replica(scene: Scene) -> None:
    """Continue from an equal copy at another endpoint."""
    assert scene.replica is not None
    scene.client.kill()
    scene.source.kill()
    scene.stopped.append(scene.source.name)
    scene.look()
    replica = scene.source_endpoint("replica-a", scene.replica)
    scene.sources = [replica]
    with scene.sink.client() as client:
        client.cancel(scene.request["id"])
        client.wait(scene.request["id"], timeout_seconds=60)
    scene.request["id"] = "from-a-replica"


FAULTS = (
    Fault(
        "source-grows",
        GROUP,
        "all processes are killed, and up to two source files get longer before the next run",
        _changed(_grow),
        prepare=_own_copy,
    ),
    Fault(
        "source-touched",
        GROUP,
        "all processes are killed, and only the modification times of up to two source files "
        "change before the next run",
        _changed(_touch),
        prepare=_own_copy,
    ),
    Fault(
        "source-rewritten",
        GROUP,
        "all processes are killed, and up to two source files get other bytes of the same length "
        "before the next run",
        _changed(_rewrite),
        prepare=_own_copy,
    ),
    Fault(
        "other-host",
        GROUP,
        "the sink's endpoint is killed for good, and an endpoint on another host (other boot id, "
        "host name, state and key) continues in the same folder",
        _elsewhere,
        reason_to_skip=other_host_reason,
    ),
    Fault(
        "replica",
        GROUP,
        "the source's endpoint is killed for good, the transfer is cancelled, and another transfer "
        "continues from an equal copy at another endpoint",
        _from_replica,
        prepare=_prepare_replica,
    ),
)
