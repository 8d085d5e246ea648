"""Requests of the type STAGEIN bring files from a slow root into a fast root."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from integration.rucio import tape as tape_endpoint
from integration.rucio.test_rules import MIB, adler32

if TYPE_CHECKING:
    from pathlib import Path

    from dray.testing.endpoints import Endpoint
    from integration.rucio.conftest import Scene

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

READY_SECONDS = 60.0
COUNT = 3


@pytest.fixture(scope="module")
def tape(scene: Scene) -> Endpoint:
    """Start the endpoint of ``T-TAPE`` and ``T-BUFFER``."""
    return tape_endpoint.start(scene)


def carry(scene: Scene, rule: str) -> str:
    """Stage the files of a rule. Return the state of the rule."""
    scene.do("stage")
    until = time.monotonic() + READY_SECONDS
    while True:
        scene.do("poll")
        scene.do("finish")
        state = str(scene.do("rule", id=rule)["state"])
        if state != "REPLICATING" or time.monotonic() > until:
            return state
        time.sleep(0.2)


def test_files_are_staged_and_pinned(scene: Scene, tape: Endpoint) -> None:
    root = tape.root("rse", root="slow")
    words = {"rse": "T-TAPE", "root": str(root), "count": COUNT, "size": MIB}
    scene.do("register", dataset="staged", **words)
    rule = scene.do("add_rule", name="staged", rse="T-BUFFER", lifetime=3600)
    assert carry(scene, rule) == "OK"
    names = [f"staged.f{number}" for number in range(COUNT)]
    with tape.client() as client:
        for request in scene.requests(*names):
            assert (request["state"], request["transfertool"]) == ("DONE", "dray")
            staged = client.staging(request["external_id"])
            assert staged.state == "staged"
            assert staged.pinned_until is not None
    for name in names:
        (slow,) = root.rglob(name)
        fast: Path = tape.root("rse", root="fast") / slow.relative_to(root)
        assert adler32(fast.read_bytes()) == adler32(slow.read_bytes())


def test_a_file_that_cannot_be_staged_fails(scene: Scene, tape: Endpoint) -> None:
    root = tape.root("rse", root="slow")
    words = {"rse": "T-TAPE", "root": str(root), "count": 1, "size": 1000}
    scene.do("register", dataset="lost", **words)
    (slow,) = root.rglob("lost.f0")
    slow.unlink()
    rule = scene.do("add_rule", name="lost", rse="T-BUFFER", lifetime=3600)
    for _ in range(4):
        scene.do("stage")
        request = scene.requests("lost.f0")[-1]
        if request["state"] == "SUBMITTED":
            with tape.client() as client:
                until = time.monotonic() + READY_SECONDS
                while client.staging(request["external_id"]).state in ("queued", "moving"):
                    assert time.monotonic() < until
                    time.sleep(0.2)
        scene.do("poll")
        scene.do("finish")
    stuck = scene.do("rule", id=rule)
    assert stuck["state"] == "STUCK"
    assert "not_found" in stuck["error"] or "No such file" in stuck["error"]
