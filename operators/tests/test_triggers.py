"""Tests of triggers with real endpoints. No Airflow process is needed."""

from __future__ import annotations

import asyncio
import os
import time
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from airflow.sdk.exceptions import TaskDeferred

from dray.client import Request, Selection
from dray.errors import DrayPermanentError
from dray_airflow.errors import DrayTaskFailure
from dray_airflow.sensors.file import DrayFileSensor
from dray_airflow.submission import FIRST_LABEL
from dray_airflow.triggers import transfer as transfer_trigger
from dray_airflow.triggers.file import DrayFileTrigger, DrayFolderTrigger
from dray_airflow.triggers.transfer import DrayTransferTrigger
from dray_airflow.triggers.watching import Watch

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow.triggers.base import BaseTrigger

    from dray.testing.endpoints import Endpoint

Loose: TypeAlias = Any
pytestmark = pytest.mark.server

SIZE = 4_000_000
SLOW = 2_000_000


@pytest.fixture
def site(one_endpoint: Endpoint, connect: Callable[..., str]) -> Endpoint:
    connect("site", one_endpoint)
    one_endpoint.root("x.dat").write_bytes(os.urandom(SIZE))
    with one_endpoint.client() as client:
        labels = {FIRST_LABEL: "mine"}
        client.submit(Request("/data/x.dat", "/data/y.dat", id="t", rate_max=SLOW, labels=labels))
    return one_endpoint


def trigger(**words: Loose) -> DrayTransferTrigger:
    return DrayTransferTrigger("site", "t", **{"mark": "mine", "settle_seconds": 0.0, **words})


async def first(of: BaseTrigger) -> dict[str, Loose]:
    """Return the payload of the first event."""
    events: Loose = of.run()
    async for event in events:
        payload: dict[str, Loose] = event.payload
        await events.aclose()
        return payload
    raise AssertionError("it fires")


def state(site: Endpoint) -> str:
    with site.client() as client:
        return client.transfer("t").state


def again(of: Loose) -> Loose:
    """Return an equal trigger, as another triggerer creates it."""
    path, words = of.serialize()
    assert path == f"{type(of).__module__}.{type(of).__name__}"
    return type(of)(**words)


def test_the_trigger_fires_when_the_transfer_ends(site: Endpoint) -> None:
    assert asyncio.run(first(again(trigger()))) == {
        "dray_conn_id": "site",
        "transfer_id": "t",
        "state": "done",
    }
    assert state(site) == "done"


def test_several_triggers_share_one_watch(site: Endpoint) -> None:
    async def both() -> list[Loose]:
        return list(await asyncio.gather(first(trigger()), first(trigger())))

    assert [each["state"] for each in asyncio.run(both())] == ["done", "done"]
    assert asyncio.run(first(trigger()))["state"] == "done"
    with site.client() as client:
        assert client.transfer("t").attempt == 1


def test_a_triggerer_that_stops_leaves_the_transfer_alone(site: Endpoint) -> None:
    async def stopped() -> None:
        one = trigger()
        task = asyncio.create_task(first(one))
        await asyncio.sleep(0.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await one.cleanup()

    asyncio.run(stopped())
    assert state(site) in ("queued", "active", "done")
    assert asyncio.run(first(trigger()))["state"] == "done"


def test_ending_the_task_cancels_the_transfer_and_keeps_durable_data(site: Endpoint) -> None:
    with site.client() as client:
        client.change("t", rate_max=SLOW // 20)
    asyncio.run(trigger(mark="anothers").on_kill())
    asyncio.run(trigger(mark="").on_kill())
    assert state(site) in ("queued", "active")
    asyncio.run(trigger().on_kill())
    with site.client() as client:
        assert client.wait("t", timeout_seconds=30).state == "cancelled"
        client.retry("t")
        client.change("t", rate_max=None)
        ended = client.wait("t", timeout_seconds=30)
    assert (ended.state, ended.bytes.sent + ended.bytes.resumed) == ("done", SIZE)


def test_a_cancellation_outlives_its_trigger_and_an_outage(
    site: Endpoint, connect: Callable[..., str]
) -> None:
    with site.client() as client:
        client.change("t", rate_max=SLOW // 20)
    connect("site", site, extra={"pin": site.key, "seconds": 1, "outage_seconds": 60})

    async def ended() -> None:
        await asyncio.to_thread(site.kill)
        one = trigger()
        ending = asyncio.create_task(one.on_kill())
        await asyncio.sleep(1.0)
        ending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ending
        await one.cleanup()
        await asyncio.to_thread(site.start)
        for _ in range(200):
            await asyncio.sleep(0.1)
            if not transfer_trigger._ENDINGS:
                return

    asyncio.run(ended())
    with site.client() as client:
        assert client.wait("t", timeout_seconds=10).state == "cancelled"


def test_an_endpoint_that_restarts_is_waited_for(site: Endpoint) -> None:
    async def through() -> dict[str, Loose]:
        task = asyncio.create_task(first(trigger()))
        await asyncio.sleep(0.5)
        await asyncio.to_thread(site.kill)
        await asyncio.sleep(0.5)
        await asyncio.to_thread(site.start)
        return await task

    assert asyncio.run(through())["state"] == "done"


def test_an_endpoint_that_stays_unreachable_is_reported(
    site: Endpoint, connect: Callable[..., str]
) -> None:
    connect("site", site, extra={"pin": site.key, "seconds": 1, "outage_seconds": 1})
    site.kill()
    payload = asyncio.run(first(trigger()))
    assert payload["kind"] == "unreachable"
    assert "cannot look up transfers: " in payload["error"]


def test_a_token_that_was_renewed_is_taken(
    site: Endpoint, connect: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    good = os.environ["AIRFLOW_CONN_SITE"]
    connect("site", site, password="abc.def.ghi")  # noqa: S106
    payload = asyncio.run(first(trigger()))
    assert payload["kind"] == "unauthorized"
    # The connection changes while the endpoint refuses the first token.
    look = Watch._is_renewed

    async def renewed(self: Watch, hook: Loose) -> bool:
        monkeypatch.setenv("AIRFLOW_CONN_SITE", good)
        return await look(self, hook)

    monkeypatch.setattr(Watch, "_is_renewed", renewed)
    assert asyncio.run(first(trigger()))["state"] == "done"


@pytest.mark.parametrize("error", [DrayTaskFailure("no such connection"), RuntimeError("no API")])
def test_an_unreadable_connection_ends_all_waits(
    site: Endpoint,
    connect: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    connect("site", site, password="abc.def.ghi")  # noqa: S106

    async def fails(self: Watch, hook: Loose) -> bool:
        del self, hook
        raise error

    monkeypatch.setattr(Watch, "_is_renewed", fails)

    async def both() -> list[Loose]:
        watch = Watch("site")
        waits = [watch.ended(id) for id in ("t", "another")]
        return await asyncio.wait_for(asyncio.gather(*waits, return_exceptions=True), 15)

    assert asyncio.run(both()) == [error, error]


def test_hundreds_wait_over_one_connection(site: Endpoint) -> None:
    later = datetime.now(timezone.utc) + timedelta(hours=1)
    ids = [f"many-{at}" for at in range(300)]
    with site.client() as client:
        client.submit_batch(
            [Request("/data/x.dat", f"/data/{id}", id=id, not_before=later) for id in ids]
        )

        async def all_of_them() -> list[dict[str, Loose]]:
            waits = [
                asyncio.create_task(first(DrayTransferTrigger("site", id, settle_seconds=0.0)))
                for id in [*ids, "nobodys"]
            ]
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED, timeout=30)
            (unknown,) = done
            assert (await unknown)["kind"] == "not_found"
            # Other calls still get connections. Separate waits would have used all connections.
            for id in ids:
                await asyncio.to_thread(client.cancel, id)
            return [await each for each in waits if each is not unknown]

        said = asyncio.run(all_of_them())
    assert [each["transfer_id"] for each in said] == ids
    assert {each.get("state") for each in said} == {"cancelled"}


@pytest.mark.slow
def test_a_query_too_large_for_one_answer_is_split(site: Endpoint) -> None:
    later = datetime.now(timezone.utc) + timedelta(hours=1)
    # 280 requests with 250 names of 250 bytes each are 17 MiB. The maximum of an answer is 16 MiB.
    names = [f"{at:04}" + "x" * 246 for at in range(250)]
    fat = Selection(recursive=True, include=names)
    ids = [f"fat-{at}" for at in range(280)]
    with site.client() as client:
        for id in ids:
            client.submit(
                Request("/data/set/", f"/data/{id}/", id=id, not_before=later, selection=fat)
            )
        with pytest.raises(DrayPermanentError, match="ask for fewer ids in one call"):
            client.query(ids)
        client.cancel(ids[-1])

    async def last() -> str:
        watch = Watch("site")
        waits = [asyncio.create_task(watch.ended(id)) for id in ids]
        ended = await asyncio.wait_for(waits[-1], 30)
        assert not any(each.done() for each in waits[:-1])
        for each in waits:
            each.cancel()
        return ended.state

    assert asyncio.run(last()) == "cancelled"


def test_the_trigger_waits_until_the_deferral_is_recorded(site: Endpoint) -> None:
    with site.client() as client:
        client.wait("t", timeout_seconds=30)

    async def timed() -> float:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await first(trigger(settle_seconds=1.5))
        return loop.time() - begun

    assert asyncio.run(timed()) >= 1.5


def test_a_file_is_waited_for_until_it_is_whole(site: Endpoint) -> None:
    async def grown() -> dict[str, Loose]:
        one = DrayFileTrigger("site", "/data/z.dat", size_min=10, poll_seconds=0.1)
        task = asyncio.create_task(first(again(one)))
        path = site.root("z.dat")
        await asyncio.sleep(0.3)
        path.write_bytes(b"12345")
        await asyncio.sleep(0.5)
        assert not task.done()
        path.write_bytes(b"1234567890")
        return await task

    assert asyncio.run(grown()) == {"path": "/data/z.dat", "size": 10}


@pytest.mark.slow
def test_a_file_is_waited_for_through_a_restart(
    site: Endpoint, connect: Callable[..., str]
) -> None:
    async def through() -> dict[str, Loose]:
        one = DrayFileTrigger("site", "/data/z.dat", poll_seconds=0.2)
        task = asyncio.create_task(first(one))
        await asyncio.sleep(0.5)
        await asyncio.to_thread(site.kill)
        # Wait for longer than the client's own retries.
        await asyncio.sleep(12)
        assert not task.done()
        await asyncio.to_thread(site.start)
        site.root("z.dat").write_bytes(b"12345")
        return await task

    assert asyncio.run(through()) == {"path": "/data/z.dat", "size": 5}
    connect("site", site, extra={"pin": site.key, "seconds": 1, "outage_seconds": 1})
    site.kill()
    payload = asyncio.run(first(DrayFileTrigger("site", "/data/q.dat", poll_seconds=0.2)))
    assert (payload["kind"], payload["status"]) == ("unreachable", "temporary")
    # The sensor's own first check does not give up either.
    sensor = DrayFileSensor(task_id="file", path="/data/q.dat", dray_conn_id="site")
    with pytest.raises(TaskDeferred):
        sensor.execute({})


class Store:
    """Airflow's store for the state of an asset."""

    def __init__(self) -> None:
        self.held: dict[str, Loose] = {}

    async def aget(self, key: str) -> Loose:
        return self.held.get(key)

    async def aset(self, key: str, value: Loose) -> None:
        self.held[key] = value


def test_a_watched_folder_reports_each_file_once(site: Endpoint) -> None:
    store = Store()
    folder = site.root("watched")
    folder.mkdir()
    (folder / "old.dat").write_bytes(b"x")
    (folder / "note.txt").write_bytes(b"x")

    async def reported(count: int) -> list[str]:
        one: Loose = again(
            DrayFolderTrigger("site", "/data/watched", pattern="*.dat", poll_seconds=0.1)
        )
        one.asset_state_store = store
        names: list[str] = []
        events = one.run()
        async for event in events:
            assert event.payload["count"] == len(event.payload["files"])
            names += [file["name"] for file in event.payload["files"]]
            if len(names) >= count:
                # The reported files are stored when the next event is requested.
                waits = asyncio.create_task(anext(events))
                await asyncio.sleep(0.5)
                waits.cancel()
                break
        return names

    assert asyncio.run(reported(1)) == ["old.dat"]
    (folder / "new.dat").write_bytes(b"x")
    (folder / "newer.dat").write_bytes(b"x")
    # Another triggerer continues after the files that the first has reported.
    assert sorted(asyncio.run(reported(2))) == ["new.dat", "newer.dat"]
    later = time.time() + 60
    os.utime(folder / "old.dat", (later, later))
    assert asyncio.run(reported(1)) == ["old.dat"]


def test_the_reason_for_a_wait_is_logged_once(
    site: Endpoint, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(transfer_trigger, "LOOK_SECONDS", 0.2)
    later = datetime.now(timezone.utc) + timedelta(seconds=8)
    with site.client() as client:
        client.submit(Request("/data/x.dat", "/data/w.dat", id="later", not_before=later))
    payload = asyncio.run(first(DrayTransferTrigger("site", "later", settle_seconds=0.0)))
    assert payload["state"] == "done"
    assert capfd.readouterr().out.count("transfer later waits until its not_before") == 1
