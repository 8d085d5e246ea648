"""Durable records of submissions.

Invariant owned here: the record with the submission id is durable before the first submission with
this id. So a caller that is killed between the submission and its answer finds the id again, and
the Transfer service answers a repeated submission with the existing task.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from dray_globus.errors import make

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from dray.executors import Store

__all__ = ["FileStore", "Record", "RecordStore"]

_PLAIN = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass(frozen=True, slots=True)
class Record:
    """The record of one transfer.

    :param id: id of the transfer, which the caller chose.
    :param submission_id: id that the Transfer service issued for the submission.
    :param body: digest of the request.
    :param attempt: number of times that this transfer was submitted.
    :param task_id: id of the task, as soon as the service has accepted the submission.
    :param request: the submitted request, which the executor returns with the transfer's state.
    :param is_cancelled: true if this executor has cancelled the task.
    :param is_overdue: true if this executor has cancelled the task because of its deadline.
    """

    id: str
    submission_id: str
    body: str
    attempt: int = 1
    task_id: str | None = None
    request: Mapping[str, Any] = field(default_factory=dict)
    is_cancelled: bool = False
    is_overdue: bool = False


class RecordStore:
    """Reads and writes records in a :class:`Store`."""

    def __init__(self, store: Store) -> None:
        """Use a store."""
        self._store = store

    def get(self, id: str) -> Record | None:
        """Return the record of a transfer.

        :raises DrayError: if the record is damaged.
        """
        found = self._store.get(id)
        if found is None:
            return None
        try:
            return Record(**dict(found))
        except (TypeError, ValueError):
            raise make(
                "log_damaged",
                f"read the record of transfer {id}",
                "the record has unknown or missing fields",
                "find the task in the Globus web app, then remove the record",
                end="here",
            ) from None

    def put(self, record: Record) -> None:
        """Store a record durably."""
        self._store.set(record.id, {**asdict(record), "request": dict(record.request)})

    def delete(self, id: str) -> None:
        """Remove the record of a transfer."""
        self._store.delete(id)

    @contextlib.contextmanager
    def locked(self, id: str) -> Iterator[None]:
        """Exclude other submissions of an id, if the store can lock."""
        lock = getattr(self._store, "locked", None)
        with contextlib.nullcontext() if lock is None else lock(id):
            yield


class FileStore:
    """A store of one file for each key, in a folder.

    A file is written to a temporary name, synced and renamed. Then the folder is synced.
    """

    def __init__(self, folder: Path) -> None:
        """Use a folder. It is created by the first write, readable by its owner only."""
        self._folder = folder

    def get(self, key: str) -> Any:  # noqa: ANN401 - JSON
        """Return the value of a key."""
        path = self._path(key)
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise make(
                "log_damaged",
                f"read {path}",
                str(error),
                "find the task in the Globus web app, then remove the file",
                end="here",
                file=str(path),
            ) from None

    def set(self, key: str, value: dict[str, Any]) -> None:
        """Store a value durably."""
        path = self._path(key)
        part = path.with_suffix(f".{os.getpid()}.part")
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(value, file, sort_keys=True)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
            self._sync()
        except OSError as error:
            raise make(
                "io",
                f"write {path}",
                str(error.strerror),
                "set DRAY_GLOBUS_STATE to a folder that this user can write",
                end="here",
                file=str(path),
            ) from None

    def delete(self, key: str) -> None:
        """Remove a value."""
        self._path(key).unlink(missing_ok=True)

    @contextlib.contextmanager
    def locked(self, key: str) -> Iterator[None]:
        """Exclude other processes of this host that submit the same key."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The lock file stays, because a process may hold or await its lock.
        descriptor = os.open(self._path(key).with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _path(self, key: str) -> Path:
        # A key with other characters must not name a file outside of the folder.
        is_plain = _PLAIN.fullmatch(key) and not key.startswith(".")
        name = key if is_plain else hashlib.sha256(key.encode()).hexdigest()
        return self._folder / f"{name}.json"

    def _sync(self) -> None:
        descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
