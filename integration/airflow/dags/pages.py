"""A DAG for the pages in Airflow: two transfers with work between them, and hostile names."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, task

from dray_airflow.deadlines.dag import expect
from dray_airflow.operators.transfer import DrayTransferOperator

COMMON: dict[str, Any] = {
    "source_conn_id": "dray_a",
    "destination_conn_id": "dray_b",
    "recursive": True,
    "grace_seconds": 0,
    "rate_max": "{{ dag_run.conf.get('rate_max', '') }}",
    "retries": 0,
}

with DAG("pages", schedule=None, catchup=False):

    @task
    def compute() -> None:
        """Stand for a computation between two transfers."""

    @task
    def calibrate() -> None:
        """Stand for a computation beside the transfer."""

    @task
    def report() -> None:
        """Stand for a task after the last transfer."""

    stage_in = DrayTransferOperator(
        task_id="stage_in",
        sources="{{ dag_run.conf['source'] }}",
        destination="{{ dag_run.conf['destination'] }}",
        bytes_expected="{{ dag_run.conf.get('bytes', '') }}",
        labels={"note": "{{ dag_run.conf.get('note', '') }}"},
        **COMMON,
    )
    stage_out = DrayTransferOperator(
        task_id="stage_out",
        sources="{{ dag_run.conf['source'] }}",
        destination="{{ dag_run.conf['destination'] }}-out",
        bytes_expected="{{ dag_run.conf.get('bytes', '') }}",
        **COMMON,
    )
    work = expect(compute(), 60)
    stage_in >> work >> stage_out >> expect(report(), 30)
    expect(calibrate(), 20) >> work
