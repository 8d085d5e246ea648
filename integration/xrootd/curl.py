"""HTTP third-party copies as ``curl -X COPY`` requests them, and the answers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from integration.harness.program import Ended, Process, Word
    from integration.xrootd.http import Copying
    from integration.xrootd.servers import Scene


def begin(scene: Scene, url: str, *headers: str, trusted: Path | None = None) -> Process:
    """Start a copy request.

    :param trusted: the authority that signed the server's certificate.
    """
    words: list[Word] = [word for header in headers for word in ("-H", header)]
    words += [] if trusted is None else ["--cacert", trusted]
    status = "\nstatus %{http_code}\n"
    # Paths are sent unchanged, without curl's normalisation.
    return scene.begin("curl", "-sSN", "--path-as-is", "-X", "COPY", "-w", status, *words, url)


def ask(scene: Scene, url: str, *headers: str, trusted: Path | None = None) -> Ended:
    """Request a copy, and wait."""
    return begin(scene, url, *headers, trusted=trusted).wait(180)


def heard(client: Process) -> str:
    """Return the answer that a running client has received so far."""
    return client.out_path.read_text(encoding="utf-8", errors="replace")


def status(ended: Ended) -> int:
    """Return the status of the server's answer."""
    match = re.search(r"^status (\d+)$", ended.out, re.MULTILINE)
    assert match, ended.out + ended.words
    return int(match[1])


def assert_good(ended: Ended) -> None:
    """Check that the last line of a copy reports success."""
    assert status(ended) in (201, 202), ended.out
    assert re.search(r"^success: Created$", ended.out, re.MULTILINE), ended.out
    assert "failure:" not in ended.out


def failure(ended: Ended) -> str:
    """Return the cause of a copy that failed after its start."""
    assert "success" not in ended.out
    match = re.search(r"^failure: (.+)$", ended.out, re.MULTILINE)
    assert match, ended.out + ended.words
    return match[1]


def durable(text: str) -> list[int]:
    """Return the durable bytes of each marker."""
    return [int(count) for count in re.findall(r"Stripe Bytes Transferred: (\d+)", text)]


def sent(sink: Copying) -> list[tuple[int, int]]:
    """Return the sent and the resumed bytes of each ended copy."""
    found = re.findall(r"sent=(\d+) resumed=(\d+)", sink.server.said())
    return [(int(one), int(other)) for one, other in found]
