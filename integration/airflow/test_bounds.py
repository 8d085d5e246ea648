"""The endpoint stops a running transfer ``bound_seconds`` after the last query by its task.

docs/explanation/airflow-faults.md describes this behaviour.
"""

from __future__ import annotations

import contextlib
import json
import time
from typing import TYPE_CHECKING

import pytest

from dray.client import Client
from dray.errors import DrayError
from dray_airflow.errors import is_unattended
from integration.airflow.conftest import MIB, RESENT_BYTES_MAX, SMALL_BYTES, SMALL_FILES
from integration.airflow.test_ends import both, make_both

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dray.testing.endpoints import Endpoint
    from integration.airflow.conftest import Scene

pytestmark = [pytest.mark.full, pytest.mark.slow, pytest.mark.server]

SLOW_RATE = 2 * MIB
#: ``bound_seconds`` of the DAGs' tasks. The endpoint checks the bound every one or two seconds.
BOUND_SECONDS = 10
AT_BOUND_SECONDS = BOUND_SECONDS + 20
#: ``execution_timeout`` of the DAG ``move_timed``
TIMEOUT_SECONDS = 150


@contextlib.contextmanager
def without_triggerer(scene: Scene) -> Iterator[None]:
    """Stop the triggerer until the context ends."""
    scene.airflow.kill("triggerer")
    try:
        yield
    finally:
        scene.airflow.start("triggerer")


def await_forsaken(scene: Scene) -> None:
    """Wait until the endpoint has ended the transfer by itself."""
    # Do not query the transfer meanwhile, because each query renews the bound.
    time.sleep(AT_BOUND_SECONDS)
    assert is_unattended(scene.transfer())


def test_a_task_that_is_ended_before_its_trigger_begins_ends_its_transfer(scene: Scene) -> None:
    scene.make_large()
    with scene.watched(), without_triggerer(scene):
        run = scene.begin("move_bound", rate=SLOW_RATE // 2)
        run.await_task("move", "deferred")
        scene.await_moving(MIB)
        run.mark("move", "failed")
        run.await_end("failed")
        await_forsaken(scene)
    assert 0 < scene.carried() < scene.size


def test_a_triggerer_that_was_down_for_longer_than_the_bound_costs_no_try(scene: Scene) -> None:
    scene.make_large()
    run = scene.begin("move_bound", rate=SLOW_RATE)
    with scene.watched():
        run.await_task("move", "deferred")
        scene.await_moving()
        with without_triggerer(scene):
            await_forsaken(scene)
            stopped = scene.transfer()
            unsafe = scene.unsafe(stopped.bytes.durable)
        run.await_end()
    assert run.task("move").tries == 1
    assert "no caller asked the endpoint about it within bound_seconds; it starts again" in run.log(
        "move"
    )
    assert scene.transfer().attempt == 2
    resumed = run.result("move")["bytes_resumed"]
    assert resumed >= stopped.bytes.durable - SMALL_FILES * SMALL_BYTES
    assert unsafe <= RESENT_BYTES_MAX
    scene.check(unsafe)


def test_the_time_of_a_task_counts_over_all_its_deferrals(scene: Scene) -> None:
    scene.make_large()
    begun = time.monotonic()
    run = scene.begin("move_timed", rate=SLOW_RATE // 8)
    with scene.watched():
        run.await_task("move", "deferred")
        scene.await_moving(MIB)
        with without_triggerer(scene):
            await_forsaken(scene)
        run.await_end("failed", seconds=TIMEOUT_SECONDS + 60)
        took = time.monotonic() - begun
        scene.await_transfer(lambda each: each.state == "cancelled", "is cancelled", seconds=30)
    assert "started again" in run.log("move")
    assert "did not end within execution_timeout (0:02:30)" in run.log("move")
    assert scene.transfer().attempt == 2
    # One limit covers both deferrals. Two limits would double the time.
    print(f"{took:.0f} s, {TIMEOUT_SECONDS} s of them the task's")
    assert took < TIMEOUT_SECONDS + 45


def is_refused(endpoint: Endpoint, token: str) -> bool:
    """Return true if an endpoint refuses a token."""
    with Client(endpoint.url, token=token, pin=endpoint.key) as client:
        try:
            client.endpoint()
        except DrayError as error:
            return error.kind == "unauthorized"
    return False


def test_a_late_token_renewal_loses_no_task(scene: Scene) -> None:
    make_both(scene)
    endpoint, airflow = scene.world.b, scene.airflow
    host, _, port = endpoint.address.rpartition(":")
    said = {
        "connection_id": "dray_renewed",
        "conn_type": "dray",
        "host": host,
        "port": int(port),
        "extra": json.dumps({"pin": endpoint.key, "outage_seconds": 5}),
    }
    # An endpoint accepts a token for a minute after its end.
    brief = endpoint.token(lifetime="15s")
    airflow.ask("POST", "connections", {**said, "password": brief})

    def renew(token: str) -> None:
        airflow.ask("PATCH", "connections/dray_renewed", {**said, "password": token})

    run = scene.begin("move_renewed", rate=MIB // 3)
    with scene.watched():
        run.await_task("deferred", "deferred")
        run.await_task("waiting", "running")
        airflow.wait_for(
            lambda: (
                len(both(scene)) == 2 and all(each.bytes.durable for each in both(scene).values())
            ),
            "both move",
        )
        airflow.wait_for(lambda: is_refused(endpoint, brief), "the token has expired")
        airflow.wait_for(
            lambda: (
                "the endpoint has not answered for" in airflow.said("triggerer", lines=5000)
                or "the endpoint has not answered for" in run.log("deferred")
            ),
            "the trigger is refused",
        )
        airflow.wait_for(
            lambda: "its state is unknown" in run.log("waiting"), "the task is refused"
        )
        # Wait for longer than ``outage_seconds``.
        time.sleep(10)
        assert {run.task("deferred").state, run.task("waiting").state} == {"deferred", "running"}
        renew(endpoint.token())
        run.await_end(seconds=300)
    assert [task.tries for task in run.tasks()] == [1, 1]
    assert [(each.attempt, each.tries) for each in both(scene).values()] == [(1, 1)] * 2
    scene.check()
