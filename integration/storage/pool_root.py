"""Copies between an endpoint with a folder and endpoints whose root is a pool of a Ceph cluster.

A proxy in front of the endpoint with the folder counts the sent bytes. Ceph's program ``rados``
reads the copied data. So the tests need no reports of the endpoints.
"""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING, Any

from dray.client import Policy, Request, Retry, copy
from dray.testing.endpoints import Root
from dray.testing.proxy import Proxy
from integration.harness.program import Process

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from types import TracebackType

    from dray.client import Client, Transfer
    from dray.testing.endpoints import Endpoint
    from integration.harness.program import Word
    from integration.storage.ceph import Cluster

MIB = 1 << 20
OBJECT = 4 * MIB
#: Namespace of the pool, and folder in it, that are the root.
SPACE, TOP = "site", "/data"
STATE = f"{SPACE}.dray"
#: Limits of an endpoint. They give a session at most ``POOL_BYTES`` for its buffers.
LIMITS = {"memory": "64MiB", "transfers_active": 2}
POOL_BYTES = 15 * MIB
SYNC_GROUP_BYTES = 64 * MIB
#: Maximum bytes of frames, TLS records and object heads in a transfer.
OVERHEAD_BYTES = MIB
#: Limits of a client's calls: each call returns or fails within 60 seconds.
CALLS = Policy(seconds=60, tries=60, first_pause=0.1, longest_pause=1.0)
PATIENT = Retry(tries=60, interval_seconds=1)
END_SECONDS = 240.0


def make_file(path: Path, size: int, seed: int) -> Path:
    """Write ``size`` random bytes to a new file, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(random.Random(seed).randbytes(size))
    return path


class Pool:
    """A new pool of a Ceph cluster. Ceph's program ``rados`` reads and writes its files."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        """Create the pool.

        :param folder: for temporary files.
        """
        self.cluster, self.folder = cluster, folder
        self.name = f"root{time.monotonic_ns()}"
        cluster.make_pool(self.name)

    @property
    def url(self) -> str:
        """The URL of the root in this pool."""
        return f"rados://{self.name}@{SPACE}/{TOP}?conf={self.cluster.configuration}"

    def read(self, path: str) -> bytes | None:
        """Return the content of a file, or None if the file does not exist.

        On a full pool this waits, because libradosstriper locks the first object of the file.
        """
        out = self.folder / f"read-{threading.get_ident()}-{time.monotonic_ns()}"
        words: list[Word] = ["-p", self.name, "-N", SPACE, "--striper", "get", f"{TOP}/{path}", out]
        ended = self.cluster.rados(*words)
        try:
            if ended.returncode == 0:
                return out.read_bytes()
            assert "No such file" in ended.stderr, ended.stderr
            return None
        finally:
            out.unlink(missing_ok=True)

    def is_visible(self, path: str) -> bool:
        """Return whether a file exists. Unlike :meth:`read`, this does not wait on a full pool."""
        return f"{TOP}/{path}.{0:016x}" in self.objects(path)

    def write(self, path: str, source: Path) -> None:
        """Write the content of ``source`` to a file, as a program other than dray."""
        words: list[Word] = ["-p", self.name, "-N", SPACE, "--striper", "put", f"{TOP}/{path}"]
        ended = self.cluster.rados(*words, source)
        assert ended.returncode == 0, ended.stderr

    def objects(self, path: str = "") -> list[str]:
        """Return the names of the objects of files. The file paths begin with ``path``."""
        names = self.cluster.names(self.name, SPACE)
        return [name for name in names if name.startswith(f"{TOP}/{path}")]

    def leftovers(self) -> list[str]:
        """Return the objects in dray's namespace ``STATE`` that do not describe a folder."""
        return [name for name in self.cluster.names(self.name, STATE) if not name.startswith("d")]

    def age(self, seconds: int, *, with_logs: bool = True) -> None:
        """Set the times of the root's objects to ``seconds`` ago.

        :param with_logs: False: keep the times of the logs. Use it while a copy runs, because the
            copy refuses to append to a log that has changed.
        """
        self.cluster.age(self.name, seconds, SPACE)
        self.cluster.age(self.name, seconds, STATE, "" if with_logs else "l")

    def expect(self, path: str, source: Path) -> None:
        """Fail unless a file has the content of ``source``, and as many objects as it needs."""
        wanted = source.read_bytes()
        assert self.read(path) == wanted
        count = max(1, -(-len(wanted) // OBJECT))
        assert len(self.objects(f"{path}.")) == count


class PoolWatch(threading.Thread):
    """A thread that reads a file repeatedly. The file must be missing or complete."""

    def __init__(self, pool: Pool, path: str, *allowed: bytes) -> None:
        """Permit a missing file, and a file with one of the contents ``allowed``."""
        super().__init__(daemon=True)
        self._pool, self._path, self._allowed = pool, path, allowed
        self._is_over = threading.Event()
        self.rounds = 0
        self.violations: list[str] = []

    def run(self) -> None:
        """Read the file until the context ends, and once more afterwards."""
        while not self._is_over.is_set():
            self._look()
            time.sleep(0.02)
        self._look()

    def _look(self) -> None:
        self.rounds += 1
        found = self._pool.read(self._path)
        if found is not None and found not in self._allowed:
            self.violations.append(f"{self._path} has {len(found)} bytes of wrong content")

    def __enter__(self) -> PoolWatch:
        """Start the thread."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the thread. Fail if it has read another content."""
        self._is_over.set()
        self.join()
        if error is None:
            assert self.violations == []


class Sites:
    """An endpoint ``near`` with a folder, and endpoints whose root is one pool."""

    def __init__(
        self, start: Callable[..., Endpoint], pool: Pool, *, config: Mapping[str, Any] | None = None
    ) -> None:
        """Start ``near``, and make the folder of the root in the pool.

        :param config: further configuration of the endpoints whose root is the pool.
        """
        self._start, self.pool = start, pool
        self._config = {"limits": LIMITS, **(config or {})}
        self.proxy = Proxy("127.0.0.1:1")
        behind = {"limits": LIMITS, "advertise": self.proxy.address}
        self.near = start("near", config=behind)
        self.proxy.upstream = self.near.address
        self._clients: dict[str, Client] = {}
        empty = pool.folder / f"empty-{time.monotonic_ns()}"
        empty.mkdir()
        self.cp("-r", "--allow-empty", f"{empty}/", pool.url).wait().expect(0)

    def cp(self, *words: Word) -> Process:
        """Start ``dray cp`` that accesses the pool itself, without an endpoint."""
        name = f"cp-{time.monotonic_ns()}"
        return Process([self.near.program, "cp", "--json", *words], self.pool.folder, name)

    def at_pool(self, name: str, *, store: str = "", **config: Any) -> Endpoint:  # noqa: ANN401
        """Start a new endpoint whose root ``data`` is the pool.

        :param store: URL of the root. Empty: the URL of the pool.
        :param config: further configuration of this endpoint.
        """
        roots = [Root("data", {"store": store or self.pool.url})]
        return self._start(name, roots=roots, config={**self._config, **config})

    def client(self, endpoint: Endpoint) -> Client:
        """Return a client of an endpoint. :meth:`close` closes it."""
        if endpoint.key not in self._clients:
            self._clients[endpoint.key] = endpoint.client(policy=CALLS)
        return self._clients[endpoint.key]

    def credentials(self, *endpoints: Endpoint) -> list[Word]:
        """Return the options of ``dray cp`` with the tokens and keys of these endpoints."""
        words: list[Word] = []
        for endpoint in endpoints:
            token = self.pool.folder / f"{endpoint.name}-{time.monotonic_ns()}.token"
            token.write_text(endpoint.token())
            token.chmod(0o600)
            words += ["--token-file", f"{endpoint.address}={token}"]
            words += ["--peer-key", f"{endpoint.address}={endpoint.key}"]
        return words

    def submit(
        self,
        source: Endpoint,
        path: str,
        sink: Endpoint,
        to: str,
        **more: Any,  # noqa: ANN401
    ) -> str:
        """Submit a transfer of one file, which the sink drives. Return the id of the transfer."""
        request = Request(
            sources=(),
            destination="",
            **{"retry": PATIENT, "overwrite": "always", **more},
        )
        handle = copy(
            source.place(path),
            sink.place(to),
            source=self.client(source),
            destination=self.client(sink),
            active="destination",
            request=request,
        )
        return handle.id

    def wait(self, sink: Endpoint, id: str) -> Transfer:
        """Wait until a transfer has ended."""
        return self.client(sink).wait(id, timeout_seconds=END_SECONDS)

    def sent(self) -> int:
        """Return how many bytes ``near`` has sent."""
        return self.proxy.counted()[1]

    def close(self) -> None:
        """Close the clients and the proxy."""
        for client in self._clients.values():
            client.close()
        self.proxy.close()
