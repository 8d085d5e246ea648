"""Two real endpoints that execute the decisions of a policy.

The endpoint ``sink`` drives all transfers, of several owners. Its configuration limits the rate
between the endpoints. A transfer copies a tree of files of equal size. After a transfer, the copied
tree is compared with its source.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dray.client import Place, Request, Retry, Selection
from integration.harness import tree

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dray.client import Client, Transfer
    from dray.testing.endpoints import Endpoint

MIB = tree.MIB
KIB = 1024
#: Size of an object in bytes. It is small, so that a turn has many objects.
OBJECT_BYTES = 256 * KIB
STREAMS = 2
#: Interval in seconds at which an endpoint counts the bytes of its sessions.
COUNTED_SECONDS = 0.1
END_SECONDS = 120.0
PATIENT = Retry(tries=30, interval_seconds=1)


def unheld_bytes(rate: int) -> int:
    """Return how many bytes may be counted for a transfer after the decision to hold it.

    These bytes are: two objects in each stream, one object that is being read, and the bytes of
    two intervals of counting.
    """
    return (2 * STREAMS + 1) * OBJECT_BYTES + int(2 * COUNTED_SECONDS * rate)


@dataclass
class Stage:
    """The endpoint ``sink``, which drives all transfers, and the endpoint ``source``."""

    sink: Endpoint
    source: Endpoint
    wanted: dict[str, dict[bytes, tree.Entry]] = field(default_factory=dict)
    clients: dict[str, Client] = field(default_factory=dict)

    def client(self, owner: str = "alice") -> Client:
        """Return an owner's client of the endpoint ``sink``."""
        if owner not in self.clients:
            self.clients[owner] = self.sink.client(subject=owner)
        return self.clients[owner]

    def make(self, name: str, size: int, *, files: int = 4, at: Endpoint | None = None) -> None:
        """Make a tree of ``size`` bytes at the endpoint ``at``, by default the source."""
        top = (at or self.source).root(name)
        top.mkdir()
        for each in range(files):
            tree.make_file(top / f"{each}", size // files, seed=hash_of(name) + each)
        self.wanted[name] = tree.describe(top)

    def submit(self, id: str, name: str, owner: str = "alice", **more: Any) -> Transfer:  # noqa: ANN401
        """Submit a transfer of the source's tree ``name`` into the sink's folder ``id``."""
        with self.source.client() as there:
            ticket = there.mint_ticket(id, "read", [f"/data/{name}/"], self.sink.key)
        far = Place(self.source.place(f"{name}/"), ticket.ticket, ticket.key, ticket.address)
        return self._submit(id, far, f"/data/{id}/", owner, **more)

    def push(self, id: str, name: str, owner: str = "alice", **more: Any) -> Transfer:  # noqa: ANN401
        """Submit a transfer of the sink's tree ``name`` into the source's folder ``id``."""
        with self.source.client() as there:
            ticket = there.mint_ticket(id, "write", [f"/data/{id}/"], self.sink.key)
        far = Place(self.source.place(f"{id}/"), ticket.ticket, ticket.key, ticket.address)
        return self._submit(id, f"/data/{name}/", far, owner, **more)

    def _submit(
        self,
        id: str,
        source: Place | str,
        destination: Place | str,
        owner: str,
        **more: Any,  # noqa: ANN401 - the fields of a request
    ) -> Transfer:
        fields: dict[str, Any] = {
            "selection": Selection(recursive=True),
            "object_size": OBJECT_BYTES,
            "streams": STREAMS,
            "retry": PATIENT,
            **more,
        }
        return self.client(owner).submit(Request(source, destination, id=id, **fields))

    def show(self, id: str) -> Transfer:
        """Return a transfer of any owner."""
        return self.client("root").transfer(id)

    def await_sent(self, id: str, count: int) -> Transfer:
        """Wait until a transfer has sent ``count`` bytes."""
        return self.until(id, lambda transfer: transfer.bytes.sent >= count)

    def until(self, id: str, is_so: Any) -> Transfer:  # noqa: ANN401 - of a transfer
        """Wait until ``is_so`` is true of a transfer. Fail if the transfer ends before."""
        end = time.monotonic() + END_SECONDS
        while not is_so(transfer := self.show(id)):
            assert time.monotonic() < end, transfer
            assert not transfer.is_terminal or is_so(self.show(id)), transfer
            time.sleep(0.02)
        return transfer

    def done(self, id: str, name: str, *, at: Endpoint | None = None) -> Transfer:
        """Wait until a transfer is done. Check that the copy at ``at`` equals the tree ``name``."""
        transfer = self.client("root").wait(id, timeout_seconds=END_SECONDS)
        assert transfer.state == "done", (transfer.error, transfer.failures, transfer.notices)
        wanted = dict(self.wanted[name])
        entries = tree.describe((at or self.sink).root(id))
        # The request names the contents of the folder, so do not compare the folder itself.
        del wanted[b""], entries[b""]
        assert tree.differences(wanted, entries) == []
        return transfer

    def close(self) -> None:
        """Close all clients."""
        for client in self.clients.values():
            client.close()
        self.clients.clear()


def hash_of(name: str) -> int:
    """Return a number for a name. Unlike ``hash``, it is the same in each process."""
    return sum((at + 1) * ord(letter) for at, letter in enumerate(name)) * 1_000


@contextlib.contextmanager
def stage(sink: Endpoint, source: Endpoint) -> Iterator[Stage]:
    """Yield a stage, and close its clients afterwards."""
    made = Stage(sink, source)
    try:
        yield made
    finally:
        made.close()
