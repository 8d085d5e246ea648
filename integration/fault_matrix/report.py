"""The table of the results, in the page of the manual."""

from __future__ import annotations

import json
import os
import platform
import textwrap
from typing import TYPE_CHECKING

from integration.fault_matrix.cells import FAULTS, PERCENTS, Cell, Outcome, every
from integration.harness.program import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

PAGE = ROOT / "docs" / "explanation" / "fault-matrix.md"
BEGIN = "<!-- The table of `make fault-full` begins here. Do not edit it. -->"
END = "<!-- The table ends here. -->"
MIB = 1 << 20


def parse(name: str) -> Cell:
    """Parse the name of a cell.

    :raises ValueError: for another text.
    """
    fault, percent, data, form = name.split("/", 3)
    return Cell(fault, int(percent), data, form)


def shown(outcome: Outcome | None) -> str:
    """Return the text of one field of the table."""
    if outcome is None:
        return "not run"
    if outcome.skipped:
        return "skipped"
    text = f"{outcome.sent_again / MIB:.1f} / {outcome.bound / MIB:.1f}"
    return f"**failed** ({text})" if outcome.faults else text


def table(outcomes: Iterable[Outcome]) -> str:
    """Return the summary and the table of these results."""
    by_name = {outcome.cell: outcome for outcome in outcomes}
    ran = [each for each in by_name.values() if not each.skipped]
    failed = [each for each in ran if each.faults]
    skipped = [each for each in by_name.values() if each.skipped]
    cells = list(every())
    lines = [
        f"{len(ran)} of {len(cells)} cells ran on Linux {platform.release()} with "
        f"{os.cpu_count()} processors.",
        "",
        f"{len(ran) - len(failed)} passed, {len(failed)} failed, and {len(skipped)} were skipped.",
        "",
        "| fault | log | set | 10 % | 50 % | 90 % |",
        "|---|---|---|---|---|---|",
    ]
    rows = dict.fromkeys((cell.fault, cell.form, cell.data) for cell in cells)
    for fault, form, data in rows:
        fields = [shown(by_name.get(str(Cell(fault, percent, data, form)))) for percent in PERCENTS]
        if any(field != "not run" for field in fields):
            lines.append(f"| {fault} | `{form}` | {data} | {' | '.join(fields)} |")
    lines += ["", *_faults(failed), *_reasons(skipped)]
    return "\n".join(lines).rstrip() + "\n"


def _faults(failed: list[Outcome]) -> list[str]:
    lines = ["The failed cells:", ""] if failed else []
    for each in failed:
        text = f"- `{each.cell}`: {_plain('; '.join(each.faults)[:300])}"
        lines += textwrap.wrap(text, 100, subsequent_indent="  ", break_on_hyphens=False)
    return [*lines, ""] if lines else []


def _reasons(skipped: list[Outcome]) -> list[str]:
    reasons = sorted({(parse(each.cell).fault, each.skipped) for each in skipped})
    lines = ["The skipped cells:", ""] if reasons else []
    for name, reason in reasons:
        lines += textwrap.wrap(f"- {name}: {reason}", 100, subsequent_indent="  ")
    return lines


def _plain(text: str) -> str:
    return json.dumps(text, ensure_ascii=True)[1:-1].replace("|", "/").replace("<", "(")


def faults_table() -> str:
    """Return the table of the faults and the ways in which they are made."""
    lines = ["| fault | how the test injects the fault |", "|---|---|"]
    return "\n".join([*lines, *(f"| {each.name} | {each.text} |" for each in FAULTS.values())])


def put(page: str, text: str) -> str:
    """Return the page with this text between the marks.

    :raises ValueError: if the page lacks a mark.
    """
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page lacks the marks {BEGIN} and {END}")
    return f"{head}{begin}\n\n{text}\n{end}{tail}"


def write(outcomes: Iterable[Outcome], page: Path = PAGE) -> None:
    """Write the results into the page."""
    text = f"{faults_table()}\n\n{table(outcomes)}"
    page.write_text(put(page.read_text(encoding="utf-8"), text), encoding="utf-8")
