"""An endpoint whose disk loses data for a while tries again, and the disk has the bytes."""

from __future__ import annotations

import time
import zlib
from typing import TYPE_CHECKING

import pytest

from dray.client import Place, Request, Retry
from dray.testing.endpoints import Root
from integration.endpoint.scene import FULL, words
from integration.harness import fuse_block, tree
from integration.harness.lossy import KINDS, lossy, make_marked

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dray.testing.endpoints import Endpoint

pytestmark = [pytest.mark.server, pytest.mark.timeout(1800)]

SIZE = 24 * tree.MIB + 77
RATE = 10 * tree.MIB
ROUNDS = 10 if FULL else 1


@pytest.mark.parametrize("kind", KINDS if FULL else ["ext4-ordered"])
@pytest.mark.parametrize("push", [False, True], ids=["pull", "push"])
def test_what_an_endpoint_writes_after_a_failed_sync_is_on_the_disk(
    start_endpoint: Callable[..., Endpoint], folder: Path, kind: str, push: bool
) -> None:
    if why := fuse_block.reason_to_skip(KINDS[kind][0]):
        pytest.skip(why)
    served = folder / "served"
    served.mkdir()
    source = served / "large"
    make_marked(source, SIZE, seed=5)
    with lossy(folder / "disk", kind) as volume:
        for number in range(ROUNDS):
            name = f"copy{number}"
            src = start_endpoint(f"src{number}", roots=[Root("data", {"path": str(served)})])
            dst = start_endpoint(f"dst{number}", roots=[Root("data", {"path": str(volume.top)})])
            driver, far = (src, dst) if push else (dst, src)
            path = name if push else "large"
            with driver.client() as client, far.client() as other, dst.client() as sink:
                ticket = other.mint_ticket(
                    "t", "write" if push else "read", [f"/data/{path}"], driver.key
                )
                place = Place(far.place(path), ticket.ticket, ticket.key, ticket.address)
                client.submit(
                    Request(
                        sources="/data/large" if push else [place],
                        destination=place if push else f"/data/{name}",
                        id="t",
                        retry=Retry(tries=60, interval_seconds=1),
                        rate_max=RATE,
                    )
                )
                until = time.monotonic() + 120
                while (found := client.transfer("t")).bytes.durable == 0:
                    assert time.monotonic() < until, words(found)
                    time.sleep(0.02)
                volume.fail()
                while client.transfer("t").state == "active" and volume.lost == 0:
                    assert time.monotonic() < until, words(found)
                    time.sleep(0.02)
                time.sleep(1)
                volume.recover()
                if volume.is_read_only():
                    pytest.skip("the journal cannot be written: it ends the file system")
                found = client.wait("t", timeout_seconds=180)
                assert found.state == "done", words(found)
                assert volume.lost > 0
                sums = sink.checksum(f"/data/{name}")
                adler32 = zlib.adler32(source.read_bytes())
                assert f"{adler32:08x}" in str(sums), sums
            src.close()
            dst.close()
            volume.remount()
            assert tree.hash_file(volume.top / name) == tree.hash_file(source)
