"""The cells of the matrix: their names, their order, and one cell's run."""

from __future__ import annotations

import fnmatch
import json
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from integration.fault_matrix import logs, network, processes, sets, source, storage
from integration.fault_matrix.fault import USUAL
from integration.fault_matrix.scene import Scene
from integration.fault_matrix.verdict import judge

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from integration.fault_matrix.fault import Fault
    from integration.fault_matrix.sets import DataSet

FAULTS: dict[str, Fault] = {
    fault.name: fault
    for group in (processes, network, storage, logs, source)
    for fault in group.FAULTS
}
PERCENTS = (10, 50, 90)


@dataclass(frozen=True)
class Cell:
    """A fault at a moment of a transfer of a set, with a form of the object log."""

    fault: str
    #: Percentage of the data that is durable when the fault occurs.
    percent: int
    data: str
    form: str = USUAL

    def __str__(self) -> str:
        """Return the name of the cell."""
        return f"{self.fault}/{self.percent}/{self.data}/{self.form}"


@dataclass
class Outcome:
    """The result of a cell."""

    cell: str
    #: Violations. An empty list means that the cell has passed.
    faults: list[str] = field(default_factory=list)
    #: Reason for which this host cannot run the cell.
    skipped: str = ""
    sent_again: int = 0
    bound: int = 0
    #: Bytes that were reported as durable before the fault, and the size of the set.
    durable: int = 0
    size: int = 0
    #: Bytes whose records or files the fault itself has destroyed.
    destroyed: int = 0
    seconds: float = 0.0

    def line(self) -> str:
        """Return the outcome as one line of JSON."""
        return json.dumps(asdict(self))


def every() -> Iterator[Cell]:
    """Return all cells."""
    for fault in FAULTS.values():
        for form in fault.forms:
            for data in sets.NAMES:
                for percent in PERCENTS:
                    yield Cell(fault.name, percent, data, form)


def chosen(patterns: list[str]) -> list[Cell]:
    """Return the cells whose names match one of the patterns, or all cells without a pattern."""
    return [
        cell
        for cell in every()
        if not patterns or any(fnmatch.fnmatchcase(str(cell), each) for each in patterns)
    ]


def measure(data: DataSet, folder: Path, program: Path) -> int:
    """Return the bytes on the wire of a transfer without a fault."""
    folder.mkdir(parents=True)
    scene = Scene(folder, data, USUAL, program)
    scene.request["rate_max"] = None
    try:
        scene.start()
        scene.finish()
        scene.seen.carried_whole = scene.seen.carried
        found = judge(scene.seen)
        assert found == [], f"without a fault: {found}"
        return scene.seen.carried
    finally:
        scene.close()


def run(cell: Cell, data: DataSet, carried_whole: int, folder: Path, program: Path) -> Outcome:
    """Run one cell in a new folder."""
    fault = FAULTS[cell.fault]
    outcome = Outcome(str(cell), size=data.size)
    reason = fault.reason_to_skip()
    if reason is not None:
        outcome.skipped = reason
        return outcome
    began = time.monotonic()
    folder.mkdir(parents=True)
    scene = Scene(folder, data, cell.form, program)
    scene.percent = cell.percent
    scene.seen.carried_whole = carried_whole
    try:
        fault.prepare(scene)
        scene.start()
        if fault.halfway is not None:
            scene.await_part(cell.percent / 200)
            fault.halfway(scene)
        scene.await_part(cell.percent / 100)
        fault.strike(scene)
        scene.finish()
        outcome.faults = judge(scene.seen)
    except Exception as error:
        # A cell that cannot be judged has failed, and the other cells still run.
        outcome.faults = [f"{type(error).__name__}: {error}"]
    finally:
        scene.close()
    seen = scene.seen
    outcome.sent_again, outcome.bound, outcome.durable = seen.sent_again, seen.bound, seen.durable
    outcome.destroyed = seen.destroyed
    outcome.seconds = round(time.monotonic() - began, 1)
    return outcome
