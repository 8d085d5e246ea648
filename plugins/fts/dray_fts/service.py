"""The parts of the running service, and its ASGI application."""

from __future__ import annotations

import contextlib
import os
import re
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from dray_fts import delegation, job_calls, refused
from dray_fts.database import Database
from dray_fts.driver import Driver
from dray_fts.endpoints import Endpoints
from dray_fts.people import NOBODY, Person, RefusedError, identify
from dray_fts.revoked import Revocations

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from typing import TypeAlias

    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from dray_fts.publisher import Publisher
    from dray_fts.settings import Settings

    Call: TypeAlias = Callable[["Service", Person, Request, bytes], Response]

__all__ = ["API", "Service"]

API = {
    "api": {"major": 3, "minor": 14, "patch": 0},
    "core": {"major": 3, "minor": 14, "patch": 0},
    "schema": {"major": 9, "minor": 0, "patch": 0},
    "delegation": {"major": 1, "minor": 0, "patch": 0},
}
"""The versions of FTS whose calls the service speaks."""
_PHRASES = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    409: "Conflict",
    413: "Request Entity Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class Service:
    """The database, the endpoints and the driver."""

    def __init__(self, settings: Settings) -> None:
        """Open the database.

        :raises OSError: if the folder of the state cannot be created, or if a revocation list
            cannot be read.
        :raises SettingsError: if a file for the broker cannot be used.
        :raises ValueError: if a file is not a revocation list.
        :raises sqlite3.Error: if the database cannot be opened.
        """
        settings.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The database has names of users and of files.
        os.umask(0o077)
        self.settings = settings
        self.revocations = Revocations(settings.crls)
        kinds = () if settings.messages is None else tuple(settings.messages.destinations)
        self.database = Database(settings.state / "fts.db", settings.name, kinds)
        self.endpoints = Endpoints(settings.endpoints)
        self.driver = Driver(self.database, self.endpoints, settings.limits)
        self.publisher: Publisher | None = None
        if settings.messages is not None:
            # Only this part needs the extra `fts-messages`.
            from dray_fts.publisher import Publisher

            self.publisher = Publisher(self.database, settings.messages)

    def app(self) -> Starlette:
        """Return the application. The driver runs as long as the application."""

        @contextlib.asynccontextmanager
        async def lifespan(_app: Starlette) -> AsyncIterator[None]:
            self.driver.start()
            if self.publisher is not None:
                self.publisher.start()
            yield
            await run_in_threadpool(self.driver.stop)
            if self.publisher is not None:
                await run_in_threadpool(self.publisher.stop)
            self.endpoints.close()
            self.database.close()

        made = Starlette(routes=self._routes(), lifespan=lifespan)
        made.add_middleware(_SingleSlashes)
        return made

    def _routes(self) -> list[Route]:
        jobs, job = "/jobs", "/jobs/{id}"
        files = f"{job}/files"
        given = "/delegation/{id}"
        table: list[tuple[str, str, Call]] = [
            ("GET", "/", _root),
            ("GET", "/whoami", delegation.whoami),
            ("GET", "/whoami/certificate", delegation.certificate),
            ("GET", given, delegation.termination),
            ("DELETE", given, delegation.forget),
            ("GET", f"{given}/request", delegation.request_of),
            ("PUT", f"{given}/credential", delegation.put),
            ("POST", f"{given}/credential", delegation.put),
            ("GET", jobs, job_calls.list_jobs),
            ("POST", jobs, job_calls.submit),
            ("PUT", jobs, job_calls.submit),
            ("DELETE", f"{jobs}/all", job_calls.cancel_all),
            ("DELETE", f"{jobs}/vo/{{vo}}", job_calls.cancel_all),
            ("GET", job, job_calls.query),
            ("POST", job, job_calls.modify),
            ("DELETE", job, job_calls.cancel),
            ("GET", files, job_calls.files),
            ("DELETE", f"{files}/{{file}}", job_calls.cancel_files),
            ("GET", f"{files}/{{file}}/retries", job_calls.retries),
            ("GET", f"{job}/dm", job_calls.deletions),
            ("GET", f"{job}/{{field}}", job_calls.field),
            ("GET", "/files", job_calls.list_files),
            ("GET", "/status/hosts", _hosts),
            ("GET", "/ban/se", _bans),
            ("GET", "/ban/dn", _bans),
        ]
        made = [Route(path, self._handler(call), methods=[method]) for method, path, call in table]
        last = self._handler(refused.refuse)
        several = ["GET", "POST", "PUT", "DELETE"]
        for path in ("/{family}", "/{family}/{rest:path}"):
            made.append(Route(path, last, methods=several))
        return made

    def _handler(self, call: Call) -> Callable[[Request], Awaitable[Response]]:
        async def handle(request: Request) -> Response:
            try:
                person = await run_in_threadpool(self._identify, request)
                # A stranger's body is never read.
                body = await self._body(request)
                return await run_in_threadpool(call, self, person, request, body)
            except RefusedError as error:
                return refusal(error.code, str(error))

        return handle

    def _identify(self, request: Request) -> Person:
        # Clients ask for the versions before they choose a credential.
        if request.url.path == "/":
            return NOBODY
        return identify(request, self.settings, self.endpoints, self.revocations)

    async def _body(self, request: Request) -> bytes:
        limit = self.settings.limits.body_bytes
        parts: list[bytes] = []
        size = 0
        async for part in request.stream():
            size += len(part)
            if size > limit:
                raise RefusedError(
                    413, f"the body has more than {limit} bytes; submit several jobs"
                )
            parts.append(part)
        return b"".join(parts)


class _SingleSlashes:
    """Removes doubled slashes from paths. The stock client of FTS asks for ``//jobs``."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = {**scope, "path": re.sub("/+", "/", scope["path"])}
        await self._app(scope, receive, send)


def refusal(code: int, text: str) -> Response:
    """Return an error in the form of FTS."""
    headers = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "5"}}.get(code)
    status = f"{code} {_PHRASES.get(code, 'Error')}"
    return JSONResponse({"status": status, "message": text}, code, headers)


def _root(service: Service, person: Person, request: Request, body: bytes) -> Response:
    """``GET /``: the versions."""
    del person, request, body
    links = {"jobs": {"href": "/jobs"}, "whoami": {"href": "/whoami"}}
    return JSONResponse({**API, "site": service.settings.name, "_links": links})


def _hosts(service: Service, person: Person, request: Request, body: bytes) -> Response:
    """``GET /status/hosts``: the number of active files."""
    del person, request, body
    counts = service.database.counts()
    found = {"active": counts.get("ACTIVE", 0), "staging": counts.get("STARTED", 0)}
    return JSONResponse({service.settings.name: found})


def _bans(service: Service, person: Person, request: Request, body: bytes) -> Response:
    """``GET /ban/se``, ``GET /ban/dn``: nothing is banned, because the service has no bans."""
    del service, person, request, body
    return JSONResponse([])
