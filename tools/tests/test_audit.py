"""Tests that the audit finds planted faults."""

from typing import Any

import pytest

from tools import audit


@pytest.mark.parametrize(
    ("expression", "is_allowed"),
    [
        ("MIT", True),
        ("MIT OR GPL-3.0-only", True),
        ("GPL-3.0-only", False),
        ("MIT/Apache-2.0", True),
        ("MIT AND GPL-3.0-only", False),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", True),
        ("(MIT OR Apache-2.0) AND NCSA", False),
        ("Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT", True),
        ("GPL-2.0-only WITH Classpath-exception-2.0", False),
        ("GPL-3.0-only OR MIT AND ISC", True),
        ("(MIT", False),
        ("MIT MIT", False),
        ("", False),
    ],
)
def test_licence_expressions(expression: str, is_allowed: bool) -> None:
    assert audit.is_licence_allowed(expression) is is_allowed


def test_good_crates_pass() -> None:
    crates = [
        audit.Crate("dray-core", "0.1.0", None, "Apache-2.0"),
        audit.Crate("serde", "1.0.0", audit.CRATES_IO, "MIT OR Apache-2.0"),
        audit.Crate("syn", "1.0.0", audit.CRATES_IO, "MIT"),
        audit.Crate("syn", "2.0.0", audit.CRATES_IO, "MIT"),
    ]
    assert audit.audit_crates(crates) == []


@pytest.mark.parametrize(
    ("crate", "word"),
    [
        (("x", "1.0.0", "git+https://example.org/x", "MIT"), "not from crates.io"),
        (("x", "1.0.0", audit.CRATES_IO, "AGPL-3.0"), "not on the list"),
        (("x", "1.0.0", audit.CRATES_IO, None), "no licence"),
        (("x", "1.0.0", None, "MIT"), "not ours"),
        (("openssl", "1.0.0", audit.CRATES_IO, "MIT"), "banned"),
    ],
)
def test_each_rule_for_crates_can_fail(
    crate: tuple[str, str, str | None, str | None], word: str
) -> None:
    findings = audit.audit_crates([audit.Crate(*crate)])
    assert len(findings) == 1
    assert word in findings[0]


def test_two_copies_of_a_single_crate_are_found() -> None:
    two = [audit.Crate("ring", v, audit.CRATES_IO, "ISC") for v in ("0.16.20", "0.17.0")]
    assert audit.audit_crates(two) == ["crate ring: 0.16.20 and 0.17.0 at once"]


def test_pins() -> None:
    text = '# why\nA_b==1.0\nc==2.0; python_version < "3.11"\nc==3.0; python_version >= "3.11"\n'
    assert audit.audit_requirements(text, {"a-b": "1.0", "c": "3.0"}) == []
    assert len(audit.audit_requirements(text + "d>=1\n", {})) == 1
    assert len(audit.audit_requirements(text + "-e .\n", {})) == 1
    assert len(audit.audit_requirements(text, {"a-b": "1.1"})) == 1
    assert len(audit.audit_requirements(text, {"unknown": "1.1"})) == 1


def npm_lock(**package: str) -> dict[str, Any]:
    top = {"dependencies": {"preact": "11.2.0"}}
    good = {"version": "11.2.0", "license": "MIT", "integrity": "sha512-x"}
    return {"packages": {"": top, "node_modules/preact": {**good, **package}}}


def test_good_npm_packages_pass() -> None:
    assert audit.audit_npm(npm_lock()) == []


@pytest.mark.parametrize(
    ("fault", "word"),
    [("license", "declares no licence"), ("integrity", "no digest")],
)
def test_incomplete_npm_packages_are_found(fault: str, word: str) -> None:
    lock = npm_lock()
    del lock["packages"]["node_modules/preact"][fault]
    (found,) = audit.audit_npm(lock)
    assert word in found


def test_faults_of_npm_packages_are_found() -> None:
    (found,) = audit.audit_npm(npm_lock(license="GPL-3.0-only"))
    assert "not on the list" in found
    lock = npm_lock()
    lock["packages"][""]["dependencies"] = {"preact": "^11.2.0"}
    (found,) = audit.audit_npm(lock)
    assert "not an exact version" in found
