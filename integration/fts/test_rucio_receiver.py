"""Rucio's own receiver, which learns the end of transfers from messages of the FTS service.

The poller never runs.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

import pytest

from integration.fts.broker import DESTINATION, PASSWORD, USER, Broker, has_broker
from integration.fts.pems import make_pems
from integration.fts.scene import MIB, READY_SECONDS, SITES, Scene, adler32
from integration.harness.scratch import scratch_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.server,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        not has_broker(), reason="no RabbitMQ or no stomp.py; tools/bootstrap.sh test installs both"
    ),
]


class Bed:
    """A broker, and a Rucio whose receiver reads from it."""

    def __init__(self, folder: Path) -> None:
        """Start everything."""
        for name in ("scene", "pems"):
            (folder / name).mkdir()
        authority, made = make_pems(folder / "pems")
        self.broker = Broker(folder / "broker", authority.file, made)
        self.scene: Scene | None = None
        try:
            self.broker.start()
            self.scene = Scene(folder / "scene", SITES, self.broker, authority.file)
            assert self.scene.rucio is not None
            settings = {
                "brokers": "127.0.0.1",
                "port": str(self.broker.port),
                "use_ssl": "False",
                "username": USER,
                "password": PASSWORD,
                "broker_virtual_host": "/",
                "destination": DESTINATION,
                "voname": "dteam",
            }
            self.scene.rucio.daemon(
                "receiver", "rucio-conveyor-receiver", more={"messaging-fts3": settings}
            )
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all processes."""
        for each in (self.scene, self.broker):
            if each is not None:
                each.close()


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    """Yield a running bed."""
    with scratch_folder() as folder, contextlib.closing(Bed(folder)) as made:
        yield made


def ended(bed: Bed, state: str, *names: str) -> list[dict[str, Any]]:
    """Wait until the requests of these files are in a state. Return the requests."""
    assert bed.scene is not None
    assert bed.scene.rucio is not None
    until = time.monotonic() + READY_SECONDS
    while True:
        found = bed.scene.requests(*names)
        if {each["state"] for each in found} == {state}:
            return found
        assert time.monotonic() < until, f"{found}\n{bed.scene.rucio.said('receiver')}"
        time.sleep(0.2)


def test_messages_end_the_requests_of_a_rule(bed: Bed) -> None:
    scene = bed.scene
    assert scene is not None
    dataset, sums = scene.dataset("A-RSE", {"x": MIB, "y": 70_000})
    rule = scene.do("add_rule", name=dataset, rse="B-RSE")
    scene.do("submit", tool="fts3")
    assert {each["source"] for each in ended(bed, "DONE", *sums)} == {"A-RSE"}
    scene.do("finish")
    assert scene.do("rule", id=rule)["state"] == "OK"
    for name, sum in sums.items():
        assert adler32(scene.file("b", "rse", name)) == sum


def test_a_message_about_a_failure_has_its_reason(bed: Bed) -> None:
    scene = bed.scene
    assert scene is not None
    dataset, sums = scene.dataset("A-RSE", {"x": MIB})
    (name,) = sums
    scene.file("a", "rse", name).unlink()
    scene.do("add_rule", name=dataset, rse="B-RSE")
    scene.do("submit", tool="fts3")
    (request,) = ended(bed, "FAILED", name)
    assert "SOURCE [2]" in request["err_msg"]


def test_messages_of_hops_end_their_requests(bed: Bed) -> None:
    scene = bed.scene
    assert scene is not None
    hops = [scene.rse(site, "hop") for site in SITES]
    hops[1]["attributes"]["available_for_multihop"] = "True"
    scene.do("make_rses", rses=hops, distances=[["A-HOP", "B-HOP"], ["B-HOP", "C-HOP"]])
    dataset, sums = scene.dataset("A-HOP", {"x": MIB})
    ((name, sum),) = sums.items()
    scene.do("add_rule", name=dataset, rse="C-HOP")
    scene.do("submit", tool="fts3")
    assert len(ended(bed, "DONE", name)) == 2
    assert adler32(scene.file("c", "hop", name)) == sum


def test_no_request_is_lost_while_the_broker_is_down(bed: Bed) -> None:
    scene = bed.scene
    assert scene is not None
    assert scene.face is not None
    dataset, sums = scene.dataset("A-RSE", {"x": MIB})
    bed.broker.kill()
    scene.do("add_rule", name=dataset, rse="B-RSE")
    scene.do("submit", tool="fts3")
    (request,) = scene.requests(*sums)
    assert scene.face.wait(request["external_id"], 30)["job_state"] == "FINISHED"
    # A kill between the end of the file and the publication.
    scene.face.kill()
    scene.face.start()
    assert {each["state"] for each in scene.requests(*sums)} == {"SUBMITTED"}
    bed.broker.start()
    ended(bed, "DONE", *sums)
