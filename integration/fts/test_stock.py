"""The stock client of FTS (``fts3`` 3.14) with the service and real endpoints."""

from __future__ import annotations

import json
import time
import zlib
from typing import TYPE_CHECKING

import pytest

from integration.fts.face import run_client
from integration.fts.test_jobs import arrived, make, pair, slow

if TYPE_CHECKING:
    from pathlib import Path

    from integration.fts.face import Face

pytestmark = [
    pytest.mark.server,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("stock_client"),
]

A, B = "davs://a.example", "davs://b.example"


def said(face: Face, program: str, *words: str | Path, user: str = "alice") -> str:
    """Run a program that must succeed. Return its output."""
    done = face.run(program, *words, user=user)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{face.said()}"
    return done.stdout.strip()


def test_whoami_and_delegate(face: Face) -> None:
    lines = said(face, "fts-rest-whoami").splitlines()
    assert "User DN: /DC=org/DC=dray/CN=alice" in lines
    assert "VO: dteam" in lines
    id = next(line for line in lines if line.startswith("Delegation id: "))
    assert said(face, "fts-rest-delegate", "-H", "2") == id
    # A proxy certificate is its owner.
    assert id in said(face, "fts-rest-whoami", user="proxy").splitlines()
    assert said(face, "fts-rest-delegate", "-f", user="proxy") == id
    until = face.ask("GET", f"/delegation/{id.split()[-1]}").json["termination_time"]
    assert len(until) == len("2026-01-01T00:00:00")


def test_submit_status_list_cancel(face: Face) -> None:
    content = make(face, "stock/1")
    sum = f"ADLER32:{zlib.adler32(content):08x}"
    options = ["--compare-checksum", "--job-metadata", '{"k": 1}', "--file-metadata", "m", "-o"]
    out = said(
        face,
        "fts-rest-transfer-submit",
        *options,
        "-b",
        "-i",
        "1",
        f"{A}/stock/1",
        f"{B}/stock/1",
        sum,
    )
    assert "Job finished with state FINISHED" in out, out
    job_id = out.partition("Job id: ")[2].split()[0]
    status = said(face, "fts-rest-transfer-status", job_id)
    assert f"Request ID: {job_id}\nStatus: FINISHED" in status
    job = json.loads(said(face, "fts-rest-transfer-status", "-j", job_id))
    assert job["job_metadata"] == {"k": 1}
    assert job["files"][0]["file_metadata"] == "m"
    assert arrived(face, "stock/1").read_bytes() == content

    slow(face, "stock/slow")
    face.ends["a"].suspend()
    try:
        out = said(face, "fts-rest-transfer-submit", "-j", f"{A}/stock/slow", f"{B}/stock/slow")
        job_id = json.loads(out)
        assert job_id in said(face, "fts-rest-transfer-list")
        assert job_id not in said(face, "fts-rest-transfer-list", user="bob")
        files = face.ask("GET", f"/jobs/{job_id}/files").json
        one = f"{job_id}:{files[0]['file_id']}"
        assert said(face, "fts-rest-transfer-cancel", one) == "CANCELED"
        assert said(face, "fts-rest-transfer-cancel", job_id) == "CANCELED"
    finally:
        face.ends["a"].resume()
    assert "fts.example" in said(face, "fts-rest-server-status")


def test_a_failure_has_its_reason(face: Face) -> None:
    make(face, "stock/bad")
    words = ["--compare-checksum", "--retry", "-1"]
    out = said(
        face,
        "fts-rest-transfer-submit",
        *words,
        "-b",
        "-i",
        "1",
        f"{A}/stock/bad",
        f"{B}/stock/bad",
        "ADLER32:00000001",
    )
    assert "Job finished with state FAILED" in out
    assert "One or more files failed" in out
    done = face.run("fts-rest-transfer-submit", f"{A}/x", "davs://elsewhere.example/x")
    assert done.returncode != 0
    assert (
        "no prefix of the site map covers davs://elsewhere.example/x" in done.stdout + done.stderr
    )
    assert f"known prefixes: {A}, {B}" in done.stdout + done.stderr


def test_a_bulk_file(face: Face, tmp_path: Path) -> None:
    contents = {f"bulk/{number}": make(face, f"bulk/{number}") for number in range(5)}
    files = [
        pair(name, checksum=f"ADLER32:{zlib.adler32(content):08x}", filesize=len(content))
        for name, content in contents.items()
    ]
    path = tmp_path / "bulk.json"
    path.write_text(json.dumps({"files": files, "params": {"verify_checksum": "both"}}))
    out = said(face, "fts-rest-transfer-submit", "-r", "-b", "-i", "1", "-f", path)
    assert "Job finished with state FINISHED" in out, out
    for name, content in contents.items():
        assert arrived(face, name).read_bytes() == content


def test_the_easy_bindings(face: Face) -> None:
    content = make(face, "easy/2")
    found = face.python(
        f"""
transfer = easy.new_transfer({A!r} + "/easy/1", {B!r} + "/easy/1", metadata={{"n": 1}})
transfer["sources"].append({A!r} + "/easy/2")
job = easy.new_job([transfer], verify_checksum="both", retry=1, metadata="mine", priority=4)
id = easy.submit(context, job)
import time
while easy.get_job_status(context, id)["job_state"] not in ("FINISHED", "FAILED"):
    time.sleep(0.1)
both = easy.get_jobs_statuses(context, [id], list_files=True)
hops = [easy.new_transfer({A!r} + "/easy/2", {B!r} + "/easy/h", checksum=None),
        easy.new_transfer({B!r} + "/easy/h", {A!r} + "/easy/h", checksum=None)]
hop = easy.submit(context, easy.new_job(hops, multihop=True))
while easy.get_job_status(context, hop)["job_state"] not in ("FINISHED", "FAILED"):
    time.sleep(0.1)
print(json.dumps([easy.get_job_status(context, id, list_files=True), both,
                  easy.get_job_status(context, hop), easy.cancel(context, id),
                  easy.whoami(context)["user_dn"],
                  easy.list_jobs(context, state_in=["FINISHED"])]))
"""
    )
    job, both, hop, canceled, dn, jobs = found
    assert (job["job_state"], job["job_type"], job["priority"]) == ("FINISHED", "R", 4)
    assert [each["file_state"] for each in job["files"]] == ["FAILED", "FINISHED"]
    assert job["dm"] == []
    assert both["files"][1]["file_state"] == "FINISHED"
    assert (hop["job_state"], hop["job_type"]) == ("FINISHED", "H")
    assert canceled["job_state"] == "FINISHED"
    assert dn == "/DC=org/DC=dray/CN=alice"
    assert {job["job_id"], hop["job_id"]} <= {each["job_id"] for each in jobs}
    assert arrived(face, "easy/1").read_bytes() == content
    assert arrived(face, "easy/h", "a").read_bytes() == content


@pytest.mark.full
def test_two_hundred_files_and_a_kill(face: Face) -> None:
    contents = {f"easy200/{number}": make(face, f"easy200/{number}") for number in range(200)}
    ids = face.python(
        f"""
print(json.dumps([easy.submit(context, easy.new_job([easy.new_transfer(
    f"{A}/easy200/{{n}}", f"{B}/easy200/{{n}}")])) for n in range(200)]))
"""
    )
    face.kill()
    face.start()
    assert {face.wait(job_id)["job_state"] for job_id in ids} == {"FINISHED"}
    with face.ends["b"].client() as client:
        found = client.query([f"{job_id}.0" for job_id in ids])
    for transfer in found.values():
        assert transfer is not None
        assert (transfer.attempt, transfer.bytes.sent) == (1, 100_000)
    for name, content in contents.items():
        assert arrived(face, name).read_bytes() == content


def test_bans_are_refused_with_reasons(face: Face) -> None:
    done = face.run("fts-rest-ban", "--storage", "davs://a.example", user="root")
    assert done.returncode != 0
    assert "the service cannot ban users" in done.stdout + done.stderr


def test_files_are_deleted(face: Face) -> None:
    names = ["stock/delete/1", "stock/delete/2"]
    for name in names:
        make(face, name)
    out = said(face, "fts-rest-delete-submit", *(f"{A}/{name}" for name in names))
    job_id = out.partition("Job id: ")[2].split()[0]
    job = face.wait(job_id)
    assert (job["job_state"], job["files"]) == ("FINISHED", [])
    assert not any(face.ends["a"].root(name).exists() for name in names)
    several = face.ask("GET", f"/jobs/{job_id}/dm").json
    assert [(each["source_surl"], each["file_state"]) for each in several] == [
        (f"{A}/{name}", "FINISHED") for name in names
    ]
    found = face.python(
        f"""
import time
job = easy.new_delete_job([{A!r} + "/stock/delete/1"], metadata={{"k": 1}})
id = easy.submit(context, job)
while easy.get_job_status(context, id)["job_state"] == "DELETE":
    time.sleep(0.1)
print(json.dumps(easy.get_job_status(context, id, list_files=True)))
"""
    )
    assert (found["job_state"], found["job_metadata"]) == ("FAILED", {"k": 1})
    assert found["dm"][0]["reason"].startswith("DELETION [2]")
    # A kill between the removal and its commit does not make the removal a failure.
    make(face, "stock/delete/3")
    face.ends["a"].kill()
    try:
        body = {"delete": [f"{A}/stock/delete/3"]}
        job_id = face.ask("POST", "/jobs", body).json["job_id"]
        while not face.ask("GET", f"/jobs/{job_id}/dm").json[0]["start_time"]:
            time.sleep(0.1)
        face.kill()
        face.ends["a"].root("stock/delete/3").unlink()
        face.start()
    finally:
        face.ends["a"].start()
    assert face.wait(job_id)["job_state"] == "FINISHED"
    # A token needs the right to modify.
    for scope, code in (("storage.read:/", 403), ("storage.modify:/", 200)):
        token = face.ends["a"].token(scope, "storage.create:/")
        assert face.ask("POST", "/jobs", body, token=token).code == code


def test_tokens_of_the_stock_client(face: Face) -> None:
    content = make(face, "stock/token")
    a, b = face.ends["a"], face.ends["b"]
    writes = b.token("storage.create:/", "storage.modify:/")
    tokens = ["--fts-access-token", a.token("storage.read:/")]
    tokens += ["--src-access-token", a.token("storage.read:/"), "--dst-access-token"]
    words = ["-s", face.url, "--capath", str(face.ca), "-b", "-i", "1"]
    ends = [f"{A}/stock/token", f"{B}/stock/token"]
    done = run_client("fts-rest-transfer-submit", *words, *tokens, writes, *ends)
    assert "Job finished with state FINISHED" in done.stdout, done
    assert arrived(face, "stock/token").read_bytes() == content
    done = run_client("fts-rest-transfer-submit", *words, *tokens, b.token("storage.read:/"), *ends)
    assert done.returncode != 0
    assert "the token does not permit to write at endpoint b" in done.stdout + done.stderr
