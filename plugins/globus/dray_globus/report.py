"""Translate the service's documents about a task to the types of dray. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from dray.client import ByteCounts, FileCounts, Rates, Transfer
from dray_globus.errors import make

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dray.client import TransferState
    from dray.errors import DrayError, ErrorKind, Status
    from dray_globus.store import Record

__all__ = ["GlobusEvent", "GlobusTask", "task_of", "transfer_of"]

#: Words, kind and remedy by the code of a ``nice_status``, an event or a fatal error.
_CODES: Mapping[str, tuple[str, ErrorKind, str]] = {
    "OK": ("the task moves data", "other", ""),
    "Queued": ("the task waits in the service's queue", "other", ""),
    "PERMISSION_DENIED": (
        "a collection denies access",
        "permission_denied",
        "check the permissions of the path and of the identity",
    ),
    "FILE_NOT_FOUND": ("a file does not exist", "not_found", "check the path of the source"),
    "ENDPOINT_ERROR": ("a collection reports an error", "unreachable", "see the task's events"),
    "CONNECTION_FAILED": (
        "a collection does not answer",
        "unreachable",
        "check that its Globus Connect server runs",
    ),
    "CONNECT_FAILED": (
        "a collection does not answer",
        "unreachable",
        "check that its Globus Connect server runs",
    ),
    "GC_NOT_CONNECTED": (
        "Globus Connect Personal does not run at a collection",
        "unreachable",
        "start Globus Connect Personal on that computer",
    ),
    "TIMEOUT": ("an operation took too long", "timed_out", "see the task's events"),
    "EXPIRED": (
        "the deadline passed before the task was done",
        "timed_out",
        "submit the transfer again with a later deadline",
    ),
    "CANCELED": ("the task was cancelled", "cancelled", "submit the transfer again to continue"),
    "QUOTA_EXCEEDED": (
        "the quota of the destination is exceeded",
        "no_space",
        "free space at the destination, then submit the transfer again",
    ),
    "NO_SPACE_LEFT": (
        "the destination has no space",
        "no_space",
        "free space at the destination, then submit the transfer again",
    ),
    "VERIFY_CHECKSUM": (
        "the checksums of a file and its copy differ",
        "checksum_mismatch",
        "check the storage and the expected checksum",
    ),
    "CHECKSUM_MISMATCH": (
        "the checksum of a file differs from the expected checksum",
        "checksum_mismatch",
        "check the source and the expected checksum",
    ),
    "FILE_SIZE_CHANGED": (
        "a source file changed during the copy",
        "source_changed",
        "submit the transfer again when the file is complete",
    ),
    "AUTH": (
        "the credentials of a collection have expired",
        "unauthorized",
        "log in to the collection in the Globus web app; the task then continues",
    ),
    "CREDENTIALS_EXPIRED": (
        "the credentials of a collection have expired",
        "unauthorized",
        "log in to the collection in the Globus web app; the task then continues",
    ),
    "PAUSED_BY_ADMIN": (
        "a manager of a collection has paused the task",
        "unattended",
        "ask the manager of the collection to resume the task",
    ),
}
PAGE = "https://app.globus.org/activity/{id}"
"""Page of a task in the Globus web app."""
_OPERATION = "move the files of Globus task"


@dataclass(frozen=True, slots=True)
class GlobusEvent:
    """An event of a task: its time, a code, one line of text, and true for a fault."""

    at: str
    code: str
    text: str
    is_error: bool


@dataclass(frozen=True, slots=True)
class GlobusTask:
    """The state of a task as the Transfer service reports it.

    :param status: ``ACTIVE``, ``INACTIVE``, ``SUCCEEDED`` or ``FAILED``.
    :param nice_status: code of the current activity or fault, for example ``PERMISSION_DENIED``.
    :param words: description of the current activity or fault, with the remedy.
    :param faults: number of faults that the service has retried.
    :param pauses: reasons for which managers of the collections have paused the task.
    :param events: the newest events first.
    """

    id: str
    status: str
    label: str
    source: str
    destination: str
    owner_id: str
    bytes_transferred: int
    bytes_checksummed: int
    rate: int
    files: int
    files_transferred: int
    files_skipped: int
    subtasks_failed: int
    skipped_errors: int
    faults: int
    nice_status: str
    words: str
    is_paused: bool
    requested_at: datetime | None
    ended_at: datetime | None
    deadline: datetime | None
    fatal: str
    fatal_words: str
    is_expired: bool
    is_cancelled: bool
    sync_level: int | None
    pauses: tuple[str, ...] = ()
    events: tuple[GlobusEvent, ...] = ()

    @property
    def is_terminal(self) -> bool:
        """True if the task has ended."""
        return self.status in ("SUCCEEDED", "FAILED")

    @property
    def page(self) -> str:
        """The page of the task in the Globus web app."""
        return PAGE.format(id=self.id)


def task_of(
    document: Mapping[str, Any],
    pauses: Sequence[str] = (),
    events: Sequence[Mapping[str, Any]] = (),
) -> GlobusTask:
    """Read a task document. A missing field gets an empty value or 0.

    :param events: documents of the list of events, the newest first.
    """
    nice = str(document.get("nice_status") or "")
    details = document.get("nice_status_details") or document.get("nice_status_short_description")
    fatal = document.get("fatal_error") or {}
    read = tuple(map(_event, events))
    status = str(document.get("status", ""))
    if status == "INACTIVE" and not nice:
        nice = "CREDENTIALS_EXPIRED"
    return GlobusTask(
        id=str(document.get("task_id", "")),
        status=status,
        label=str(document.get("label") or ""),
        source=str(document.get("source_endpoint_id") or ""),
        destination=str(document.get("destination_endpoint_id") or ""),
        owner_id=str(document.get("owner_id") or ""),
        bytes_transferred=_count(document, "bytes_transferred"),
        bytes_checksummed=_count(document, "bytes_checksummed"),
        rate=_count(document, "effective_bytes_per_second"),
        files=_count(document, "files"),
        files_transferred=_count(document, "files_transferred"),
        files_skipped=_count(document, "files_skipped"),
        subtasks_failed=_count(document, "subtasks_failed"),
        skipped_errors=_count(document, "subtasks_skipped_errors"),
        faults=_count(document, "faults"),
        nice_status=nice,
        words=words_of(nice, str(details or "")),
        is_paused=bool(document.get("is_paused")) or nice == "PAUSED_BY_ADMIN",
        requested_at=_time(document.get("request_time")),
        ended_at=_time(document.get("completion_time")),
        deadline=_time(document.get("deadline")),
        fatal=str(fatal.get("code") or ""),
        fatal_words=_line(fatal.get("description")),
        is_expired=_count(document, "subtasks_expired") > 0,
        is_cancelled=_count(document, "subtasks_canceled") > 0
        or bool(document.get("canceled_by_admin")),
        sync_level=document.get("sync_level"),
        pauses=tuple(pauses),
        events=read,
    )


def transfer_of(task: GlobusTask, record: Record) -> Transfer:
    """Return the state of a task in the form of an endpoint's answer.

    Globus does not tell which bytes are durable before the task has succeeded. So until then, only
    ``bytes.sent`` grows.
    """
    state, error = _state_of(task, record)
    is_done = state in ("done", "incomplete")
    kept = task.files_skipped
    rate = float(task.rate)
    return Transfer(
        id=record.id,
        state=state,
        attempt=record.attempt,
        owner=task.owner_id,
        request=record.request,
        submitted_at=task.requested_at,
        started_at=task.requested_at,
        ended_at=task.ended_at,
        files=FileCounts(
            listed=task.files,
            done=task.files_transferred + kept,
            failed=task.skipped_errors,
            # Level 0 does not compare content, so the kept file may differ from the source.
            skipped=kept if task.sync_level == 0 else 0,
            adopted=kept if task.sync_level != 0 else 0,
            listing_done=task.is_terminal,
        ),
        bytes=ByteCounts(
            listed=task.bytes_transferred if is_done else 0,
            durable=task.bytes_transferred if is_done else 0,
            sent=task.bytes_transferred,
        ),
        rate=Rates(now=None if task.is_terminal else rate, mean=rate),
        error=error,
        notices=_notices(task),
    )


def words_of(code: str, details: str = "") -> str:
    """Describe a code in words, with the remedy and the service's own details."""
    known = _CODES.get(code)
    if known is None:
        return _line(f"{code} {details}")
    text = known[0] + (f": {known[2]}" if known[2] else "")
    return _line(f"{text} ({details})" if details else text)


def _state_of(task: GlobusTask, record: Record) -> tuple[TransferState, DrayError | None]:
    match task.status:
        case "SUCCEEDED" if task.skipped_errors:
            return "incomplete", _error(
                task,
                "io",
                f"{task.skipped_errors} source files could not be read",
                f"see the skipped files on {task.page}, then submit the transfer again",
            )
        case "SUCCEEDED":
            return "done", None
        case "FAILED":
            return _failed(task, record)
        case "INACTIVE":
            return "paused", _of_code(task, task.nice_status, task.words)
        case "ACTIVE" if task.is_paused:
            why = "; ".join(task.pauses) or "a manager of a collection has paused the task"
            return "paused", _error(
                task,
                "unattended",
                f"the task is paused: {why}",
                "ask the manager of the collection to resume the task",
            )
        case "ACTIVE" if task.nice_status not in ("", "OK", "Queued"):
            return "waiting", _of_code(task, task.nice_status, task.words)
        case "ACTIVE":
            return ("queued" if task.nice_status == "Queued" else "active"), None
        case _:
            return "failed", _error(
                task, "protocol", f"the status {task.status!r} is unknown", "upgrade dray_globus"
            )


def _failed(task: GlobusTask, record: Record) -> tuple[TransferState, DrayError]:
    if record.is_overdue or task.is_expired:
        return "failed", _of_code(task, "EXPIRED", words_of("EXPIRED"))
    if record.is_cancelled or task.is_cancelled:
        return "cancelled", _of_code(task, "CANCELED", words_of("CANCELED"))
    # The fatal error is the most exact. Otherwise the newest fault tells the cause.
    newest = next((event for event in task.events if event.is_error), None)
    if task.fatal:
        return "failed", _of_code(task, task.fatal, words_of(task.fatal, task.fatal_words))
    if newest is not None:
        return "failed", _of_code(task, newest.code, words_of(newest.code, newest.text))
    return "failed", _of_code(task, task.nice_status, task.words)


def _of_code(task: GlobusTask, code: str, words: str) -> DrayError:
    _, kind, remedy = _CODES.get(code, ("", "other", ""))
    cause = words.replace(f": {remedy}", "", 1) if remedy else words or "no reason was given"
    # A retry with the same deadline would fail in the same way.
    status: Status | None = "permanent" if code == "EXPIRED" else None
    return _error(task, kind, cause, remedy or f"see {task.page}", status)


def _error(
    task: GlobusTask, kind: ErrorKind, cause: str, remedy: str, status: Status | None = None
) -> DrayError:
    return make(kind, f"{_OPERATION} {task.id}", cause, remedy, status=status)


def _notices(task: GlobusTask) -> tuple[str, ...]:
    if not task.faults:
        return ()
    newest = next((event for event in task.events if event.is_error), None)
    last = f"; the newest: {newest.code}: {newest.text}" if newest is not None else ""
    return (f"the service has retried {task.faults} faults{last}",)


def _event(document: Mapping[str, Any]) -> GlobusEvent:
    return GlobusEvent(
        str(document.get("time", "")),
        str(document.get("code", "")),
        _line(document.get("details") or document.get("description")),
        bool(document.get("is_error")),
    )


def _line(text: object) -> str:
    return " ".join(str(text or "").split())[:500]


def _count(document: Mapping[str, Any], name: str) -> int:
    value = document.get(name)
    return value if isinstance(value, int) else 0


def _time(value: object) -> datetime | None:
    """Read a time of the service: ISO 8601, in some documents with a blank instead of the T."""
    if not isinstance(value, str):
        return None
    try:
        found = datetime.fromisoformat(value.replace("Z", "+00:00"))
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=timezone.utc)
