"""The endpoint follows its OpenAPI document, for calls that fit the document and for other calls.

The test reads the document from the endpoint. DRAY_FULL=1 makes many more calls, different ones in
each run.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import pytest

from dray.testing.endpoints import Endpoint, Root
from integration.endpoint.raw import Answer, shipped_program

schemathesis = pytest.importorskip("schemathesis")
hypothesis = pytest.importorskip("hypothesis")

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.server, pytest.mark.timeout(1800)]

Json: TypeAlias = Any
IS_FULL = bool(os.environ.get("DRAY_FULL"))
EXAMPLES = 300 if IS_FULL else 12
#: Documented status codes (docs/reference/api.md, "Errors"), without 500.
CODES = {200, 201, 400, 401, 403, 404, 405, 409, 413, 429, 501, 503, 507}
#: The HTTP layer refuses a request whose path and query are too long, before the API reads it.
TOO_LONG = 431
#: Each request with a shorter URL must reach the API.
LONG_BYTES = 4 << 10
OPEN = {"/v1/openapi.json", "/healthz", "/.well-known/wlcg-tape-rest-api"}
#: Calls that are authorised by the key of the ticket's holder, and not by a token.
BY_KEY = {"/v1/tickets/renew"}
COME_LATER = {429, 503}

schemathesis.checks.load_all_checks()
CHECKS = [
    schemathesis.checks.CHECKS.get_one(f"{name}_conformance")
    for name in ("response_schema", "content_type", "status_code", "response_headers")
]
settings = hypothesis.settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=not IS_FULL,
    database=None,
    print_blob=True,
    suppress_health_check=list(hypothesis.HealthCheck),
    phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
)


class Served(NamedTuple):
    """An endpoint, its document, and the tokens of callers."""

    endpoint: Endpoint
    schema: Json
    tokens: dict[str, str | None]


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    folder = Path(tempfile.mkdtemp(prefix="dray-openapi-"))
    endpoint = Endpoint(
        folder / "endpoint",
        roots=(Root("data", {"tier": "fast"}), Root("slow", {"tier": "slow"})),
        config={"listen_plain": {"addresses": ["127.0.0.1:0"]}, "retry": {"tries": 1}},
        program=shipped_program(),
    )
    try:
        endpoint.start()
        said = next(one for one in endpoint.events_said() if one.get("event") == "listening")
        (plain,) = said["plain"]
        schema = schemathesis.openapi.from_url(f"http://{plain}/v1/openapi.json")
        tokens = {
            "alice": endpoint.token(),
            "root": endpoint.token(subject="root"),
            "nobody": None,
        }
        yield Served(endpoint, schema, tokens)
        assert endpoint.is_running, endpoint.log_text()[-4000:]
        assert "panicked" not in endpoint.log_text()
    finally:
        endpoint.close()
        shutil.rmtree(folder, ignore_errors=True)


def operations() -> list[str]:
    """List the calls in the tree's copy of the document."""
    import json

    from integration.harness.program import ROOT

    document = json.loads((ROOT / "docs/reference/openapi.json").read_text(encoding="utf-8"))
    return [
        f"{method.upper()} {path}"
        for path, methods in document["paths"].items()
        for method in methods
    ]


def send(served: Served, case: Json, caller: str) -> Answer:
    """Make a call. Set the timeout of a long poll to 0."""
    if case.path.endswith(("/wait", "/events")) and case.method == "GET":
        asked = case.query.get("timeout")
        if asked is None or (isinstance(asked, int) and asked > 0):
            case.query["timeout"] = 0
    # Remove generated headers: the document names none, and the HTTP layer, not the API, refuses
    # malformed ones.
    case.headers.clear()
    token = served.tokens[caller]
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    response = case.call(headers=headers)
    headers_by_name = {name.lower(): values[0] for name, values in response.headers.items()}
    answer = Answer(response.status_code, headers_by_name, response.content.decode())
    if answer.code == TOO_LONG:
        assert len(response.request.url or "") > LONG_BYTES
        return answer
    assert answer.code in CODES, f"{case.method} {case.path}: {answer.code} {answer.text}"
    case.validate_response(response, checks=CHECKS)
    if answer.code >= 400:
        error = answer.error
        assert error["cause"] or error["remedy"], error
        assert error["message"], error
    if answer.code in COME_LATER:
        assert "retry-after" in answer.headers
    return answer


@pytest.mark.parametrize("name", operations())
@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_calls_follow_the_document(served: Served, name: str, mode: str) -> None:
    """Calls that the document permits, and others; of a user and of an unknown caller."""
    method, path = name.split()
    operation = served.schema[path][method]
    modes = {
        "positive": schemathesis.GenerationMode.POSITIVE,
        "negative": schemathesis.GenerationMode.NEGATIVE,
    }
    has_parameters = bool(operation.definition.raw.get("parameters")) or operation.body
    if mode == "negative" and not has_parameters:
        pytest.skip("nothing can be wrong in it")
    strategy = operation.as_strategy(generation_mode=modes[mode])

    def known(case: Json, caller: str) -> None:
        answer = send(served, case, caller)
        assert answer.code != 401 or path in BY_KEY, answer.text

    def unknown(case: Json) -> None:
        answer = send(served, case, "nobody")
        if path in OPEN:
            assert answer.code == 200, answer.text
        elif path in BY_KEY:
            assert answer.code in (400, 401, TOO_LONG), answer.text
        else:
            assert answer.code in (401, 404, 405, TOO_LONG), answer.text

    callers = hypothesis.strategies.sampled_from(["alice", "root"])
    settings(hypothesis.given(case=strategy, caller=callers)(known))()
    fewer = hypothesis.settings(settings, max_examples=max(3, EXAMPLES // 10))
    fewer(hypothesis.given(case=strategy)(unknown))()


def test_the_document_that_is_served_is_the_one_in_the_tree(served: Served) -> None:
    document = served.schema.raw_schema
    there = {
        f"{method.upper()} {path}"
        for path, methods in document["paths"].items()
        for method in methods
    }
    assert there == set(operations())


def test_a_method_that_a_path_has_not_is_405(served: Served) -> None:
    from integration.endpoint.raw import ask

    for path, methods in served.schema.raw_schema["paths"].items():
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            if method.lower() in methods:
                continue
            where = path.replace("{id}", "x")
            answer = ask(served.endpoint, method, where, token=served.tokens["alice"])
            if where.startswith("/v1/transfers/") and method in ("GET", "DELETE", "PATCH"):
                # `batch` and `query` are no transfers.
                assert answer.code in (404, 405, 400), (method, where, answer.text)
                continue
            answer.refused(405, "invalid_request")
