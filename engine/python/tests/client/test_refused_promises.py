"""Tests of refused promises: the caller gets the endpoint's offer as typed fields."""

from __future__ import annotations

import copy
import json
import pickle
import re
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import dray
from dray.client import AdmissionVerdict, Obstacle, Place, Request
from dray.testing.scripted import Reply, ScriptedEndpoint, json_reply

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = Path(__file__).resolve().parents[4] / "docs/reference/python.md"
EARLIEST = datetime(2030, 1, 1, 0, 9, tzinfo=timezone.utc)
WISH = Request(
    sources=(Place("/data/a"),),
    destination=Place("/data/b"),
    id="t1",
    deadline=datetime(2030, 1, 1, tzinfo=timezone.utc),
)
OFFER: dict[str, Any] = {
    "promised": False,
    "rate": None,
    "finish": None,
    "latest": None,
    "earliest_finish": "2030-01-01T00:09:00.000Z",
    "rate_needed": 5 << 20,
    "rate_available": 2 << 20,
    "obstacle": {"kind": "resource", "resource": "link", "promises": 2, "transfers": ["mine"]},
    "reasons": ["the endpoint's rate is promised to 2 other transfers at that time"],
}
REFUSED = {
    "kind": "not_admitted",
    "status": "permanent",
    "end": "here",
    "operation": "promise the rate or the deadline of transfer t1",
    "file": None,
    "cause": "the endpoint's rate is promised to 2 other transfers at that time",
    "remedy": "submit the transfer with the deadline 2030-01-01T00:09:00.000Z or a later deadline",
    "message": "cannot promise the rate or the deadline of transfer t1: cannot be promised",
}


def refused(**words: object) -> Reply:
    return json_reply({"error": {**REFUSED, **words}}, 409)


def test_a_refused_promise_carries_the_offer(
    endpoint: ScriptedEndpoint, make_face: Callable[..., Any]
) -> None:
    endpoint.always("POST", "/v1/transfers", refused(admission=OFFER))
    with pytest.raises(dray.DrayNotAdmittedError) as caught:
        make_face(endpoint.url)("submit", WISH)
    error = caught.value
    assert isinstance(error, dray.DrayPermanentError)
    assert (error.kind, str(error)) == ("not_admitted", REFUSED["message"])
    assert error.admission == AdmissionVerdict(
        earliest_finish=EARLIEST,
        rate_needed=5 << 20,
        rate_available=2 << 20,
        obstacle=Obstacle("resource", "link", promises=2, transfers=("mine",)),
        reasons=tuple(OFFER["reasons"]),
    )
    for twin in (copy.copy(error), pickle.loads(pickle.dumps(error))):  # noqa: S301
        assert type(twin) is dray.DrayNotAdmittedError
        assert twin.__dict__ == error.__dict__
        assert (str(twin), twin.args) == (str(error), error.args)


@pytest.mark.parametrize("offer", [None, "soon", {**OFFER, "earliest_finish": "soon"}, []])
def test_a_refusal_with_an_unreadable_offer_is_still_a_refusal(
    endpoint: ScriptedEndpoint, make_face: Callable[..., Any], offer: object
) -> None:
    endpoint.always("POST", "/v1/transfers", refused(admission=offer))
    with pytest.raises(dray.DrayNotAdmittedError, match="cannot promise") as caught:
        make_face(endpoint.url)("submit", WISH)
    assert caught.value.admission == AdmissionVerdict()


def test_each_refusal_of_a_batch_has_its_own_offer(
    endpoint: ScriptedEndpoint, make_face: Callable[..., Any]
) -> None:
    results = [
        {"transfer": {"id": "t0", "state": "queued"}},
        {"error": {**REFUSED, "admission": OFFER}},
    ]
    endpoint.always("POST", "/v1/transfers/batch", json_reply({"results": results}))
    _, error = make_face(endpoint.url)("submit_batch", [WISH, WISH])
    assert isinstance(error, dray.DrayNotAdmittedError)
    assert error.admission.earliest_finish == EARLIEST


def test_the_example_of_the_reference_takes_the_offer(endpoint: ScriptedEndpoint) -> None:
    (example,) = re.findall(r"```python\n(from dataclasses.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(example, str(PAGE), "exec"), names)  # noqa: S102
    endpoint.then("POST", "/v1/transfers", refused(admission=OFFER))
    endpoint.then("POST", "/v1/transfers", json_reply({"id": "t1", "state": "queued"}, 201))
    with dray.Client(endpoint.url) as client:
        assert names["submit_in_time"](client, WISH).state == "queued"
    first, second = (json.loads(asked.body)["deadline"] for asked in endpoint.asked)
    assert (first[:16], second[:16]) == ("2030-01-01T00:00", "2030-01-01T00:09")
