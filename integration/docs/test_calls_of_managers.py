"""The reference pages about other managers name the tests of each call. Each test exists."""

from __future__ import annotations

import re

import pytest

from integration.harness.program import ROOT

NAME = re.compile(r"`(test_\w+)`")
DEFINED = re.compile(r"^(?:async )?def (test_\w+)\(", re.MULTILINE)


@pytest.mark.parametrize("manager", ["rucio", "globus"])
def test_the_named_tests_exist(manager: str) -> None:
    page = (ROOT / "docs" / "reference" / f"{manager}.md").read_text(encoding="utf-8")
    named = set(NAME.findall(page))
    assert len(named) >= 10, "the page was not read"
    folders = (ROOT / "integration" / manager, ROOT / "plugins" / manager / "tests")
    sources = [path for folder in folders for path in folder.glob("test_*.py")]
    texts = [path.read_text(encoding="utf-8") for path in sources]
    defined = {name for text in texts for name in DEFINED.findall(text)}
    assert sorted(named - defined) == []


def test_every_call_of_the_transfertool_interface_has_a_row() -> None:
    """The calls are those of Rucio 41.5, which the plug-in's classes override or inherit."""
    page = (ROOT / "docs" / "reference" / "rucio.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    interface = {
        "can_perform_transfer",
        "submission_builder_for_path",
        "group_into_submit_jobs",
        "submit",
        "bulk_query",
        "cancel",
        "update_priority",
        "initialize",
        "get_monitor_msg_fields",
        "get_db_fields_to_update",
    }
    assert rows == interface
