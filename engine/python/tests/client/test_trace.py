"""The span of the caller in the header ``traceparent``."""

from __future__ import annotations

import pytest
from opentelemetry import trace

from dray.client import _calls as calls
from dray.client import _flows as flows
from dray.client._steps import Send
from dray.client._trace import traceparent

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
TEXT = f"00-{TRACE}-{SPAN}-01"


def test_the_variable_is_used_only_if_it_is_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRACEPARENT", raising=False)
    assert traceparent() is None
    monkeypatch.setenv("TRACEPARENT", f" {TEXT}\n")
    assert traceparent() == TEXT
    for wrong in ("", "hostile", TEXT.upper(), f"{TEXT}\r\nx: y", TEXT[:-1]):
        monkeypatch.setenv("TRACEPARENT", wrong)
        assert traceparent() is None, wrong


@pytest.mark.parametrize("is_sampled", [True, False])
def test_the_current_span_precedes_the_variable(
    monkeypatch: pytest.MonkeyPatch, is_sampled: bool
) -> None:
    monkeypatch.setenv("TRACEPARENT", TEXT)
    flags = trace.TraceFlags(int(is_sampled))
    context = trace.SpanContext(
        int("ab" * 16, 16), int("0c" * 8, 16), is_remote=True, trace_flags=flags
    )
    with trace.use_span(trace.NonRecordingSpan(context)):
        assert traceparent() == f"00-{'ab' * 16}-{'0c' * 8}-0{int(is_sampled)}"
    assert traceparent() == TEXT


def test_a_call_sends_the_header(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEPARENT", TEXT)
    first = next(flows.carry(calls.transfer("t"), flows.Policy()))
    assert isinstance(first, Send)
    assert first.headers["traceparent"] == TEXT
    monkeypatch.delenv("TRACEPARENT")
    first = next(flows.carry(calls.transfer("t"), flows.Policy()))
    assert isinstance(first, Send)
    assert "traceparent" not in first.headers
