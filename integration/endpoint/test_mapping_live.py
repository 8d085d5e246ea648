"""The mapping tables against endpoints: their requests are accepted, stored, and read back."""

from __future__ import annotations

import contextlib
import json
import os
import random
import tempfile
import zlib
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from dray.testing.endpoints import Endpoint
from integration.endpoint import fts_mapping as fts
from integration.endpoint import test_mapping as recorded
from integration.endpoint import xrootd_mapping as xrd
from integration.endpoint.raw import ask, shipped_program

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

Json: TypeAlias = Any
SIZE = 1_000_000
#: Default number of streams of an endpoint (docs/reference/api.md).
STREAMS = 4
LATER = "2099-01-01T00:00:00.000Z"
JOBS = {
    **recorded.JOBS,
    # In the recorded job the destination is among the sources, which an endpoint refuses.
    "replicas": {
        "files": [recorded.file(sources="bcb")],
        "params": recorded.params(job_metadata=recorded.MULTI),
    },
}


class Sites:
    """Endpoints of three sites, and the files at each."""

    def __init__(self, ends: Mapping[str, Endpoint]) -> None:
        """Store the endpoints. No files exist yet."""
        self.ends = dict(ends)
        self.tokens = {name: end.token() for name, end in ends.items()}
        self.bytes = random.Random(1).randbytes(SIZE)
        self.adler32 = f"{zlib.adler32(self.bytes):08x}"
        self.prefixes = fts.Prefixes(
            tuple(
                (f"davs://se-{name}.example.org:443/store/", end.place(""))
                for name, end in ends.items()
            )
        )

    def job(self, job: Json) -> Json:
        """Return a recorded job, changed to the checksum of the existing files."""
        text = json.dumps(job).replace("5bdc0fda", self.adler32)
        return json.loads(text)

    def site(self, url: str) -> str:
        """Return the name of the site whose endpoint serves a URL."""
        return next(name for name, end in self.ends.items() if url.startswith(end.place("")))

    def ask(self, site: str, method: str, path: str, body: Json = None) -> Json:
        """Call the endpoint of a site. Fail unless the call is accepted."""
        answer = ask(self.ends[site], method, path, body, token=self.tokens[site])
        assert answer.code in (200, 201), answer.text
        return answer.json

    def with_tickets(self, request: Json, at: str) -> Json:
        """Create the sources of a request. Return the request with a ticket for each source."""
        origins = []
        for source in [*request["sources"], *request.get("replicas", ())]:
            there = self.site(source["url"])
            below = source["url"].removeprefix(self.ends[there].place(""))
            file = self.ends[there].root(below.replace("%25", "%"))
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(self.bytes)
            body = {
                "transfer": request["id"],
                "direction": "read",
                "paths": [f"/data/{below}"],
                "peer_key": self.ends[at].key,
            }
            ticket = self.ask(there, "POST", "/v1/tickets", body)
            origins.append({**source, **{word: ticket[word] for word in TICKET}})
        replicas = {"replicas": origins[1:]} if "replicas" in request else {}
        return {**request, "sources": origins[:1], **replicas}

    def wait(self, site: str, id: str) -> Json:
        """Wait until a transfer has ended. Return the transfer."""
        return self.ask(site, "GET", f"/v1/transfers/{id}/wait?timeout=60")


TICKET = ("ticket", "key", "address")


@pytest.fixture(scope="module")
def sites() -> Iterator[Sites]:
    with (
        tempfile.TemporaryDirectory(
            prefix="dray-mapping-", dir=os.environ.get("DRAY_TEST_DIR")
        ) as folder,
        contextlib.ExitStack() as stack,
    ):
        ends = {}
        for name in ("a", "b", "c"):
            end = Endpoint(Path(folder) / name, name, program=shipped_program())
            stack.callback(end.close)
            ends[name] = end.start()
        yield Sites(ends)


def assert_kept(kept: Json, written: Json) -> None:
    """Fail unless the endpoint returned all written fields unchanged. Ignore omitted fields."""
    for name, value in written.items():
        if isinstance(value, dict) and name != "labels":
            assert {word: kept[name][word] for word in value} == value, name
        elif name in ("sources", "replicas"):
            assert [each["url"] for each in kept[name]] == [each["url"] for each in value]
        else:
            assert kept[name] == value, name


@pytest.mark.parametrize("name", JOBS)
def test_a_job_is_done_and_comes_back_from_the_endpoint_as_it_was(sites: Sites, name: str) -> None:
    job = sites.job(JOBS[name])
    mapped = fts.requests_of(job, f"job {name}", sites.prefixes)
    transfers = []
    for each in mapped:
        # Make the ids different, because the recorded jobs have the same ids.
        request = {**each.request, "id": f"{zlib.crc32(name.encode()):x}.{each.request['id']}"}
        at = sites.site(request["destination"]["url"])
        below = request["destination"]["url"].removeprefix(sites.ends[at].place(""))
        arrives = sites.ends[at].root(below.replace("%25", "%"))
        # The destination may have a file of another job, which not every job may replace.
        arrives.unlink(missing_ok=True)
        sites.ask(at, "POST", "/v1/transfers", sites.with_tickets(request, at))
        found = sites.ask(at, "POST", "/v1/transfers/query", {"ids": [request["id"]]})
        assert_kept(found["transfers"][request["id"]]["request"], request)
        # The source of the next hop is the destination of this hop, so this hop must end first.
        transfer = sites.wait(at, request["id"])
        assert transfer["state"] == "done", transfer
        assert not transfer["files"]["skipped"], transfer
        assert arrives.read_bytes() == sites.bytes
        transfers.append({**transfer, "id": each.request["id"]})
    again = [
        fts.Mapped({**transfer["request"], "id": each.request["id"]}, each.secrets, each.hop)
        for each, transfer in zip(mapped, transfers, strict=True)
    ]
    back = fts.job_of(again, sites.prefixes)
    # A default that the endpoint has filled in equals FTS's own default.
    for now, before in zip(back["files"], job["files"], strict=True):
        assert now == before
    assert back["params"] == job["params"]
    answer = fts.job_answer("job", transfers, sites.prefixes)
    assert answer["job_state"] == "FINISHED"
    assert answer["priority"] == job["params"]["priority"]
    rows = [row for row in answer["files"] if row["file_state"] != "NOT_USED"]
    assert [row["file_metadata"] for row in rows] == [file["metadata"] for file in job["files"]]


def test_a_job_is_cancelled_and_its_priority_changed_as_rucio_does(sites: Sites) -> None:
    job = sites.job(JOBS["one"])
    request = {**fts.requests_of(job, "job", sites.prefixes)[0].request, "id": "waits"}
    transfer = sites.ask("a", "POST", "/v1/transfers", {**request, "not_before": LATER})
    assert fts.job_answer("job", [transfer], sites.prefixes)["job_state"] == "SUBMITTED"
    for priority in (5, 1):
        transfer = sites.ask("a", "PATCH", "/v1/transfers/waits", {"priority": priority})
        assert fts.job_answer("job", [transfer], sites.prefixes)["priority"] == priority
    transfer = sites.ask("a", "POST", "/v1/transfers/waits/cancel", {})
    answer = fts.job_answer("job", [transfer], sites.prefixes)
    assert (answer["job_state"], answer["files"][0]["reason"]) == ("CANCELED", "cancelled")


def test_an_existing_file_fails_with_rucios_message(sites: Sites) -> None:
    job = sites.job({"files": [recorded.file(7)], "params": recorded.params(overwrite=False)})
    request = fts.requests_of(job, "job", sites.prefixes)[0].request
    below = request["destination"]["url"].removeprefix(sites.ends["a"].place(""))
    stands = sites.ends["a"].root(below.replace("%25", "%"))
    stands.parent.mkdir(parents=True, exist_ok=True)
    stands.write_bytes(b"another's")
    sites.ask("a", "POST", "/v1/transfers", sites.with_tickets(request, "a"))
    transfer = sites.wait("a", request["id"])
    row = fts.job_answer("job", [transfer], sites.prefixes)["files"][0]
    assert (row["file_state"], row["reason"]) == ("FAILED", fts.EXISTS), transfer
    assert stands.read_bytes() == b"another's"


@pytest.mark.parametrize("name", recorded.RUNS)
def test_a_run_of_xrootd_is_done_and_comes_back_as_it_was(sites: Sites, name: str) -> None:
    argv, env = recorded.RUNS[name]
    roots = sites.ends["b"].place("").rstrip("/"), "/data"
    run = xrd.run_of([word.replace("5bdc0fda", sites.adler32) for word in argv], env)
    mapped = xrd.request_of(run, *roots, size=SIZE, modified=name)
    id = mapped.request["id"]
    # XRootD's server creates an empty file at the destination before it runs the program.
    there = sites.ends["a"].root(mapped.request["destination"]["url"].removeprefix("/data/"))
    there.parent.mkdir(parents=True, exist_ok=True)
    there.write_bytes(b"")
    # Delay the start until the labels are set, because the labels of an ended transfer cannot be
    # changed.
    soon = datetime.now(timezone.utc) + timedelta(seconds=2)
    request = {**mapped.request, "not_before": soon.isoformat()}
    sites.ask("a", "POST", "/v1/transfers", sites.with_tickets(request, "a"))
    labels = {**mapped.request["labels"], **mapped.notes}
    patched = sites.ask("a", "PATCH", f"/v1/transfers/{id}", {"labels": labels})
    assert patched["request"]["labels"] == labels
    transfer = sites.wait("a", id)
    assert xrd.ending(transfer) == (0, ""), transfer
    assert there.read_bytes() == sites.bytes
    found = sites.ask("a", "POST", "/v1/transfers/query", {"ids": [id]})["transfers"][id]
    assert_kept(found["request"], {**mapped.request, "labels": labels})
    again = xrd.run_back(xrd.Mapped(found["request"], mapped.secrets, mapped.notes), *roots)
    assert again == run


def test_a_run_that_is_cancelled_is_to_be_run_again(sites: Sites) -> None:
    run = xrd.run_of(*recorded.RUNS["plain"])
    roots = sites.ends["b"].place("").rstrip("/"), "/data"
    request = xrd.request_of(run, *roots, size=SIZE, modified="never").request
    sites.ask("a", "POST", "/v1/transfers", {**request, "not_before": LATER})
    transfer = sites.ask("a", "POST", f"/v1/transfers/{request['id']}/cancel", {})
    code, line = xrd.ending(transfer)
    assert (code, line.count(": ")) == (2, 1)
