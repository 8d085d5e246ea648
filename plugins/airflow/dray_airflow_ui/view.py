"""The answers of the API as JSON. Pure: no module of Airflow's core, no call, no clock.

Text of tasks and endpoints is passed on unchanged. The page shows it as text, never as HTML.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from dray_airflow.deadlines.graph import plan_deadlines

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dray.client import Transfer
    from dray_airflow.deadlines.published import PublishedPlan
    from dray_airflow.deadlines.task import Task
    from dray_airflow_ui.live import Problem, Reading

__all__ = ["Standing", "plan_view", "problem_view", "read_standing", "safe_link", "transfer_view"]

ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")
"""The ids that endpoints accept."""
FAILURES_MAX = 10
SOURCES_MAX = 5
END_BASIS = "end expected by the endpoint"
TEXT_MAX = 4000
"""Maximum number of characters of a text that a task has written."""


class Standing(NamedTuple):
    """A transfer as a task has published it (:func:`dray_airflow.links.transfer.standing`)."""

    id: str
    endpoint: str
    connection: str
    state: str
    as_of: str
    files_done: int
    files_listed: int
    bytes_durable: int
    bytes_listed: int
    show: str
    error: str
    missed: str


def read_standing(value: object) -> Standing | None:
    """Parse an XCom. ``None`` if it is not a transfer. Any task can write such an XCom."""
    if not isinstance(value, dict) or not isinstance(value.get("id"), str):
        return None
    # The length of the ids bounds the size of a query to the endpoint.
    if not ID.fullmatch(value["id"]):
        return None

    def text(name: str) -> str:
        found = value.get(name)
        return found[:TEXT_MAX] if isinstance(found, str) else ""

    def count(name: str) -> int:
        found = value.get(name)
        if not isinstance(found, int) or isinstance(found, bool):
            return 0
        return max(found, 0)

    return Standing(
        id=text("id"),
        endpoint=text("endpoint"),
        connection=text("connection"),
        state=text("state"),
        as_of=text("as_of"),
        files_done=count("files_done"),
        files_listed=count("files_listed"),
        bytes_durable=count("bytes_durable"),
        bytes_listed=count("bytes_listed"),
        show=text("show"),
        error=text("error"),
        missed=text("deadline_missed"),
    )


def safe_link(template: str, id: str) -> str:
    """Return the URL of the page about a transfer. Empty unless it is a web address.

    A connection may contain any text, and a browser runs a ``javascript:`` URL.
    """
    link = template.replace("{id}", id)
    try:
        parts = urlsplit(link)
    except ValueError:
        return ""
    return link if parts.scheme in ("http", "https") and parts.netloc else ""


def is_of(transfer: Transfer, dag_id: str) -> bool:
    """Return true if a task of this DAG has submitted the transfer.

    A task can publish the id of any transfer. A caller who may read one DAG must not see the
    transfers of another one.
    """
    labels = transfer.request.get("labels")
    return isinstance(labels, dict) and labels.get("dag_id") == dag_id


def transfer_view(
    standing: Standing,
    *,
    dag_id: str,
    task_id: str,
    map_index: int,
    task_state: str,
    reading: Reading | None,
) -> dict[str, Any]:
    """Describe a transfer: its live state, or else the state that its task saw last.

    :param reading: the last known state at the endpoint. ``None`` if the transfer is not at a dray
        endpoint.
    """
    found: dict[str, Any] = {
        "task_id": task_id,
        "map_index": map_index,
        "task_state": task_state,
        "id": standing.id,
        "endpoint": standing.endpoint,
        "connection": standing.connection,
        "show": standing.show,
        "link": "",
    }
    if reading is not None:
        found["link"] = safe_link(reading.link, standing.id)
    live = None if reading is None else reading.transfers.get(standing.id)
    if reading is not None and live is not None and is_of(live, dag_id):
        if reading.problem is None:
            return {**found, "origin": "live", **_live(live)}
        as_of = _time(reading.as_of)
        return {**found, "origin": "endpoint", "as_of": as_of, **_live(live)}
    return {**found, "origin": "task", "why": _why_old(standing, reading, live), **_old(standing)}


def _why_old(standing: Standing, reading: Reading | None, live: Transfer | None) -> str:
    if reading is None:
        return "Another service moves these files, so there is no live state here."
    if live is not None:
        return "Another DAG has submitted this transfer."
    if reading.problem is not None:
        return "The endpoint did not answer."
    if standing.id in reading.transfers:
        return (
            "The endpoint shows no transfer with this id to the owner of the connection. The"
            " endpoint may have deleted its record."
        )
    return "The endpoint has not answered yet."


def _old(standing: Standing) -> dict[str, Any]:
    return {
        "state": standing.state,
        "as_of": standing.as_of,
        "files": {"done": standing.files_done, "listed": standing.files_listed, "failed": 0},
        "bytes": {"durable": standing.bytes_durable, "listed": standing.bytes_listed},
        "error": standing.error,
        "miss": standing.missed,
        "failures": [],
        "notices": [],
    }


def _live(transfer: Transfer) -> dict[str, Any]:
    request = transfer.request
    deadline = request.get("deadline")
    return {
        "state": transfer.state,
        "sources": [_url(each) for each in _list(request.get("sources"))[:SOURCES_MAX]],
        "destination": _url(request.get("destination")),
        "files": {
            "done": transfer.files.done,
            "listed": transfer.files.listed,
            "failed": transfer.files.failed,
            "is_listed": transfer.files.listing_done,
        },
        "bytes": {"durable": transfer.bytes.durable, "listed": transfer.bytes.listed},
        "rate": transfer.rate.now,
        "planned": transfer.rate.planned,
        "started": _time(transfer.started_at),
        "ended": _time(transfer.ended_at),
        "eta": _time(transfer.eta),
        "deadline": deadline if isinstance(deadline, str) else "",
        "promised": transfer.promised,
        "miss": "" if transfer.miss is None else transfer.miss.cause,
        "earliest_finish": None if transfer.miss is None else _time(transfer.miss.earliest_finish),
        "held": transfer.held,
        "silent_seconds": transfer.silent_seconds,
        "bottleneck": transfer.bottleneck or "",
        "error": "" if transfer.error is None else str(transfer.error),
        "failures": [
            {"path": each.path, "error": str(each.error)}
            for each in transfer.failures[:FAILURES_MAX]
        ],
        "notices": list(transfer.notices),
    }


def _url(place: object) -> str:
    return str(place.get("url", "")) if isinstance(place, dict) else str(place or "")


def _list(value: object) -> list[object]:
    return list(value) if isinstance(value, (list, tuple)) else []


def problem_view(connection: str, problem: Problem) -> dict[str, str]:
    """Describe why the transfers of a connection have no live state."""
    return {"connection": connection, **problem._asdict()}


def plan_view(
    run_id: str,
    published: PublishedPlan,
    tasks: Sequence[Task],
    *,
    now: datetime,
    promises: Mapping[str, Sequence[Mapping[str, Any]]],
) -> dict[str, Any]:
    """Compute the plan for the current time, and describe it.

    :param tasks: the published tasks with their current states.
    :param promises: the transfers of each task, as :func:`transfer_view` returns them.
    :raises ValueError: if the published tasks are not a graph.
    :raises ArithmeticError: if their times do not fit into a calendar.
    """
    plan = plan_deadlines(tasks, deadline=published.deadline, now=now)
    ends = {task.id: _with_end(task, promises.get(task.id, ())) for task in tasks}
    closer = plan_deadlines(ends.values(), deadline=published.deadline, now=now)
    # Transfers of unknown duration get all the time that is left. While there are such transfers,
    # an early end of the running one does not change the end of the run.
    is_closer = closer.rate_common is None and not closer.estimated
    plan = closer if is_closer else plan
    critical = [step.task_id for step in plan.critical]
    views = []
    for task in tasks:
        view: dict[str, Any] = {
            "id": task.id,
            "upstream": list(task.upstream),
            "state": task.state,
            "is_transfer": task.is_transfer,
            "is_critical": task.id in critical,
            "instances": task.instances,
            "instances_done": task.instances_done,
            **_promise(promises.get(task.id, ())),
        }
        times = plan.times.get(task.id)
        if times is not None:
            view |= {
                "earliest_start": _time(times.earliest_start),
                "latest_start": _time(times.latest_start),
                "latest_finish": _time(times.latest_finish),
                "seconds": times.seconds,
                "basis": END_BASIS if is_closer and ends[task.id] != task else times.basis,
                "slack_seconds": times.slack_seconds,
            }
        views.append(view)
    return {
        "run_id": run_id,
        "deadline": _time(published.deadline),
        "source": published.source,
        "collected": _time(published.as_of),
        "expected_finish": _time(plan.expected_finish),
        "slack_seconds": plan.slack_seconds,
        "rate_common": plan.rate_common,
        "unknown": list(plan.unknown),
        "estimated": list(plan.estimated),
        "critical": critical,
        "tasks": views,
    }


def _with_end(task: Task, transfers: Sequence[Mapping[str, Any]]) -> Task:
    """Use the endpoint's expected end of a running transfer instead of the collected duration."""
    if task.state != "running" or task.started_at is None or len(transfers) != 1:
        return task
    eta = transfers[0].get("eta")
    if not eta or task.instances != 1:
        return task
    seconds = (datetime.fromisoformat(eta) - task.started_at).total_seconds()
    return replace(task, expected_seconds=max(seconds, 0.0))


def _promise(transfers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Join the promises of the instances of a task: all must be kept, and the last one counts."""
    with_deadline = [each for each in transfers if each.get("deadline")]
    if not with_deadline:
        return {}
    return {
        "promised": all(each["promised"] or each["state"] == "done" for each in with_deadline),
        "promised_finish": max(str(each["deadline"]) for each in with_deadline),
        "miss": next((each["miss"] for each in with_deadline if each["miss"]), ""),
    }


def _time(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat(timespec="seconds")
