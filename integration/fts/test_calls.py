"""Each call in docs/reference/fts.md is made, with the identity of several users."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx
import pytest

from integration.fts.face import Face
from integration.fts.pems import make_pems
from integration.fts.test_jobs import arrived, make, pair
from integration.harness.program import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from integration.fts.face import Answer

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

REFERENCE = ROOT / "docs" / "reference" / "fts.md"
ROW = re.compile(r"^\| `(GET|POST|PUT|DELETE) (\S+)` \| (\w+) \| (.*) \|$", re.MULTILINE)


class Row(NamedTuple):
    """A row of the table of calls."""

    method: str
    path: str
    support: str
    meaning: str


def rows() -> list[Row]:
    return [Row(*each) for each in ROW.findall(REFERENCE.read_text(encoding="utf-8"))]


def ids(row: Row) -> str:
    return f"{row.method} {row.path}"


REFUSED = [row for row in rows() if row.support == "refused"]


@pytest.mark.parametrize("row", REFUSED, ids=ids)
def test_a_refused_call_has_the_words_of_the_reference(face: Face, row: Row) -> None:
    code, _, words = row.meaning.partition(": ")
    answer = face.ask(row.method, row.path, {} if row.method == "POST" else None)
    assert answer.code == int(code), answer
    assert words in answer.json["message"]
    assert answer.json["status"].startswith(code)


class Made(NamedTuple):
    """An ended job of alice, with the id of its file, and a live job."""

    job: str
    file: int
    live: str


@pytest.fixture
def made(face: Face) -> Iterator[Made]:
    make(face, "calls/1")
    job = face.submit([pair("calls/1")], overwrite=True)
    face.wait(job)
    make(face, "calls/live")
    face.ends["a"].suspend()
    try:
        live = face.submit([pair("calls/live")], overwrite=True)
        file = face.ask("GET", f"/jobs/{job}/files").json[0]["file_id"]
        yield Made(job, file, live)
    finally:
        face.ends["a"].resume()


#: What each carried or translated call answers: its code, and a part of its answer.
ANSWERS: dict[str, tuple[int, Any]] = {
    "GET /": (200, {"api": {"major": 3, "minor": 14, "patch": 0}}),
    "GET /whoami": (200, {"user_dn": "/DC=org/DC=dray/CN=alice", "method": "certificate"}),
    "GET /whoami/certificate": (200, "-----BEGIN CERTIFICATE-----"),
    "GET /delegation/ID": (200, None),
    "GET /delegation/ID/request": (200, "-----BEGIN CERTIFICATE REQUEST-----"),
    "PUT /delegation/ID/credential": (400, {"message": "the body is not a chain of PEM"}),
    "POST /delegation/ID/credential": (400, {"message": "the body is not a chain of PEM"}),
    "DELETE /delegation/ID": (204, ""),
    "POST /jobs": (200, {"job_id": ""}),
    "PUT /jobs": (200, {"job_id": ""}),
    "GET /jobs": (200, [{"job_state": ""}]),
    "GET /jobs/ID,ID": (200, [{"http_status": "200 Ok"}, {"http_status": "200 Ok"}]),
    "POST /jobs/ID,ID": (200, [{"priority": 3}, {"priority": 5}]),
    "DELETE /jobs/ID,ID": (200, [{"job_state": "FINISHED"}, {"job_state": "CANCELED"}]),
    "GET /jobs/ID/files": (200, [{"file_state": "FINISHED"}]),
    "DELETE /jobs/ID/files/FILE,FILE": (200, ["FINISHED", "FINISHED"]),
    "GET /jobs/ID/files/FILE/retries": (200, []),
    "GET /jobs/ID/dm": (200, []),
    "GET /jobs/ID/FIELD": (200, "FINISHED"),
    "DELETE /jobs/vo/VO": (200, {"vo_name": "dteam"}),
    "DELETE /jobs/all": (200, {"affected_dm": 0}),
    "GET /files": (200, [{"file_state": ""}]),
    "GET /status/hosts": (200, {"fts.example": {"active": 0, "staging": 0}}),
    "GET /ban/se": (200, []),
    "GET /ban/dn": (200, []),
}


def test_the_table_has_each_call_once() -> None:
    names = [ids(row) for row in rows()]
    assert len(names) == len(set(names)) > 40
    assert set(ANSWERS) == {ids(row) for row in rows() if row.support != "refused"}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_carried_call_answers(face: Face, made: Made, name: str) -> None:
    method, path = name.split()
    user = "root" if method == "DELETE" and path in ("/jobs/all", "/jobs/vo/VO") else "alice"
    delegation = face.ask("GET", "/whoami").json["delegation_id"]
    if path.startswith("/delegation") and path != "/delegation/ID/request":
        face.ask("GET", f"/delegation/{delegation}/request")
    path = path.replace("/jobs/ID,ID", f"/jobs/{made.job},{made.live}")
    path = path.replace("/delegation/ID", f"/delegation/{delegation}")
    path = path.replace("FILE,FILE", f"{made.file},{made.file}").replace("/FILE/", f"/{made.file}/")
    path = path.replace("/jobs/ID", f"/jobs/{made.job}").replace("/FIELD", "/job_state")
    path = path.replace("/vo/VO", "/vo/dteam")
    body: object = None
    if path == "/jobs" and method != "GET":
        body = {"files": [pair("calls/1", f"calls/{time.monotonic_ns()}")]}
    elif method == "POST" and path.startswith("/jobs"):
        body = {"params": {"priority": 5}}
    raw = b"no certificate" if "credential" in path else None
    answer = face.ask(method, path, body, user=user, raw=raw)
    code, part = ANSWERS[name]
    assert answer.code == code, answer
    check(answer.json, part, name)


def check(found: object, part: object, name: str) -> None:
    """Fail unless an answer has the given parts."""
    if isinstance(part, dict):
        assert isinstance(found, dict), name
        for key, value in part.items():
            check(found[key], value, f"{name} {key}")
    elif isinstance(part, list) and part:
        assert isinstance(found, list)
        assert len(found) >= len(part), name
        if len(part) > 1:
            # The order of a request is the order of its answer.
            for one, other in zip(found, part, strict=True):
                check(one, other, name)
        else:
            check(found[0], part[0], name)
    elif isinstance(part, str) and isinstance(found, str):
        assert found.startswith(part), name
    else:
        assert found == part, name


# --- identities -----------------------------------------------------------------------------------


def test_jobs_of_others_are_invisible(face: Face) -> None:
    make(face, "mine")
    job_id = face.submit([pair("mine")])
    face.wait(job_id)
    for method, path in (
        ("GET", ""),
        ("DELETE", ""),
        ("GET", "/files"),
        ("GET", "/job_state"),
        ("GET", "/dm"),
        ("DELETE", "/files/1"),
    ):
        answer = face.ask(method, f"/jobs/{job_id}{path}", user="bob")
        assert (answer.code, answer.json["message"]) == (
            404,
            f'No job with the id "{job_id}" has been found',
        )
    body = {"params": {"priority": 1}}
    assert face.ask("POST", f"/jobs/{job_id}", body, user="bob").code == 404
    for path in ("/jobs", "/files"):
        assert face.ask("GET", f"{path}?state_in=FINISHED", user="bob").json == []
    assert face.ask("DELETE", "/jobs/all", user="bob").code == 403
    # An administrator sees all jobs.
    assert face.ask("GET", f"/jobs/{job_id}", user="root").json["job_state"] == "FINISHED"
    alice = face.ask("GET", "/whoami").json["delegation_id"]
    assert face.ask("GET", f"/jobs?dlg_id={alice}", user="bob").code == 403
    for path in ("", "/request"):
        assert face.ask("GET", f"/delegation/{alice}{path}", user="bob").code == 403


def test_strangers_are_refused(face: Face) -> None:
    nobody = face.ask("GET", "/jobs", user="nobody")
    assert nobody.code == 403
    assert "/DC=org/DC=dray/CN=nobody" in nobody.json["message"]
    none = face.ask("GET", "/jobs", user=None)
    assert (none.code, none.headers["www-authenticate"]) == (401, "Bearer")
    # A certificate with the right name from an unknown authority does not reach the service.
    with pytest.raises(httpx.HTTPError):
        face.ask("GET", "/jobs", user="stranger")
    tricky = face.ask("GET", "/jobs", user="tricky")
    assert tricky.code == 403
    assert "the DC of its subject is 'dray/CN=alice'" in tricky.json["message"]
    assert face.ask("GET", "/whoami", user="proxy").json["user_dn"] == "/DC=org/DC=dray/CN=alice"


def test_the_endpoint_knows_the_owner_of_a_job(face: Face) -> None:
    make(face, "of-bob")
    job_id = face.submit([pair("of-bob")], user="bob")
    face.wait(job_id, user="root")
    id = f"{job_id}.0"
    with face.ends["b"].client(subject="bob") as bob, face.ends["b"].client() as alice:
        assert bob.transfer(id).owner == "bob"
        assert alice.query([id]) == {id: None}


def test_bodies_have_limits(face: Face) -> None:
    huge = {"files": [pair("x")], "params": {"job_metadata": "x" * (1 << 20)}}
    answer = face.ask("POST", "/jobs", huge)
    assert answer.code == 400
    assert "job_metadata has 1048578 bytes, but at most 65536 are stored" in answer.json["message"]
    assert face.ask("POST", "/jobs", raw=b" " * (33 << 20)).code == 413
    assert face.ask("POST", "/jobs", raw=b"{").code == 400


# --- tokens ---------------------------------------------------------------------------------------

READ, WRITE = ("storage.read:/",), ("storage.create:/", "storage.modify:/")


def submit_with(face: Face, token: str, **file: list[str]) -> Answer:
    return face.ask("POST", "/jobs", {"files": [{**pair("token"), **file}]}, token=token)


def tokens(face: Face, reads: str, writes: str) -> Mapping[str, list[str]]:
    return {"source_tokens": [reads], "destination_tokens": [writes]}


def test_tokens_are_checked_by_endpoints(face: Face) -> None:
    content = make(face, "token")
    a, b = face.ends["a"], face.ends["b"]
    mine = a.token(*READ)
    who = face.ask("GET", "/whoami", token=mine).json
    assert (who["method"], who["vos"]) == ("oauth2", ["dteam"])
    until = face.ask("GET", f"/delegation/{who['delegation_id']}", token=mine)
    assert until.json["termination_time"]
    # Without a token for the destination, the token of the submission must permit the copy.
    refused = submit_with(face, mine)
    assert refused.code == 403
    assert "the token does not permit to write at endpoint b" in refused.json["message"]
    refused = submit_with(face, mine, **tokens(face, a.token(*WRITE), b.token(*WRITE)))
    assert (refused.code, "to read at endpoint a" in refused.json["message"]) == (403, True)
    refused = submit_with(face, mine, **tokens(face, mine, b.token(*READ)))
    assert (refused.code, "to write at endpoint b" in refused.json["message"]) == (403, True)
    other = b.token("storage.create:/data/elsewhere", "storage.modify:/data/elsewhere")
    assert submit_with(face, mine, **tokens(face, mine, other)).code == 403
    assert submit_with(face, "no.token.at-all").code == 401
    assert not arrived(face, "token").exists()
    good = submit_with(face, mine, **tokens(face, mine, b.token(*WRITE)))
    assert good.code == 200, good
    job = face.wait(good.json["job_id"])
    assert job["job_state"] == "FINISHED", job
    assert arrived(face, "token").read_bytes() == content
    for name in ("fts.db", "fts.db-wal"):
        stored = (face.folder / "state" / name).read_bytes()
        assert mine.split(".")[2].encode() not in stored
        assert b.token(*WRITE).split(".")[0].encode() not in stored
    assert mine not in face.said()
    for end in (a, b):
        with end.client() as client:
            left = [each for each in client.tickets() if each.transfer.startswith("fts-check")]
        assert all(ticket.revoked for ticket in left)


# --- revocation -----------------------------------------------------------------------------------


def test_a_revoked_certificate_is_refused(face: Face, tmp_path: Path) -> None:
    (tmp_path / "ca").mkdir()
    authority, pems = make_pems(tmp_path / "ca")
    person = authority.issue("alice3", "/DC=org/DC=dray/CN=alice", is_rsa=True)
    pems["proxy"] = authority.proxy(person, "proxy3", is_rsa=True).file()
    lists = tmp_path / "lists"
    lists.mkdir()
    (lists / "ca.pem").write_bytes(authority.file.read_bytes())
    authority.write_list(lists / "ca.r0")
    other = Face(tmp_path / "face", face.ends, authority.file, pems)
    other.tls(crls=lists)
    other.start()
    try:
        for user in ("alice", "proxy", "bob"):
            assert other.ask("GET", "/whoami", user=user).code == 200
        with other.connected("proxy") as kept:
            assert kept.get("/whoami").status_code == 200
            authority.revoke(person)
            authority.write_list(lists / "ca.r0")
            until = time.monotonic() + 30
            while (answer := kept.get("/whoami")).status_code == 200:
                assert time.monotonic() < until
                time.sleep(0.2)
        assert answer.status_code == 403
        assert "CN=alice,DC=dray,DC=org is revoked" in answer.json()["message"]
        for user in ("alice", "bob"):
            assert other.ask("GET", "/whoami", user=user).code == 200
        # A damaged list does not make a revoked certificate valid.
        (lists / "ca.r0").write_bytes(b"damaged")
        time.sleep(6)
        assert other.ask("GET", "/whoami", user="proxy").code == 403
        assert "is not a revocation list" in other.said()
    finally:
        other.close()
