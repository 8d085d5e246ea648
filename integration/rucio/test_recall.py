"""A rule copies files from a tape RSE to a disk: the endpoint recalls the files first."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from integration.rucio import tape as tape_endpoint
from integration.rucio.test_rules import MIB, adler32

if TYPE_CHECKING:
    from pathlib import Path

    from dray.testing.endpoints import Endpoint
    from integration.rucio.conftest import Scene

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

READY_SECONDS = 60.0
LARGE = 32 * MIB


@pytest.fixture(scope="module")
def tape(scene: Scene) -> Endpoint:
    """Start the endpoint of ``T-TAPE``, from which files can be copied to ``B-DATA``."""
    # The recall of a large file takes seconds, so that a test can pause it.
    end = tape_endpoint.start(scene, rate="16MiB/s")
    scene.do("set_distance", one="T-TAPE", other="B-DATA")
    return end


def new_files(scene: Scene, tape: Endpoint, dataset: str, count: int, size: int) -> list[Path]:
    """Register files that are on tape. Return their paths in the slow root."""
    root = tape.root("rse", root="slow")
    scene.do("register", dataset=dataset, rse="T-TAPE", root=str(root), count=count, size=size)
    return [path for number in range(count) for path in root.rglob(f"{dataset}.f{number}")]


def await_recalled(tape: Endpoint, *requests: dict[str, Any], state: str = "staged") -> None:
    """Wait until the recalls of these requests have a state."""
    until = time.monotonic() + READY_SECONDS
    with tape.client() as client:
        for request in requests:
            assert request["external_id"] == f"recall-{request['id']}"
            while client.staging(request["external_id"]).state != state:
                assert time.monotonic() < until
                time.sleep(0.1)


def await_copied(scene: Scene, rule: str, path: Path) -> None:
    """Wait for the copy of the newest request for a file, after which the rule must be complete."""
    scene.await_ended("b", scene.requests(path.name)[-1])
    scene.do("poll")
    scene.do("finish")
    assert scene.do("rule", id=rule)["state"] == "OK"


def test_files_on_tape_are_recalled_and_copied(scene: Scene, tape: Endpoint) -> None:
    files = new_files(scene, tape, "ontape", 3, MIB)
    names = [path.name for path in files]
    rule = scene.do("add_rule", name="ontape", rse="B-DATA")
    scene.do("submit")
    requests = scene.requests(*names)
    assert {each["state"] for each in requests} == {"SUBMITTED"}
    await_recalled(tape, *requests)
    # The requests return to the queue, with the same number of tries.
    scene.do("poll")
    requests = scene.requests(*names)
    assert {(each["state"], each["retry_count"]) for each in requests} == {("QUEUED", 0)}
    assert scene.carry("b", rule, *names)["state"] == "OK"
    for path in files:
        copied = scene.file("b", "data", path.name)
        assert adler32(copied.read_bytes()) == adler32(path.read_bytes())
    with scene.ends["b"].client() as there, tape.client() as client:
        for request in scene.requests(*names):
            # The file was read from the fast root, and its pin has ended.
            asked = there.transfer(request["id"]).request
            assert "/fast/rse/" in asked["sources"][0]["url"]
            staged = client.staging(f"recall-{request['id']}")
            assert staged.pinned_until is None
            assert staged.expires_at is not None
    done = [each for each in scene.do("messages") if each.get("name") in names]
    assert {each["src-type"] for each in done if "src-type" in each} == {"TAPE"}
    assert scene.do("staging_times", names=names) == [True, True, True]


def test_a_killed_endpoint_and_a_lost_submission_cost_no_second_recall(
    scene: Scene, tape: Endpoint
) -> None:
    (path,) = new_files(scene, tape, "killed", 1, MIB)
    rule = scene.do("add_rule", name="killed", rse="B-DATA")
    scene.do("submit")
    (request,) = scene.requests(path.name)
    tape.kill()
    # The poller waits for the endpoint.
    scene.do("poll")
    assert scene.requests(path.name)[0]["state"] == "SUBMITTED"
    tape.start()
    await_recalled(tape, request)
    scene.do("poll")
    scene.do("submit")
    # The submitter was killed before Rucio stored the id of the copy.
    scene.do("lose_answer", ids=[request["id"]])
    assert scene.carry("b", rule, path.name)["state"] == "OK"
    with tape.client() as client:
        recalls = [one for one in client.stagings() if one.path.endswith(path.name)]
    assert [one.id for one in recalls] == [f"recall-{request['id']}"]


def test_a_long_recall_does_not_shorten_the_wait_for_an_endpoint(
    scene: Scene, tape: Endpoint
) -> None:
    (path,) = new_files(scene, tape, "long", 1, 1000)
    rule = scene.do("add_rule", name="long", rse="B-DATA")
    scene.do("submit")
    (request,) = scene.requests(path.name)
    await_recalled(tape, request)
    # The recall has taken two days.
    scene.do("age_requests", days=2)
    scene.do("poll")
    scene.ends["b"].kill()
    try:
        scene.do("submit")
        (request,) = scene.requests(path.name)
        assert (request["state"], request["retry_count"]) == ("QUEUED", 0)
    finally:
        scene.ends["b"].start()
    assert scene.carry("b", rule, path.name)["state"] == "OK"
    assert len(scene.requests(path.name)) == 1


@pytest.mark.usefixtures("tape")
def test_only_the_recalled_replica_is_read_from_the_fast_root(scene: Scene) -> None:
    first, second = scene.do("recalled_paths", names=["T-TAPE", "A-DATA"])
    assert first == "/fast/x"
    assert second == f"{urlsplit(scene.rse('a', 'data')['attributes']['dray_url']).path}/x"


def test_a_lost_file_fails_with_the_error_of_the_recall(scene: Scene, tape: Endpoint) -> None:
    (path,) = new_files(scene, tape, "gone", 1, 1000)
    path.unlink()
    rule = scene.do("add_rule", name="gone", rse="B-DATA")
    for _ in range(4):
        scene.do("submit")
        request = scene.requests(path.name)[-1]
        if request["state"] == "SUBMITTED":
            await_recalled(tape, request, state="failed")
        scene.do("poll")
        scene.do("finish")
    stuck = scene.do("rule", id=rule)
    assert stuck["state"] == "STUCK"
    assert "recall-" in stuck["error"]
    assert "not_found" in stuck["error"] or "No such file" in stuck["error"]


def test_a_deleted_rule_ends_the_recall(scene: Scene, tape: Endpoint) -> None:
    (path,) = new_files(scene, tape, "unwanted", 1, LARGE)
    rule = scene.do("add_rule", name="unwanted", rse="B-DATA")
    scene.do("submit")
    (request,) = scene.requests(path.name)
    with tape.client() as client:
        client.pause(request["external_id"])
        scene.do("end_rule", id=rule)
        found = client.wait(request["external_id"], timeout_seconds=READY_SECONDS)
        assert found.state == "cancelled"
    # A new rule for the same file recalls it again.
    rule = scene.do("add_rule", name="unwanted", rse="B-DATA")
    scene.do("submit")
    request = scene.requests(path.name)[-1]
    await_recalled(tape, request)
    scene.do("poll")
    scene.do("submit")
    # The request of the first rule is archived as submitted.
    await_copied(scene, rule, path)


@pytest.mark.parametrize("step", ["recalled", "queued", "copied"])
def test_a_rule_that_is_deleted_after_the_recall_ends_the_pin(
    scene: Scene, tape: Endpoint, step: str
) -> None:
    (path,) = new_files(scene, tape, f"deleted-{step}", 1, MIB)
    rule = scene.do("add_rule", name=f"deleted-{step}", rse="B-DATA")
    scene.do("submit")
    (request,) = scene.requests(path.name)
    await_recalled(tape, request)
    if step != "recalled":
        scene.do("poll")
    if step == "copied":
        scene.do("submit")
    with tape.client() as client:
        assert client.staging(request["external_id"]).pinned_until is not None
        scene.do("end_rule", id=rule)
        assert client.staging(request["external_id"]).pinned_until is None


def test_a_recall_that_takes_too_long_is_cancelled_and_tried_again(
    scene: Scene, tape: Endpoint
) -> None:
    (path,) = new_files(scene, tape, "late", 1, LARGE)
    rule = scene.do("add_rule", name="late", rse="B-DATA")
    scene.do("submit")
    (first,) = scene.requests(path.name)
    scene.do("limit_recalls", seconds=0)
    try:
        scene.do("poll")
        with tape.client() as client:
            client.wait(first["external_id"], timeout_seconds=READY_SECONDS)
    finally:
        scene.do("limit_recalls", seconds=43_200)
    (first,) = scene.requests(path.name)
    assert first["state"] == "FAILED"
    assert "has not brought the file online within 0 s" in first["err_msg"]
    scene.do("finish")
    scene.do("submit")
    await_recalled(tape, scene.requests(path.name)[-1])
    scene.do("poll")
    scene.do("submit")
    await_copied(scene, rule, path)


def test_why_and_eta_describe_a_recall(scene: Scene, tape: Endpoint) -> None:
    (path,) = new_files(scene, tape, "asked", 1, LARGE)
    rule = scene.do("add_rule", name="asked", rse="B-DATA")
    scene.do("submit")
    (request,) = scene.requests(path.name)
    with tape.client() as client:
        client.pause(request["external_id"])
        code, said = scene.do("examine", command="why", rule=rule)
        assert code == 1
        (cause,) = said["causes"]
        assert (cause["code"], cause["where"]) == (
            "transfer_waits",
            f"transfer {request['external_id']}",
        )
        code, said = scene.do("examine", command="eta", rule=rule)
        assert (code, list(said["unknown"])) == (1, ["their files are recalled from tape first"])
        client.resume(request["external_id"])
    await_recalled(tape, request)
    scene.do("poll")
    assert scene.carry("b", rule, path.name)["state"] == "OK"


def test_an_rse_may_leave_its_recalls_to_another_tool(scene: Scene, tape: Endpoint) -> None:
    (path,) = new_files(scene, tape, "byfts", 1, 1000)
    rule = scene.do("add_rule", name="byfts", rse="B-DATA")
    scene.do("set_attribute", rse="T-TAPE", key="dray_recall", value="False")
    try:
        scene.do("submit")
        (request,) = scene.requests(path.name)
        assert request["external_id"] is None
        code, said = scene.do("examine", command="why", rule=rule)
        assert (code, said["causes"][0]["code"]) == (1, "tape")
    finally:
        scene.do("set_attribute", rse="T-TAPE", key="dray_recall", value="True")
    scene.do("end_rule", id=rule)
