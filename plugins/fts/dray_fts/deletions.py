"""The calls about deletion jobs: removes files at an endpoint."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from dray import DrayError
from dray_fts.changes import Change
from dray_fts.rows import postponed
from dray_fts.states import reason_of_error

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Executor

    from dray_fts.changes import Row
    from dray_fts.database import Database
    from dray_fts.endpoints import Endpoints
    from dray_fts.settings import Limits

__all__ = ["Deletions"]

BATCH = 100


class Deletions:
    """Removes files at one endpoint."""

    def __init__(
        self,
        endpoint: str,
        database: Database,
        endpoints: Endpoints,
        limits: Limits,
        workers: Executor,
    ) -> None:
        """Store the parts that the calls use."""
        self._endpoint, self._workers = endpoint, workers
        self._database, self._endpoints, self._limits = database, endpoints, limits

    def round(self) -> None:
        """Make all calls that are due."""
        rows = self._database.at("DELETE", "dest", self._endpoint, BATCH)
        if not rows:
            return
        # The start time is stored before the first call. So if a row has a start time and the file
        # is not found, an earlier call has removed the file.
        now = time.time()
        new = [row for row in rows if row["start_time"] is None]
        self._database.apply([Change(row["file_id"], "DELETE", start_time=now) for row in new])
        changes: Sequence[Change | None] = list(self._workers.map(self._remove, rows))
        self._database.apply([change for change in changes if change is not None])

    def _remove(self, row: Row) -> Change | None:
        path = row["dest_path"]
        try:
            self._endpoints.ask(self._endpoint, row["owner"], lambda client: client.rm(path))
        except DrayError as error:
            if error.kind == "not_found" and row["start_time"] is not None:
                return Change(row["file_id"], "FINISHED", finish_time=time.time())
            reason = reason_of_error(error, "DELETION")
            return postponed(self._database, row, error, reason, self._limits.wait_seconds)
        return Change(row["file_id"], "FINISHED", finish_time=time.time())
