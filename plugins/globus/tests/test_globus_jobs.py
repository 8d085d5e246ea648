from __future__ import annotations

import dataclasses
import json
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest

from dray.client import Content, Place, Request, Retry, Scitag, Selection
from dray.errors import DrayError, DrayUsageError
from dray_globus.jobs import Options, job_of
from dray_globus.report import task_of, transfer_of
from dray_globus.sites import SiteMap
from dray_globus.store import FileStore, Record, RecordStore

if TYPE_CHECKING:
    from pathlib import Path

HERE = "globus://11111111-1111-4111-8111-111111111111"
THERE = "globus://22222222-2222-4222-8222-222222222222"
SOON = datetime.now(timezone.utc) + timedelta(hours=1)


def items(
    *sources: str,
    to: str,
    **words: Any,  # noqa: ANN401 - fields of a request
) -> list[tuple[str, str]]:
    request = Request([HERE + source for source in sources], THERE + to, **words)
    return [(item.source, item.destination) for item in job_of(request, SiteMap()).items]


def test_destinations_have_the_name_of_the_file() -> None:
    tree = Selection(recursive=True)
    assert items("/a/f", to="/b/g") == [("/a/f", "/b/g")]
    assert items("/a/f", to="/b/") == [("/a/f", "/b/f")]
    assert items("/a/f", "/a/g", to="/b") == [("/a/f", "/b/f"), ("/a/g", "/b/g")]
    assert items("/a", to="/b", selection=tree) == [("/a", "/b/")]
    assert items("/a", to="/b/", selection=tree) == [("/a", "/b/a/")]
    assert items("/a/", to="/b/", selection=tree) == [("/a/", "/b/")]


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        ({"class_": "deadline"}, "class_ for Globus: the Transfer service has no such option"),
        ({"rate_min": 1}, "rate_min"),
        ({"rate_max": 1}, "rate_max"),
        ({"priority": 1}, "priority"),
        ({"weight": 1}, "weight"),
        ({"not_before": SOON}, "not_before"),
        ({"bytes_expected": 1}, "bytes_expected"),
        ({"durability": "file"}, "durability"),
        ({"resume": "trust"}, "resume"),
        ({"xattrs": True}, "xattrs"),
        ({"stripe": "1"}, "stripe"),
        ({"checksum_attributes": True}, "checksum_attributes"),
        ({"order": "file"}, "order"),
        ({"object_size": 1}, "object_size"),
        ({"streams": 1}, "streams"),
        ({"bind": ["::1"]}, "bind"),
        ({"scitag": Scitag(1, 2)}, "scitag"),
        ({"retry": Retry(tries=1)}, "retry"),
        ({"bound_seconds": 1}, "bound_seconds"),
        ({"replicas": [f"{HERE}/g"]}, "replicas"),
        ({"files_min": 1}, "files_min"),
        ({"selection": Selection(include=["*"])}, "selection.include"),
        ({"selection": Selection(exclude=["*"])}, "selection.exclude"),
        ({"selection": Selection(links="keep")}, "selection.links"),
        ({"admission": "required"}, "Globus promises no deadline"),
        ({"deadline": datetime(2026, 1, 1)}, "no time zone"),  # noqa: DTZ001 - refused
        ({"deadline": datetime(2020, 1, 1, tzinfo=timezone.utc)}, "has passed"),
        ({"id": "a/b"}, "not an id"),
        ({"content": Content(checksum="crc32c:00000000")}, "not a checksum that"),
        ({"content": Content(checksum="md5:00")}, "not a checksum that"),
        ({"content": Content(size=0), "selection": Selection(recursive=True)}, "not one file"),
        ({"sources": []}, "the list is empty"),
        ({"sources": [f"{HERE}/f", f"{THERE}/f"]}, "several collections"),
        ({"sources": [f"{HERE}/a/f", f"{HERE}/b/f"]}, "same name"),
        ({"sources": f"{HERE}/a/"}, "set recursive"),
        ({"sources": Place(f"{HERE}/f", ticket="t")}, "does not use tickets"),
        ({"sources": Place(f"{HERE}/f", size=1)}, "the size in content"),
    ],
)
def test_a_request_that_globus_cannot_do_is_refused(words: dict[str, Any], cause: str) -> None:
    request = Request(**{"sources": f"{HERE}/f", "destination": f"{THERE}/f", **words})
    with pytest.raises(DrayUsageError, match=cause):
        job_of(request, SiteMap())


@pytest.mark.parametrize(
    ("checksums", "cause"),
    [({f"{HERE}/g": "md5:" + "0" * 32}, "is not a source"), ({f"{HERE}/f": "0"}, "not a checksum")],
)
def test_an_invalid_checksum_of_an_item_is_refused(checksums: dict[str, str], cause: str) -> None:
    with pytest.raises(DrayUsageError, match=cause):
        job_of(Request(f"{HERE}/f", f"{THERE}/f"), SiteMap(), Options(checksums=checksums))


def test_the_body_has_the_data_and_not_the_deadline() -> None:
    request = Request(f"{HERE}/f", f"{THERE}/f", id="a")
    body = job_of(request, SiteMap()).body
    later = dataclasses.replace(request, deadline=SOON, id="b")
    assert job_of(later, SiteMap()).body == body
    assert job_of(dataclasses.replace(request, overwrite="always"), SiteMap()).body != body
    assert job_of(request, SiteMap(), Options(preserve_timestamp=True)).body != body


def test_records_are_files_of_the_owner(tmp_path: Path) -> None:
    store = RecordStore(FileStore(tmp_path / "records"))
    record = Record("a/../b", "sub", "body", 3, "task", {"labels": {"x": "y"}}, is_overdue=True)
    assert store.get(record.id) is None
    store.put(record)
    assert store.get(record.id) == record
    (path,) = (tmp_path / "records").iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    store.delete(record.id)
    assert store.get(record.id) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"id": "x"}', '{"unknown": 1}'])
def test_a_damaged_record_is_an_error_and_no_new_submission(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(DrayError) as caught:
        RecordStore(FileStore(tmp_path)).get("x")
    assert caught.value.kind == "log_damaged"
    assert "Globus web app" in str(caught.value)


def test_a_state_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DrayError, match="DRAY_GLOBUS_STATE"):
        RecordStore(FileStore(tmp_path / "file")).put(Record("x", "s", "b"))


def of(**document: Any) -> tuple[str, str | None]:  # noqa: ANN401 - a document
    found = transfer_of(task_of({"task_id": "t", **document}), Record("id", "s", "b"))
    return found.state, None if found.error is None else found.error.kind


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"status": "ACTIVE"}, ("active", None)),
        ({"status": "ACTIVE", "nice_status": "Queued"}, ("queued", None)),
        (
            {"status": "ACTIVE", "nice_status": "PERMISSION_DENIED"},
            ("waiting", "permission_denied"),
        ),
        ({"status": "ACTIVE", "nice_status": "NEW_CODE"}, ("waiting", "other")),
        ({"status": "ACTIVE", "is_paused": True}, ("paused", "unattended")),
        ({"status": "INACTIVE"}, ("paused", "unauthorized")),
        ({"status": "SUCCEEDED"}, ("done", None)),
        ({"status": "SUCCEEDED", "subtasks_skipped_errors": 1}, ("incomplete", "io")),
        ({"status": "FAILED", "subtasks_canceled": 1}, ("cancelled", "cancelled")),
        ({"status": "FAILED", "canceled_by_admin": "DESTINATION"}, ("cancelled", "cancelled")),
        ({"status": "FAILED", "subtasks_expired": 1}, ("failed", "timed_out")),
        ({"status": "FAILED"}, ("failed", "other")),
        ({"status": "FAILED", "fatal_error": {"code": "NO_SPACE_LEFT"}}, ("failed", "no_space")),
        ({"status": "UNHEARD_OF"}, ("failed", "protocol")),
        ({}, ("failed", "protocol")),
    ],
)
def test_states_are_translated(document: dict[str, Any], expected: tuple[str, str]) -> None:
    assert of(**document) == expected


def test_an_unknown_code_keeps_the_words_of_the_service() -> None:
    task = task_of({"status": "ACTIVE", "nice_status": "NEW_CODE", "nice_status_details": "a\n b"})
    assert task.words == "NEW_CODE a b"
    assert json.loads(json.dumps(dataclasses.asdict(task), default=str))["words"] == task.words
