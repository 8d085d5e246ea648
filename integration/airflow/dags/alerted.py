"""A DAG whose run misses its deadline while a task works. The alert names its transfer."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, task

from dray_airflow.deadlines.callback import deadline_alerts
from dray_airflow.operators.transfer import DrayTransferOperator

ALERTS = deadline_alerts(
    dray_conn_ids=["dray_b"], webhook_conn_id="chat", looks=[timedelta(hours=1)]
)

with DAG("alerted", schedule=None, catchup=False, deadline=ALERTS):

    @task
    def work(**context: Any) -> None:  # noqa: ANN401 - Airflow's context
        """Work for longer than the deadline permits."""
        time.sleep(context["dag_run"].conf["seconds"])

    move = DrayTransferOperator(
        task_id="move",
        sources="{{ dag_run.conf['source'] }}",
        destination="{{ dag_run.conf['destination'] }}",
        source_conn_id="dray_a",
        destination_conn_id="dray_b",
        rate_max="{{ dag_run.conf['rate_max'] }}",
        retries=1,
    )
    [move, work()]
