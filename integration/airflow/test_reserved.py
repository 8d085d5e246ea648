"""A run's reservations at an endpoint end with the run, under a real scheduler.

docs/how-to/airflow-admit.md describes this behaviour.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dray.testing.endpoints import Endpoint
from integration.airflow.conftest import LIMITS, MIB, connected

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dray.client import Transfer
    from integration.airflow.conftest import World

pytestmark = [pytest.mark.slow, pytest.mark.server]

RATE = 10 * MIB
#: Deadline of a run in seconds. Two transfers of ``SIZE`` do not fit into this time.
DEADLINE_SECONDS = 600
SIZE = RATE * (DEADLINE_SECONDS - 120) * 3 // 4


@pytest.fixture
def rated(world: World) -> Iterator[Endpoint]:
    """Start an endpoint with a rate. Store a connection to it in Airflow's database."""
    folder = world.b.folder.parent / "rated"
    endpoint = Endpoint(
        folder, "rated", program=world.b.program, config={"limits": LIMITS, "rate": RATE}
    )
    with connected(world, endpoint):
        yield endpoint


def reservations(endpoint: Endpoint, run_id: str) -> list[Transfer]:
    """Return the reservations of a run."""
    with endpoint.client() as client:
        found = client.transfers(state="live", labels={"run_id": run_id})
        return [each for each in found if each.id.endswith(".r")]


def test_reservations_end_with_their_run(world: World, rated: Endpoint) -> None:
    conf = {"deadline": f"{DEADLINE_SECONDS}s", "bytes": SIZE, "fails": True}
    run = world.airflow.trigger("reserved", "reserved-1", conf)
    run.await_task("admit", "success")
    run.await_end("failed")
    world.airflow.wait_for(
        lambda: not reservations(rated, run.run_id), "the failed run keeps nothing", 60
    )
    # A new run can reserve the same rate and time, because the failed run keeps no reservation.
    again = world.airflow.trigger("reserved", "reserved-2", conf)
    again.await_task("admit", "success")
    again.await_end("failed")


def test_a_run_ended_by_a_user_keeps_no_reservation(world: World, rated: Endpoint) -> None:
    conf = {"deadline": f"{DEADLINE_SECONDS}s", "bytes": SIZE, "seconds": 300}
    run = world.airflow.trigger("reserved", "reserved-3", conf)
    run.await_task("admit", "success")
    run.mark_failed()
    world.airflow.wait_for(
        lambda: not reservations(rated, run.run_id), "the ended run keeps nothing", 60
    )
