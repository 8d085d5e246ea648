"""DAGs of transfers that the conf of a run describes, with each way to wait for a transfer."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, task

from dray_airflow.operators.transfer import DrayTransferOperator

COMMON: dict[str, Any] = {
    "source_conn_id": "dray_a",
    "destination_conn_id": "dray_b",
    "recursive": True,
    "rate_max": "{{ dag_run.conf.get('rate_max', '') }}",
    "retries": 3,
    "retry_delay": timedelta(seconds=1),
}

#: The task itself waits, and occupies its worker to the end.
with DAG("move_waiting", schedule=None, catchup=False):
    DrayTransferOperator(
        task_id="move",
        sources="{{ dag_run.conf['source'] }}",
        destination="{{ dag_run.conf['destination'] }}",
        deferrable=False,
        **COMMON,
    )

#: The task defers immediately, and the triggerer waits.
with DAG("move_deferred", schedule=None, catchup=False):
    DrayTransferOperator(
        task_id="move",
        sources="{{ dag_run.conf['source'] }}",
        destination="{{ dag_run.conf['destination'] }}",
        grace_seconds=0,
        **COMMON,
    )

#: Options of the two ways to wait. The DAGs below use both ways in one run. ``move_brief`` has a
#: short time limit for its runs.
WAYS: dict[str, dict[str, Any]] = {
    "waiting": {"deferrable": False},
    "deferred": {"grace_seconds": 0},
}
for dag_id, seconds in (("move_both", 3600), ("move_brief", 40)):
    with DAG(
        dag_id, schedule=None, catchup=False, dagrun_timeout=timedelta(seconds=seconds)
    ) as dag:
        for task_id, how in (
            ("waiting", {"deferrable": False}),
            ("deferred", {"grace_seconds": 0}),
        ):
            DrayTransferOperator(
                task_id=task_id,
                sources=f"{{{{ dag_run.conf['source'] }}}}{task_id}/",
                destination=f"{{{{ dag_run.conf['destination'] }}}}/{task_id}",
                **how,
                **COMMON,
            )
    globals()[dag_id] = dag

#: Moves a dataset in shards, with one mapped task for each shard.
with DAG("move_mapped", schedule=None, catchup=False):

    @task(retries=3, retry_delay=timedelta(seconds=1))
    def shards(params: dict[str, Any] | None = None, **context: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - Airflow's context
        """Return source and destination of each shard."""
        conf = context["dag_run"].conf
        return [
            {
                "sources": f"{conf['source']}{name}/",
                "destination": f"{conf['destination']}/{name}",
            }
            for name in conf["shards"]
        ]

    DrayTransferOperator.partial(task_id="move", deferrable=False, **COMMON).expand_kwargs(shards())

#: Moves the same files to the same folder twice, through two endpoints that share one storage.
with DAG("move_contended", schedule=None, catchup=False):

    @task
    def ways(**context: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - Airflow's context
        """Return each shard twice, with a different connection each time."""
        conf = context["dag_run"].conf
        return [
            {
                "sources": f"{conf['source']}{name}/",
                "destination": f"{conf['destination']}/{name}",
                "destination_conn_id": conn_id,
            }
            for name in conf["shards"]
            for conn_id in ("dray_b", "dray_c")
        ]

    each_way: dict[str, Any] = {**COMMON, "retries": 10}
    del each_way["destination_conn_id"]
    DrayTransferOperator.partial(task_id="move", deferrable=False, **each_way).expand_kwargs(ways())

#: The endpoint cancels these transfers 10 s after a caller has last queried them. The task of
#: ``move_timed`` also has a time limit of two and a half minutes.
for dag_id, limit in (("move_bound", None), ("move_timed", timedelta(seconds=150))):
    with DAG(dag_id, schedule=None, catchup=False) as dag:
        DrayTransferOperator(
            task_id="move",
            sources="{{ dag_run.conf['source'] }}",
            destination="{{ dag_run.conf['destination'] }}",
            grace_seconds=0,
            bound_seconds=10,
            execution_timeout=limit,
            **{**COMMON, "retries": 0},
        )
    globals()[dag_id] = dag

#: Uses a connection whose token a test renews.
with DAG("move_renewed", schedule=None, catchup=False):
    renewed: dict[str, Any] = {**COMMON, "retries": 0, "destination_conn_id": "dray_renewed"}
    for task_id, how in WAYS.items():
        DrayTransferOperator(
            task_id=task_id,
            sources=f"{{{{ dag_run.conf['source'] }}}}{task_id}/",
            destination=f"{{{{ dag_run.conf['destination'] }}}}/{task_id}",
            **how,
            **renewed,
        )

#: Copies one folder in shards. All shards write into the same destination folder.
with DAG("move_shards", schedule=None, catchup=False):

    @task
    def patterns(**context: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - Airflow's context
        """Return the pattern of the files of each shard."""
        return [{"include": [pattern]} for pattern in context["dag_run"].conf["patterns"]]

    DrayTransferOperator.partial(
        task_id="move",
        sources="{{ dag_run.conf['source'] }}",
        destination="{{ dag_run.conf['destination'] }}",
        grace_seconds=0,
        **COMMON,
    ).expand_kwargs(patterns())

#: Uses a connection of an endpoint whose root is a pool of Ceph.
with DAG("move_pool", schedule=None, catchup=False):
    DrayTransferOperator(
        task_id="move",
        sources="{{ dag_run.conf['source'] }}",
        destination="{{ dag_run.conf['destination'] }}",
        **{**COMMON, "destination_conn_id": "dray_pool"},
    )
