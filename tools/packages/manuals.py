"""Write the manual pages from the help texts of the programs, with help2man."""

from __future__ import annotations

import gzip
import re
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.packages.build import run, version

SEE_ALSO = """\
[see also]
The documentation of dray describes every option, configuration key and call of the control API.
"""


def commands(program: Path) -> list[tuple[str, str]]:
    """Return each command of the program with one sentence about it, from its own reference."""
    reference = run([program, "docs-cli"])
    found = re.findall(r"^## `(dray [a-z -]+)`\n\n(.+?)\.?\n", reference, re.MULTILINE)
    return [(command, sentence) for command, sentence in found]


def packed(text: str) -> bytes:
    """Compress a page. The same text yields the same bytes: the result contains no time."""
    return gzip.compress(text.encode(), compresslevel=9, mtime=0)


def write(folder: Path, page: str, section: int, command: list[str | Path], title: str) -> None:
    """Write one manual page.

    :param page: name of the page.
    :param title: one sentence, for the list of pages (`whatis`).
    """
    with tempfile.TemporaryDirectory() as temporary:
        # help2man derives the name of a page from the name of the program.
        script = Path(temporary) / page
        words = " ".join(f"'{word}'" for word in command)
        script.write_text(f'#!/bin/sh\nexec {words} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
        more = Path(temporary) / "more"
        more.write_text(SEE_ALSO, encoding="utf-8")
        title = title[:1].lower() + title[1:]
        options = [f"--section={section}", f"--name={title}", f"--include={more}"]
        text = run(["help2man", "--no-info", f"--version-string={version()}", *options, script])
    target = folder / f"man{section}" / f"{page}.{section}.gz"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(packed(text))


def write_all(program: Path, folder: Path) -> None:
    """Write the pages of `dray`, of each of its commands, and of `drayd`."""
    first = "Move scientific data between hosts and storage"
    drayd = program.with_name("drayd")
    pages: list[tuple[str, int, list[str | Path], str]] = [("dray", 1, [program], first)]
    pages.append(("drayd", 8, [drayd], "Run a dray endpoint"))
    for command, sentence in commands(program):
        name, *rest = command.split()
        pages.append(("-".join([name, *rest]), 1, [program, *rest], sentence))
    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(write, folder, *page) for page in pages]:
            done.result()
