"""The reference pages about other managers name the tests of each call. Each test exists."""

from __future__ import annotations

import ast
import re

import pytest

from integration.harness.program import ROOT

#: Module of the installed Rucio that defines the interface.
INTERFACE = list(
    (ROOT / ".tools" / "rucio").glob(
        "lib/python3*/site-packages/rucio/transfertool/transfertool.py"
    )
)
#: Calls that Rucio's own classes implement, and the plug-in's classes inherit.
INHERITED = {"ensure_initialized", "request"}
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


@pytest.mark.skipif(not INTERFACE, reason="tools/bootstrap.sh test installs Rucio")
def test_every_call_of_the_transfertool_interface_has_a_row() -> None:
    """The calls are the public methods of the two classes from which the plug-in derives."""
    page = (ROOT / "docs" / "reference" / "rucio.md").read_text(encoding="utf-8")
    tables = page.partition("\n## Transfertool\n")[2].partition("\n## RSE protocol\n")[0]
    rows = set(re.findall(r"^\| `(\w+)` \|", tables, re.MULTILINE))
    module = ast.parse(INTERFACE[0].read_text(encoding="utf-8"))
    calls = {
        member.name
        for node in module.body
        if isinstance(node, ast.ClassDef) and node.name in {"Transfertool", "TransferStatusReport"}
        for member in node.body
        if isinstance(member, ast.FunctionDef) and not member.name.startswith("_")
    }
    assert rows == calls - INHERITED
