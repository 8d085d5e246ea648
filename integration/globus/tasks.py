"""Tasks of the local service. Each task copies bytes between two folders, on its own thread."""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
import time
import zlib
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from integration.globus import documents

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Behaviour", "Task", "now"]

CHUNK_BYTES = 64 << 10


def now() -> str:
    """Return the time in the form of the service."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


@dataclass(slots=True)
class Behaviour:
    """Faults of the tasks that are submitted from now on.

    :param pause_seconds: pause after each chunk of 64 KiB.
    :param inactive: if set, each task reports expired credentials before its first byte, until
        this event is set.
    :param paused: if set, each task reports a pause rule before its first byte, until this event
        is set.
    :param corrupts: change a byte of each copy.
    :param quota_bytes: number of bytes after which the destination's quota is used up.
    :param faults: number of connection faults before the first byte.
    """

    pause_seconds: float = 0.0
    inactive: threading.Event | None = None
    paused: threading.Event | None = None
    corrupts: bool = False
    quota_bytes: int | None = None
    faults: int = 0


class FatalError(Exception):
    """The task fails, with this code and these details."""


@dataclass(slots=True)
class Task:
    """A task: the submission, and the progress of the copy."""

    id: str
    owner: str
    asked: dict[str, Any]
    source: Path
    destination: Path
    behaviour: Behaviour
    status: str = "ACTIVE"
    code: str = ""
    details: str = ""
    nice_status: str = ""
    is_paused: bool = False
    bytes: int = 0
    bytes_checksummed: int = 0
    files: int = 0
    folders: int = 0
    skipped: int = 0
    faults: int = 0
    request_time: str = field(default_factory=now)
    completion_time: str | None = None
    done: list[dict[str, Any]] = field(default_factory=list)
    errors: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    begun: float = field(default_factory=time.monotonic)
    is_cancelled: threading.Event = field(default_factory=threading.Event)

    @property
    def is_terminal(self) -> bool:
        """True if the task has ended."""
        return self.status in ("SUCCEEDED", "FAILED")

    @property
    def rate(self) -> int:
        """Mean rate in bytes per second."""
        return int(self.bytes / max(time.monotonic() - self.begun, 0.001))

    def run(self) -> None:
        """Copy all items, then end."""
        try:
            self._wait_for_permission()
            for item in self.asked["DATA"]:
                self._item(item)
        except FatalError as error:
            self.code, self.details = error.args
            self._note(self.code, self.details, is_error=True)
            self._end("FAILED")
        except OSError as error:
            self.code, self.details = "ENDPOINT_ERROR", str(error)
            self._end("FAILED")
        else:
            self._note("SUCCEEDED", "")
            self._end("SUCCEEDED")

    def _end(self, status: str) -> None:
        self.completion_time = now()
        self.nice_status = ""
        self.status = status

    def _wait_for_permission(self) -> None:
        self._note("STARTED", "")
        for _ in range(self.behaviour.faults):
            self.faults += 1
            self._note("CONNECTION_FAILED", "the server reset the connection", is_error=True)
        if self.behaviour.inactive is not None:
            self.nice_status, self.status = "CREDENTIALS_EXPIRED", "INACTIVE"
            self._hold(self.behaviour.inactive)
            self.nice_status, self.status = "", "ACTIVE"
        if self.behaviour.paused is not None:
            self.nice_status, self.is_paused = "PAUSED_BY_ADMIN", True
            self._hold(self.behaviour.paused)
            self.nice_status, self.is_paused = "", False

    def _hold(self, until: threading.Event) -> None:
        while not until.wait(0.02):
            self._check()

    def _check(self) -> None:
        if self.is_cancelled.is_set():
            raise FatalError("CANCELED", "the task was cancelled")
        deadline = self.asked.get("deadline")
        if deadline and datetime.fromisoformat(deadline) <= datetime.now(timezone.utc):
            raise FatalError("EXPIRED", "the deadline has passed")

    def _note(self, code: str, text: str, *, is_error: bool = False) -> None:
        event = documents.event(self.id, now(), code, text, is_error=is_error)
        self.events.insert(0, event)

    def _item(self, item: dict[str, Any]) -> None:
        source = self.source / item["source_path"].lstrip("/")
        target = self.destination / item["destination_path"].lstrip("/")
        if not item.get("recursive"):
            self.files += 1
            self._file(item, source, target, item["source_path"], item["destination_path"])
            return
        if not source.is_dir():
            raise FatalError("FILE_NOT_FOUND", f"{item['source_path']} is not a folder")
        for path in sorted(source.rglob("*")):
            below = path.relative_to(source).as_posix()
            if path.is_dir():
                self.folders += 1
                (target / below).mkdir(parents=True, exist_ok=True)
                continue
            self.files += 1
            names = [f"{item[end].rstrip('/')}/{below}" for end in _ENDS]
            self._file(item, path, target / below, *names)

    def _file(
        self, item: dict[str, Any], source: Path, target: Path, name: str, written: str
    ) -> None:
        try:
            file = source.open("rb")
        except OSError as error:
            if not self.asked.get("skip_source_errors"):
                code = "FILE_NOT_FOUND" if not source.exists() else "PERMISSION_DENIED"
                raise FatalError(code, f"{name}: {error.strerror}") from None
            document = documents.skipped_error(name, written, "FILE_NOT_FOUND", str(error.strerror))
            self.errors.append(document)
            return
        with file:
            if self._is_kept(source, target):
                self.skipped += 1
                return
            target.parent.mkdir(parents=True, exist_ok=True)
            self._copy(file, target)
        if self.asked.get("preserve_timestamp"):
            shutil.copystat(source, target)
        self._verify(item, source, target, name)
        self.done.append(documents.successful_transfer(name, written))

    def _is_kept(self, source: Path, target: Path) -> bool:
        level = self.asked.get("sync_level")
        if level is None or not target.exists():
            return False
        if level == 0:
            return True
        if source.stat().st_size != target.stat().st_size:
            return False
        return level < _CHECKSUM or _sum("MD5", source) == _sum("MD5", target)

    def _copy(self, file: Any, target: Path) -> None:  # noqa: ANN401 - an open file
        with target.open("wb") as out:
            while chunk := file.read(CHUNK_BYTES):
                self._check()
                quota = self.behaviour.quota_bytes
                if quota is not None and self.bytes + len(chunk) > quota:
                    raise FatalError("QUOTA_EXCEEDED", "the quota of the destination is exceeded")
                out.write(chunk)
                self.bytes += len(chunk)
                if self.behaviour.pause_seconds:
                    self.is_cancelled.wait(self.behaviour.pause_seconds)
            out.flush()
            os.fsync(out.fileno())
        if self.behaviour.corrupts:
            with target.open("r+b") as out:
                first = out.read(1)
                out.seek(0)
                out.write(bytes([first[0] ^ 1]))

    def _verify(self, item: dict[str, Any], source: Path, target: Path, name: str) -> None:
        external = item.get("external_checksum")
        algorithm = item.get("checksum_algorithm") or "MD5"
        if not external and not self.asked.get("verify_checksum", True):
            return
        found = _sum(algorithm, target)
        self.bytes_checksummed += target.stat().st_size
        if external and found != external:
            target.unlink()
            raise FatalError("CHECKSUM_MISMATCH", f"{name} has {algorithm} {found}")
        if found != _sum(algorithm, source):
            target.unlink()
            raise FatalError("VERIFY_CHECKSUM", f"{name}: the copy has another checksum")


_ENDS = ("source_path", "destination_path")
_CHECKSUM = 3


def _sum(algorithm: str, path: Path) -> str:
    data = path.read_bytes()
    if algorithm == "ADLER32":
        return f"{zlib.adler32(data):08x}"
    return hashlib.new(algorithm.lower(), data).hexdigest()
