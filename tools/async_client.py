"""Generate the awaiting client from the blocking client: ``python tools/async_client.py``.

A method of the blocking client becomes a coroutine, and an iterator becomes an asynchronous
iterator. Only the blocking client has the full documentation. The methods of the awaiting client
refer to the blocking client.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

CLIENT = Path(__file__).resolve().parents[1] / "engine" / "python" / "dray" / "client"
BLOCKING = CLIENT / "_sync.py"
AWAITING = CLIENT / "_async.py"

HEAD = '''"""The awaiting client: each call of the API is a method, as in :class:`Client`.

tools/async_client.py generates this module from _sync.py. A test checks that both files agree.
"""'''
CLASS = '''class AsyncClient(Awaiting):
    """A client for :mod:`asyncio`. :class:`Client` documents each method.

    An instance belongs to the event loop (of :mod:`asyncio`) that first used it.
    """'''


def written(source: str) -> str:
    """Return the source of the awaiting client, made from the source of the blocking client.

    :raises ValueError: if the source is not a module with a docstring and one class.
    """
    tree = ast.parse(source)
    client = tree.body[-1]
    if not isinstance(client, ast.ClassDef) or ast.get_docstring(tree) is None:
        raise ValueError(f"{BLOCKING.name} must have a docstring and end with its one class")
    lines = source.splitlines()
    imports = "\n".join(lines[tree.body[0].end_lineno or 1 : client.lineno - 1])
    imports = imports.replace("import Generator", "import AsyncGenerator")
    imports = imports.replace("_blocking import Blocking", "_awaiting import Awaiting")
    imports = imports.replace('["Client"]', '["AsyncClient"]')
    methods = [_method(one, lines) for one in client.body if isinstance(one, ast.FunctionDef)]
    return formatted("\n\n".join([HEAD + imports, CLASS, *methods]) + "\n")


def _method(method: ast.FunctionDef, lines: list[str]) -> str:
    """Return the awaiting form of a method."""
    first = method.body[0]
    head = "\n".join(lines[method.lineno - 1 : first.lineno - 1])
    body = "\n".join(lines[first.end_lineno or 0 : method.end_lineno])
    if "Generator[" in head:
        head = re.sub(r"Generator\[(.*), None, None\]", r"AsyncGenerator[\1, None]", head)
        words = "Iterate over"
    else:
        head = head.replace("def ", "async def ", 1)
        body = body.replace("self._run(", "await self._run(")
        words = "Await"
    return f'{head}\n        """{words} :meth:`Client.{method.name}`."""\n{body}'


def formatted(text: str) -> str:
    """Return a module with sorted imports, formatted by ruff."""
    for command in (["check", "--select", "I", "--fix", "--quiet"], ["format", "--quiet"]):
        words = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(AWAITING), "-"]
        ended = subprocess.run(words, input=text, capture_output=True, text=True, check=True)
        text = ended.stdout
    return text


if __name__ == "__main__":
    AWAITING.write_text(written(BLOCKING.read_text(encoding="utf-8")), encoding="utf-8")
