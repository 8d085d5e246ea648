"""Jobs that stage files from tape and archive files on tape, at an endpoint with a tier."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from dray.testing.endpoints import Endpoint, Root
from integration.endpoint.raw import shipped_program
from integration.fts.face import Face, run_client
from integration.fts.pems import make_pems
from integration.fts.scene import MIB, TAPE_ROOTS
from integration.harness.scratch import scratch_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

#: A file of this size takes about four seconds at the rate of the endpoint ``t``.
LARGE = 32 * MIB
WAIT_SECONDS = 60.0
TAPE, BUFFER, B = "davs://tape.example", "davs://buffer.example", "davs://b.example"
PREFIXES = f"""\
[[prefix]]
url = "{TAPE}"
endpoint = "t"
path = "/slow"
tape = true
[[prefix]]
url = "{BUFFER}"
endpoint = "t"
path = "/fast"
tape = true
"""


@pytest.fixture(scope="module")
def face() -> Iterator[Face]:
    """Yield a service with the endpoints ``t``, which has a tier, and ``b``."""
    with scratch_folder() as folder:
        ends: dict[str, Endpoint] = {}
        made: Face | None = None
        (folder / "ca").mkdir()
        authority, pems = make_pems(folder / "ca")
        try:
            for name, config in (("a", {}), ("b", {}), ("t", {"rate": "8MiB/s"})):
                ends[name] = Endpoint(
                    folder / name,
                    name=f"{name}.example",
                    program=shipped_program(),
                    roots=TAPE_ROOTS if name == "t" else (Root(),),
                    config=config,
                ).start()
            made = Face(folder / "face", ends, authority.file, pems, PREFIXES).start()
            yield made
        finally:
            if made is not None:
                made.close()
            for end in ends.values():
                end.close()


def make(face: Face, name: str, size: int = 1000, end: str = "t", root: str = "slow") -> bytes:
    """Write a file to a root of an endpoint."""
    content = os.urandom(size)
    path = face.ends[end].root(name, root=root)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return content


def recall(name: str, to: str = B) -> dict[str, Any]:
    """Describe a copy from tape."""
    return {"sources": [f"{TAPE}/{name}"], "destinations": [f"{to}/{name}"]}


def store(name: str) -> dict[str, Any]:
    """Describe a copy from ``b`` to the buffer of the tape."""
    return {"sources": [f"{B}/{name}"], "destinations": [f"{BUFFER}/{name}"]}


def seen(face: Face, job_id: str, state: str) -> dict[str, Any]:
    """Wait until the first file of a job is in a state. Return the file."""
    until = time.monotonic() + WAIT_SECONDS
    while True:
        found: dict[str, Any] = face.ask("GET", f"/jobs/{job_id}/files").json[0]
        if found["file_state"] == state:
            return found
        assert time.monotonic() < until, f"{found}\n{face.said()}"
        time.sleep(0.02)


def pins(face: Face, name: str) -> list[bool]:
    """Return for each staged copy of a file if it is pinned."""
    with face.ends["t"].client(subject="root") as client:
        return [one.pinned_until is not None for one in client.stagings() if one.path == name]


def eventually(fits: Callable[[], bool], face: Face) -> None:
    """Wait until a condition holds."""
    until = time.monotonic() + WAIT_SECONDS
    while not fits():
        assert time.monotonic() < until, face.said()
        time.sleep(0.1)


def test_files_are_staged_copied_and_released(face: Face) -> None:
    contents = {f"run/{number} x": make(face, f"run/{number} x", MIB) for number in range(5)}
    files = [recall(name.replace(" ", "%20")) for name in contents]
    files[0]["staging_metadata"] = {"default": {"activity": "reco"}}
    job_id = face.submit(files, bring_online=600, copy_pin_lifetime=3600)
    job = face.wait(job_id)
    assert job["job_state"] == "FINISHED", job
    assert (job["bring_online"], job["copy_pin_lifetime"], job["archive_timeout"]) == (
        600,
        3600,
        -1,
    )
    for name, content in contents.items():
        assert face.ends["b"].root(name).read_bytes() == content
    for file in face.ask("GET", f"/jobs/{job_id}/files").json:
        assert file["staging_start"] <= file["staging_finished"] <= file["start_time"]
        assert (file["staging_host"], bool(file["bringonline_token"])) == ("t", True)
    eventually(lambda: pins(face, "/slow/run/0 x") == [False], face)
    with face.ends["t"].client(subject="root") as client:
        staged = {one.path: one.application for one in client.stagings()}
    assert (staged["/slow/run/0 x"], staged["/slow/run/1 x"]) == ("reco", "default")
    # The copy was read from the fast root.
    with face.ends["b"].client() as client:
        transfer = client.transfer(f"{job_id}.0")
    assert "/fast/run/0" in str(transfer.request["sources"])


@pytest.mark.usefixtures("stock_client")
def test_the_stock_client_stages_without_a_copy(face: Face) -> None:
    content = make(face, "only", MIB)
    found = face.python(
        f"""
import time
job = easy.new_staging_job([{TAPE!r} + "/only"], bring_online=60, copy_pin_lifetime=3600)
id = easy.submit(context, job)
states = []
while not states or states[-1] not in ("FINISHED", "FAILED"):
    states.append(easy.get_job_status(context, id)["job_state"])
    time.sleep(0.02)
print(json.dumps([states, easy.get_job_status(context, id, list_files=True)]))
"""
    )
    states, job = found
    assert states[-1] == "FINISHED", job
    assert set(states) <= {"STAGING", "FINISHED"}
    assert [each["file_state"] for each in job["files"]] == ["FINISHED"]
    assert face.ends["t"].root("only", root="fast").read_bytes() == content
    time.sleep(1)
    # The pin is the purpose of the job, so the service does not end it.
    assert pins(face, "/slow/only") == [True]


@pytest.mark.usefixtures("stock_client")
def test_the_stock_client_archives(face: Face) -> None:
    content = make(face, "store/1", LARGE, end="b", root="data")
    words = ["--archive-timeout", "600", "-b", "-i", "1", f"{B}/store/1", f"{BUFFER}/store/1"]
    done = face.run("fts-rest-transfer-submit", *words)
    assert "Job finished with state FINISHED" in done.stdout, done.stdout + done.stderr
    job_id = done.stdout.partition("Job id: ")[2].split()[0]
    (file,) = face.ask("GET", f"/jobs/{job_id}/files").json
    assert file["archive_start_time"] < file["archive_finish_time"]
    assert face.ends["t"].root("store/1", root="slow").read_bytes() == content
    # The destination exists on tape only.
    face.ends["t"].root("store/1", root="fast").unlink()
    job = face.wait(face.submit([store("store/1")], archive_timeout=600))
    assert job["job_state"] == "FAILED"
    reason = job["files"][0]["reason"]
    assert reason == "DESTINATION [17] Destination file exists and is on tape"
    job = face.wait(face.submit([store("store/1")], archive_timeout=600, overwrite=True))
    assert job["job_state"] == "FINISHED"


def test_a_copy_to_the_slow_root_is_archived_at_its_end(face: Face) -> None:
    content = make(face, "direct", end="b", root="data")
    pair = {"sources": [f"{B}/direct"], "destinations": [f"{TAPE}/direct"]}
    assert face.wait(face.submit([pair], archive_timeout=60))["job_state"] == "FINISHED"
    assert face.ends["t"].root("direct", root="slow").read_bytes() == content


def test_failures_have_the_reasons_of_fts(face: Face) -> None:
    job = face.wait(face.submit([recall("no-such")], bring_online=60))
    reason = job["files"][0]["reason"]
    assert (job["job_state"], reason.startswith("STAGING [70]")) == ("FAILED", True)
    assert "does not exist" in reason
    make(face, "late", LARGE)
    job = face.wait(face.submit([recall("late")], bring_online=1))
    assert job["files"][0]["reason"] == "STAGING [110] bring-online timeout has been exceeded"
    fast = face.ends["t"].root("late", root="fast")
    time.sleep(5)
    assert not fast.exists()
    make(face, "slowly", LARGE, end="b", root="data")
    job = face.wait(face.submit([store("slowly")], archive_timeout=1))
    assert job["files"][0]["reason"] == "ARCHIVING [110] archive timeout has been exceeded"
    time.sleep(5)
    assert not face.ends["t"].root("slowly", root="slow").exists()


def test_a_canceled_file_is_not_staged(face: Face) -> None:
    make(face, "canceled", LARGE)
    job_id = face.submit([recall("canceled")], bring_online=60)
    seen(face, job_id, "STARTED")
    assert face.ask("DELETE", f"/jobs/{job_id}").json["job_state"] == "CANCELED"
    eventually(lambda: not any(face.ends["t"].root(root="fast").glob(".dray-*")), face)
    time.sleep(5)
    assert not face.ends["t"].root("canceled", root="fast").exists()
    assert not face.ends["b"].root("canceled").exists()


def test_a_kill_in_each_state_loses_nothing(face: Face) -> None:
    content = make(face, "kill", LARGE)
    pair = recall("kill", BUFFER.replace("buffer", "b"))
    face.ends["t"].kill()
    job_id = face.submit([pair], bring_online=600)
    assert seen(face, job_id, "STAGING")["staging_start"] is None
    face.kill()
    face.ends["t"].start()
    face.start()
    token = seen(face, job_id, "STARTED")["bringonline_token"]
    face.kill()
    face.start()
    assert face.ask("GET", f"/jobs/{job_id}/files").json[0]["bringonline_token"] == token
    seen(face, job_id, "ACTIVE")
    face.kill()
    face.start()
    assert face.wait(job_id)["job_state"] == "FINISHED"
    assert face.ends["b"].root("kill").read_bytes() == content
    with face.ends["b"].client() as client:
        transfer = client.transfer(f"{job_id}.0")
    assert (transfer.attempt, transfer.bytes.sent) == (1, LARGE)
    # A kill between the end of the job and the release of the pin.
    eventually(lambda: pins(face, "/slow/kill") == [False], face)


def test_a_kill_while_a_file_is_archived_loses_nothing(face: Face) -> None:
    content = make(face, "kept", LARGE, end="b", root="data")
    job_id = face.submit([store("kept")], archive_timeout=600)
    began = seen(face, job_id, "ARCHIVING")["archive_start_time"]
    assert face.ask("GET", f"/jobs/{job_id}/job_state").json == "ARCHIVING"
    face.kill()
    face.start()
    job = face.wait(job_id)
    assert job["job_state"] == "FINISHED", job
    (file,) = face.ask("GET", f"/jobs/{job_id}/files").json
    assert file["archive_start_time"] == began
    assert face.ends["t"].root("kept", root="slow").read_bytes() == content


def test_a_request_that_is_cancelled_at_the_endpoint_fails_its_files(face: Face) -> None:
    content = make(face, "lost", LARGE)
    job_id = face.submit([recall("lost")], bring_online=600)
    first = seen(face, job_id, "STARTED")
    with face.ends["t"].client() as client:
        client.tape_release(first["bringonline_token"], ["/slow/lost"])
    job = face.wait(job_id)
    assert job["files"][0]["reason"] == (
        "STAGING [70] the stage request at the endpoint was cancelled"
    )
    assert face.wait(face.submit([recall("lost")], bring_online=600))["job_state"] == "FINISHED"
    assert face.ends["b"].root("lost").read_bytes() == content


def stage_with(face: Face, token: str, files: list[dict[str, Any]]) -> Any:  # noqa: ANN401
    """Submit a staging job with a token, and with a token to write for the destinations."""
    writes = face.ends["b"].token("storage.create:/", "storage.modify:/")
    owner = face.ends["a"].token("storage.read:/")
    tokens = {"source_tokens": [token], "destination_tokens": [writes]}
    body = {"files": [{**each, **tokens} for each in files], "params": {"bring_online": 60}}
    return face.ask("POST", "/jobs", body, token=owner)


def test_a_token_with_the_scope_can_stage(face: Face) -> None:
    t = face.ends["t"]
    names = ("tok/1/x", "tok/1/y", "tok/2/x")
    contents = {name: make(face, name) for name in names}
    files = [recall(name) for name in names]
    # A scope for the whole endpoint, and scopes for parts of the folder.
    narrow = [f"storage.stage:/{root}/tok/{number}" for root in ("slow", "fast") for number in "12"]
    for token in (t.token("storage.stage:/"), t.token(*narrow)):
        answer = stage_with(face, token, files)
        assert answer.code == 200, answer
        job = face.wait(answer.json["job_id"])
        assert job["job_state"] == "FINISHED", job
        for name, content in contents.items():
            assert face.ends["b"].root(name).read_bytes() == content
            face.ends["b"].root(name).unlink()
    # The check leaves no file and no request that is carried out.
    for root in ("slow", "fast"):
        assert not list(t.root(root=root).rglob("fts-check-*"))
    with t.client(subject="root") as client:
        assert not [one for one in client.stagings() if "fts-check" in one.path]


def test_a_token_without_the_scope_cannot_stage(face: Face) -> None:
    t = face.ends["t"]
    make(face, "tok/3/x")
    files = [recall("tok/1/x"), recall("tok/3/x")]
    part = [f"storage.stage:/{root}/tok/1" for root in ("slow", "fast")]
    for scopes in (["storage.read:/"], part, ["storage.stage:/slow"]):
        answer = stage_with(face, t.token(*scopes), files)
        assert answer.code == 403, (scopes, answer)
        message = answer.json["message"]
        assert "the token does not permit to stage at endpoint t" in message
        assert "needs the scope storage.stage" in message


def test_a_job_that_only_stages_needs_no_token_to_write(face: Face) -> None:
    make(face, "tok/only")
    t = face.ends["t"]
    url = f"{TAPE}/tok/only"
    tokens = {
        "source_tokens": [t.token("storage.stage:/")],
        "destination_tokens": [t.token("storage.read:/")],
    }
    body = {
        "files": [{"sources": [url], "destinations": [url], **tokens}],
        "params": {"bring_online": 60},
    }
    answer = face.ask("POST", "/jobs", body, token=face.ends["a"].token("storage.read:/"))
    assert answer.code == 200, answer
    assert face.wait(answer.json["job_id"])["job_state"] == "FINISHED"


@pytest.mark.usefixtures("stock_client")
def test_the_stock_client_stages_with_tokens(face: Face) -> None:
    content = make(face, "tok/stock")
    t, b = face.ends["t"], face.ends["b"]
    words: list[str | Path] = ["-s", face.url, "--capath", face.ca, "-b", "-i", "1"]
    words += ["--bring-online", "60", "--fts-access-token", face.ends["a"].token("storage.read:/")]
    words += ["--dst-access-token", b.token("storage.create:/", "storage.modify:/")]
    ends = [f"{TAPE}/tok/stock", f"{B}/tok/stock"]
    source = "--src-access-token"
    done = run_client("fts-rest-transfer-submit", *words, source, t.token("storage.read:/"), *ends)
    assert done.returncode != 0
    assert "needs the scope storage.stage" in done.stdout + done.stderr
    done = run_client("fts-rest-transfer-submit", *words, source, t.token("storage.stage:/"), *ends)
    assert "Job finished with state FINISHED" in done.stdout, done.stdout + done.stderr
    assert b.root("tok/stock").read_bytes() == content
