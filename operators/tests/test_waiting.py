"""Tests of the limits of a wait: the transfer's bound, the task's time, refused tokens."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from airflow.sdk.exceptions import TaskDeferred

from dray.client import Request
from dray.errors import DrayPermanentError
from dray_airflow.errors import DrayTaskFailure, DrayTaskRetry, is_unattended, of_transfer
from dray_airflow.hooks.dray import DrayHook
from dray_airflow.operators.stage import DrayStageInOperator
from dray_airflow.operators.transfer import DrayTransferOperator
from dray_airflow.sensors.file import DrayFileSensor
from dray_airflow.sensors.transfer import DrayTransferSensor
from dray_airflow.triggers.transfer import DrayTransferTrigger
from dray_airflow.triggers.watching import Watch

if TYPE_CHECKING:
    from collections.abc import Callable

    from dray.testing.endpoints import Endpoint

Loose: TypeAlias = Any
SIZE = 4_000_000
SLOW = 200_000


@pytest.fixture
def site(one_endpoint: Endpoint, connect: Callable[..., str]) -> Endpoint:
    connect("site", one_endpoint)
    one_endpoint.root("x.dat").write_bytes(os.urandom(SIZE))
    return one_endpoint


def move(**words: Loose) -> DrayTransferOperator:
    given: dict[str, Any] = {
        "task_id": "move",
        "sources": "/data/x.dat",
        "destination": "/data/y.dat",
        "source_conn_id": "site",
        "destination_conn_id": "site",
        "grace_seconds": 0,
        "rate_max": SLOW,
    }
    return DrayTransferOperator(**{**given, **words})


def context(**words: Loose) -> Loose:
    task = SimpleNamespace(
        dag_id="d", run_id="r", task_id="move", map_index=-1, id="this-try", start_date=None
    )
    return {"ti": task, "dag": SimpleNamespace(tasks=[]), **words}


def conf_of(written: dict[str, dict[str, str]]) -> Loose:
    """Return Airflow's configuration with this content of the file."""
    from airflow.configuration import AirflowConfigParser

    conf = AirflowConfigParser()
    conf.read_dict(written)
    return conf


@pytest.mark.parametrize("of", [DrayTransferOperator, DrayStageInOperator, DrayFileSensor])
def test_deferrable_defaults_to_the_configuration(
    of: Loose, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[type, dict[str, Any]] = {
        DrayTransferOperator: {"sources": "/data/x", "destination": "/data/y"},
        DrayStageInOperator: {"path": "/tape/x"},
        DrayFileSensor: {"path": "/data/x"},
    }
    assert of(task_id="t", **given[of]).deferrable is True
    written: dict[str, dict[str, str]] = {"operators": {"default_deferrable": "False"}}
    with monkeypatch.context() as patch:
        patch.setattr("airflow.configuration.conf", conf_of(written))
        assert of(task_id="t", **given[of]).deferrable is False
        # A file that Airflow itself has generated contains these two settings.
        written["operators"].update(default_owner="airflow", default_cpus="1")
        patch.setattr("airflow.configuration.conf", conf_of(written))
        assert of(task_id="t", **given[of]).deferrable is True
    monkeypatch.setenv("AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE", "False")
    assert of(task_id="t", **given[of]).deferrable is False
    assert of(task_id="t", deferrable=True, **given[of]).deferrable is True
    monkeypatch.setenv("AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE", "True")
    assert of(task_id="t", **given[of]).deferrable is True


def test_a_sensor_is_deferred_for_no_longer_than_either_of_its_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        DrayFileSensor, "poke", lambda self, context: SimpleNamespace(is_done=False)
    )
    cases: list[tuple[dict[str, Any], int]] = [
        ({}, 600),
        ({"execution_timeout": dt.timedelta(seconds=20)}, 20),
    ]
    for words, seconds in cases:
        sensor = DrayFileSensor(task_id="s", path="/data/x", timeout=600, **words)
        with pytest.raises(TaskDeferred) as deferred:
            sensor.execute({})
        assert deferred.value.timeout == dt.timedelta(seconds=seconds)


@pytest.mark.server
def test_a_transfer_is_bound_to_its_task(site: Endpoint, connect: Callable[..., str]) -> None:
    def bound(**words: Loose) -> int | None:
        return move(**words).errand(context(), DrayHook("site").settings).request.bound_seconds

    day = dt.timedelta(days=1)
    assert bound() == 900 + 300
    assert bound(retry_delay=dt.timedelta(seconds=1.5)) == 902
    assert bound(retry_delay=day) == 900 + 3600
    assert bound(bound_seconds=7) == 7
    assert bound(bound_seconds=day) == 86400
    assert bound(bound_seconds=0) is None
    assert bound(options={"bound_seconds": 8}) == 8
    connect("site", site, extra={"pin": site.key, "outage_seconds": 5000})
    assert bound() == 5000 + 300
    stage = DrayStageInOperator(task_id="s", path="/tape/x", bound_seconds=9)
    assert stage.errand(context(), DrayHook("site").settings).request.bound_seconds == 9


@pytest.mark.server
def test_each_deferral_gets_the_remaining_time(site: Endpoint) -> None:
    limit = dt.timedelta(seconds=100)
    with pytest.raises(TaskDeferred) as deferred:
        move(execution_timeout=limit).execute(context())
    first = deferred.value
    assert first.timeout is not None
    assert dt.timedelta(seconds=80) < first.timeout <= limit
    assert first.kwargs is not None
    begun_at = dt.datetime.fromisoformat(first.kwargs["begun_at"])
    with site.client() as client:
        (seen,) = client.transfers()
        client.change(seen.id, rate_max=None)
        client.wait(seen.id, timeout_seconds=60)
    event = {"dray_conn_id": "site", "transfer_id": seen.id}
    earlier = (begun_at - limit / 2).isoformat()
    # The endpoint has cancelled the transfer since, and the same try starts it again.
    again = move(execution_timeout=limit, destination="/data/z.dat")
    again._after_trigger = lambda *_: SimpleNamespace(  # type: ignore[method-assign, assignment]
        id=seen.id,
        state="cancelled",
        error=SimpleNamespace(kind="unattended"),
    )
    with pytest.raises(TaskDeferred) as deferred:
        again.execute_complete(context(), event, earlier)
    assert deferred.value.timeout is not None
    assert deferred.value.timeout < limit / 2
    assert deferred.value.kwargs == {"begun_at": earlier}
    over = (begun_at - limit).isoformat()
    with pytest.raises(DrayTaskRetry, match=r"within execution_timeout \(0:01:40\)"):
        again.execute_complete(context(), event, over)
    with site.client() as client:
        assert client.wait(seen.id, timeout_seconds=30).state == "cancelled"


@pytest.mark.server
def test_an_unattended_transfer_is_recognised_and_retried(site: Endpoint) -> None:
    with site.client() as client:
        client.submit(Request("/data/x.dat", "/data/y.dat", id="t", rate_max=SLOW, bound_seconds=1))
        # No caller asks for the transfer during this time.
        asyncio.run(asyncio.sleep(6))
        seen = client.transfer("t")
        assert is_unattended(seen), seen
        error = of_transfer(seen)
        assert isinstance(error, DrayTaskRetry)
        assert "no caller asked the endpoint about it" in str(error)
        client.retry("t")
        client.cancel("t")
        seen = client.wait("t", timeout_seconds=30)
    assert not is_unattended(seen)
    assert isinstance(of_transfer(seen), DrayTaskFailure)


@pytest.mark.server
def test_a_token_that_is_refused_is_waited_for(
    site: Endpoint, connect: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    good = os.environ["AIRFLOW_CONN_SITE"]
    with site.client() as client:
        client.submit(Request("/data/x.dat", "/data/y.dat", id="t"))
    connect("site", site, password="abc.def.ghi")  # noqa: S106

    async def waited() -> tuple[str, Exception]:
        watch = Watch("site")
        patient = asyncio.create_task(watch.ended("t", patience_seconds=60))
        brief = asyncio.create_task(watch.ended("t", patience_seconds=0.1))
        await asyncio.wait([brief], timeout=20)
        error = brief.exception()
        assert isinstance(error, DrayPermanentError)
        assert not patient.done()
        # The wait does not end either if the connection does not exist for a while.
        monkeypatch.delenv("AIRFLOW_CONN_SITE")
        monkeypatch.setattr(DrayHook, "asettings", fails)
        await asyncio.sleep(5)
        assert not patient.done()
        monkeypatch.undo()
        monkeypatch.setenv("AIRFLOW_CONN_SITE", good)
        return (await asyncio.wait_for(patient, 20)).state, error

    async def fails(self: DrayHook) -> Loose:
        raise RuntimeError(f"no API for {self.dray_conn_id}")

    state, error = asyncio.run(waited())
    assert state == "done"
    assert getattr(error, "kind", "") == "unauthorized"


@pytest.mark.server
def test_a_trigger_that_found_no_token_costs_a_try_and_not_the_task(
    site: Endpoint, connect: Callable[..., str]
) -> None:
    with pytest.raises(TaskDeferred) as deferred:
        move().execute(context())
    trigger: Loose = deferred.value.trigger
    assert isinstance(trigger, DrayTransferTrigger)
    assert trigger.patience_seconds == 1200
    path, words = trigger.serialize()
    assert path.endswith(".DrayTransferTrigger")
    assert DrayTransferTrigger(**words).patience_seconds == 1200
    connect("site", site, password="abc.def.ghi", extra={"pin": site.key, "outage_seconds": 1})  # noqa: S106
    for event in ({"error": "refused", "kind": "unauthorized"}, {"state": "done"}):
        said = {"dray_conn_id": "site", "transfer_id": trigger.transfer_id, **event}
        with pytest.raises(DrayTaskRetry, match="a retry attaches to it"):
            move().execute_complete(context(), said)
    # At the first contact, a refused token means that the token is wrong.
    with pytest.raises(DrayTaskFailure):
        move().execute(context())
    sensor = DrayTransferSensor(task_id="s", transfer_id="t", dray_conn_id="site")
    with pytest.raises(DrayTaskFailure):
        sensor.execute(context())
    with pytest.raises(DrayTaskRetry):
        sensor.execute_complete(context(), {"error": "refused", "kind": "unauthorized"})


@pytest.mark.full
@pytest.mark.server
def test_an_expired_token_causes_a_retry(site: Endpoint, connect: Callable[..., str]) -> None:
    expired = site.token(lifetime="1s")
    connect("site", site, password=expired)

    async def refused() -> None:
        for _ in range(120):
            with site.client(token=expired) as client:
                try:
                    client.endpoint()
                except DrayPermanentError:
                    return
            await asyncio.sleep(1)

    asyncio.run(refused())
    with pytest.raises(DrayTaskRetry, match=r"token of connection 'site' expired at .*: renew it"):
        move().execute(context())
