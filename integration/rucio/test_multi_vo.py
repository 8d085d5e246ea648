"""A Rucio with two VOs: each VO has its own RSEs and rules, and all share the daemons."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from integration.harness.scratch import scratch_folder
from integration.rucio.conftest import Scene
from integration.rucio.test_rules import MIB, adler32

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

VOS = ("abc", "xyz")
POLICY = {f"package-{vo}": "dray_rucio.vo_policy" for vo in VOS}


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    """Yield a scene in which each VO has the RSEs ``A-VO`` and ``B-VO``, with its own folders."""
    with (
        scratch_folder() as folder,
        contextlib.closing(
            Scene(folder, sections={"common": {"multi_vo": "True"}, "policy": POLICY}, vos=VOS)
        ) as made,
    ):
        yield made


@pytest.fixture(scope="module")
def users(scene: Scene) -> dict[str, Callable[..., Any]]:
    """Return the calls of a user of each VO."""
    assert scene.rucio is not None
    made = {}
    for vo in VOS:
        do = made[vo] = scene.rucio.user_of(vo)
        rses = [{**scene.rse(site, vo), "name": f"{site.upper()}-VO"} for site in ("a", "b")]
        do("make_rses", rses=rses)
    return made


def upload(scene: Scene, do: Callable[..., Any], vo: str) -> tuple[dict[str, str], str]:
    """Upload a dataset of the same name in each VO. Return the checksums, and a rule for it."""
    folder = scene.folder / f"upload-{vo}"
    folder.mkdir()
    sums = do("upload", rse="A-VO", dataset="ds", folder=str(folder), sizes={"x": MIB, "y": 1000})
    return sums, do("add_rule", name="ds", rse="B-VO")


def test_equal_names_of_two_vos_do_not_mix(
    scene: Scene, users: dict[str, Callable[..., Any]]
) -> None:
    made = {vo: upload(scene, do, vo) for vo, do in users.items()}
    scene.do("register_plug_in")
    scene.do("submit")
    requests = scene.requests("x", "y")
    assert {each["state"] for each in requests} == {"SUBMITTED"}
    # The files of a VO share a transfer.
    assert len({each["external_id"] for each in requests}) == len(VOS)
    scene.await_ended("b", *requests)
    scene.do("poll")
    scene.do("finish")
    for vo, (sums, rule) in made.items():
        assert users[vo]("rule", id=rule)["state"] == "OK"
        for name, sum in sums.items():
            assert adler32(scene.file("b", vo, name).read_bytes()) == sum


def test_a_rules_priority_and_deletion_reach_the_endpoint(
    scene: Scene, users: dict[str, Callable[..., Any]]
) -> None:
    assert scene.rucio is not None
    (scene.folder / "slow").mkdir()
    do = users["abc"]
    do("upload", rse="A-VO", dataset="slow", folder=str(scene.folder / "slow"), sizes={"z": MIB})
    rule = do("add_rule", name="slow", rse="B-VO", meta='{"dray": {"rate_max": 20000}}')
    # The command of the how-to.
    ran = scene.rucio.run("python", "-m", "dray_rucio", "rucio-conveyor-submitter", "--run-once")
    assert ran.returncode == 0, ran.stderr
    (request,) = scene.requests("z")
    # The REST server loads the policy package of the VO.
    do("set_priority", id=rule, priority=5)
    assert scene.transfer("b", request).request["priority"] == 5
    do("end_rule", id=rule)
    with scene.ends["b"].client() as client:
        assert client.wait(request["external_id"], timeout_seconds=60).state == "cancelled"
