"""Two endpoints with a proxy between them, and more data than one fault may cause to be sent again.

The proxy counts the sent bytes, and the arrived data is read from the disk: nothing here relies on
reports of the endpoints.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dray.client import Place, Policy, Request, Retry, Selection
from dray.testing.endpoints import Root
from dray.testing.proxy import Proxy
from integration.harness import tree
from integration.harness.watch import Watcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from dray.client import Client, Transfer
    from dray.testing.endpoints import Endpoint

FULL = os.environ.get("DRAY_FULL") == "1"
#: Number of random moments at which each kind of fault is injected.
MOMENTS = int(os.environ.get("DRAY_KILLS") or (20 if FULL else 1))
DATA_BYTES = 128 * tree.MIB
#: Rate in bytes per second, so low that a test finds the transfer running on any host.
RATE = 48 * tree.MIB
#: With these limits a session gets at most POOL_BYTES (dray-endpoint, `live`): a quarter of four
#: fifths of the memory, and an eighth of the last fifth.
LIMITS = {"memory": "64MiB", "transfers_active": 2}
POOL_BYTES = 15 * tree.MIB
SYNC_GROUP_BYTES = 64 * tree.MIB
#: Overhead of frames, TLS records and object heads, as a fraction of the data.
OVERHEAD = 0.01
PATIENT = Retry(tries=30, interval_seconds=1)
#: Maximum seconds of a transfer after a fault, on a busy host.
END_SECONDS = 180.0
CALLS = Policy(seconds=60, tries=60, first_pause=0.1, longest_pause=1.0)


@dataclass
class Data:
    """A tree to transfer, with an optional equal replica."""

    source: Path
    wanted: dict[bytes, tree.Entry]
    #: Seconds and bytes on the wire of a transfer without a fault. The key is true for a push.
    whole: dict[bool, tuple[float, int]] = field(default_factory=dict)

    @property
    def served(self) -> Path:
        """The folder that the source's endpoint exports."""
        return self.source.parent

    def replica(self) -> Path:
        """Copy the exported folder unless a copy exists. Return the folder of the copy."""
        top = self.served.with_name(f"{self.served.name}-replica")
        if not top.exists():
            shutil.copytree(self.served, top, symlinks=True)
            shutil.copystat(self.source, top / self.source.name)
        return top

    @property
    def whole_bytes(self) -> int:
        """Total size of all files of the tree in bytes."""
        entries = self.wanted.values()
        return sum(entry.size for entry in entries if entry.kind == "file")

    @property
    def hole_bytes(self) -> int:
        """Bytes of holes in the files of the tree. They count as durable, but are never sent."""
        entries = self.wanted.items()
        return sum(
            tree.hole_bytes(os.path.join(os.fsencode(self.source), path))
            for path, entry in entries
            if entry.kind == "file"
        )

    def remove(self) -> None:
        """Remove the served folder and its replica."""
        for top in (self.served, self.served.with_name(f"{self.served.name}-replica")):
            shutil.rmtree(top, ignore_errors=True)


def make_data(top: Path, size: int = DATA_BYTES, *, seed: int = 9, files: int = 300) -> Data:
    """Make large, medium and small files below ``top/tree``."""
    source = top / "tree"
    tree.make_tree(source, files, seed=seed)
    for number, part in enumerate((2, 4, 8)):
        tree.make_file(source / f"large{number}", size // part + 11 * number, seed=seed + number)
    made = sum(entry.size for entry in tree.describe(source).values())
    tree.make_file(source / "rest", max(0, size - made), seed=seed + 77)
    return Data(source, tree.describe(source))


class Scene:
    """Two endpoints: the active one drives transfers, the passive one is behind a proxy."""

    def __init__(
        self,
        start: Callable[..., Endpoint],
        data: Data,
        *,
        push: bool,
        config: Mapping[str, Any] | None = None,
        passive: Mapping[str, Any] | None = None,
        keep: bool = False,
    ) -> None:
        """Start both endpoints and the proxy. The sink is empty.

        :param config: further configuration keys of all endpoints.
        :param passive: further configuration keys of the passive endpoint.
        :param keep: record the bytes that pass through the proxy.
        """
        self.data, self.push, self._start = data, push, start
        self.config = {"limits": LIMITS, **(config or {})}
        # The passive endpoint needs the proxy's address in its configuration, so the proxy starts
        # first. The proxy's upstream is set when the passive endpoint has an address.
        self.proxy = Proxy("127.0.0.1:1", keep=keep)
        behind = {**self.config, "advertise": self.proxy.address, **(passive or {})}
        self.served = Root("data", {"path": str(data.served)})
        self.source = start("src", roots=[self.served], config=self.config if push else behind)
        self.sink = start("dst", config=behind if push else self.config)
        self.active = self.source if push else self.sink
        self.passive = self.sink if push else self.source
        self.proxy.upstream = self.passive.address
        self.folder = self.sink.root("in")
        self._clients: dict[str, Client] = {}
        self._others: list[Endpoint] = []
        self._proxies = [self.proxy]

    def end(self, name: str) -> Endpoint:
        """Return the ``active`` or the ``passive`` endpoint."""
        return self.active if name == "active" else self.passive

    def client(self, endpoint: Endpoint | None = None) -> Client:
        """Return a client of the active or of another endpoint. The scene closes the client."""
        endpoint = endpoint or self.active
        if endpoint.address not in self._clients:
            self._clients[endpoint.address] = endpoint.client(policy=CALLS)
        return self._clients[endpoint.address]

    def another(self, name: str, folder: Path, **options: Any) -> Endpoint:  # noqa: ANN401
        """Start a further endpoint that exports ``folder``, with a separate state and key."""
        root = Root("data", {"path": str(folder.resolve())})
        config = {**self.config, **options.pop("config", {})}
        made = self._start(name, roots=[root], config=config, **options)
        self._others.append(made)
        return made

    def twin(self, name: str = "third") -> Endpoint:
        """Start an endpoint that exports the active endpoint's folder, like a second host."""
        return self.another(name, self.data.served if self.push else self.sink.root())

    def replica(self) -> tuple[Endpoint, Proxy]:
        """Start an endpoint that serves an equal copy of the data, and a proxy in front of it."""
        proxy = Proxy("127.0.0.1:1")
        self._proxies.append(proxy)
        made = self.another("replica", self.data.replica(), config={"advertise": proxy.address})
        proxy.upstream = made.address
        return made, proxy

    # --- transfers ------------------------------------------------------------------------------

    def place(self, id: str, *, active: Endpoint, passive: Endpoint | None = None) -> Place:
        """Return the place of the remote side of a transfer, or of a replica, for ``active``."""
        passive = passive or self.passive
        direction, path = ("write", "in/") if self.push else ("read", self.data.source.name)
        ticket = self.client(passive).mint_ticket(
            id,
            direction,  # type: ignore[arg-type]
            [f"/data/{path}"],
            active.key,
            overwrite="always" if self.push else None,
        )
        return Place(passive.place(path), ticket.ticket, ticket.key, ticket.address)

    def request(
        self,
        id: str = "t",
        *,
        active: Endpoint | None = None,
        passives: tuple[Endpoint, ...] = (),
        **more: Any,  # noqa: ANN401 - the fields of a request
    ) -> Request:
        """Return the scene's request, with a ticket for each remote side."""
        active = active or self.active
        places = [self.place(id, active=active, passive=far) for far in passives or (self.passive,)]
        near = f"/data/{self.data.source.name}" if self.push else "/data/in/"
        request = Request(
            sources=near if self.push else places[:1],
            replicas=None if self.push else places[1:] or None,
            destination=places[0] if self.push else near,
            id=id,
            selection=Selection(recursive=True),
            retry=PATIENT,
            rate_max=RATE,
        )
        return dataclasses.replace(request, **more)

    def submit(self, id: str = "t", *, active: Endpoint | None = None, **more: Any) -> Transfer:  # noqa: ANN401
        """Submit the scene's transfer to the active endpoint, or to another endpoint."""
        return self.client(active).submit(self.request(id, active=active, **more))

    def wait(self, id: str = "t", *, active: Endpoint | None = None) -> Transfer:
        """Wait until a transfer has ended."""
        return self.client(active).wait(id, timeout_seconds=END_SECONDS)

    def carried(self) -> int:
        """Return the bytes sent on data connections, in the direction of the data."""
        return sum(proxy.counted()[0 if self.push else 1] for proxy in self._proxies)

    def await_moment(self, part: float) -> int:
        """Wait until this fraction of the data has been sent. Return the number of sent bytes."""
        self.await_carried(int(part * self.data.whole[self.push][1]))
        return self.carried()

    def await_carried(self, count: int, seconds: float = END_SECONDS) -> None:
        """Wait until ``count`` bytes have been sent on data connections."""
        until = time.monotonic() + seconds
        while self.carried() < count:
            assert time.monotonic() < until, f"{self.carried()} bytes in {seconds} s, not {count}"
            time.sleep(0.005)

    @contextlib.contextmanager
    def watched(self, *others: Data) -> Iterator[None]:
        """Fail if a final name ever has incomplete content."""
        allowed = Watcher.of(self.data.wanted, b"tree")
        for other in others:
            for path, contents in Watcher.of(other.wanted, b"tree").items():
                allowed[path] = allowed.get(path, set()) | contents
        with Watcher(self.folder, allowed) as watcher:
            yield
        assert watcher.violations == []

    # --- final checks ---------------------------------------------------------------------------

    def check_done(
        self, id: str = "t", *, active: Endpoint | None = None, faults: int = 1
    ) -> tuple[Transfer, int]:
        """Fail unless all data has arrived and little was sent twice.

        Return the transfer, and the number of bytes that were sent twice.
        """
        done = self.wait(id, active=active)
        assert done.state == "done", words(done)
        assert done.error is None, words(done)
        assert done.failures == (), words(done)
        self.check_counters(done)
        self.check_identical()
        excess = self.excess()
        allowed = faults * (POOL_BYTES + SYNC_GROUP_BYTES) + int(OVERHEAD * 2 * DATA_BYTES)
        assert excess <= allowed, f"{excess} bytes were sent twice: {words(done)}"
        return done, excess

    def check_counters(self, done: Transfer) -> None:
        """Fail unless every durable byte was sent, resumed, adopted or a hole, each once."""
        counts = done.bytes
        assert counts.durable == counts.listed == self.data.whole_bytes, words(done)
        sent = counts.durable - counts.resumed - counts.adopted
        assert 0 <= sent <= counts.sent + self.data.hole_bytes, words(done)

    def check_identical(self, data: Data | None = None) -> None:
        """Fail unless the copied tree is identical, without leftovers of dray."""
        tree.assert_same((data or self.data).wanted, self.folder / "tree")
        assert tree.leftovers(self.sink.root()) == []

    def excess(self) -> int:
        """Return the bytes sent in addition to those of a run without a fault."""
        return self.carried() - self.data.whole[self.push][1]

    def close(self) -> None:
        """End the clients, proxies and endpoints of the scene."""
        for client in self._clients.values():
            client.close()
        for proxy in self._proxies:
            proxy.close()
        for endpoint in (self.source, self.sink, *self._others):
            # Resume the process, because a suspended process cannot be ended and collected.
            endpoint.resume()
            endpoint.close()


class Tally:
    """Counts the results of faults at many moments, for the output of the test."""

    def __init__(self, name: str) -> None:
        """Start with counts of 0."""
        self.name, self.worst, self.moments, self.resumed = name, 0, 0, 0

    def add(self, excess: int, *, has_resumed: bool) -> None:
        """Count the result of a fault at one moment."""
        self.moments += 1
        self.worst = max(self.worst, excess)
        self.resumed += has_resumed

    def say(self) -> None:
        """Print the counts."""
        print(
            f"{self.name}: {self.moments} moments, {self.resumed} resumed, "
            f"at worst {self.worst / tree.MIB:.1f} MiB sent twice"
        )


def words(transfer: Transfer) -> str:
    """Describe the state of a transfer, for messages of failed checks."""
    parts = [
        f"{transfer.state} in attempt {transfer.attempt} after {transfer.tries} tries",
        f"error: {transfer.error}",
        *(f"{failure.path}: {failure.error}" for failure in transfer.failures),
        *transfer.notices,
        f"{transfer.files} {transfer.bytes}",
    ]
    return "\n".join(parts)


@dataclass
class Scenes:
    """Makes scenes with the data of the tests."""

    start: Callable[..., Endpoint]
    data: Data

    @contextlib.contextmanager
    def make(self, *, push: bool, **options: Any) -> Iterator[Scene]:  # noqa: ANN401
        """Yield a scene with these options, and close it at the end."""
        scene = Scene(self.start, self.data, push=push, **options)
        try:
            yield scene
        finally:
            scene.close()

    def seconds(self, *, push: bool) -> float:
        """Return the seconds of a transfer without a fault, which is measured only once."""
        if push not in self.data.whole:
            with self.make(push=push) as scene:
                began = time.monotonic()
                with scene.watched():
                    scene.submit()
                    done = scene.wait()
                taken = time.monotonic() - began
                assert done.state == "done", words(done)
                scene.check_identical()
                assert scene.carried() <= DATA_BYTES * (1 + OVERHEAD)
                self.data.whole[push] = (taken, scene.carried())
        return self.data.whole[push][0]
