"""A DAG whose tasks report inputs and outputs to OpenLineage."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.providers.openlineage.utils.selective_enable import enable_lineage
from airflow.sdk import DAG

from dray_airflow.operators.stage import DrayStageInOperator
from dray_airflow.operators.transfer import DrayTransferOperator
from dray_airflow.operators.verify import DrayVerifyOperator

PLACE = "/data/{{ dag_run.run_id }}/x.dat"

with DAG(
    "lineage",
    schedule=None,
    catchup=False,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=1)},
) as dag:
    ends: dict[str, Any] = {"source_conn_id": "dray_a", "destination_conn_id": "dray_b"}
    move = DrayTransferOperator(
        task_id="move", sources=PLACE, destination=PLACE, deferrable=False, **ends
    )
    deferred = DrayTransferOperator(
        task_id="deferred", sources=PLACE, destination=f"{PLACE}.2", grace_seconds=0, **ends
    )
    verify = DrayVerifyOperator(task_id="verify", source=PLACE, destination=PLACE, **ends)
    stage = DrayStageInOperator(
        task_id="stage",
        dray_conn_id="dray_a",
        path="/tape/{{ dag_run.run_id }}.dat",
        to="/nvme/{{ dag_run.run_id }}.dat",
        grace_seconds=60,
    )
    move >> verify

enable_lineage(dag)
