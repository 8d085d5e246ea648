"""The parts of dray that Airflow's own processes load.

These parts are the reference for deadlines in a run's conf, and the listener that cancels a run's
reservations when the run ends. The entry point ``airflow.plugins`` names this module. If only
the description of the provider named this module, Airflow would load it too late: when a process
first needs the list of providers.
"""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin

from dray_airflow import listener
from dray_airflow.version_compat import HAS_CUSTOM_DEADLINES

__all__ = ["DrayPlugin"]


def _listeners() -> list[Any]:
    return [listener]


def _references() -> list[Any]:
    if not HAS_CUSTOM_DEADLINES:
        return []
    from dray_airflow.deadlines.reference import ConfDeadline

    return [ConfDeadline]


class DrayPlugin(AirflowPlugin):
    """The plug-in. It must be installed in api-server, scheduler, dag-processor and triggerer."""

    name = "dray"
    deadline_references: list[Any] = _references()
    listeners: list[Any] = _listeners()
