"""Convert refusals and broken connections to exceptions.

A message must not repeat any part of a request, so that a message never contains a token.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, cast, get_args

from dray.client._answers import AdmissionVerdict
from dray.errors import (
    DrayError,
    DrayNotAdmittedError,
    DrayPermanentError,
    DrayTemporaryError,
    DrayUsageError,
    End,
    ErrorFields,
    ErrorKind,
    Status,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["error_of", "make", "refusal", "usage"]

WORDS_MAX = 4096
"""Maximum number of characters of an answer that an exception repeats.

A proxy may send a long page.
"""

_KINDS = frozenset(get_args(ErrorKind))
_STATUSES = frozenset(get_args(Status))
_ENDS = frozenset(get_args(End))
_KIND_OF_CODE: dict[int, ErrorKind] = {
    400: "invalid_request",
    401: "unauthorized",
    403: "permission_denied",
    404: "not_found",
    408: "timed_out",
    409: "already_exists",
    413: "limit_exceeded",
    429: "busy",
    501: "unsupported",
    502: "unreachable",
    503: "busy",
    504: "timed_out",
    507: "no_space",
}
#: Status codes after which the same request may succeed.
_TEMPORARY_CODES = frozenset({408, 429, 500, 502, 503, 504})
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")


def usage(cause: str, remedy: str, operation: str = "run the command") -> DrayUsageError:
    """Return the error of an invalid call, for which no request was sent."""
    error = make("invalid_request", "permanent", "here", operation, cause, remedy)
    return DrayUsageError(error.message, **_fields(error))


def make(
    kind: ErrorKind,
    status: Status,
    end: End,
    operation: str,
    cause: str = "",
    remedy: str = "",
) -> DrayError:
    """Return an error that occurred in the client. The status selects its class."""
    where = "" if end in ("here", "network") else f" at the {end}"
    text = kind.replace("_", " ")
    # Otherwise the message would state the reason twice: "unreachable (Connection refused)".
    if cause and kind == "unreachable":
        text = cause
    elif cause and cause.lower() != text:
        text += f" ({cause})"
    message = f"cannot {operation}{where}: {text}"
    message += f"; {remedy}" if remedy else ""
    error_class = DrayPermanentError if status == "permanent" else DrayTemporaryError
    return error_class(
        message,
        kind=kind,
        status=status,
        end=end,
        operation=operation,
        file=None,
        cause=cause,
        remedy=remedy,
    )


def error_of(fields: Mapping[str, Any], *, is_usage: bool = False) -> DrayError:
    """Parse an error object: ``kind``, ``status``, ``end``, ``operation`` and so on.

    An unknown kind becomes ``other``, and the message keeps the unknown word.
    """
    kind, status, end = fields.get("kind"), fields.get("status"), fields.get("end")
    file = fields.get("file")
    named: ErrorFields = {
        "kind": cast("ErrorKind", kind) if kind in _KINDS else "other",
        "status": cast("Status", status) if status in _STATUSES else "permanent",
        "end": cast("End", end) if end in _ENDS else "here",
        "operation": _text(fields, "operation"),
        "file": file if isinstance(file, str) else None,
        "cause": _text(fields, "cause"),
        "remedy": _text(fields, "remedy"),
    }
    message = _text(fields, "message")
    if not message:
        message = make(
            named["kind"],
            named["status"],
            named["end"],
            named["operation"] or "carry out the call",
            named["cause"],
            named["remedy"],
        ).message
    if kind not in _KINDS:
        message += f" [{_clean(str(kind))[:64]}]"
    if is_usage:
        return DrayUsageError(message, **named)
    if named["kind"] == "not_admitted":
        return DrayNotAdmittedError(message, admission=_admission(fields), **named)
    error_class = DrayPermanentError if named["status"] == "permanent" else DrayTemporaryError
    return error_class(message, **named)


def _admission(fields: Mapping[str, Any]) -> AdmissionVerdict:
    # Imported here, because the reader imports this module.
    from dray.client._reader import ShapeError, read

    try:
        return read(AdmissionVerdict, fields.get("admission"))
    except ShapeError:
        # The admission is malformed. The caller must still see the refusal.
        return AdmissionVerdict()


def refusal(code: int, body: bytes, content_type: str, operation: str) -> DrayError:
    """Parse an answer that is an error, from the endpoint or from another program."""
    if 300 <= code < 400:
        return make(
            "protocol",
            "permanent",
            "network",
            operation,
            f"the server answered with the redirect {code}, but the client sends its token "
            "only to the given endpoint",
            "use the URL at which the endpoint itself answers",
        )
    fields = error_object(body)
    if fields is not None:
        return error_of(fields, is_usage=code == 400)
    # The answer is not from the endpoint but from a proxy, or from another program on the port.
    kind = _KIND_OF_CODE.get(code, "other")
    status: Status = "temporary" if code in _TEMPORARY_CODES else "permanent"
    named = _clean(content_type)[:80] or "no type"
    begins = _clean(body[:200].decode("utf-8", "replace"))
    return make(
        kind,
        status,
        "network",
        operation,
        f"the answer with status {code} ({named}) is not the answer of a dray endpoint: {begins!r}",
        "check which program listens at this address, and whether a proxy is between the "
        "client and the endpoint",
    )


def error_object(body: bytes) -> Mapping[str, Any] | None:
    """Return the error object of an answer, if it has one."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    fields = document.get("error") if isinstance(document, dict) else None
    is_one = isinstance(fields, dict) and isinstance(fields.get("kind"), str)
    return cast("Mapping[str, Any]", fields) if is_one else None


def _fields(error: DrayError) -> ErrorFields:
    return cast("ErrorFields", {name: getattr(error, name) for name in ErrorFields.__annotations__})


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    return _clean(value)[:WORDS_MAX] if isinstance(value, str) else ""


def _clean(text: str) -> str:
    # The text is untrusted and goes to a terminal or a log, so line breaks and escape sequences are
    # removed.
    return _CONTROL.sub(" ", text).strip()
