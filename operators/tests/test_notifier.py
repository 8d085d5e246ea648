"""Tests of notifications about failed and late transfers, and of deadlines in a run's conf."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import email
import json
import os
import socket
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from dray.client import Miss, Place, Request, Transfer
from dray.errors import DrayPermanentError
from dray_airflow.deadlines.callback import RESERVATION_LABEL, find_reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dray.testing.endpoints import Endpoint
    from dray.testing.plugin import Two
    from dray.testing.scripted import ScriptedEndpoint

Loose: TypeAlias = Any
START = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
NOON = dt.datetime(2026, 11, 21, 12, tzinfo=dt.timezone.utc)
MEGA = 1_000_000


def at(minutes: float) -> dt.datetime:
    return NOON + dt.timedelta(minutes=minutes)


def transfer(id: str, **words: Loose) -> Transfer:
    """Return a transfer of the task ``t-<id>``, which is due in one hour."""
    given: dict[str, Any] = {"state": "active", **words}
    due = given.pop("due", at(60))
    labels = {"task_id": f"t-{id}", "map_index": "-1", **given.pop("labels", {})}
    request: dict[str, Any] = {"labels": labels, "bytes_expected": 4 * 10**9}
    if due is not None:
        request["deadline"] = due.isoformat().replace("+00:00", "Z")
    return Transfer(id, request=request, **given)


def refused(message: str) -> DrayPermanentError:
    return DrayPermanentError(
        message,
        kind="no_space",
        status="permanent",
        end="sink",
        operation="write",
        file="x",
        cause="full",
        remedy="make room",
    )


# --- the transfer that delays a run -------------------------------------------------------------

FORETOLD = transfer("slow", miss=Miss("the way to b is slower", at(60), at(80)))
WORSE = transfer("worst", miss=Miss("disk", at(60), at(200)), labels={"map_index": "7"}, due=at(60))
FAILED = transfer("broken", state="failed", error=refused("cannot write: x: full; make room"))
BEHIND = transfer("behind", eta=at(75))
LATE = transfer("late", state="done", ended_at=at(-5), due=at(-10))
FINE = [
    transfer("fine", eta=at(30)),
    transfer("done", state="done", ended_at=at(-5)),
    transfer("free", due=None),
    transfer("kept.r", state="failed", labels={RESERVATION_LABEL: "kept"}),
]


def test_predicted_misses_precede_failures_and_late_transfers() -> None:
    everything = [*FINE, LATE, BEHIND, FAILED, FORETOLD, WORSE]
    order = []
    while (reason := find_reason(everything, NOON)) is not None:
        order.append((reason.kind, reason.task))
        everything.remove(reason.transfer)
    assert order == [
        ("foretold", "t-worst[7]"),
        ("foretold", "t-slow"),
        ("failed", "t-broken"),
        ("slow", "t-behind"),
        ("late", "t-late"),
    ]


def test_the_line_reports_the_problem() -> None:
    def line(one: Transfer, run: dt.datetime | None = None) -> str:
        reason = find_reason([one], NOON, run)
        assert reason is not None
        return reason.text

    assert line(FORETOLD) == (
        "transfer slow of task t-slow will miss its deadline 2026-11-21T13:00:00Z: the way to b is"
        " slower; it can be done at 2026-11-21T13:20:00Z at the earliest; 0 of 4 GB are safe"
    )
    assert line(FAILED) == (
        "transfer broken of task t-broken is failed: cannot write: x: full; make room;"
        " 0 of 4 GB are safe"
    )
    assert line(BEHIND) == (
        "transfer behind of task t-behind will end after its deadline "
        "2026-11-21T13:00:00Z; 0 of 4 GB are safe, expected end 2026-11-21T13:15:00Z"
    )
    assert line(LATE) == (
        "transfer late of task t-late ended 5 min after its deadline 2026-11-21T11:50:00Z"
    )
    # A transfer without a deadline is compared with the run's deadline.
    assert "will end after the run's deadline 2026-11-21T11:59:00Z" in line(
        transfer("free", due=None), at(-1)
    )


# --- notifying ----------------------------------------------------------------------------------


@pytest.fixture
def chat(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedEndpoint]:
    """Return a server that acts as a chat's webhook, with the connection ``chat``."""
    from dray.testing.scripted import ScriptedEndpoint, json_reply

    with ScriptedEndpoint() as server:
        server.always("POST", "/services/secret", json_reply({"ok": True}))
        fields = {
            "conn_type": "http",
            "host": "127.0.0.1",
            "schema": "http",
            "port": server.port,
            "password": "/services/secret",
        }
        monkeypatch.setenv("AIRFLOW_CONN_CHAT", json.dumps(fields))
        yield server


def messages(chat: ScriptedEndpoint) -> list[str]:
    assert not chat.surprises
    return [asked.json["text"] for asked in chat.asked_for("POST", "/services/secret")]


def make_dag(dag_id: str, **words: Loose) -> Loose:
    from airflow.sdk import DAG

    return DAG(dag_id, schedule=None, start_date=START, **words)


@pytest.mark.server
@pytest.mark.slow
def test_exhausted_retries_are_reported_with_durable_data_and_remedy(
    start_endpoint: Callable[..., Endpoint],
    connect: Callable[..., str],
    run_dag: Callable[..., Any],
    chat: ScriptedEndpoint,
) -> None:
    from dray_airflow.notifications.dray import DrayNotifier
    from dray_airflow.operators.transfer import DrayTransferOperator

    site = start_endpoint("a")
    connect("site_a", site)
    for name in ("good", "bad"):
        site.root("set").mkdir(exist_ok=True)
        site.root(f"set/{name}.dat").write_bytes(os.urandom(MEGA))
    # The file cannot be written, because a folder has its name.
    (site.root("out") / "bad.dat" / "x").mkdir(parents=True)
    with make_dag("used_up") as dag:
        DrayTransferOperator(
            task_id="move",
            sources="/data/set/",
            destination="/data/out/",
            recursive=True,
            source_conn_id="site_a",
            destination_conn_id="site_a",
            retries=0,
            on_failure_callback=DrayNotifier(["site_a"], webhook_conn_id="chat"),
        )
    ran = run_dag(dag)
    assert ran.state == "failed"
    (text,) = messages(chat)
    run_id = ran.run.run_id
    assert text.startswith(
        f"task move of run {run_id} of used_up failed (try 1 of 1): transfer af-move-"
    )
    assert "bad.dat" in text
    assert "is incomplete, 0.001 of 0.002 GB are safe and will not be sent again" in text
    assert "clear the task to resume (dray show af-" in text
    assert "\n" not in text


@pytest.mark.server
@pytest.mark.slow
def test_an_unreachable_endpoint_does_not_stop_the_notification(
    run_dag: Callable[..., Any], chat: ScriptedEndpoint
) -> None:
    from airflow.sdk import task

    from dray_airflow.notifications.dray import DrayNotifier

    with make_dag("told_all_the_same") as dag:

        @task(on_failure_callback=DrayNotifier(["nowhere"], webhook_conn_id="chat"))
        def compute() -> None:
            raise RuntimeError("the detector\nwas off")

        compute()
    run_dag(dag)
    (text,) = messages(chat)
    assert (
        "failed (try 1 of 1): the detector was off; cannot ask the endpoint of connection "
        "nowhere: " in text
    )


class Post:
    """A mail server on the loopback interface that stores received mail."""

    def __init__(self) -> None:
        """Start to listen."""
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.socket.getsockname()[1]
        self.letters: list[str] = []
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            with connection, connection.makefile("rw", newline="\r\n") as line:
                self._take(line)

    def _take(self, line: Loose) -> None:
        def say(text: str) -> None:
            line.write(f"{text}\n")
            line.flush()

        say("220 here")
        for words in line:
            if words.upper().startswith("DATA"):
                say("354 go on")
                text = []
                while (each := line.readline().rstrip("\r\n")) != ".":
                    text.append(each)
                self.letters.append("\n".join(text))
                say("250 kept")
            elif words.upper().startswith("QUIT"):
                say("221 bye")
                return
            else:
                say("250 fine")

    def close(self) -> None:
        """Stop the server."""
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self.thread.join(timeout=5)


@pytest.mark.server
@pytest.mark.slow
def test_mail_is_sent_from_tasks_and_from_the_triggerer(
    run_dag: Callable[..., Any],
    one_endpoint: Endpoint,
    connect: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from airflow.sdk import task

    from dray_airflow.notifications.dray import DrayNotifier

    connect("site_a", one_endpoint)
    post = Post()
    extra = {"disable_ssl": True, "disable_tls": True, "from_email": "dray@example.org"}
    fields = {"conn_type": "smtp", "host": "127.0.0.1", "port": post.port, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_POST", json.dumps(fields))
    words: dict[str, Any] = {"to": "shift@example.org", "smtp_conn_id": "post"}
    try:
        with make_dag("mails") as dag:

            @task(on_failure_callback=DrayNotifier(["site_a"], **words))
            def compute() -> None:
                raise RuntimeError("no beam")

            compute()
        run_dag(dag)
        run = {"dag_id": "beam", "dag_run_id": "r3"}
        context: Any = {"dag_run": run, "deadline": {"id": "1", "deadline_time": NOON}}

        async def wait() -> None:
            await DrayNotifier(["site_a"], context=context, **words)

        asyncio.run(wait())
    finally:
        post.close()
    letters = [email.message_from_string(letter) for letter in post.letters]
    assert [letter["To"] for letter in letters] == ["shift@example.org"] * 2
    parts: list[Any] = [letter.get_payload(0) for letter in letters]
    bodies = [part.get_payload(decode=True).decode() for part in parts]
    assert "failed (try 1 of 1): no beam" in bodies[0]
    assert "run r3 of beam missed its deadline" in bodies[1]


@pytest.mark.slow
@pytest.mark.parametrize("is_deadline", [False, True])
def test_a_failed_chat_does_not_stop_the_mail_or_expose_its_url(
    database: Path, monkeypatch: pytest.MonkeyPatch, is_deadline: bool
) -> None:
    """Both channels are tried, and the failed mail is reported together with the failed chat."""
    from dray.testing.scripted import ScriptedEndpoint, json_reply
    from dray_airflow.errors import DrayTaskRetry
    from dray_airflow.notifications.dray import DrayNotifier

    del database
    post = Post()

    def error_with(chat_port: int, post_port: int) -> str:
        extra = {"disable_ssl": True, "disable_tls": True, "from_email": "dray@example.org"}
        extra.update(retry_limit=1)
        mail = {"conn_type": "smtp", "host": "127.0.0.1", "port": post_port, "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_POST", json.dumps(mail))
        chat = {"conn_type": "http", "host": "127.0.0.1", "schema": "http", "port": chat_port}
        monkeypatch.setenv("AIRFLOW_CONN_CHAT", json.dumps({**chat, "password": "/s/hush"}))
        run = {"dag_id": "beam", "dag_run_id": "r3"}
        late: Any = {"dag_run": run, "deadline": {"id": "1", "deadline_time": NOON}}
        ti = SimpleNamespace(
            dag_id="beam", run_id="r3", task_id="move", map_index=-1, try_number=1, max_tries=0
        )
        words: dict[str, Any] = {"to": "shift@example.org", "smtp_conn_id": "post"}
        notifier = DrayNotifier([], webhook_conn_id="chat", context=late, **words)
        context: Any = {"ti": ti, "exception": RuntimeError("no beam")}

        def notify() -> None:
            if is_deadline:
                asyncio.run(notifier.async_notify(late))
            else:
                notifier.notify(context)

        with pytest.raises(DrayTaskRetry) as failed:
            notify()
        seen: BaseException | None = failed.value
        while seen is not None:
            assert "hush" not in str(seen)
            seen = seen.__cause__ or seen.__context__
        return str(failed.value)

    try:
        with ScriptedEndpoint() as server:
            server.always("POST", "/s/hush", json_reply({"ok": False}, 500))
            said = error_with(server.port, post.port)
            assert said.startswith(
                "the notification failed: webhook chat: the server answered 500; check"
            )
        assert len(post.letters) == 1
    finally:
        post.close()
    said = error_with(server.port, post.port)
    assert "webhook chat: the server could not be reached (ConnectError); mail: " in said


@pytest.mark.parametrize(
    "host", ["https://chat.example.org/services/hush", "chat.example.org/hush", "u:hush@chat", ""]
)
def test_a_host_that_may_hold_a_secret_is_refused_without_quoting_it(host: str) -> None:
    from dray_airflow.errors import DrayTaskFailure
    from dray_airflow.notifications.dray import DrayNotifier

    connection = SimpleNamespace(host=host, schema="https", port=None, password="")
    with pytest.raises(
        DrayTaskFailure, match="the rest of the URL into the field password"
    ) as refused:
        DrayNotifier._webhook(connection)
    assert "hush" not in str(refused.value)
    connection.host = "https://chat.example.org/"
    assert DrayNotifier._webhook(connection) == ("https://chat.example.org", {})


@pytest.mark.server
@pytest.mark.slow
def test_a_predicted_miss_is_reported_early_and_names_the_transfer(
    two_endpoints: Two,
    connect: Callable[..., str],
    start_endpoint: Callable[..., Endpoint],
    chat: ScriptedEndpoint,
    database: Path,
) -> None:
    """The other end becomes slower. The early check now predicts a miss and reports it."""
    from dray_airflow.notifications.dray import DrayNotifier

    del database
    here = start_endpoint("c", config={"rate": 6 * MEGA})
    there = two_endpoints.b
    connect("site_c", here)
    there.root("x").write_bytes(bytes(40 * MEGA))
    run = {"dag_id": "beam", "dag_run_id": "r1"}
    deadline = dt.datetime.now(dt.timezone.utc) + dt.timedelta(seconds=16)
    context = {"dag_run": run, "deadline": {"id": "1", "deadline_time": deadline.isoformat()}}

    def look(is_early: bool) -> None:
        notifier = DrayNotifier(
            dray_conn_ids=["site_c"],
            webhook_conn_id="chat",
            is_early=is_early,
            context=context,  # type: ignore[arg-type]
        )

        async def wait() -> None:
            await notifier

        asyncio.run(wait())

    with here.client() as client, there.client() as other:
        ticket = other.mint_ticket("af-1", "read", ["/data/x"], here.key)
        labels = {"dag_id": "beam", "run_id": "r1", "task_id": "fetch", "map_index": "-1"}
        wanted = Request(
            Place(there.place("x"), ticket.ticket, ticket.key, ticket.address),
            "/data/x",
            id="af-1",
            deadline=deadline,
            bytes_expected=40 * MEGA,
            labels=labels,
        )
        held = dataclasses.replace(
            wanted, id="af-2.r", deadline=None, labels={**labels, RESERVATION_LABEL: "af-2"}
        )
        assert client.submit(wanted).promised
        client.submit(held)
        look(is_early=True)
        assert messages(chat) == []
        other.change_ticket(ticket.id, rate_max=MEGA)
        until = time.monotonic() + 20
        while client.transfer("af-1").miss is None:
            assert time.monotonic() < until
            time.sleep(0.2)
        look(is_early=True)
        (text,) = messages(chat)
        assert text.startswith(
            "run r1 of beam is expected to miss its deadline: transfer af-1 of task fetch "
            "will miss its"
        )
        assert "does not reach the rate" in text
        client.cancel("af-1", purge=True)
        client.wait("af-1")
    look(is_early=False)
    assert messages(chat)[1].startswith("run r1 of beam missed its deadline 20")
    assert "transfer af-1 of task fetch is cancelled" in messages(chat)[1]


@pytest.mark.server
@pytest.mark.slow
def test_a_miss_that_no_transfer_causes_is_reported(
    one_endpoint: Endpoint, connect: Callable[..., str], chat: ScriptedEndpoint, database: Path
) -> None:
    from dray_airflow.notifications.dray import DrayNotifier

    del database
    connect("site_a", one_endpoint)
    context: Any = {
        "dag_run": {"dag_id": "beam", "dag_run_id": "r2"},
        "deadline": {"id": "1", "deadline_time": NOON},
    }

    async def wait() -> None:
        await DrayNotifier(["site_a", "nowhere"], webhook_conn_id="chat", context=context)

    asyncio.run(wait())
    (text,) = messages(chat)
    assert text.startswith(
        "run r2 of beam missed its deadline 2026-11-21T12:00:00Z: no transfer explains the "
        "delay (transfers of the run: 0, not ended: 0)"
    )
    assert "cannot ask the endpoint of connection nowhere" in text


# --- the reference ------------------------------------------------------------------------------


@pytest.fixture
def plugin(database: Path) -> Iterator[None]:
    """Install the plug-in in the same way as its entry point."""
    from airflow import plugins_manager

    folder = database / "plugins"
    folder.mkdir(exist_ok=True)
    file = folder / "dray_of_tests.py"
    file.write_text("from dray_airflow.plugin import DrayPlugin  # noqa: F401\n")
    caches = (plugins_manager._get_plugins, plugins_manager.get_deadline_references_plugins)
    for each in caches:
        each.cache_clear()
    yield
    file.unlink()
    for each in caches:
        each.cache_clear()


@pytest.mark.slow
def test_the_deadline_in_a_run_s_conf_becomes_airflow_s_own(
    plugin: None, run_dag: Callable[..., Any]
) -> None:
    from airflow.models.deadline import Deadline
    from airflow.sdk import task
    from airflow.utils.session import create_session
    from sqlalchemy import select

    from dray_airflow.deadlines.callback import deadline_alerts
    from dray_airflow.deadlines.dag import run_deadline

    def deadlines(ran: Loose) -> list[dt.datetime]:
        with create_session() as session:
            found = session.scalars(select(Deadline).where(Deadline.dagrun_id == ran.run.id))
            return sorted(each.deadline_time for each in found)

    alerts = deadline_alerts(dray_conn_ids=["site_a"], looks=[dt.timedelta(minutes=30)])
    with make_dag("has_alerts", deadline=alerts) as dag:

        @task(trigger_rule="all_done")
        def look(ti: Loose = None) -> str | None:
            try:
                due = run_deadline(ti.get_template_context())
            except ValueError as error:
                return str(error)
            return None if due is None else due.time.isoformat()

        # A run that ends in time deletes its deadlines, so this run must fail.
        @task
        def fail() -> None:
            raise RuntimeError

        look() >> fail()
    far = "2126-11-21T17:00:00Z"
    ran = run_dag(dag, run_conf={"deadline": far})
    due = dt.datetime(2126, 11, 21, 17, tzinfo=dt.timezone.utc)
    assert ran.result("look") == due.isoformat()
    assert deadlines(ran) == [due - dt.timedelta(minutes=30), due]
    relative = run_dag(dag, run_conf={"deadline": "90m"})
    assert deadlines(relative)[-1] == relative.run.run_after + dt.timedelta(minutes=90)
    assert relative.result("look") == deadlines(relative)[-1].isoformat()
    assert deadlines(run_dag(dag)) == []
    assert deadlines(run_dag(dag, run_conf={"deadline": "soon"})) == []
