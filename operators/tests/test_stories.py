"""Tests of the log line about the state of a transfer. Pure."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest

from dray.client import Transfer
from dray.errors import DrayTemporaryError
from dray_airflow.stories import story, waits_for

LATER = datetime(2096, 1, 1, tzinfo=timezone.utc)


def error() -> Exception:
    return DrayTemporaryError(
        "cannot write: another transfer is writing to the destination",
        kind="lease_held",
        status="temporary",
        end="sink",
        operation="write",
        file=None,
        cause="another transfer is writing to the destination",
        remedy="wait",
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"state": "active"}, None),
        ({"state": "done"}, None),
        ({"state": "active", "held": True}, "is held: other transfers precede it"),
        ({"state": "paused"}, "resume it at the endpoint"),
        ({"state": "queued"}, "waits in the endpoint's queue"),
        (
            {"state": "queued", "request": {"not_before": "2096-01-01T00:00:00Z"}},
            "not_before, 2096",
        ),
        ({"state": "queued", "request": {"not_before": "2016-01-01T00:00:00Z"}}, "queue"),
        ({"state": "waiting", "next_try_at": LATER}, "until 2096-01-01T00:00:00+00:00 for its"),
        ({"state": "waiting", "error": error}, "another transfer is writing to the destination"),
    ],
)
def test_the_reason_for_a_wait_is_described(words: dict[str, Any], said: str | None) -> None:
    given = {name: value() if callable(value) else value for name, value in words.items()}
    transfer = Transfer(id="t", **given)
    found = waits_for(transfer)
    if said is None:
        assert found is None
    else:
        assert found is not None
        assert said in found
        assert story(transfer).endswith(found)
