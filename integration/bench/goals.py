"""The table of goals, results, and the machine's own limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from integration.bench.results import Case


@dataclass(frozen=True)
class Goal:
    """A goal of a measurement: its title, and the bound of the result."""

    title: str
    bound: float
    #: True if the goal is a minimum, false if it is a maximum.
    is_least: bool = True

    def is_met(self, found: float) -> bool:
        """Return true if a result meets the goal."""
        return found >= self.bound if self.is_least else found <= self.bound


@dataclass(frozen=True)
class Reached:
    """A goal in one case, with the result that was reached."""

    goal: Goal
    #: Title of the row.
    row_title: str
    case: Case
    words: str
    is_met: bool
    #: The same quantity for the machine's own limit, as text. Empty if it was not measured.
    machine: str = ""


def table(reached: Sequence[Reached]) -> list[str]:
    """Return the table in Markdown, or an empty list if there are no goals."""
    if not reached:
        return []
    has_machine = any(each.machine for each in reached)
    heads = ["goal", "tool", "case", "result", *(["the machine"] if has_machine else []), "met"]
    text = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for each in reached:
        cells = [each.goal.title, each.row_title, ", ".join(each.case), each.words]
        cells += [each.machine] if has_machine else []
        text.append(f"| {' | '.join(cells)} | {'yes' if each.is_met else 'no'} |")
    return text
