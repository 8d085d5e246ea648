"""Spans of transfers: one trace across both endpoints, and a collector that fails."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import trace

from dray.client import Request, Selection, copy
from integration.endpoint.collector import Collector, Span
from integration.endpoint.raw import ask
from integration.harness import tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dray.testing.endpoints import Endpoint
    from integration.harness.program import Bench

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

MIB = tree.MIB
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{CALLER}-01"
SERVER, CLIENT = 2, 3
#: Delay of the slow collector. A transfer that waited for it would take longer than half of this.
DELAY_SECONDS = 120.0


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.close()


def pair(start_endpoint: Callable[..., Endpoint], url: str) -> tuple[Endpoint, Endpoint]:
    config = {"telemetry": {"otlp": url}, "metrics": {"open": True}}
    source = start_endpoint("a", config=config)
    sink = start_endpoint("b", config=config)
    folder = source.root("tree")
    folder.mkdir()
    for at in range(4):
        tree.make_file(folder / f"f{at}", 3 * MIB + at, seed=at)
    return source, sink


def move(source: Endpoint, sink: Endpoint, **more: Any) -> Any:  # noqa: ANN401 - a handle
    with source.client() as reads, sink.client() as writes:
        request = Request(sources=(), destination="", selection=Selection(recursive=True), **more)
        moved = copy(
            source.place("tree"),
            sink.place("in/"),
            source=reads,
            destination=writes,
            request=request,
        )
        return moved.wait(timeout_seconds=60)


def metric(endpoint: Endpoint, name: str) -> int:
    text = ask(endpoint, "GET", "/metrics").text
    lines = [line for line in text.splitlines() if line.startswith(f"{name} ")]
    assert len(lines) == 1, text
    return int(lines[0].split()[1])


def test_one_trace_covers_both_endpoints(
    start_endpoint: Callable[..., Endpoint], collector: Collector
) -> None:
    source, sink = pair(start_endpoint, collector.url)
    # The client takes the current span of OpenTelemetry.
    flags = trace.TraceFlags(trace.TraceFlags.SAMPLED)
    context = trace.SpanContext(int(TRACE, 16), int(CALLER, 16), True, flags)
    with trace.use_span(trace.NonRecordingSpan(context)):
        done = move(source, sink, id="traced")
    assert done.state == "done"
    assert done.trace_id == TRACE

    def is_whole(spans: list[Span]) -> bool:
        return sum(span.name == "session" for span in spans) == 2

    spans = collector.wait(is_whole)
    assert {span.trace for span in spans} == {TRACE}
    (submit,) = [span for span in spans if span.name == "POST /v1/transfers"]
    assert (submit.instance, submit.kind, submit.parent) == ("b", SERVER, CALLER)
    assert submit.attributes["http.response.status_code"] == 201
    assert submit.attributes["http.route"] == "/v1/transfers"
    ends = {span.instance: span for span in spans if span.name == "session"}
    pull, read = ends["b"], ends["a"]
    assert (pull.kind, pull.parent) == (CLIENT, submit.id)
    # The session of the other endpoint belongs to the session of the endpoint that drives it.
    assert (read.kind, read.parent) == (SERVER, pull.id)
    for session in ends.values():
        assert session.attributes["dray.transfer.id"] == "traced"
        assert not session.is_error
    size = sum(3 * MIB + at for at in range(4))
    assert pull.attributes["dray.bytes.durable"] == size
    assert read.attributes["dray.bytes.sent"] == size
    assert pull.attributes["server.address"] == source.address
    parts = {
        (span.instance, span.name): span
        for span in spans
        if span.name not in {"session", "POST /v1/transfers"}
    }
    parents = {
        ("b", "admission"): submit.id,
        ("b", "queue"): submit.id,
        ("b", "handshake"): pull.id,
        ("b", "enumeration"): pull.id,
        ("b", "objects"): pull.id,
        ("b", "publish"): pull.id,
        ("a", "admission"): read.id,
        ("a", "enumeration"): read.id,
        ("a", "objects"): read.id,
    }
    assert {place: span.parent for place, span in parts.items()} == parents
    for part in parts.values():
        if part.parent in {pull.id, read.id}:
            session = pull if part.parent == pull.id else read
            assert session.begin <= part.begin <= part.end <= session.end, part
    assert parts["b", "publish"].attributes == {"dray.files": 4}
    # A slow session has several windows.
    windows = [span for span in spans if (span.instance, span.name) == ("b", "objects")]
    assert sum(span.attributes.get("dray.bytes.durable", 0) for span in windows) == size
    assert parts["a", "enumeration"].attributes == {"dray.files": 4, "dray.bytes": size}
    # The endpoint counts the spans when it has read the collector's answer.
    count = sum(span.instance == "b" for span in spans)
    until = time.monotonic() + 20
    while metric(sink, "dray_spans_exported_total") < count:
        assert time.monotonic() < until
        time.sleep(0.1)
    assert metric(sink, "dray_spans_dropped_total") == 0


def test_the_number_of_spans_does_not_grow_with_the_files(
    start_endpoint: Callable[..., Endpoint], collector: Collector
) -> None:
    source, sink = pair(start_endpoint, collector.url)
    for at in range(500):
        (source.root("tree") / f"small{at}").write_bytes(b"x")
    done = move(source, sink, verify=True)
    assert (done.state, done.files.done) == ("done", 504)
    spans = collector.wait(lambda spans: sum(span.name == "session" for span in spans) == 2)
    assert len(spans) < 60, [span.name for span in spans]
    assert "verification" in {span.name for span in spans}


@pytest.mark.parametrize("kind", ["down", "slow", "refusing", "broken"])
def test_a_collector_that_fails_does_not_delay_a_transfer(
    start_endpoint: Callable[..., Endpoint], kind: str
) -> None:
    failing: Collector | None = None
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        if kind != "down":
            code = {"slow": 200, "refusing": 503, "broken": 400}[kind]
            failing = Collector(code=code, delay=DELAY_SECONDS if kind == "slow" else 0.0)
            url = failing.url
        try:
            source, sink = pair(start_endpoint, url)
            began = time.monotonic()
            for at in range(3):
                done = move(source, sink, id=f"t{at}", overwrite="always")
                assert done.state == "done"
            took = time.monotonic() - began
            assert took < DELAY_SECONDS / 2, took
            if kind in {"down", "broken"}:
                until = time.monotonic() + 30
                while metric(sink, "dray_spans_dropped_total") == 0:
                    assert time.monotonic() < until
                    time.sleep(0.2)
            if kind != "slow":
                until = time.monotonic() + 10
                while "cannot export spans" not in sink.log_text():
                    assert time.monotonic() < until
                    time.sleep(0.1)
                assert sink.log_text().count("cannot export spans") == 1
            began = time.monotonic()
            sink.stop()
            assert time.monotonic() - began < DELAY_SECONDS / 2
        finally:
            if failing is not None:
                failing.close()


@pytest.mark.parametrize(
    "value",
    [
        "",
        "00-hostile",
        TRACEPARENT.upper(),
        f"{TRACEPARENT}-more",
        f"00-{'0' * 32}-{CALLER}-01",
        f"ff-{TRACE}-{CALLER}-01",
        "x" * 8000,
        "00-" + "\u00ff" * 32 + "-1-1",
    ],
)
def test_a_hostile_header_is_ignored(start_endpoint: Callable[..., Endpoint], value: str) -> None:
    endpoint = start_endpoint("a")
    (endpoint.root() / "x").write_bytes(b"x")
    body = {"id": "h", "sources": [{"url": "/data/x"}], "destination": {"url": "/data/y"}}
    token = endpoint.token()
    headers = [("traceparent", value)]
    answer = ask(endpoint, "POST", "/v1/transfers", body, headers=headers, token=token)
    assert answer.code == 201, answer.text
    assert json.loads(answer.text)["trace_id"] is None
    # The field of the request is ignored in the same way.
    body |= {"id": "i", "traceparent": value, "destination": {"url": "/data/z"}}
    answer = ask(endpoint, "POST", "/v1/transfers", body, token=token)
    assert answer.code == 201, answer.text
    kept = json.loads(answer.text)
    assert kept["trace_id"] is None
    assert "traceparent" not in kept["request"]


def run_cp(endpoint: Endpoint, url: str, source: Path, destination: str) -> dict[str, Any]:
    done = subprocess.run(
        [
            str(endpoint.program),
            "cp",
            "--json",
            "--quiet",
            f"--otlp={url}",
            f"--peer-key={endpoint.key}",
            str(source),
            destination,
        ],
        env={**os.environ, "DRAY_TOKEN": endpoint.token(), "TRACEPARENT": TRACEPARENT},
        capture_output=True,
        check=True,
        timeout=60,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_copy_of_the_command_line_has_one_trace_with_the_endpoint(
    start_endpoint: Callable[..., Endpoint], collector: Collector, tmp_path: Path
) -> None:
    endpoint = start_endpoint("b", config={"telemetry": {"otlp": collector.url}})
    tree.make_file(tmp_path / "f", 2 * MIB, seed=1)
    run_cp(endpoint, collector.url, tmp_path / "f", endpoint.place("f"))
    spans = collector.wait(lambda spans: sum(span.name == "session" for span in spans) == 2)
    assert {span.trace for span in spans} == {TRACE}
    (whole,) = [span for span in spans if span.name == "dray cp"]
    assert (whole.instance, whole.parent) == ("dray-cp", CALLER)
    assert whole.attributes["process.exit.code"] == 0
    ends = {span.instance: span for span in spans if span.name == "session"}
    assert ends["dray-cp"].parent == whole.id
    assert ends["b"].parent == ends["dray-cp"].id
    assert (ends["b"].kind, ends["dray-cp"].kind) == (SERVER, CLIENT)
    assert ends["dray-cp"].attributes["dray.session.number"] == 1


def test_an_endpoint_begins_a_trace_if_the_driver_sends_none(
    start_endpoint: Callable[..., Endpoint],
    collector: Collector,
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TRACEPARENT", raising=False)
    endpoint = start_endpoint("b", config={"telemetry": {"otlp": collector.url}})
    tree.make_file(bench.folder / "f", 2 * MIB, seed=1)
    bench.cp(
        "--peer-key",
        endpoint.key,
        bench.folder / "f",
        endpoint.place("f"),
        env={"DRAY_TOKEN": endpoint.token()},
    ).expect(0)
    spans = collector.wait(lambda spans: any(span.name == "session" for span in spans))
    (session,) = [span for span in spans if span.name == "session"]
    assert (session.instance, session.kind, session.parent) == ("b", SERVER, "")
    assert {span.parent for span in spans if span is not session} == {session.id}
    assert {span.trace for span in spans} == {session.trace}


def test_a_server_without_an_endpoint_exports_no_spans(
    collector: Collector, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Both programs have the variable, and the caller's span.
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("TRACEPARENT", TRACEPARENT)
    (bench.folder / "served").mkdir()
    server = bench.serve(bench.folder / "served")
    tree.make_file(bench.folder / "f", 2 * MIB, seed=1)
    there = f"dray://{server.address}/f"
    bench.cp(*bench.peer(server), bench.folder / "f", there).expect(0)
    server.stop().expect(0)
    spans = collector.wait(lambda spans: any(span.name == "dray cp" for span in spans))
    assert {span.instance for span in spans} == {"dray-cp"}
    assert sum(span.name == "session" for span in spans) == 1
    assert {span.trace for span in spans} == {TRACE}
