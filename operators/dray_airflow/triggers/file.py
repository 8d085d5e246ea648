"""Triggers that wait for files at an endpoint. They change nothing."""

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
"""Minimum seconds before the event, as in :mod:`dray_airflow.triggers.transfer`."""
FILES_REPORTED_MAX = 100
"""Maximum number of files in one payload, because the payload stays in Airflow's database."""
SEEN_KEY = "dray_seen_until"


def is_settled(entry: Entry, size_min: int, quiet_seconds: float, now: datetime) -> bool:
    """Return true if a file exists and seems to be complete.

    If an endpoint writes the file, the file gets its final name when it is complete. If another
    program writes the file, the file may still grow. The size and the time since the last change
    indicate if such a file is complete.

    :param size_min: minimum size in bytes.
    :param quiet_seconds: required time without a change.
    :param now: current time, with a time zone.
    """
    if entry.type not in ("file", "directory"):
        return False
    if entry.type == "file" and (entry.size or 0) < size_min:
        return False
    if quiet_seconds <= 0 or entry.modified_at is None:
        return True
    return (now - entry.modified_at).total_seconds() >= quiet_seconds


class DrayFileTrigger(OfFields, BaseTrigger):
    """Fires when a file or folder exists, or when it cannot be queried.

    An unreachable endpoint or a refused token is retried for the connection's ``outage_seconds``.

    :param dray_conn_id: connection of the endpoint.
    :param path: ``/ROOT/PATH``.
    :param size_min: minimum size in bytes.
    :param quiet_seconds: required time without a change.
    :param poll_seconds: time between two checks.
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
        """Check until the file exists, and fire once."""
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
                # A new client for each check. A client that stays open between checks would occupy
                # one of the few connections that an endpoint allows per address.
                async with await hook.get_async_conn() as client:
                    entry = await client.stat(self.path)
            except DrayTaskFailure as error:
                return {"error": str(error), "kind": error.kind, "status": "permanent"}
            except DrayError as error:
                now_at = time.monotonic()
                if error.kind == "not_found":
                    lost_at = None
                else:
                    # Retry, because a restart of the endpoint should not end a wait of many hours.
                    lost_at = lost_at or now_at
                    is_over = now_at - lost_at >= hook.settings.outage_seconds
                    # Do not give up if the endpoint refuses the token. Each check reads the
                    # connection again, and may then find a renewed token.
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
    """Fires when there are new files in a folder. Use it as the trigger of a watched asset.

    ``AssetWatcher(name=..., trigger=DrayFolderTrigger(...))``. The payload has ``path`` (of the
    folder), ``count``, and ``files`` with the first files by time. Each file has ``path``,
    ``name``, ``size`` and ``modified_at``. A changed file counts as new. With Airflow 3.3 and
    later, and if the trigger has only one asset, the reported files are stored with the asset.
    Another triggerer then continues after these files. Otherwise a restarted triggerer reports all
    files again.

    An event starts a run, but is not the list of the run's work. Airflow may pass several events to
    one run. If an event arrives while Airflow creates a run, Airflow starts a run for this event
    only when the next event arrives.

    :param dray_conn_id: connection of the endpoint.
    :param path: the folder, ``/ROOT/PATH``. Only its direct entries are checked.
    :param pattern: shell pattern of the names to report.
    :param quiet_seconds: required time without a change of a file.
    :param poll_seconds: time between two checks.
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
        """Check for ever. Fire once per check for all new files."""
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
            # A new client for each check, because the token of the connection may have been
            # renewed.
            async with await DrayHook(self.dray_conn_id).get_async_conn() as client:
                async for entry in client.list(self.path):
                    names.add(entry.name)
                    is_one = entry.type == "file" and fnmatch.fnmatchcase(entry.name, self.pattern)
                    if not is_one or not is_settled(entry, 0, self.quiet_seconds, now):
                        continue
                    if seen.get(entry.name) != (_text(entry.modified_at) or ""):
                        found.append(entry)
        except (DrayError, DrayTaskFailure) as error:
            # A watcher has no task that could fail. So it logs the error and checks again.
            self.log.warning("folder %s cannot be checked: %s", self.path, error)
            return []
        # Forget removed files, because a file with the same name may appear again.
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
            # A trigger of several assets has one store per asset, and the code does not know which
            # store to use. So nothing is stored.
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
