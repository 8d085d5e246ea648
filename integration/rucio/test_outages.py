"""Endpoints that are unreachable, busy or misconfigured when Rucio calls them."""

from __future__ import annotations

import json
import time
import zlib
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

import pytest

from dray.client import Request
from integration.rucio.test_rules import LARGE, MIB

if TYPE_CHECKING:
    from integration.rucio.conftest import Scene

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

WRONG_PIN = "sha256:" + "5a" * 32
# At this rate a copy of `LARGE` bytes takes longer than the restart of an endpoint.
VERY_SLOW = json.dumps({"dray": {"rate_max": MIB}})


def is_whole(scene: Scene, name: str, sum: str) -> bool:
    """Return whether the file at site b has the checksum ``sum``."""
    return f"{zlib.adler32(scene.file('b', 'data', name).read_bytes()):08x}" == sum


@pytest.mark.parametrize("site", ["a", "b"])
def test_an_unreachable_endpoint_uses_up_no_try(scene: Scene, site: str) -> None:
    """While an endpoint is down, Rucio calls it more often than it may retry a request."""
    dataset, sums = scene.dataset("A-DATA", {"x": MIB, "y": 10})
    rule = scene.do("add_rule", name=dataset, rse="B-DATA")
    scene.ends[site].kill()
    try:
        for _ in range(5):
            scene.do("submit")
            scene.do("finish")
            for request in scene.requests(*sums):
                assert (request["state"], request["retry_count"]) == ("QUEUED", 0)
            assert scene.do("rule", id=rule)["state"] == "REPLICATING"
    finally:
        scene.ends[site].start()
    assert scene.carry("b", rule, *sums)["state"] == "OK"
    assert len(scene.requests(*sums)) == len(sums)
    assert all(is_whole(scene, name, sum) for name, sum in sums.items())
    assert scene.rucio is not None
    said = scene.rucio.said("inside")
    assert f"2 requests stay queued: RSE {site.upper()}-DATA: " in said


def test_a_try_that_must_cancel_the_last_one_waits_for_its_endpoint(scene: Scene) -> None:
    """While the destination is down, the second try cannot cancel the first, and stays queued."""
    dataset, sums = scene.dataset("A-DATA", {"x": MIB})
    ((name, sum),) = sums.items()
    source = scene.file("a", "data", name)
    right = source.read_bytes()
    source.write_bytes(bytes(MIB))
    rule = scene.do("add_rule", name=dataset, rse="B-DATA")
    assert scene.carry("b", rule, name)["state"] == "REPLICATING"
    source.write_bytes(right)
    scene.ends["b"].kill()
    try:
        for _ in range(5):
            scene.do("submit")
            scene.do("finish")
        assert [each["state"] for each in scene.requests(name)] == ["FAILED", "QUEUED"]
    finally:
        scene.ends["b"].start()
    assert scene.carry("b", rule, name)["state"] == "OK"
    assert len(scene.requests(name)) == 2
    assert is_whole(scene, name, sum)


def test_a_request_waits_no_longer_than_it_may(scene: Scene) -> None:
    """A request that has waited for an endpoint longer than ``wait_seconds`` fails."""
    dataset, sums = scene.dataset("A-DATA", {"x": 10})
    rule = scene.do("add_rule", name=dataset, rse="B-DATA")
    scene.ends["a"].kill()
    try:
        for _ in range(4):
            scene.do("age_requests", days=2)
            scene.do("submit")
            scene.do("finish")
        stuck = scene.do("rule", id=rule)
        assert stuck["state"] == "STUCK"
        assert "RSE A-DATA: cannot" in stuck["error"]
        assert len(scene.requests(*sums)) == 4
    finally:
        scene.ends["a"].start()


def test_a_cancellation_is_made_again(scene: Scene) -> None:
    """A rule is deleted while the destination is down. When it is up, its transfer is cancelled."""
    dataset, sums = scene.dataset("A-DATA", {"x": LARGE})
    (name,) = sums
    rule = scene.do("add_rule", name=dataset, rse="B-DATA", meta=VERY_SLOW)
    scene.do("submit")
    (request,) = scene.requests(name)
    scene.await_safe("b", request, MIB)
    scene.ends["b"].kill()
    try:
        scene.do("end_rule", id=rule)
    finally:
        scene.ends["b"].start()
    scene.await_ended("b", request)
    assert scene.transfer("b", request).state == "cancelled"


def test_a_busy_endpoint_uses_up_no_try(scene: Scene) -> None:
    """The endpoint refuses a transfer, because it has the maximum of one queued transfer."""
    end = scene.ends["b"]
    dataset, sums = scene.dataset("A-DATA", {"x": 10})
    rule = scene.do("add_rule", name=dataset, rse="B-DATA")
    later = datetime.now(timezone.utc) + timedelta(hours=1)
    end.stop()
    scene.limits["b"]["per_owner_queued"] = 1
    end.start()
    try:
        with end.client() as client:
            first = client.submit(
                Request(sources="/data/data/x", destination="/data/data/y", not_before=later)
            )
            for _ in range(4):
                scene.do("submit")
                scene.do("finish")
            (request,) = scene.requests(*sums)
            assert (request["state"], request["retry_count"]) == ("QUEUED", 0)
            client.cancel(first.id)
        assert scene.carry("b", rule, *sums)["state"] == "OK"
    finally:
        end.stop()
        scene.limits["b"].clear()
        end.start()
    assert len(scene.requests(*sums)) == 1


@pytest.mark.parametrize(
    ("site", "attribute", "value", "named"),
    [
        ("b", "dray_pin", WRONG_PIN, "the endpoint's key is sha256:"),
        ("b", "dray_pin", "sha256:5a", "dray_pin is 'sha256:5a'"),
        ("a", "dray_pin", WRONG_PIN, "the endpoint's key is sha256:"),
        ("b", "dray_url", "dray:/nowhere", "dray_url is 'dray:/nowhere'"),
    ],
)
def test_an_error_names_the_side_that_is_wrong(
    scene: Scene, site: str, attribute: str, value: str, named: str
) -> None:
    """If the attribute of an RSE is wrong, the error of the rule names this RSE."""
    number = time.monotonic_ns()
    made = [scene.rse(each, f"wrong{number}") for each in ("a", "b")]
    made[site == "b"]["attributes"][attribute] = value
    names = [each["name"] for each in made]
    scene.do("make_rses", rses=made, distances=[names])
    dataset, sums = scene.dataset(names[0], {"x": 10})
    rule = scene.do("add_rule", name=dataset, rse=names[1])
    for _ in range(4):
        scene.do("submit")
        scene.do("finish")
    stuck = scene.do("rule", id=rule)
    assert stuck["state"] == "STUCK"
    assert f"RSE {names[site == 'b']}: " in stuck["error"]
    assert named in stuck["error"]
    assert len(scene.requests(*sums)) == 4


def test_a_rule_whose_deadline_has_passed_goes_before_others(scene: Scene) -> None:
    """A transfer keeps a deadline in the past. A label and a message of Rucio record the delay."""
    passed = "2001-01-01T00:00:00Z"
    rules = {}
    for meta in (None, json.dumps({"dray": {"deadline": passed}})):
        dataset, sums = scene.dataset("A-DATA", {"x": 10})
        rule = scene.do("add_rule", name=dataset, rse="B-DATA", meta=meta)
        assert scene.carry("b", rule, *sums)["state"] == "OK"
        (request,) = scene.requests(*sums)
        rules[meta is None] = scene.transfer("b", request).request
    late, usual = rules[False], rules[True]
    assert late["deadline"] == "2001-01-01T00:00:00.000Z"
    assert (late["class"], usual.get("class")) == ("deadline", None)
    assert late["labels"]["rucio.overdue"].startswith("2001-01-01T00:00:00")
    assert "rucio.overdue" not in usual["labels"]
    assert scene.rucio is not None
    assert "its deadline 2001-01-01 00:00:00+00:00 has passed" in scene.rucio.said("inside")
    messages = [each for each in scene.do("messages") if "deadline-passed" in each]
    assert messages[-1]["deadline-passed"].startswith("2001-01-01T00:00:00")


def test_a_priority_outside_those_of_endpoints_is_the_nearest(scene: Scene) -> None:
    """Rucio accepts any priority. An endpoint accepts 0 to 9."""
    for priority, wanted in ((12, 9), (-1, 0)):
        dataset, sums = scene.dataset("A-DATA", {"x": 10})
        rule = scene.do("add_rule", name=dataset, rse="B-DATA", priority=priority)
        assert scene.carry("b", rule, *sums)["state"] == "OK"
        (request,) = scene.requests(*sums)
        assert scene.transfer("b", request).request["priority"] == wanted
