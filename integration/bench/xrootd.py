"""XRootD's server, as the benchmark starts it: in a private network, as an ordinary user."""

from __future__ import annotations

from typing import TYPE_CHECKING

from integration.bench import machine
from integration.xrootd.servers import usual_lines

if TYPE_CHECKING:
    from pathlib import Path

    from integration.bench.tools import Scene
    from integration.harness.program import Word


def server(
    scene: Scene,
    name: str,
    root: Path,
    *lines: str,
    env: dict[str, str] | None = None,
    is_near: bool = False,
) -> int:
    """Start an XRootD server. Return its port.

    :param root: the folder that the server exports.
    :param lines: further lines of the server's configuration.
    :param is_near: start the server at the client's end of the network path, not at the far end.
    """
    port = machine.free_port()
    # The server uses a subfolder of its working folder, which has the name of the server. Create
    # the subfolder here, so that it belongs to the server's user.
    state = scene.folder / name
    user = scene.give_to_nobody(state)
    state.mkdir(exist_ok=True)
    config = scene.write(f"{name}.cf", [*usual_lines(port, state, root), *lines])
    words: list[Word] = [*user, "xrootd", "-I", "v4", "-c", config, "-n", name]
    scene.serve(name, port, words, env=env, is_near=is_near)
    return port
