"""The task of a graph, from which :mod:`.graph` computes a plan. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from datetime import datetime

__all__ = ["ENDED", "Task", "TaskState"]

TaskState = Literal["waiting", "running", "done", "skipped", "failed"]
"""Progress of a task. ``skipped`` includes tasks that cannot run because an earlier task failed."""

ENDED = frozenset({"done", "skipped", "failed"})


@dataclass(frozen=True, slots=True)
class Task:
    """A task of the graph.

    :param id: name of the task, unique in a graph.
    :param upstream: names of the tasks that the task waits for.
    :param expected_seconds: declared duration of one instance.
    :param median_seconds: median duration of one instance in past runs.
    :param runs: number of past instances from which ``median_seconds`` was computed.
    :param is_transfer: true if the task gets its own deadline.
    :param bytes: total size of all instances of a transfer. Used if no duration is known.
    :param rate: rate in bytes per second that the transfer's endpoint can promise, if known.
    :param rule: Airflow's trigger rule.
    :param is_counted: true if the deadline waits for the task. Usually false for a teardown.
    :param instances: number of instances of a mapped task.
    :param instances_done: number of instances that have ended.
    :param at_once: number of instances that run concurrently. ``None`` means all.
    :param state: progress of the task.
    :param started_at: start of a running task, with a time zone.
    """

    id: str
    upstream: tuple[str, ...] = ()
    expected_seconds: float | None = None
    median_seconds: float | None = None
    runs: int = 0
    is_transfer: bool = False
    bytes: int | None = None
    rate: float | None = None
    rule: str = "all_success"
    is_counted: bool = True
    instances: int = 1
    instances_done: int = 0
    at_once: int | None = None
    state: TaskState = "waiting"
    started_at: datetime | None = None

    @property
    def rounds(self) -> int:
        """Number of consecutive rounds of instances that have not run yet."""
        left = max(self.instances - self.instances_done, 0)
        return math.ceil(left / max(1, min(self.at_once or left, left))) if left else 0
