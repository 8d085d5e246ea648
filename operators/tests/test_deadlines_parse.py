"""Tests that a DAG file with deadlines loads no client and opens no connection."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

DAG_FILE = """
import datetime as dt
from airflow.sdk import DAG, task
from dray_airflow.deadlines.callback import deadline_alerts
from dray_airflow.deadlines.dag import expect
from dray_airflow.notifications.dray import DrayNotifier
from dray_airflow.operators.admit import DrayAdmitOperator
from dray_airflow.operators.transfer import DrayTransferOperator
from dray_airflow.shards import plan_shards
alerts = deadline_alerts(webhook_conn_id="chat", looks=[dt.timedelta(minutes=30)])
with DAG("parsed", schedule=None, deadline=alerts):
    parts = plan_shards([("a", 1), ("b", 2)], 2)
    @task
    def compute(): ...
    move = DrayTransferOperator(
        task_id="move", sources="/data/", destination="/data/",
        on_failure_callback=DrayNotifier(["site_b"], webhook_conn_id="chat"),
    )
    DrayAdmitOperator(task_id="admit") >> move >> expect(compute(), dt.timedelta(minutes=5))
"""

WORDS = """
import json, runpy, socket, sys
import airflow.triggers.base
from airflow.sdk import *
def never(*a, **k): raise AssertionError("a DAG file opened something")
BaseHook.get_connection = classmethod(never)
socket.socket.connect = never
before = set(sys.modules)
runpy.run_path(sys.argv[1])
print("\\n" + json.dumps(sorted(set(sys.modules) - before)))
"""


@pytest.mark.slow
def test_parsing_loads_no_client_no_models_and_opens_nothing(tmp_path: Path) -> None:
    file = tmp_path / "dag.py"
    file.write_text(DAG_FILE)
    words = [sys.executable, "-c", WORDS, str(file)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=300)
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    assert {"dray_airflow.operators.admit", "dray_airflow.deadlines.reference"} <= loaded
    tops = {name.split(".")[0] for name in loaded}
    assert not tops & {"dray", "httpx", "httpcore", "sqlalchemy", "ssl"}, sorted(loaded)
    assert not {name for name in loaded if name.startswith("airflow.models")}
