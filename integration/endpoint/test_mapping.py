"""Requests of Rucio's FTS transfertool and XRootD's copy program survive the mapping."""

from __future__ import annotations

import ast
import copy
import importlib.util
import json
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from integration.endpoint import fts_mapping as fts
from integration.endpoint import xrootd_mapping as xrd

Json: TypeAlias = Any
SECRET = "eyJ-a-token"  # noqa: S105 - it is not one
PREFIXES = fts.Prefixes(
    (
        ("davs://se-a.example.org:443/store/", "dray://a.example.org/data/"),
        ("davs://se-b.example.org:443/store/", "dray://b.example.org/data/"),
        ("davs://tape.example.org:443/", "dray://t.example.org/tape/"),
    )
)
PFN = "davs://se-{}.example.org:443/store/user.alice/0f/{}/file%20{}.root"


def file(number: int = 1, sources: str = "b", destination: str = "a", **more: Json) -> Json:
    """Return a file of a job as ``_file_from_transfer`` writes it (Rucio 41.5.1)."""
    metadata = {
        "request_id": f"{number:032x}",
        "scope": "user.alice",
        "name": f"file {number}.root",
        "activity": "User Subscriptions",
        "request_type": "TRANSFER",
        "src_type": "DISK",
        "dst_type": "DISK",
        "src_rse": "SITE-B",
        "dst_rse": "SITE-A",
        "src_rse_id": "b" * 32,
        "dest_rse_id": "a" * 32,
        "filesize": 1_000_000,
        "md5": "9e107d9d372bb6826bd81d3542a419d6",
        "adler32": "5bdc0fda",
    }
    whole = {
        "sources": [PFN.format(site, "1e", number) for site in sources],
        "destinations": [PFN.format(destination, "1e", number)],
        "metadata": metadata,
        "filesize": 1_000_000,
        "checksum": "ADLER32:5bdc0fda",
        "selection_strategy": "auto",
        "activity": "User Subscriptions",
    }
    return {**whole, **more}


def params(**more: Json) -> Json:
    """Return the parameters of a job as ``build_job_params`` writes them."""
    whole = {
        "account": "alice",
        "verify_checksum": "both",
        "copy_pin_lifetime": 172800,
        "bring_online": None,
        "job_metadata": {
            "issuer": "rucio",
            "multi_sources": False,
            "overwrite_when_only_on_disk": False,
        },
        "overwrite": True,
        "overwrite_when_only_on_disk": False,
        "priority": 3,
        "s3alternate": True,
    }
    return {**whole, **more}


MULTI = {"issuer": "rucio", "multi_sources": True, "overwrite_when_only_on_disk": False}
HOPS = {**MULTI, "multi_sources": False, "multihop": True}
ON_TAPE = {**file()["metadata"], "dst_type": "TAPE", "vo": "def", "md5": None}
FROM_TAPE = {**file()["metadata"], "src_type": "TAPE"}

JOBS: dict[str, Json] = {
    "one": {"files": [file()], "params": params()},
    "bulk": {"files": [file(1), file(2), file(3)], "params": params(max_time_in_queue=24)},
    "replicas": {"files": [file(sources="bab")], "params": params(job_metadata=MULTI)},
    "hops": {
        "files": [file(1, "a", "b"), file(2, "b", "a")],
        "params": params(
            multihop=True, job_metadata=HOPS, overwrite=False, overwrite_hop=True, strict_copy=True
        ),
    },
    "from tape": {
        "files": [file(metadata=FROM_TAPE, staging_metadata={"default": {"activity": "Staging"}})],
        "params": params(bring_online=43200, ipv4=True, ipv6=False),
    },
    "to tape": {
        "files": [
            file(
                metadata=ON_TAPE,
                archive_metadata={"file_metadata": {"size": "1000000", "scheduling_hints": 1}},
            )
        ],
        "params": params(
            overwrite=False,
            overwrite_when_only_on_disk=True,
            archive_timeout=86400,
            dst_file_report=True,
        ),
    },
    "tokens": {
        "files": [file(source_tokens=[SECRET], destination_tokens=[SECRET + "2"])],
        "params": params(),
    },
    "scitag, deterministic": {
        "files": [file(scitag=(16 << 6) | 5)],
        "params": params(id_generator="deterministic", sid=f"{1:032x}"),
    },
    "md5": {"files": [file(checksum="MD5:9e107d9d372bb6826bd81d3542a419d6")], "params": params()},
    "no checksum": {
        "files": [file(checksum=None)],
        "params": params(verify_checksum="none", copy_pin_lifetime=None),
    },
    "other clients": {
        "files": [file()],
        "params": params(
            retry=3,
            retry_delay=60,
            nostreams=8,
            timeout=3600,
            buffer_size=1 << 20,
            spacetoken="x",
            source_spacetoken="y",
            reuse=False,
        ),
    },
}


def mapped(name: str) -> list[fts.Mapped]:
    return fts.requests_of(copy.deepcopy(JOBS[name]), "job-1", PREFIXES)


@pytest.mark.parametrize("name", JOBS)
def test_a_job_comes_back_as_it_was(name: str) -> None:
    requests = [
        fts.Mapped(json.loads(json.dumps(each.request)), each.secrets, each.hop)
        for each in mapped(name)
    ]
    assert fts.job_of(requests, PREFIXES) == JOBS[name]


def test_every_field_that_was_recorded_is_in_a_table() -> None:
    files = [each for job in JOBS.values() for each in job["files"]]
    assert {name for each in files for name in each} == set(fts.FILE)
    assert {name for each in files for name in each["metadata"]} == set(fts.METADATA)
    assert {name for job in JOBS.values() for name in job["params"]} == set(fts.PARAMS)
    rules = [*fts.FILE.values(), *fts.METADATA.values(), *fts.PARAMS.values()]
    assert all(rule.to for rule in rules)


def test_every_field_that_an_installed_rucio_writes_is_in_a_table() -> None:
    # The distribution rucio-clients has no transfertool.
    try:
        found = importlib.util.find_spec("rucio.transfertool.fts3")
    except ModuleNotFoundError:
        found = None
    if found is None or found.origin is None:
        pytest.skip("no Rucio here")
    tree = ast.parse(Path(found.origin).read_text(encoding="utf-8"))
    written: dict[str, set[str]] = {"job_params": set(), "t_file": set()}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                _note(written, target, node.value)
    assert written["job_params"] - fts.PARAMS.keys() == set()
    assert written["t_file"] - fts.FILE.keys() == set()
    assert len(written["job_params"]) > 10


def _note(written: dict[str, set[str]], target: ast.expr, value: ast.expr) -> None:
    if isinstance(target, ast.Name) and target.id in written and isinstance(value, ast.Dict):
        written[target.id] |= {key.value for key in value.keys if isinstance(key, ast.Constant)}  # type: ignore[misc]
    if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
        key = target.slice
        if target.value.id in written and isinstance(key, ast.Constant):
            written[target.value.id].add(str(key.value))


def test_an_unknown_field_is_refused() -> None:
    for change in (
        {"files": [file(new_field=1)], "params": params()},
        {"files": [file()], "params": params(new_field=1)},
        {"files": [file()], "params": params(), "new_field": 1},
        {"files": [file(destinations=["x", "y"])], "params": params()},
        {"files": [file(metadata={"name": "x" * 9000, "request_id": "1"})], "params": params()},
        {"files": [{**file(), "sources": ["gsiftp://elsewhere/x"]}], "params": params()},
    ):
        with pytest.raises((fts.Unmapped, KeyError)):
            fts.requests_of(change, "job-1", PREFIXES)


def test_deciding_values_are_request_fields() -> None:
    request = mapped("one")[0].request
    del request["labels"]
    assert request == {
        "id": f"{1:032x}",
        "sources": [{"url": "dray://b.example.org/data/user.alice/0f/1e/file%25201.root"}],
        "destination": {"url": "dray://a.example.org/data/user.alice/0f/1e/file%25201.root"},
        "overwrite": "always",
        "checksum_attributes": True,
        "content": {"size": 1_000_000, "checksum": "adler32:5bdc0fda"},
        "activity": "User Subscriptions",
        "verify": True,
        "priority": 3,
    }
    assert mapped("scitag, deterministic")[0].request["scitag"] == {
        "experiment": 16,
        "activity": 5,
    }
    assert [each.request["overwrite"] for each in mapped("hops")] == ["always", "never"]
    assert [each.hop for each in mapped("hops")] == [(0, 2), (1, 2)]
    assert mapped("md5")[0].request["content"]["checksum"] == "adler32:5bdc0fda"
    assert "checksum" not in mapped("no checksum")[0].request["content"]
    other = mapped("other clients")[0].request
    assert (other["retry"], other["streams"]) == ({"tries": 3, "interval_seconds": 60}, 8)
    assert len(mapped("replicas")[0].request["replicas"]) == 2


@pytest.mark.parametrize("name", JOBS)
def test_requests_keep_the_apis_bounds_and_hold_no_token(name: str) -> None:
    for each in mapped(name):
        labels = each.request["labels"]
        assert len(labels) <= 32
        assert all(len(value.encode()) <= 256 and ":" not in key for key, value in labels.items())
        assert SECRET not in json.dumps(each.request) + repr(each)


TRANSFER: Json = {
    "state": "done",
    "started_at": "2026-11-21T17:00:00.123Z",
    "ended_at": "2026-11-21T17:01:00.999Z",
    "source": 0,
    "files": {"skipped": 0},
    "error": None,
    "failures": [],
}
FAILURE = {"kind": "not_found", "end": "source", "status": "permanent", "message": "gone"}


def answer(name: str, *changes: Json, **more: Json) -> Json:
    requests = [each.request for each in mapped(name)]
    changes = changes or ({},) * len(requests)
    transfers = [
        {**TRANSFER, "id": request["id"], "request": request, **change}
        for request, change in zip(requests, changes, strict=True)
    ]
    return fts.job_answer("job-1", transfers, PREFIXES, **more)


@pytest.mark.parametrize(
    ("state", "wanted"),
    [
        ("queued", "SUBMITTED"),
        ("waiting", "SUBMITTED"),
        ("paused", "SUBMITTED"),
        ("active", "ACTIVE"),
        ("done", "FINISHED"),
        ("incomplete", "FAILED"),
        ("failed", "FAILED"),
        ("cancelled", "CANCELED"),
    ],
)
def test_states_are_those_that_rucio_knows(state: str, wanted: str) -> None:
    found = answer("one", {"state": state})
    assert (found["job_state"], found["files"][0]["file_state"]) == (wanted, wanted)


def test_an_answer_has_everything_that_rucio_reads() -> None:
    found = answer("one", {"state": "failed", "error": FAILURE})
    row = found["files"][0]
    assert row.keys() >= {
        *["file_state", "dest_surl", "source_surl", "start_time", "finish_time"],
        *["staging_start", "staging_finished", "reason", "file_metadata"],
    }
    assert (row["start_time"], row["finish_time"]) == ("2026-11-21T17:00:00", "2026-11-21T17:01:00")
    assert row["reason"] == "SOURCE not_found: gone"
    assert row["file_metadata"] == JOBS["one"]["files"][0]["metadata"]
    assert row["source_surl"] == JOBS["one"]["files"][0]["sources"][0]
    assert (found["http_status"], found["job_type"]) == ("200 Ok", "N")
    assert found["job_metadata"] == JOBS["one"]["params"]["job_metadata"]


def test_the_used_replica_decides_the_file_states() -> None:
    found = answer("replicas", {"source": 1})
    states = [row["file_state"] for row in found["files"]]
    assert states == ["NOT_USED", "FINISHED", "NOT_USED"]
    assert (found["job_state"], found["job_type"]) == ("FINISHED", "R")
    running = answer("replicas", {"source": 1, "state": "active"})
    assert {row["file_state"] for row in running["files"]} == {"ACTIVE"}


def test_a_bulk_of_which_some_failed_is_dirty() -> None:
    failed = {"state": "failed", "error": FAILURE}
    assert answer("bulk", {}, failed, {})["job_state"] == "FINISHEDDIRTY"
    assert answer("bulk", {}, {"state": "queued"}, {})["job_state"] == "ACTIVE"
    assert answer("bulk", *({"state": "queued"},) * 3)["job_state"] == "SUBMITTED"
    assert answer("hops", failed, {"state": "cancelled"})["job_state"] == "FAILED"


def test_an_existing_file_fails_with_the_message_rucio_matches() -> None:
    stands = {f"{1:032x}": {"size": 1_000_000, "adler32": "5bdc0fda"}}
    found = answer("to tape", {"files": {"skipped": 1}}, destinations=stands)
    row = found["files"][0]
    assert (row["file_state"], row["reason"]) == ("FAILED", fts.EXISTS)
    assert row["file_metadata"]["dst_file"] == {
        "file_size": 1_000_000,
        "checksum_type": "ADLER32",
        "checksum_value": "5bdc0fda",
    }


# --- XRootD ---------------------------------------------------------------------------------------

URL = "xroot://[::ffff:127.0.0.1]:18201//store/f 8%m?&tpc.key=2939bf12&tpc.org=root.14226@host"
ENVIRONMENT = {
    "XRD_TIDENT": "root.14226:24@[::ffff:127.0.0.1]",
    "XRDTPC_SPROT": "roots",
    "XRDTPC_TPROT": "root",
    "XRDTPC": "1",
    "XRD_CSLIST": "0:adler32,1:crc32c",
    "XRDLCLROOT": "/srv/xrd",
    "PATH": "/bin",
}
ROOTS = ("dray://b.example.org/store", "/data")
RUNS: dict[str, tuple[list[str], dict[str, str]]] = {
    "plain": (["-S", "1", URL, "/srv/xrd/user/f_tpc"], ENVIRONMENT),
    "checksum": (["-C", "adler32", "-S", "15", URL, "/srv/xrd/f"], ENVIRONMENT),
    "checksum with value": (["-C", "adler32:5bdc0fda", URL, "/srv/xrd/f"], ENVIRONMENT),
    "delegated": (
        [URL.replace("&tpc.key=2939bf12", f"&authz=Bearer%20{SECRET}"), "/srv/xrd/f"],
        {**ENVIRONMENT, "XRDTPCDLG": "ztn", "BEARER_TOKEN_FILE": "/run/creds"},
    ),
    "proxy": (
        [URL, "/srv/xrd/f"],
        {"XRDTPCDLG": "gsi", "X509_USER_PROXY": "/run/p", **ENVIRONMENT},
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_comes_back_as_it_was(name: str) -> None:
    run = xrd.run_of(*RUNS[name])
    found = xrd.request_of(run, *ROOTS, size=8 << 20, modified="17")
    again = xrd.run_back(found, *ROOTS)
    assert again == run
    assert again.secrets == run.secrets
    assert xrd.argv_of(again) == RUNS[name][0]


def test_a_run_is_mapped_to_fields() -> None:
    found = xrd.request_of(xrd.run_of(*RUNS["checksum with value"]), *ROOTS, size=8 << 20)
    assert found.request.pop("id").startswith("xrd-")
    assert found.request == {
        "sources": [{"url": "dray://b.example.org/store/store/f 8%25m"}],
        "destination": {"url": "/data/f"},
        "content": {"size": 8 << 20, "checksum": "adler32:5bdc0fda"},
        "overwrite": "always",
        "checksum_attributes": True,
        "bound_seconds": xrd.BOUND_SECONDS,
        "labels": {
            "xrd.scheme": "xroot",
            "xrd.protocols": "roots/root",
            "xrd.source": "[::ffff:127.0.0.1]:18201",
            "xrd.local_root": "/srv/xrd",
            "xrd.algorithm": "adler32",
        },
    }
    assert found.notes == {
        "xrd.org": "root.14226@host",
        "xrd.tident": "root.14226:24@[::ffff:127.0.0.1]",
    }
    assert found.secrets == {"tpc.key": "2939bf12"}


def test_the_same_copy_has_the_same_request_in_every_run() -> None:
    argv, env = RUNS["plain"]
    first = xrd.request_of(xrd.run_of(argv, env), *ROOTS, size=5, modified="1")
    later = [word.replace("2939bf12", "77").replace("14226", "9") for word in argv]
    second = xrd.request_of(
        xrd.run_of(later, {**env, "XRD_TIDENT": "x.9:1@h"}), *ROOTS, size=5, modified="1"
    )
    assert first.request == second.request
    assert first.notes != second.notes
    for other in ({"size": 6, "modified": "1"}, {"size": 5, "modified": "2"}):
        changed = xrd.request_of(xrd.run_of(argv, env), *ROOTS, **other)  # type: ignore[arg-type]
        assert changed.request["id"] != first.request["id"]


@pytest.mark.parametrize("name", RUNS)
def test_a_run_leaves_no_secret_in_its_request(name: str) -> None:
    found = xrd.request_of(xrd.run_of(*RUNS[name]), *ROOTS)
    shown = json.dumps(found.request) + json.dumps(dict(found.notes)) + repr(found)
    assert not any(secret in shown for secret in ("2939bf12", SECRET, "/run/"))


@pytest.mark.parametrize(
    "argv", [[], ["x"], ["-X", "1", URL, "/f"], ["-S", URL, "/f"], ["http://h/x", "/f"]]
)
def test_a_run_that_is_not_known_is_refused(argv: list[str]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        xrd.run_of(argv, ENVIRONMENT)


def test_the_last_line_has_one_colon_and_the_code_marks_retries() -> None:
    transfer = {**TRANSFER, "id": "xrd-1"}
    assert xrd.ending(transfer) == (0, "")
    message = "cannot open at the source: a: b\nc: no"
    failed = {**transfer, "state": "failed", "error": {**FAILURE, "message": message}}
    code, line = xrd.ending(failed)
    assert (code, line.count(": ")) == (1, 1)
    assert line == "dray: cannot open at the source - a - b c - no (transfer xrd-1)"
    waiting = {**failed, "error": {**FAILURE, "status": "temporary"}}
    assert xrd.ending(waiting)[0] == 2
    assert xrd.ending({**transfer, "state": "cancelled"})[0] == 2
    assert xrd.ending({**transfer, "files": {"skipped": 1}})[0] == 2


def test_the_tables_cover_every_word() -> None:
    known = {"-C", "-S", "source path", "source host", "tpc.key", "tpc.org", "other cgi", "file"}
    assert set(xrd.ARGV) == known
    variables = {name for _, env in RUNS.values() for name in env} - {"PATH"}
    assert variables == set(xrd.ENV)
