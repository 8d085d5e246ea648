"""The requests of the mappings, and of the client, match the API's schema."""

from __future__ import annotations

import json
import re
import ssl
import urllib.request
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from dray.client import (
    Content,
    Place,
    Range,
    Request,
    Retry,
    Scitag,
    Selection,
    StagingRequest,
)
from dray.client._requests import write
from dray.testing.scripted import ScriptedEndpoint
from integration.endpoint import fts_mapping as fts
from integration.endpoint import xrootd_mapping as xrd
from integration.endpoint.calls import every_call
from integration.endpoint.schema import mistakes
from integration.endpoint.test_mapping import JOBS, PREFIXES, ROOTS, RUNS
from integration.harness.program import ROOT

if TYPE_CHECKING:
    from dray.testing.endpoints import Endpoint

Json: TypeAlias = Any
AT = datetime(2026, 11, 21, 17, 0, tzinfo=timezone.utc)
KEY = "sha256:" + "a" * 64
FULL = Request(
    [Place("dray://b/data/x", "drt_" + "x" * 43, KEY, "10.0.0.1:4735"), "/data/y"],
    "/data/z",
    id="a-1",
    content=Content(5, "adler32:5bdc0fda"),
    selection=Selection(False, ["*"], ["a"], Range(0, 5), "keep"),
    class_="deadline",
    deadline=AT,
    not_before=AT,
    priority=9,
    weight=1000,
    rate_min=1,
    rate_max=2,
    activity="a",
    labels={"a": "b"},
    scitag=Scitag(16, 5),
    durability="object",
    overwrite="always",
    verify=True,
    xattrs=True,
    checksum_attributes=True,
    order="file",
    object_size=1 << 20,
    streams=64,
    clear_data=False,
    bind=["127.0.0.1"],
    retry=Retry(5, 10),
    bound_seconds=60,
)


@pytest.fixture
def document(one_endpoint: Endpoint) -> Json:
    """Return the document as the endpoint serves it, without credentials."""
    # Do not check the certificate, because the document is public.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    url = f"https://{one_endpoint.address}/v1/openapi.json"
    with urllib.request.urlopen(url, context=context, timeout=10) as answer:
        return json.load(answer)


@pytest.mark.server
def test_requests_fit_the_schema_that_the_endpoint_serves(document: Json) -> None:
    schema = {"$ref": "#/components/schemas/Request"}
    requests = [
        each.request for job in JOBS.values() for each in fts.requests_of(job, "job-1", PREFIXES)
    ]
    for argv, env in RUNS.values():
        requests.append(xrd.request_of(xrd.run_of(argv, env), *ROOTS, size=5).request)
    requests.append(write(FULL))
    for request in requests:
        assert mistakes(request, schema, document) == [], request
    staging = StagingRequest("/slow/x", id="s", to="/fast/x", pin_seconds=5, version=3, nodes=2)
    schema = {"$ref": "#/components/schemas/StagingRequest"}
    assert mistakes(write(staging), schema, document) == []
    # Check that the schema refuses an invalid request. Otherwise its acceptance would mean nothing.
    schema = {"$ref": "#/components/schemas/Request"}
    assert mistakes({**write(FULL), "priority": 10}, schema, document)


@pytest.mark.server
def test_every_call_of_the_document_has_a_method(document: Json) -> None:
    with ScriptedEndpoint() as endpoint:
        made = every_call(endpoint)
    there = {
        (method.upper(), path)
        for path, methods in document["paths"].items()
        for method in methods
        if path not in ("/v1/openapi.json", "/metrics")
        # The tape API is for clients of the WLCG; this client has the staging calls. The client
        # calls a peer without a detour.
        and "tape" not in path
        and "peers" not in path
    }
    assert {_template(*call, there) for call in made} == there


def _template(method: str, path: str, there: set[tuple[str, str]]) -> tuple[str, str]:
    """Return the documented call of a real call. Prefer paths without braces."""
    parts = path.split("/")
    for known in sorted(there, key=lambda each: each[1].count("{")):
        names = known[1].split("/")
        fits = len(names) == len(parts) and all(
            name == part or name.startswith("{") for name, part in zip(names, parts, strict=True)
        )
        if known[0] == method and fits:
            return known
    return method, path


SCHEMA = {
    "type": "object",
    "required": ["id"],
    "additionalProperties": False,
    "properties": {
        "id": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 3},
        "size": {"type": ["integer", "null"], "minimum": 1},
        "kind": {"oneOf": [{"type": "null"}, {"$ref": "#/kinds"}]},
        "several": {"type": "array", "items": {"type": "boolean"}, "minItems": 1},
    },
}
DOCUMENT = {"kinds": {"enum": ["a", "b"]}}


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"id": 1},
        {"id": "A"},
        {"id": "abcd"},
        {"id": "a", "size": 0},
        {"id": "a", "size": True},
        {"id": "a", "size": 1.5},
        {"id": "a", "kind": "c"},
        {"id": "a", "several": []},
        {"id": "a", "several": [1]},
        {"id": "a", "new": 1},
        [],
    ],
)
def test_the_checker_finds_what_is_wrong(value: Json) -> None:
    assert mistakes(value, SCHEMA, DOCUMENT)


def test_the_checker_passes_valid_values_and_stops_at_unknown_keywords() -> None:
    right = {"id": "a", "size": None, "kind": "b", "several": [True]}
    assert mistakes(right, SCHEMA, DOCUMENT) == []
    with pytest.raises(NotImplementedError):
        mistakes(1, {"multipleOf": 2}, DOCUMENT)


def test_every_call_of_the_page_has_a_method() -> None:
    """The page docs/reference/api.md needs no endpoint."""
    text = (ROOT / "docs/reference/api.md").read_text(encoding="utf-8")
    named = set()
    for row in re.findall(r"^\|(.*?)\|", text, re.MULTILINE):
        for method, path in re.findall(r"`(GET|POST|PATCH|DELETE) (/[^?` ]*)", row):
            named.add((method, path))
        for verb in re.findall(r"`(/[a-z]+)`", row):
            # The page shortens a call to its verb, as in `POST /v1/transfers/ID/pause`, `/resume`.
            before = re.findall(r"POST (/v1/[a-z]+/ID)/", row)
            named.add(("POST", before[0] + verb))
    assert len(named) > 30
    with ScriptedEndpoint() as endpoint:
        made = every_call(endpoint)
    there = {(method, re.sub(r"\bID\b", "{id}", path)) for method, path in named}
    # This client has no calls of the tape API, and it calls a peer without a detour.
    there = {call for call in there if "tape" not in call[1] and "peers" not in call[1]}
    # The page mentions these calls only in its text.
    there |= {("GET", "/v1/endpoint"), ("GET", "/healthz"), ("POST", "/v1/admission")}
    there |= {("PATCH", "/v1/endpoint/scheduling"), ("GET", "/v1/endpoint/load")}
    assert {_template(*call, there) for call in made} == there
