"""Real endpoints move files for the rules of a real Rucio."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from integration.rucio.conftest import Scene

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

MIB = 1 << 20
LARGE = 24 * MIB
SLOW = json.dumps({"dray": {"rate_max": 8 * MIB}})


def adler32(content: bytes) -> str:
    """Return the adler32 of ``content`` in Rucio's format."""
    return f"{zlib.adler32(content):08x}"


def test_a_rule_is_carried(scene: Scene) -> None:
    dataset, sums = scene.dataset("A-DATA", {"large": LARGE, "small": 10, "other": 70_000})
    rule = scene.do("add_rule", name=dataset, rse="B-DATA", activity="User Subscriptions")
    assert scene.carry("b", rule, *sums)["state"] == "OK"
    for name, sum in sums.items():
        assert adler32(scene.file("b", "data", name).read_bytes()) == sum
    states = scene.do("replicas", name=dataset)
    assert all(each["B-DATA"] == "AVAILABLE" for each in states.values())
    for request in scene.requests(*sums):
        assert (request["state"], request["transfertool"]) == ("DONE", "dray")
        assert (request["source"], request["destination"]) == ("A-DATA", "B-DATA")
        transfer = scene.transfer("b", request)
        assert transfer.request["activity"] == "User Subscriptions"
        assert transfer.request["labels"]["rucio.rule"] == rule


def test_another_replica_is_used_when_the_first_is_gone(scene: Scene) -> None:
    dataset, sums = scene.dataset("A-DATA", {"x": MIB})
    (name,) = sums
    first = scene.do("add_rule", name=dataset, rse="B-DATA")
    assert scene.carry("b", first, name)["state"] == "OK"
    scene.file("a", "data", name).unlink()
    rule = scene.do("add_rule", name=dataset, rse="C-DATA")
    # In each try, Rucio chooses one of the two replicas. It may choose the missing one repeatedly.
    while scene.carry("c", rule, name)["state"] == "REPLICATING":
        assert len(scene.requests(name)) < 6
    request = scene.requests(name)[-1]
    assert (request["state"], request["source"]) == ("DONE", "B-DATA")
    assert adler32(scene.file("c", "data", name).read_bytes()) == sums[name]


def test_durable_data_is_not_resent_after_a_kill(scene: Scene) -> None:
    dataset, sums = scene.dataset("A-DATA", {"x": LARGE})
    (name,) = sums
    rule = scene.do("add_rule", name=dataset, rse="B-DATA", meta=SLOW)
    scene.do("submit")
    (request,) = scene.requests(name)
    assert scene.transfer("b", request).request["rate_max"] == 8 * MIB
    scene.await_safe("b", request, 4 * MIB)
    scene.ends["b"].kill()
    # The poller cannot reach the endpoint, and leaves the request as it is.
    scene.do("poll")
    assert scene.requests(name)[0]["state"] == "SUBMITTED"
    scene.ends["b"].start()
    assert scene.carry("b", rule, name)["state"] == "OK"
    assert len(scene.requests(name)) == 1
    assert scene.transfer("b", request).bytes.sent < LARGE + 4 * MIB
    assert adler32(scene.file("b", "data", name).read_bytes()) == sums[name]


def test_rucios_next_try_resumes_from_durable_data(scene: Scene) -> None:
    dataset, sums = scene.dataset("A-DATA", {"x": LARGE})
    (name,) = sums
    rule = scene.do("add_rule", name=dataset, rse="B-DATA", meta=SLOW)
    scene.do("submit")
    scene.await_safe("b", scene.requests(name)[0], 4 * MIB)
    scene.ends["a"].kill()
    try:
        assert scene.carry("b", rule, name)["state"] == "REPLICATING"
        first, second = scene.requests(name)
        assert (first["state"], second["retry_count"]) == ("FAILED", 1)
        assert first["err_msg"].startswith(f"dray transfer {first['id']} is failed: ")
        assert not scene.file("b", "data", name).exists()
        # The source endpoint is down and cannot issue a ticket, so the request stays queued.
        scene.do("submit")
        assert scene.requests(name)[-1]["state"] == "QUEUED"
    finally:
        scene.ends["a"].start()
    assert scene.carry("b", rule, name)["state"] == "OK"
    last = scene.requests(name)[-1]
    assert last["id"] == second["id"]
    bytes = scene.transfer("b", last).bytes
    assert bytes.resumed >= 4 * MIB
    assert bytes.sent + bytes.resumed == LARGE
    assert adler32(scene.file("b", "data", name).read_bytes()) == sums[name]


def test_a_file_that_differs_from_the_catalogue_never_arrives(scene: Scene) -> None:
    dataset, sums = scene.dataset("A-DATA", {"x": MIB})
    (name,) = sums
    source = scene.file("a", "data", name)
    right = source.read_bytes()
    source.write_bytes(right[:-1] + bytes([right[-1] ^ 1]))
    rule = scene.do("add_rule", name=dataset, rse="B-DATA")
    for _ in range(4):
        scene.carry("b", rule, name)
        assert not scene.file("b", "data", name).exists()
    stuck = scene.do("rule", id=rule)
    assert stuck["state"] == "STUCK"
    assert "checksum_mismatch" in stuck["error"]
    # Restore the source file: the copy succeeds.
    source.write_bytes(right)
    scene.do("boost", id=rule)
    assert scene.carry("b", rule, name)["state"] == "OK"
    assert scene.file("b", "data", name).read_bytes() == right


def test_a_deleted_rule_ends_its_transfers(scene: Scene) -> None:
    dataset, sums = scene.dataset("A-DATA", {"x": LARGE})
    (name,) = sums
    rule = scene.do("add_rule", name=dataset, rse="B-DATA", meta=SLOW)
    scene.do("submit")
    (request,) = scene.requests(name)
    scene.await_safe("b", request, 2 * MIB)
    scene.do("end_rule", id=rule)
    scene.await_ended("b", request)
    assert scene.transfer("b", request).state == "cancelled"
    assert not scene.file("b", "data", name).exists()
    # A new rule for the same file resumes from the durable data of the cancelled transfer.
    rule = scene.do("add_rule", name=dataset, rse="B-DATA")
    assert scene.carry("b", rule, name)["state"] == "OK"
    assert scene.transfer("b", scene.requests(name)[-1]).bytes.resumed >= 2 * MIB


def test_a_rules_priority_is_its_transfers(scene: Scene) -> None:
    dataset, sums = scene.dataset("A-DATA", {"x": LARGE})
    (name,) = sums
    rule = scene.do("add_rule", name=dataset, rse="B-DATA", meta=SLOW)
    scene.do("submit")
    (request,) = scene.requests(name)
    # The REST server has loaded the policy package, which registers the dray plug-in. The plug-in
    # sends the new priority to the endpoint.
    scene.do("set_priority", id=rule, priority=5)
    assert scene.transfer("b", request).request["priority"] == 5
    scene.do("end_rule", id=rule)


def test_a_deadline_of_a_rule_is_planned(scene: Scene) -> None:
    dataset, sums = scene.dataset("A-DATA", {"x": MIB})
    (name,) = sums
    meta = json.dumps({"dray": {"deadline": "2099-01-01T00:00:00Z"}})
    rule = scene.do("add_rule", name=dataset, rse="B-DATA", meta=meta)
    assert scene.carry("b", rule, name)["state"] == "OK"
    (request,) = scene.requests(name)
    assert scene.transfer("b", request).request["deadline"] == "2099-01-01T00:00:00.000Z"
    # A deadline that is invalid or in the past does not prevent the copy.
    for wrong in (
        '{"dray": {"deadline": "soon"}}',
        '{"dray": {"deadline": "2001-01-01T00:00:00Z"}}',
    ):
        dataset, sums = scene.dataset("A-DATA", {"x": 10})
        rule = scene.do("add_rule", name=dataset, rse="B-DATA", meta=wrong)
        assert scene.carry("b", rule, *sums)["state"] == "OK"
    assert scene.rucio is not None
    assert "the deadline of the rule's meta is 'soon'" in scene.rucio.said("inside")


def test_several_hops_run_one_after_the_other(scene: Scene) -> None:
    hops = [scene.rse("a", "hop"), scene.rse("b", "hop"), scene.rse("c", "hop")]
    hops[1]["attributes"]["available_for_multihop"] = "True"
    scene.do("make_rses", rses=hops, distances=[["A-HOP", "B-HOP"], ["B-HOP", "C-HOP"]])
    dataset, sums = scene.dataset("A-HOP", {"x": MIB})
    (name,) = sums
    rule = scene.do("add_rule", name=dataset, rse="C-HOP")
    scene.carry("b", rule, name)
    assert adler32(scene.file("b", "hop", name).read_bytes()) == sums[name]
    assert scene.carry("c", rule, name)["state"] == "OK"
    assert adler32(scene.file("c", "hop", name).read_bytes()) == sums[name]


def test_an_existing_file_on_tape_is_neither_replaced_nor_trusted(scene: Scene) -> None:
    tape = {**scene.rse("b", "tape"), "type": "TAPE"}
    names = [each["name"] for each in (scene.rse("a", "data"), tape)]
    scene.do("make_rses", rses=[tape], distances=[names, names[::-1]])
    dataset, sums = scene.dataset("A-DATA", {"x": MIB})
    (name,) = sums
    source = scene.file("a", "data", name)
    there = scene.ends["b"].root("tape") / source.relative_to(scene.ends["a"].root("data"))
    there.parent.mkdir(parents=True)
    there.write_bytes(bytes(MIB))
    rule = scene.do("add_rule", name=dataset, rse="B-TAPE")
    assert scene.carry("b", rule, name)["state"] == "REPLICATING"
    first = scene.requests(name)[0]
    assert first["state"] == "FAILED"
    assert "already has a file" in first["err_msg"]
    assert there.read_bytes() == bytes(MIB)
    # If the existing file is correct, the copy counts as done.
    there.write_bytes(source.read_bytes())
    assert scene.carry("b", rule, name)["state"] == "OK"


def test_every_import_of_rucio_registers_dray(scene: Scene) -> None:
    """The policy package registers dray, whichever module of Rucio is imported first."""
    assert scene.rucio is not None
    for first in ("rucio.core.transfer", "rucio.common.schema", "rucio.daemons.conveyor.poller"):
        # dray may register only at an import after Rucio's module is loaded: import `wave` too.
        words = f"import {first}, rucio.core.transfer as it, wave"
        said = "print(*it.TRANSFERTOOL_CLASSES_BY_NAME)"
        ran = scene.rucio.run("python", "-c", f"{words}; {said}")
        assert "dray" in ran.stdout.split(), f"{first}\n{ran.stdout}\n{ran.stderr}"


@pytest.mark.slow
def test_rucios_own_programs_carry_it(scene: Scene) -> None:
    """Run Rucio's submitter by ``python -m dray_rucio``, and its poller as a program of its own."""
    assert scene.rucio is not None
    dataset, sums = scene.dataset("A-DATA", {"x": MIB})
    rule = scene.do("add_rule", name=dataset, rse="B-DATA")
    words = ["python", "-m", "dray_rucio", "rucio-conveyor-submitter", "--run-once"]
    ran = scene.rucio.run(*words)
    assert ran.returncode == 0, ran.stderr
    scene.await_ended("b", *scene.requests(*sums))
    ran = scene.rucio.run("rucio-conveyor-poller", "--run-once", "--older-than", "0")
    assert ran.returncode == 0, ran.stderr
    scene.do("finish")
    assert scene.do("rule", id=rule)["state"] == "OK"
    refused = scene.rucio.run("python", "-m", "dray_rucio", "no-such-program")
    assert refused.returncode == 2
    assert "no-such-program" in refused.stderr
