"""Waits for files at an endpoint, in the triggerer. Pure waiters: they change nothing."""

from __future__ import annotations

import asyncio
import fnmatch
import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseEventTrigger, BaseTrigger, TriggerEvent

from dray_airflow.hooks.dray import DrayHook
from dray_airflow.triggers.fields import OfFields

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dray.client import Entry

__all__ = ["DrayFileTrigger", "DrayFolderTrigger", "is_settled"]

POLL_SECONDS = 15.0
SETTLE_SECONDS = 5.0
"""As in :mod:`dray_airflow.triggers.transfer`."""
FILES_REPORTED_MAX = 100
"""Files in one payload, which stays in Airflow's database."""
SEEN_KEY = "dray_seen_until"


def is_settled(entry: Entry, size_min: int, quiet_seconds: float, now: datetime) -> bool:
    """Return whether a file exists and is complete, as far as it can be seen from outside.

    A file that an endpoint copies gets its name only when it is complete; files of other writers
    may still grow.

    :param size_min: minimum size in bytes.
    :param quiet_seconds: required time without a change.
    :param now: aware.
    """
    if entry.type not in ("file", "directory"):
        return False
    if entry.type == "file" and (entry.size or 0) < size_min:
        return False
    if quiet_seconds <= 0 or entry.modified_at is None:
        return True
    return (now - entry.modified_at).total_seconds() >= quiet_seconds


class DrayFileTrigger(OfFields, BaseTrigger):
    """Fires when a file or folder exists, or cannot be asked for.

    An unreachable endpoint, and a refused token, are retried for the connection's
    ``outage_seconds``.

    :param dray_conn_id: connection of the endpoint.
    :param path: ``/ROOT/PATH``.
    :param size_min: minimum size in bytes.
    :param quiet_seconds: required time without a change.
    :param poll_seconds: between checks.
    """

    FIELDS = ("dray_conn_id", "path", "size_min", "quiet_seconds", "poll_seconds")

    def __init__(
        self,
        dray_conn_id: str,
        path: str,
        size_min: int = 0,
        quiet_seconds: float = 0.0,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        """Store the arguments."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.dray_conn_id = dray_conn_id
        self.path = path
        self.size_min = size_min
        self.quiet_seconds = quiet_seconds
        self.poll_seconds = poll_seconds

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Check until it exists; fire once."""
        begun = time.monotonic()
        words = await self._outcome()
        await asyncio.sleep(max(0.0, begun + SETTLE_SECONDS - time.monotonic()))
        yield TriggerEvent(words)  # type: ignore[no-untyped-call]

    async def _outcome(self) -> dict[str, Any]:
        from dray.errors import DrayError
        from dray_airflow.errors import DrayTaskFailure

        lost_at: float | None = None
        while True:
            hook = DrayHook(self.dray_conn_id)
            try:
                # A client for each check: between checks it would occupy one of the few connections
                # that an endpoint allows an address.
                async with await hook.get_async_conn() as client:
                    entry = await client.stat(self.path)
            except DrayTaskFailure as error:
                return {"error": str(error), "kind": error.kind, "status": "permanent"}
            except DrayError as error:
                now_at = time.monotonic()
                if error.kind == "not_found":
                    lost_at = None
                else:
                    # A restart is no reason to give up a wait that may last all day.
                    lost_at = lost_at or now_at
                    is_over = now_at - lost_at >= hook.settings.outage_seconds
                    # A token may be renewed meanwhile; each check reads the connection again.
                    is_refused = error.kind == "unauthorized"
                    if is_over or (error.status == "permanent" and not is_refused):
                        words = {"kind": error.kind, "status": error.status}
                        return {"error": error.message, **words}
                    self.log.warning("%s cannot be checked: %s", self.path, error)
            else:
                lost_at = None
                now = datetime.now(timezone.utc)
                if is_settled(entry, self.size_min, self.quiet_seconds, now):
                    return {"path": entry.path, "size": entry.size}
            await asyncio.sleep(self.poll_seconds)


class DrayFolderTrigger(OfFields, BaseEventTrigger):
    """Fires when there are new files in a folder: the trigger of a watched asset.

    ``AssetWatcher(name=..., trigger=DrayFolderTrigger(...))``. The payload holds ``path`` (of the
    folder), ``count``, and for the first files, by time, ``files`` with ``path``, ``name``,
    ``size`` and ``modified_at``. A changed file is new again. The reported files are stored with
    the asset (Airflow 3.3 and later, a trigger of one asset), so that another triggerer continues
    after them; otherwise a restarted triggerer reports all files again.

    An event starts a run; it is no list of the run's work. Airflow may give several events to one
    run, and an event that arrives while a run is being created starts no run until the next one.

    :param dray_conn_id: connection of the endpoint.
    :param path: the folder, ``/ROOT/PATH``; only its direct entries.
    :param pattern: names to report, as a shell pattern.
    :param quiet_seconds: required time without a change of a file.
    :param poll_seconds: between checks.
    """

    FIELDS = ("dray_conn_id", "path", "pattern", "quiet_seconds", "poll_seconds")

    def __init__(
        self,
        dray_conn_id: str,
        path: str,
        pattern: str = "*",
        quiet_seconds: float = 0.0,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        """Store the arguments."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.dray_conn_id = dray_conn_id
        self.path = path
        self.pattern = pattern
        self.quiet_seconds = quiet_seconds
        self.poll_seconds = poll_seconds

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Check for ever; fire once for all new files of a check."""
        seen = await self._load()
        while True:
            found = await self._new(seen)
            if found:
                files = [_payload(entry) for entry in found[:FILES_REPORTED_MAX]]
                seen.update((entry.name, _text(entry.modified_at) or "") for entry in found)
                words = {"path": self.path, "count": len(found), "files": files}
                yield TriggerEvent(words)  # type: ignore[no-untyped-call]
                await self._save(seen)
            await asyncio.sleep(self.poll_seconds)

    async def _new(self, seen: dict[str, str]) -> list[Entry]:
        from dray.errors import DrayError
        from dray_airflow.errors import DrayTaskFailure

        found: list[Entry] = []
        names: set[str] = set()
        now = datetime.now(timezone.utc)
        try:
            # A client for each check: the token of the connection may have been renewed.
            async with await DrayHook(self.dray_conn_id).get_async_conn() as client:
                async for entry in client.list(self.path):
                    names.add(entry.name)
                    is_one = entry.type == "file" and fnmatch.fnmatchcase(entry.name, self.pattern)
                    if not is_one or not is_settled(entry, 0, self.quiet_seconds, now):
                        continue
                    if seen.get(entry.name) != (_text(entry.modified_at) or ""):
                        found.append(entry)
        except (DrayError, DrayTaskFailure) as error:
            # A watcher has no task that could fail: it logs the error and checks again.
            self.log.warning("folder %s cannot be checked: %s", self.path, error)
            return []
        # A removed file may appear again.
        for name in set(seen) - names:
            del seen[name]
        return sorted(found, key=lambda entry: (_text(entry.modified_at) or "", entry.name))

    async def _load(self) -> dict[str, str]:
        found = await self._store("aget", SEEN_KEY)
        return dict(found) if isinstance(found, dict) else {}

    async def _save(self, seen: dict[str, str]) -> None:
        await self._store("aset", SEEN_KEY, dict(seen))

    async def _store(self, name: str, *words: Any) -> Any:  # noqa: ANN401 - any JSON
        store: Any = getattr(self, "asset_state_store", None)
        if store is None:
            return None
        try:
            return await getattr(store, name)(*words)
        except ValueError:
            # A trigger of several assets has a store for each, and cannot choose one.
            return None


def _payload(entry: Entry) -> dict[str, Any]:
    return {
        "path": entry.path,
        "name": entry.name,
        "size": entry.size,
        "modified_at": _text(entry.modified_at),
    }


def _text(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()
