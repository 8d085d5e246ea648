"""Runs that end before their transfers: timed out, deleted, ended by a user.

docs/explanation/airflow-faults.md describes this behaviour.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from integration.airflow.conftest import MIB, RESENT_BYTES_MAX
from integration.harness.airflow import is_marked

if TYPE_CHECKING:
    from collections.abc import Callable

    from dray.client import Transfer
    from integration.airflow.conftest import Scene
    from integration.harness.airflow import Run

pytestmark = [pytest.mark.slow, pytest.mark.server]

#: Maximum size of a scheduler's whole log. A run takes several hundred lines.
LINES_MAX = 1 << 20
#: Tasks of the DAGs ``move_both`` and ``move_brief``: one waits itself, the other defers.
BOTH = ("waiting", "deferred")


def make_both(scene: Scene) -> None:
    """Write 48 MiB of data for each task in ``BOTH``."""
    scene.make({f"{task_id}/{number}": 16 * MIB for task_id in BOTH for number in range(3)})


def both(scene: Scene) -> dict[str, Transfer]:
    """Return the transfers of the two tasks, by the name of the task."""
    return {each.request["labels"]["task_id"]: each for each in scene.transfers()}


def await_both(
    scene: Scene, has_processed_end: Callable[[Transfer], bool], what: str
) -> dict[str, Transfer]:
    """Wait until a condition holds for the transfers of both tasks."""

    def found() -> dict[str, Transfer]:
        known = both(scene)
        return known if len(known) == 2 and all(map(has_processed_end, known.values())) else {}

    return scene.airflow.wait_for(found, f"both transfers of {scene.name}: {what}")


def is_moving(transfer: Transfer) -> bool:
    """Return whether some data of a transfer is durable. Fail if the transfer has ended."""
    assert not transfer.is_terminal, transfer
    return transfer.bytes.durable >= 4 * MIB


def is_cancelled(transfer: Transfer) -> bool:
    """Return whether a transfer was cancelled. Fail if it is done."""
    assert transfer.state != "done"
    return transfer.state == "cancelled"


def await_forgotten(scene: Scene, deleted: Run) -> None:
    """Wait until the scheduler has processed the end of a deleted run's task process.

    The scheduler identifies tasks by the names of their runs. If a new run had the same name, the
    scheduler would take the end of the old process for the end of the new run's task, and would
    retry the new task.
    """
    text = rf"executor event with state \w+ .*task_id='waiting', run_id='{deleted.run_id}', "
    heard = re.compile(text)

    def has_processed_end() -> bool:
        # The scheduler of Airflow 3.3.2 exits with an error if a run is deleted while the scheduler
        # processes that run. A new scheduler does not know the processes of its predecessor.
        if scene.airflow.revive("scheduler"):
            print(f"the scheduler has ended:\n{scene.airflow.said('scheduler')}")
            return True
        return heard.search(scene.airflow.said("scheduler", lines=LINES_MAX)) is not None

    scene.airflow.wait_for(
        has_processed_end, f"the scheduler knows that {deleted} has no process any more"
    )


@pytest.mark.full
def test_a_run_exceeds_its_time_limit(scene: Scene) -> None:
    make_both(scene)
    run = scene.begin("move_brief", rate=MIB)
    with scene.watched():
        await_both(scene, is_moving, "move")
        run.await_end("failed")
        await_both(scene, is_cancelled, "are cancelled")
    assert {run.task(task_id).state for task_id in BOTH} == {"skipped"}
    assert scene.carried() < scene.size


@pytest.mark.full
def test_a_deleted_run_is_resumed_by_another_of_its_name(scene: Scene) -> None:
    make_both(scene)
    run = scene.begin("move_both", rate=MIB)
    with scene.watched():
        await_both(scene, is_moving, "move")
        with pytest.raises(RuntimeError, match="cannot be deleted in running state"):
            run.delete()
        run.mark_failed()
        # Delete the run before its task processes are notified of the failure. When they are
        # notified, their tasks no longer exist.
        run.delete()
        stopped = await_both(scene, is_cancelled, "are cancelled")
        assert scene.carried() < scene.size
        safe = sum(each.bytes.durable for each in stopped.values())
        unsafe = scene.unsafe(safe)
        await_forgotten(scene, run)
        again = scene.begin("move_both").await_end()
    # A second try would restart the transfer, and its result would cover only a part of the data.
    assert {task.task_id: task.tries for task in again.tasks()} == dict.fromkeys(BOTH, 1)
    results = {task_id: again.result(task_id) for task_id in BOTH}
    transfers = both(scene)
    assert {each.attempt for each in transfers.values()} == {2}, transfers
    assert sum(each["bytes_resumed"] for each in results.values()) >= safe, results
    assert unsafe <= RESENT_BYTES_MAX
    scene.check(unsafe)


def test_run_is_marked_failed_while_the_endpoint_is_unreachable(scene: Scene) -> None:
    make_both(scene)
    run = scene.begin("move_both", rate=4 * MIB)
    with scene.watched():
        await_both(scene, is_moving, "move")
        pid = run.task("waiting").pid
        scene.world.b.kill()
        run.mark_failed()
        # Airflow gives a task process some seconds to end, and a trigger one second. When this
        # second is over, the trigger still cancels its transfer in the background.
        scene.airflow.wait_for(
            lambda: not is_marked(pid, scene.airflow.mark), "the task's process has ended"
        )
        scene.airflow.wait_for(
            lambda: "trigger completed" in run.log("deferred"), "the trigger has ended"
        )
        scene.world.b.start()
        ended = await_both(scene, lambda each: each.is_terminal, "have ended")
        states = {task_id: each.state for task_id, each in ended.items()}
        assert states == {"waiting": "done", "deferred": "cancelled"}
        # Bytes may be sent again for two reasons: the endpoint was killed, and one transfer was
        # cancelled.
        unsafe = scene.unsafe(sum(each.bytes.durable for each in ended.values()))
        for task_id in BOTH:
            run.clear(task_id)
        run.await_end()
    # The transfer of `waiting` was not cancelled, but had finished, so it needed one attempt.
    assert {task_id: each.attempt for task_id, each in both(scene).items()} == {
        "waiting": 1,
        "deferred": 2,
    }
    assert unsafe <= RESENT_BYTES_MAX
    scene.check(unsafe)
