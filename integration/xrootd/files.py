"""Files of XRootD servers, and dray's reports of its copies in the servers' logs."""

from __future__ import annotations

import os
import re
import shutil
import struct
import time
from typing import TYPE_CHECKING

from integration.harness.tree import make_file
from integration.xrootd.servers import PROGRAM, find, give

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from integration.xrootd.servers import Scene, Xrootd

#: Maximum bytes of a log that records no durable data yet.
LOG_BEGINS = 512
#: File name of dray's wrapper of a server's storage. A server's configuration names it without the
#: number.
WRAPPER = "libDrayXrdOss-5.so"
#: Line in a server's log with which dray reports a copy.
SAID = re.compile(r"dray copy \d+ sent=(\d+) resumed=(\d+) durable=(\d+)")


def copies(server: Xrootd) -> list[tuple[int, int]]:
    """Return the sent and the resumed bytes of each copy that a server's log reports."""
    return [(int(sent), int(safe)) for sent, safe, _ in SAID.findall(server.said())]


def pair(scene: Scene, *config: str) -> tuple[Xrootd, Xrootd]:
    """Start a stock source, and a destination whose third-party copies dray makes."""
    source = scene.server("source", tpc="pgm /usr/bin/xrdcp --server")
    return source, scene.server("sink", tpc=configured(scene, *config))


def hide(scene: Scene) -> str:
    """Return the configuration line that loads dray's wrapper, which hides placeholders."""
    if not (scene.folder / WRAPPER).exists():
        shutil.copy(find(WRAPPER), scene.folder / WRAPPER)
        (scene.folder / WRAPPER).chmod(0o755)
    return f"ofs.osslib ++ {scene.folder}/libDrayXrdOss.so"


def hiding(scene: Scene, *config: str, options: str = "", lines: Sequence[str] = ()) -> Xrootd:
    """Start a destination with dray's wrapper, whose third-party copies dray makes."""
    tpc = options + configured(scene, *config)
    return scene.server("sink", tpc=tpc, lines=[hide(scene), *lines])


def configured(scene: Scene, *lines: str) -> str:
    """Return the arguments of ``ofs.tpc`` with which dray makes the copies. Write its settings."""
    path = scene.folder / "tpc.toml"
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    path.chmod(0o644)
    return f"pgm {scene.programs / PROGRAM} --config {path}"


def make(server: Xrootd, path: str, size: int, seed: int = 1) -> Path:
    """Make a file of ``size`` bytes in the data folder of a server."""
    at = server.path(path)
    for folder in reversed(at.relative_to(server.data).parents[:-1]):
        (server.data / folder).mkdir(exist_ok=True)
        give(server.data / folder)
    make_file(at, size, seed)
    give(at)
    return at


def set_checksum(path: Path, value: int) -> None:
    """Set the attribute in which XRootD stores the adler32 of a file."""
    state = path.stat()
    seconds = int(state.st_mtime)
    fields = (b"adler32", seconds, 0, 0, 0, 4, struct.pack(">I", value))
    os.setxattr(path, "user.XrdCks.adler32", struct.pack(">16sqiHBB64s", *fields))


def partial_bytes(sink: Xrootd) -> int:
    """Return the bytes of partial files on the disk."""
    return sum(part.stat().st_blocks * 512 for part in sink.data.glob(".dray-*.part"))


def await_safe(sink: Xrootd, size: int, seconds: float = 60) -> None:
    """Wait until partial files have ``size`` bytes on the disk, and a log records durable data."""
    until = time.monotonic() + seconds
    while True:
        logs = list(sink.data.glob(".dray-log/*.log"))
        if partial_bytes(sink) >= size and sum(log.stat().st_size for log in logs) > LOG_BEGINS:
            return
        assert time.monotonic() < until, f"no data is durable:\n{sink.said()}"
        time.sleep(0.005)
