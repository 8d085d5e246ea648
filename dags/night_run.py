"""A night's data: staged to the fast disks, counted, and delivered to a partner by a deadline.

The site keeps its datasets on slow storage. The DAG stages one dataset in, and pins the fast copy,
so that it is not evicted while tasks use it. The DAG counts the files of the dataset, stages the
counts out, and sends the data to the partner's archive. It compares the sent data with the data in
the archive. It then evicts the fast copies, even after a failure.

The run has one deadline, which is given when the run is started:

    airflow dags trigger night_run --conf '{"dataset": "run42", "deadline": "45m"}'

No rate is configured. The deadline of a transfer is the run's deadline minus the time of the later
tasks, and the endpoints reserve the rate that the remaining time requires. After a dead worker, a
cleared task or a second run, transfers resume from durable data.

Connections (type ``dray``): ``dray_site``, with the roots ``tape`` (tier slow) and ``nvme`` (tier
fast), and ``dray_partner``, with the root ``archive``.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from airflow.sdk import DAG, task

from dray_airflow.deadlines.callback import deadline_alerts
from dray_airflow.operators.stage import (
    DrayEvictOperator,
    DrayStageInOperator,
    DrayStageOutOperator,
)
from dray_airflow.operators.transfer import DrayTransferOperator
from dray_airflow.operators.verify import DrayVerifyOperator

with DAG(
    "night_run",
    schedule=None,
    catchup=False,
    params={
        "dataset": "run42",
        # Mount point of the root `nvme` on the workers.
        "scratch": "/nvme",
        # Maximum rate on the network in bytes per second. Empty means no limit.
        "rate_max": "",
    },
    default_args={"retries": 4, "retry_delay": timedelta(seconds=5)},
    # Notifies at the deadline. Also notifies five minutes before it if a transfer has failed, or is
    # expected to miss its own deadline.
    deadline=deadline_alerts(
        dray_conn_ids=["dray_site", "dray_partner"], looks=[timedelta(minutes=5)]
    ),
):
    stage_in = DrayStageInOperator(
        task_id="stage_in",
        dray_conn_id="dray_site",
        path="/tape/{{ params.dataset }}",
        recursive=True,
        pin=timedelta(hours=6),
        application="night_run",
        expected_duration=timedelta(minutes=1),
    )

    @task
    def count(dataset: str, scratch: str) -> dict[str, int]:
        """Count files, bytes and lines of each folder."""
        rows = {}
        top = Path(scratch) / dataset
        for folder in sorted(path for path in top.iterdir() if path.is_dir()):
            contents = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
            lines = sum(content.count(b"\n") for content in contents)
            rows[folder.name] = (len(contents), sum(map(len, contents)), lines)
        out = Path(scratch) / f"{dataset}-counts" / "folders.csv"
        out.parent.mkdir(exist_ok=True)
        text = "".join(f"{name},{','.join(map(str, row))}\n" for name, row in rows.items())
        out.write_text(f"folder,files,bytes,lines\n{text}", encoding="utf-8")
        return {"folders": len(rows), "files": sum(row[0] for row in rows.values())}

    keep_counts = DrayStageOutOperator(
        task_id="keep_counts",
        dray_conn_id="dray_site",
        path="/nvme/{{ params.dataset }}-counts",
        recursive=True,
        evict=True,
        expected_duration=timedelta(seconds=10),
    )

    deliver = DrayTransferOperator(
        task_id="deliver",
        sources="/nvme/{{ params.dataset }}/",
        source_conn_id="dray_site",
        destination="/archive/{{ params.dataset }}",
        destination_conn_id="dray_partner",
        recursive=True,
        rate_max="{{ params.rate_max }}",
        expected_duration=timedelta(minutes=1),
        # A short transfer is usually done before the task would defer.
        grace_seconds=60,
    )

    verify = DrayVerifyOperator(
        task_id="verify",
        source="/nvme/{{ params.dataset }}",
        source_conn_id="dray_site",
        destination="/archive/{{ params.dataset }}",
        destination_conn_id="dray_partner",
    )

    free = DrayEvictOperator(
        task_id="free",
        dray_conn_id="dray_site",
        staged="{{ ti.xcom_pull('stage_in')['id'] }}",
    )

    counted = count("{{ params.dataset }}", "{{ params.scratch }}")
    stage_in >> counted >> keep_counts
    counted >> deliver >> verify
    [keep_counts, verify] >> free.as_teardown(setups=stage_in)
