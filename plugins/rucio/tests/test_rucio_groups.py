"""Tests of the division of Rucio's files into transfers."""

from __future__ import annotations

import dataclasses
import json

from dray.client import ListedFile, Selection
from dray_rucio.groups import (
    REQUEST_BYTES_MAX,
    Member,
    divide,
    find_name,
    folder_of,
    group_id,
    is_group,
)
from dray_rucio.submission import File, Wish, group_request_of, request_of

FILE = File(
    request_id="a" * 32,
    scope="mock",
    name="x",
    size=7,
    adler32="ADF",
    activity=None,
    priority=3,
    rule_id="r" * 32,
    destination_rse="DESY",
)


def test_files_with_equal_keys_share_transfers() -> None:
    members = [Member("k", f"f{at}", at) for at in range(5)]
    members.insert(2, Member(None, "alone", 99))
    members.insert(3, Member("other", "g", 50))
    assert divide(members, 3) == [[0, 1, 2], [99], [50], [3, 4]]
    assert divide(members, 1) == [[0], [1], [99], [50], [2], [3], [4]]


def test_a_list_of_files_fits_into_a_request() -> None:
    members = [Member("k", f"{at:04}/" + "é" * 200, at) for at in range(100)]
    groups = divide(members, 1000)
    assert [at for group in groups for at in group] == list(range(100))
    for group in groups:
        names = [members[at].name for at in group]
        assert sum(len(json.dumps(name)) for name in names) < REQUEST_BYTES_MAX


def test_the_id_does_not_depend_on_the_order() -> None:
    assert group_id(["a", "b"]) == group_id(["b", "a"]) != group_id(["a", "c"])
    assert is_group(group_id(["a", "b"]))
    assert not is_group(FILE.request_id)
    assert len(group_id(["a"])) <= 64


def test_the_folder_of_files_is_the_deepest_shared_one() -> None:
    assert folder_of(["mock/ab/cd/x", "mock/ab/ef/y"]) == "mock/ab/"
    assert folder_of(["mock/ab/x", "mock/ab/y"]) == "mock/ab/"
    assert folder_of(["mock/ab", "mock/abc"]) == "mock/"
    assert folder_of(["x", "mock/y"]) == ""


def test_a_pfn_is_matched_by_its_whole_end() -> None:
    names = {"x": ["ab/x", "cd/ab/x"], "y": ["y"]}
    assert find_name("file:///rse/mock/cd/ab/x", names) == "cd/ab/x"
    assert find_name("file:///rse/mock/ab/x", names) == "ab/x"
    assert find_name("file:///rse/mock/bab/x", names) is None
    assert find_name("file:///rse/mock/z", names) is None


def test_a_request_for_several_files_lists_them() -> None:
    other = dataclasses.replace(FILE, request_id="b" * 32, name="y%", adler32=None)
    files = {"ab/x": FILE, "cd/y%": other}
    one = request_of(FILE, Wish(), source_rse_ids=["s"], bound_seconds=60, tries=None)
    made = group_request_of(files, one)
    assert made.id == group_id([FILE.request_id, other.request_id])
    assert made.content is None
    assert made.selection == Selection(recursive=True)
    assert made.files == [
        ListedFile("ab/x", 7, "adler32:00000adf"),
        ListedFile("cd/y%25", 7, None),
    ]
    assert made.labels is not None
    assert made.labels["rucio.files"] == "2"
    assert "rucio.did" not in made.labels
    assert (made.bound_seconds, made.labels["rucio.rule"]) == (60, FILE.rule_id)
