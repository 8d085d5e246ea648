"""A simulation that writes checkpoints, fails, and restarts from its newest checkpoint.

The simulation writes a checkpoint every few steps into the fast root of a tier. The endpoint finds
each checkpoint by its marker file, and copies it to the slow root. After a failure, the next
attempt asks the endpoint for the newest complete checkpoint. If this checkpoint is still on the
fast root, nothing is copied. At the end, the result is staged out.

An attempt consists of two tasks: the restart and the simulation. So a retry of the simulation
always gets the newest checkpoint. The second attempt runs only if the first one has failed.

    airflow dags trigger checkpoint_restart --conf '{"steps": 8, "fail_at": 5}'

Connection (type ``dray``): ``dray_buffer``, an endpoint with a tier whose ``versions`` is
``{application}/{version}`` and whose ``complete`` is ``marker:COMPLETE``. Its fast root is mounted
on the workers.
"""

from __future__ import annotations

import hashlib
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, task

from dray_airflow.operators.stage import DrayStageInOperator, DrayStageOutOperator

ATTEMPTS = 3
STATE_BYTES = 1 << 20
BUFFER: dict[str, Any] = {
    "dray_conn_id": "dray_buffer",
    "retries": 4,
    "retry_delay": timedelta(seconds=5),
}


def advance(state: bytes) -> bytes:
    """Return the state after one step. It depends on all steps before."""
    return hashlib.shake_256(state).digest(STATE_BYTES)


def write_checkpoint(folder: Path, state: bytes) -> None:
    """Write a checkpoint. Write the marker last, so that no incomplete checkpoint is used."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "COMPLETE").unlink(missing_ok=True)
    (folder / "state.bin").write_bytes(state)
    (folder / "COMPLETE").touch()


with DAG(
    "checkpoint_restart",
    schedule=None,
    catchup=False,
    params={
        "application": "sim",
        "steps": 8,
        # Number of steps between two checkpoints.
        "every": 2,
        # Step before which the first attempt fails. 0 means no failure.
        "fail_at": 5,
        "step_seconds": 3,
        # Name of the fast root, and its mount point on the workers.
        "root": "fast",
        "mount": "/fast",
    },
):

    @task(retries=0)
    def simulate(restart: Any, attempt: int, params: Any = None) -> int:  # noqa: ANN401
        """Run the steps after the checkpoint of the restart. Return the number of steps."""
        mount = Path(params["mount"])
        state, done = b"the beginning", 0
        if restart["version"] is not None:
            # The endpoint names the fast copy as /ROOT/PATH.
            there = mount / restart["to"].removeprefix(f"/{params['root']}/")
            state, done = (there / "state.bin").read_bytes(), restart["version"]
        for step in range(done + 1, params["steps"] + 1):
            if attempt == 1 and step == params["fail_at"]:
                raise RuntimeError(f"a node failed before step {step}")
            state = advance(state)
            time.sleep(params["step_seconds"])
            if step % params["every"] == 0:
                write_checkpoint(mount / params["application"] / str(step), state)
        result = mount / f"{params['application']}-result"
        result.mkdir(exist_ok=True)
        (result / "state.bin").write_bytes(state)
        return int(params["steps"]) - done

    keep = DrayStageOutOperator(
        task_id="keep",
        path="/{{ params.root }}/{{ params.application }}-result",
        recursive=True,
        evict=True,
        trigger_rule="one_success",
        **BUFFER,
    )

    failed: Any = None
    for attempt in range(1, ATTEMPTS + 1):
        restart = DrayStageInOperator(
            task_id=f"restart_{attempt}",
            application="{{ params.application }}",
            # The checkpoint must not be evicted while the simulation reads it.
            pin=timedelta(hours=1),
            missing_ok=True,
            trigger_rule="all_success" if failed is None else "all_failed",
            **BUFFER,
        )
        work = simulate.override(task_id=f"simulate_{attempt}")(restart.output, attempt)
        if failed is not None:
            failed >> restart
        work >> keep
        failed = work
