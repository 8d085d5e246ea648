"""HTTP third-party copies, requested by ``curl -X COPY``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from integration.harness.program import Ended, Process, Word
    from integration.xrootd.http import Copying
    from integration.xrootd.servers import Scene


def begin(scene: Scene, url: str, *headers: str, trusted: Path | None = None) -> Process:
    """Start to request a copy.

    :param trusted: certificate of the authority that signed the server's certificate.
    """
    words: list[Word] = [word for header in headers for word in ("-H", header)]
    words += [] if trusted is None else ["--cacert", trusted]
    status = "\nstatus %{http_code}\n"
    # ``--path-as-is``: curl must not normalise the path.
    return scene.begin("curl", "-sSN", "--path-as-is", "-X", "COPY", "-w", status, *words, url)


def ask(scene: Scene, url: str, *headers: str, trusted: Path | None = None) -> Ended:
    """Request a copy, and wait for its end."""
    return begin(scene, url, *headers, trusted=trusted).wait(180)


def heard(client: Process) -> str:
    """Return the part of the answer that a running curl has received."""
    return client.out_path.read_text(encoding="utf-8", errors="replace")


def status(ended: Ended) -> int:
    """Return the HTTP status of the answer."""
    match = re.search(r"^status (\d+)$", ended.out, re.MULTILINE)
    assert match, ended.out + ended.words
    return int(match[1])


def assert_good(ended: Ended) -> None:
    """Check that the answer reports a successful copy."""
    assert status(ended) in (201, 202), ended.out
    assert re.search(r"^success: Created$", ended.out, re.MULTILINE), ended.out
    assert "failure:" not in ended.out


def failure(ended: Ended) -> str:
    """Return the reported cause of a copy that failed after its start."""
    assert "success" not in ended.out
    match = re.search(r"^failure: (.+)$", ended.out, re.MULTILINE)
    assert match, ended.out + ended.words
    return match[1]


def durable(text: str) -> list[int]:
    """Return the number of durable bytes in each performance marker of an answer."""
    return [int(count) for count in re.findall(r"Stripe Bytes Transferred: (\d+)", text)]


def sent(sink: Copying) -> list[tuple[int, int]]:
    """Return the sent and the resumed bytes of each ended copy."""
    found = re.findall(r"sent=(\d+) resumed=(\d+)", sink.server.said())
    return [(int(one), int(other)) for one, other in found]
