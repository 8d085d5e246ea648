"""The only module that uses the core of Airflow: its database, connections and permissions.

Airflow does not promise that these names are stable, so no other module of the package imports
them. All functions that read the database take the names of a DAG and a run that the caller of the
API was permitted to read.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import requires_access_dag
from airflow.models.connection import Connection
from airflow.models.dag import DagModel
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from sqlalchemy import func, select

from dray_airflow.deadlines.published import PLAN_KEY
from dray_airflow.links.transfer import STANDING_KEY

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy.orm import Session

__all__ = [
    "ACCESS",
    "TRANSFERS_MAX",
    "Place",
    "Published",
    "SessionDep",
    "TaskStates",
    "connection_of",
    "newest_plan",
    "states_of",
    "team_of",
    "transfers_of",
]

TRANSFERS_MAX = 200
"""Maximum number of transfers in one answer."""

ACCESS = (
    requires_access_dag("GET", DagAccessEntity.RUN),
    requires_access_dag("GET", DagAccessEntity.TASK_INSTANCE),
    requires_access_dag("GET", DagAccessEntity.XCOM),
)
"""Checks of Airflow's auth manager. Each reads the parameter ``dag_id`` of the request."""


class Place(NamedTuple):
    """The part of Airflow that a page shows.

    :param run_id: empty for all runs of the DAG.
    :param task_id: empty for all tasks of the run.
    :param map_index: ``None`` for all instances of the task.
    """

    dag_id: str
    run_id: str = ""
    task_id: str = ""
    map_index: int | None = None


class Published(NamedTuple):
    """A transfer that a task has published.

    :param state: state of the task instance in Airflow. Empty if it has none.
    :param value: the XCom as the task has written it. Any task can write any value.
    """

    run_id: str
    task_id: str
    map_index: int
    state: str
    value: object


class TaskStates(NamedTuple):
    """The instances of the tasks of a run.

    :param states: state of each instance, by task.
    :param starts: first start of a task, with a time zone.
    """

    states: dict[str, list[str | None]]
    starts: dict[str, datetime]


def transfers_of(session: Session, place: Place) -> tuple[list[Published], int]:
    """Return the newest transfers of a run or a task, and the number of all."""
    chosen = [
        XComModel.dag_id == place.dag_id,
        XComModel.run_id == place.run_id,
        XComModel.key == STANDING_KEY,
    ]
    if place.task_id:
        chosen.append(XComModel.task_id == place.task_id)
    if place.map_index is not None:
        chosen.append(XComModel.map_index == place.map_index)
    count = session.scalar(select(func.count()).select_from(XComModel).where(*chosen)) or 0
    rows = session.execute(
        select(XComModel.task_id, XComModel.map_index, XComModel.value, TaskInstance.state)
        .outerjoin(
            TaskInstance,
            (TaskInstance.dag_id == XComModel.dag_id)
            & (TaskInstance.run_id == XComModel.run_id)
            & (TaskInstance.task_id == XComModel.task_id)
            & (TaskInstance.map_index == XComModel.map_index),
        )
        .where(*chosen)
        .order_by(XComModel.timestamp.desc())
        .limit(TRANSFERS_MAX)
    ).all()
    found = [
        Published(place.run_id, task_id, map_index, _text(state), _json(value))
        for task_id, map_index, value, state in rows
    ]
    return sorted(found, key=lambda each: (each.task_id, each.map_index)), count


def newest_plan(session: Session, place: Place) -> tuple[str, object] | None:
    """Return the newest plan of a run, or of all runs of the DAG, with the id of the run."""
    chosen = [XComModel.dag_id == place.dag_id, XComModel.key == PLAN_KEY]
    if place.run_id:
        chosen.append(XComModel.run_id == place.run_id)
    row = session.execute(
        select(XComModel.run_id, XComModel.value)
        .where(*chosen)
        .order_by(XComModel.timestamp.desc())
        .limit(1)
    ).first()
    return None if row is None else (row[0], _json(row[1]))


def states_of(session: Session, place: Place) -> TaskStates:
    """Return the states of the tasks of a run."""
    rows = session.execute(
        select(
            TaskInstance.task_id,
            TaskInstance.state,
            func.count(),
            func.min(TaskInstance.start_date),
        )
        .where(TaskInstance.dag_id == place.dag_id, TaskInstance.run_id == place.run_id)
        .group_by(TaskInstance.task_id, TaskInstance.state)
    ).all()
    found = TaskStates({}, {})
    for task_id, state, count, start in rows:
        found.states.setdefault(task_id, []).extend([_text(state) or None] * count)
        if start is not None:
            found.starts[task_id] = min(start, found.starts.get(task_id, start))
    return found


def team_of(dag_id: str) -> str | None:
    """Return the team of a DAG, if this Airflow has teams."""
    # Airflow 3.1 has no teams.
    find: Any = getattr(DagModel, "get_team_name", None)
    return None if find is None else find(dag_id)


def connection_of(conn_id: str, team: str | None) -> Any:  # noqa: ANN401 - Airflow's own
    """Look a connection up in the secrets backends of the API server.

    :raises AirflowNotFoundException: if there is none.
    """
    if team is None:
        return Connection.get_connection_from_secrets(conn_id)
    return Connection.get_connection_from_secrets(conn_id, team_name=team)


def _text(state: object) -> str:
    return "" if state is None else str(getattr(state, "value", state))


def _json(value: Any) -> object:  # noqa: ANN401 - as the database returns it
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        # A backend of XComs stores the place of the value instead of the value.
        return value
