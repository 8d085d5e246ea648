"""The commands of the tutorial print what its page says."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
from typing import TYPE_CHECKING

import pytest

from dray.testing.endpoints import find_program
from integration.harness.program import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGE = ROOT / "docs" / "tutorial" / "checkpoints.md"
END_SECONDS = 180
STATES = r"\b(written|demoting|demoted|slow)\b"


def steps(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each command of a page, with the lines that it prints according to the page."""
    command: list[str] = []
    output: list[str] = []
    is_open = is_heredoc = False
    for line in text.splitlines():
        inside = line.removeprefix("    ")
        if is_open:
            command.append(inside)
            is_open = inside != "END" if is_heredoc else inside.endswith("\\")
        elif line.startswith("    $ "):
            if command:
                yield "\n".join(command), output
            command, output = [inside.removeprefix("$ ")], []
            is_heredoc = "<<'END'" in inside
            is_open = is_heredoc or inside.endswith("\\")
        elif line.startswith("    ") and command:
            output.append(inside)
    yield "\n".join(command), output


def shape(line: str) -> str:
    """Return a line with placeholders for the parts that differ between two runs."""
    line = re.sub(r"sha256:[0-9a-f]{64}", "KEY", line.strip())
    line = re.sub(r"\b[0-9a-f]{16}\b", "ID", line)
    line = re.sub(r"/\S*/dray-tier/", "HERE/", line)
    if re.match(r"sim \d+: ", line):
        line = re.sub(STATES, "STATE", line.split(";")[0])
    if line.startswith(("period of", "no application writes", "an application writes")):
        line = line.split(":")[0].replace("no application", "an application")
    return re.sub(r"\d+(\.\d+)?", "N", line)


@pytest.fixture
def port() -> int:
    """Return an unused port."""
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.timeout(END_SECONDS + 30)
def test_the_commands_of_the_page_print_what_it_says(tmp_path: Path, port: int) -> None:
    told = list(steps(PAGE.read_text(encoding="utf-8").replace("4811", str(port))))
    assert len(told) > 15
    mark = secrets.token_hex(8)
    script = ["set -o pipefail", "trap 'kill $site 2>/dev/null' EXIT"]
    for command, _ in told:
        script += [command, f"echo {mark} $?"]
    keep = ("PATH", "HOME", "LANG", "TMPDIR")
    environment = {name: os.environ[name] for name in keep if name in os.environ}
    environment["PATH"] = f"{find_program().parent}:{environment['PATH']}"
    done = subprocess.run(
        ["bash"],
        input="\n".join(script),
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=END_SECONDS,
    )
    parts = re.split(rf"{mark} (\d+)\n", done.stdout)
    printed, codes = parts[0::2], parts[1::2]
    assert len(codes) == len(told), done.stdout
    for (command, wanted), output, code in zip(told, printed, codes, strict=False):
        assert code == "0", f"{command}\n{output}"
        # Search instead of comparing lines: the outputs of two programs may mix within a line.
        found = "\n".join(shape(line) for line in output.splitlines())
        for line in wanted:
            assert shape(line) in found, f"{command}\nprints\n{output}\nand not\n{line}"
    # The first stage-in is a hit. The second one copies, because the fast folder was lost.
    restarts = [
        out for (command, _), out in zip(told, printed, strict=False) if "stage in" in command
    ]
    assert [", hit" in output for output in restarts] == [True, False], restarts
    # The fast folder has only a part of the written data, and the slow folder has all of it.
    (sizes,) = (
        out for (command, _), out in zip(told, printed, strict=False) if "du -sm" in command
    )
    fast, slow = (int(line.split()[0]) for line in sizes.splitlines())
    assert slow >= 120, sizes
    assert fast <= 33, sizes
