"""Calls of :mod:`integration.rucio.inside`, which runs in a process with Rucio's environment."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Mapping


def call(
    process: subprocess.Popen[str], name: str, words: Mapping[str, Any], said: Callable[[], str]
) -> Any:  # noqa: ANN401 - JSON
    """Call a function of :mod:`integration.rucio.inside` in its process, and return the result.

    :param said: returns the log of the process.
    :raises AssertionError: with the stack of the other process, if the function fails.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps([name, words]) + "\n")
    process.stdin.flush()
    line = process.stdout.readline()
    assert line, f"it ended in {name}\n{said()}"
    answer = json.loads(line)
    assert "error" not in answer, answer["error"]
    return answer["ok"]
