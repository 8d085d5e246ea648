"""Tests that each example on the pages about Airflow is a valid DAG file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = (
    "how-to/airflow-rucio.md",
    "how-to/airflow-transfer.md",
    "how-to/airflow-stage.md",
    "how-to/airflow-verify.md",
    "how-to/airflow-wait.md",
    "reference/airflow.md",
)


def examples() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        text = (DOCS / page).read_text(encoding="utf-8")
        blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        assert blocks, page
        found += [(f"{page}:{at}", block) for at, block in enumerate(blocks)]
    return found


@pytest.mark.parametrize(("place", "block"), examples(), ids=[place for place, _ in examples()])
def test_an_example_is_a_dag_file(place: str, block: str, database: Path, tmp_path: Path) -> None:
    from airflow.dag_processing.dagbag import DagBag
    from airflow.serialization.serialized_objects import LazyDeserializedDAG

    del database
    (tmp_path / "example.py").write_text(block, encoding="utf-8")
    bag = DagBag(dag_folder=tmp_path)
    assert bag.import_errors == {}, place
    if "with DAG(" in block:
        assert bag.dags, place
        for dag in bag.dags.values():
            LazyDeserializedDAG.from_dag(dag)


def test_the_reference_names_all_arguments() -> None:
    import inspect

    from dray_airflow.operators.rule import RucioRuleOperator
    from dray_airflow.operators.stage import DrayStageInOperator
    from dray_airflow.operators.transfer import DrayTransferOperator
    from dray_airflow.operators.waiting import WaitingOperator

    text = (DOCS / "reference/airflow.md").read_text(encoding="utf-8")
    for of in (DrayTransferOperator, DrayStageInOperator, WaitingOperator, RucioRuleOperator):
        init = inspect.unwrap(of.__init__)
        for name in inspect.signature(init).parameters:
            if name not in ("self", "kwargs", "bytes_expected", "expected_duration"):
                assert f"`{name}`" in text, (of.__name__, name)


def test_the_reference_names_all_waits() -> None:
    from dray_airflow.retries import WAITS

    text = (DOCS / "reference/airflow.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*) \| (\d+) \|$", text, re.MULTILINE)
    said = {word: int(count) for words, count in rows for word in re.findall(r"`(\w+)`", words)}
    assert said == dict(WAITS)


def test_the_reference_names_all_fields_of_a_connection() -> None:
    from dray_airflow.hooks.dray import EXTRAS
    from dray_airflow.hooks.rucio import RUCIO_EXTRAS

    text = (DOCS / "reference/airflow.md").read_text(encoding="utf-8")
    for heading, known in (("## Connection", EXTRAS), ("## Rucio", RUCIO_EXTRAS)):
        part = text.split(heading)[1].split("## ")[0]
        named = set()
        for row in re.findall(r"^\| extra (.*?) \|", part, re.MULTILINE):
            named |= set(re.findall(r"`(\w+)`", row))
        assert named == set(known)
