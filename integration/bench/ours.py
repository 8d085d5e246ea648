"""The compared ways to copy with dray."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from dray.testing.endpoints import Endpoint, Root
from integration.bench import machine
from integration.bench.tools import (
    CLEAR,
    COMPARED,
    COPY,
    ENCRYPTED,
    NOBODY,
    THIRD,
    Command,
    Scene,
    Tool,
    at_once,
)
from integration.harness.program import Bench

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from integration.harness.program import Server, Word


def _copy(scene: Scene, *words: Word) -> list[Word]:
    return [scene.program, "cp", "--json", "--quiet", "-r", *words]


def _local(scene: Scene) -> Command:
    return Command(_copy(scene, f"{scene.data.path}/", scene.sink))


def serve(
    scene: Scene,
    root: Path,
    *,
    is_clear: bool,
    is_near: bool = False,
    user: Sequence[Word] = (),
) -> tuple[Bench, Server]:
    """Start ``dray serve``.

    :param is_near: start the server at the client's end instead of the far end.
    :param user: command prefix, from ``give_to_nobody``, that runs the server as another user.
    """
    folder = scene.folder / "dray"
    folder.mkdir(exist_ok=True)
    bench = Bench(folder, scene.program)
    if user:
        os.chown(bench.token, NOBODY, NOBODY)
    scene.at_end.callback(bench.close)
    may = ["--allow-clear-data"] if is_clear else []
    address, far = (scene.ends.here, ()) if is_near else (scene.ends.there, scene.ends.far)
    wrap = [*scene.processes.wrap, *far, *scene.own_session(), *map(os.fsdecode, user)]
    return bench, bench.serve(root, *may, listen=f"{address}:0", wrap=wrap)


def _served(scene: Scene, *more: Word, is_clear: bool) -> Command:
    bench, server = serve(scene, scene.sink, is_clear=is_clear)
    far = f"dray://{server.address}/"
    asked = ["--clear-data"] if is_clear else []
    return Command(_copy(scene, f"{scene.data.path}/", far, *asked, *more, *bench.peer(server)))


def _between(scene: Scene, *more: Word, is_clear: bool, jobs: tuple[str, ...] = ("",)) -> Command:
    config = {"clear_data": True} if is_clear else {}
    ends = []
    words: list[Word] = []
    for name, path, address, far in (
        ("from", scene.data.path, scene.ends.here, ()),
        ("to", scene.sink, scene.ends.there, scene.ends.far),
    ):
        root = Root("data", {"path": str(path.resolve())})
        at = f"{address}:{machine.free_port()}"
        end = Endpoint(
            scene.folder / name,
            name,
            roots=[root],
            # Outside the loopback the endpoint would advertise a name that no name service knows.
            config={**config, "advertise": at},
            program=scene.program,
            listen=at,
            wrap=[*scene.processes.wrap, *far, *scene.own_session()],
        )
        scene.at_end.callback(end.close)
        end.start()
        token = _secret(scene.folder / f"{name}.token", end.token())
        words += ["--token-file", f"{end.address}={token}"]
        words += ["--peer-key", f"{end.address}={end.key}"]
        ends.append(end)
    words += ["--clear-data", *more] if is_clear else more
    asked = [_copy(scene, ends[0].place(job), ends[1].place(job), *words) for job in jobs]
    return Command(asked[0] if len(jobs) == 1 else at_once(asked))


def _jobs(scene: Scene, *more: Word) -> Command:
    return _between(scene, *more, is_clear=True, jobs=scene.jobs())


def _secret(path: Path, text: str) -> Path:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as file:
        file.write(text)
    return path


TOOLS = (
    Tool(
        "dray",
        "dray",
        CLEAR,
        lambda scene: _served(scene, is_clear=True),
        is_ours=True,
        travels=True,
    ),
    Tool(
        "dray-verify",
        "dray, --verify",
        COMPARED,
        lambda scene: _served(scene, "--verify", is_clear=True),
        is_ours=True,
        travels=True,
    ),
    Tool(
        "dray-tls",
        "dray, encrypted (default)",
        ENCRYPTED,
        lambda scene: _served(scene, is_clear=False),
        is_ours=True,
        travels=True,
    ),
    Tool(
        "dray-third",
        "dray between two endpoints",
        THIRD,
        lambda scene: _between(scene, is_clear=True),
        is_ours=True,
        travels=True,
    ),
    Tool(
        "dray-third-tls",
        "dray between two endpoints, encrypted (default)",
        THIRD,
        lambda scene: _between(scene, is_clear=False),
        is_ours=True,
        travels=True,
    ),
    Tool("dray-one", "dray, one process", COPY, _local, is_ours=True),
)

#: Tools of which several commands run concurrently, one for each job.
JOBS = (
    Tool(
        "dray-third",
        "dray between two endpoints",
        THIRD,
        _jobs,
        is_ours=True,
        travels=True,
    ),
    Tool(
        "dray-third-verify",
        "dray between two endpoints, --verify",
        COMPARED,
        lambda scene: _jobs(scene, "--verify"),
        is_ours=True,
        travels=True,
    ),
)
