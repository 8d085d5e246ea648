"""Sessions with less memory than earlier ones: durable data is not sent again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from dray.client import Place, Request, Selection
from integration.harness import tree

if TYPE_CHECKING:
    from collections.abc import Callable

    from dray.testing.endpoints import Endpoint

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

MIB = tree.MIB


def test_durable_data_survives_a_smaller_memory_share(
    start_endpoint: Callable[..., Endpoint],
) -> None:
    """A session that starts beside others gets less memory than one that started alone."""
    a = start_endpoint("a")
    b = start_endpoint("b", config={"limits": {"memory": "64MiB", "transfers_active": 4}})
    for name in ("one", "two"):
        a.root(name).mkdir()
        tree.make_file(a.root(name) / "file", 48 * MIB, seed=1)
    with a.client() as there, b.client() as client:

        def submit(name: str, rate: int | None = None) -> None:
            ticket = there.mint_ticket(name, "read", [f"/data/{name}/"], client.endpoint().key)
            source = Place(a.place(f"{name}/"), ticket.ticket, ticket.key)
            client.submit(
                Request(
                    sources=[source],
                    destination=Place(f"/data/{name}"),
                    id=name,
                    selection=Selection(recursive=True),
                    rate_max=rate,
                )
            )

        def await_safe(name: str, count: int) -> None:
            until = time.monotonic() + 60
            while client.transfer(name).bytes.durable < count:
                assert time.monotonic() < until
                time.sleep(0.05)

        submit("one", 4 * MIB)
        await_safe("one", 8 * MIB)
        submit("two", MIB)
        await_safe("two", MIB)
        client.cancel("one")
        safe = client.wait("one").bytes.durable
        submit("one")
        done = client.wait("one")
        client.cancel("two")
    assert (done.state, done.notices) == ("done", ()), done
    assert done.bytes.resumed >= safe
    assert (b.root("one") / "file").read_bytes() == (a.root("one") / "file").read_bytes()
