"""Files of the database as the driver sees them: their ids, groups and failures."""

from __future__ import annotations

import json
import logging
import time
from typing import TYPE_CHECKING, Any

from dray_fts.changes import Change
from dray_fts.endpoints import AWAY_KINDS, LATER_KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dray import DrayError
    from dray_fts.changes import Row
    from dray_fts.database import Database

__all__ = [
    "Flagged",
    "archive_id",
    "failed",
    "groups",
    "is_staging_only",
    "params_of",
    "postponed",
    "transfer_id",
]

PAUSE_FIRST = 2.0
PAUSE_MAX = 60.0
_LOG = logging.getLogger(__name__)


def transfer_id(row: Row) -> str:
    """Return the id of the transfer of a file."""
    return f"{row['job_id']}.{row['number']}"


def archive_id(row: Row) -> str:
    """Return the id of the transfer that copies a file from the fast root to the slow root."""
    return f"{transfer_id(row)}.archive"


def is_staging_only(row: Row) -> bool:
    """Return true if the job stages the file and makes no copy."""
    source = row["source_endpoint"], row["source_path"]
    return bool(row["stages"]) and source == (row["dest_endpoint"], row["dest_path"])


def params_of(row: Row) -> dict[str, Any]:
    """Return the parameters of the job of a file."""
    found: dict[str, Any] = json.loads(row["params"])
    return found


def groups(rows: Iterable[Row], count: int) -> Iterator[list[Row]]:
    """Group files by owner, at most ``count`` in a group."""
    several: dict[str, list[Row]] = {}
    for row in rows:
        several.setdefault(row["owner"], []).append(row)
    for group in several.values():
        for first in range(0, len(group), count):
            yield group[first : first + count]


class Flagged:
    """Reads the files with a flag in turns: files whose calls fail do not keep others waiting."""

    def __init__(self, database: Database, flag: str, endpoint: str, count: int) -> None:
        """Store the arguments of :meth:`Database.flagged`."""
        self._database, self._flag, self._endpoint = database, flag, endpoint
        self._count, self._after = count, 0

    def next(self) -> list[Row]:
        """Return the files that follow those of the last call, or else the first files."""
        rows = self._database.flagged(self._flag, self._endpoint, self._count, self._after)
        self._after = rows[-1]["file_id"] if len(rows) == self._count else 0
        return rows


def failed(row: Row, reason: str) -> Change:
    """Return the change of a file to FAILED."""
    return Change(row["file_id"], "FAILED", reason, finish_time=time.time())


def postponed(
    database: Database, row: Row, error: DrayError, reason: str, wait_seconds: float
) -> Change | None:
    """Postpone the call for a file. Return a change to FAILED if no later call can succeed.

    :param wait_seconds: time for which a file waits for an endpoint that does not answer.
    """
    now = time.time()
    is_away = error.kind in AWAY_KINDS
    away_since = row["away_since"] or now
    if error.kind not in LATER_KINDS or (is_away and now - away_since > wait_seconds):
        return failed(row, reason)
    pause = min(PAUSE_FIRST * 2 ** min(row["pauses"], 8), PAUSE_MAX)
    what = f"file {transfer_id(row)} in the state {row['file_state']}"
    _LOG.warning("the endpoint refused a call for %s; next try in %g s: %s", what, pause, error)
    database.postpone(row["file_id"], now + pause, reason, is_away=is_away)
    return None
