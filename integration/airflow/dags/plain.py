"""A DAG without dray: a check of the Airflow itself."""

from __future__ import annotations

import time
from typing import Any

from airflow.sdk import dag, task


@dag(dag_id="plain", schedule=None, catchup=False)
def plain() -> None:
    """Define two tasks: the first one adds, and then the second one waits."""

    @task
    def add(params: dict[str, Any] | None = None) -> int:
        return 41 + 1

    @task(retries=1, retry_delay=0.0)
    def wait(seconds: float) -> float:
        time.sleep(seconds)
        return seconds

    add() >> wait(1.0)


plain()
