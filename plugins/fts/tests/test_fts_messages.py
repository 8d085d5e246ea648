from __future__ import annotations

import json
import sqlite3
import time
from typing import TYPE_CHECKING, Any

import pytest

from dray_fts import schema
from dray_fts.changes import Change
from dray_fts.database import Database
from dray_fts.jobs import parse
from dray_fts.people import Person
from dray_fts.settings import Limits
from dray_fts.sites import Prefix, SiteMap

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SITES = SiteMap(
    [Prefix(f"davs://{name}", name, "/data", is_tape=name == "c") for name in ("a", "b", "c")]
)
ALICE = Person("alice", "/CN=alice", "dteam", is_administrator=False)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = Database(tmp_path / "fts.db", "fts.example", ["complete"])
    yield made
    made.close()


def add(database: Database, *pairs: tuple[list[str], str], **params: object) -> list[int]:
    """Store a job. Return the ids of its files."""
    files = [
        {"sources": sources, "destinations": [destination], "metadata": {"number": number}}
        for number, (sources, destination) in enumerate(pairs)
    ]
    body = json.dumps({"files": files, "params": params}).encode()
    database.add("j", parse(body, SITES, Limits()), "digest", ALICE)
    return [row["file_id"] for row in database.files("j")]


def bodies(database: Database) -> list[dict[str, Any]]:
    return [json.loads(row["body"]) for row in database.messages(100)]


def ends(database: Database) -> list[tuple[str, str]]:
    return [(each["t_final_transfer_state"], each["job_state"]) for each in bodies(database)]


def stored(database: Database) -> list[tuple[str, dict[str, Any]]]:
    """Return the kinds of all messages, and the messages without the metadata."""
    with database._change() as db:
        rows = db.execute("SELECT kind, body FROM message ORDER BY message_id").fetchall()
    return [(kind, json.loads(body)) for kind, body in rows]


def test_a_message_is_stored_with_the_state(database: Database) -> None:
    one, two = add(database, (["davs://a/x"], "davs://b/x"), (["davs://a/y"], "davs://b/y"))
    database.apply([Change(one, "READY"), Change(one, "ACTIVE", start_time=10.0)])
    assert bodies(database) == []
    database.apply([Change(one, "FINISHED", start_time=10.0, finish_time=12.5, filesize=7)])
    database.apply([Change(one, "FAILED", "late")])
    (good,) = bodies(database)
    assert (good["tr_timestamp_start"], good["transfer_time"]) == (10_000, 2500)
    assert good["tr_id"] == f"1970-01-01-0000__a__b__{one}__j"
    database.cancel("j")
    assert ends(database) == [("Ok", "UNKNOWN"), ("Abort", "UNKNOWN")]
    assert [each["file_id"] for each in bodies(database)] == [one, two]
    # A file that never started has no start of its own.
    aborted = bodies(database)[1]
    assert aborted["tr_timestamp_start"] == aborted["tr_timestamp_complete"]
    assert aborted["t_error_code"] == 125


def test_starts_and_states(tmp_path: Path) -> None:
    every = Database(tmp_path / "all.db", "fts.example", ["complete", "start", "state"])
    (one,) = add(every, (["davs://c/x"], "davs://b/x"), bring_online=60)
    every.apply([Change(one, "STARTED", staging_start=1.0, stage_id="s")])
    every.apply([Change(one, "SUBMITTED", staging_finished=2.0)])
    every.apply([Change(one, "READY")])
    every.apply([Change(one, "ACTIVE", start_time=3.0)])
    # More bytes are durable: neither a new state nor a new start.
    every.apply([Change(one, "ACTIVE", start_time=3.0, transferred=5)])
    every.apply([Change(one, "FAILED", "SOURCE [5] x", start_time=3.0, finish_time=4.0)])
    found = stored(every)
    assert [kind for kind, _ in found] == [*["state"] * 3, "start", "state", "state", "complete"]
    states = [body for kind, body in found if kind == "state"]
    assert [(each["file_state"], each["job_state"]) for each in states] == [
        ("STARTED", "STAGING"),
        ("SUBMITTED", "SUBMITTED"),
        ("READY", "READY"),
        ("ACTIVE", "ACTIVE"),
        ("FAILED", "FAILED"),
    ]
    assert (states[0]["staging"], states[0]["staging_start"]) == (True, 1000)
    assert [each["staging_finished"] for each in states[:2]] == [0, 2000]
    assert (states[-1]["reason"], states[-1]["archiving"]) == ("SOURCE [5] x", False)
    start, end = found[3][1], found[-1][1]
    assert (start["transfer_id"], start["timestamp"]) == (end["tr_id"], 3000)
    every.close()
    # Messages of kinds that are no longer published are deleted.
    fewer = Database(tmp_path / "all.db", "fts.example", ["complete"])
    assert [row["kind"] for row in fewer.messages(100)] == ["complete"]
    fewer.close()


def test_a_copy_that_is_seen_only_after_its_end_has_started(tmp_path: Path) -> None:
    every = Database(tmp_path / "all.db", "fts.example", ["complete", "start"])
    one, two = add(every, (["davs://a/x"], "davs://b/x"), (["davs://a/y"], "davs://b/y"))
    every.apply([Change(one, "FINISHED", start_time=3.0, finish_time=4.0), Change(two, "FAILED")])
    found = [(kind, body["file_id"]) for kind, body in stored(every)]
    assert found == [("start", one), ("complete", one), ("complete", two)]
    every.close()


def test_the_messages_of_a_batch_have_one_kind(tmp_path: Path) -> None:
    every = Database(tmp_path / "all.db", "fts.example", ["complete", "start", "state"])
    (one,) = add(every, (["davs://a/x"], "davs://b/x"))
    every.apply([Change(one, "ACTIVE", start_time=3.0)])
    every.apply([Change(one, "FINISHED", start_time=3.0, finish_time=4.0)])
    batches = []
    while rows := every.messages(100):
        batches.append([row["kind"] for row in rows])
        every.tried([row["message_id"] for row in rows], [])
    assert batches == [["complete"], ["start"], ["state", "state"]]
    every.close()


def test_the_metadata_of_a_job_is_stored_once(database: Database) -> None:
    metadata = {"é": ["}", "m" * 10_000]}
    pairs = [([f"davs://a/{number}"], f"davs://b/{number}") for number in range(20)]
    ids = add(database, *pairs, job_metadata=metadata)
    database.cancel("j")
    assert [each["file_id"] for each in bodies(database)] == ids
    for number, each in enumerate(bodies(database)):
        assert (each["job_metadata"], each["file_metadata"]) == (metadata, {"number": number})
    with database._change() as db:
        (stored,) = db.execute("SELECT max(length(body)) FROM message").fetchone()
    assert stored < 5000


def test_a_job_is_kept_until_its_messages_are_published(database: Database) -> None:
    add(database, (["davs://a/x"], "davs://b/x"), job_metadata="kept")
    database.cancel("j")
    for row in database.flagged("to_cancel", "b", 10):
        database.settled("to_cancel", row["file_id"])
    assert database.forget(-1) == 0
    (message,) = database.messages(10)
    assert json.loads(message["body"])["job_metadata"] == "kept"
    database.tried([message["message_id"]], [])
    assert database.forget(-1) == 1


def test_a_message_of_an_older_service_is_published(tmp_path: Path) -> None:
    old = sqlite3.connect(tmp_path / "old.db", isolation_level=None)
    old.executescript("".join(schema._STEPS[:5]) + "PRAGMA user_version = 5;")
    old.execute("INSERT INTO message (created, vo_name, body) VALUES (1.0, 'v', '{\"a\": {}}')")
    old.close()
    changed = Database(tmp_path / "old.db", "fts.example", ["complete"])
    assert [(row["vo_name"], row["body"]) for row in changed.messages(10)] == [("v", '{"a": {}}')]
    changed.close()


def test_alternatives(database: Database) -> None:
    one, two = add(database, (["davs://a/x", "davs://a/y"], "davs://b/x"))
    database.apply([Change(one, "FAILED", "SOURCE [2] no such file")])
    database.apply([Change(two, "FAILED", "no number")])
    assert ends(database) == [("Error", "ACTIVE"), ("Error", "FAILED")]
    codes = [(each["t_error_code"], each["tr_error_scope"]) for each in bodies(database)]
    assert codes == [(2, "SOURCE"), (70, "TRANSFER")]


def test_hops(database: Database) -> None:
    pairs = (["davs://a/x"], "davs://b/x"), (["davs://b/x"], "davs://c/x")
    one, two = add(database, *pairs, multihop=True)
    database.apply([Change(one, "FINISHED")])
    database.apply([Change(two, "FINISHED")])
    assert ends(database) == [("Ok", "ACTIVE"), ("Ok", "FINISHED")]
    assert [each["transfer_lasthop"] for each in bodies(database)] == [False, True]


def test_an_archived_file_has_two_messages(database: Database) -> None:
    (one,) = add(database, (["davs://a/x"], "davs://c/x"), archive_timeout=60)
    database.apply([Change(one, "ARCHIVING", archive_start=1.0, finish_time=2.0)])
    database.apply([Change(one, "FINISHED", archive_finish=3.0)])
    assert [each["is_archiving"] for each in bodies(database)] == [True, False]


def test_deletions_and_expired_files(database: Database) -> None:
    body = json.dumps({"delete": ["davs://a/x"]}).encode()
    database.add("d", parse(body, SITES, Limits()), "digest", ALICE)
    (row,) = database.deletions("d")
    database.apply([Change(row["file_id"], "FINISHED")])
    assert bodies(database) == []
    add(database, (["davs://a/x"], "davs://b/x"), max_time_in_queue="1s")
    time.sleep(1.1)
    database.expire()
    assert ends(database) == [("Abort", "UNKNOWN")]


def test_a_refused_message_does_not_keep_others_waiting(database: Database) -> None:
    files = [([f"davs://a/{number}"], f"davs://b/{number}") for number in range(4)]
    ids = add(database, *files)
    database.apply([Change(each, "FINISHED") for each in ids[:3]])
    first, second, third = [row["message_id"] for row in database.messages(10)]
    # The broker has confirmed the second message only.
    database.tried([second], [first, third])
    database.apply([Change(ids[3], "FINISHED")])
    (new,) = database.messages(10)
    assert new["message_id"] not in (first, third)
    database.tried([new["message_id"]], [])
    # The others are tried alone.
    assert [row["message_id"] for row in database.messages(10)] == [first]
    database.tried([], [first])
    assert [row["message_id"] for row in database.messages(10)] == [third]


def test_old_messages_are_dropped(tmp_path: Path, database: Database) -> None:
    (one,) = add(database, (["davs://a/x"], "davs://b/x"))
    database.apply([Change(one, "FINISHED")])
    assert database.drop_messages(60) == 0
    assert database.drop_messages(-1) == 1
    add_again = Database(tmp_path / "other.db", "fts.example", ["complete"])
    add(add_again, (["davs://a/x"], "davs://b/x"))
    add_again.cancel("j")
    add_again.close()
    # A service without a broker keeps no messages.
    without = Database(tmp_path / "other.db")
    assert without.messages(1) == []
    without.close()
