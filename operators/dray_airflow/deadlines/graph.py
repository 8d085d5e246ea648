"""Derive the deadline of each transfer from a graph of tasks and the run's deadline. Pure.

:func:`plan_deadlines` computes for each transfer the latest finish, the necessary rate, the slack,
and the later tasks that determine the latest finish. This module does not import Airflow.
:mod:`dray_airflow.deadlines.dag` supplies tasks, durations and states. The current time is an
argument.

Invariant owned here: the latest finish of a transfer is the run's deadline minus the duration of
the longest path after the transfer. So if the transfer ends by its latest finish, all later tasks
have at least their expected durations.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal

from dray_airflow.deadlines.task import ENDED, Task, TaskState
from dray_airflow.deadlines.text import clock, span

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "OVERHEAD_SECONDS",
    "DeadlinePlan",
    "Step",
    "Task",
    "TaskState",
    "TaskTimes",
    "TransferDeadline",
    "plan_deadlines",
]

OVERHEAD_SECONDS = 5.0
"""Seconds between a task's end and the next task's work (seen with Airflow 3.3.2: 2 s to 6 s)."""

TRANSFER_SECONDS_MIN = 10.0
"""Minimum duration of a transfer in seconds, if sizes or rates are estimated.

The value is estimated, not measured.
"""
ASSUMED_RATE = 10e6
"""Assumed rate in bytes per second of a transfer whose endpoint reports no rate.

Used if there is also a transfer of unknown size, so that a transfer of a few bytes does not get
half of the run's time. The value is a tenth of the rate of a slow host. The rate was not measured.
"""

RESCUE_RULES = frozenset({"one_failed", "all_failed", "all_skipped"})
"""Trigger rules of tasks that run only after a failure. They are not on the expected path."""


@dataclass(frozen=True, slots=True)
class Step:
    """A task on a path, with its expected part of the path's duration.

    :param seconds: duration without the overhead between tasks.
    :param basis: text that names the origin of the duration.
    """

    task_id: str
    seconds: float
    basis: str

    def __str__(self) -> str:
        """Return the step as a short text."""
        return f"{self.task_id} {span(self.seconds)} ({self.basis})"


@dataclass(frozen=True, slots=True)
class TransferDeadline:
    """The times and the rate that a transfer must keep, so that the run meets its deadline.

    :param task_id: task of the transfer.
    :param latest_finish: the run's deadline minus the duration of the longest path after the
        transfer, with a time zone. All instances must have ended at this time.
    :param earliest_start: expected end of the tasks before the transfer, with a time zone. A
        previous transfer of unknown duration counts as zero.
    :param expected_seconds: expected duration of the transfer, ``None`` if unknown.
    :param slack_seconds: time between the expected end and the latest finish. Negative if the
        transfer will be late.
    :param bytes: size of one instance, if known.
    :param rounds: number of instances that run one after another before the latest finish,
        including this instance.
    :param rate_min: minimum rate of one instance from its start, in bytes per second.
    :param class_: class of the transfer for the endpoint, always ``deadline``.
    :param chain: the tasks of the longest path after the transfer, in order.
    :param deadline: deadline of the whole run, with a time zone.
    :param overhead_seconds: overhead between two tasks.
    """

    task_id: str
    latest_finish: datetime
    earliest_start: datetime
    expected_seconds: float | None
    slack_seconds: float | None
    bytes: int | None
    rounds: int
    rate_min: float | None
    class_: Literal["deadline"]
    chain: tuple[Step, ...]
    deadline: datetime
    overhead_seconds: float

    @property
    def is_possible(self) -> bool:
        """True if there is time left for the transfer."""
        return self.latest_finish > self.earliest_start

    def finish_of_next(self, now: datetime) -> datetime:
        """Return the deadline of the task's instance that starts now.

        If instances run one after another, each gets an equal part of the remaining time.
        """
        if self.rounds <= 1 or self.latest_finish <= now:
            return self.latest_finish
        return now + (self.latest_finish - now) / self.rounds

    @property
    def why(self) -> str:
        """One line with the latest finish, and the later tasks that must end by the deadline."""
        said = f"{self.task_id} must be done by {clock(self.latest_finish)}: "
        if not self.chain:
            return said + "this is the run's deadline, because no task follows"
        after = (self.deadline - self.latest_finish).total_seconds()
        steps = ", ".join(str(step) for step in self.chain)
        between = ""
        if self.overhead_seconds:
            between = (
                f", and for {span(self.overhead_seconds)} of overhead before each of these tasks"
            )
        return (
            f"{said}the run's deadline {clock(self.deadline)} minus {span(after)} for "
            f"{steps}{between}"
        )


@dataclass(frozen=True, slots=True)
class TaskTimes:
    """The times of an unfinished task that the deadline waits for.

    :param earliest_start: expected end of the tasks before this task, with a time zone.
    :param latest_finish: end with which the run meets its deadline, with a time zone.
    :param seconds: expected duration. A transfer of unknown size gets a share of the time.
    :param basis: text that names the origin of the duration.
    """

    earliest_start: datetime
    latest_finish: datetime
    seconds: float
    basis: str

    @property
    def latest_start(self) -> datetime:
        """Latest finish minus the expected duration."""
        return self.latest_finish - timedelta(seconds=self.seconds)

    @property
    def slack_seconds(self) -> float:
        """Seconds by which the task can start late. Negative if the run is already late."""
        return (self.latest_start - self.earliest_start).total_seconds()


@dataclass(frozen=True, slots=True)
class DeadlinePlan:
    """The planned deadlines of the transfers of a run.

    :param deadline: deadline of the whole run, with a time zone.
    :param now: time of the planning, with a time zone.
    :param transfers: unfinished transfers that the deadline waits for, by name.
    :param critical: the longest path from now to the end, in order.
    :param expected_finish: end of the longest path, with a time zone.
    :param rate_common: rate in bytes per second that is assumed for transfers of known size and
        unknown duration. This rate is the argument ``rate`` of :func:`plan_deadlines`, or else the
        lowest rate at which all paths end before the deadline. ``None`` if there is no such
        transfer, or if no rate is high enough.
    :param unknown: unfinished tasks of unknown duration. Their durations count as zero.
    :param estimated: unfinished transfers of unknown duration and size. The duration of each counts
        as an even share of the available time.
    :param times: the times of all unfinished tasks that the deadline waits for, by name.
    """

    deadline: datetime
    now: datetime
    transfers: Mapping[str, TransferDeadline]
    critical: tuple[Step, ...]
    expected_finish: datetime
    rate_common: float | None
    unknown: tuple[str, ...] = field(default=())
    estimated: tuple[str, ...] = field(default=())
    times: Mapping[str, TaskTimes] = field(default_factory=dict)

    @property
    def slack_seconds(self) -> float:
        """Seconds from the expected end to the deadline. Negative if the run is already late."""
        return (self.deadline - self.expected_finish).total_seconds()

    @property
    def reason(self) -> TransferDeadline | None:
        """The transfer that delays the run most: the longest transfer on the critical path."""
        lengths = {step.task_id: step.seconds for step in self.critical}
        named = [each for name, each in self.transfers.items() if name in lengths]
        return max(named, key=lambda each: lengths[each.task_id], default=None)


@dataclass(frozen=True, slots=True)
class _Weight:
    """The time that a task adds to a path: a fixed part, and a part that depends on the rate.

    :param seconds: fixed part of the duration.
    :param work: amount of work of a transfer: its size in bytes, or its estimated duration in
        seconds if ``spread`` has replaced the sizes.
    :param basis: text that names the origin of the duration.
    :param overhead: overhead in seconds before the task.
    :param bytes: size of a transfer, if it is known.
    :param rate: rate that the transfer's endpoint can promise.
    """

    seconds: float
    work: float
    basis: str
    overhead: float
    bytes: float = 0.0
    rate: float | None = None

    def at(self, work_seconds: float) -> float:
        return self.seconds + self.work * work_seconds

    def path(self, work_seconds: float) -> float:
        return self.at(work_seconds) + self.overhead


def plan_deadlines(
    tasks: Iterable[Task],
    *,
    deadline: datetime,
    now: datetime,
    rate: float | None = None,
    overhead_seconds: float = OVERHEAD_SECONDS,
) -> DeadlinePlan:
    """Propagate a deadline back through a graph.

    The duration of a task is the declared duration, or else the median of past runs. For a transfer
    with neither, the duration is its size divided by ``rate``. If ``rate`` is not given, the plan
    uses the lowest common rate at which all paths end before the deadline. The plan never uses a
    rate above the one that the transfer's endpoint can promise (:attr:`Task.rate`). A transfer
    whose duration and size are both unknown gets an even share of the available time. Then, and if
    an endpoint's rate is known, a transfer of known size gets its duration at its endpoint's rate.
    If time is left and ``rate`` is not given, all these durations are stretched equally.

    A task of unknown duration that is not a transfer counts as zero, and is listed in
    :attr:`DeadlinePlan.unknown`. These tasks also count as zero: ended tasks, tasks that run only
    after failures, and tasks that the deadline does not wait for. Such tasks remain in the graph,
    because later tasks wait for them. Call the function again when a task has ended early or late.

    :param tasks: all tasks of the run.
    :param deadline: deadline of the run, with a time zone.
    :param now: the current time, with a time zone.
    :param rate: rate of transfers in bytes per second, if known.
    :param overhead_seconds: time between the end of a task and the work of the next task.
    :raises ValueError: for an edge from an unknown task, a cycle, a duplicate name, or a time
        without a zone.
    """
    if deadline.tzinfo is None or now.tzinfo is None:
        raise ValueError("deadline and now must have a time zone")
    by_name = _by_name(tasks)
    before = {task.id: _edges(task, by_name) for task in by_name.values()}
    order = _in_order(before)
    after: dict[str, list[str]] = {name: [] for name in order}
    for name, upstream in before.items():
        for each in upstream:
            after[each].append(name)
    weights = {name: _weigh(by_name[name], now, overhead_seconds) for name in order}
    left = (deadline - now).total_seconds()
    graph = _Graph(order, before, left)
    work_seconds = 1 / rate if rate else graph.least_rate(weights)
    if any(weight.basis == SHARE or weight.rate for weight in weights.values()):
        weights, work_seconds = graph.spread(weights, rate)

    lengths = {name: weights[name].path(work_seconds or 0.0) for name in order}
    # Durations for the earliest starts. Count a transfer of unknown duration as zero, because the
    # transfer may end early. The latest finishes use its longest permitted duration instead.
    soonest = {
        name: weights[name].overhead
        + weights[name].seconds
        + (weights[name].bytes / rate if rate else 0.0)
        for name in order
    }
    first = _longest(order, before, soonest)
    into = _longest(order, before, lengths)
    out = _longest(list(reversed(order)), after, lengths)
    transfers = {}
    for name in order:
        task = by_name[name]
        if not task.is_transfer or task.state in ENDED or not _is_expected(task):
            continue
        latest = deadline - timedelta(seconds=out[name].seconds)
        begin = first[name].seconds + weights[name].overhead
        is_known = not weights[name].work or work_seconds is not None
        is_known = is_known and weights[name].basis not in (UNKNOWN, SHARE)
        transfers[name] = _transfer(
            task,
            latest=latest,
            begin=now + timedelta(seconds=begin),
            needs=weights[name].at(work_seconds or 0.0) if is_known else None,
            chain=_steps(out[name].names, weights, work_seconds),
            deadline=deadline,
            overhead=overhead_seconds,
        )
    starts = {name: into[name].seconds + weights[name].overhead for name in order}
    ends = {name: into[name].seconds + lengths[name] for name in order}
    last = max(order, key=lambda name: ends[name], default=None)
    critical = () if last is None else (*reversed(into[last].names), last)
    rates = [
        weight.bytes / (weight.work * work_seconds)
        for weight in weights.values()
        if weight.bytes and weight.work and work_seconds
    ]
    return DeadlinePlan(
        deadline=deadline,
        now=now,
        transfers=transfers,
        critical=_steps(critical, weights, work_seconds),
        expected_finish=now + timedelta(seconds=0.0 if last is None else ends[last]),
        rate_common=min(rates, default=None),
        unknown=tuple(name for name in order if weights[name].basis == UNKNOWN),
        estimated=tuple(name for name in order if weights[name].basis == SHARE),
        times={
            step.task_id: TaskTimes(
                earliest_start=now + timedelta(seconds=starts[step.task_id]),
                latest_finish=deadline - timedelta(seconds=out[step.task_id].seconds),
                seconds=step.seconds,
                basis=step.basis,
            )
            for step in _steps(order, weights, work_seconds)
        },
    )


UNKNOWN = "duration unknown, counted as 0 s"
SHARE = "size unknown, an equal share of the time"


def _by_name(tasks: Iterable[Task]) -> dict[str, Task]:
    found: dict[str, Task] = {}
    for task in tasks:
        if task.id in found:
            raise ValueError(f"two tasks are named {task.id}")
        found[task.id] = task
    for task in found.values():
        for each in task.upstream:
            if each not in found:
                raise ValueError(f"task {task.id} waits for the task {each}, which does not exist")
    return found


def _edges(task: Task, by_name: Mapping[str, Task]) -> tuple[str, ...]:
    """Return the tasks for which a task still waits."""
    if task.state != "waiting" or task.rule == "always":
        return ()
    states = {by_name[each].state for each in task.upstream}
    if task.rule == "one_success" and "done" in states:
        return ()
    if task.rule == "one_done" and states & {"done", "failed"}:
        return ()
    return tuple(dict.fromkeys(task.upstream))


def _in_order(before: Mapping[str, tuple[str, ...]]) -> list[str]:
    missing = {name: len(upstream) for name, upstream in before.items()}
    after: dict[str, list[str]] = {name: [] for name in before}
    for name, upstream in before.items():
        for each in upstream:
            after[each].append(name)
    ready = deque(name for name, count in missing.items() if count == 0)
    order = []
    while ready:
        name = ready.popleft()
        order.append(name)
        for each in after[name]:
            missing[each] -= 1
            if missing[each] == 0:
                ready.append(each)
    if len(order) < len(before):
        stuck = sorted(set(before) - set(order))
        raise ValueError(f"these tasks wait for each other: {', '.join(stuck)}")
    return order


def _is_expected(task: Task) -> bool:
    return task.is_counted and task.rule not in RESCUE_RULES


def _weigh(task: Task, now: datetime, overhead: float) -> _Weight:
    if task.state in ENDED:
        return _Weight(0.0, 0.0, "ended", 0.0)
    if not _is_expected(task):
        return _Weight(0.0, 0.0, "not waited for", 0.0)
    between = overhead if task.state == "waiting" else 0.0
    rounds = task.rounds
    known, basis = task.expected_seconds, "declared"
    if known is None and task.median_seconds is not None:
        known, basis = task.median_seconds, f"median of {task.runs} runs"
    if known is not None:
        if rounds > 1:
            basis += f", {rounds} times"
        seconds = known * rounds
        if task.state == "running" and task.started_at is not None and task.instances == 1:
            seconds -= (now - task.started_at).total_seconds()
        return _Weight(max(seconds, 0.0), 0.0, basis, between)
    if task.is_transfer and task.bytes is not None:
        part = 1 - task.instances_done / task.instances if task.instances else 0.0
        size = task.bytes * max(part, 0.0)
        return _Weight(0.0, size, "its bytes", between, bytes=size, rate=task.rate)
    return _Weight(0.0, 0.0, SHARE if task.is_transfer else UNKNOWN, between)


@dataclass(frozen=True, slots=True)
class _Path:
    seconds: float = 0.0
    names: tuple[str, ...] = ()


def _longest(
    order: list[str],
    neighbours: Mapping[str, Iterable[str]],
    lengths: Mapping[str, float],
) -> dict[str, _Path]:
    """Return for each task the longest path that ends at one of its neighbours.

    The neighbour is the path's first name. In ``order``, each task comes after its neighbours.
    """
    found: dict[str, _Path] = {}
    for name in order:
        best = _Path()
        for each in neighbours[name]:
            seconds = found[each].seconds + lengths[each]
            # Prefer a path with tasks, even of zero seconds, to a path without tasks.
            if seconds > best.seconds or not best.names:
                best = _Path(seconds, (each, *found[each].names))
        found[name] = best
    return found


@dataclass(frozen=True, slots=True)
class _Graph:
    """The order of tasks, their dependencies, and the total time in seconds."""

    order: list[str]
    before: Mapping[str, tuple[str, ...]]
    left: float

    def least_rate(self, weights: Mapping[str, _Weight]) -> float | None:
        """Return the longest time per unit of work with which every path ends before the deadline.

        A unit of work is a byte, or a second of the estimated duration. Its longest time is the
        inverse of the least rate. ``None`` if no time is short enough.

        The length of a path is a linear function of the time per unit. The search starts with a
        time per unit that is too long or just right. Each step finds the path that is longest at
        the current time per unit, and reduces the time per unit to the longest with which this path
        fits. In each step the longest path has less work than in the step before, so the search
        ends.
        """
        left = self.left
        works = [weight.work for weight in weights.values() if weight.work]
        if not works or left <= 0:
            return None
        work_seconds = left / min(works)
        while True:
            at = work_seconds
            lengths = {name: weights[name].path(at) for name in self.order}
            paths = _longest(self.order, self.before, lengths)
            last = max(self.order, key=lambda name: paths[name].seconds + lengths[name])
            names = (*paths[last].names, last)
            fixed = sum(weights[name].seconds + weights[name].overhead for name in names)
            work = sum(weights[name].work for name in names)
            if fixed + work * at <= left * (1 + 1e-12):
                return at
            if not work or fixed >= left:
                return None
            work_seconds = (left - fixed) / work
            if work_seconds >= at:
                return at

    def spread(
        self, weights: Mapping[str, _Weight], rate: float | None
    ) -> tuple[dict[str, _Weight], float]:
        """Give each transfer an expected duration, and fit the durations into the available time.

        Return the weights with these durations in seconds as ``work``, and a factor for all
        durations.

        The duration of a transfer is its size divided by its rate. A transfer of unknown size gets
        an even share of the time. For each path, the time that the path leaves for transfers is
        divided by the number of transfers on the path. The smallest quotient is the share. A
        transfer of known size without a reported rate gets at most this share. If time remains,
        the factor stretches all durations equally. If the time is too short, the factor is 1.
        Transfers of known size and rate then keep their durations, because their endpoints cannot
        be faster. The other transfers share the remaining time.

        :param rate: common rate of all transfers of known size. ``None`` means the rate of each
            transfer's endpoint. With a common rate, no duration is stretched.
        """
        units = {
            name: replace(weight, work=1.0 if weight.work or weight.basis == SHARE else 0.0)
            for name, weight in weights.items()
        }
        share = self.least_rate(units) or 0.0
        sizes = [weight.bytes for weight in weights.values() if not weight.rate]
        assumed = max(ASSUMED_RATE, max(sizes, default=0.0) / share if share else 0.0)
        least = min(TRANSFER_SECONDS_MIN, share)
        found = dict(weights)
        for name, weight in weights.items():
            if weight.basis == SHARE:
                found[name] = replace(weight, work=share)
            elif weight.bytes:
                seconds = weight.bytes / (rate or weight.rate or assumed)
                found[name] = replace(weight, work=max(seconds, least))
        stretch = None if rate else self.least_rate(found)
        if stretch is not None and stretch >= 1:
            return found, stretch
        firm = {
            name: replace(weight, seconds=weight.work, work=0.0)
            if weight.bytes and (rate or weight.rate)
            else weight
            for name, weight in found.items()
        }
        rest = min(self.least_rate(firm) or 0.0, 1.0)
        return {
            name: replace(weight, work=weight.work * rest)
            if weight.basis == SHARE or not (rate or weight.rate)
            else weight
            for name, weight in found.items()
        }, 1.0


def _steps(
    names: Iterable[str], weights: Mapping[str, _Weight], work_seconds: float | None
) -> tuple[Step, ...]:
    found = []
    for name in names:
        weight = weights[name]
        if weight.basis in {"ended", "not waited for"}:
            continue
        basis = weight.basis
        if weight.bytes:
            basis = UNKNOWN
            if work_seconds and weight.work:
                rate = weight.bytes / (weight.work * work_seconds)
                basis = f"{weight.bytes / 1e6:.0f} MB at {rate / 1e6:.1f} MB/s"
        found.append(Step(name, weight.at(work_seconds or 0.0), basis))
    return tuple(found)


def _transfer(
    task: Task,
    *,
    latest: datetime,
    begin: datetime,
    needs: float | None,
    chain: tuple[Step, ...],
    deadline: datetime,
    overhead: float,
) -> TransferDeadline:
    window = (latest - begin).total_seconds()
    rounds = max(task.rounds, 1)
    each = None
    if task.bytes is not None:
        each = math.ceil(task.bytes / max(task.instances, 1))
    least = None
    if each is not None and window > 0:
        least = each * rounds / window
    return TransferDeadline(
        task_id=task.id,
        latest_finish=latest,
        earliest_start=begin,
        expected_seconds=needs,
        slack_seconds=None if needs is None else window - needs,
        bytes=each,
        rounds=rounds,
        rate_min=least,
        class_="deadline",
        chain=chain,
        deadline=deadline,
        overhead_seconds=overhead,
    )
