"""A ``dray serve`` that exports the same folder as an XRootD server."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

from integration.harness.program import Server
from integration.xrootd.servers import HERE, as_user, give

if TYPE_CHECKING:
    from pathlib import Path

    from integration.harness.program import Word
    from integration.xrootd.servers import Scene


def serve(scene: Scene, root: Path, program: Path, listen: str = f"{HERE}:0") -> Server:
    """Start ``dray serve``. All such servers of a scene have the same key and token.

    :param root: the folder that the XRootD server exports.
    """
    own, token = scene.folder / "dray", token_of(scene)
    if not own.exists():
        shutil.copy(program, own)
        own.chmod(0o755)
        token.write_text("a-token-that-nobody-guesses-0123456789\n", encoding="ascii")
        token.chmod(0o600)
        give(token)
    words: list[Word] = [own, "serve", "--json", "--root", root, "--listen", listen]
    words += ["--token-file", token, "--identity", scene.folder / "identity"]
    return Server(words, scene.folder, "serve", wrap=as_user()).await_ready()


def settings(scene: Scene, server: Server, source: str) -> list[str]:
    """Return configuration lines of a destination, which name the ``dray serve`` of a source.

    :param source: address of the XRootD server that exports the same folder, as ``host:port``.
    """
    said = {
        "servers": [source],
        "address": server.address,
        "peer_key": server.fingerprint,
        "token_file": str(token_of(scene)),
    }
    return ["[[endpoint]]", *(f"{name} = {json.dumps(value)}" for name, value in said.items())]


def token_of(scene: Scene) -> Path:
    """Return the path of the file with the token of ``dray serve``."""
    return scene.folder / "token"
