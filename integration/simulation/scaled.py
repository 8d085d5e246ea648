"""Two real endpoints and a link between them, which execute the decisions of a policy.

One endpoint fetches trees from the other. The configuration of the fetching endpoint limits the
rate of the link. Several owners submit transfers. All files of a tree have the same size. After a
tree has arrived, the tree on the disk is compared with its source.
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
#: Size of an object in bytes, so small that a turn has many objects.
OBJECT_BYTES = 256 * KIB
STREAMS = 2
#: Interval in seconds at which an endpoint counts the bytes of its sessions.
COUNTED_SECONDS = 0.1
END_SECONDS = 120.0
PATIENT = Retry(tries=30, interval_seconds=1)


def unheld_bytes(rate: int) -> int:
    """Return how many bytes of a transfer may still be counted after the decision to hold it.

    These are two objects in each stream, one object that is being read, and bytes that arrived
    before the decision and were not counted yet.
    """
    return (2 * STREAMS + 1) * OBJECT_BYTES + int(2 * COUNTED_SECONDS * rate)


@dataclass
class Stage:
    """The endpoint that drives and writes, and the source endpoint."""

    sink: Endpoint
    source: Endpoint
    wanted: dict[str, dict[bytes, tree.Entry]] = field(default_factory=dict)
    clients: dict[str, Client] = field(default_factory=dict)

    def client(self, owner: str = "alice") -> Client:
        """Return an owner's client of the driving endpoint."""
        if owner not in self.clients:
            self.clients[owner] = self.sink.client(subject=owner)
        return self.clients[owner]

    def make(self, name: str, size: int, *, files: int = 4, at: Endpoint | None = None) -> None:
        """Make a tree of ``size`` bytes at the source."""
        top = (at or self.source).root(name)
        top.mkdir()
        for each in range(files):
            tree.make_file(top / f"{each}", size // files, seed=hash_of(name) + each)
        self.wanted[name] = tree.describe(top)

    def submit(self, id: str, name: str, owner: str = "alice", **more: Any) -> Transfer:  # noqa: ANN401
        """Fetch a tree into a folder with the transfer's id."""
        with self.source.client() as there:
            ticket = there.mint_ticket(id, "read", [f"/data/{name}/"], self.sink.key)
        far = Place(self.source.place(f"{name}/"), ticket.ticket, ticket.key, ticket.address)
        return self._submit(id, far, f"/data/{id}/", owner, **more)

    def push(self, id: str, name: str, owner: str = "alice", **more: Any) -> Transfer:  # noqa: ANN401
        """Send a tree of the driving endpoint to the other one."""
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
        """Look up a transfer of any owner."""
        return self.client("root").transfer(id)

    def await_sent(self, id: str, count: int) -> Transfer:
        """Wait until it has moved this many bytes."""
        return self.until(id, lambda transfer: transfer.bytes.sent >= count)

    def until(self, id: str, is_so: Any) -> Transfer:  # noqa: ANN401 - of a transfer
        """Wait until a condition holds."""
        end = time.monotonic() + END_SECONDS
        while not is_so(transfer := self.show(id)):
            assert time.monotonic() < end, transfer
            assert not transfer.is_terminal or is_so(self.show(id)), transfer
            time.sleep(0.02)
        return transfer

    def done(self, id: str, name: str, *, at: Endpoint | None = None) -> Transfer:
        """Wait until it has arrived completely."""
        transfer = self.client("root").wait(id, timeout_seconds=END_SECONDS)
        assert transfer.state == "done", (transfer.error, transfer.failures, transfer.notices)
        wanted = dict(self.wanted[name])
        entries = tree.describe((at or self.sink).root(id))
        # Only the contents of the folder were requested, so the folder itself is not compared.
        del wanted[b""], entries[b""]
        assert tree.differences(wanted, entries) == []
        return transfer

    def close(self) -> None:
        """Close the clients."""
        for client in self.clients.values():
            client.close()
        self.clients.clear()


def hash_of(name: str) -> int:
    """Return a number for a name, the same in each process."""
    return sum((at + 1) * ord(letter) for at, letter in enumerate(name)) * 1_000


@contextlib.contextmanager
def stage(sink: Endpoint, source: Endpoint) -> Iterator[Stage]:
    """Give a stage, and close its clients."""
    made = Stage(sink, source)
    try:
        yield made
    finally:
        made.close()
