"""A home folder for Airflow, whose package writes files when it is imported."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from importlib.util import find_spec

# Without Airflow, these tests are skipped, so that the engine's tests can run.
collect_ignore_glob = [] if find_spec("airflow") else ["test_*.py"]

if "AIRFLOW_HOME" not in os.environ:
    _home = tempfile.mkdtemp(prefix="dray-airflow-ui-")
    atexit.register(shutil.rmtree, _home, ignore_errors=True)
    os.environ["AIRFLOW_HOME"] = _home
