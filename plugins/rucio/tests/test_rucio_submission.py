"""Tests of the conversion of Rucio's requests to requests for an endpoint."""

from __future__ import annotations

import dataclasses
import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from dray.client import Content
from dray_rucio.submission import (
    OVERDUE_LABEL,
    SOURCES_LABEL,
    File,
    Wish,
    WishError,
    at,
    request_of,
    sources_of,
    wish_of,
    without_wish,
)

RSES = ("a" * 32, "b" * 32)
FILE = File(
    request_id="0123456789abcdef0123456789abcdef",
    scope="mock",
    name="x.dat",
    size=1000,
    adler32="0a0b0c0d",
    activity="User Subscriptions",
    priority=4,
    rule_id="r" * 32,
    destination_rse="DESY",
)


def request(wish: Wish = Wish(), **changes: Any) -> Any:  # noqa: ANN401, B008 - frozen
    """Return the request of a file with these differences."""
    file = dataclasses.replace(FILE, **changes)
    return request_of(file, wish, source_rse_ids=RSES, bound_seconds=60, tries=None)


def test_a_request_has_rucios_id_and_the_expected_content() -> None:
    made = request()
    assert made.id == FILE.request_id
    assert made.content == Content(size=1000, checksum="adler32:0a0b0c0d")
    assert (made.priority, made.activity, made.bound_seconds) == (4, "User Subscriptions", 60)
    assert made.overwrite == "if-different"
    assert made.admission is None
    assert sources_of(made.labels) == RSES


def test_unknown_and_unwanted_fields_are_left_out() -> None:
    assert request(adler32=None).content.checksum is None
    assert request(is_verified=False).content == Content(size=1000)
    assert request(may_overwrite=False).overwrite == "never"
    assert "rucio.rule" not in request(rule_id=None).labels
    assert request(adler32="ADF").content.checksum == "adler32:00000adf"


def test_long_labels_are_cut_to_the_limit() -> None:
    labels = request(name="ä" * 300).labels
    assert len(labels["rucio.did"].encode()) <= 256
    assert labels["rucio.did"].startswith("mock:ää")
    many = request_of(
        FILE, Wish(), source_rse_ids=["c" * 32] * 9, bound_seconds=None, tries=None
    ).labels
    assert many is not None
    assert sources_of(many) == ("c" * 32,) * 7
    assert sources_of(None) == ()
    assert sources_of({SOURCES_LABEL: ""}) == ()


def test_a_rules_deadline_does_not_require_a_promise() -> None:
    meta = {"dray": {"deadline": "2026-12-01T08:00:00Z", "rate_min": 1000}, "other": 1}
    for said in (meta, json.dumps(meta), json.dumps(json.dumps(meta))):
        wish = wish_of(said)
        assert wish.deadline == datetime(2026, 12, 1, 8, tzinfo=timezone.utc)
        made = request(wish)
        assert (made.deadline, made.rate_min) == (wish.deadline, 1000)
        assert made.admission == "best_effort"


def test_a_passed_deadline_is_kept_and_labelled() -> None:
    deadline = datetime(2026, 12, 1, 8, tzinfo=timezone.utc)
    wish = at(Wish(deadline=deadline, rate_min=7), deadline)
    made = request(wish)
    assert (made.deadline, made.class_, made.admission) == (deadline, "deadline", "best_effort")
    assert made.labels[OVERDUE_LABEL] == "2026-12-01T08:00:00+00:00"
    # The request without the refused wish keeps its other fields.
    bare = request(without_wish(wish))
    assert (bare.deadline, bare.rate_min, bare.class_) == (deadline, None, "deadline")
    assert bare.admission == "best_effort"
    assert bare.labels[OVERDUE_LABEL] == made.labels[OVERDUE_LABEL]
    early = at(wish, deadline - timedelta(seconds=1))
    assert without_wish(early) == Wish()
    assert (request(early).class_, OVERDUE_LABEL in request(early).labels) == (None, False)


@pytest.mark.parametrize(
    ("said", "taken"), [(-7, 0), (0, 0), (3, 3), (9, 9), (10, 9), (99, 9), (None, None)]
)
def test_a_priority_is_clamped_to_the_endpoints_range(said: int | None, taken: int | None) -> None:
    assert request(priority=said).priority == taken


@pytest.mark.parametrize(
    "meta", [None, "", "free text", '"free text"', "[1]", {}, {"other": {"deadline": 1}}]
)
def test_metadata_without_dray_settings_is_ignored(meta: Any) -> None:  # noqa: ANN401
    assert wish_of(meta) == Wish()


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ("soon", "write an object"),
        ({"deadlin": "2026-12-01T08:00:00Z"}, "'deadlin'"),
        ({"deadline": "tomorrow"}, "'tomorrow'"),
        ({"deadline": "2026-12-01T08:00:00"}, "time zone"),
        ({"rate_min": "fast"}, "rate_min"),
        ({"rate_max": 0}, "rate_max"),
        ({"rate_max": True}, "rate_max"),
        ({"rate_max": 1 << 63}, "rate_max"),
        ({"rate_min": 2, "rate_max": 1}, "greater than rate_max"),
        ({"deadline": "9999-12-31T23:59:59-14:00"}, "9999"),
    ],
)
def test_an_invalid_setting_is_refused_by_name(said: Any, named: str) -> None:  # noqa: ANN401
    with pytest.raises(WishError, match=named):
        wish_of({"dray": said})
