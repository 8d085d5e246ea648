from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from dray_fts.database import Change, Database, JobExistsError
from dray_fts.jobs import parse
from dray_fts.people import Person
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
