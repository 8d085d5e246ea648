"""Errors of the Globus services as errors of dray.

A message never contains a token or a secret: it quotes the answer of the service, not the request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import globus_sdk

from dray.errors import (
    DrayError,
    DrayPermanentError,
    DrayTemporaryError,
    DrayUsageError,
    ErrorFields,
)

if TYPE_CHECKING:
    from dray.errors import End, ErrorKind, Status

__all__ = ["LOGIN_REMEDY", "make", "of_sdk", "usage"]

LOGIN_REMEDY = (
    "for a user, run `python -m dray_globus login`; for a program, set DRAY_GLOBUS_CLIENT_ID and "
    "DRAY_GLOBUS_CLIENT_SECRET"
)
WORDS_MAX = 500
"""Maximum number of characters of an answer that a message repeats."""

#: By the first part of the code of an error, which is more exact than the status code.
_KIND_OF_CODE: dict[str, ErrorKind] = {
    "EndpointNotFound": "not_found",
    "EndpointDeleted": "not_found",
    "TaskNotFound": "not_found",
    "NotFound": "not_found",
    "PermissionDenied": "permission_denied",
    "EndpointPermissionDenied": "permission_denied",
    "ConsentRequired": "unauthorized",
    "AuthenticationFailed": "unauthorized",
    "Conflict": "already_exists",
}
_KIND_OF_STATUS: dict[int, ErrorKind] = {
    400: "invalid_request",
    401: "unauthorized",
    403: "permission_denied",
    404: "not_found",
    409: "already_exists",
    413: "limit_exceeded",
    429: "busy",
    502: "unreachable",
    503: "busy",
    504: "timed_out",
}
_TEMPORARY: frozenset[ErrorKind] = frozenset(
    {"busy", "unreachable", "timed_out", "no_space", "internal"}
)


def make(
    kind: ErrorKind,
    operation: str,
    cause: str,
    remedy: str,
    *,
    status: Status | None = None,
    end: End = "network",
    file: str | None = None,
) -> DrayError:
    """Return an error. Without a status, the kind decides if a retry can help."""
    decided: Status = status or ("temporary" if kind in _TEMPORARY else "permanent")
    error_class = DrayPermanentError if decided == "permanent" else DrayTemporaryError
    fields: ErrorFields = {
        "kind": kind,
        "status": decided,
        "end": end,
        "operation": operation,
        "file": file,
        "cause": cause,
        "remedy": remedy,
    }
    return error_class(_line(operation, cause, remedy), **fields)


def usage(operation: str, cause: str, remedy: str) -> DrayUsageError:
    """Return the error of an invalid call, for which no request was sent."""
    return DrayUsageError(
        _line(operation, cause, remedy),
        kind="invalid_request",
        status="permanent",
        end="here",
        operation=operation,
        file=None,
        cause=cause,
        remedy=remedy,
    )


def of_sdk(error: globus_sdk.GlobusError, operation: str) -> DrayError:
    """Convert an error of the Globus SDK."""
    if isinstance(error, globus_sdk.AuthAPIError):
        return _of_auth(error, operation)
    if isinstance(error, globus_sdk.GlobusAPIError):
        return _of_api(error, operation)
    if isinstance(error, globus_sdk.NetworkError):
        return make(
            "unreachable",
            operation,
            f"the Globus service does not answer: {_cut(str(error))}",
            "check the network and the proxy of this host, then try again",
        )
    if type(error).__name__ in ("MissingTokenError", "ExpiredTokenError", "IdentityMismatchError"):
        return make("unauthorized", operation, _cut(str(error)), LOGIN_REMEDY)
    return make("other", operation, _cut(str(error)), "see the log of the Globus SDK")


def _of_auth(error: globus_sdk.AuthAPIError, operation: str) -> DrayError:
    said = _said(error)
    if error.http_status >= 500 or error.http_status == 429:
        return make("busy", operation, f"Globus Auth answers {said}", "try again later")
    return make("unauthorized", operation, f"Globus Auth refuses the login: {said}", LOGIN_REMEDY)


def _of_api(error: globus_sdk.GlobusAPIError, operation: str) -> DrayError:
    code = str(error.code or "")
    kind = _KIND_OF_CODE.get(code.split(".")[0]) or _KIND_OF_STATUS.get(
        error.http_status, "internal" if error.http_status >= 500 else "other"
    )
    made = make(
        kind, operation, f"the Transfer service answers {_said(error)}", _remedy(error, kind)
    )
    # The other form of the header, a date, is not used by the Transfer service.
    seconds = error.headers.get("Retry-After", "")
    if seconds.isdecimal():
        made.retry_after_seconds = float(seconds)
    return made


def _remedy(error: globus_sdk.GlobusAPIError, kind: ErrorKind) -> str:
    consent = error.info.consent_required
    if consent:
        return (
            "give the consent: python -m dray_globus login --data-access COLLECTION "
            f"(required scopes: {', '.join(consent.required_scopes)})"
        )
    remedies: dict[ErrorKind, str] = {
        "unauthorized": LOGIN_REMEDY,
        "not_found": "check the UUID of the collection, the path, and the id of the task",
        "permission_denied": "ask the manager of the collection for permission, or use the "
        "identity that has submitted the task",
        "invalid_request": "correct the request",
        "already_exists": "use another id",
    }
    return remedies.get(kind, "try again later; status.globus.org reports outages")


def _said(error: globus_sdk.GlobusAPIError) -> str:
    text = _cut(error.message or error.text)
    request = f", request {error.request_id}" if error.request_id else ""
    return f"{error.http_status} {error.code or ''}: {text}{request}".replace(" :", ":")


def _cut(text: str) -> str:
    """Return a text in one line, shortened."""
    line = " ".join(text.split())
    return line if len(line) <= WORDS_MAX else f"{line[: WORDS_MAX - 3]}..."


def _line(operation: str, cause: str, remedy: str) -> str:
    return f"cannot {operation}: {cause}" + (f"; {remedy}" if remedy else "")
