"""``dray serve`` beside a source's server, and the settings of a destination for it."""

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
    """Start dray on a folder. All servers of a scene have the same key and accept the same token.

    :param root: folder that the XRootD server on the same host exports.
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
    """Return the lines of a destination's settings that name a dray server.

    :param source: the XRootD server that exports the same folder, as ``host:port``.
    """
    said = {
        "servers": [source],
        "address": server.address,
        "peer_key": server.fingerprint,
        "token_file": str(token_of(scene)),
    }
    return ["[[endpoint]]", *(f"{name} = {json.dumps(value)}" for name, value in said.items())]


def token_of(scene: Scene) -> Path:
    """Return the file with its token."""
    return scene.folder / "token"
