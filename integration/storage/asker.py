"""Commands to a Ceph cluster by Debian's Python bindings of librados.

The bindings work only with Debian's Python, so this module also runs as a program in that Python.
``asker.py CONFIGURATION USER`` reads one JSON request per line, and writes one JSON answer per
line.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

#: The Python for which Debian builds its bindings.
PYTHON = "/usr/bin/python3"


def is_installed() -> bool:
    """Return whether Debian's Python has the bindings of librados."""
    words = [PYTHON, "-c", "import rados"]
    return Path(PYTHON).exists() and subprocess.run(words, check=False).returncode == 0


class Asker:
    """A connection to a cluster. A separate process holds the connection."""

    def __init__(self, configuration: Path, user: str = "admin") -> None:
        """Start the process, which connects to the cluster."""
        words: list[str | Path] = [PYTHON, Path(__file__), configuration, user]
        self._popen = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._turn = threading.Lock()

    def ask(self, **request: object) -> Any:  # noqa: ANN401 - JSON or bindings without types
        """Send one request, and return its answer.

        :raises RuntimeError: if the cluster refuses the request.
        """
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        with self._turn:
            self._popen.stdin.write(json.dumps(request) + "\n")
            self._popen.stdin.flush()
            line = self._popen.stdout.readline()
        if not line:
            raise RuntimeError(f"the connection to the cluster ended at {request}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"{request}: {answer['error']}")
        return answer["value"]

    def close(self) -> None:
        """End the process."""
        self._popen.kill()
        self._popen.wait()


def _answer(cluster: Any, request: dict[str, Any]) -> object:  # noqa: ANN401 - JSON or bindings without types
    """Execute a request in the process, and return its answer."""
    to = request["to"]
    if to == "map":
        return [
            _command(
                cluster.mon_command,
                {
                    "prefix": "osd map",
                    "pool": request["pool"],
                    "object": name,
                    **({"nspace": request["namespace"]} if request["namespace"] else {}),
                },
            )
            for name in request["names"]
        ]
    if to in ("names", "attributes", "read", "write", "remove", "age"):
        with cluster.open_ioctx(request["pool"]) as pool:
            return _of_objects(pool, to, request)
    if to == "osd":
        return _command(lambda text, data: cluster.osd_command(request["osd"], text, data), request)
    return _command(cluster.mon_command if to == "mon" else cluster.mgr_command, request)


def _of_objects(pool: Any, to: str, request: dict[str, Any]) -> object:  # noqa: ANN401 - JSON or bindings without types
    """Execute a request about the objects of a pool."""
    pool.set_namespace(request.get("namespace", ""))
    if to == "names":
        return sorted(each.key for each in pool.list_objects())
    if to == "age":
        return _age(pool, request["seconds"], request["without"])
    name = request["name"]
    if to == "attributes":
        return {key: value.decode("latin-1") for key, value in pool.get_xattrs(name)}
    if to == "read":
        return pool.read(name, request["bytes"]).decode("latin-1")
    if to == "write":
        return pool.write_full(name, request["text"].encode("latin-1"))
    return pool.remove_object(name)


def _age(pool: Any, seconds: int, without: str) -> object:  # noqa: ANN401 - JSON or bindings without types
    """Set the times of a namespace's objects to ``seconds`` ago. Return their number."""
    import rados  # type: ignore[import-not-found]

    names = [each.key for each in pool.list_objects()]
    names = [name for name in names if not (without and name.startswith(without))]
    for name in names:
        with rados.WriteOpCtx() as change:
            change.set_xattr("test.aged", b"1")
            pool.operate_write_op(change, name, mtime=int(time.time()) - seconds)
    return len(names)


def _command(call: Callable[[str, bytes], Any], request: dict[str, Any]) -> object:
    """Send a command to the cluster, and return the parsed answer."""
    words = {key: value for key, value in request.items() if key not in ("to", "osd")}
    code, out, status = call(json.dumps({**words, "format": "json"}), b"")
    if code != 0:
        raise RuntimeError(f"{code} {status}")
    try:
        return json.loads(out)
    except ValueError:
        return out.decode("latin-1")


def _run(configuration: str, user: str) -> None:
    import rados

    cluster = rados.Rados(conffile=configuration, name=f"client.{user}")
    cluster.connect(timeout=30)
    for line in sys.stdin:
        try:
            answer = {"value": _answer(cluster, json.loads(line))}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _run(sys.argv[1], sys.argv[2])
