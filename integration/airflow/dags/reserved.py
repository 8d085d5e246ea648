"""Runs that fail after their reservations were made."""

from __future__ import annotations

import time
from typing import Any

from airflow.sdk import DAG, task

from dray_airflow.operators.admit import DrayAdmitOperator
from dray_airflow.operators.transfer import DrayTransferOperator

with DAG("reserved", schedule=None, catchup=False):

    @task(retries=0)
    def compute(**context: Any) -> None:  # noqa: ANN401 - Airflow's context
        """Fail if the run's conf says so. Otherwise work for the seconds in the conf."""
        if context["dag_run"].conf.get("fails"):
            raise RuntimeError("the detector is off")
        time.sleep(context["dag_run"].conf.get("seconds", 0))

    # A test makes the connections. Their endpoint has a configured rate.
    deliver = DrayTransferOperator(
        task_id="deliver",
        sources="/data/results",
        destination="/data/{{ dag_run.run_id }}",
        source_conn_id="dray_rated",
        destination_conn_id="dray_rated",
        bytes_expected="{{ dag_run.conf['bytes'] }}",
    )
    DrayAdmitOperator(task_id="admit", retries=0) >> compute() >> deliver
