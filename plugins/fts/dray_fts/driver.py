"""Threads that move the files of jobs: one for each endpoint.

The id of a transfer consists of the id of the job and the number of the file. So a driver that is
started after a kill finds the transfers that were submitted, and submits none twice.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from dray_fts.lane import Lane

if TYPE_CHECKING:
    from dray_fts.database import Database
    from dray_fts.endpoints import Endpoints
    from dray_fts.settings import Limits

__all__ = ["Driver"]

HOUSEKEEPING_SECONDS = 1.0
_LOG = logging.getLogger(__name__)


class Driver:
    """Threads that drive endpoints: one for each endpoint, so that no endpoint delays another."""

    def __init__(self, database: Database, endpoints: Endpoints, limits: Limits) -> None:
        """Create the driver. :meth:`start` starts its threads."""
        self._database, self._limits = database, limits
        self._stop = threading.Event()
        self._lanes = [Lane(name, database, endpoints, limits) for name in endpoints.names]
        self._threads = [threading.Thread(target=self._keep_house, daemon=True)]
        for lane in self._lanes:
            name = f"dray-fts-{lane.endpoint}"
            thread = threading.Thread(target=self._run, args=(lane,), name=name, daemon=True)
            self._threads.append(thread)

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def wake(self) -> None:
        """Begin the next rounds now."""
        for lane in self._lanes:
            lane.wake.set()

    def stop(self) -> None:
        """End the threads after their current calls. Transfers continue at their endpoints."""
        self._stop.set()
        self.wake()
        for thread in self._threads:
            thread.join()
        for lane in self._lanes:
            lane.close()

    def _run(self, lane: Lane) -> None:
        while not self._stop.is_set():
            lane.wake.clear()
            has_more = False
            try:
                has_more = lane.round()
            except Exception:
                # The next round begins from the database, so nothing is lost.
                _LOG.exception("a round for endpoint %s failed", lane.endpoint)
            if not has_more:
                lane.wake.wait(self._limits.poll_seconds)

    def _keep_house(self) -> None:
        """Cancel files that have waited too long, and delete old jobs."""
        while not self._stop.wait(HOUSEKEEPING_SECONDS):
            try:
                self._database.expire()
                self._database.forget(self._limits.keep_days * 86400)
            except Exception:
                _LOG.exception("cannot cancel expired files, or cannot delete old jobs")
