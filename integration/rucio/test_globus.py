"""A real Rucio and the local service of :mod:`integration.globus` move files between collections.

The RSEs ``A`` and ``B`` are collections. The RSE ``D`` has an endpoint of dray, and a third
collection exports the folder of ``D``. This endpoint does not run, because Globus moves the files.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
import zlib
from configparser import ConfigParser
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest

from integration.globus import documents
from integration.globus.service import CLIENT_ID, CLIENT_SECRET, Answer, Fault, Service
from integration.globus.tasks import Behaviour
from integration.harness.program import ROOT
from integration.harness.scratch import scratch_folder
from integration.rucio.scene import RucioScene
from integration.rucio.server import PYTHON_PATH, Rucio

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]
MIB = 1 << 20
READY_SECONDS = 60.0
COLLECTIONS = {
    "A": "aaaaaaaa-1111-4111-8111-111111111111",
    "B": "bbbbbbbb-1111-4111-8111-111111111111",
    "D": "dddddddd-1111-4111-8111-111111111111",
}


class GlobusScene(RucioScene):
    """A Rucio server, the local service, and three RSEs."""

    def __init__(self, folder: Path) -> None:
        """Start both services."""
        super().__init__(folder)
        for name in COLLECTIONS:
            (folder / name / "rse").mkdir(parents=True)
        self.service = Service({id: folder / name for name, id in COLLECTIONS.items()})
        self.service.__enter__()
        settings = {
            "policy": {"package": "dray_rucio.policy"},
            "conveyor": {"transfertool": "dray"},
            "dray": {"away_seconds": "0"},
            "dray_globus": {
                "client_id": CLIENT_ID,
                "client_secret": CLIENT_SECRET,
                "base_url": self.service.url,
                "auth_url": self.service.url,
            },
        }
        path = (*PYTHON_PATH, ROOT / "plugins" / "globus", _entry_points(folder))
        try:
            self.rucio = Rucio(folder / "rucio", settings, path)
            self.do("make_rses", rses=[self._rse(name) for name in COLLECTIONS])
        except BaseException:
            self.close()
            raise

    def _rse(self, name: str) -> dict[str, Any]:
        attributes = {"globus_endpoint_id": COLLECTIONS[name], "dray_globus_path": "/rse"}
        if name == "D":
            attributes["dray_url"] = "dray://127.0.0.1:9/rse"
        return {
            "name": name,
            "prefix": str(self.folder / name / "rse"),
            "attributes": attributes,
        }

    def path(self, rse: str, name: str) -> Path:
        """Return the path of a file in an RSE, or a path that does not exist."""
        found = list((self.folder / rse / "rse").glob(f"mock/*/*/{name}"))
        return found[0] if found else self.folder / "not-there"

    def rule(self, rse: str, size: int = 1000, **more: Any) -> tuple[str, str, str]:  # noqa: ANN401
        """Return a rule for a new file at RSE ``A``, the name of the file, and its adler32."""
        dataset, sums = self.dataset("A", {"x": size})
        ((name, sum),) = sums.items()
        return str(self.do("add_rule", name=dataset, rse=rse, **more)), name, sum

    def carry(self, rule: str) -> dict[str, Any]:
        """Run each daemon of Rucio's conveyor once. Return the state of the rule."""
        self.do("submit")
        for task in list(self.service.tasks.values()):
            self.until(lambda task=task: task.is_terminal)
        self.do("poll")
        self.do("finish")
        found: dict[str, Any] = self.do("rule", id=rule)
        return found

    def until(self, is_true: Any) -> None:  # noqa: ANN401 - a function
        """Wait until a function returns true."""
        end = time.monotonic() + READY_SECONDS
        while not is_true():
            assert time.monotonic() < end
            time.sleep(0.02)

    def why(self, rule: str) -> dict[str, dict[str, Any]]:
        """Return the causes of ``why`` by code."""
        _, said = self.do("examine", command="why", rule=rule)
        return {each["code"]: each for each in said["causes"]}

    def close(self) -> None:
        """Stop both services."""
        if self.rucio is not None:
            self.rucio.close()
        self.service.__exit__(None, None, None)


def _entry_points(folder: Path) -> Path:
    """Return a folder that makes the entry points of setup.cfg visible, as an installation does."""
    parser = ConfigParser()
    parser.read(ROOT / "setup.cfg")
    made = folder / "installed" / "dray-0.dist-info"
    made.mkdir(parents=True)
    (made / "METADATA").write_text("Metadata-Version: 2.1\nName: dray\nVersion: 0\n")
    lines = parser["options.entry_points"]["dray.executors"].strip()
    (made / "entry_points.txt").write_text(f"[dray.executors]\n{lines}\n")
    return made.parent


@pytest.fixture(scope="module")
def running() -> Iterator[GlobusScene]:
    """Yield a scene."""
    with scratch_folder() as folder, contextlib.closing(GlobusScene(folder)) as made:
        yield made


@pytest.fixture
def scene(running: GlobusScene) -> GlobusScene:
    """Return the scene, whose service has no tasks and no faults."""
    service = running.service
    service.behaviour = Behaviour()
    for each in (service.tasks, service.submissions, service.faults, service.denied, service.calls):
        each.clear()
    return running


def is_whole(scene: GlobusScene, rse: str, name: str, sum: str) -> bool:
    """Return true if a file has the checksum ``sum``."""
    return f"{zlib.adler32(scene.path(rse, name).read_bytes()):08x}" == sum


@pytest.mark.parametrize("rse", ["B", "D"])
def test_a_rule_is_carried_by_one_task(scene: GlobusScene, rse: str) -> None:
    soon = datetime.now(timezone.utc) + timedelta(hours=3)
    meta = json.dumps({"dray": {"deadline": soon.isoformat()}})
    rule, name, sum = scene.rule(rse, MIB, meta=meta)
    assert scene.carry(rule)["state"] == "OK"
    assert is_whole(scene, rse, name, sum)
    (request,) = scene.requests(name)
    ((id, task),) = scene.service.tasks.items()
    assert (request["state"], request["transfertool"], request["source"]) == ("DONE", "dray", "A")
    assert (request["external_id"], request["external_host"]) == (
        id,
        f"globus://{COLLECTIONS[rse]}",
    )
    asked = task.asked
    assert asked["label"].startswith(f"Rucio rule {rule} mock_")
    assert asked["verify_checksum"] is True
    assert asked["deadline"] == soon.isoformat(timespec="seconds")
    (item,) = asked["DATA"]
    assert item["checksum_algorithm"] == "MD5"
    assert item["source_path"].startswith("/rse/mock/")


def test_many_requests_are_queried_by_one_call(scene: GlobusScene) -> None:
    dataset, sums = scene.dataset("A", {f"f{number}": 10 for number in range(5)})
    rule = scene.do("add_rule", name=dataset, rse="B")
    assert scene.carry(rule)["state"] == "OK"
    assert len(scene.service.tasks) == len(sums)
    assert scene.service.calls.count("GET /v0.10/task_list") == 1


def test_a_failed_task_is_tried_again_and_its_fault_is_stored(scene: GlobusScene) -> None:
    rule, name, sum = scene.rule("B")
    scene.service.behaviour = Behaviour(quota_bytes=10)
    assert scene.carry(rule)["state"] == "REPLICATING"
    first, second = scene.requests(name)
    assert (first["state"], second["retry_count"]) == ("FAILED", 1)
    (task,) = scene.service.tasks
    assert first["err_msg"].startswith(f"Globus task {task} is failed: no_space: ")
    assert "the quota of the destination is exceeded" in first["err_msg"]
    assert "last_try_failed" in scene.why(rule)
    scene.service.behaviour = Behaviour()
    assert scene.carry(rule)["state"] == "OK"
    assert is_whole(scene, "B", name, sum)
    assert len(scene.service.tasks) == 2


def test_a_deleted_rule_cancels_its_task(scene: GlobusScene) -> None:
    scene.service.behaviour = Behaviour(pause_seconds=1)
    rule, _, _ = scene.rule("B", MIB)
    scene.do("submit")
    (task,) = scene.service.tasks.values()
    assert not task.is_terminal
    scene.do("set_priority", id=rule, priority=5)
    scene.do("end_rule", id=rule)
    scene.until(lambda: task.is_terminal)
    assert (task.status, task.code) == ("FAILED", "CANCELED")


@pytest.mark.slow
def test_a_submitter_that_is_killed_leaves_one_task(scene: GlobusScene) -> None:
    assert scene.rucio is not None
    rule, name, sum = scene.rule("B")
    answered = threading.Event()
    fault = Fault("POST /v0.10/transfer", is_done=True, held=answered)
    scene.service.faults.append(fault)
    words = ["-m", "dray_rucio", "rucio-conveyor-submitter", "--run-once"]
    submitter = scene.rucio.start("python", *words)
    scene.until(lambda: scene.service.tasks)
    submitter.kill()
    submitter.wait()
    answered.set()
    (task,) = scene.service.tasks.values()
    (request,) = scene.requests(name)
    assert (request["state"], request["external_id"]) == ("SUBMITTING", None)
    # Rucio queues such a request again after two hours.
    scene.do("age_updates", hours=3)
    scene.do("finish")
    assert [each["state"] for each in scene.requests(name)] == ["SUBMITTING", "QUEUED"]
    assert scene.carry(rule)["state"] == "OK"
    assert is_whole(scene, "B", name, sum)
    assert scene.requests(name)[-1]["external_id"] == task.id
    assert list(scene.service.tasks.values()) == [task]
    assert scene.service.calls.count("POST /v0.10/transfer") == 2


@pytest.mark.slow
def test_a_busy_service_uses_up_no_try_and_is_not_called_before_its_time(
    scene: GlobusScene,
) -> None:
    rule, name, _ = scene.rule("B")
    scene.service.busy("POST /v0.10/transfer", seconds=15)
    for _ in range(2):
        scene.do("submit")
        scene.do("finish")
        (request,) = scene.requests(name)
        assert (request["state"], request["retry_count"]) == ("QUEUED", 0)
    assert scene.service.calls.count("POST /v0.10/transfer") == 1
    scene.until(lambda: scene.carry(rule)["state"] == "OK")
    assert len(scene.requests(name)) == 1


def test_a_forgotten_task_is_tried_again(scene: GlobusScene) -> None:
    rule, name, _ = scene.rule("B")
    scene.do("submit")
    scene.service.forget(next(iter(scene.service.tasks)))
    scene.do("poll")
    scene.do("finish")
    assert [each["state"] for each in scene.requests(name)] == ["LOST", "QUEUED"]
    assert scene.carry(rule)["state"] == "OK"


def test_causes_of_tasks_are_named(scene: GlobusScene) -> None:
    go = threading.Event()
    scene.service.behaviour = Behaviour(inactive=go, paused=threading.Event())
    rule, name, _ = scene.rule("B")
    scene.do("submit")
    (task,) = scene.service.tasks.values()
    scene.until(lambda: task.status == "INACTIVE")
    scene.do("poll")
    (request,) = scene.requests(name)
    assert request["state"] == "SUBMITTED"
    cause = scene.why(rule)["globus_inactive"]
    assert cause["where"] == f"Globus task {task.id}"
    assert "log in to the collection" in cause["remedy"]
    go.set()
    scene.until(lambda: task.is_paused)
    assert "the tape library is under maintenance" in scene.why(rule)["globus_paused"]["text"]
    scene.do("end_rule", id=rule)


def test_a_missing_consent_is_named(scene: GlobusScene) -> None:
    rule, name, _ = scene.rule("B")
    document = documents.failure(
        "ConsentRequired",
        "Missing required data_access consent",
        "/v0.10/transfer",
        required_scopes=["urn:globus:auth:scope:transfer.api.globus.org:all"],
    )
    scene.service.faults.append(Fault("POST /v0.10/transfer", Answer(403, document)))
    assert scene.carry(rule)["state"] == "REPLICATING"
    assert scene.requests(name)[0]["state"] == "SUBMISSION_FAILED"
    cause = scene.why(rule)["globus_login"]
    assert "python -m dray_globus login --data-access COLLECTION" in cause["text"]
    assert scene.carry(rule)["state"] == "OK"
