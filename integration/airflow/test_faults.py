"""Everything that can happen to a task while its transfer runs, under the real scheduler.

docs/explanation/airflow-faults.md tells people what these show.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from integration.airflow.conftest import MIB, RESENT_BYTES_MAX

if TYPE_CHECKING:
    from integration.airflow.conftest import Scene

pytestmark = [pytest.mark.slow, pytest.mark.server]

#: bytes per second: long enough for Airflow to do in the middle what the test is about
RATE = 6 * MIB
#: so slow that Airflow has time to give a process up for dead (the heartbeats' timeout) and to
#: start another, while the first still waits
SLOW_RATE = 2 * MIB
#: A task that is told to stop has cancelled its transfer by then (seen: one to four seconds).
KILL_SECONDS = 6.0


def parent(pid: int) -> int:
    """Give the process that has started another one."""
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    return int(stat.rpartition(")")[2].split()[1])


def is_running(pid: int) -> bool:
    """Look whether a process lives."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def test_worker_is_killed(scene: Scene) -> None:
    scene.make_large()
    run = scene.begin("move_waiting", rate=RATE)
    with scene.watched():
        scene.await_moving()
        os.kill(run.task("move").pid, signal.SIGKILL)
        run.await_end()
    assert run.task("move").tries == 2
    # The endpoint has not noticed: the second try attached to what ran, or found it done.
    transfer = scene.transfer()
    assert (transfer.attempt, transfer.tries) in {(1, 1), (2, 1)}
    scene.check()


def test_supervisor_is_killed_and_its_orphan_cannot_harm(scene: Scene) -> None:
    scene.make_large()
    run = scene.begin("move_waiting", rate=SLOW_RATE)
    with scene.watched():
        scene.await_moving()
        orphan = run.task("move").pid
        os.kill(parent(orphan), signal.SIGKILL)
        second = run.await_task("move", "running", tries=2)
        scene.airflow.wait_for(
            lambda: scene.transfer().request["labels"].get("airflow.try"), "the second try attached"
        )
        assert second.pid != orphan
        assert is_running(orphan)
        # Told to stop it would cancel its transfer, were that still its own.
        os.kill(orphan, signal.SIGTERM)
        until = time.monotonic() + KILL_SECONDS
        while time.monotonic() < until:
            assert scene.transfer().state != "cancelled"
            time.sleep(0.2)
        run.await_end()
    transfer = scene.transfer()
    assert (transfer.attempt, transfer.tries) == (1, 1)
    scene.check()


def test_triggerer_is_killed(scene: Scene) -> None:
    scene.make_large()
    run = scene.begin("move_deferred", rate=RATE)
    with scene.watched():
        run.await_task("move", "deferred")
        scene.await_moving()
        scene.airflow.kill("triggerer")
        scene.airflow.start("triggerer")
        run.await_end()
    assert run.task("move").tries == 1
    transfer = scene.transfer()
    assert (transfer.attempt, transfer.tries) == (1, 1)
    scene.check()


@pytest.mark.parametrize("victim", ["destination", "source"])
def test_endpoint_is_killed(scene: Scene, victim: str) -> None:
    scene.make_large()
    run = scene.begin("move_deferred", rate=RATE)
    endpoint = scene.world.b if victim == "destination" else scene.world.a
    with scene.watched():
        run.await_task("move", "deferred")
        scene.await_moving()
        endpoint.kill()
        endpoint.start()
        run.await_end()
    # The endpoint goes on by itself; the task has only waited.
    assert run.task("move").tries == 1
    assert scene.transfer().attempt == 1
    scene.check(RESENT_BYTES_MAX)


def test_task_is_cleared_while_it_runs_and_after_success_and_the_run_is_made_again(
    scene: Scene,
) -> None:
    scene.make_large()
    run = scene.begin("move_deferred", rate=RATE)
    with scene.watched():
        run.await_task("move", "deferred")
        scene.await_moving()
        run.clear("move")
        run.await_end()
        scene.check(RESENT_BYTES_MAX)
        # The new try attached, or came when the old one's transfer had been cancelled.
        is_attached = scene.transfer().attempt == 1
        assert is_attached == (run.result("move")["bytes_resumed"] == 0)

        scene.before = scene._counted() - scene.size
        run.clear("move")
        run.await_task("move", "running", "deferred")
        run.await_end()
        assert run.result("move")["bytes_sent"] == 0
        scene.check()

        scene.before = scene._counted() - scene.size
        again = scene.begin("move_deferred", f"{scene.name}-again", rate=RATE).await_end()
        assert again.result("move")["bytes_sent"] == 0
        assert again.result("move")["id"] != run.result("move")["id"]
        scene.check()


def test_mapped_shard_is_tried_again(scene: Scene) -> None:
    names = ["s0", "s1", "s2"]
    scene.make({f"{name}/{number}": 8 * MIB for name in names for number in range(3)})
    run = scene.begin("move_mapped", rate=RATE // 3, shards=names)
    with scene.watched():
        run.await_task("move", "running", map_index=1)
        scene.await_moving(MIB, map_index=1)
        os.kill(run.task("move", 1).pid, signal.SIGKILL)
        run.await_end()
    assert [run.task("move", index).tries for index in range(3)] == [1, 2, 1]
    scene.check()
    # Cleared alone, it moves nothing and wakes no other.
    scene.before = scene._counted() - scene.size
    run.clear("move", 1)
    run.await_task("move", "running", "success", map_index=1, tries=3)
    run.await_end()
    assert [run.task("move", index).tries for index in range(3)] == [1, 3, 1]
    assert len(scene.transfers()) == 3
    scene.check()


@pytest.mark.parametrize("dag_id", ["move_waiting", "move_deferred"])
def test_user_marks_it_failed(scene: Scene, dag_id: str) -> None:
    scene.make_large()
    run = scene.begin(dag_id, rate=RATE)
    with scene.watched():
        run.await_task("move", "running" if dag_id == "move_waiting" else "deferred")
        scene.await_moving()
        run.mark("move", "failed")
        stopped = scene.await_transfer(lambda each: each.state == "cancelled", "is cancelled")
        run.await_end("failed")
        carried = scene.carried()
        assert carried < scene.size
        assert stopped.bytes.durable > 0
        # What was safe is kept, and somebody who clears the task goes on from there.
        run.clear("move")
        run.await_end()
    assert run.result("move")["bytes_resumed"] > 0
    assert len(scene.transfers()) == 1
    scene.check(RESENT_BYTES_MAX)
