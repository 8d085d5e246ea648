"""The documents of the Transfer API v0.10, as the local service writes them.

``test_shapes.py`` compares them with the recorded answers in ``globus_sdk.testing``.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from integration.globus.tasks import Task

__all__ = [
    "event",
    "failure",
    "listing",
    "result",
    "skipped_error",
    "stat",
    "submitted",
    "successful_transfer",
    "task",
]


def request_id() -> str:
    """Return an id of a request, as the service writes it in each answer."""
    return secrets.token_urlsafe(6)[:9].replace("-", "a").replace("_", "b")


def result(kind: str, code: str, message: str, resource: str) -> dict[str, Any]:
    """Return the answer to a change."""
    return {
        "DATA_TYPE": kind,
        "code": code,
        "message": message,
        "request_id": request_id(),
        "resource": resource,
    }


def failure(code: str, message: str, resource: str, **more: object) -> dict[str, Any]:
    """Return the answer to a refused call."""
    words = {"code": code, "message": message, "request_id": request_id(), "resource": resource}
    return {**words, **more}


def submitted(code: str, submission_id: str, task_id: str) -> dict[str, Any]:
    """Return the answer to a submission."""
    message = {
        "Accepted": "The transfer has been accepted and a task has been created "
        "and queued for execution",
        "Duplicate": "The transfer has already been submitted",
    }[code]
    return {
        **result("transfer_result", code, message, "/v0.10/transfer"),
        "submission_id": submission_id,
        "task_id": task_id,
        "task_link": {
            "DATA_TYPE": "link",
            "href": f"/v0.10/task/{task_id}?format=json",
            "rel": "related",
            "resource": "task",
            "title": "related task",
        },
    }


def stat(name: str, size: int, modified: str, *, is_folder: bool) -> dict[str, Any]:
    """Return the document of a file or folder."""
    return {
        "DATA_TYPE": "file",
        "group": "tutorial",
        "last_modified": modified,
        "link_group": None,
        "link_last_modified": None,
        "link_size": None,
        "link_target": None,
        "link_user": None,
        "name": name,
        "permissions": "0755" if is_folder else "0644",
        "size": size,
        "type": "dir" if is_folder else "file",
        "user": "tutorial",
    }


def listing(kind: str, data: list[dict[str, Any]], **more: object) -> dict[str, Any]:
    """Return a list of documents."""
    return {"DATA": data, "DATA_TYPE": kind, **more}


def event(task_id: str, time: str, code: str, text: str, *, is_error: bool) -> dict[str, Any]:
    """Return the document of an event."""
    return {
        "DATA_TYPE": "event",
        "code": code,
        "description": code.replace("_", " ").lower(),
        "details": text,
        "is_error": is_error,
        "parent_task_id": task_id,
        "time": time,
    }


def successful_transfer(source: str, destination: str) -> dict[str, Any]:
    """Return the document of a copied file."""
    return {
        "DATA_TYPE": "successful_transfer",
        "destination_path": destination,
        "source_path": source,
    }


def skipped_error(source: str, destination: str, code: str, details: str) -> dict[str, Any]:
    """Return the document of a source that was skipped because of an error."""
    return {
        "DATA_TYPE": "skipped_error",
        "checksum_algorithm": None,
        "destination_path": destination,
        "error_code": code,
        "error_details": details,
        "error_time": None,
        "external_checksum": None,
        "is_delete_destination_extra": False,
        "is_directory": False,
        "is_symlink": False,
        "source_path": source,
    }


def task(found: Task) -> dict[str, Any]:
    """Return the document of a task."""
    asked = found.asked
    is_failed = found.status == "FAILED"
    failed = {found.code: 1} if is_failed else {}
    total = len(asked["DATA"]) + found.files
    return {
        "DATA_TYPE": "task",
        "bytes_checksummed": found.bytes_checksummed,
        "bytes_transferred": found.bytes,
        "canceled_by_admin": None,
        "canceled_by_admin_message": None,
        "command": "API 0.10",
        "completion_time": found.completion_time,
        "deadline": asked.get("deadline"),
        "delete_destination_extra": False,
        "destination_endpoint": asked["destination_endpoint"],
        "destination_endpoint_display_name": "Destination Endpoint",
        "destination_endpoint_id": asked["destination_endpoint"],
        "directories": found.folders,
        "effective_bytes_per_second": found.rate,
        "encrypt_data": bool(asked.get("encrypt_data", False)),
        "fail_on_quota_errors": bool(asked.get("fail_on_quota_errors", False)),
        "fatal_error": {"code": found.code, "description": found.details}
        if is_failed and found.code not in ("CANCELED", "EXPIRED")
        else None,
        "faults": found.faults,
        "files": found.files,
        "files_skipped": found.skipped,
        "files_transferred": len(found.done),
        "filter_rules": None,
        "history_deleted": False,
        "is_ok": None if found.is_terminal else not found.nice_status,
        "is_paused": found.is_paused,
        "label": asked.get("label"),
        "nice_status": found.nice_status or None,
        "nice_status_details": found.details or None,
        "nice_status_expires_in": None,
        "nice_status_short_description": found.nice_status or None,
        "owner_id": found.owner,
        "preserve_timestamp": bool(asked.get("preserve_timestamp", False)),
        "recursive_symlinks": "ignore",
        "request_time": found.request_time,
        "skip_source_errors": bool(asked.get("skip_source_errors", False)),
        "source_endpoint": asked["source_endpoint"],
        "source_endpoint_display_name": "Source Endpoint",
        "source_endpoint_id": asked["source_endpoint"],
        "status": found.status,
        "subtasks_canceled": failed.get("CANCELED", 0),
        "subtasks_expired": failed.get("EXPIRED", 0),
        "subtasks_failed": 0 if found.code in ("CANCELED", "EXPIRED") else int(is_failed),
        "subtasks_pending": 0 if found.is_terminal else total - len(found.done),
        "subtasks_retrying": int(bool(found.nice_status) and not found.is_terminal),
        "subtasks_skipped_errors": len(found.errors),
        "subtasks_succeeded": len(found.done),
        "subtasks_total": total,
        "symlinks": 0,
        "sync_level": asked.get("sync_level"),
        "task_id": found.id,
        "type": "TRANSFER",
        "username": "u_localservice",
        "verify_checksum": bool(asked.get("verify_checksum", True)),
    }
