"""Jobs of the FTS service with real endpoints, by plain calls."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
import zlib
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from integration.fts.face import Face

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]


def make(face: Face, name: str, size: int = 100_000, end: str = "a") -> bytes:
    """Write a file at an endpoint."""
    content = os.urandom(size)
    path = face.ends[end].root(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return content


def pair(name: str, to: str | None = None, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of FTS
    """Describe a copy from ``a`` to ``b``."""
    return {
        "sources": [f"davs://a.example/{name}"],
        "destinations": [f"davs://b.example/{to or name}"],
        **more,
    }


def arrived(face: Face, name: str, end: str = "b") -> Path:
    return face.ends[end].root(name)


def test_a_file_is_copied_to_finished(face: Face) -> None:
    content = make(face, "one")
    sum = f"ADLER32:{zlib.adler32(content):08x}"
    files = [pair("one", checksum=sum, filesize=len(content), metadata={"k": [1]}, activity="x")]
    job_id = face.submit(files, verify_checksum="both", job_metadata={"issuer": "me"})
    job = face.wait(job_id)
    assert job["job_state"] == "FINISHED", job
    assert (job["job_type"], job["reason"], job["vo_name"]) == ("N", None, "dteam")
    assert job["job_metadata"] == {"issuer": "me"}
    assert (job["source_se"], job["dest_se"]) == ("davs://a.example", "davs://b.example")
    (file,) = job["files"]
    assert (file["file_state"], file["filesize"]) == ("FINISHED", len(content))
    assert file["file_metadata"] == {"k": [1]}
    assert file["start_time"] <= file["finish_time"] <= job["job_finished"]
    assert arrived(face, "one").read_bytes() == content
    with face.ends["b"].client() as client:
        transfer = client.transfer(f"{job_id}.0")
    assert transfer.request["content"]["checksum"] == sum.lower()
    assert transfer.request["activity"] == "x"


def test_a_wrong_checksum_fails_with_a_reason(face: Face) -> None:
    make(face, "wrong")
    job = face.wait(
        face.submit(
            [pair("wrong", checksum="ADLER32:deadbeef")], verify_checksum="target", retry=-1
        )
    )
    assert job["job_state"] == "FAILED"
    assert job["reason"].startswith("One or more files failed")
    assert "checksum mismatch" in job["files"][0]["reason"]
    assert not arrived(face, "wrong").exists()


def test_a_missing_source_fails_with_a_reason(face: Face) -> None:
    job = face.wait(face.submit([pair("missing")]))
    assert job["job_state"] == "FAILED"
    reason = job["files"][0]["reason"]
    assert reason.startswith("SOURCE [2]"), reason


def test_existing_files_are_overwritten_only_on_request(face: Face) -> None:
    content = make(face, "there")
    make(face, "there", 50_000, end="b")
    old = arrived(face, "there").read_bytes()
    several: list[dict[str, Any]] = [{}, {"overwrite_on_retry": True, "retry": 1}]
    for more in several:
        job = face.wait(
            face.submit([pair("there", metadata={"a": 1})], dst_file_report=True, **more)
        )
        assert job["job_state"] == "FAILED"
        file = job["files"][0]
        assert "Destination file exists and overwrite is not enabled" in file["reason"]
        assert file["file_metadata"]["dst_file"] == {
            "file_size": 50_000,
            "checksum_type": "ADLER32",
            "checksum_value": f"{zlib.adler32(old):08x}",
            "file_on_tape": False,
            "file_on_disk": True,
        }
        assert arrived(face, "there").read_bytes() == old
    assert face.wait(face.submit([pair("there")], overwrite=True))["job_state"] == "FINISHED"
    assert arrived(face, "there").read_bytes() == content


def test_alternatives_are_tried_in_order(face: Face) -> None:
    content = make(face, "second")
    sources = [f"davs://a.example/{name}" for name in ("first", "second", "third")]
    file = {"sources": sources, "destinations": ["davs://b.example/second"]}
    job = face.wait(face.submit([file]))
    assert (job["job_state"], job["job_type"]) == ("FINISHED", "R")
    states = [each["file_state"] for each in job["files"]]
    assert states == ["FAILED", "FINISHED", "NOT_USED"]
    assert arrived(face, "second").read_bytes() == content
    file["destinations"] = ["davs://b.example/third"]
    file["sources"] = [sources[0], sources[2]]
    job = face.wait(face.submit([file]))
    assert job["job_state"] == "FAILED"
    assert [each["file_state"] for each in job["files"]] == ["FAILED", "FAILED"]


def test_hops_follow_each_other(face: Face) -> None:
    content = make(face, "hop")
    hops = [
        pair("hop"),
        {"sources": ["davs://b.example/hop"], "destinations": ["davs://a.example/x/hop"]},
    ]
    job = face.wait(face.submit(hops, multihop=True))
    assert (job["job_state"], job["job_type"]) == ("FINISHED", "H")
    assert arrived(face, "x/hop", "a").read_bytes() == content
    first, second = job["files"]
    assert first["finish_time"] <= second["finish_time"]
    # The last hop must not overwrite, and the first may.
    job = face.wait(face.submit(hops, multihop=True, overwrite_hop=True))
    assert job["job_state"] == "FAILED"
    assert [each["file_state"] for each in job["files"]] == ["FINISHED", "FAILED"]
    hops[0]["sources"] = ["davs://a.example/no-hop"]
    job = face.wait(face.submit(hops, multihop=True, overwrite=True))
    assert job["job_state"] == "FAILED"
    assert [each["file_state"] for each in job["files"]] == ["FAILED", "NOT_USED"]


def test_some_files_fail(face: Face) -> None:
    make(face, "good")
    job = face.wait(face.submit([pair("good"), pair("bad")], reuse=True))
    assert (job["job_state"], job["job_type"]) == ("FINISHEDDIRTY", "Y")
    assert [each["file_state"] for each in job["files"]] == ["FINISHED", "FAILED"]


def slow(face: Face, *names: str) -> None:
    """Write files that take long to copy."""
    for name in names:
        make(face, name, 64 << 20)


def test_jobs_and_files_are_canceled(face: Face) -> None:
    slow(face, "c1", "c2")
    face.ends["a"].suspend()
    try:
        job_id = face.submit([pair("c1"), pair("c2")])
        files = face.ask("GET", f"/jobs/{job_id}/files").json
        answer = face.ask("DELETE", f"/jobs/{job_id}/files/{files[0]['file_id']}")
        assert (answer.code, answer.json) == (200, "CANCELED")
        answer = face.ask("DELETE", f"/jobs/{job_id}/files/{files[0]['file_id']},999999")
        assert answer.code == 404
        job = face.ask("GET", f"/jobs/{job_id}").json
        assert job["job_state"] in ("ACTIVE", "SUBMITTED", "READY")
        answer = face.ask("DELETE", f"/jobs/{job_id},no-such-job")
        assert answer.code == 207
        assert [each["http_status"] for each in answer.json] == ["200 Ok", "404 Not Found"]
        assert answer.json[0]["job_state"] == "CANCELED"
    finally:
        face.ends["a"].resume()
    job = face.wait(job_id)
    assert all("canceled by the user" in each["reason"] for each in job["files"])
    until = time.monotonic() + 60
    with face.ends["b"].client() as client:
        for number in range(2):
            while (found := client.query([f"{job_id}.{number}"])[f"{job_id}.{number}"]) is not None:
                if found.state == "cancelled":
                    break
                assert time.monotonic() < until, found
                time.sleep(0.1)
    assert not arrived(face, "c1").exists()
    # An ended job stays as it is.
    assert face.ask("DELETE", f"/jobs/{job_id}").json["job_state"] == "CANCELED"


def test_the_priority_reaches_the_endpoint(face: Face) -> None:
    make(face, "p")
    face.ends["b"].kill()
    try:
        job_id = face.submit([pair("p")], priority=2)
        answer = face.ask("POST", f"/jobs/{job_id}", {"params": {"priority": 5}})
        assert (answer.code, answer.json["priority"]) == (200, 5)
        assert "priority 5" in answer.json["http_message"]
        assert face.ask("POST", f"/jobs/{job_id}", {"params": {"retry": 5}}).code == 400
    finally:
        face.ends["b"].start()
    face.wait(job_id)
    with face.ends["b"].client() as client:
        assert client.transfer(f"{job_id}.0").request["priority"] == 5


def test_lists_and_fields(face: Face) -> None:
    make(face, "list")
    job_id = face.submit([pair("list")])
    face.wait(job_id)

    def ids(query: str) -> list[str]:
        return [each["job_id"] for each in face.ask("GET", f"/jobs{query}").json]

    assert job_id not in ids("")
    assert job_id in ids("?state_in=FINISHED&limit=1")
    assert ids("?state_in=FINISHED,FINISHED") == ids("?state_in=FINISHED")
    assert job_id in ids(
        "?state_in=FINISHED,FAILED&vo_name=dteam&time_window=1&source_se=davs://a.example"
    )
    assert ids("?state_in=FINISHED&dest_se=davs://c.example") == []
    assert face.ask("GET", "/jobs?state_in=DONE").code == 400
    assert face.ask("GET", "/jobs?limit=0").code == 400
    assert face.ask("GET", f"/jobs/{job_id}/job_state").json == "FINISHED"
    assert face.ask("GET", f"/jobs/{job_id}/nothing").code == 404
    (file,) = face.ask("GET", f"/jobs/{job_id}/files").json
    assert file["tx_duration"] >= 0
    retries = f"/jobs/{job_id}/files/{file['file_id']}/retries"
    assert face.ask("GET", retries).json == []
    assert face.ask("GET", f"/jobs/{job_id}/dm").json == []
    found = face.ask("GET", "/files?state_in=FINISHED&limit=1").json
    assert [each["file_id"] for each in found] == [file["file_id"]]
    missing = face.ask("GET", f"/jobs/{job_id},none?files=file_state")
    assert missing.code == 207
    assert missing.json[0]["files"] == [{"file_state": "FINISHED"}]
    assert missing.json[1] == {
        "job_id": "none",
        "http_status": "404 Not Found",
        "http_message": 'No job with the id "none" has been found',
    }
    missing = face.ask("GET", "/jobs/none?files=file_state")
    assert (missing.code, missing.json["http_status"]) == (404, "404 Not Found")


def test_a_repeated_submission_is_the_same_job(face: Face) -> None:
    make(face, "again")
    words = {"id_generator": "deterministic", "sid": "seed-1"}
    first = face.submit([pair("again")], **words)
    assert face.submit([pair("again")], **words) == first
    other = face.ask("POST", "/jobs", {"files": [pair("other")], "params": words})
    assert (other.code, other.json["message"]) == (409, f"The job with id {first} already exists")
    assert face.wait(first)["job_state"] == "FINISHED"


def test_two_hundred_jobs(face: Face) -> None:
    contents = {f"many/{number}": make(face, f"many/{number}", 1000) for number in range(200)}
    began = time.monotonic()
    ids = [face.submit([pair(name)]) for name in contents]
    submitted = time.monotonic() - began
    assert {face.wait(job_id)["job_state"] for job_id in ids} == {"FINISHED"}
    print(f"200 jobs: submitted in {submitted:.1f} s, done after {time.monotonic() - began:.1f} s")
    for name, content in contents.items():
        assert arrived(face, name).read_bytes() == content


def test_a_killed_service_loses_nothing_and_copies_nothing_twice(face: Face) -> None:
    contents = {f"kill/{number}": make(face, f"kill/{number}", 300_000) for number in range(60)}
    ids = []
    for number, name in enumerate(contents):
        ids.append(face.submit([pair(name)]))
        if number % 20 == 19:
            face.kill()
            face.start()
    assert {face.wait(job_id)["job_state"] for job_id in ids} == {"FINISHED"}
    with face.ends["b"].client() as client:
        found = client.query([f"{job_id}.0" for job_id in ids])
    for transfer in found.values():
        assert transfer is not None
        assert (transfer.attempt, transfer.bytes.sent, transfer.bytes.adopted) == (1, 300_000, 0)
    for name, content in contents.items():
        assert arrived(face, name).read_bytes() == content


def test_a_submission_that_the_service_did_not_record_is_found_again(face: Face) -> None:
    """A kill between the submission of a transfer and its commit leaves the file SUBMITTED."""
    content = make(face, "window")
    job_id = face.submit([pair("window")])
    face.wait(job_id)
    face.kill()
    with contextlib.closing(sqlite3.connect(face.folder / "state" / "fts.db")) as db, db:
        db.execute(
            "UPDATE file SET file_state = 'SUBMITTED', finish_time = NULL WHERE job_id = ?",
            (job_id,),
        )
        db.execute(
            "UPDATE job SET job_state = 'SUBMITTED', job_finished = NULL WHERE job_id = ?",
            (job_id,),
        )
    face.start()
    assert face.wait(job_id)["job_state"] == "FINISHED"
    with face.ends["b"].client() as client:
        transfer = client.transfer(f"{job_id}.0")
    assert (transfer.attempt, transfer.bytes.sent) == (1, len(content))


def test_a_file_waits_for_an_endpoint(face: Face) -> None:
    content = make(face, "later")
    face.ends["b"].kill()
    try:
        job_id = face.submit([pair("later")])
        until = time.monotonic() + 60
        while not face.ask("GET", f"/jobs/{job_id}/files").json[0]["recoverable"]:
            assert time.monotonic() < until, face.said()
            time.sleep(0.1)
        assert face.ask("GET", f"/jobs/{job_id}").json["job_state"] == "SUBMITTED"
    finally:
        face.ends["b"].start()
    assert face.wait(job_id)["job_state"] == "FINISHED"
    assert arrived(face, "later").read_bytes() == content


def test_an_unreachable_source_is_left_for_an_alternative(face: Face) -> None:
    content = make(face, "local", end="b")
    sources = ["davs://a.example/local", "davs://b.example/local"]
    face.ends["a"].kill()
    try:
        began = time.monotonic()
        job = face.wait(
            face.submit([{"sources": sources, "destinations": ["davs://b.example/to/local"]}])
        )
        taken = time.monotonic() - began
    finally:
        face.ends["a"].start()
    assert job["job_state"] == "FINISHED", job
    assert [each["file_state"] for each in job["files"]] == ["FAILED", "FINISHED"]
    assert job["files"][0]["reason"].startswith("SOURCE [113]"), job
    assert taken < 20
    assert arrived(face, "to/local").read_bytes() == content


def test_a_suspended_endpoint_delays_no_other(face: Face) -> None:
    make(face, "way", end="b")
    make(face, "back")
    face.ends["b"].suspend()
    try:
        stuck = face.submit([pair("back")])
        began = time.monotonic()
        local = {
            "sources": ["davs://a.example/back"],
            "destinations": ["davs://a.example/to/back"],
        }
        assert face.wait(face.submit([local]))["job_state"] == "FINISHED"
        assert time.monotonic() - began < 10
    finally:
        face.ends["b"].resume()
    assert face.wait(stuck, 120)["job_state"] == "FINISHED"


def test_files_that_wait_too_long_are_canceled(face: Face) -> None:
    make(face, "expired")
    face.ends["b"].kill()
    try:
        job = face.wait(face.submit([pair("expired")], max_time_in_queue="1s"))
    finally:
        face.ends["b"].start()
    assert job["job_state"] == "CANCELED"
    assert job["files"][0]["reason"] == "The transfer has been staying too long in the queue"


def test_the_service_ends_on_a_signal(face: Face) -> None:
    job_id = face.submit([pair("none-such")])
    assert face.stop() == 0
    face.start()
    assert face.wait(job_id)["job_state"] == "FAILED"
