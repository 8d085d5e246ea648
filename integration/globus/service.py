"""A local service with the calls of Globus Auth and of the Transfer API v0.10 that dray uses.

It listens on the loopback interface, checks the bearer token of each call, and copies bytes between
folders that stand for collections. Tests add faults. It is no substitute for Globus: it has no
Globus Connect servers, no GridFTP, and only the errors that it was taught.
"""

from __future__ import annotations

import base64
import json
import re
import secrets
import threading
import uuid
from dataclasses import dataclass, field
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from integration.globus import documents
from integration.globus.tasks import Behaviour, Task

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

__all__ = ["Answer", "Fault", "Service"]

SCOPE = "urn:globus:auth:scope:transfer.api.globus.org:all"
HELD_SECONDS = 60.0
CLIENT_ID = "4de65cd7-4363-4510-b652-f8d15a43a0af"
CLIENT_SECRET = "local-secret"  # noqa: S105 - of the local service


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer: status, document and headers."""

    status: int
    document: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Fault:
    """A fault of the next calls.

    :param path: pattern of ``METHOD /PATH``.
    :param answer: answer instead of the right one. ``None`` closes the connection.
    :param is_done: carry the call out, and lose only its answer.
    :param count: number of calls that have the fault.
    :param held: if set, a call that is carried out gets its answer after this event.
    """

    path: str
    answer: Answer | None = None
    is_done: bool = False
    count: int = 1
    held: threading.Event | None = None


class RefusedError(Exception):
    """A call is refused with an answer."""

    def __init__(self, status: int, code: str, message: str, resource: str = "") -> None:
        """Create the answer."""
        super().__init__(message)
        self.answer = Answer(status, documents.failure(code, message, resource))


class Service:
    """A local Globus. As a context manager, it listens until the end of the block.

    :param folders: for the UUID of each collection, the folder that stands for the collection.
    """

    def __init__(self, folders: dict[str, Path]) -> None:
        """Create the service without tasks."""
        self.folders = folders
        self.behaviour = Behaviour()
        self.faults: list[Fault] = []
        self.tasks: dict[str, Task] = {}
        self.calls: list[str] = []
        self.submissions: list[dict[str, Any]] = []
        #: Owner by valid access token.
        self.tokens: dict[str, str] = {}
        self.refresh_tokens: dict[str, str] = {}
        self.denied: set[str] = set()
        self._issued: set[str] = set()
        self._by_submission: dict[str, str] = {}
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        """The address of the Transfer service and of Globus Auth."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/"

    def __enter__(self) -> Service:
        """Listen."""
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Cancel all tasks and stop."""
        for task in self.tasks.values():
            task.is_cancelled.set()
        self._server.shutdown()
        self._server.server_close()

    def expire_tokens(self) -> None:
        """Make all access tokens invalid, as if their time had passed."""
        self.tokens.clear()

    def grant(self, owner: str) -> str:
        """Return a new access token of an owner."""
        token = secrets.token_urlsafe(16)
        self.tokens[token] = owner
        return token

    def busy(self, path: str, seconds: int, count: int = 1, status: int = 429) -> None:
        """Answer the next calls with ``Retry-After``."""
        document = documents.failure("ServiceUnavailable.RateLimit", "too many calls", path)
        self.faults.append(
            Fault(path, Answer(status, document, {"Retry-After": str(seconds)}), count=count)
        )

    def forget(self, task_id: str) -> None:
        """Forget a task, as the service does 90 days after its end."""
        self.tasks.pop(task_id).is_cancelled.set()

    # --- calls ------------------------------------------------------------------------------------

    def answer(
        self, method: str, target: str, headers: dict[str, str], body: bytes
    ) -> Answer | None:
        """Return the answer to a call. ``None`` closes the connection."""
        parts = urlsplit(target)
        name = f"{method} {parts.path}"
        with self._lock:
            self.calls.append(name)
            fault = self._fault(name)
        if fault is not None and not fault.is_done:
            return fault.answer
        try:
            found = self._call(method, parts.path, parse_qs(parts.query), headers, body)
        except RefusedError as error:
            found = error.answer
        if fault is None:
            return found
        if fault.held is None:
            return None
        fault.held.wait(HELD_SECONDS)
        return found

    def _fault(self, name: str) -> Fault | None:
        for fault in self.faults:
            if fault.count > 0 and re.search(fault.path, name):
                fault.count -= 1
                return fault
        return None

    def _call(
        self,
        method: str,
        path: str,
        query: dict[str, list[str]],
        headers: dict[str, str],
        body: bytes,
    ) -> Answer:
        if path == "/v2/oauth2/token":
            return self._token(headers, parse_qs(body.decode()))
        token = headers.get("authorization", "").removeprefix("Bearer ")
        owner = self.tokens.get(token)
        if owner is None:
            raise RefusedError(401, "AuthenticationFailed", "Token is not active", path)
        for pattern, call in self._routes():
            match = re.fullmatch(pattern, f"{method} {path}")
            if match is not None:
                return call(owner, match.groups(), query, json.loads(body or b"{}"))
        raise RefusedError(404, "ClientError.NotFound", f"no such resource {path}", path)

    def _routes(self) -> list[tuple[str, Callable[..., Answer]]]:
        task = r"/v0\.10/task/([^/]+)"
        place = r"/v0\.10/operation/endpoint/([^/]+)"
        return [
            (r"GET /v0\.10/submission_id", self._submission_id),
            (r"POST /v0\.10/transfer", self._transfer),
            (rf"GET {task}", self._task),
            (r"GET /v0\.10/task_list", self._task_list),
            (rf"POST {task}/cancel", self._cancel),
            (rf"GET {task}/event_list", self._events),
            (rf"GET {task}/pause_info", self._pause_info),
            (rf"GET {task}/successful_transfers", self._successful),
            (rf"GET {task}/skipped_errors", self._skipped),
            (r"GET /v0\.10/endpoint/([^/]+)", self._endpoint),
            (rf"GET {place}/stat", self._stat),
            (rf"GET {place}/ls", self._ls),
            (rf"POST {place}/mkdir", self._mkdir),
        ]

    def _token(self, headers: dict[str, str], form: dict[str, list[str]]) -> Answer:
        grant = form.get("grant_type", [""])[0]
        if grant == "client_credentials":
            given = headers.get("authorization", "").removeprefix("Basic ")
            right = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
            owner = CLIENT_ID if given == right else None
        else:
            owner = self.refresh_tokens.get(form.get("refresh_token", [""])[0])
        if owner is None:
            return Answer(401, {"error": "invalid_client", "error_description": "unknown client"})
        document: dict[str, Any] = {
            "access_token": self.grant(owner),
            "scope": SCOPE,
            "expires_in": 172800,
            "token_type": "Bearer",
            "resource_server": "transfer.api.globus.org",
            "other_tokens": [],
        }
        if grant == "refresh_token":
            document["refresh_token"] = form["refresh_token"][0]
        return Answer(200, document)

    def _submission_id(self, owner: str, *_: object) -> Answer:
        del owner
        id = str(uuid.uuid4())
        self._issued.add(id)
        return Answer(200, {"value": id})

    def _transfer(self, owner: str, _: object, __: object, asked: dict[str, Any]) -> Answer:
        path = "/v0.10/transfer"
        if asked.get("DATA_TYPE") != "transfer" or not asked.get("DATA"):
            message = "A transfer requires at least one item"
            raise RefusedError(400, "ClientError.BadRequest.NoTransferItems", message, path)
        submission = asked["submission_id"]
        if submission not in self._issued:
            raise RefusedError(400, "ClientError.BadRequest", "unknown submission_id", path)
        source = self._folder(asked["source_endpoint"], path)
        destination = self._folder(asked["destination_endpoint"], path)
        with self._lock:
            known = self._by_submission.get(submission)
            if known is not None:
                return Answer(202, documents.submitted("Duplicate", submission, known))
            task = Task(
                str(uuid.uuid4()), owner, asked, source, destination, behaviour=self.behaviour
            )
            self._by_submission[submission] = task.id
            self.tasks[task.id] = task
            self.submissions.append(asked)
        threading.Thread(target=task.run, daemon=True).start()
        return Answer(202, documents.submitted("Accepted", submission, task.id))

    def _folder(self, collection: str, path: str) -> Path:
        folder = self.folders.get(collection)
        if folder is None:
            message = f"No such endpoint or collection '{collection}'"
            raise RefusedError(404, "EndpointNotFound", message, path)
        if collection in self.denied:
            raise RefusedError(403, "PermissionDenied", "no permission on the collection", path)
        return folder

    def _own(self, owner: str, id: str) -> Task:
        task = self.tasks.get(id)
        if task is None:
            raise RefusedError(404, "TaskNotFound", f"No task found with id '{id}'", f"/task/{id}")
        if task.owner != owner:
            message = "The current user does not own this task"
            raise RefusedError(403, "PermissionDenied", message, f"/task/{id}")
        return task

    def _task(self, owner: str, words: tuple[str, ...], *_: object) -> Answer:
        return Answer(200, documents.task(self._own(owner, words[0])))

    def _task_list(self, owner: str, _: object, query: dict[str, list[str]], __: object) -> Answer:
        name, _, ids = query.get("filter", [""])[0].partition(":")
        wanted = set(ids.split(",")) if name == "task_id" else None
        own = [task for task in self.tasks.values() if task.owner == owner]
        found = [documents.task(task) for task in own if wanted is None or task.id in wanted]
        for each in found:
            del each["DATA_TYPE"]
        counts = {"length": len(found), "limit": 1000, "offset": 0, "total": len(found)}
        return Answer(200, documents.listing("task_list", found, **counts))

    def _cancel(self, owner: str, words: tuple[str, ...], *_: object) -> Answer:
        task = self._own(owner, words[0])
        resource = f"/task/{task.id}/cancel"
        if task.is_terminal:
            message = "The task completed before the cancel request was processed."
            return Answer(200, documents.result("result", "TaskComplete", message, resource))
        task.is_cancelled.set()
        message = "The task has been cancelled successfully."
        return Answer(200, documents.result("result", "Canceled", message, resource))

    def _events(
        self, owner: str, words: tuple[str, ...], query: dict[str, list[str]], _: object
    ) -> Answer:
        events = self._own(owner, words[0]).events
        limit = int(query.get("limit", ["10"])[0])
        counts = {"length": len(events[:limit]), "limit": limit, "offset": 0, "total": len(events)}
        return Answer(200, documents.listing("event_list", events[:limit], **counts))

    def _pause_info(self, owner: str, words: tuple[str, ...], *_: object) -> Answer:
        task = self._own(owner, words[0])
        rule = {
            "DATA_TYPE": "pause_rule_limited",
            "endpoint_display_name": "Destination Endpoint",
            "endpoint_id": task.asked["destination_endpoint"],
            "id": str(uuid.uuid4()),
            "message": "the tape library is under maintenance",
            "pause_task_transfer_write": True,
        }
        document = {
            "DATA_TYPE": "pause_info_limited",
            "destination_pause_message": None,
            "pause_rules": [rule] if task.is_paused else [],
            "source_pause_message": None,
        }
        return Answer(200, document)

    def _successful(
        self, owner: str, words: tuple[str, ...], query: dict[str, list[str]], _: object
    ) -> Answer:
        return _page("successful_transfers", self._own(owner, words[0]).done, query)

    def _skipped(
        self, owner: str, words: tuple[str, ...], query: dict[str, list[str]], _: object
    ) -> Answer:
        return _page("skipped_errors", self._own(owner, words[0]).errors, query)

    def _endpoint(self, owner: str, words: tuple[str, ...], *_: object) -> Answer:
        del owner
        self._folder(words[0], f"/v0.10/endpoint/{words[0]}")
        document = {
            "DATA_TYPE": "endpoint",
            "id": words[0],
            "display_name": "myserver",
            "entity_type": "GCSv5_mapped_collection",
        }
        return Answer(200, document)

    def _path(self, words: tuple[str, ...], query: dict[str, list[str]]) -> Path:
        folder = self._folder(words[0], f"/v0.10/operation/endpoint/{words[0]}")
        return folder / query.get("path", ["/"])[0].lstrip("/")

    def _stat(
        self, owner: str, words: tuple[str, ...], query: dict[str, list[str]], _: object
    ) -> Answer:
        del owner
        path = self._path(words, query)
        if not path.exists():
            resource = f"/v0.10/operation/endpoint/{words[0]}/stat"
            raise RefusedError(404, "NotFound", "Path not found, Error (list)", resource)
        return Answer(200, _stat_of(path))

    def _ls(
        self, owner: str, words: tuple[str, ...], query: dict[str, list[str]], _: object
    ) -> Answer:
        del owner
        path = self._path(words, query)
        files = [_stat_of(each) for each in sorted(path.iterdir())]
        words_of = {"path": query.get("path", ["/"])[0], "endpoint": words[0]}
        return Answer(200, documents.listing("file_list", files, length=len(files), **words_of))

    def _mkdir(
        self, owner: str, words: tuple[str, ...], _: object, asked: dict[str, Any]
    ) -> Answer:
        del owner
        resource = f"/v0.10/operation/endpoint/{words[0]}/mkdir"
        path = self._folder(words[0], resource) / asked["path"].lstrip("/")
        path.mkdir()
        message = "The directory was created successfully"
        return Answer(202, documents.result("mkdir_result", "DirectoryCreated", message, resource))


PAGE = 100


def _page(kind: str, data: list[dict[str, Any]], query: dict[str, list[str]]) -> Answer:
    first = int(query.get("marker", ["0"])[0])
    following = first + PAGE
    words = {"marker": first, "next_marker": following if following < len(data) else None}
    return Answer(200, documents.listing(kind, data[first:following], **words))


def _stat_of(path: Path) -> dict[str, Any]:
    found = path.stat()
    modified = datetime.fromtimestamp(found.st_mtime, timezone.utc).isoformat(" ", "seconds")
    return documents.stat(path.name, found.st_size, modified, is_folder=path.is_dir())


def _handler(service: Service) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            found = service.answer(self.command, self.path, headers, body)
            if found is None:
                self.close_connection = True
                return
            data = json.dumps(found.document).encode()
            self.send_response(found.status)
            for name, value in {
                "Content-Type": "application/json",
                "Content-Length": str(len(data)),
                **found.headers,
            }.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = _serve

        def log_message(self, format: str, *args: object) -> None:
            """Keep the output of tests clean."""

    return Handler
