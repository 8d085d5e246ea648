"""Rules of an unmodified Rucio, whose transfertool for FTS calls dray's FTS service.

Nothing of dray is installed in the environment of Rucio. The RSEs have the attribute ``fts``.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import pytest

from integration.fts.scene import MIB, READY_SECONDS, SITES, Scene, adler32
from integration.harness.scratch import scratch_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

LARGE = 24 * MIB


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    """Yield a scene with the RSEs ``A-RSE``, ``B-RSE`` and ``C-RSE``."""
    with scratch_folder() as folder, contextlib.closing(Scene(folder, SITES)) as made:
        yield made


def test_nothing_of_dray_is_installed_in_rucio(scene: Scene) -> None:
    assert scene.rucio is not None
    ran = scene.rucio.run("python", "-c", "import dray")
    assert "No module named 'dray'" in ran.stderr


def test_a_rule_is_carried(scene: Scene) -> None:
    assert scene.face is not None
    dataset, sums = scene.dataset("A-RSE", {"large": MIB, "small": 10, "other": 70_000})
    rule = scene.do("add_rule", name=dataset, rse="B-RSE", activity="User Subscriptions")
    assert scene.carry(rule, *sums)["state"] == "OK", scene.face.said()
    for name, sum in sums.items():
        assert adler32(scene.file("b", "rse", name)) == sum
    states = scene.do("replicas", name=dataset)
    assert all(each["B-RSE"] == "AVAILABLE" for each in states.values())
    for request in scene.requests(*sums):
        assert (request["state"], request["transfertool"]) == ("DONE", "fts3")
        assert (request["external_host"], request["source"]) == (scene.face.url, "A-RSE")
    # All files of the rule are one job.
    (job_id,) = {request["external_id"] for request in scene.requests(*sums)}
    files = scene.face.ask("GET", f"/jobs/{job_id}/files").json
    assert {each["activity"] for each in files} == {"User Subscriptions"}
    assert {each["checksum"] for each in files} == {f"ADLER32:{sum}" for sum in sums.values()}


def test_rucios_retry_resumes(scene: Scene) -> None:
    dataset, sums = scene.dataset("A-RSE", {"x": LARGE})
    ((name, sum),) = sums.items()
    rule = scene.do("add_rule", name=dataset, rse="B-RSE")
    scene.do("submit", tool="fts3")
    (request,) = scene.requests(name)
    with scene.held("b", request, 4 * MIB) as found, scene.ends["b"].client() as client:
        # The administrator of the endpoint cancels the transfer.
        client.cancel(found.id)
    assert scene.carry(rule, name)["state"] == "REPLICATING"
    first = scene.requests(name)[0]
    assert first["state"] == "FAILED"
    assert scene.carry(rule, name)["state"] == "OK"
    last = scene.requests(name)[-1]
    assert (last["state"], last["retry_count"]) == ("DONE", 1)
    done = scene.transfer("b", last)
    assert done is not None
    assert done.bytes.resumed >= 4 * MIB
    assert done.bytes.sent + done.bytes.resumed == LARGE
    assert adler32(scene.file("b", "rse", name)) == sum


def test_a_killed_service_and_endpoint_use_up_no_try(scene: Scene) -> None:
    assert scene.face is not None
    dataset, sums = scene.dataset("A-RSE", {"x": LARGE})
    ((name, sum),) = sums.items()
    rule = scene.do("add_rule", name=dataset, rse="B-RSE")
    scene.do("submit", tool="fts3")
    (request,) = scene.requests(name)
    with scene.held("b", request, 4 * MIB):
        scene.ends["b"].kill()
        scene.face.kill()
    # Rucio's poller gets no answer, and waits.
    scene.do("poll", tool="fts3")
    scene.face.start()
    scene.do("poll", tool="fts3")
    scene.ends["b"].start()
    assert scene.carry(rule, name)["state"] == "OK"
    (request,) = scene.requests(name)
    assert (request["state"], request["retry_count"]) == ("DONE", 0)
    done = scene.transfer("b", request)
    assert done is not None
    assert done.bytes.sent < LARGE + 4 * MIB
    assert adler32(scene.file("b", "rse", name)) == sum


def test_a_deleted_rule_cancels_its_job(scene: Scene) -> None:
    assert scene.face is not None
    dataset, sums = scene.dataset("A-RSE", {"x": LARGE})
    (name,) = sums
    rule = scene.do("add_rule", name=dataset, rse="B-RSE")
    scene.do("submit", tool="fts3")
    (request,) = scene.requests(name)
    until = time.monotonic() + READY_SECONDS
    with scene.held("b", request, MIB):
        scene.do("set_priority", id=rule, priority=5)
        job = f"/jobs/{request['external_id']}"
        assert scene.face.ask("GET", f"{job}/priority").json == 5
        while (found := scene.transfer("b", request)) and found.request["priority"] != 5:
            assert time.monotonic() < until, found
            time.sleep(0.05)
        scene.do("end_rule", id=rule)
        assert scene.face.ask("GET", f"{job}/job_state").json == "CANCELED"
    while (found := scene.transfer("b", request)) and found.state != "cancelled":
        assert time.monotonic() < until + READY_SECONDS, found
        time.sleep(0.05)
    assert not scene.file("b", "rse", name).exists()


def test_a_wrong_file_never_arrives(scene: Scene) -> None:
    dataset, sums = scene.dataset("A-RSE", {"x": MIB})
    (name,) = sums
    source = scene.file("a", "rse", name)
    right = source.read_bytes()
    source.write_bytes(right[:-1] + bytes([right[-1] ^ 1]))
    rule = scene.do("add_rule", name=dataset, rse="C-RSE")
    assert scene.carry(rule, name)["state"] == "REPLICATING"
    assert "checksum mismatch" in scene.requests(name)[0]["err_msg"]
    assert not scene.file("c", "rse", name).exists()
    source.write_bytes(right)
    assert scene.carry(rule, name)["state"] == "OK"
    assert scene.file("c", "rse", name).read_bytes() == right


def test_several_sources_and_hops(scene: Scene) -> None:
    assert scene.face is not None
    dataset, sums = scene.dataset("A-RSE", {"x": MIB})
    ((name, sum),) = sums.items()
    rule = scene.do("add_rule", name=dataset, rse="B-RSE")
    assert scene.carry(rule, name)["state"] == "OK"
    scene.file("a", "rse", name).unlink()
    rule = scene.do("add_rule", name=dataset, rse="C-RSE")
    while scene.carry(rule, name)["state"] == "REPLICATING":
        assert len(scene.requests(name)) < 6
    request = scene.requests(name)[-1]
    assert (request["state"], request["source"]) == ("DONE", "B-RSE")
    assert adler32(scene.file("c", "rse", name)) == sum

    hops = [scene.rse(site, "hop") for site in SITES]
    hops[1]["attributes"]["available_for_multihop"] = "True"
    scene.do("make_rses", rses=hops, distances=[["A-HOP", "B-HOP"], ["B-HOP", "C-HOP"]])
    dataset, sums = scene.dataset("A-HOP", {"x": MIB})
    ((name, sum),) = sums.items()
    rule = scene.do("add_rule", name=dataset, rse="C-HOP")
    # The finisher handles the intermediate hop and the last hop in separate rounds.
    rounds = 0
    while scene.carry(rule, name)["state"] == "REPLICATING":
        rounds += 1
        assert rounds < 4
    assert adler32(scene.file("c", "hop", name)) == sum
    (job_id,) = {request["external_id"] for request in scene.requests(name)}
    assert scene.face.ask("GET", f"/jobs/{job_id}/job_type").json == "H"


@pytest.mark.slow
def test_rucios_own_programs_carry_it(scene: Scene) -> None:
    assert scene.rucio is not None
    assert scene.face is not None
    dataset, sums = scene.dataset("A-RSE", {"x": MIB})
    rule = scene.do("add_rule", name=dataset, rse="B-RSE")
    ran = scene.rucio.run("rucio-conveyor-submitter", "--run-once")
    assert ran.returncode == 0, ran.stderr
    for request in scene.requests(*sums):
        scene.face.wait(request["external_id"])
    for words in (["rucio-conveyor-poller", "--older-than", "0"], ["rucio-conveyor-finisher"]):
        ran = scene.rucio.run(words[0], "--run-once", *words[1:])
        assert ran.returncode == 0, ran.stderr
    assert scene.do("rule", id=rule)["state"] == "OK"
