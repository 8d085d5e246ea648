"""The names of cells, the table of the results, and its place in the page."""

from __future__ import annotations

import pytest

from integration.fault_matrix import report
from integration.fault_matrix.cells import Cell, Outcome, chosen, every


def test_names_are_unique_and_can_be_parsed() -> None:
    names = [str(cell) for cell in every()]
    assert len(names) == len(set(names))
    assert [report.parse(name) for name in names] == list(every())
    assert chosen(["sink-killed/50/*"]) == [
        Cell("sink-killed", 50, "big"),
        Cell("sink-killed", 50, "small"),
    ]


def test_a_failed_cell_is_never_hidden() -> None:
    good = Outcome("sink-killed/10/big/universal:ranges", sent_again=1 << 20, bound=70 << 20)
    bad = Outcome("sink-killed/50/big/universal:ranges", faults=["b'x' | wrong"], bound=70 << 20)
    left = Outcome("quota/50/big/universal:ranges", skipped="no btrfs")
    text = report.table([good, bad, left])
    assert f"2 of {len(list(every()))} cells ran" in text
    assert "1 passed, 1 failed, and 1 were skipped" in text
    fields = "big | 1.0 / 70.0 | **failed** (0.0 / 70.0) | not run |"
    assert f"| sink-killed | `universal:ranges` | {fields}" in text
    assert "- `sink-killed/50/big/universal:ranges`: b'x' / wrong" in text
    assert "- quota: no btrfs" in text


def test_the_table_replaces_only_the_text_between_its_marks() -> None:
    page = f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n"
    assert report.put(page, "new\n") == (f"before\n{report.BEGIN}\n\nnew\n\n{report.END}\nafter\n")
    with pytest.raises(ValueError, match="marks"):
        report.put("a page without marks", "new")
    assert report.put(report.PAGE.read_text(encoding="utf-8"), "x")
