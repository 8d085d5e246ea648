"""Faults of a task while its transfer runs, under Airflow's real scheduler.

docs/explanation/airflow-faults.md describes how the task and the transfer react to each fault.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from integration.airflow.conftest import (
    DATA_BYTES,
    LOOKED_BYTES,
    MIB,
    RESENT_BYTES_MAX,
    SMALL_BYTES,
    SMALL_FILES,
)

if TYPE_CHECKING:
    from dray.client import Transfer
    from integration.airflow.conftest import Scene
    from integration.harness.airflow import Run

pytestmark = [pytest.mark.slow, pytest.mark.server]

#: Rate in bytes per second, so low that Airflow can act in the middle of a transfer.
RATE = 6 * MIB
#: Rate in bytes per second, so low that Airflow detects a missing heartbeat and starts another
#: process before the transfer ends.
SLOW_RATE = 2 * MIB
#: Seconds within which a stopped task cancels its transfer. In earlier runs, a task needed one to
#: four seconds.
KILL_SECONDS = 6.0


def parent(pid: int) -> int:
    """Return the id of the parent of a process."""
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    return int(stat.rpartition(")")[2].split()[1])


def is_running(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def has_attached(run: Run, map_index: int = -1) -> bool:
    """Return whether a try has logged that it attached to the live transfer."""
    return " attached " in run.log("move", map_index)


def test_worker_is_killed(scene: Scene) -> None:
    scene.make_large()
    run = scene.begin("move_waiting", rate=SLOW_RATE)
    with scene.watched():
        scene.await_moving()
        assert not has_attached(run)
        run.kill("move")
        run.await_end()
    assert run.task("move").tries == 2
    # The endpoint is unaffected: the second try attached to the running transfer.
    assert has_attached(run)
    scene.check_undisturbed()


@pytest.mark.full
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
        # On SIGTERM, the orphan would cancel its transfer. It does not do so here, because a later
        # try of the task has attached to the transfer.
        os.kill(orphan, signal.SIGTERM)
        until = time.monotonic() + KILL_SECONDS
        while time.monotonic() < until:
            assert scene.transfer().state != "cancelled"
            time.sleep(0.2)
        run.await_end()
    scene.check_undisturbed()


@pytest.mark.full
def test_triggerer_is_killed(scene: Scene) -> None:
    scene.make_large()
    run = scene.begin("move_deferred", rate=SLOW_RATE)
    with scene.watched():
        run.await_task("move", "deferred")
        scene.await_moving()
        first = scene.airflow.wait_for(
            lambda: run.task("move").triggerer, "the trigger is with a triggerer"
        )
        scene.airflow.kill("triggerer")
        scene.airflow.start("triggerer")
        scene.airflow.wait_for(
            lambda: run.task("move").triggerer not in (0, first), "the other triggerer has it"
        )
        # The transfer still runs, so the new task has not found the end of an earlier transfer.
        assert not scene.transfer().is_terminal
        run.await_end()
    assert run.task("move").tries == 1
    scene.check_undisturbed()


@pytest.mark.parametrize("victim", ["destination", "source"])
def test_endpoint_is_killed(scene: Scene, victim: str) -> None:
    scene.make_large()
    run = scene.begin("move_deferred", rate=RATE)
    endpoint = scene.world.b if victim == "destination" else scene.world.a
    with scene.watched():
        run.await_task("move", "deferred")
        safe = scene.await_moving(DATA_BYTES // 3).bytes.durable
        endpoint.kill()
        unsafe = scene.unsafe(safe)
        endpoint.start()
        run.await_end()
    # The endpoint continues by itself; the task has only waited.
    assert run.task("move").tries == 1
    transfer = scene.transfer()
    assert (transfer.attempt, transfer.tries) == (1, 2)
    assert unsafe <= RESENT_BYTES_MAX
    scene.check(unsafe)


def test_a_task_is_cleared_running_and_done_and_its_run_is_made_again(
    scene: Scene,
) -> None:
    scene.make_large()
    run = scene.begin("move_deferred", rate=RATE)
    with scene.watched():
        run.await_task("move", "deferred")
        safe = scene.await_moving().bytes.durable
        run.clear("move")
        run.await_end()
        # The new try attached to the live transfer, or it restarted the cancelled transfer.
        resumed = run.result("move")["bytes_resumed"]
        if scene.transfer().attempt == 1:
            assert has_attached(run)
            assert resumed == 0
            scene.check()
        else:
            assert resumed >= safe - SMALL_FILES * SMALL_BYTES
            scene.check(RESENT_BYTES_MAX)

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


@pytest.mark.full
def test_run_is_begun_again_while_the_first_moves(scene: Scene) -> None:
    scene.make_large()
    run = scene.begin("move_deferred", rate=RATE)

    def transfer_of(other: Run) -> Transfer | None:
        with scene.client() as client:
            return next(client.transfers(labels={"run_id": other.run_id}), None)

    with scene.watched():
        run.await_task("move", "deferred")
        scene.await_moving()
        again = scene.begin("move_deferred", f"{scene.name}-again", rate=RATE)
        scene.airflow.wait_for(lambda: transfer_of(again), "there are two transfers to one place")
        together = 0
        while True:
            # Read the second transfer first, because it may start when the first one has ended.
            second, first = transfer_of(again), transfer_of(run)
            assert first is not None
            assert second is not None
            if first.is_terminal:
                break
            assert second.bytes.sent == 0
            together += 1
            time.sleep(0.2)
        assert together > 5
        run.await_end()
        again.await_end()
    assert (run.result("move")["bytes_sent"], again.result("move")["bytes_sent"]) == (scene.size, 0)
    last = transfer_of(again)
    assert last is not None
    print(f"the second: {together} looks, attempt {last.attempt}, tries {last.tries}")
    print(f"{again.task('move').tries} of the task; {last.notices}")
    scene.check(LOOKED_BYTES)


@pytest.mark.full
def test_mapped_shard_is_tried_again(scene: Scene) -> None:
    names = ["s0", "s1", "s2"]
    scene.make({f"{name}/{number}": 8 * MIB for name in names for number in range(3)})
    run = scene.begin("move_mapped", rate=SLOW_RATE // 3, shards=names)
    with scene.watched():
        run.await_task("move", "running", map_index=1)
        scene.await_moving(MIB, map_index=1)
        run.kill("move", 1)
        run.await_end()
    assert [run.task("move", index).tries for index in range(3)] == [1, 2, 1]
    assert [has_attached(run, index) for index in range(3)] == [False, True, False]
    assert [(each.attempt, each.tries) for each in scene.transfers()] == [(1, 1)] * 3
    scene.check()
    # If only this task is cleared, it sends nothing and starts no other task.
    scene.before = scene._counted() - scene.size
    run.clear("move", 1)
    run.await_task("move", "running", "success", map_index=1, tries=3)
    run.await_end()
    assert [run.task("move", index).tries for index in range(3)] == [1, 3, 1]
    assert len(scene.transfers()) == 3
    scene.check()


@pytest.mark.full
@pytest.mark.parametrize("dag_id", ["move_waiting", "move_deferred"])
def test_run_is_marked_failed(scene: Scene, dag_id: str) -> None:
    scene.make_large()
    run = scene.begin(dag_id, rate=SLOW_RATE)
    with scene.watched():
        run.await_task("move", "running" if dag_id == "move_waiting" else "deferred")
        scene.await_moving()
        if dag_id == "move_deferred":
            # Airflow still names the process of the deferred task, but this process has ended. Fail
            # instead of killing another process that may have got the same process id.
            with pytest.raises(RuntimeError, match="is deferred"):
                run.kill("move")
        run.mark_failed()
        scene.await_transfer(lambda each: each.state == "cancelled", "is cancelled", seconds=30)
    assert scene.carried() < scene.size


@pytest.mark.full
@pytest.mark.parametrize("dag_id", ["move_waiting", "move_deferred"])
def test_a_user_marks_the_task_failed(scene: Scene, dag_id: str) -> None:
    scene.make_large()
    run = scene.begin(dag_id, rate=RATE)
    with scene.watched():
        run.await_task("move", "running" if dag_id == "move_waiting" else "deferred")
        scene.await_moving()
        run.mark("move", "failed")
        stopped = scene.await_transfer(lambda each: each.state == "cancelled", "is cancelled")
        run.await_end("failed")
        assert scene.carried() < scene.size
        unsafe = scene.unsafe(stopped.bytes.durable)
        # Durable data is kept, and clearing the task resumes from it.
        run.clear("move")
        run.await_end()
    # The new try resumes all durable data of unfinished files. The small files may be complete, so
    # their bytes may not count as resumed.
    resumed = run.result("move")["bytes_resumed"]
    assert resumed >= stopped.bytes.durable - SMALL_FILES * SMALL_BYTES
    assert len(scene.transfers()) == 1
    assert unsafe <= RESENT_BYTES_MAX
    scene.check(unsafe)
