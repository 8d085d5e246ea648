"""An Airflow in the test process, with its own home folder and database.

The package ``airflow`` reads its settings at import. So this module sets the settings before pytest
imports a test.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from dray.testing.endpoints import Endpoint

Loose: TypeAlias = Any
"""Objects of Airflow without usable types: DAGs, runs, XComs."""

# Without Airflow, these tests are skipped, so that the engine's tests can run.
collect_ignore_glob = [] if find_spec("airflow") else ["test_*.py"]


def _make_home() -> Path:
    home = Path(tempfile.mkdtemp(prefix="dray-airflow-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    os.environ.update(
        AIRFLOW_HOME=str(home),
        AIRFLOW__CORE__LOAD_EXAMPLES="False",
        AIRFLOW__CORE__UNIT_TEST_MODE="False",
        AIRFLOW__CORE__DAGS_FOLDER=str(home / "dags"),
        AIRFLOW__DATABASE__SQL_ALCHEMY_CONN=f"sqlite:///{home}/airflow.db",
        AIRFLOW__LOGGING__LOGGING_LEVEL="INFO",
    )
    (home / "dags").mkdir()
    return home


HOME = _make_home()


@pytest.fixture(scope="session")
def database() -> Path:
    """Return the home of an Airflow with an initialised database."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.utils.db import initdb

    initdb()
    DagBundlesManager().sync_bundles_to_db()  # type: ignore[no-untyped-call]
    return HOME


class Ran(NamedTuple):
    """A DAG run that has ended."""

    run: Loose

    @property
    def state(self) -> str:
        """Final state of the run."""
        return str(self.run.state)

    def task(self, task_id: str, map_index: int = -1) -> Loose:
        """Return a task instance in its current state in the database."""
        found = self.run.get_task_instance(task_id, map_index=map_index)
        assert found is not None, (task_id, map_index)
        return found

    def result(self, task_id: str, key: str = "return_value", map_index: int = -1) -> Loose:
        """Return an XCom of a task."""
        task = self.task(task_id, map_index)
        return task.xcom_pull(task_ids=task_id, key=key, map_indexes=map_index)


@pytest.fixture
def run_dag(database: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Return a function that runs a DAG and its triggers to the end, in this process.

    The listener is off: it would cancel the reservations of a run that has ended, but the tests
    check them after the end of the run. ``integration/airflow/test_reserved.py`` tests the listener
    in a real Airflow.
    """
    from airflow.dag_processing.collection import update_dag_parsing_results_in_db
    from airflow.serialization.serialized_objects import LazyDeserializedDAG
    from airflow.utils.session import create_session

    from dray_airflow import listener

    del database
    monkeypatch.setattr(listener, "_release_later", lambda _: None)

    def run(dag: Loose, **words: Loose) -> Ran:
        with create_session() as session:
            update_dag_parsing_results_in_db(
                "dags-folder",
                None,
                [LazyDeserializedDAG.from_dag(dag)],
                {},
                None,
                set(),
                session=session,
            )
        return Ran(dag.test(**words))

    return run


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Return a function that makes a connection to an endpoint: ``connect("site_a", endpoint)``."""
    import json

    def make(conn_id: str, endpoint: Endpoint, **words: object) -> str:
        extra = {"pin": endpoint.key, "seconds": 10, "outage_seconds": 20}
        fields = {
            "conn_type": "dray",
            "host": endpoint.address,
            "password": endpoint.token(),
            "extra": extra,
            **words,
        }
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(fields))
        return conn_id

    return make
