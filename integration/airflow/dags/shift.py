"""A shift's data is fetched, processed, and delivered: three transfers and two computations.

The run's conf sets the destination folder and the sizes, and may set a deadline.
"""

from __future__ import annotations

import hashlib
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, task

from dray_airflow.deadlines.dag import expect
from dray_airflow.operators.transfer import DrayTransferOperator

COMMON: dict[str, Any] = {"retries": 3, "retry_delay": timedelta(seconds=2)}
PLACE = "{{ dag_run.conf['place'] }}"

with DAG("shift", schedule=None, catchup=False):
    raw = DrayTransferOperator(
        task_id="raw",
        sources="/data/shift/raw",
        destination=f"/data/{PLACE}/raw",
        source_conn_id="dray_a",
        destination_conn_id="dray_c",
        bytes_expected="{{ dag_run.conf['raw'] }}",
        **COMMON,
    )
    calibration = DrayTransferOperator(
        task_id="calibration",
        sources="/data/shift/calibration",
        destination=f"/data/{PLACE}/calibration",
        source_conn_id="dray_a",
        destination_conn_id="dray_c",
        bytes_expected="{{ dag_run.conf['calibration'] }}",
        **COMMON,
    )

    @task
    def reconstruct(**context: Any) -> str:  # noqa: ANN401 - Airflow's context
        """Read all input, and write an output of the declared size."""
        conf = context["dag_run"].conf
        top = Path(conf["root"]) / conf["place"]
        begun = time.monotonic()
        digest = hashlib.sha256()
        for name in ("raw", "calibration"):
            digest.update((top / name).read_bytes())
        block = hashlib.shake_256(digest.digest()).digest(1 << 20)
        with (top / "results").open("wb") as file:
            for left in range(conf["results"], 0, -len(block)):
                file.write(block[:left])
        time.sleep(max(0.0, conf["compute_seconds"] - (time.monotonic() - begun)))
        return digest.hexdigest()

    results = DrayTransferOperator(
        task_id="results",
        sources=f"/data/{PLACE}/results",
        destination=f"/data/{PLACE}/results",
        source_conn_id="dray_c",
        destination_conn_id="dray_a",
        active="source",
        bytes_expected="{{ dag_run.conf['results'] }}",
        **COMMON,
    )

    @task
    def report() -> None:
        """Work for two seconds, in place of making a report."""
        time.sleep(2)

    computed = expect(reconstruct(), timedelta(seconds=6))
    [raw, calibration] >> computed >> results >> expect(report(), timedelta(seconds=2))
