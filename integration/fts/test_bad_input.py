"""Unusual and wrong input: expired tokens, large metadata, strange names, existing destinations."""

from __future__ import annotations

import time
import zlib
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from integration.fts.test_jobs import arrived, make, pair

if TYPE_CHECKING:
    from integration.fts.face import Face

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

WRITE = ("storage.create:/", "storage.modify:/")
NAMES = ("a b", "50%", "a#b", "a+b", "ü€漢", "%41", "a?b", "a;b=c&d", "'quoted\"", "a\\b")


@pytest.mark.full
def test_a_token_that_expires_ends_no_job(face: Face) -> None:
    content = make(face, "bad/expiring", 64 << 20)
    a, b = face.ends["a"], face.ends["b"]
    reads = a.token("storage.read:/", lifetime="4s")
    writes = b.token(*WRITE, lifetime="4s")
    tokens = {"source_tokens": [reads], "destination_tokens": [writes]}
    body = {"files": [{**pair("bad/expiring"), **tokens}]}
    answer = face.ask("POST", "/jobs", body, token=reads)
    assert answer.code == 200, answer
    b.kill()
    job_id = answer.json["job_id"]
    # Endpoints accept a token for a minute after it has expired.
    time.sleep(66)
    refused = face.ask("GET", f"/jobs/{job_id}", token=reads)
    assert refused.code == 401
    assert "cannot check the token" in refused.json["message"]
    assert face.ask("POST", "/jobs", body, token=reads).code == 401
    b.start()
    # The service copies with its own credentials, so the job does not depend on the token.
    assert face.wait(job_id)["job_state"] == "FINISHED"
    assert arrived(face, "bad/expiring").read_bytes() == content


def test_metadata_of_a_mebibyte_is_refused(face: Face) -> None:
    blob = {"k": "x" * (1 << 20)}
    for body, name in (
        ({"files": [pair("x")], "params": {"job_metadata": blob}}, "job_metadata"),
        ({"files": [pair("x", metadata=blob)]}, "files[0].metadata"),
        ({"files": [pair("x", staging_metadata=blob)]}, "files[0].staging_metadata"),
    ):
        answer = face.ask("POST", "/jobs", body)
        assert answer.code == 400
        assert f"{name} has 1048585 bytes, but at most 65536 are stored" in answer.json["message"]
    largest = {"k": "x" * (65536 - 9)}
    make(face, "bad/large")
    job = face.wait(face.submit([pair("bad/large", metadata=largest)], job_metadata=largest))
    assert (job["job_state"], job["job_metadata"]) == ("FINISHED", largest)
    assert job["files"][0]["file_metadata"] == largest


def test_strange_names_are_copied(face: Face) -> None:
    contents = {name: make(face, f"bad/{name}") for name in NAMES}
    job = face.wait(face.submit([pair(f"bad/{quote(name)}") for name in NAMES]))
    assert job["job_state"] == "FINISHED", job
    for name, content in contents.items():
        assert arrived(face, f"bad/{name}").read_bytes() == content
    urls = [each["source_surl"] for each in job["files"]]
    assert urls == [f"davs://a.example/bad/{quote(name)}" for name in NAMES]
    # Characters that need no escape may come without one.
    plain = ["a b", "a+b", "ü€漢"]
    job = face.wait(face.submit([pair(f"bad/{name}", f"bad/2/{name}") for name in plain]))
    assert job["job_state"] == "FINISHED", job
    for name in plain:
        assert arrived(face, f"bad/2/{name}").read_bytes() == contents[name]
    for name in ("a#b", "a?b"):
        answer = face.ask("POST", "/jobs", {"files": [pair(f"bad/{name}")]})
        assert answer.code == 400
        assert "has a query or a fragment" in answer.json["message"]


def test_names_outside_of_a_root_are_refused(face: Face) -> None:
    for name in ("../x", "a/../../x", "%2e%2e/x", "a/%2E%2E/%2e%2e/x", "a%00b"):
        answer = face.ask("POST", "/jobs", {"files": [pair(name)]})
        if answer.code == 200:
            # The endpoint refuses the name.
            job = face.wait(answer.json["job_id"])
            assert job["job_state"] == "FAILED", (name, job)
        else:
            assert answer.code == 400, name


def test_a_destination_with_another_checksum_is_kept(face: Face) -> None:
    content = make(face, "bad/there")
    make(face, "bad/there", end="b")
    old = arrived(face, "bad/there").read_bytes()
    assert len(old) == len(content)
    files = [pair("bad/there", checksum=f"ADLER32:{zlib.adler32(content):08x}")]
    job = face.wait(face.submit(files, verify_checksum="both"))
    assert job["job_state"] == "FAILED"
    reason = "DESTINATION [17] Destination file exists and overwrite is not enabled"
    assert job["files"][0]["reason"] == reason
    assert arrived(face, "bad/there").read_bytes() == old
    job = face.wait(face.submit(files, verify_checksum="both", overwrite=True))
    assert job["job_state"] == "FINISHED"
    assert arrived(face, "bad/there").read_bytes() == content
