"""The sink's endpoint reads back the durable data of an earlier attempt, unless it is trusted."""

from __future__ import annotations

import json
import os
import subprocess
import time
from typing import TYPE_CHECKING, Literal

import pytest

from dray.client import Place, Request
from integration.endpoint.scene import CALLS, words
from integration.harness import tree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dray.testing.endpoints import Endpoint

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

OBJECT = tree.MIB
SIZE = 24 * tree.MIB + 77
RATE = 12 * tree.MIB


def flip_first(program: Path, sink: Path) -> tuple[int, int]:
    """Flip a bit of the first durable byte. Return its offset, and the number of durable bytes."""
    shown = subprocess.run(
        [program, "log", "show", "--json", sink], check=True, capture_output=True, text=True
    )
    [file] = json.loads(shown.stdout)["logs"][0]["files"]
    at = int(file["safe"][0]["offset"])
    with (sink / file["partial"]).open("r+b") as partial:
        partial.seek(at)
        byte = partial.read(1)
        partial.seek(-1, os.SEEK_CUR)
        partial.write(bytes([byte[0] ^ 1]))
        partial.flush()
        os.fsync(partial.fileno())
    return at, int(file["bytes_safe"])


@pytest.mark.parametrize("resume", ["verify", "trust"])
@pytest.mark.parametrize("push", [False, True], ids=["pull", "push"])
def test_durable_bytes_are_read_back_unless_trusted(
    start_endpoint: Callable[..., Endpoint], push: bool, resume: Literal["verify", "trust"]
) -> None:
    src, dst = start_endpoint("src"), start_endpoint("dst")
    source, copied = src.root("large"), dst.root("large")
    tree.make_file(source, SIZE, seed=3)
    driver, far = (src, dst) if push else (dst, src)
    direction: Literal["write", "read"] = "write" if push else "read"
    with driver.client(policy=CALLS) as client, far.client() as other:
        ticket = other.mint_ticket("t", direction, ["/data/large"], driver.key)
        place = Place(far.place("large"), ticket.ticket, ticket.key, ticket.address)
        request = Request(
            sources="/data/large" if push else place,
            destination=place if push else "/data/large",
            id="t",
            rate_max=RATE,
            object_size=OBJECT,
            durability="object",
            resume=resume,
            checksum_attributes=True,
        )
        client.submit(request)
        until = time.monotonic() + 60
        while (transfer := client.transfer("t")).bytes.durable < 4 * OBJECT:
            assert time.monotonic() < until, words(transfer)
            time.sleep(0.02)
        client.cancel("t")
        client.wait("t", timeout_seconds=60)
        at, durable = flip_first(driver.program, dst.root())
        client.submit(request)
        transfer = client.wait("t", timeout_seconds=120)
    assert transfer.state == "done", words(transfer)
    is_trusted = resume == "trust"
    assert transfer.bytes.resumed == (durable if is_trusted else durable - OBJECT)
    if push:
        assert transfer.bytes.read_back == 0
    elif is_trusted:
        # Data that this attempt has added to an earlier file is read back anyway.
        assert transfer.bytes.read_back == SIZE - durable
    else:
        assert transfer.bytes.read_back >= durable
    wanted, got = source.read_bytes(), copied.read_bytes()
    assert (got == wanted) != is_trusted
    assert got[:at] + got[at + 1 :] == wanted[:at] + wanted[at + 1 :]
    assert ("user.dray.sums" in os.listxattr(copied)) != is_trusted
