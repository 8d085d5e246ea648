"""What Airflow's own processes have to know of dray: the reference of deadlines in a run's conf.

Named by the entry point ``airflow.plugins``: a plug-in that only the provider names would not be
loaded until somebody asks for providers.
"""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin

from dray_airflow.deadlines.reference import ConfDeadline

__all__ = ["DrayPlugin"]


class DrayPlugin(AirflowPlugin):
    """The plug-in; installed in api-server, scheduler, dag-processor and triggerer alike."""

    name = "dray"
    deadline_references: list[Any] = [ConfDeadline]  # noqa: RUF012 - as Airflow declares it
