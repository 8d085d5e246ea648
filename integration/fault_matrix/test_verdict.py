"""Each check of the verdict finds the violation of its promise, and nothing else."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from integration.fault_matrix import logs
from integration.fault_matrix.verdict import (
    Evidence,
    judge,
    pool_bytes,
    sync_group_bytes,
    wrong_files,
)
from integration.harness.tree import MIB, Entry

GOOD = Evidence(
    size=96 * MIB,
    files=4,
    carried_whole=97 * MIB,
    pool=5 * MIB,
    sync_group=64 * MIB,
    is_done=True,
    carried=120 * MIB,
    carried_after=60 * MIB,
    durable=40 * MIB,
)


def test_a_transfer_that_kept_its_promises_passes() -> None:
    assert judge(GOOD) == []
    assert GOOD.sent_again == 23 * MIB


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        ({"is_hit": False}, "did not occur"),
        ({"is_done": False}, "did not end with success"),
        ({"differences": ["missing: b'x'"]}, "success was reported, but missing"),
        ({"leftovers": [".dray-1.part"]}, "left behind"),
        ({"wrong": ["b'x' has a wrong content"]}, "during the transfer"),
        ({"wrong_at_fault": ["b'x' has a wrong content"]}, "after the fault"),
        ({"found": ["the damage has added ranges"]}, "added ranges"),
        ({"ended_alone": ["a panic at sink"]}, "a panic"),
        # More than a pool and a sync group were sent again.
        ({"carried": (97 + 69 + 3) * MIB}, "were sent again"),
        # Durable bytes were sent again, although few.
        ({"carried_after": 70 * MIB}, "reported as durable before the fault"),
    ],
)
def test_each_lie_is_found(lie: dict[str, Any], words: str) -> None:
    faults = judge(dataclasses.replace(GOOD, **lie))
    assert len(faults) == 1, faults
    assert words in faults[0]


def test_destroyed_records_raise_the_bounds_and_no_more() -> None:
    more = dataclasses.replace(GOOD, destroyed=20 * MIB, carried_after=80 * MIB)
    assert judge(more) == []
    assert len(judge(dataclasses.replace(more, carried_after=90 * MIB))) == 1


def test_a_file_with_bytes_of_no_version_is_wrong() -> None:
    old, new = Entry("file", 0o644, 0, 3, b"old"), Entry("file", 0o644, 0, 3, b"new")
    mixed = Entry("file", 0o644, 0, 3, b"mix")
    assert wrong_files([{b"x": old}, {b"x": new}], {b"x": new}) == []
    assert len(wrong_files([{b"x": old}, {b"x": new}], {b"x": mixed})) == 1
    assert len(wrong_files([{b"x": old}], {b"y": old})) == 1, "a file that nobody asked for"


def test_the_bounds_come_from_the_engine() -> None:
    assert sync_group_bytes() == 64 * MIB
    assert pool_bytes(64 * MIB, 2) < 16 * MIB
    # With one transfer the endpoint has three slots, and with two transfers four.
    assert pool_bytes(60, 1) == 17
    assert pool_bytes(100, 2) == 22


def test_a_log_that_names_other_ranges_is_found() -> None:
    known = {"a": [(0, 10), (20, 30)]}
    assert logs.total(known) == 20
    assert logs.common(known, known) == known
    assert logs.common({"a": [(5, 25)]}, known) == {"a": [(5, 10), (20, 25)]}
    assert logs.common({"b": [(0, 1)]}, known) == {"b": []}
