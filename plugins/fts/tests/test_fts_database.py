from __future__ import annotations

import json
import sqlite3
import time
from typing import TYPE_CHECKING

import pytest

from dray_fts import schema
from dray_fts.changes import Change
from dray_fts.database import Database, JobExistsError
from dray_fts.jobs import parse
from dray_fts.people import Person
from dray_fts.rows import Flagged
from dray_fts.settings import Limits
from dray_fts.sites import Prefix, SiteMap

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SITES = SiteMap([Prefix("davs://a", "a", "/data"), Prefix("davs://b", "b", "/data")])
ALICE = Person("alice", "/CN=alice", "dteam", is_administrator=False)
BOB = Person("bob", "/CN=bob", "dteam", is_administrator=False)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = Database(tmp_path / "fts.db")
    yield made
    made.close()


def add(database: Database, id: str = "j", person: Person = ALICE, **params: object) -> list[int]:
    """Store a job with one file and two sources. Return the ids of its files."""
    file = {"sources": ["davs://a/x", "davs://a/y"], "destinations": ["davs://b/x"]}
    body = json.dumps({"files": [file], "params": params}).encode()
    database.add(id, parse(body, SITES, Limits()), "digest", person)
    return [row["file_id"] for row in database.files(id)]


def state(database: Database, id: str = "j") -> str:
    row = database.job(id)
    assert row is not None
    return str(row["job_state"])


def test_a_job_survives_the_process(tmp_path: Path) -> None:
    first = Database(tmp_path / "fts.db")
    add(first)
    # No call of `close`: a killed process makes none either.
    second = Database(tmp_path / "fts.db")
    assert [row["file_state"] for row in second.files("j")] == ["SUBMITTED", "NOT_USED"]
    second.close()
    first.close()


def test_an_id_belongs_to_one_submission(database: Database) -> None:
    first = add(database)
    assert add(database) == first
    with pytest.raises(JobExistsError, match="already exists"):
        add(database, person=BOB)


def test_a_canceled_file_stays_canceled(database: Database) -> None:
    """The driver may be submitting the transfer when the user cancels the job."""
    one, _ = add(database)
    assert database.cancel("j") == 1
    database.apply([Change(one, "READY")])
    assert state(database) == "CANCELED"
    assert database.live("b") == []
    assert [row["file_id"] for row in database.flagged("to_cancel", "b", 10)] == [one]
    # A job stays until its transfers are cancelled.
    assert database.forget(-1) == 0
    database.settled("to_cancel", one)
    assert database.forget(-1) == 1
    assert database.job("j") is None


def test_a_priority_that_changes_during_a_submission_is_not_lost(database: Database) -> None:
    one, _ = add(database)
    database.prioritise("j", 5)
    database.apply([Change(one, "READY")])
    (row,) = database.flagged("to_change", "b", 10)
    assert (row["file_id"], row["priority"]) == (one, 5)


def test_a_priority_that_changes_during_its_call_is_not_lost(database: Database) -> None:
    add(database)
    database.prioritise("j", 5)
    (row,) = database.flagged("to_change", "b", 10)
    database.prioritise("j", 2)
    database.prioritised(row)
    (row,) = database.flagged("to_change", "b", 10)
    assert row["priority"] == 2
    database.prioritised(row)
    assert database.flagged("to_change", "b", 10) == []


def test_files_are_due_by_priority(database: Database) -> None:
    first, later = [add(database, f"j{priority}", priority=priority)[0] for priority in (2, 4)]
    third, alternative = add(database, "j3", priority=3)
    assert [row["file_id"] for row in database.due("b", 10)] == [later, third, first]
    database.prioritise("j3", 1)
    assert [row["file_id"] for row in database.due("b", 10)] == [later, first, third]
    # An alternative that has not begun gets the priority too.
    database.prioritise("j3", 5)
    database.apply([Change(third, "FAILED", "why")])
    assert [row["file_id"] for row in database.due("b", 10)] == [alternative, later, first]
    database.postpone(later, time.time() + 60, "busy", is_away=False)
    assert [row["file_id"] for row in database.due("b", 1)] == [alternative]
    assert [row["file_id"] for row in database.due("b", 10)] == [alternative, first]


def test_a_failed_file_begins_its_alternative(database: Database) -> None:
    one, two = add(database)
    database.apply([Change(one, "FAILED", "why")])
    assert state(database) == "SUBMITTED"
    assert [row["file_id"] for row in database.due("b", 10)] == [two]
    assert not database.has_alternative(database.files("j")[1])
    database.apply([Change(two, "FINISHED")])
    assert state(database) == "FINISHED"
    # An ended file does not change.
    database.apply([Change(two, "FAILED", "late")])
    assert state(database) == "FINISHED"


def test_the_first_time_without_an_answer_is_kept(database: Database) -> None:
    one, _ = add(database)
    database.postpone(one, 0, "away", is_away=True)
    first = database.files("j")[0]["away_since"]
    database.postpone(one, time.time() + 60, "away", is_away=True)
    assert database.files("j")[0]["away_since"] == first
    assert database.due("b", 10) == []
    # A busy endpoint has answered.
    database.postpone(one, 0, "busy", is_away=False)
    assert database.files("j")[0]["away_since"] is None


def test_files_expire_only_before_they_run(database: Database) -> None:
    one, _ = add(database, max_time_in_queue="1s")
    database.expire()
    assert state(database) == "SUBMITTED"
    time.sleep(1.1)
    database.apply([Change(one, "ACTIVE")])
    database.expire()
    assert state(database) == "ACTIVE"
    database.apply([Change(one, "READY")])
    database.expire()
    assert state(database) == "CANCELED"


def test_the_time_in_the_queue_begins_when_a_file_is_submitted(database: Database) -> None:
    one, two = add(database, max_time_in_queue="1s")
    database.apply([Change(one, "STARTED", stage_id="r", staging_start=1.0)])
    time.sleep(1.1)
    database.apply([Change(one, "SUBMITTED")])
    database.expire()
    assert state(database) == "SUBMITTED"
    database.apply([Change(one, "FAILED", "why")])
    database.expire()
    assert [row["file_id"] for row in database.due("b", 10)] == [two]
    time.sleep(1.1)
    database.expire()
    assert database.due("b", 10) == []
    assert state(database) == "CANCELED"


def test_no_call_scans_all_jobs_or_files(database: Database, tmp_path: Path) -> None:
    for number in range(20):
        one, _ = add(database, f"j{number}")
        database.apply([Change(one, "READY" if number % 2 else "FAILED")])
    said: list[str] = []
    with database._lock:
        database._db.set_trace_callback(said.append)
    mine = {"owner": ["alice"]}
    for what, column in (("job", "job_state"), ("file", "file_state")):
        database.find(what, {**mine, column: ["SUBMITTED", "ACTIVE"]}, 10)
        database.find(what, {column: ["FINISHED", "FAILED"], "since": ["0"]}, 10)
    database.find("job", {**mine, "vo_name": ["dteam"]}, 10)
    database.job("j1")
    (first, *_) = database.files("j1")
    database.counts()
    database.cancel("j1", [first["file_id"]])
    database.prioritise("j3", 5)
    database.due("b", 10)
    database.live("b")
    database.at("STAGING", "source", "a", 10)
    for flag in ("to_cancel", "to_change", "to_release"):
        database.flagged(flag, "b", 10)
    database.has_alternative(first)
    database.is_last(first)
    database.apply([Change(first["file_id"] + 2, "FINISHED")])
    database.postpone(first["file_id"], 0, "why", is_away=False)
    database.prioritised(first)
    database.expire()
    database.forget(60)
    other = sqlite3.connect(tmp_path / "fts.db")
    statements = [
        text for text in said if text.lstrip().upper().startswith(("SELECT", "UPDATE", "DEL"))
    ]
    assert len(statements) > 25
    for text in statements:
        plan = [row[3] for row in other.execute(f"EXPLAIN QUERY PLAN {text}")]
        scans = [step for step in plan if step.startswith(("SCAN job", "SCAN file"))]
        # A partial index has only the rows with a flag.
        assert [step for step in scans if "INDEX file_to_" not in step] == [], (text, plan)
        # No query sorts the files that wait. A query of several states sorts the rows of its list.
        sorts = [step for step in plan if "TEMP B-TREE" in step]
        assert sorts == [] or "UNION ALL" in text, (text, plan)
    other.close()


def test_lists_are_the_newest_first(database: Database) -> None:
    for number in range(6):
        one, _ = add(database, f"j{number}", ALICE if number % 2 else BOB)
        database.apply([Change(one, "READY" if number < 3 else "ACTIVE")])
    found = database.find("job", {"job_state": ["READY", "ACTIVE"]}, 4)
    assert [row["job_id"] for row in found] == ["j5", "j4", "j3", "j2"]
    found = database.find("job", {"job_state": ["READY", "ACTIVE"], "owner": ["bob"]}, 9)
    assert [row["job_id"] for row in found] == ["j4", "j2", "j0"]
    found = database.find("file", {"file_state": ["ACTIVE"], "owner": ["alice"]}, 1)
    assert [row["job_id"] for row in found] == ["j5"]


def test_a_database_of_an_older_service_is_changed(tmp_path: Path) -> None:
    old = sqlite3.connect(tmp_path / "old.db", isolation_level=None)
    old.executescript(f"BEGIN; {schema._STEPS[0]} PRAGMA user_version = 1; COMMIT;")
    old.execute(
        "INSERT INTO job VALUES ('j', 'alice', '/CN=alice', 'dteam', 'x', 'N', 'SUBMITTED', NULL, "
        "4, NULL, NULL, '{\"queue_seconds\": 5}', 'null', 'd', 1.0, NULL)"
    )
    old.execute(
        "INSERT INTO file (job_id, number, file_index, file_state, source_surl, dest_surl, "
        "source_se, dest_se, source_endpoint, source_path, dest_endpoint, dest_path, "
        "file_metadata, activity, selection_strategy, queued_since) VALUES ('j', 0, 0, "
        "'SUBMITTED', 's', 'd', 's', 'd', 'a', '/data/x', 'b', '/data/x', 'null', 'default', "
        "'auto', 7.0)"
    )
    old.close()
    database = Database(tmp_path / "old.db")
    (row,) = database.due("b", 10)
    assert (row["job_id"], row["stages"], row["disk_path"]) == ("j", 0, None)
    (row,) = database.files("j")
    assert (row["file_priority"], row["queued_until"]) == (4, 12.0)
    database.expire()
    assert state(database) == "CANCELED"
    database.close()
    newer = sqlite3.connect(tmp_path / "old.db")
    newer.execute("PRAGMA user_version = 99")
    newer.close()
    with pytest.raises(sqlite3.DatabaseError, match="newer program"):
        Database(tmp_path / "old.db")


def test_a_staged_file_is_released_when_it_ends(database: Database) -> None:
    one, two = add(database)
    database.apply([Change(one, "STARTED", stage_id="r", staging_start=1.0)])
    assert state(database) == "STAGING"
    database.apply([Change(one, "SUBMITTED", disk_path="/fast/x", staging_finished=2.0)])
    assert database.flagged("to_release", "a", 10) == []
    database.apply([Change(one, "FAILED", "why")])
    assert [row["file_id"] for row in database.flagged("to_release", "a", 10)] == [one]
    database.settled("to_release", one)
    # The pin of a file that was only staged is the purpose of its job.
    database.apply([Change(two, "STARTED", stage_id="r", staging_start=1.0)])
    database.apply([Change(two, "FINISHED", staging_finished=2.0)])
    assert database.flagged("to_release", "a", 10) == []


def test_a_file_that_is_canceled_during_its_stage_request_is_released(database: Database) -> None:
    one, _ = add(database)
    database.cancel("j")
    assert database.flagged("to_release", "a", 10) == []
    database.apply([Change(one, "STARTED", stage_id="r", staging_start=1.0)])
    assert state(database) == "CANCELED"
    (row,) = database.flagged("to_release", "a", 10)
    assert (row["file_id"], row["stage_id"]) == (one, "r")
    # The job stays until its files are released.
    database.settled("to_cancel", one)
    assert database.forget(-1) == 0


def test_files_whose_cancellation_fails_do_not_keep_others_waiting(database: Database) -> None:
    ids = []
    for number in range(5):
        one, _ = add(database, f"j{number}")
        database.cancel(f"j{number}")
        ids.append(one)
    files = Flagged(database, "to_cancel", "b", 2)
    seen = [[row["file_id"] for row in files.next()] for _ in range(4)]
    assert seen == [ids[:2], ids[2:4], ids[4:], ids[:2]]
    for one in ids:
        database.settled("to_cancel", one)
    assert files.next() == []
