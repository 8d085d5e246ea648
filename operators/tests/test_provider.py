"""Tests of the provider's description, and of the modules that the package imports."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dray_airflow.get_provider_info import get_provider_info
from dray_airflow.hooks.dray import EXTRAS
from dray_airflow.hooks.rucio import RUCIO_EXTRAS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dray.testing.endpoints import Endpoint

MODULES = (
    "dray_airflow",
    "dray_airflow.get_provider_info",
    "dray_airflow.hooks.dray",
    "dray_airflow.operators.transfer",
    "dray_airflow.operators.admit",
    "dray_airflow.operators.rule",
    "dray_airflow.operators.stage",
    "dray_airflow.operators.verify",
    "dray_airflow.sensors.transfer",
    "dray_airflow.sensors.file",
    "dray_airflow.sensors.rule",
    "dray_airflow.triggers.transfer",
    "dray_airflow.triggers.file",
    "dray_airflow.triggers.rule",
    "dray_airflow.triggers.watching",
    "dray_airflow.links.transfer",
    "dray_airflow.assets",
    "dray_airflow.lineage",
    "dray_airflow.retries",
    "dray_airflow.notifications.dray",
    "dray_airflow.deadlines.callback",
    "dray_airflow.deadlines.dag",
    "dray_airflow.deadlines.graph",
    "dray_airflow.deadlines.history",
    "dray_airflow.deadlines.known",
    "dray_airflow.listener",
    "dray_airflow.reservations",
    "dray_airflow.tokens",
    "dray_airflow.shards",
)

DAG_FILE = """
import datetime as dt
from airflow.sdk import DAG, Asset
from dray_airflow.operators.rule import RucioRuleOperator
from dray_airflow.operators.stage import DrayStageInOperator
from dray_airflow.operators.transfer import DrayTransferOperator
from dray_airflow.operators.verify import DrayVerifyOperator
from dray_airflow.retries import DrayRetryPolicy
from dray_airflow.sensors.file import DrayFileSensor
with DAG("parsed", schedule=None, start_date=dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)):
    DrayFileSensor(task_id="file", path="/data/x")
    RucioRuleOperator(task_id="rule", did="mock:x", rse_expression="A", outlets=[Asset("rucio://h/s/n")])
    DrayStageInOperator(task_id="stage", path="/tape/x")
    DrayTransferOperator.partial(
        task_id="move", sources="/data/", destination="/data/", retry_policy=DrayRetryPolicy()
    ).expand(include=[["a"], ["b"]])
    DrayVerifyOperator(task_id="verify", source="/data/x", destination="/data/x")
"""


def loaded_by(code: str, *, behind: str) -> set[str]:
    """Return the modules that code loads in a new interpreter, in addition to Airflow's own."""
    words = f"""
import sys, json
{behind}
before = set(sys.modules)
{code}
print("\\n" + json.dumps(sorted(set(sys.modules) - before)))
"""
    done = subprocess.run(
        [sys.executable, "-c", words], capture_output=True, text=True, check=True, timeout=300
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def heavy(modules: set[str]) -> set[str]:
    """Return the modules that a DAG file must not load."""
    return {
        name
        for name in modules
        if name.split(".")[0]
        in ("dray", "rucio", "requests", "httpx", "httpcore", "openlineage", "ssl")
    }


def test_importing_loads_no_client_and_no_native_code() -> None:
    own = loaded_by(
        "\n".join(f"import {name}" for name in MODULES),
        behind="import airflow.triggers.base\nfrom airflow.sdk import *",
    )
    # If the distribution is installed, Airflow itself imports the description.
    assert set(MODULES) - {"dray_airflow", "dray_airflow.get_provider_info"} <= own
    assert heavy(own) == set()


def test_parsing_a_dag_loads_no_client_and_opens_nothing(tmp_path: Path) -> None:
    file = tmp_path / "dag.py"
    file.write_text(DAG_FILE)
    # Parsing a DAG file must not open a socket or read a connection.
    before = """
import airflow.triggers.base, runpy, socket
from airflow.sdk import *
def never(*a, **k): raise AssertionError("a DAG file opened something")
BaseHook.get_connection = classmethod(never)
socket.socket.connect = never
"""
    own = loaded_by(f"runpy.run_path({str(file)!r})", behind=before)
    assert "dray_airflow.operators.transfer" in own
    assert heavy(own) == set()


def test_the_provider_info_fits_airflows_schema() -> None:
    from jsonschema import validate  # type: ignore[import-untyped]

    spec = find_spec("airflow")
    assert spec is not None
    assert spec.origin is not None
    schema = json.loads(Path(spec.origin).with_name("provider_info.schema.json").read_text())
    validate(get_provider_info(), schema)


def classes(info: object) -> Iterator[str]:
    """Return all dotted names in a provider's description."""
    if isinstance(info, dict):
        for each in info.values():
            yield from classes(each)
    elif isinstance(info, list):
        for each in info:
            yield from classes(each)
    elif isinstance(info, str) and info.startswith("dray_airflow."):
        yield info


def test_everything_the_provider_info_names_exists() -> None:
    named = set(classes(get_provider_info()))
    assert len(named) > 10
    for name in named:
        try:
            import_module(name)
        except ModuleNotFoundError:
            home, _, last = name.rpartition(".")
            assert hasattr(import_module(home), last), name


def test_the_form_has_a_field_for_every_connection_setting() -> None:
    forms = {form["connection-type"]: form for form in get_provider_info()["connection-types"]}
    assert set(forms["dray"]["conn-fields"]) == set(EXTRAS)
    assert set(forms["rucio"]["conn-fields"]) == set(RUCIO_EXTRAS)


def test_operators_keep_templates_as_they_were_given() -> None:
    from dray_airflow.operators.transfer import DrayTransferOperator

    given: dict[str, Any] = {
        name: f"{{{{ {name} }}}}" for name in DrayTransferOperator.template_fields
    }
    made = DrayTransferOperator(task_id="t", **given)
    assert {name: getattr(made, name) for name in given} == given


@pytest.mark.server
def test_a_connection_can_be_tested(
    one_endpoint: Endpoint, connect: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from dray_airflow.hooks.dray import DrayHook

    connect("good", one_endpoint)
    assert DrayHook("good").test_connection() == (
        True,
        f"endpoint a, version {one_endpoint.client().endpoint().version}; you are alice; "
        "roots: data",
    )
    connect("bad_token", one_endpoint, password="abc.def.ghi")  # noqa: S106
    works, message = DrayHook("bad_token").test_connection()
    assert not works
    assert "not authorized" in message
    works, message = DrayHook("nowhere").test_connection()
    assert (works, message) == (
        False,
        "cannot use connection 'nowhere': the connection does not exist; create it: airflow "
        "connections add nowhere --conn-type dray --conn-host HOST",
    )
    monkeypatch.setenv("AIRFLOW_CONN_OFF", '{"conn_type": "dray", "host": "h", "extra": "{]"}')
    works, message = DrayHook("off").test_connection()
    assert not works
    assert "the extra field is not a JSON object" in message
