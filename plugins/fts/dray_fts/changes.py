"""Changes of files within a transaction, and the changes of jobs that follow from them."""

# Statements are composed of constants of this module and of the fields of `Change`. All values are
# parameters.
# ruff: noqa: S608
from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, TypeAlias

from dray_fts.states import FAILED_REASON, LIVE, TERMINAL, job_state

if TYPE_CHECKING:
    import sqlite3

__all__ = ["DRIVEN", "QUEUED", "RELEASE", "Change", "Row", "apply_change", "begin_next", "settle"]

Row: TypeAlias = "sqlite3.Row"
RELEASE = "to_release = stage_id IS NOT NULL"
"""Assignment that marks a staged file whose pin must end."""
QUEUED = (
    "queued_until = ? + (SELECT json_extract(params, '$.queue_seconds') FROM job "
    "WHERE job.job_id = file.job_id)"
)
"""Assignment of the end of ``max_time_in_queue``, which begins at the time that is given."""
DRIVEN = """
SELECT file_id, job_id, number, file_index, file_state, source_endpoint, source_path, dest_endpoint,
    dest_path, content, user_filesize, activity, scitag, transferred, away_since, pauses, stages,
    start_time,
    archives, staging_metadata, stage_id, disk_path, staging_start, archive_start,
    owner, vo_name, job_type, priority, params
FROM file JOIN job USING (job_id)
"""
"""Query of files without their metadata, which may be large: the driver reads all live files."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a file's state. ``None`` leaves a value unchanged."""

    file_id: int
    state: str
    reason: str | None = None
    start_time: float | None = None
    finish_time: float | None = None
    filesize: int | None = None
    transferred: int | None = None
    throughput: float | None = None
    file_metadata: str | None = None
    stage_id: str | None = None
    disk_path: str | None = None
    staging_start: float | None = None
    staging_finished: float | None = None
    archive_start: float | None = None
    archive_finish: float | None = None
    to_cancel: int | None = None


def apply_change(db: sqlite3.Connection, change: Change) -> Row | None:
    """Store the state of a file. Return the file, or ``None`` if it has ended already."""
    row: Row | None = db.execute(
        f"{DRIVEN} WHERE file_id = ? AND file_state IN {LIVE}", (change.file_id,)
    ).fetchone()
    if row is None:
        if change.stage_id is not None:
            # The user has canceled the file while the endpoint received the stage request.
            db.execute(
                "UPDATE file SET stage_id = ?, to_release = 1 WHERE file_id = ?",
                (change.stage_id, change.file_id),
            )
        return None
    values = asdict(change)
    values["file_state"] = values.pop("state")
    file_id = values.pop("file_id")
    # A reason of a postponed submission must not stay after the submission.
    kept = {name: value for name, value in values.items() if value is not None or name == "reason"}
    text = ", ".join(f"{name} = ?" for name in kept)
    given = list(kept.values())
    if (row["file_state"], change.state) == ("STARTED", "SUBMITTED"):
        text += f", {QUEUED}"
        given.append(time.time())
    if change.state != row["file_state"]:
        # Each state has pauses of its own.
        text += ", due = 0, pauses = 0, away_since = NULL"
    # A file that was only staged keeps its pin: the pin is the purpose of its job.
    is_only_staged = (row["file_state"], change.state) == ("STARTED", "FINISHED")
    if change.state in TERMINAL and not is_only_staged:
        text += f", {RELEASE}"
    db.execute(f"UPDATE file SET {text} WHERE file_id = ?", (*given, file_id))
    return row


def begin_next(db: sqlite3.Connection, row: Row, state: str, now: float) -> None:
    """Begin the next alternative of a failed file, or the next hop of a finished one."""
    if (row["job_type"], state) not in {("R", "FAILED"), ("H", "FINISHED")}:
        return
    same = "AND file_index = ?" if row["job_type"] == "R" else "AND file_index > ?"
    following = db.execute(
        f"SELECT file_id, stages FROM file WHERE job_id = ? AND file_state = 'NOT_USED' {same} "
        "ORDER BY number LIMIT 1",
        (row["job_id"], row["file_index"]),
    ).fetchone()
    if following is not None:
        db.execute(
            f"UPDATE file SET file_state = ?, {QUEUED} WHERE file_id = ?",
            ("STAGING" if following["stages"] else "SUBMITTED", now, following["file_id"]),
        )


def settle(db: sqlite3.Connection, job_id: str, now: float) -> None:
    """Compute the state of a job from the states of its files."""
    job = db.execute("SELECT job_type FROM job WHERE job_id = ?", (job_id,)).fetchone()
    files = db.execute(
        "SELECT file_index, file_state FROM file WHERE job_id = ? ORDER BY number", (job_id,)
    ).fetchall()
    state = job_state(job["job_type"], [(row[0], row[1]) for row in files])
    has_ended = state not in LIVE
    reason = FAILED_REASON if state in ("FAILED", "FINISHEDDIRTY") else None
    db.execute(
        "UPDATE job SET job_state = ?, reason = ?, job_finished = ? WHERE job_id = ?",
        (state, reason, now if has_ended else None, job_id),
    )
