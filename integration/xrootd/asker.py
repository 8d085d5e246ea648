"""Query an XRootD server about an open file, through dray's library over XrdCl.

``asker.py LIBRARY URL QUESTION`` opens the file, sends the query, and prints the answer as JSON.
Each query runs in a separate process, because a process cannot end the threads of XrdCl.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ANSWER_BYTES = 4096
SECONDS = 60


class Failure(ctypes.Structure):
    """``struct dray_xrdcl_error`` of the library."""

    _fields_ = (("kind", ctypes.c_int32), ("words", ctypes.c_char * 1020))


def ask(library: Path, url: str, question: str, env: dict[str, str]) -> dict[str, Any]:
    """Run this module as a program, and return its output as a dictionary.

    The dictionary has the key ``answer``. After an error it has the keys ``error`` and ``failed``,
    which names the step that failed.

    :param env: environment variables for XrdCl, for example timeouts.
    """
    words: list[str | Path] = [sys.executable, Path(__file__), library, url, question]
    ended = subprocess.run(
        words,
        check=True,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env={**os.environ, **env},
    )
    said: dict[str, Any] = json.loads(ended.stdout)
    return said


def main(library: str, url: str, question: str) -> dict[str, str]:
    """Open the file and query the server in this process."""
    shim = ctypes.CDLL(library)
    failure, file = Failure(), ctypes.c_void_p()
    answer = ctypes.create_string_buffer(ANSWER_BYTES)
    opened = shim.dray_xrdcl_open(url.encode(), 0, 0, 0, ctypes.byref(file), ctypes.byref(failure))
    if opened != 0:
        return {"failed": "open", "error": failure.words.decode()}
    asked = shim.dray_xrdcl_ask(
        file, question.encode(), 20, answer, ANSWER_BYTES, ctypes.byref(failure)
    )
    shim.dray_xrdcl_close(file)
    if asked != 0:
        return {"failed": "ask", "error": failure.words.decode()}
    return {"answer": answer.value.decode()}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(*sys.argv[1:])))
    sys.stdout.flush()
    # End without waiting for the threads of XrdCl.
    os._exit(0)
