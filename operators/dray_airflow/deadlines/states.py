"""Airflow's states of task instances as progress of a task of the graph. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dray_airflow.deadlines.task import TaskState

__all__ = ["progress_of", "whole_progress"]

_STATES: dict[str | None, TaskState] = {
    "success": "done",
    "skipped": "skipped",
    "removed": "skipped",
    "failed": "failed",
    "upstream_failed": "failed",
    "running": "running",
    "deferred": "running",
    "restarting": "running",
    "up_for_retry": "running",
    "up_for_reschedule": "running",
}


def progress_of(state: str | None) -> TaskState:
    """Return the progress of an instance with this state in Airflow. ``None``: no state yet."""
    return _STATES.get(state, "waiting")


def whole_progress(rows: Sequence[TaskState]) -> TaskState:
    """Return the progress of a task from the progress of its instances."""
    if not rows:
        return "waiting"
    kinds = set(rows)
    if len(kinds) == 1:
        return rows[0]
    if kinds <= {"done", "skipped", "failed"}:
        return "failed" if "failed" in kinds else "done"
    return "running"
