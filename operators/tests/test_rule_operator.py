"""Tests of rules and datasets with a real Rucio, real endpoints and a real Airflow."""

from __future__ import annotations

import asyncio
import json
import threading
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from airflow.sdk import DAG, Asset
from airflow.sdk.exceptions import TaskDeferred

from dray_airflow.errors import DrayTaskFailure
from dray_airflow.hooks.rucio import RucioHook
from dray_airflow.operators.rule import RucioRuleOperator
from dray_airflow.rules import mark_of, meta_of
from dray_airflow.sensors.rule import RucioRuleSensor
from dray_airflow.triggers.rule import RucioDatasetTrigger, RucioRuleTrigger
from integration.rucio.conftest import scene

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Ran

    from integration.rucio.conftest import Scene

#: The fixture that starts Rucio and the endpoints.
__all__ = ["scene"]

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]
Loose: TypeAlias = Any
BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)
#: Every part of a test waits by polling, so the tests poll often.
POLL: dict[str, Loose] = {"poll_seconds": 0.3}


@pytest.fixture
def rucio(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """Return the scene, with the connection ``rucio`` in Airflow and no ``rucio.cfg``."""
    assert scene.rucio is not None
    fields = {
        "conn_type": "rucio",
        "host": f"http://127.0.0.1:{scene.rucio.port}",
        "login": "ddmlab",
        "password": "secret",
        "extra": {"account": "root", "seconds": 30, "outage_seconds": 5},
    }
    monkeypatch.setenv("AIRFLOW_CONN_RUCIO", json.dumps(fields))
    monkeypatch.delenv("RUCIO_CONFIG", raising=False)
    return scene


class Conveyor:
    """Runs Rucio's daemons in a thread, as long as a DAG runs."""

    def __init__(self, scene: Scene, site: str, *names: str) -> None:
        self._scene, self._site, self._names = scene, site, names
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(0.2):
            self._scene.do("submit")
            waiting = [
                each for each in self._scene.requests(*self._names) if each["state"] == "SUBMITTED"
            ]
            self._scene.await_ended(self._site, *waiting)
            self._scene.do("poll")
            self._scene.do("finish")


def rules(dataset: str) -> list[dict[str, Loose]]:
    """Return the rules of a dataset."""
    found: list[dict[str, Loose]] = list(
        RucioHook("rucio").get_conn().list_did_rules("mock", dataset)
    )
    return found


def rule_dag(dataset: str, rse: str, **words: Loose) -> DAG:
    """Return a DAG whose task makes a rule for a dataset."""
    with DAG(f"rule_{dataset}", schedule=None, start_date=BEGIN) as dag:
        RucioRuleOperator(
            task_id="deliver",
            rucio_conn_id="rucio",
            did=f"mock:{dataset}",
            rse_expression=rse,
            **{**POLL, **words},
        )
    return dag


def test_the_connection_works(rucio: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    works, message = RucioHook("rucio").test_connection()
    assert works, message
    assert message.endswith("you are root")
    fields = {"conn_type": "rucio", "host": "127.0.0.1:1", "schema": "http", "login": "a"}
    monkeypatch.setenv("AIRFLOW_CONN_AWAY", json.dumps({**fields, "password": "b"}))
    works, message = RucioHook("away").test_connection()
    assert not works
    assert message.startswith("cannot log in at http://127.0.0.1:1 (connection 'away'): ")
    assert rucio.rucio is not None
    bad = {**fields, "host": f"127.0.0.1:{rucio.rucio.port}", "login": "ddmlab", "password": "no"}
    monkeypatch.setenv("AIRFLOW_CONN_BAD", json.dumps({**bad, "extra": {"account": "root"}}))
    works, message = RucioHook("bad").test_connection()
    assert not works
    assert "CannotAuthenticate" in message


def test_a_dag_makes_one_rule_and_waits_for_it(rucio: Scene, run_dag: Callable[..., Ran]) -> None:
    dataset, sums = rucio.dataset("A-DATA", {"x": 70_000, "y": 10})
    deadline = datetime(2027, 1, 1, tzinfo=timezone.utc)
    assert rucio.rucio is not None
    asset = Asset(f"rucio://127.0.0.1:{rucio.rucio.port}/mock/{dataset}")
    dag = rule_dag(
        dataset,
        "B-DATA",
        deadline=deadline,
        lifetime=timedelta(days=1),
        activity="User Subscriptions",
        outlets=[asset],
        deferrable=True,
    )
    with Conveyor(rucio, "b", *sums):
        ran = run_dag(dag)
    assert ran.state == "success"
    result = ran.result("deliver")
    assert (result["did"], result["rses"], result["locks"]) == (f"mock:{dataset}", ["B-DATA"], 2)
    (rule,) = [each for each in rules(dataset) if each["rse_expression"] == "B-DATA"]
    assert (rule["state"], rule["activity"]) == ("OK", "User Subscriptions")
    assert rule["expires_at"] is not None
    assert rule["comments"].startswith(f"Airflow rule_{dataset} ")
    # The endpoint of the destination got the deadline of the task.
    for request in rucio.requests(*sums):
        transfer = rucio.transfer("b", request)
        assert transfer.request["deadline"].startswith("2027-01-01T00:00:00")
    event = asset_events(asset)[-1]
    assert event["rule_id"] == rule["id"]
    # A second run of the task has the same DID, RSEs and account.
    again = run_dag(rule_dag(dataset, "B-DATA"))
    assert (again.state, again.result("deliver")["rule_id"]) == ("success", rule["id"])
    assert len(rules(dataset)) == 2  # The upload made a rule at A-DATA.


def asset_events(asset: Asset) -> list[dict[str, Loose]]:
    """Return the extra fields of an asset's events, oldest first."""
    from airflow.models.asset import AssetEvent, AssetModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        query = select(AssetEvent.extra).join(AssetModel, AssetModel.id == AssetEvent.asset_id)
        query = query.where(AssetModel.uri == asset.uri).order_by(AssetEvent.id)
        return [dict(extra) for (extra,) in session.execute(query)]


def test_a_stuck_rule_fails_with_the_error_of_its_file(
    rucio: Scene, run_dag: Callable[..., Ran]
) -> None:
    dataset, sums = rucio.dataset("A-DATA", {"x": 1000})
    (name,) = sums
    rucio.file("a", "data", name).unlink()
    dag = rule_dag(dataset, "C-DATA", stuck_seconds=0, deferrable=False)
    with Conveyor(rucio, "c", name), pytest.raises(Exception, match="is STUCK") as error:
        run_task(dag)
    said = str(error.value)
    assert f"mock:{name} to C-DATA (4 tries): dray transfer " in said
    assert said.endswith("a retry makes Rucio repair the rule")


class Instance:
    """Airflow's task instance, as far as the operator reads it."""

    dag_id, run_id, task_id, map_index = "d", "r", "deliver", -1

    def __init__(self, id: str = "try-1") -> None:
        self.id = id


def run_task(dag: DAG, id: str = "try-1") -> Loose:
    """Call the operator of a DAG without a run, so that its exception is visible."""
    task: Loose = dag.get_task("deliver")
    return task.execute({"ti": Instance(id)})


def test_ending_the_task_ends_only_its_own_rule(rucio: Scene) -> None:
    dataset, _ = rucio.dataset("A-DATA", {"x": 1000})
    dag = rule_dag(dataset, "B-DATA", deferrable=True)
    with pytest.raises(TaskDeferred) as deferred:
        run_task(dag)
    trigger: Loose = deferred.value.trigger
    (rule,) = [each for each in rules(dataset) if each["rse_expression"] == "B-DATA"]
    mark = mark_of(rule)
    assert mark is not None
    assert (mark.key.task_id, mark.try_id) == ("deliver", "try-1")
    again = RucioRuleTrigger(**{**trigger.serialize()[1], "try_id": "try-0"})
    asyncio.run(again.on_kill())
    assert RucioHook("rucio").get_conn().get_replication_rule(rule["id"])["expires_at"] is None
    asyncio.run(trigger.on_kill())
    ended = RucioHook("rucio").get_conn().get_replication_rule(rule["id"])["expires_at"]
    assert ended <= datetime.now(timezone.utc).replace(tzinfo=None) + timedelta(seconds=2)
    # The next try continues with the rule, because Rucio has not deleted it yet.
    with pytest.raises(TaskDeferred):
        run_task(dag, "try-2")
    found = RucioHook("rucio").get_conn().get_replication_rule(rule["id"])
    mark = mark_of(found)
    assert mark is not None
    assert (found["expires_at"], mark.try_id) == (None, "try-2")


def test_a_rule_of_others_is_reused_and_kept(
    rucio: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset, _ = rucio.dataset("A-DATA", {"x": 1000})
    id = rucio.do("add_rule", name=dataset, rse="B-DATA", meta='{"dray": {"rate_max": 5}}')
    dag = rule_dag(dataset, "B-DATA", deferrable=True, deadline="2027-01-01T00:00:00Z")
    with pytest.raises(TaskDeferred) as deferred:
        run_task(dag)
    trigger: Loose = deferred.value.trigger
    assert trigger.rule_id == id
    assert "so its deadline and rates are not changed" in capsys.readouterr().out
    asyncio.run(trigger.on_kill())
    found = RucioHook("rucio").get_conn().get_replication_rule(id)
    assert (found["expires_at"], meta_of(found)) == (None, {"dray": {"rate_max": 5}})
    with pytest.raises(DrayTaskFailure, match="has 1 copies, but 2 are requested"):
        run_task(rule_dag(dataset, "B-DATA", copies=2))


def test_rucios_refusals_are_permanent_errors(rucio: Scene) -> None:
    dataset, _ = rucio.dataset("A-DATA", {"x": 10})
    with pytest.raises(DrayTaskFailure, match="InvalidRSEExpression"):
        run_task(rule_dag(dataset, "NO-SUCH-RSE"))
    with pytest.raises(DrayTaskFailure, match="DataIdentifierNotFound"):
        run_task(rule_dag("no-such-dataset", "B-DATA"))
    with pytest.raises(DrayTaskFailure, match="InsufficientTargetRSEs"):
        run_task(rule_dag(dataset, "B-DATA", copies=2))


def test_a_suspended_rule_fails(rucio: Scene) -> None:
    dataset, _ = rucio.dataset("A-DATA", {"x": 1000})
    id = rucio.do("add_rule", name=dataset, rse="B-DATA")
    RucioHook("rucio").get_conn().update_replication_rule(id, {"state": "SUSPENDED"})
    with pytest.raises(DrayTaskFailure, match=f"rule {id} is SUSPENDED"):
        run_task(rule_dag(dataset, "B-DATA"))


def test_sensors_wait_for_a_rule_and_for_a_dataset(
    rucio: Scene, run_dag: Callable[..., Ran]
) -> None:
    dataset, sums = rucio.dataset("A-DATA", {"x": 1000, "y": 2000})
    id = rucio.do("add_rule", name=dataset, rse="B-DATA")
    with DAG(f"sense_{dataset}", schedule=None, start_date=BEGIN) as dag:
        words: Loose = {"rucio_conn_id": "rucio", "poke_interval": 0.3, "deferrable": True}
        RucioRuleSensor(task_id="rule", rule_id=id, **words)
        RucioRuleSensor(task_id="data", did=f"mock:{dataset}", rse_expression="B-DATA", **words)
    with Conveyor(rucio, "b", *sums):
        ran = run_dag(dag)
    assert ran.state == "success"
    assert ran.result("rule")["rule_id"] == id
    assert ran.result("data") == {
        "did": f"mock:{dataset}",
        "files": 2,
        "bytes": 3000,
        "rses": ["B-DATA"],
    }
    with pytest.raises(DrayTaskFailure, match="both given, or both empty"):
        RucioRuleSensor(task_id="none", rucio_conn_id="rucio").poke({})


@pytest.mark.full
def test_a_dataset_trigger_waits_for_all_files_and_for_its_closing(rucio: Scene) -> None:
    dataset, sums = rucio.dataset("A-DATA", {"x": 1000, "y": 2000})
    name = next(iter(sums))
    first = rucio.do("add_rule", name=name, rse="B-DATA")
    assert rucio.carry("b", first, name)["state"] == "OK"

    async def fired(**words: Loose) -> dict[str, Loose] | None:
        one = RucioDatasetTrigger("rucio", f"mock:{dataset}", "B-DATA|C-DATA", **POLL, **words)
        path, fields = one.serialize()
        assert path.endswith("RucioDatasetTrigger")
        events: Loose = RucioDatasetTrigger(**fields).run()
        try:
            return dict((await asyncio.wait_for(events.__anext__(), 8)).payload)
        except asyncio.TimeoutError:
            return None

    assert asyncio.run(fired()) is None
    rule = rucio.do("add_rule", name=dataset, rse="B-DATA")
    assert rucio.carry("b", rule, *sums)["state"] == "OK"
    found = asyncio.run(fired())
    assert found is not None
    assert (found["files"], found["rses"]) == (2, ["B-DATA"])
    assert asyncio.run(fired(is_closed_required=True)) is None
    RucioHook("rucio").get_conn().close("mock", dataset)
    assert asyncio.run(fired(is_closed_required=True)) is not None
