"""Cancels the reservations of a run at endpoints when the run ends. Airflow calls this listener.

The listener runs in the scheduler, or in the api-server if a user ends the run. Neither process may
wait for an endpoint, so another thread makes the calls. If an endpoint is unreachable, the next
admission cancels the reservations (:mod:`dray_airflow.reservations`).
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from airflow.listeners import hookimpl

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.models import DagRun

__all__ = ["on_dag_run_failed", "on_dag_run_success", "release"]

log = logging.getLogger(__name__)

AT_ONCE_MAX = 4
"""Maximum number of ended runs that are handled concurrently. Further runs wait."""
_SEATS = threading.BoundedSemaphore(AT_ONCE_MAX)


@hookimpl
def on_dag_run_success(dag_run: DagRun, msg: str) -> None:
    """Cancel the reservations that the run did not use."""
    del msg
    _release_later(dag_run)


@hookimpl
def on_dag_run_failed(dag_run: DagRun, msg: str) -> None:
    """Cancel the reservations that the run will not use."""
    del msg
    _release_later(dag_run)


def _release_later(dag_run: DagRun) -> None:
    dag: Any = getattr(dag_run, "dag", None)
    kinds = {str(getattr(task, "task_type", "")) for task in getattr(dag, "tasks", None) or ()}
    # Airflow stores only the name of an operator's class, so a class derived from DrayAdmitOperator
    # is not recognised here. The next admission cancels the reservations of such an operator.
    if dag is not None and "DrayAdmitOperator" not in kinds:
        return
    words = (str(dag_run.dag_id), str(dag_run.run_id))
    threading.Thread(target=_release, args=words, name="dray-release", daemon=True).start()


def _release(dag_id: str, run_id: str) -> None:
    with _SEATS:
        try:
            for reserved in _reserved(dag_id, run_id):
                release(reserved, run_id)
        except Exception as error:
            log.warning(
                "run %s of %s keeps its reservations until the next DrayAdmitOperator "
                "frees them: %s",
                run_id,
                dag_id,
                error,
            )


def _reserved(dag_id: str, run_id: str) -> list[Mapping[str, Sequence[str]]]:
    """Return the reservations of the run's DrayAdmitOperator: lists of ids by connection."""
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    from dray_airflow.reservations import RESERVED_KEY

    chosen = select(XComModel).where(
        XComModel.dag_id == dag_id, XComModel.run_id == run_id, XComModel.key == RESERVED_KEY
    )
    with create_session() as session:
        found = [XComModel.deserialize_value(row) for row in session.scalars(chosen)]
    return [each for each in found if isinstance(each, dict)]


def release(reserved: Mapping[str, Sequence[str]], run_id: str) -> None:
    """Cancel reservations at all endpoints that answer.

    :param reserved: lists of ids by connection.
    :param run_id: id of the run, for the log.
    """
    from dray.errors import DrayError
    from dray_airflow.errors import DrayTaskFailure
    from dray_airflow.hooks.dray import DrayHook
    from dray_airflow.sets import find, free

    for conn_id, ids in reserved.items():
        try:
            with DrayHook(conn_id).get_conn() as client:
                live = [
                    (id, found)
                    for id, found in find(client, list(ids)).items()
                    if found is not None and not found.is_terminal
                ]
                for id, found in live:
                    free(client, id, found)
        except (DrayError, DrayTaskFailure) as error:
            log.warning(
                "run %s keeps its reservations at %s until the next DrayAdmitOperator "
                "frees them: %s",
                run_id,
                conn_id,
                error,
            )
        else:
            if live:
                log.info(
                    "run %s has ended: %d reservations at %s freed", run_id, len(live), conn_id
                )
