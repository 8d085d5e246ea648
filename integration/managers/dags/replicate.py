"""Brings a dataset and its calibration from site north to site south, and archives the dataset.

Rucio moves the dataset by two rules, whose deadline is in the conf of the run. The calibration is
not in Rucio: the XRootD server of the site south copies it at the request of ``xrdcp``.
"""

from __future__ import annotations

import os
import subprocess
from typing import Any

from airflow.sdk import DAG, task

from dray_airflow.operators.rule import RucioRuleOperator

with DAG("replicate", schedule=None, catchup=False):
    deliver = RucioRuleOperator(
        task_id="deliver",
        did="{{ dag_run.conf['did'] }}",
        rse_expression="SOUTH",
        deadline="{{ dag_run.conf['deadline'] }}",
        rate_max="{{ dag_run.conf['rate_max'] }}",
        poll_seconds=1,
    )

    @task
    def calibrate(**context: Any) -> None:  # noqa: ANN401 - Airflow's context
        """Let the server of the destination copy each file (a third-party copy)."""
        conf = context["dag_run"].conf
        for source, destination in conf["calibration"]:
            words = ["xrdcp", "--nopbar", "--force", "--tpc", "only", source, destination]
            env = {**os.environ, "XRD_CONNECTIONRETRY": "1"}
            ended = subprocess.run(words, env=env, check=False, capture_output=True, text=True)
            if ended.returncode != 0:
                raise RuntimeError(
                    f"cannot copy {source} to {destination}: xrdcp ended with "
                    f"{ended.returncode}: {ended.stderr.strip()}"
                )

    archive = RucioRuleOperator(
        task_id="archive",
        did="{{ dag_run.conf['did'] }}",
        rse_expression="ARCHIVE",
        source_rse_expression="NORTH",
        deadline="{{ dag_run.conf['deadline'] }}",
        poll_seconds=1,
    )
    deliver >> calibrate() >> archive
