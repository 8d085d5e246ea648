"""The report of the bed names each promise that was not kept."""

from __future__ import annotations

import dataclasses
import json

import pytest

from integration.managers.report import MIB, Deadline, Fault, Leg, Report

LEG = Leg("deliver", "dray", "NORTH", "SOUTH", 4, 100 * MIB, 110 * MIB, 20.0, 4)
FAULT = Fault("south", "process 42", 30 * MIB, 40 * MIB, 3.0)
DEADLINE = Deadline(300.0, 90.0, 4, 4)


def report(leg: Leg = LEG, deadline: Deadline = DEADLINE, fault: Fault | None = FAULT) -> Report:
    """Return a report with two legs. The second leg is without fault."""
    other = Leg("archive", "FTS", "NORTH", "ARCHIVE", 4, 100 * MIB, 100 * MIB, 9.0, 4)
    return Report({"NORTH": "a folder"}, {"run": 60.0}, [leg, other], fault, deadline)


def test_a_run_without_problems() -> None:
    found = report()
    assert found.problems() == []
    words = json.loads(found.to_json())
    assert words["ok"] is True
    assert words["legs"][0]["twice"] == 10 * MIB
    assert words["deadline"]["kept"] is True
    text = found.to_text()
    assert "110.0 MiB sent, 10.00 twice; 4 of 4 checksums right" in text
    assert "deadline    kept: rules complete after 90 s of 300 s" in text
    assert "NOT KEPT" not in text


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (report(dataclasses.replace(LEG, verified=3)), "only 3 of 4 files have the right checksum"),
        (report(dataclasses.replace(LEG, carried=113 * MIB)), "13.0 MiB were sent twice"),
        (report(dataclasses.replace(LEG, carried=0)), "sent only 0.0 MiB of 100.0 MiB"),
        (report(fault=None), "10.0 MiB were sent twice, but only 2.0 MiB are permitted"),
        (report(deadline=Deadline(300.0, 301.0, 4, 4)), "complete 301 s after the start"),
        (report(deadline=Deadline(300.0, 90.0, 3, 4)), "the deadline of only 3 of 4 transfers"),
    ],
)
def test_a_problem_is_named(found: Report, problem: str) -> None:
    assert any(problem in each for each in found.problems()), found.problems()
    assert json.loads(found.to_json())["ok"] is False
    assert "NOT KEPT" in found.to_text()
