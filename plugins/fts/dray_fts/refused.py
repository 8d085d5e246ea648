"""Calls of FTS that the service refuses, each with the reason and the replacement."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dray_fts.people import Person, RefusedError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from dray_fts.service import Service

__all__ = ["REFUSED", "refuse"]

REFUSED = {
    "ban": "the service cannot ban users or storage; limit or pause transfers at the endpoint",
    "config": "the service has no configuration calls; edit its configuration file",
    "dm": "the service does not manage files; use `dray ls`, `dray rm` or the control API",
    "cs": "the service has no cloud storage",
    "archive": "the service has no archive; GET /jobs/ID returns an ended job for keep_days",
    "optimizer": "the service has no optimizer; endpoints tune streams and threads",
    "autocomplete": "the service does not complete names",
    "snapshot": "the service has no snapshots; GET /status/hosts counts the active files",
    "api-docs": "the service has no generated documentation; see docs/reference/fts.md",
    "oauth2": "the service issues no tokens; use a token of an issuer that the endpoint trusts",
}
"""The first part of a path, and the reason."""


def refuse(service: Service, person: Person, request: Request, body: bytes) -> Response:
    """Refuse a call with the reason."""
    del service, person, body
    family = request.path_params["family"]
    if family in REFUSED:
        raise RefusedError(403, REFUSED[family])
    raise RefusedError(404, f"{request.url.path} is not a call of the service")
