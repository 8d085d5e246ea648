"""A beamline's day: each sample is archived as soon as the detector has written it.

The detector writes about 96 samples of about 12 GB each per day. The DAG watches the folder: each
new file is an event of an asset, and events start runs. An event that arrives while a run is being
created starts no run of its own. So each run itself looks for all samples that are not in the
archive yet. If the retries of a sample are exhausted, a person gets a notification with the sample,
the error and the durable data.

Connections (type ``dray``): ``dray_beamline``, with the root ``detector``, and ``dray_archive``,
with the root ``archive``.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from airflow.sdk import DAG, Asset, AssetWatcher, task

from dray_airflow.notifications.dray import DrayNotifier
from dray_airflow.operators.transfer import DrayTransferOperator
from dray_airflow.triggers.file import DrayFolderTrigger

# The detector takes a while to write a sample. A sample is complete if it has not changed for this
# number of seconds.
QUIET_SECONDS = 5.0

samples = Asset(
    "beamline_samples",
    watchers=[
        AssetWatcher(
            name="detector",
            trigger=DrayFolderTrigger(
                dray_conn_id="dray_beamline",
                path="/detector/today",
                pattern="*.h5",
                quiet_seconds=QUIET_SECONDS,
            ),
        )
    ],
)

with DAG(
    "beamline_day",
    schedule=[samples],
    catchup=False,
    # Two concurrent runs would find the same samples.
    max_active_runs=1,
    default_args={
        "retries": 4,
        "retry_delay": timedelta(seconds=15),
        "on_failure_callback": DrayNotifier(dray_conn_ids=["dray_archive"]),
    },
):

    @task
    def arrived() -> list[dict[str, Any]]:
        """Return the complete samples that are not in the archive. Each becomes a mapped task."""
        from dray_airflow.hooks.dray import DrayHook

        with DrayHook("dray_archive").get_conn() as archive:
            archive.mkdir("/archive/today")
            kept = {entry.name for entry in archive.list("/archive/today")}
        rested = datetime.now(timezone.utc) - timedelta(seconds=QUIET_SECONDS)
        with DrayHook("dray_beamline").get_conn() as beamline:
            return [
                {
                    "sources": entry.path,
                    "destination": f"/archive/today/{entry.name}",
                    "bytes_expected": entry.size,
                    "labels": {"sample": entry.name.removesuffix(".h5")},
                }
                for entry in beamline.list("/detector/today")
                if entry.name.endswith(".h5")
                and entry.name not in kept
                and entry.modified_at is not None
                and entry.modified_at <= rested
            ]

    DrayTransferOperator.partial(
        task_id="archive",
        source_conn_id="dray_beamline",
        destination_conn_id="dray_archive",
        # The detector's disk is wiped in the evening, so the archive must hold correct copies. With
        # `verify`, the archive reads each copied file back before the file gets its final name.
        verify=True,
    ).expand_kwargs(arrived())
