"""An endpoint whose disk loses data for a while retries, and the disk has the right bytes."""

from __future__ import annotations

import contextlib
import os
import random
import time
import zlib
from typing import TYPE_CHECKING

import pytest

from dray.client import Place, Request, Retry
from dray.testing.endpoints import Root
from integration.endpoint.scene import CALLS, FULL, words
from integration.harness import fuse_block, tree
from integration.harness.lossy import KINDS, Lossy, Moment, Tally, lossy, make_marked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dray.client import Client, Transfer
    from dray.testing.endpoints import Endpoint

pytestmark = [pytest.mark.server, pytest.mark.timeout(1800)]

SIZE = 24 * tree.MIB + 77
RATE = 10 * tree.MIB
#: Number of rounds of each direction on each file system.
ROUNDS = int(os.environ.get("DRAY_ROUNDS") or (25 if FULL else 1))
SEED = int(os.environ.get("DRAY_SEED", "1"))
FEW = ["ext4-ordered"]


class Pair:
    """An endpoint with a good disk and one with a disk that fails: source and sink."""

    def __init__(
        self, start: Callable[..., Endpoint], folder: Path, volume: Lossy, *, push: bool
    ) -> None:
        """Start both endpoints."""
        self.push, self.volume, self.served = push, volume, folder / "served"
        self.served.mkdir()
        self.source = start("src", roots=[Root("data", {"path": str(self.served)})])
        self.sink = start("dst", roots=[Root("data", {"path": str(volume.top)})])
        self.driver, self.far = (self.source, self.sink) if push else (self.sink, self.source)

    def client(self) -> Client:
        """Return a client of the driving endpoint."""
        return self.driver.client(policy=CALLS)

    def begin(self, name: str, durability: str) -> None:
        """Submit the copy of a new file. The name of the file is the transfer's id."""
        make_marked(self.served / name, SIZE, seed=sum(name.encode()))
        with self.far.client() as other, self.client() as client:
            direction, near = ("write", "read") if self.push else ("read", "write")
            ticket = other.mint_ticket(name, direction, [f"/data/{name}"], self.driver.key)  # type: ignore[arg-type]
            place = Place(self.far.place(name), ticket.ticket, ticket.key, ticket.address)
            client.submit(
                Request(
                    sources=place if near == "write" else f"/data/{name}",
                    destination=place if near == "read" else f"/data/{name}",
                    id=name,
                    retry=Retry(tries=60, interval_seconds=1),
                    rate_max=RATE,
                    durability=durability,  # type: ignore[arg-type]
                )
            )

    def restart_if_read_only(self) -> bool:
        """Remount the file system if a failed write to its journal made it read-only.

        Return whether it was remounted.
        """
        if not self.volume.is_read_only():
            return False
        self.sink.kill()
        self.volume.remount()
        self.sink.start()
        return True

    def end(self, name: str) -> tuple[Transfer, bool, list[str]]:
        """Wait for the end; return the transfer, whether bytes are wrong, and leftovers."""
        with self.client() as client:
            transfer = client.wait(name, timeout_seconds=180)
            if transfer.state == "failed" and "read-only" in str(transfer.error):
                # A person who remounts the disk also retries the transfer.
                client.retry(name)
                transfer = client.wait(name, timeout_seconds=180)
        assert transfer.state == "done", words(transfer)
        with self.sink.client() as client:
            sums = client.checksum(f"/data/{name}")
        adler32 = zlib.adler32((self.served / name).read_bytes())
        assert f"{adler32:08x}" in str(sums), sums
        self.sink.kill()
        self.volume.remount()
        copied = self.volume.top / name
        is_wrong = tree.hash_file(copied) != tree.hash_file(self.served / name)
        copied.unlink()
        (self.served / name).unlink()
        left = sorted(str(path.relative_to(self.volume.top)) for path in self.volume.top.rglob("*"))
        self.sink.start()
        return transfer, is_wrong, [path for path in left if path != "lost+found"]

    def close(self) -> None:
        """Kill both endpoints, so that no process uses the disk."""
        self.source.kill()
        self.sink.kill()


@contextlib.contextmanager
def pair(start: Callable[..., Endpoint], folder: Path, kind: str, *, push: bool) -> Iterator[Pair]:
    """Return a pair, or skip the test on a host without such a disk."""
    if why := fuse_block.reason_to_skip(KINDS[kind][0]):
        pytest.skip(why)
    with lossy(folder / "disk", kind) as volume:
        made = Pair(start, folder, volume, push=push)
        try:
            yield made
        finally:
            made.close()


@pytest.mark.parametrize("kind", KINDS if FULL else FEW)
@pytest.mark.parametrize("push", [False, True], ids=["pull", "push"])
def test_data_an_endpoint_writes_after_a_failed_sync_reaches_the_disk(
    start_endpoint: Callable[..., Endpoint], folder: Path, kind: str, push: bool
) -> None:
    with pair(start_endpoint, folder, kind, push=push) as ends:
        volume = ends.volume
        ends.begin("large", "file")
        with ends.client() as client:
            until = time.monotonic() + 120
            while (transfer := client.transfer("large")).bytes.durable == 0:
                assert time.monotonic() < until, words(transfer)
                time.sleep(0.02)
            volume.fail()
            while client.transfer("large").state == "active" and volume.lost == 0:
                assert time.monotonic() < until, words(transfer)
                time.sleep(0.02)
            time.sleep(1)
            volume.recover()
        ends.restart_if_read_only()
        _, is_wrong, left = ends.end("large")
        assert volume.lost > 0
        assert not is_wrong
        assert left == []


@pytest.mark.parametrize("kind", KINDS if FULL else FEW)
@pytest.mark.parametrize("push", [False, True], ids=["pull", "push"])
def test_at_random_moments_an_endpoint_names_nothing_false(
    request: pytest.FixtureRequest,
    start_endpoint: Callable[..., Endpoint],
    folder: Path,
    kind: str,
    push: bool,
) -> None:
    tally = Tally(request.node.name.partition("[")[2].rstrip("]"))
    chance = random.Random(f"{tally.name} {SEED}")
    with pair(start_endpoint, folder, kind, push=push) as ends:
        for number in range(ROUNDS):
            moment = Moment.draw(chance)
            before = ends.volume.lost
            ends.begin(f"copy{number}", moment.durability)
            moment.let_fail(ends.volume, ends.sink.kill)
            if moment.kills and moment.is_met_again:
                ends.sink.start()
                time.sleep(moment.lasts)
            ends.volume.recover()
            tally.remounted += ends.restart_if_read_only()
            if not ends.sink.is_running:
                ends.sink.start()
            _, is_wrong, left = ends.end(f"copy{number}")
            tally.add(moment, ends.volume.lost - before, is_wrong=is_wrong, left=left)
    tally.check()
