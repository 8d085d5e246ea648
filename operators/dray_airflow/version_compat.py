"""The Airflow version. No other module checks it.

Airflow 3.1 and later are supported. Features that need a later version are named below.
"""

from __future__ import annotations

import configparser
import os
import re
from typing import TYPE_CHECKING, Any

import airflow

if TYPE_CHECKING:
    from airflow.sdk.exceptions import (
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        TaskDeferralTimeout,
    )

__all__ = [
    "AIRFLOW_VERSION",
    "HAS_CUSTOM_DEADLINES",
    "HAS_RETRY_POLICY",
    "AirflowException",
    "AirflowFailException",
    "AirflowNotFoundException",
    "TaskDeferralTimeout",
    "check",
    "default_deferrable",
    "task_state",
    "task_state_store",
]

OLDEST = (3, 1)


def parse(version: str) -> tuple[int, int]:
    """Return the first two numbers of a version, such as (3, 3) for ``3.3.2``.

    :raises RuntimeError: if the version does not begin with two numbers.
    """
    match = re.match(r"(\d+)\.(\d+)", version)
    if match is None:
        raise RuntimeError(f"dray_airflow cannot read the version of Airflow: {version!r}")
    return int(match[1]), int(match[2])


def check(version: str) -> tuple[int, int]:
    """Return the major and minor number of Airflow's version if the version is supported.

    :raises RuntimeError: if the version is too old. The message is one line, which Airflow shows as
        the DAG's import error.
    """
    found = parse(version)
    if found < OLDEST:
        raise RuntimeError(
            f"dray_airflow needs Airflow {OLDEST[0]}.{OLDEST[1]} or later, but this is "
            f"Airflow {version}; upgrade Airflow, or call dray.Client in a PythonOperator"
        )
    return found


AIRFLOW_VERSION = check(airflow.__version__)

HAS_CUSTOM_DEADLINES = AIRFLOW_VERSION >= (3, 2)
"""True if deadline alerts accept references that Airflow does not define."""

HAS_RETRY_POLICY = AIRFLOW_VERSION >= (3, 3)
"""True if operators accept ``retry_policy`` (AIP-105)."""

if not TYPE_CHECKING:
    try:
        from airflow.sdk.exceptions import (
            AirflowException,
            AirflowFailException,
            AirflowNotFoundException,
            TaskDeferralTimeout,
        )
    except ImportError:
        # Airflow 3.1 has these classes only in its core.
        from airflow.exceptions import (
            AirflowException,
            AirflowFailException,
            AirflowNotFoundException,
            TaskDeferralTimeout,
        )


def task_state_store(context: Any) -> Any | None:  # noqa: ANN401 - the type is not in 3.1
    """Return the task's store, which outlives its tries. ``None`` before Airflow 3.3 (AIP-103)."""
    return context.get("task_state_store") if AIRFLOW_VERSION >= (3, 3) else None


def task_state(context: Any) -> str | None:  # noqa: ANN401 - no such protocol in the SDK
    """Return Airflow's state of the running task. ``None`` if it is unknown.

    If a user sets the state of a running task, the task learns this only from a heartbeat, about
    every five seconds. So call this before the task ends or defers.
    """
    ti = context["ti"]
    name = (
        ti.task_id if ti.map_index is None or ti.map_index < 0 else f"{ti.task_id}_{ti.map_index}"
    )
    try:
        found = ti.get_task_states(dag_id=ti.dag_id, task_ids=[ti.task_id], run_ids=[ti.run_id])
        state = found[ti.run_id][name]
    except Exception:
        # Airflow did not answer, so the task continues.
        return None
    return None if state is None else str(getattr(state, "value", state))


def default_deferrable() -> bool:
    """Return true if operators wait in the triggerer by default.

    A configured ``[operators] default_deferrable`` decides. The default is true. Airflow's own
    default is false, but a transfer of several hours would then occupy a worker. An ``airflow.cfg``
    that Airflow has generated contains all of Airflow's defaults. In such a file, the setting is
    ignored.
    """
    from airflow.configuration import conf

    section, option = "operators", "default_deferrable"
    if f"AIRFLOW__{section}__{option}".upper() in os.environ:
        return bool(conf.getboolean(section, option))
    # ``ConfigParser.has_option`` looks only at the file. The methods of Airflow's class also return
    # Airflow's defaults.
    in_file = configparser.ConfigParser.has_option
    is_generated = all(in_file(conf, section, each) for each in ("default_owner", "default_cpus"))
    if is_generated or not in_file(conf, section, option):
        return True
    return bool(conf.getboolean(section, option))
