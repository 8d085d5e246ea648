"""Small files of a rule share a transfer, and each file has its own outcome."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from integration.rucio.test_rules import LARGE, MIB, adler32

if TYPE_CHECKING:
    from dray.testing.endpoints import Endpoint
    from integration.rucio.conftest import Scene

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

READY_SECONDS = 60.0


def whole(scene: Scene, sums: dict[str, str]) -> set[str]:
    """Return the names of the files at site b, and check their contents."""
    found = set()
    for name, sum in sums.items():
        path = scene.file("b", "data", name)
        if path.exists():
            assert adler32(path.read_bytes()) == sum
            found.add(name)
    return found


def test_files_of_a_rule_share_a_transfer(scene: Scene) -> None:
    dataset, sums = scene.dataset("A-DATA", {f"f{at}": 1000 + at for at in range(20)})
    rule = scene.do("add_rule", name=dataset, rse="B-DATA", activity="User Subscriptions")
    assert scene.carry("b", rule, *sums)["state"] == "OK"
    assert whole(scene, sums) == set(sums)
    requests = scene.requests(*sums)
    (id,) = {each["external_id"] for each in requests}
    assert {(each["state"], each["source"]) for each in requests} == {("DONE", "A-DATA")}
    with scene.ends["b"].client() as client:
        transfer = client.transfer(id)
        assert {each.path.rsplit("/", 1)[-1] for each in client.files(id)} == set(sums)
    assert transfer.files.done == len(sums)
    assert transfer.request["labels"]["rucio.rule"] == rule
    assert transfer.request["activity"] == "User Subscriptions"
    with scene.ends["a"].client() as client:
        (ticket,) = client.tickets(transfer=id)
    assert ticket.paths == ("/data/data/mock",)


def test_a_wrong_file_fails_alone(scene: Scene) -> None:
    dataset, sums = scene.dataset("A-DATA", {"x": MIB, "y": MIB, "z": MIB, "gone": 10, "short": 50})
    named = {name.split(".")[1]: name for name in sums}
    source = scene.file("a", "data", named["x"])
    right = source.read_bytes()
    source.write_bytes(right[:-1] + bytes([right[-1] ^ 1]))
    gone, short = (scene.file("a", "data", named[name]) for name in ("gone", "short"))
    kept = (gone.read_bytes(), short.read_bytes())
    gone.unlink()
    short.write_bytes(kept[1][:20])
    rule = scene.do("add_rule", name=dataset, rse="B-DATA")
    assert scene.carry("b", rule, *sums)["state"] == "REPLICATING"
    assert whole(scene, sums) == {named["y"], named["z"]}
    failed = {each["name"]: each["err_msg"] for each in scene.requests(*sums) if each["err_msg"]}
    assert set(failed) == {named["x"], named["gone"], named["short"]}
    assert "checksum_mismatch" in failed[named["x"]]
    assert "the source has no such file" in failed[named["gone"]]
    assert "the request states a size of 50 bytes" in failed[named["short"]]
    # The retry moves only the three files.
    source.write_bytes(right)
    gone.write_bytes(kept[0])
    short.write_bytes(kept[1])
    assert scene.carry("b", rule, *sums)["state"] == "OK"
    assert whole(scene, sums) == set(sums)
    retried = [each for each in scene.requests(*sums) if each["retry_count"] == 1]
    assert {each["name"] for each in retried} == set(failed)
    assert scene.transfer("b", retried[0]).files.listed == 3


def submit(scene: Scene, sums: dict[str, str]) -> list[dict[str, Any]]:
    """Submit files as one transfer. Return the requests."""
    scene.do("submit")
    requests = scene.requests(*sums)
    assert len({each["external_id"] for each in requests}) == 1
    return requests


def test_a_done_file_is_ok_while_others_move(scene: Scene) -> None:
    dataset, sums = scene.dataset("A-DATA", {"a": 100, "b": 200, "big": 4 * LARGE})
    rule = scene.do("add_rule", name=dataset, rse="B-DATA")
    small = {name for name in sums if not name.endswith("big")}
    (big,) = set(sums) - small
    with scene.slow():
        requests = submit(scene, sums)
        with scene.ends["b"].client() as client:
            until = time.monotonic() + READY_SECONDS
            while client.transfer(requests[0]["external_id"]).files.done < 2:
                assert time.monotonic() < until
                time.sleep(0.1)
        scene.do("poll")
        scene.do("finish")
        states = scene.do("replicas", name=dataset)
        assert {states[name]["B-DATA"] for name in small} == {"AVAILABLE"}
        assert states[big]["B-DATA"] == "COPYING"
    assert scene.carry("b", rule, *sums)["state"] == "OK"
    assert whole(scene, sums) == set(sums)
    assert {each["retry_count"] for each in scene.requests(*sums)} == {0}


def test_a_killed_destination_resumes_the_files(scene: Scene) -> None:
    dataset, sums = scene.dataset("A-DATA", {f"f{at}": 8 * MIB for at in range(6)})
    rule = scene.do("add_rule", name=dataset, rse="B-DATA")
    with scene.slow(8 * MIB):
        requests = submit(scene, sums)
        scene.await_safe("b", requests[0], 12 * MIB)
        scene.ends["b"].kill()
        scene.do("poll")
        assert {each["state"] for each in scene.requests(*sums)} == {"SUBMITTED"}
        scene.ends["b"].start()
    assert scene.carry("b", rule, *sums)["state"] == "OK"
    assert len(scene.requests(*sums)) == len(sums)
    assert whole(scene, sums) == set(sums)
    assert scene.transfer("b", requests[0]).bytes.sent < 48 * MIB


def test_a_deleted_rule_ends_its_shared_transfer(scene: Scene) -> None:
    dataset, sums = scene.dataset("A-DATA", {f"f{at}": LARGE for at in range(4)})
    rule = scene.do("add_rule", name=dataset, rse="B-DATA")
    with scene.slow():
        requests = submit(scene, sums)
        scene.await_safe("b", requests[0], 4 * MIB)
        scene.do("end_rule", id=rule)
        scene.await_ended("b", requests[0])
    assert scene.transfer("b", requests[0]).state == "cancelled"
    # A new rule resumes from the durable data.
    rule = scene.do("add_rule", name=dataset, rse="B-DATA")
    assert scene.carry("b", rule, *sums)["state"] == "OK"
    bytes = scene.transfer("b", scene.requests(*sums)[-1]).bytes
    assert bytes.resumed + bytes.adopted >= 4 * MIB
    assert whole(scene, sums) == set(sums)


def test_the_neighbours_of_a_cancelled_file_move_on(scene: Scene) -> None:
    """Rucio cancels one request of a transfer. The transfer carries the other files."""
    dataset, sums = scene.dataset("A-DATA", {f"f{at}": LARGE for at in range(3)})
    scene.do("add_rule", name=dataset, rse="B-DATA")
    with scene.slow():
        requests = submit(scene, sums)
        scene.do("cancel_request", id=requests[0]["id"])
        # The process with the plug-in looks for other requests after two seconds.
        time.sleep(4)
        assert not scene.transfer("b", requests[0]).is_terminal
    scene.await_ended("b", requests[0])
    scene.do("poll")
    scene.do("finish")
    states = {each["name"]: each["state"] for each in scene.requests(*sums)}
    assert sorted(states.values()) == ["DONE", "DONE", "SUBMITTED"]
    assert states[requests[0]["name"]] == "SUBMITTED"


def test_a_cancelled_transfer_is_not_a_fault_of_the_source(scene: Scene) -> None:
    dataset, sums = scene.dataset("A-DATA", {f"f{at}": LARGE for at in range(3)})
    rule = scene.do("add_rule", name=dataset, rse="B-DATA")
    with scene.slow():
        requests = submit(scene, sums)
        id = requests[0]["external_id"]
        with scene.ends["b"].client() as client:
            client.cancel(id)
        scene.await_ended("b", requests[0])
        scene.do("poll")
    lost = scene.requests(*sums)
    assert {each["state"] for each in lost} == {"LOST"}
    for each in lost:
        assert each["err_msg"].startswith(f"dray transfer {id} is cancelled: ")
        assert "the source has no such file" not in each["err_msg"]
    scene.do("finish")
    assert scene.carry("b", rule, *sums)["state"] == "OK"
    assert whole(scene, sums) == set(sums)


def test_priority_of_a_rule_is_that_of_its_shared_transfer(scene: Scene) -> None:
    dataset, sums = scene.dataset("A-DATA", {f"f{at}": LARGE for at in range(3)})
    rule = scene.do("add_rule", name=dataset, rse="B-DATA")
    with scene.slow():
        requests = submit(scene, sums)
        scene.do("set_priority", id=rule, priority=5)
        assert scene.transfer("b", requests[0]).request["priority"] == 5
        scene.do("end_rule", id=rule)
        scene.await_ended("b", requests[0])


def test_a_killed_submitter_leaves_no_second_transfer(scene: Scene) -> None:
    """The submitter dies between the submission and Rucio's commit. The next try takes over."""
    dataset, sums = scene.dataset("A-DATA", {f"f{at}": LARGE for at in range(3)})
    rule = scene.do("add_rule", name=dataset, rse="B-DATA")
    with scene.slow(2 * MIB):
        first = submit(scene, sums)
        scene.await_safe("b", first[0], 4 * MIB)
        # The state that a killed submitter leaves, two hours later.
        scene.do("lose_submission", ids=[each["id"] for each in first])
        scene.do("finish")
        scene.do("submit")
        scene.await_ended("b", first[0])
        assert scene.transfer("b", first[0]).state == "cancelled"
    assert scene.carry("b", rule, *sums)["state"] == "OK"
    # Rucio makes new requests, and does not count the lost try.
    requests = scene.requests(*sums)
    later = [each for each in requests if each["external_id"] != first[0]["external_id"]]
    assert (len(requests), len(later)) == (6, 3)
    bytes = scene.transfer("b", later[0]).bytes
    assert bytes.resumed + bytes.adopted >= 4 * MIB
    assert whole(scene, sums) == set(sums)


def test_a_lost_answer_leaves_no_second_transfer(scene: Scene) -> None:
    """The answer to a submission is lost, and the next submission has fewer requests."""
    dataset, sums = scene.dataset("A-DATA", {f"f{at}": LARGE for at in range(3)})
    rule = scene.do("add_rule", name=dataset, rse="B-DATA")
    with scene.slow(2 * MIB):
        first = submit(scene, sums)
        scene.await_safe("b", first[0], 4 * MIB)
        scene.do("lose_answer", ids=[each["id"] for each in first])
        scene.do("submit", bulk=2)
        scene.await_ended("b", first[0])
        assert scene.transfer("b", first[0]).state == "cancelled"
    assert scene.carry("b", rule, *sums)["state"] == "OK"
    requests = scene.requests(*sums)
    assert first[0]["external_id"] not in {each["external_id"] for each in requests}
    assert {each["retry_count"] for each in requests} == {0}
    assert whole(scene, sums) == set(sums)


def test_lost_state_of_an_endpoint_is_found_by_the_next_try(scene: Scene) -> None:
    dataset, sums = scene.dataset("A-DATA", {f"f{at}": 1000 for at in range(3)})
    rule = scene.do("add_rule", name=dataset, rse="B-DATA")
    scene.do("submit")
    requests = scene.requests(*sums)
    scene.await_ended("b", requests[0])
    with scene.ends["b"].client() as client:
        client.forget(requests[0]["external_id"])
    scene.do("poll")
    scene.do("finish")
    assert scene.carry("b", rule, *sums)["state"] == "OK"
    tries = {count: set[str]() for count in (0, 1)}
    for each in scene.requests(*sums):
        tries[each["retry_count"]].add(each["state"])
    assert tries == {0: {"LOST"}, 1: {"DONE"}}
    last = max(scene.requests(*sums), key=lambda each: each["retry_count"])
    assert scene.transfer("b", last).files.adopted == 3


def receipt_of(end: Endpoint, id: str) -> str:
    """Return the id of the receipt of a transfer that has ended."""
    with end.client() as client:
        client.receipt(id, files=False)
        receipt = client.transfer(id).receipt
    assert receipt is not None
    return receipt.id


def test_messages_have_the_fields_of_the_tool_for_fts(scene: Scene) -> None:
    dataset, sums = scene.dataset("A-DATA", {"x": 1000, "y": 2000})
    rule = scene.do("add_rule", name=dataset, rse="B-DATA")
    end = scene.ends["b"]
    scene.do("submit")
    ids = {each["id"]: each for each in scene.requests(*sums)}
    scene.await_ended("b", *ids.values())
    # The endpoint writes a receipt a moment after the end. A poll in this moment finds none.
    receipts = {each["external_id"]: receipt_of(end, each["external_id"]) for each in ids.values()}
    scene.do("poll")
    scene.do("finish")
    assert scene.do("rule", id=rule)["state"] == "OK"
    done = [
        each
        for each in scene.do("messages")
        if each.get("request-id") in ids and each.get("transferred_at")
    ]
    assert len(done) == 2
    for message in done:
        request = ids[message["request-id"]]
        assert (message["src-rse"], message["dst-rse"]) == ("A-DATA", "B-DATA")
        assert (message["src-type"], message["dst-type"]) == ("DISK", "DISK")
        path = scene.file("a", "data", request["name"]).relative_to(scene.ends["a"].root("data"))
        assert message["src-url"] == f"{scene.ends['a'].place('data')}/{path}"
        assert message["dst-url"].endswith(f"/{path}")
        assert message["protocol"] == "dray"
        id = request["external_id"]
        assert message["transfer-link"] == f"https://{end.address}/v1/transfers/{id}"
        assert message["transfer-id"] == id
        assert message["receipt"] == receipts[id]
        assert message["receipt-link"] == f"{message['transfer-link']}/receipt"
        assert message["duration"] >= 0
        assert message["file-size"] in (1000, 2000)
        assert message["checksum-adler"] == sums[request["name"]]
        assert message["reason"] is None


def test_a_poll_reads_the_rses_once_and_not_for_each_file(scene: Scene) -> None:
    dataset, sums = scene.dataset("A-DATA", {f"f{number}": 100 for number in range(12)})
    rule = scene.do("add_rule", name=dataset, rse="B-DATA")
    scene.do("submit")
    scene.await_ended("b", scene.requests(*sums)[0])
    found = scene.do("split", daemon="poll", bulk=100)
    # A statement of each of two functions of Rucio, and a commit, for each of the two RSEs.
    assert found["statements"]["plug-in"] <= 8, found
    # Rucio executes eight statements for each file, and about twelve for the pass. A ninth
    # statement for each file would read the name of the destination RSE.
    assert found["statements"]["rucio"] <= 8 * len(sums) + 16, found
    scene.do("finish")
    assert scene.do("rule", id=rule)["state"] == "OK"
