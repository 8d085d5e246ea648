"""Rules of an unmodified Rucio from and to RSEs of the type TAPE."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

import pytest

from integration.fts.scene import MIB, Scene, adler32
from integration.harness.scratch import scratch_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    """Yield a scene with the disk ``B-RSE`` and the tape ``T-TAPE`` with its disk ``T-DISK``."""
    with scratch_folder() as folder, contextlib.closing(Scene(folder, ("a", "b", "t"))) as made:
        tape = made.rse("t", "tape", "slow", staging_buffer="T-DISK")
        disk = made.rse("t", "tape", "fast")
        buffer = made.rse("t", "buffer", "fast", archive_timeout="600")
        rses: list[dict[str, Any]] = [
            {**tape, "type": "TAPE"},
            {**disk, "name": "T-DISK", "staging_area": True},
            {**buffer, "name": "T-BUFFER", "type": "TAPE"},
        ]
        pairs = [["T-TAPE", "T-DISK"], ["T-TAPE", "B-RSE"], ["A-RSE", "T-BUFFER"]]
        made.do("make_rses", rses=rses, distances=pairs)
        yield made


def tape_file(scene: Scene, root: str, folder: str, name: str) -> Path:
    """Return the path of a file in a root of the tier."""
    (found,) = scene.ends["t"].root(folder, root=root).glob(f"mock/*/*/{name}")
    return found


def test_a_stagein_rule_is_carried(scene: Scene) -> None:
    assert scene.rucio is not None
    assert scene.face is not None
    dataset, sums = scene.dataset("T-TAPE", {"x": MIB, "y": 1000})
    rule = scene.do("add_rule", name=dataset, rse="T-DISK", lifetime=86_400)
    ran = scene.rucio.run("rucio-conveyor-stager", "--run-once", "--group-bulk", "100")
    assert ran.returncode == 0, ran.stderr
    requests = scene.requests(*sums)
    assert {each["state"] for each in requests} == {"SUBMITTED"}, ran.stderr
    (job_id,) = {each["external_id"] for each in requests}
    job = scene.face.wait(job_id)
    assert job["job_state"] == "FINISHED", job
    assert job["bring_online"] == 43_200
    # Rucio sends the seconds until the end of the rule.
    assert 86_000 < job["copy_pin_lifetime"] <= 86_400
    scene.do("poll", tool="fts3")
    scene.do("finish")
    assert scene.do("rule", id=rule)["state"] == "OK"
    for name, sum in sums.items():
        assert adler32(tape_file(scene, "fast", "tape", name)) == sum
    states = scene.do("replicas", name=dataset)
    assert all(each["T-DISK"] == "AVAILABLE" for each in states.values())
    with scene.ends["t"].client(subject="root") as client:
        pins = [one.pinned_until for one in client.stagings() if one.to]
    assert [pin is not None and pin.timestamp() > time.time() + 80_000 for pin in pins] == [
        True,
        True,
    ]


def test_a_rule_from_tape_to_disk_is_carried(scene: Scene) -> None:
    assert scene.face is not None
    dataset, sums = scene.dataset("T-TAPE", {"x": MIB})
    ((name, sum),) = sums.items()
    rule = scene.do("add_rule", name=dataset, rse="B-RSE")
    assert scene.carry(rule, name)["state"] == "OK", scene.face.said()
    assert adler32(scene.file("b", "rse", name)) == sum
    (request,) = scene.requests(name)
    (file,) = scene.face.ask("GET", f"/jobs/{request['external_id']}/files").json
    assert file["staging_start"] <= file["staging_finished"]


def test_a_rule_from_disk_to_tape_is_carried(scene: Scene) -> None:
    assert scene.face is not None
    dataset, sums = scene.dataset("A-RSE", {"x": MIB})
    ((name, sum),) = sums.items()
    rule = scene.do("add_rule", name=dataset, rse="T-BUFFER")
    assert scene.carry(rule, name)["state"] == "OK", scene.face.said()
    (request,) = scene.requests(name)
    (file,) = scene.face.ask("GET", f"/jobs/{request['external_id']}/files").json
    assert file["archive_start_time"] <= file["archive_finish_time"]
    assert adler32(tape_file(scene, "slow", "buffer", name)) == sum
