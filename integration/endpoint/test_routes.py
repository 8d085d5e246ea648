"""When a transfer is submitted, the endpoint stores which of its places are on this endpoint.

A later change of the endpoint's names does not change what is stored.
"""

from __future__ import annotations

import contextlib
import sqlite3
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest

from dray.client import Place, Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from dray.testing.endpoints import Endpoint

pytestmark = [pytest.mark.server, pytest.mark.timeout(120)]

END_SECONDS = 60.0
CONTENT = b"some data"
#: Last version of the queue's database without routes.
VERSION_WITHOUT_ROUTES = 11


def far() -> datetime:
    """Return a time after the end of the test."""
    return datetime.now(timezone.utc) + timedelta(days=1)


def restart(endpoint: Endpoint, **config: Any) -> None:  # noqa: ANN401 - keys of the configuration
    """Restart an endpoint with other configuration keys."""
    endpoint.stop()
    endpoint._extra.update(config)
    endpoint.start()


def change_queue(endpoint: Endpoint, *statements: str) -> None:
    """Change the database of a stopped endpoint."""
    (path,) = endpoint.folder.rglob("queue.db")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        for statement in statements:
            database.execute(statement)


def release(endpoint: Endpoint) -> None:
    """Let the waiting transfers of a stopped endpoint begin at its next start."""
    change_queue(endpoint, "UPDATE transfers SET held_until = NULL")


def submit_within(endpoint: Endpoint, host: str) -> None:
    """Submit a copy within the endpoint, by URLs with this host."""
    endpoint.root("x").write_bytes(CONTENT)
    port = endpoint.address.rsplit(":", 1)[1]
    source, sink = (f"dray://{host}:{port}/data/{name}" for name in ("x", "copy"))
    with endpoint.client() as client:
        client.submit(Request(source, sink, id="t", not_before=far()))


def check_done(endpoint: Endpoint) -> None:
    """Wait until the transfer is done, and compare its copy."""
    with endpoint.client() as client:
        ended = client.wait("t", timeout_seconds=END_SECONDS)
    assert ended.state == "done", ended
    assert endpoint.root("copy").read_bytes() == CONTENT


def test_a_copy_by_an_alias_runs_after_the_alias_is_gone(
    start_endpoint: Callable[..., Endpoint],
) -> None:
    endpoint = start_endpoint("a", config={"aliases": ["old.example"]})
    submit_within(endpoint, "old.example")
    endpoint.stop()
    release(endpoint)
    restart(endpoint, aliases=[])
    check_done(endpoint)
    with endpoint.client() as client:
        shown = client.transfer("t").request
        assert shown["sources"][0]["url"].startswith("dray://old.example:")


def test_a_remote_side_stays_remote_when_the_endpoint_gets_its_address(
    start_endpoint: Callable[..., Endpoint],
) -> None:
    own, other = start_endpoint("a"), start_endpoint("b")
    other.root("x").write_bytes(CONTENT)
    with other.client() as client:
        ticket = client.mint_ticket("t", "read", ["/data/x"], own.key)
    place = Place(other.place("x"), ticket.ticket, ticket.key, ticket.address)
    with own.client() as client:
        client.submit(Request(place, "/data/copy", id="t", not_before=far()))
    own.stop()
    release(own)
    restart(own, advertise=other.address)
    check_done(own)


def test_the_queue_of_an_older_version_runs(start_endpoint: Callable[..., Endpoint]) -> None:
    endpoint = start_endpoint("a", config={"aliases": ["old.example"]})
    submit_within(endpoint, "old.example")
    endpoint.stop()
    release(endpoint)
    change_queue(
        endpoint,
        "DROP INDEX transfers_next_try",
        "DROP INDEX transfers_unresolved",
        "ALTER TABLE transfers DROP COLUMN route",
        "DROP TABLE ticket_claims",
        "DROP TABLE receipts",
        "DROP TABLE receipts_due",
        "DROP TABLE breaks",
        "DROP TABLE tape_files",
        "DROP TABLE tape_requests",
        "DROP TABLE tier_versions",
        "DROP TABLE tier_restarts",
        "DROP TABLE tier_replicas",
        "DROP TABLE tier_writes",
        "DROP INDEX transfers_claims",
        "ALTER TABLE transfers DROP COLUMN claim",
        "ALTER TABLE staging DROP COLUMN hit",
        "ALTER TABLE transfers RENAME COLUMN tries_without_progress TO barren",
        f"PRAGMA user_version = {VERSION_WITHOUT_ROUTES}",
    )
    endpoint.start()
    check_done(endpoint)
