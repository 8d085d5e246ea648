"""What is to be reached, what was found, and what the machine itself did: the table of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from integration.bench.results import Case


@dataclass(frozen=True)
class Goal:
    """What is to be reached."""

    title: str
    bound: float
    #: whether that is the least; else it is the most
    is_least: bool = True

    def is_met(self, found: float) -> bool:
        """Whether a number reaches it."""
        return found >= self.bound if self.is_least else found <= self.bound


@dataclass(frozen=True)
class Reached:
    """A goal, and how it was met."""

    goal: Goal
    #: the row's title
    who: str
    case: Case
    words: str
    is_met: bool
    #: the same number of what stands for the machine there; empty where nothing does
    machine: str = ""


def table(reached: Sequence[Reached]) -> list[str]:
    """Write the table in Markdown; nothing for no goals."""
    if not reached:
        return []
    has_machine = any(each.machine for each in reached)
    heads = ["goal", "tool", "case", "result", *(["the machine"] if has_machine else []), "met"]
    text = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for each in reached:
        cells = [each.goal.title, each.who, ", ".join(each.case), each.words]
        cells += [each.machine] if has_machine else []
        text.append(f"| {' | '.join(cells)} | {'yes' if each.is_met else 'no'} |")
    return text
