"""The span of the caller, for the header ``traceparent`` of calls (W3C Trace Context)."""

from __future__ import annotations

import os
import re
import sys

__all__ = ["traceparent"]

#: Form of version 00 (section 3.2).
_FORM = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


def traceparent() -> str | None:
    """Return the current span of OpenTelemetry, otherwise the variable ``TRACEPARENT``.

    A program that has not imported ``opentelemetry.trace`` has no current span, so this function
    does not import the package. It returns ``None`` if there is no span, or if the variable is not
    valid.
    """
    api = sys.modules.get("opentelemetry.trace")
    if api is not None:
        context = api.get_current_span().get_span_context()
        if context.is_valid:
            flags = int(context.trace_flags) & 1
            return f"00-{context.trace_id:032x}-{context.span_id:016x}-{flags:02x}"
    text = os.environ.get("TRACEPARENT", "").strip()
    return text if _FORM.fullmatch(text) else None
