"""Transfers between two collections of the local service."""

from __future__ import annotations

import shutil
import threading
import time
import uuid
import zlib
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

import pytest

import dray_globus
from dray.client import Content, Request, Selection
from dray.errors import DrayError, DrayPermanentError
from dray_globus import GlobusExecutor, Options
from integration.globus import documents
from integration.globus.conftest import HERE, THERE
from integration.globus.service import CLIENT_SECRET, Answer, Fault
from integration.globus.tasks import Behaviour

if TYPE_CHECKING:
    from pathlib import Path

    from dray.client import Transfer
    from integration.globus.conftest import Globus

pytestmark = pytest.mark.server
DATA = bytes(range(256)) * 1024


def write(path: Path, data: bytes = DATA) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def test_a_file_arrives_and_the_submission_has_every_option(globus: Globus) -> None:
    write(globus.here / "run/f.dat")
    deadline = datetime.now(timezone.utc) + timedelta(hours=1)
    executor = globus.executor()
    found = executor.submit(
        globus.request("/run/f.dat", "/in/", id="first", deadline=deadline, clear_data=False),
        Options(
            label="night run",
            preserve_timestamp=True,
            skip_source_errors=True,
            fail_on_quota_errors=False,
            notify_on_failed=True,
            checksums={f"globus://{HERE}/run/f.dat": f"adler32:{zlib.adler32(DATA):08x}"},
        ),
    )
    ended = executor.wait(found.id, 30)
    assert (globus.there / "in/f.dat").read_bytes() == DATA
    assert (ended.state, ended.bytes.durable, ended.files.done) == ("done", len(DATA), 1)
    (asked,) = globus.service.submissions
    expected = {
        "label": "night run",
        "sync_level": 3,
        "verify_checksum": True,
        "preserve_timestamp": True,
        "encrypt_data": True,
        "deadline": deadline.isoformat(timespec="seconds"),
        "skip_source_errors": True,
        "fail_on_quota_errors": False,
        "notify_on_succeeded": False,
        "notify_on_failed": True,
        "notify_on_inactive": False,
    }
    assert {name: asked[name] for name in expected} == expected
    assert asked["DATA"] == [
        {
            "DATA_TYPE": "transfer_item",
            "source_path": "/run/f.dat",
            "destination_path": "/in/f.dat",
            "recursive": False,
            "external_checksum": f"{zlib.adler32(DATA):08x}",
            "checksum_algorithm": "ADLER32",
        }
    ]
    assert [each.path for each in executor.files("first")] == ["/in/f.dat"]


def test_copy_moves_a_tree_with_strange_names(
    globus: Globus, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["a b", "100%", "a#b", "c+d", "x%20y", "\u00e9t\u00e9", "q?=&"]
    for name in names:
        write(globus.here / "tree" / name, name.encode())
    for name, value in {
        "CLIENT_ID": globus.settings().client_id,
        "CLIENT_SECRET": CLIENT_SECRET,
        "BASE_URL": globus.service.url,
        "AUTH_URL": globus.service.url,
        "STATE": str(globus.state),
    }.items():
        monkeypatch.setenv(f"DRAY_GLOBUS_{name}", str(value))
    ended = dray_globus.copy(
        f"globus://{HERE}/tree",
        f"globus://{THERE}/copies/",
        selection=Selection(recursive=True),
    )
    found = {path.name: path.read_bytes() for path in (globus.there / "copies/tree").iterdir()}
    assert found == {name: name.encode() for name in names}
    assert ended.files.done == len(names)
    single = dray_globus.copy(
        f"globus://{HERE}/tree/x%2520y", f"globus://{THERE}/copies/100%25 a%23b"
    )
    assert single.state == "done"
    assert (globus.there / "copies/100% a#b").read_bytes() == b"x%20y"


@pytest.mark.parametrize(
    ("overwrite", "kept", "counts"),
    [("never", b"other", (1, 0)), ("if-different", DATA, (0, 0)), ("always", DATA, (0, 0))],
)
def test_an_existing_file_with_another_checksum(
    globus: Globus, overwrite: str, kept: bytes, counts: tuple[int, int]
) -> None:
    write(globus.here / "f")
    write(globus.there / "f", b"other")
    executor = globus.executor()
    id = executor.submit(globus.request("/f", "/f", overwrite=overwrite)).id
    ended = executor.wait(id, 30)
    assert (globus.there / "f").read_bytes() == kept
    assert (ended.files.skipped, ended.files.adopted) == counts


def test_an_equal_file_is_not_sent_again(globus: Globus) -> None:
    write(globus.here / "f")
    write(globus.there / "f")
    executor = globus.executor()
    ended = executor.wait(executor.submit(globus.request("/f", "/f")).id, 30)
    assert (ended.files.adopted, ended.bytes.sent) == (1, 0)


def test_a_wrong_size_is_refused_before_the_submission(globus: Globus) -> None:
    write(globus.here / "f")
    with pytest.raises(DrayPermanentError, match=f"has {len(DATA)} bytes.*expects 7") as caught:
        globus.executor().submit(globus.request("/f", "/f", content=Content(size=7)))
    assert caught.value.kind == "source_changed"
    assert globus.service.submissions == []


# --- one task for one id ------------------------------------------------------------------------


def test_a_repeat_after_a_lost_answer_finds_the_same_task(globus: Globus) -> None:
    write(globus.here / "f")
    # No retry of the SDK: the caller is killed between the submission and the answer.
    globus.service.faults.append(Fault("POST /v0.10/transfer", is_done=True))
    request = globus.request("/f", "/f", id="night")
    with pytest.raises(DrayError) as caught:
        globus.executor(tries=0).submit(request)
    assert caught.value.status == "temporary"
    again = globus.executor().submit(request)
    assert again.attached
    assert len(globus.service.tasks) == 1
    assert globus.executor().wait("night", 30).state == "done"
    assert globus.executor().submit(request).attached
    assert len(globus.service.submissions) == 1


def test_another_request_of_a_live_id_is_refused(globus: Globus) -> None:
    write(globus.here / "f")
    globus.service.behaviour = Behaviour(paused=threading.Event())
    globus.executor().submit(globus.request("/f", "/f", id="night"))
    with pytest.raises(DrayPermanentError, match="another request has not ended") as caught:
        globus.executor().submit(globus.request("/f", "/g", id="night"))
    assert caught.value.kind == "already_exists"


def test_a_failed_task_is_submitted_again_as_a_new_attempt(globus: Globus) -> None:
    executor = globus.executor()
    request = globus.request("/f", "/f", id="night")
    executor.submit(request)
    ended = executor.wait("night", 30)
    assert ended.error is not None
    assert (ended.state, ended.error.kind) == ("failed", "not_found")
    write(globus.here / "f")
    assert executor.submit(request).attempt == 2
    assert executor.wait("night", 30).state == "done"


def test_a_forgotten_task_is_named_and_can_be_submitted_again(globus: Globus) -> None:
    write(globus.here / "f")
    executor = globus.executor()
    request = globus.request("/f", "/f", id="night")
    executor.submit(request)
    executor.wait("night", 30)
    globus.service.forget(next(iter(globus.service.tasks)))
    with pytest.raises(DrayPermanentError, match="does not know this task any more") as caught:
        executor.transfer("night")
    assert caught.value.kind == "not_found"
    assert executor.query(["night", "unknown"]) == {"night": None, "unknown": None}
    assert not executor.submit(request).attached
    assert executor.wait("night", 30).files.adopted == 1


# --- faults of the service ----------------------------------------------------------------------


def test_retry_after_is_honoured(globus: Globus) -> None:
    write(globus.here / "f")
    globus.service.busy("POST /v0.10/transfer", seconds=2)
    executor = globus.executor()
    begun = time.monotonic()
    executor.submit(globus.request("/f", "/f", id="night"))
    assert time.monotonic() - begun >= 2
    assert globus.service.calls.count("POST /v0.10/transfer") == 2


def test_a_service_that_stays_busy_is_a_temporary_error(globus: Globus) -> None:
    globus.service.busy("submission_id", seconds=0, count=99, status=503)
    with pytest.raises(DrayError, match="503") as caught:
        globus.executor(tries=1).submit(globus.request("/f", "/f"))
    assert (caught.value.kind, caught.value.status) == ("busy", "temporary")
    assert caught.value.retry_after_seconds == 0


def test_an_expired_token_is_renewed_in_the_middle(globus: Globus) -> None:
    write(globus.here / "f")
    go = threading.Event()
    globus.service.behaviour = Behaviour(paused=go)
    executor = globus.executor()
    id = executor.submit(globus.request("/f", "/f")).id
    globus.service.expire_tokens()
    assert executor.transfer(id).state == "paused"
    go.set()
    assert executor.wait(id, 30).state == "done"
    assert globus.service.calls.count("POST /v2/oauth2/token") == 2


def test_a_wrong_secret_is_reported_with_the_remedy(globus: Globus) -> None:
    with pytest.raises(DrayPermanentError, match="DRAY_GLOBUS_CLIENT_SECRET") as caught:
        globus.executor(client_secret="wrong").submit(globus.request("/f", "/f"))  # noqa: S106
    assert caught.value.kind == "unauthorized"
    assert "wrong" not in str(caught.value)


def test_an_unknown_collection_is_named(globus: Globus) -> None:
    unknown = str(uuid.uuid4())
    request = Request(f"globus://{unknown}/f", f"globus://{THERE}/f", id="night")
    with pytest.raises(DrayPermanentError, match=unknown) as caught:
        globus.executor().submit(request)
    assert caught.value.kind == "not_found"
    # The service has refused the submission, so the next one begins anew.
    write(globus.here / "f")
    assert globus.executor().submit(globus.request("/f", "/f", id="night")).attempt == 1


def test_a_collection_that_denies_access(globus: Globus) -> None:
    globus.service.denied.add(THERE)
    with pytest.raises(DrayPermanentError, match="no permission on the collection") as caught:
        globus.executor().submit(globus.request("/f", "/f"))
    assert caught.value.kind == "permission_denied"


def test_a_task_of_another_user_is_neither_shown_nor_cancelled(globus: Globus) -> None:
    write(globus.here / "f")
    executor = globus.executor()
    executor.wait(executor.submit(globus.request("/f", "/f")).id, 30)
    (task,) = globus.service.tasks.values()
    task.owner = "another"
    for call in (executor.transfer, executor.cancel):
        with pytest.raises(DrayPermanentError, match="does not own this task") as caught:
            call(task.id)
        assert caught.value.kind == "permission_denied"


# --- states -------------------------------------------------------------------------------------


def test_an_inactive_task_is_reported_with_the_remedy(globus: Globus) -> None:
    write(globus.here / "f")
    go = threading.Event()
    globus.service.behaviour = Behaviour(inactive=go)
    executor = globus.executor()
    id = executor.submit(globus.request("/f", "/f")).id
    found = _until(executor, id, "paused")
    assert found.error is not None
    assert found.error.kind == "unauthorized"
    assert "log in to the collection in the Globus web app" in found.error.message
    go.set()
    assert executor.wait(id, 30).state == "done"


def test_a_paused_task_has_the_message_of_the_pause_rule(globus: Globus) -> None:
    write(globus.here / "f")
    globus.service.behaviour = Behaviour(paused=threading.Event())
    executor = globus.executor()
    id = executor.submit(globus.request("/f", "/f")).id
    found = _until(executor, id, "paused")
    assert "the tape library is under maintenance" in str(found.error)
    assert executor.task(id).pauses == ("the tape library is under maintenance",)


def test_faults_are_counted_and_described(globus: Globus) -> None:
    write(globus.here / "f")
    globus.service.behaviour = Behaviour(faults=3)
    executor = globus.executor()
    ended = executor.wait(executor.submit(globus.request("/f", "/f")).id, 30)
    assert "retried 3 faults" in ended.notices[0]
    assert "CONNECTION_FAILED: the server reset the connection" in ended.notices[0]


@pytest.mark.parametrize(
    ("behaviour", "kind", "status"),
    [
        (Behaviour(corrupts=True), "checksum_mismatch", "permanent"),
        (Behaviour(quota_bytes=1000), "no_space", "temporary"),
    ],
)
def test_a_failed_task_has_its_cause(
    globus: Globus, behaviour: Behaviour, kind: str, status: str
) -> None:
    write(globus.here / "f")
    globus.service.behaviour = behaviour
    executor = globus.executor()
    ended = executor.wait(executor.submit(globus.request("/f", "/f")).id, 30)
    assert ended.state == "failed"
    assert ended.error is not None
    assert (ended.error.kind, ended.error.status) == (kind, status)


def test_a_wrong_checksum_fails(globus: Globus) -> None:
    write(globus.here / "f")
    executor = globus.executor()
    request = globus.request("/f", "/f", content=Content(checksum="adler32:00000001"))
    ended = executor.wait(executor.submit(request).id, 30)
    assert ended.error is not None
    assert ended.error.kind == "checksum_mismatch"
    assert not (globus.there / "f").exists()


def test_skipped_source_errors_make_the_transfer_incomplete(globus: Globus) -> None:
    write(globus.here / "f")
    executor = globus.executor()
    request = Request(
        [f"globus://{HERE}/f", f"globus://{HERE}/missing"], f"globus://{THERE}/in/", id="night"
    )
    executor.submit(request, Options(skip_source_errors=True))
    ended = executor.wait("night", 30)
    assert (ended.state, ended.files.failed) == ("incomplete", 1)
    (failed,) = executor.files("night", "failed")
    assert failed.path == "/missing"
    assert "FILE_NOT_FOUND" in str(failed.error)


def test_cancel_ends_a_task_and_a_repeat_resumes(globus: Globus) -> None:
    write(globus.here / "f")
    globus.service.behaviour = Behaviour(pause_seconds=5)
    executor = globus.executor()
    request = globus.request("/f", "/f", id="night")
    executor.submit(request)
    executor.cancel("night")
    ended = executor.wait("night", 30)
    assert ended.error is not None
    assert (ended.state, ended.error.kind) == ("cancelled", "cancelled")
    globus.service.behaviour = Behaviour()
    assert executor.submit(request).attempt == 2
    assert executor.wait("night", 30).state == "done"
    assert executor.cancel("night").state == "done"


def test_the_service_keeps_a_deadline(globus: Globus) -> None:
    write(globus.here / "f")
    globus.service.behaviour = Behaviour(pause_seconds=0.5)
    executor = globus.executor()
    deadline = datetime.now(timezone.utc) + timedelta(seconds=1.5)
    ended = executor.wait(executor.submit(globus.request("/f", "/f", deadline=deadline)).id, 30)
    assert ended.error is not None
    assert (ended.state, ended.error.kind) == ("failed", "timed_out")
    assert ended.error.status == "permanent"


def test_the_executor_cancels_a_task_whose_deadline_the_service_does_not_keep(
    globus: Globus,
) -> None:
    write(globus.here / "f")
    globus.service.behaviour = Behaviour(paused=threading.Event())
    deadline = datetime.now(timezone.utc) + timedelta(hours=1)
    globus.executor().submit(globus.request("/f", "/f", id="night", deadline=deadline))
    late = GlobusExecutor(globus.settings(), clock=lambda: deadline, sleep=lambda _: None)
    ended = late.wait("night", 30)
    assert ended.error is not None
    assert (ended.state, ended.error.kind) == ("failed", "timed_out")
    assert "the deadline passed" in str(ended.error)
    (found,) = globus.executor().query(["night"]).values()
    assert found is not None
    assert found.error is not None
    assert found.error.kind == "timed_out"


def test_wait_ends_at_its_timeout_and_the_task_continues(globus: Globus) -> None:
    write(globus.here / "f")
    globus.service.behaviour = Behaviour(paused=threading.Event())
    executor = globus.executor()
    id = executor.submit(globus.request("/f", "/f")).id
    with pytest.raises(DrayError, match="the task continues") as caught:
        executor.wait(id, 0.2)
    assert caught.value.kind == "timed_out"
    assert not executor.transfer(id).is_terminal


def test_a_query_of_many_transfers_is_one_call(globus: Globus) -> None:
    write(globus.here / "f")
    executor = globus.executor()
    ids = [executor.submit(globus.request("/f", f"/f{n}")).id for n in range(5)]
    for id in ids:
        executor.wait(id, 30)
    globus.service.calls.clear()
    found = executor.query(ids)
    assert [transfer.state for transfer in found.values() if transfer] == ["done"] * 5
    assert globus.service.calls == ["GET /v0.10/task_list"]
    # Another program knows only the ids of the tasks.
    tasks = [executor.task_id(id) for id in ids]
    shutil.rmtree(globus.state)
    by_task = globus.executor().query(tasks)
    assert {id: each and each.state for id, each in by_task.items()} == dict.fromkeys(tasks, "done")


def test_a_task_that_the_list_does_not_contain_yet_is_found(globus: Globus) -> None:
    write(globus.here / "f")
    executor = globus.executor()
    executor.wait(executor.submit(globus.request("/f", "/f", id="night")).id, 30)
    empty = documents.listing("task_list", [], length=0, limit=1000, offset=0, total=0)
    globus.service.faults.append(Fault("task_list", Answer(200, empty)))
    (found,) = executor.query(["night"]).values()
    assert found is not None
    assert found.state == "done"


def test_a_site_map_moves_a_root_of_an_endpoint(globus: Globus, tmp_path: Path) -> None:
    write(globus.here / "export/data/run/a b.dat")
    sites = tmp_path / "sites.toml"
    sites.write_text(
        f'[[site]]\nroot = "dray://dtn1.example.org/data"\ncollection = "{HERE}"\n'
        'path = "/export/data"\n'
    )
    executor = globus.executor(sites=sites)
    request = Request(
        "dray://dtn1.example.org:4735/data/run/a%20b.dat", f"globus://{THERE}/in/", id="night"
    )
    executor.submit(request)
    assert executor.wait("night", 30).state == "done"
    assert (globus.there / "in/a b.dat").read_bytes() == DATA


def _until(executor: GlobusExecutor, id: str, state: str) -> Transfer:
    for _ in range(200):
        found = executor.transfer(id)
        if found.state == state:
            return found
        time.sleep(0.02)
    raise AssertionError(f"transfer {id} is {found.state}, not {state}")
