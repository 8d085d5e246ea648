"""Stages a list of files with the calls of gfal2 that the staging daemons of FTS make.

The program runs with the system's Python, which has the bindings of gfal2. Its arguments are
``fts_staging.py URLS METADATA PINNED TIMEOUT``. The file URLS has one URL per line. The program
prints one JSON object: the token, the number of polls, and the result of each call by URL. It makes
the calls in the order of FTS: archive_poll, bring_online with a list and metadata,
bring_online_poll until no file is pending, archive_poll, release with the token. With ``abort`` as
a fifth argument, the program aborts the request after the first poll.
"""

from __future__ import annotations

import errno
import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

PAUSE_SECONDS = 0.5


def said(errors: Any, urls: list[str]) -> dict[str, str]:  # noqa: ANN401 - objects of gfal2
    """Return the result of each URL: empty, or the number and the text of its error."""
    results = {}
    for url, error in zip(urls, errors, strict=True):
        results[url] = "" if error is None else f"{error.code} {error.message}"
    return results


def pending(results: dict[str, str]) -> int:
    """Return the number of files that are not staged yet."""
    return sum(text.startswith(f"{errno.EAGAIN} ") for text in results.values())


def main(file: str, metadata: str, pinned: str, timeout: str, *more: str) -> None:
    """Stage the files."""
    urls = Path(file).read_text(encoding="utf-8").split()
    context: Any = importlib.import_module("gfal2").creat_context()
    found: dict[str, Any] = {"before": said(context.archive_poll(urls), urls)}
    given = [metadata] * len(urls)
    began = time.monotonic()
    errors, token = context.bring_online(urls, given, int(pinned), int(timeout), True)
    found["accepted_seconds"] = time.monotonic() - began
    found["token"], found["accepted"] = token, said(errors, urls)
    polls = 0
    while True:
        results = said(context.bring_online_poll(urls, token), urls)
        polls += 1
        if "abort" in more:
            found["aborted"] = said(context.abort_bring_online(urls, token), urls)
            break
        if pending(results) == 0 or time.monotonic() - began > int(timeout):
            break
        time.sleep(PAUSE_SECONDS)
    found["polls"], found["staged_seconds"] = polls, time.monotonic() - began
    found["staged"] = results
    found["after"] = said(context.archive_poll(urls), urls)
    found["released"] = said(context.release(urls, token), urls)
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
