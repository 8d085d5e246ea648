"""``python -m dray_rucio why`` and ``eta`` at a real Rucio with real endpoints.

Each test makes a rule, and checks the causes for the rule's files (``why``) or its ETA (``eta``).
"""

from __future__ import annotations

import json
import time
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

if TYPE_CHECKING:
    from integration.rucio.conftest import Scene

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]
Loose: TypeAlias = Any
MIB = 1 << 20
LARGE = 24 * MIB


def why(scene: Scene, rule: str) -> tuple[int, dict[str, dict[str, Loose]]]:
    """Return the exit code of ``why``, and its causes by code."""
    code, said = scene.do("examine", command="why", rule=rule)
    causes = {each["code"]: each for each in said["causes"]}
    for each in causes.values():
        assert each["text"]
        assert each["remedy"]
    return code, causes


def new_rule(scene: Scene, rse: str, size: int = 1000, source: str = "A-DATA", **more: str) -> str:
    """Return a rule for a new dataset with one file."""
    dataset, _ = scene.dataset(source, {"x": size})
    return str(scene.do("add_rule", name=dataset, rse=rse, **more))


def command(scene: Scene, words: str) -> None:
    """Run a command of Rucio's client that a remedy contains."""
    assert scene.rucio is not None
    ran = scene.rucio.run(*words.split())
    assert ran.returncode == 0, ran.stderr
    # The program ends with exit code 0 even if it does not know the command.
    assert "ERROR" not in ran.stdout + ran.stderr


def slow(**more: Loose) -> str:
    """Return the ``meta`` of a rule whose files move slowly."""
    return json.dumps({"dray": {"rate_max": 2 * MIB, **more}})


def test_a_missing_dray_url_is_named_although_rucio_stores_no_error(scene: Scene) -> None:
    bare = scene.rse("b", "bare")
    bare["attributes"] = {}
    scene.do("make_rses", rses=[bare, scene.rse("a", "bare")])
    rule = new_rule(scene, "B-BARE", source="A-BARE")
    code, causes = why(scene, rule)
    assert (code, set(causes)) == (1, {"no_dray_url"})
    assert causes["no_dray_url"]["where"] == "B-BARE"
    remedy = causes["no_dray_url"]["remedy"]
    assert remedy == "rucio rse attribute set B-BARE --key dray_url --value dray://HOST/ROOT"
    # Rucio itself leaves the request in its queue, and stores no error.
    scene.do("submit")
    scene.do("finish")
    request = scene.do("requests")[-1]
    assert (request["state"], request["err_msg"]) == ("QUEUED", None)
    assert set(why(scene, rule)[1]) == {"no_dray_url"}
    for name in ("A-BARE", "B-BARE"):
        place = scene.ends[name[0].lower()].place("bare")
        command(scene, remedy.replace("B-BARE", name).replace("dray://HOST/ROOT", place))
    assert "no_dray_url" not in why(scene, rule)[1]


def test_a_missing_distance_is_named(scene: Scene) -> None:
    names = [scene.rse("b", "far"), scene.rse("c", "far")]
    scene.do("make_rses", rses=names, distances=[["B-FAR", "C-FAR"]])
    rule = new_rule(scene, "B-FAR")
    code, causes = why(scene, rule)
    assert (code, set(causes)) == (1, {"no_distance"})
    assert causes["no_distance"]["text"] == "Rucio has no distance from A-DATA to B-FAR"
    command(scene, causes["no_distance"]["remedy"])
    assert "no_distance" not in why(scene, rule)[1]


def test_protocols_that_do_not_match_are_named(scene: Scene) -> None:
    # The submitter's [conveyor] scheme is `file`.
    closed = {**scene.rse("b", "closed"), "scheme": "davs"}
    scene.do("make_rses", rses=[closed], distances=[["A-DATA", "B-CLOSED"]])
    code, causes = why(scene, new_rule(scene, "B-CLOSED"))
    assert (code, set(causes)) == (1, {"protocol_mismatch"})


def test_a_source_on_tape_is_named(scene: Scene) -> None:
    tape = {**scene.rse("a", "vault", dray_recall="False"), "type": "TAPE"}
    scene.do("make_rses", rses=[tape], distances=[["A-VAULT", "B-DATA"]])
    code, causes = why(scene, new_rule(scene, "B-DATA", source="A-VAULT"))
    assert (code, set(causes)) == (1, {"tape"})
    assert causes["tape"]["where"] == "A-VAULT"


def test_an_unreachable_endpoint_is_named_with_its_address(scene: Scene) -> None:
    rule = new_rule(scene, "B-DATA", LARGE, meta=slow())
    address = scene.ends["b"].address
    scene.ends["b"].kill()
    try:
        code, causes = why(scene, rule)
        assert (code, set(causes)) == (1, {"endpoint_unreachable"})
        assert f"the endpoint {address} of B-DATA" in causes["endpoint_unreachable"]["text"]
    finally:
        scene.ends["b"].start()
    scene.do("submit")
    scene.ends["b"].kill()
    try:
        code, causes = why(scene, rule)
        assert (code, set(causes)) == (1, {"endpoint_unreachable"})
        assert causes["endpoint_unreachable"]["where"].startswith("transfer ")
        code, said = scene.do("examine", command="eta", rule=rule)
        assert (code, said["eta"]) == (1, None)
        assert list(said["unknown"]) == [f"the endpoint dray://{address} does not answer"]
    finally:
        scene.ends["b"].start()
    scene.do("end_rule", id=rule)


def test_a_stopped_submitter_is_distinguished_from_a_slow_one(scene: Scene) -> None:
    rule = new_rule(scene, "B-DATA")
    assert set(why(scene, rule)[1]) == {"submitter_not_running"}
    scene.do("beat", daemon="conveyor-submitter")
    try:
        assert set(why(scene, rule)[1]) == {"not_picked_up"}
    finally:
        scene.do("stop_beating", daemon="conveyor-submitter")
    scene.do("submit")
    scene.await_ended("b", scene.do("requests")[-1])
    assert set(why(scene, rule)[1]) == {"not_polled"}
    scene.do("poll")
    scene.do("finish")
    assert why(scene, rule) == (0, {})
    code, said = scene.do("examine", command="eta", rule=rule)
    assert (code, said["missing"], said["is_complete"]) == (0, 0, True)


def test_a_missing_source_is_named_with_the_error_of_the_try(scene: Scene) -> None:
    dataset, sums = scene.dataset("A-DATA", {"x": 1000})
    (name,) = sums
    rule = scene.do("add_rule", name=dataset, rse="B-DATA")
    scene.file("a", "data", name).unlink()
    assert scene.carry("b", rule, name)["state"] == "REPLICATING"
    code, causes = why(scene, rule)
    assert (code, set(causes)) == (1, {"source_missing"})
    assert f"a replica of mock:{name} is missing" in causes["source_missing"]["text"]
    for _ in range(3):
        scene.carry("b", rule, name)
    assert scene.do("rule", id=rule)["state"] == "STUCK"
    assert set(why(scene, rule)[1]) == {"source_missing", "waits_for_repair"}
    code, said = scene.do("examine", command="eta", rule=rule)
    assert (code, said["unknown"]) == (1, {"they are stuck until Rucio repairs the rule": 1})


def test_a_moving_file_has_no_cause_and_an_eta(scene: Scene) -> None:
    dataset, sums = scene.dataset("A-DATA", {"x": LARGE})
    rule = scene.do("add_rule", name=dataset, rse="B-DATA", meta=slow())
    code, said = scene.do("examine", command="eta", rule=rule)
    assert (code, said["eta"]) == (1, None)
    assert said["unknown"] == {"their requests are QUEUED in Rucio": 1}
    scene.do("submit")
    (request,) = scene.requests(*sums)
    scene.await_safe("b", request, 4 * MIB)
    assert why(scene, rule) == (0, {})
    # The endpoint measures the rate for some seconds first.
    until = time.monotonic() + 30
    code, said = scene.do("examine", command="eta", rule=rule)
    while code != 0 and time.monotonic() < until:
        code, said = scene.do("examine", command="eta", rule=rule)
    assert (code, said["known"], said["unknown"]) == (0, 1, {})
    expected = scene.transfer("b", request).eta
    assert expected is not None
    difference = datetime.fromisoformat(said["eta"]) - expected
    assert abs(difference) < timedelta(seconds=30)
    with scene.ends["b"].client() as client:
        client.pause(request["external_id"])
        until = time.monotonic() + 30
        while client.transfer(request["external_id"]).state != "paused":
            assert time.monotonic() < until
            time.sleep(0.1)
    code, causes = why(scene, rule)
    assert (code, set(causes)) == (1, {"transfer_waits"})
    assert "a user has paused" in causes["transfer_waits"]["text"]
    scene.do("end_rule", id=rule)


def test_a_deadline_that_is_not_promised_is_named_with_the_reason(scene: Scene) -> None:
    # 96 MiB take 48 s at 2 MiB/s.
    soon = datetime.now(timezone.utc) + timedelta(seconds=30)
    rule = new_rule(scene, "B-DATA", 4 * LARGE, meta=slow(deadline=soon.isoformat()))
    scene.do("submit")
    code, causes = why(scene, rule)
    assert (code, set(causes)) == (1, {"admission_refused"})
    refused = causes["admission_refused"]
    assert "is not promised: " in refused["text"]
    # Before the endpoint has measured its rate, the reason is another one.
    assert "gave no reason" not in refused["text"]
    scene.do("end_rule", id=rule)


def test_a_suspended_rule_is_named(scene: Scene) -> None:
    rule = new_rule(scene, "B-DATA")
    scene.do("update_rule", id=rule, options={"state": "SUSPENDED"})
    code, causes = why(scene, rule)
    assert code == 1
    # The rule is suspended: the command ends this state.
    command(scene, causes["suspended"]["remedy"].partition("then: ")[2])
    assert "suspended" not in why(scene, rule)[1]


def test_the_commands_are_for_people(scene: Scene) -> None:
    assert scene.rucio is not None
    rule = new_rule(scene, "B-DATA")
    ran = scene.rucio.run("python", "-m", "dray_rucio", "why", rule)
    assert ran.returncode == 1, ran.stderr
    assert f"rule {rule} (mock:" in ran.stdout
    assert "submitter_not_running: no rucio-conveyor-submitter has had" in ran.stdout
    assert "remedy: start rucio-conveyor-submitter" in ran.stdout
    ran = scene.rucio.run("python", "-m", "dray_rucio", "eta", rule)
    assert ran.returncode == 1, ran.stderr
    assert "unknown for 1 files: their requests are QUEUED in Rucio" in ran.stdout
    ran = scene.rucio.run("python", "-m", "dray_rucio", "why", "0" * 32)
    assert ran.returncode == 3
    assert f"cannot examine rule {'0' * 32}: RuleNotFound" in ran.stderr
    for words in (["why", "--help"], ["eta", "--help"]):
        ran = scene.rucio.run("python", "-m", "dray_rucio", *words)
        assert (ran.returncode, "Exit codes" in ran.stdout) == (0, True)
    assert scene.rucio.run("python", "-m", "dray_rucio", "why").returncode == 2
