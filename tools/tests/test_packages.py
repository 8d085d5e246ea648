"""Tests of the lists of crates, of the licence texts and of SBOMs, without cargo."""

from pathlib import Path

import pytest

from tools.packages.crates import Crate, edges, reachable
from tools.packages.licences import licence_texts, short
from tools.packages.sbom import document, licences, package

TREE = """\
0one v1.0.0 (/src/one)
1shared v2.0.0
2leaf v0.3.1
1other v1.1.0
2shared v2.0.0 (*)

0two v1.0.0 (/src/two)
1leaf v0.3.0
"""


def test_a_subtree_that_cargo_prints_once_belongs_to_all_its_users() -> None:
    graph = edges(TREE)
    assert graph[("other", "1.1.0")] == [("shared", "2.0.0")]
    assert reachable(graph, ("other", "1.1.0")) == {
        ("other", "1.1.0"),
        ("shared", "2.0.0"),
        ("leaf", "0.3.1"),
    }


def test_crates_of_another_program_are_not_reachable() -> None:
    assert reachable(edges(TREE), ("two", "1.0.0")) == {("two", "1.0.0"), ("leaf", "0.3.0")}


def crate(folder: Path) -> Crate:
    return Crate("some", "1.0.0", "MIT", "00", (), None, folder, ())


def test_a_crate_without_a_licence_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"crate some 1\.0\.0 \(MIT\) contains no licence text"):
        licence_texts(crate(tmp_path))


def test_the_text_of_the_apache_license_is_replaced_and_other_texts_stay() -> None:
    apache = (Path(__file__).resolve().parents[2] / "LICENSE").read_text(encoding="utf-8")
    text = short(f"before\n{apache}\nafter\n")
    assert "TERMS AND CONDITIONS" not in text
    assert text.startswith("before\n")
    assert text.endswith("after\n")


def test_one_licence_is_an_identifier_and_several_are_an_expression() -> None:
    assert licences("MIT") == [{"license": {"id": "MIT"}}]
    assert licences("MIT OR Apache-2.0") == [{"expression": "MIT OR Apache-2.0"}]


def test_equal_sources_yield_equal_sboms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    subject = package("dray", "pkg:generic/dray@1")
    first = document(subject, [])
    assert first == document(subject, [])
    assert first["metadata"]["timestamp"] == "2023-11-14T22:13:20Z"
    assert (
        first["serialNumber"] != document(package("other", "pkg:generic/x@1"), [])["serialNumber"]
    )
