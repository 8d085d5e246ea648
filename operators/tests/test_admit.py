"""Tests of the admission of a run: all transfers are reserved before the first starts, or none."""

from __future__ import annotations

import datetime as dt
import os
import time
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from dray.client import Client
    from dray.testing.endpoints import Endpoint

Loose: TypeAlias = Any
pytestmark = [pytest.mark.server, pytest.mark.slow]

START = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
MEGA = 1_000_000
LINK = 10 * MEGA


@pytest.fixture
def site(start_endpoint: Callable[..., Endpoint], connect: Callable[..., str]) -> Endpoint:
    """Return an endpoint that can promise 10 MB/s."""
    endpoint = start_endpoint("a", config={"rate": LINK})
    connect("site_a", endpoint)
    return endpoint


def make_dag(dag_id: str, **words: Loose) -> Loose:
    from airflow.sdk import DAG

    return DAG(dag_id, schedule=None, start_date=START, **words)


def move(task_id: str, **words: Loose) -> Loose:
    from dray_airflow.operators.transfer import DrayTransferOperator

    given = {
        "sources": f"/data/{task_id}.in",
        "destination": f"/data/{task_id}.out",
        "source_conn_id": "site_a",
        "destination_conn_id": "site_a",
        "bytes_expected": 4 * MEGA,
        "retries": 0,
        **words,
    }
    return DrayTransferOperator(task_id=task_id, **given)


def admit(**words: Loose) -> Loose:
    from dray_airflow.operators.admit import DrayAdmitOperator

    return DrayAdmitOperator(task_id="admit", retries=0, **words)


def nap(task_id: str, seconds: float) -> Loose:
    from airflow.providers.standard.operators.python import PythonOperator

    from dray_airflow.deadlines.dag import expect

    def sleep() -> None:
        time.sleep(seconds)

    slept = PythonOperator(task_id=task_id, python_callable=sleep)
    return expect(slept, seconds)


def ask(client: Client, size: int, within: float) -> Loose:
    """Ask if a transfer of this size could be promised within this time."""
    from dray.client import Request

    due = dt.datetime.now(dt.timezone.utc) + dt.timedelta(seconds=within)
    wanted = Request("/data/q", "/data/p", bytes_expected=size, deadline=due)
    return client.admission([wanted])


def test_tasks_use_the_reservation_of_their_run(
    site: Endpoint, run_dag: Callable[..., Any]
) -> None:
    """Between admission and the last transfer, a request for the whole rate is refused."""
    from airflow.providers.standard.operators.python import PythonOperator

    from dray_airflow.operators.admit import reservation_id

    for name in ("first", "second"):
        site.root(f"{name}.in").write_bytes(os.urandom(4 * MEGA))
    seen: dict[str, Any] = {}

    def other() -> None:
        with site.client() as client:
            seen["live"] = {
                each.id: (each.state, each.promised) for each in client.transfers(state="live")
            }
            seen["decision"] = ask(client, 160 * LINK, 180).decision

    with make_dag("keeps") as dag:
        last = move("second", expected_duration=2, bytes_expected=40 * LINK)
        greedy = PythonOperator(task_id="other", python_callable=other)
        admit() >> [move("first"), greedy] >> nap("compute", 2) >> last
    ran = run_dag(dag, run_conf={"deadline": "180s"})
    assert ran.state == "success"
    result = ran.result("admit")
    assert (result["promised"], result["left_out"]) == (2, {})
    second = result["transfers"]["second"]["id"]
    assert seen["live"][reservation_id(second)] == ("queued", True)
    assert seen["decision"] == "refuse"
    for name in ("first", "second"):
        assert site.root(f"{name}.out").read_bytes() == site.root(f"{name}.in").read_bytes()
        assert ran.result(name)["id"] == result["transfers"][name]["id"]
    with site.client() as client:
        known = {each.id: each for each in client.transfers()}
        # The reservations no longer exist. The transfers that replaced them are promised.
        assert set(known) == {result["transfers"][name]["id"] for name in ("first", "second")}
        assert ask(client, 160 * LINK, 180).decision == "accept"
        # The transfer has a promise, so it has no notice about a missing promise.
        assert known[second].notices == ()
        assert known[second].request["deadline"][:19] == result["deadline"][:19], "nothing follows"


def test_a_set_that_does_not_fit_is_refused_with_a_deadline_that_does(
    site: Endpoint, run_dag: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    from airflow.providers.standard.operators.empty import EmptyOperator

    def dag_of(dag_id: str) -> Loose:
        with make_dag(dag_id) as dag:
            # Each transfer needs 30 s at the full rate. Only one of them fits before the deadline.
            big = [move(f"big{n}", bytes_expected=30 * LINK) for n in range(2)]
            stop = EmptyOperator(task_id="stop", trigger_rule="all_skipped")
            # ``stop`` is skipped, so the transfers never run.
            admit(tasks=["big0", "big1"]) >> stop >> big
        return dag

    now = dt.datetime.now(dt.timezone.utc)
    ran = run_dag(dag_of("too_much"), run_conf={"deadline": "50s"})
    assert str(ran.task("admit").state) == "failed"
    output = capsys.readouterr().out
    (line,) = (each for each in output.splitlines() if each.startswith("dray_airflow.errors"))
    assert "cannot promise the 2 transfers of the run by its deadline" in line
    assert "if triggered again within a minute, the run could be promised by" in line, line
    offered = line.split('{"deadline": "')[1].split('"')[0]
    with site.client() as client:
        assert not list(client.transfers()), "a refused set keeps no reservation"
    later = dt.datetime.fromisoformat(offered.replace("Z", "+00:00"))
    assert 60 < (later - now).total_seconds() < 200
    again = run_dag(dag_of("fits_then"), run_conf={"deadline": offered})
    assert again.result("admit")["promised"] == 2


def test_unpromised_transfers_are_named_and_an_optional_run_continues(
    site: Endpoint, run_dag: Callable[..., Any]
) -> None:
    site.root("small.in").write_bytes(b"x" * MEGA)
    site.root("unsized.in").write_bytes(b"y" * MEGA)
    with make_dag("goes_on") as dag:
        ahead = admit(required=False)
        ahead >> move("small", bytes_expected=300 * LINK)
        ahead >> move("unsized", bytes_expected=None)
    ran = run_dag(dag, run_conf={"deadline": "30s"})
    assert ran.state == "success"
    result = ran.result("admit")
    assert result["promised"] == 0
    assert result["transfers"] == {}
    assert result["left_out"] == {"unsized": "the size is not known: give bytes_expected"}


def test_a_size_of_zero_is_a_known_size() -> None:
    from types import SimpleNamespace

    from dray.client import Content, Request
    from dray_airflow.operators.admit import Wanted

    def size(**said: Loose) -> int | None:
        errand: Loose = SimpleNamespace(request=Request("/data/x", "/data/y", **said))
        now = dt.datetime.now(dt.timezone.utc)
        return Wanted("t", errand, now, now).bytes

    assert size(bytes_expected=0) == 0
    assert size(content=Content(0, None)) == 0
    assert size(bytes_expected=5, content=Content(7, None)) == 5
    assert size() is None


def live_at(endpoint: Endpoint) -> list[str]:
    with endpoint.client() as client:
        return sorted(each.id for each in client.transfers(state="live"))


def test_required_covers_all_transfers_or_only_those_of_known_size(
    site: Endpoint, run_dag: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """A transfer without a size or with an unknown path, and a restart, cannot be promised."""
    from airflow.providers.standard.operators.empty import EmptyOperator
    from airflow.sdk import task

    from dray_airflow.operators.stage import DrayStageInOperator

    def dag_of(dag_id: str, **words: Loose) -> Loose:
        with make_dag(dag_id) as dag:

            @task(trigger_rule="all_skipped")
            def name() -> str:
                return "/data/x"

            words_of: dict[str, Any] = {"dray_conn_id": "site_a", "bytes_expected": MEGA}
            staged = DrayStageInOperator(task_id="staged", path="/data/y", **words_of)
            restart = DrayStageInOperator(task_id="restart", application="sim", **words_of)
            unsized = move("unsized", bytes_expected=None)
            made: Loose = name()
            later = move("later", sources=made)
            mapped = move_each("mapped", made)
            stop = EmptyOperator(task_id="stop", trigger_rule="all_skipped")
            asked = admit(**words)
            asked >> made
            asked >> stop >> [staged, restart, unsized, later, mapped, move("known")]
        return dag

    def said() -> str:
        lines = capsys.readouterr().out.splitlines()
        return next(each for each in lines if each.startswith("dray_airflow.errors"))

    conf = {"deadline": "120s"}
    ran = run_dag(dag_of("all_of_them"), run_conf=conf)
    assert str(ran.task("admit").state) == "failed"
    line = said()
    assert "cannot promise all transfers of the run: " in line
    assert "staged: the other root of the copy is not known: set the argument `to`" in line
    assert "restart: the version of a restart is not known before the restart" in line
    assert "unsized: the size is not known: give bytes_expected" in line
    assert "later: its files are not known before the run" in line
    assert "mapped: its files are not known before the run" in line
    assert line.endswith('or set required="known"')
    assert live_at(site) == []
    ran = run_dag(dag_of("known_ones", required="known"), run_conf=conf)
    result = ran.result("admit")
    assert result["promised"] == 1
    assert sorted(result["left_out"]) == ["later", "mapped", "restart", "staged", "unsized"]
    assert live_at(site) == [f"{result['transfers']['known']['id']}.r"]
    ran = run_dag(dag_of("named_ones", tasks=["known"]), run_conf=conf)
    assert (ran.result("admit")["promised"], ran.result("admit")["left_out"]) == (1, {})


def transfers(task_id: str, sources: list[str]) -> Loose:
    from dray_airflow.operators.transfer import DrayTransferOperator

    return DrayTransferOperator.partial(
        task_id=task_id,
        destination="/data/",
        source_conn_id="site_a",
        destination_conn_id="site_a",
        bytes_expected=5 * LINK,
    ).expand(sources=sources)


def move_each(task_id: str, sources: Loose) -> Loose:
    from dray_airflow.operators.transfer import DrayTransferOperator

    return DrayTransferOperator.partial(
        task_id=task_id,
        destination="/data/",
        source_conn_id="site_a",
        destination_conn_id="site_a",
        bytes_expected=MEGA,
    ).expand_kwargs(sources.map(lambda each: {"sources": each}))


@pytest.mark.parametrize("body", ["5KiB", "3KiB"], ids=["a-question", "not-even-a-question"])
def test_a_set_larger_than_one_request_is_still_all_or_none(
    start_endpoint: Callable[..., Endpoint],
    connect: Callable[..., str],
    run_dag: Callable[..., Any],
    capsys: pytest.CaptureFixture[str],
    body: str,
) -> None:
    """The set has ten requests of about 750 bytes each, or of 400 bytes without labels."""
    from airflow.providers.standard.operators.empty import EmptyOperator

    limits = {"body_bytes": body}
    site = start_endpoint("small", config={"rate": LINK, "limits": limits})
    connect("site_a", site)

    def dag_of(dag_id: str) -> Loose:
        with make_dag(dag_id) as dag:
            moved: Loose = transfers("moved", [f"/data/{number}.in" for number in range(10)])
            stop = EmptyOperator(task_id="stop", trigger_rule="all_skipped")
            admit() >> stop >> moved
        return dag

    # Each transfer needs five seconds at the full rate.
    ran = run_dag(dag_of(f"large_{body}"), run_conf={"deadline": "600s"})
    assert ran.result("admit")["promised"] == 10
    assert len(live_at(site)) == 10
    ran = run_dag(dag_of(f"too_large_{body}"), run_conf={"deadline": "60s"})
    assert str(ran.task("admit").state) == "failed"
    output = capsys.readouterr().out
    assert "cannot promise the 10 transfers of the run by its deadline" in output
    assert ("could be promised by" in output) == (body == "5KiB")
    assert len(live_at(site)) == 10


@pytest.mark.parametrize("required", [True, "known"])
def test_configuration_errors_fail_whether_admission_is_required_or_not(
    site: Endpoint,
    run_dag: Callable[..., Any],
    capsys: pytest.CaptureFixture[str],
    required: Loose,
) -> None:
    with make_dag(f"never_{required}") as dag:
        admit(required=required) >> move("lost", source_conn_id="x", destination_conn_id="nowhere")
    assert run_dag(dag, run_conf={"deadline": "120s"}).state == "failed"
    output = capsys.readouterr().out
    assert "nowhere" in output
    assert "are not known before the run" not in output
    with make_dag(f"no_transfer_{required}") as dag:
        admit(required=required) >> nap("compute", 0)
    assert run_dag(dag, run_conf={"deadline": "120s"}).state == "failed"
    assert (
        "cannot reserve the run's transfers: the DAG has no task that transfers or stages files"
        in capsys.readouterr().out
    )


def test_an_endpoint_that_promises_nothing_is_a_refusal(
    start_endpoint: Callable[..., Endpoint],
    connect: Callable[..., str],
    run_dag: Callable[..., Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    site = start_endpoint("norate")
    connect("site_a", site)
    site.root("x.in").write_bytes(b"x")
    with make_dag("no_rate") as dag:
        admit() >> move("x")
    ran = run_dag(dag, run_conf={"deadline": "60s"})
    assert str(ran.task("admit").state) == "failed"
    assert "accepted them, but without a promise: x: " in capsys.readouterr().out
    assert live_at(site) == []
    with make_dag("no_rate_needed") as dag:
        admit(required=False) >> move("x")
    ran = run_dag(dag, run_conf={"deadline": "60s"})
    assert ran.state == "success"
    assert ran.result("admit")["promised"] == 0


def test_a_task_without_a_promise_takes_its_reserved_one(site: Endpoint, database: Loose) -> None:
    """Another owner asks for the remaining rate at the moment at which the reservation ends."""
    from dray.client import Request
    from dray.errors import DrayError
    from dray_airflow.operators.admit import reservation_id, submit_reserved

    del database
    due = dt.datetime.now(dt.timezone.utc) + dt.timedelta(seconds=100)
    site.root("x").write_bytes(bytes(MEGA))

    def request(id: str, size: int, **words: Loose) -> Request:
        return Request("/data/x", f"/data/{id}", id=id, bytes_expected=size, deadline=due, **words)

    with site.client() as client:
        begin = dt.datetime.now(dt.timezone.utc) + dt.timedelta(seconds=10)
        held = request(reservation_id("t"), 40 * LINK, admission="required", not_before=begin)
        assert client.submit(held).promised
        cancel = client.cancel
        greedy: list[str] = []

        def and_somebody(id: str, **words: Loose) -> Loose:
            ended = cancel(id, **words)
            try:
                wanted = request("greedy", 70 * LINK, admission="required", not_before=begin)
                client.submit(wanted)
                greedy.append("taken")
            except DrayError as error:
                greedy.append(error.kind)
            return ended

        setattr(client, "cancel", and_somebody)  # noqa: B010 - the client itself, and more
        mine = request("t", 40 * LINK, admission="best_effort", not_before=begin)
        taken = submit_reserved(client, mine)
        assert greedy == ["not_admitted"]
        assert taken.promised
        assert client.query([held.id or ""])[held.id or ""] is None


def test_a_broken_off_task_leaves_no_reservation(
    site: Endpoint,
    start_endpoint: Callable[..., Endpoint],
    connect: Callable[..., str],
    run_dag: Callable[..., Any],
) -> None:
    """If the second endpoint is unreachable, the reservations at the first one are cancelled."""
    from airflow.providers.standard.operators.empty import EmptyOperator

    gone = start_endpoint("gone", config={"rate": LINK})
    connect("site_b", gone, extra={"pin": gone.key, "seconds": 1, "outage_seconds": 1})
    gone.kill()
    ends = {"source_conn_id": "site_b", "destination_conn_id": "site_b"}
    with make_dag("broken_off") as dag:
        stop = EmptyOperator(task_id="stop", trigger_rule="all_skipped")
        admit() >> stop >> [move("here"), move("there", **ends)]
    ran = run_dag(dag, run_conf={"deadline": "120s"})
    assert str(ran.task("admit").state) in {"failed", "up_for_retry"}
    with site.client() as client:
        assert list(client.transfers()) == []


def test_a_run_without_a_deadline_fails_with_the_remedy(
    site: Endpoint, run_dag: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    with make_dag("no_deadline") as dag:
        admit() >> move("never")
    ran = run_dag(dag)
    assert ran.state == "failed"
    assert "the run has no deadline; trigger it with conf" in capsys.readouterr().out


def test_mapped_instances_are_reserved_one_by_one(
    site: Endpoint, run_dag: Callable[..., Any]
) -> None:
    from dray_airflow.operators.transfer import DrayTransferOperator

    parts = []
    for number in range(3):
        site.root(f"p{number}").write_bytes(os.urandom(MEGA))
        parts.append({"sources": f"/data/p{number}", "destination": f"/data/o{number}"})
    with make_dag("mapped", max_active_tasks=2) as dag:
        shards = DrayTransferOperator.partial(
            task_id="shards",
            source_conn_id="site_a",
            destination_conn_id="site_a",
            bytes_expected=MEGA,
        ).expand_kwargs(parts)
        admit() >> shards
    ran = run_dag(dag, run_conf={"deadline": "60s"})
    assert ran.state == "success"
    result = ran.result("admit")
    assert result["promised"] == 3
    assert sorted(result["transfers"]) == ["shards[0]", "shards[1]", "shards[2]"]
    due = [result["transfers"][f"shards[{n}]"]["deadline"] for n in range(3)]
    # Two instances run concurrently, so the third gets the second half of the time.
    assert due[0] == due[1] < due[2]
    with site.client() as client:
        known = {each.id for each in client.transfers()}
    assert known == {each["id"] for each in result["transfers"].values()}
    for number in range(3):
        assert site.root(f"o{number}").read_bytes() == site.root(f"p{number}").read_bytes()


def test_a_reservation_moves_no_bytes(site: Endpoint, run_dag: Callable[..., Any]) -> None:
    """If a task never runs, its reservation ends at its start time, and no file is created."""
    from airflow.providers.standard.operators.empty import EmptyOperator

    from dray_airflow.operators.admit import reservation_id

    site.root("half").mkdir()
    site.root("half/made.dat").write_bytes(b"not all of it yet")
    with make_dag("never_comes") as dag:
        stop = EmptyOperator(task_id="stop", trigger_rule="all_failed")
        late = move("late", sources="/data/half/", destination="/data/to/", recursive=True)
        admit(start_within=dt.timedelta(seconds=1)) >> stop >> late
    ran = run_dag(dag, run_conf={"deadline": "12s"})
    result = ran.result("admit")
    held = reservation_id(result["transfers"]["late"]["id"])
    # Wait without queries, because a query would keep the reservation alive.
    time.sleep(13)
    with site.client() as client:
        ended = client.transfer(held)
    assert ended.state == "cancelled", ended
    assert (ended.bytes.durable, ended.tries) == (0, 0)
    assert not site.root("to").exists()


def test_a_queried_reservation_that_outlives_its_run_finds_no_file(
    site: Endpoint, run_dag: Callable[..., Any]
) -> None:
    from airflow.providers.standard.operators.empty import EmptyOperator

    from dray_airflow.operators.admit import reservation_id

    site.root("made.dat").write_bytes(b"not all of it yet")
    with make_dag("is_looked_at") as dag:
        stop = EmptyOperator(task_id="stop", trigger_rule="all_failed")
        late = move("late", sources="/data/made.dat", destination="/data/to.dat")
        admit(start_within=dt.timedelta(seconds=1)) >> stop >> late
    ran = run_dag(dag, run_conf={"deadline": "12s"})
    held = reservation_id(ran.result("admit")["transfers"]["late"]["id"])
    with site.client() as client:
        ended = client.wait(held, timeout_seconds=30)
        assert ended.state == "failed", ended
        assert ended.error is not None
        assert ended.error.kind == "not_a_directory"
        assert (ended.bytes.durable, ended.tries) == (0, 1)
    assert sorted(each.name for each in site.root().iterdir()) == ["made.dat"]


def test_a_retry_asks_all_endpoints_together_again(
    site: Endpoint,
    start_endpoint: Callable[..., Endpoint],
    connect: Callable[..., str],
    run_dag: Callable[..., Any],
) -> None:
    """If one endpoint refuses, the reservations at the other endpoint are cancelled.

    A retry requests reservations from both endpoints again.
    """
    from airflow.providers.standard.operators.empty import EmptyOperator
    from airflow.providers.standard.operators.python import PythonOperator

    other = start_endpoint("b", config={"rate": LINK})
    connect("site_b", other)
    ends = {"source_conn_id": "site_b", "destination_conn_id": "site_b"}
    seen: list[Any] = []

    def dag_of(dag_id: str, size: int, tries: int) -> Loose:
        with make_dag(dag_id) as dag:
            stop = EmptyOperator(task_id="stop", trigger_rule="all_skipped")
            asked = admit()
            asked >> stop >> [move("here"), move("there", bytes_expected=size, **ends)]
            # Each try first cancels the reservations of earlier tries.
            original = asked.execute

            def again(context: Loose) -> Loose:
                for _ in range(tries):
                    seen.append(original(context))
                return seen[-1]

            repeated = PythonOperator(task_id="again", python_callable=lambda **all: again(all))
            asked >> repeated
        return dag

    def live(endpoint: Endpoint) -> list[str]:
        with endpoint.client() as client:
            return sorted(each.id for each in client.transfers(state="live"))

    refused = run_dag(dag_of("one_refuses", 900 * LINK, 0), run_conf={"deadline": "120s"})
    assert str(refused.task("admit").state) == "failed"
    assert (live(site), live(other)) == ([], [])
    kept = run_dag(dag_of("both_keep", 40 * LINK, 2), run_conf={"deadline": "120s"})
    result = kept.result("admit")
    assert result["promised"] == 2
    assert [each["promised"] for each in seen] == [2, 2]
    for endpoint, name in ((site, "here"), (other, "there")):
        assert live(endpoint) == [f"{result['transfers'][name]['id']}.r"]


def test_a_begun_transfer_is_not_reserved_again(
    site: Endpoint, run_dag: Callable[..., Any]
) -> None:
    from airflow.providers.standard.operators.empty import EmptyOperator
    from airflow.sdk import task

    from dray.client import Request
    from dray_airflow.identity import transfer_id

    site.root("x").write_bytes(b"x")
    with make_dag("has_begun") as dag:

        @task
        def begin(ti: Loose = None) -> str:
            id = transfer_id(ti.dag_id, ti.run_id, "here")
            later = dt.datetime.now(dt.timezone.utc) + dt.timedelta(minutes=5)
            with site.client() as client:
                return str(client.submit(Request("/data/x", "/data/y", id=id, not_before=later)).id)

        stop = EmptyOperator(task_id="stop", trigger_rule="all_skipped")
        begin() >> admit() >> stop >> [move("here"), move("other")]
    ran = run_dag(dag, run_conf={"deadline": "120s"})
    result = ran.result("admit")
    assert result["left_out"] == {"here": "the transfer has started and is queued"}
    with site.client() as client:
        live = {each.id for each in client.transfers(state="live")}
    assert live == {ran.result("begin"), f"{result['transfers']['other']['id']}.r"}


def run_that_fails(dag_id: str, task_ids: tuple[str, ...] = ("late",)) -> Loose:
    """Return a DAG whose run fails after its reservations are made."""
    from airflow.providers.standard.operators.python import PythonOperator

    def fail() -> None:
        raise RuntimeError("the detector is off")

    with make_dag(dag_id) as dag:
        broken = PythonOperator(task_id="broken", python_callable=fail, retries=0)
        admit() >> broken >> [move(each, bytes_expected=220 * LINK) for each in task_ids]
    return dag


def live(client: Client) -> dict[str, str]:
    """Return the run of each live reservation."""
    found = list(client.transfers(state="live"))
    return {each.id: each.request["labels"]["run_id"] for each in found if each.id.endswith(".r")}


def test_a_failed_run_does_not_block_the_next(
    site: Endpoint, run_dag: Callable[..., Loose], caplog: pytest.LogCaptureFixture
) -> None:
    dag = run_that_fails("fails_behind")
    first = run_dag(dag, run_conf={"deadline": "400s"})
    assert (first.state, first.task("admit").state) == ("failed", "success")
    with site.client() as client:
        assert set(live(client).values()) == {first.run.run_id}
        # The listener reads this XCom to cancel the reservations.
        reserved = first.result("admit", "dray_reserved")
        assert reserved == {"site_a": list(live(client))}
        second = run_dag(dag, run_conf={"deadline": "400s"})
        assert second.task("admit").state == "success"
        assert set(live(client).values()) == {second.run.run_id}
        assert f"is freed: run {first.run.run_id} has ended" in caplog.text

        from dray_airflow.listener import release

        release(second.result("admit", "dray_reserved"), second.run.run_id)
        assert live(client) == {}
        # A second release, and a release with an unknown connection, are no errors.
        release(second.result("admit", "dray_reserved"), second.run.run_id)
        release({"no_such_connection": ["x"]}, second.run.run_id)


def test_a_refusal_names_the_task_that_holds_the_rate(
    site: Endpoint, run_dag: Callable[..., Loose], capfd: pytest.CaptureFixture[str]
) -> None:
    from dray.client import Request

    due = dt.datetime.now(dt.timezone.utc) + dt.timedelta(seconds=450)
    labels = {"dag_id": "other", "run_id": "r1", "task_id": "t1", "map_index": "-1"}
    with site.client() as client:
        mine = Request(
            "/data/q",
            "/data/p",
            id="held",
            bytes_expected=420 * LINK,
            deadline=due,
            labels=labels,
            not_before=due - dt.timedelta(seconds=440),
        )
        assert client.submit(mine).promised
        ran = run_dag(run_that_fails("names"), run_conf={"deadline": "400s"})
        assert ran.task("admit").state == "failed"
        output = capfd.readouterr().out
        assert (
            "the rate is promised to the transfer of task t1 of run r1 of DAG other (held" in output
        )
        assert client.query(["held"])["held"] is not None
