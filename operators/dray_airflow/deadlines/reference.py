"""The deadline in a run's conf, as a reference for Airflow's deadline alerts.

Airflow evaluates the reference when a run is created, in the process that creates the run
(api-server or scheduler). That process needs :mod:`dray_airflow.plugin`. The deadlines of the run's
transfers are derived from this deadline.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime  # noqa: TC003 - Airflow may ask for the types of the methods
from typing import TYPE_CHECKING, Any, ClassVar

from dray_airflow.deadlines.times import read_deadline
from dray_airflow.version_compat import AIRFLOW_VERSION, HAS_CUSTOM_DEADLINES

if TYPE_CHECKING or HAS_CUSTOM_DEADLINES:
    from airflow.sdk.definitions.deadline import BaseDeadlineReference
else:
    BaseDeadlineReference = object

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

__all__ = ["ConfDeadline"]

log = logging.getLogger(__name__)


@dataclass
class ConfDeadline(BaseDeadlineReference):
    """The time in ``dag_run.conf["deadline"]``: RFC 3339, or a duration such as ``90m``.

    A run without this key has no deadline. A run with a malformed deadline is created without an
    alert, and its transfers log the error.

    :param key: key of the deadline in the conf.
    """

    key: str = "deadline"

    required_kwargs: ClassVar[set[str]] = {"dag_id", "run_id"}

    def __post_init__(self) -> None:
        """Check the Airflow version.

        :raises RuntimeError: before Airflow 3.2.
        """
        if not HAS_CUSTOM_DEADLINES:
            found = ".".join(map(str, AIRFLOW_VERSION))
            raise RuntimeError(
                f"ConfDeadline needs Airflow 3.2 or later, but this is Airflow {found}; remove "
                'ConfDeadline, because transfers use dag_run.conf["deadline"] without it too, or '
                "use one of Airflow's own references"
            )

    def serialize_reference(self) -> dict[str, Any]:
        """Return the form that Airflow stores."""
        return {"reference_type": self.reference_name, "key": self.key}

    @classmethod
    def deserialize_reference(cls, reference_data: dict[str, Any]) -> ConfDeadline:
        """Return the reference from the form that Airflow stores."""
        return cls(key=reference_data.get("key", "deadline"))

    def _evaluate_with(
        self,
        *,
        session: Session,
        dag_id: str,
        run_id: str,
        **_: Any,  # noqa: ANN401 - whatever else Airflow gives
    ) -> datetime | None:
        # Imported here, because only Airflow's core evaluates references. A worker reads the DAG
        # file without these modules.
        from airflow.models import DagRun
        from sqlalchemy import select

        chosen = select(DagRun).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id)
        run = session.scalar(chosen)
        value = None if run is None else (run.conf or {}).get(self.key)
        if run is None or value is None:
            return None
        from dray_airflow.deadlines.dag import run_begin

        try:
            return read_deadline(value, run_begin(run))
        except ValueError as error:
            log.warning("run %s of %s has no deadline: %s", run_id, dag_id, error)
            return None

    def __hash__(self) -> int:
        """Return a hash that agrees with equality.

        The base class derives equality from the serialised form.
        """
        return hash((self.reference_name, self.key))
