"""The messages that wait for their publication. They are stored with the states that they report.

A message is stored in the transaction that changes the state of a file. So a kill loses no message,
and no message reports a state that was not stored. The metadata of the file and of its job is added
when the message is read, so it is stored only once.
"""

# Statements are composed of constants of this module. All values are parameters.
# ruff: noqa: S608
from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from dray_fts import messages
from dray_fts.messages import COMPLETE, ENDS, START, STATE
from dray_fts.states import LIVE

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Container, Iterable, Sequence

    from dray_fts.changes import Row

__all__ = ["drop", "note", "tried", "waiting"]

_FILE = """
SELECT file_id, job_id, number, file_index, file_state, file.reason, source_surl, dest_surl,
    file.source_se, file.dest_se, user_filesize, start_time, finish_time, filesize, transferred,
    throughput, staging_start, staging_finished, archives, archive_start, archive_finish, deletes,
    vo_name, job_type, job_state, params, submit_time
FROM file JOIN job USING (job_id) WHERE file_id = ?
"""
_WAITING = """
SELECT message_id, kind, tries, message.vo_name, CASE WHEN file_id IS NULL THEN body ELSE
    substr(body, 1, length(body) - 1) || ', "file_metadata": ' || file_metadata
    || ', "job_metadata": ' || job_metadata || '}' END AS body
FROM message LEFT JOIN file USING (file_id) LEFT JOIN job USING (job_id)
ORDER BY tries, kind, message_id LIMIT ?
"""


def note(
    db: sqlite3.Connection,
    host: str,
    kinds: Container[str],
    changed: Sequence[int],
    started: Sequence[int] = (),
) -> None:
    """Store the messages about files, except those about deletions.

    :param host: name of the service.
    :param kinds: kinds of messages to store.
    :param changed: files that have a new state.
    :param started: files whose copy has started.
    """
    now = time.time()
    has_changed, has_started = set(changed), set(started)
    for file_id in dict.fromkeys((*started, *changed)):
        row = db.execute(_FILE, (file_id,)).fetchone()
        if row["deletes"]:
            continue
        made = {}
        if START in kinds and file_id in has_started:
            made[START] = messages.start(row, host)
        if STATE in kinds and file_id in has_changed:
            made[STATE] = messages.state(row, host, now=now)
        if COMPLETE in kinds and file_id in has_changed and row["file_state"] in ENDS:
            has_next = _has_next(db, row)
            made[COMPLETE] = messages.completion(row, host, has_next=has_next, now=now)
        db.executemany(
            "INSERT INTO message (created, kind, vo_name, body, file_id) VALUES (?, ?, ?, ?, ?)",
            [(now, kind, row["vo_name"], json.dumps(body), file_id) for kind, body in made.items()],
        )


def waiting(db: sqlite3.Connection, limit: int) -> list[Row]:
    """Return the next messages of one kind, oldest first: those that have never been sent.

    All of them have the same destination. So if the service may not publish at a destination, this
    delays no message for another destination. Messages about ended copies come first.

    If each message has been sent, return one message whose publication has failed, and only this
    one. So a message that the broker always refuses does not delay other messages.
    """
    rows = db.execute(_WAITING, (limit,)).fetchall()
    if rows and rows[0]["tries"]:
        return rows[:1]
    return [row for row in rows if (row["tries"], row["kind"]) == (0, rows[0]["kind"])]


def tried(db: sqlite3.Connection, published: Iterable[int], failed: Iterable[int]) -> None:
    """Delete the published messages, and count a try of the others."""
    db.executemany("DELETE FROM message WHERE message_id = ?", [(each,) for each in published])
    text = "UPDATE message SET tries = tries + 1 WHERE message_id = ?"
    db.executemany(text, [(each,) for each in failed])


def drop(db: sqlite3.Connection, before: float) -> int:
    """Delete the messages that were stored before a time. Return their number."""
    return db.execute("DELETE FROM message WHERE created < ?", (before,)).rowcount


def _has_next(db: sqlite3.Connection, row: Row) -> bool:
    """Return true if another alternative of a file is live, or if another hop follows."""
    if row["job_type"] == "H":
        where, value = "number > ?", row["number"]
    elif row["job_type"] == "R":
        where, value = f"file_state IN {LIVE} AND file_index = ?", row["file_index"]
    else:
        return False
    text = f"SELECT 1 FROM file WHERE job_id = ? AND {where} LIMIT 1"
    return db.execute(text, (row["job_id"], value)).fetchone() is not None
