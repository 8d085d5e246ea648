"""A large dataset, moved by all available workers.

The dataset may have any number of files. It is divided evenly in bytes and files, by folders and by
name prefixes. Each part is a mapped task, which any worker may run (Celery or Kubernetes spread the
tasks over hosts). Each part is one transfer. If it fails, only this part is retried, and no data of
other parts is sent again.

    airflow dags trigger shared_dataset --conf '{"dataset": "run42", "shards": 8}'

Connections (type ``dray``): ``dray_site``, with the root ``data``, and ``dray_partner``, with the
root ``archive``.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, task

from dray_airflow.operators.transfer import DrayTransferOperator
from dray_airflow.operators.verify import DrayVerifyOperator

if TYPE_CHECKING:
    from collections.abc import Iterator

with DAG(
    "shared_dataset",
    schedule=None,
    catchup=False,
    params={"dataset": "run42", "shards": 4},
    default_args={"retries": 4, "retry_delay": timedelta(seconds=15)},
):

    @task
    def part(dataset: str, shards: str) -> list[dict[str, Any]]:
        """List the dataset and divide it. Each part becomes the arguments of a mapped task."""
        from dray_airflow.hooks.dray import DrayHook
        from dray_airflow.shards import PATTERNS_MAX, group_files, plan_shards

        with DrayHook("dray_site").get_conn() as client:

            def below(path: str) -> Iterator[tuple[str, int]]:
                for entry in client.list(f"/data/{path}"):
                    if entry.type == "directory":
                        yield from below(f"{path}/{entry.name}")
                    elif entry.type == "file":
                        yield f"{path}/{entry.name}", entry.size or 0

            groups = group_files(below(dataset), int(shards))
        planned = plan_shards(groups, int(shards), paths_max=PATTERNS_MAX)
        return [{"include": list(shard.paths), "bytes_expected": shard.bytes} for shard in planned]

    move = DrayTransferOperator.partial(
        task_id="move",
        sources="/data/{{ params.dataset }}",
        source_conn_id="dray_site",
        destination="/archive/",
        destination_conn_id="dray_partner",
        recursive=True,
    ).expand_kwargs(part("{{ params.dataset }}", "{{ params.shards }}"))

    verify = DrayVerifyOperator(
        task_id="verify",
        source="/data/{{ params.dataset }}",
        source_conn_id="dray_site",
        destination="/archive/{{ params.dataset }}",
        destination_conn_id="dray_partner",
    )

    move >> verify
