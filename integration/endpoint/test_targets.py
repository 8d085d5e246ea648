"""The storage targets of running sessions are shown with their load."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from dray.client import Place, Request
from integration.endpoint.raw import ask
from integration.harness import tree

if TYPE_CHECKING:
    from collections.abc import Callable

    from dray.testing.endpoints import Endpoint

pytestmark = [pytest.mark.server, pytest.mark.timeout(120)]

MIB = tree.MIB


def targets(endpoint: Endpoint) -> list[dict[str, Any]]:
    """Return the targets that an endpoint reports."""
    answer = ask(endpoint, "GET", "/v1/targets", token=endpoint.token())
    assert answer.code == 200, answer
    found: list[dict[str, Any]] = answer.json["targets"]
    return found


def measured(found: list[dict[str, Any]]) -> bool:
    """Return whether an object has ended on some target."""
    return any(each["service_seconds"] is not None for each in found)


def test_each_end_of_a_transfer_shows_its_own_targets(
    start_endpoint: Callable[..., Endpoint],
) -> None:
    a = start_endpoint("a", config={"metrics": {"open": True}})
    b = start_endpoint("b")
    tree.make_file(a.root("x"), 8 * MIB, seed=1)
    assert targets(a) == []
    with a.client() as here, b.client() as there:
        ticket = there.mint_ticket("t", "write", ["/data/y"], a.key)
        far = Place(b.place("y"), ticket.ticket, ticket.key, ticket.address)
        wanted = Request(sources=["/data/x"], destination=far, id="t", rate_max=MIB)
        here.submit(wanted)
        until = time.monotonic() + 30
        while not (measured(targets(a)) and measured(targets(b))):
            assert time.monotonic() < until, (targets(a), targets(b), here.transfer("t"))
            time.sleep(0.1)
        (read,), (written,) = targets(a), targets(b)
        assert (read["end"], written["end"]) == ("source", "sink")
        assert read["state"] == "fair"
        assert read["sessions"] == 1
        assert read["name"].startswith("device ")
        text = ask(a, "GET", "/metrics").text
        assert f'dray_target_under_way{{end="source",target="{read["name"]}"}}' in text
        here.cancel("t")
