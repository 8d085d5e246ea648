"""Tests that a site's ``rucio.cfg`` affects the requests. Rucio itself is replaced."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from dray_rucio import settings
from dray_rucio.submission import File, Wish, request_of

FILE = File(
    request_id="0123456789abcdef0123456789abcdef",
    scope="mock",
    name="x.dat",
    size=1000,
    adler32="0a0b0c0d",
    activity=None,
    priority=None,
    rule_id=None,
    destination_rse="DESY",
)


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the section ``[dray]``, which a test can fill."""
    section: dict[str, Any] = {}
    fake = ModuleType("rucio.common.config")

    def get(name: str, option: str, *, raise_exception: bool, default: object) -> object:
        assert name == settings.SECTION
        assert not raise_exception
        return section.get(option, default)

    for name in ("config_get", "config_get_bool", "config_get_float", "config_get_int"):
        setattr(fake, name, get)
    for name in ("rucio", "rucio.common"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "rucio.common.config", fake)
    return section


def test_an_empty_section_gives_the_usual_settings(config: dict[str, Any]) -> None:
    assert config == {}
    assert settings.read() == settings.Settings()


@pytest.mark.parametrize(
    ("text", "asked"), [("verify", "verify"), ("trust", "trust"), ("", None), (None, None)]
)
def test_resume_reaches_the_request(config: dict[str, Any], text: str, asked: str | None) -> None:
    config["resume"] = text
    found = settings.read()
    made = request_of(
        FILE, Wish(), source_rse_ids=[], bound_seconds=None, tries=None, resume=found.resume
    )
    assert made.resume == asked


def test_an_unknown_value_of_resume_is_refused(config: dict[str, Any]) -> None:
    config["resume"] = "no"
    with pytest.raises(ValueError, match="write verify or trust"):
        settings.read()
