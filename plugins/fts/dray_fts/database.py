"""The jobs in SQLite. Each method is one transaction, which is durable when the method returns."""

# Statements are composed of constants of this module and of column names from the calling code. All
# values are parameters.
# ruff: noqa: S608
from __future__ import annotations

import json
import sqlite3
import threading
import time
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from dray_fts import outbox, schema
from dray_fts.changes import DRIVEN, RELEASE, Change, Row, apply_change, begin_next, settle
from dray_fts.jobs import storages
from dray_fts.sites import storage_of
from dray_fts.states import LIVE, QUEUE_REASON, TERMINAL

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from dray_fts.model import Job
    from dray_fts.people import Person

__all__ = ["Database", "JobExistsError"]

_JOINED = """
SELECT file.*, job.owner, job.vo_name, job.job_type, job.priority, job.params, job.submit_time
FROM file JOIN job USING (job_id)
"""


class JobExistsError(Exception):
    """A job with this id exists, and its submission was another one."""


class Database:
    """One connection that all threads share."""

    def __init__(self, path: Path, messages_from: str = "", kinds: Collection[str] = ()) -> None:
        """Open the database, and create it if it is missing.

        :param messages_from: name of the service in messages about files.
        :param kinds: kinds of messages to store.
        :raises sqlite3.Error: if the database cannot be opened, or if a newer program wrote it.
        """
        self._lock = threading.RLock()
        self._messages_from, self._kinds = messages_from, kinds
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._db.row_factory = sqlite3.Row
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
            self._db.execute(f"PRAGMA {pragma}")
        schema.prepare(self._db, path)
        # An earlier configuration may have published other kinds.
        places = ", ".join("?" * len(kinds))
        self._db.execute(f"DELETE FROM message WHERE kind NOT IN ({places})", tuple(kinds))

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._db.close()

    @contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def _all(self, text: str, *values: object) -> list[Row]:
        with self._lock:
            return self._db.execute(text, values).fetchall()

    # --- submission and queries -------------------------------------------------------------------

    def add(self, job_id: str, job: Job, digest: str, person: Person) -> None:
        """Store a job. A job that the same submission has stored before stays as it is.

        :raises JobExistsError: if the id belongs to another submission.
        """
        now = time.time()
        sources, destinations = storages(job.files)
        limit = job.params.queue_seconds
        until = None if limit is None else now + limit
        with self._change() as db:
            found = db.execute("SELECT * FROM job WHERE job_id = ?", (job_id,)).fetchone()
            if found is not None:
                if (found["digest"], found["owner"]) != (digest, person.owner):
                    raise JobExistsError(f"The job with id {job_id} already exists")
                return
            row = {
                "job_id": job_id,
                "owner": person.owner,
                "user_dn": person.dn,
                "vo_name": person.vo,
                "cred_id": person.delegation_id,
                "job_type": job.job_type,
                "job_state": job.state,
                "priority": job.params.priority,
                "source_se": sources,
                "dest_se": destinations,
                "params": json.dumps(asdict(job.params)),
                "job_metadata": json.dumps(job.metadata),
                "digest": digest,
                "submit_time": now,
            }
            _insert(db, "job", row)
            for number, each in enumerate(job.files):
                row = {
                    "job_id": job_id,
                    "number": number,
                    "file_index": each.index,
                    "file_state": each.state,
                    "source_surl": each.source_url,
                    "dest_surl": each.destination_url,
                    "source_se": storage_of(each.source_url),
                    "dest_se": storage_of(each.destination_url),
                    "source_endpoint": each.source.endpoint,
                    "source_path": each.source.path,
                    "dest_endpoint": each.destination.endpoint,
                    "dest_path": each.destination.path,
                    "checksum": each.checksum,
                    "content": each.content,
                    "user_filesize": each.size,
                    "file_metadata": json.dumps(each.metadata),
                    "activity": each.activity,
                    "scitag": each.scitag,
                    "selection_strategy": each.strategy,
                    "stages": each.stages,
                    "archives": each.archives,
                    "deletes": each.deletes,
                    "staging_metadata": each.staging_metadata,
                    "file_priority": job.params.priority,
                    "queued_until": until if each.state == "SUBMITTED" else None,
                }
                _insert(db, "file", row)

    def job(self, job_id: str) -> Row | None:
        """Return a job."""
        rows = self._all("SELECT * FROM job WHERE job_id = ?", job_id)
        return rows[0] if rows else None

    def files(self, job_id: str) -> list[Row]:
        """Return the files of a job in their order, without the files of a deletion job."""
        return self._all(f"{_JOINED} WHERE job_id = ? AND NOT deletes ORDER BY number", job_id)

    def deletions(self, job_id: str) -> list[Row]:
        """Return the files of a deletion job in their order."""
        return self._all(f"{_JOINED} WHERE job_id = ? AND deletes ORDER BY number", job_id)

    def find(self, what: str, filters: Mapping[str, Sequence[str]], limit: int) -> list[Row]:
        """Return jobs or files, newest first.

        :param what: ``job`` or ``file``.
        :param filters: permitted values of columns. The key ``since`` gives the earliest time of
            submission.
        """
        table, order = ("SELECT * FROM job", "submit_time")
        if what == "file":
            table, order = (_JOINED, "file_id")
        words, values = _where(filters)
        words += " AND NOT deletes" if what == "file" else ""
        end = f"ORDER BY {order} DESC LIMIT {int(limit)}"
        states = filters.get(f"{what}_state")
        if states is None:
            return self._all(f"{table} WHERE {words} {end}", *values)
        # The query of one state reads an index that has the order of the list. So it reads at most
        # `limit` rows of each state, and does not sort all jobs.
        part = f"SELECT * FROM ({table} WHERE {words} AND {what}_state = ? {end})"
        text = f"{' UNION ALL '.join([part] * len(states))} {end}"
        return self._all(text, *(each for state in states for each in (*values, state)))

    def counts(self) -> dict[str, int]:
        """Return the number of files in each live state."""
        text = f"SELECT file_state, count(*) FROM file WHERE file_state IN {LIVE} GROUP BY 1"
        return {state: count for state, count in self._all(text)}

    # --- calls of users ---------------------------------------------------------------------------

    def cancel(self, job_id: str, file_ids: Sequence[int] | None = None) -> int:
        """Cancel the live files of a job, or some of them. Return the number of canceled files.

        The driver then cancels their transfers.
        """
        chosen = "" if file_ids is None else f" AND file_id IN ({', '.join(map(str, file_ids))})"
        with self._change() as db:
            now = time.time()
            live = f"job_id = ? AND file_state IN {LIVE}{chosen}"
            ids = [
                row[0] for row in db.execute(f"SELECT file_id FROM file WHERE {live}", (job_id,))
            ]
            db.execute(
                f"UPDATE file SET file_state = 'CANCELED', to_cancel = 1, {RELEASE}, "
                "finish_time = ?, reason = 'TRANSFER [125] Transfer canceled by the user' "
                f"WHERE {live}",
                (now, job_id),
            )
            if ids:
                settle(db, job_id, now)
            self._note(db, ids)
            return len(ids)

    def prioritise(self, job_id: str, priority: int) -> None:
        """Change the priority of a job. The driver then changes that of the job's transfers.

        The files in the state ``SUBMITTED`` are marked for this change too, because the driver may
        be submitting their transfers now.
        """
        with self._change() as db:
            db.execute("UPDATE job SET priority = ? WHERE job_id = ?", (priority, job_id))
            db.execute(
                f"UPDATE file SET file_priority = ?, to_change = file_state IN {LIVE} "
                "WHERE job_id = ?",
                (priority, job_id),
            )

    # --- the driver -------------------------------------------------------------------------------

    def due(self, endpoint: str, limit: int) -> list[Row]:
        """Return submitted files whose transfers an endpoint can get now."""
        return self.at("SUBMITTED", "dest", endpoint, limit)

    def at(self, state: str, side: str, endpoint: str, limit: int) -> list[Row]:
        """Return files in ``state`` whose next call to ``endpoint`` is due.

        :param side: ``source`` or ``dest``: the side of a file that is at the endpoint.
        """
        text = (
            f"{DRIVEN} WHERE file_state = ? AND {side}_endpoint = ? AND due <= ? "
            "ORDER BY file_priority DESC, file_id LIMIT ?"
        )
        return self._all(text, state, endpoint, time.time(), limit)

    def live(self, endpoint: str) -> list[Row]:
        """Return files that have a transfer at an endpoint."""
        text = f"{DRIVEN} WHERE file_state IN ('READY', 'ACTIVE') AND dest_endpoint = ?"
        return self._all(text, endpoint)

    def flagged(self, flag: str, endpoint: str, limit: int, after: int = 0) -> list[Row]:
        """Return the files of an endpoint whose flag ``flag`` is set, in the order of their ids.

        :param flag: ``to_cancel`` or ``to_change`` for files with this destination endpoint, or
            ``to_release`` for files with this source endpoint.
        :param after: only files with higher ids.
        """
        side = "source" if flag == "to_release" else "dest"
        text = f"{DRIVEN} WHERE {flag} AND {side}_endpoint = ? AND file_id > ? "
        return self._all(f"{text} ORDER BY file_id LIMIT ?", endpoint, after, limit)

    def metadata(self, file_id: int) -> Any:  # noqa: ANN401 - JSON
        """Return the metadata of a file."""
        (row,) = self._all("SELECT file_metadata FROM file WHERE file_id = ?", file_id)
        return json.loads(row["file_metadata"])

    def has_alternative(self, row: Row) -> bool:
        """Return true if a later alternative of a file can begin."""
        text = "job_id = ? AND file_index = ? AND file_state = 'NOT_USED' LIMIT 1"
        found = self._all(f"SELECT 1 FROM file WHERE {text}", row["job_id"], row["file_index"])
        return row["job_type"] == "R" and bool(found)

    def is_last(self, row: Row) -> bool:
        """Return true for the last hop of a job."""
        text = "SELECT 1 FROM file WHERE job_id = ? AND number > ? LIMIT 1"
        return not self._all(text, row["job_id"], row["number"])

    def settled(self, flag: str, file_id: int) -> None:
        """Clear a flag of a file."""
        with self._change() as db:
            db.execute(f"UPDATE file SET {flag} = 0 WHERE file_id = ?", (file_id,))

    def prioritised(self, row: Row) -> None:
        """Clear ``to_change``, unless the user has changed the priority again since ``row``."""
        with self._change() as db:
            db.execute(
                "UPDATE file SET to_change = 0 WHERE file_id = ? "
                "AND (SELECT priority FROM job WHERE job.job_id = file.job_id) = ?",
                (row["file_id"], row["priority"]),
            )

    def apply(self, changes: Sequence[Change]) -> None:
        """Store new states of files, and begin the alternatives or hops that follow."""
        if not changes:
            return
        now = time.time()
        with self._change() as db:
            jobs = set()
            changed, started = [], []
            for change in changes:
                row = apply_change(db, change)
                if row is not None:
                    jobs.add(row["job_id"])
                    if change.state in TERMINAL:
                        begin_next(db, row, change.state, now)
                    if change.state != row["file_state"]:
                        changed.append(change.file_id)
                    if change.start_time not in (None, row["start_time"]):
                        started.append(change.file_id)
            for job_id in jobs:
                settle(db, job_id, now)
            self._note(db, changed, started)

    def postpone(self, file_id: int, due: float, reason: str, *, is_away: bool) -> None:
        """Postpone the call for which a file waits.

        :param is_away: true if an endpoint did not answer. The database keeps the time of the first
            of the consecutive calls that got no answer.
        """
        with self._change() as db:
            db.execute(
                "UPDATE file SET due = ?, pauses = pauses + 1, reason = ?, "
                "away_since = CASE WHEN ? THEN coalesce(away_since, ?) END "
                "WHERE file_id = ? "
                "AND file_state IN ('STAGING', 'SUBMITTED', 'ARCHIVING', 'DELETE')",
                (due, reason, is_away, time.time(), file_id),
            )

    def expire(self) -> None:
        """Cancel files that have waited longer than their ``max_time_in_queue``."""
        # Without INDEXED BY, SQLite reads all files in the two states.
        text = DRIVEN.replace("FROM file", "FROM file INDEXED BY file_queued") + (
            "WHERE file_state IN ('SUBMITTED', 'READY') AND queued_until IS NOT NULL "
            "AND queued_until < ?"
        )
        now = time.time()
        for row in self._all(text, now):
            with self._change() as db:
                done = db.execute(
                    f"UPDATE file SET file_state = 'CANCELED', to_cancel = 1, {RELEASE}, "
                    "finish_time = ?, reason = ? "
                    "WHERE file_id = ? AND file_state IN ('SUBMITTED', 'READY')",
                    (now, QUEUE_REASON, row["file_id"]),
                )
                if done.rowcount:
                    settle(db, row["job_id"], now)
                    self._note(db, [row["file_id"]])

    def forget(self, keep_seconds: float) -> int:
        """Delete jobs that ended this long ago.

        A job is kept while one of its transfers must be cancelled, one of its pins must end, or a
        message about it waits.
        """
        before = time.time() - keep_seconds
        chosen = (
            "SELECT job_id FROM job WHERE job_finished < ? "
            "AND job_id NOT IN (SELECT job_id FROM file WHERE to_cancel) "
            "AND job_id NOT IN (SELECT job_id FROM file WHERE to_release) "
            "AND job_id NOT IN (SELECT job_id FROM message JOIN file USING (file_id))"
        )
        with self._change() as db:
            db.execute(f"DELETE FROM file WHERE job_id IN ({chosen})", (before,))
            return db.execute(f"DELETE FROM job WHERE job_id IN ({chosen})", (before,)).rowcount

    # --- messages ---------------------------------------------------------------------------------

    def _note(
        self, db: sqlite3.Connection, changed: Sequence[int], started: Sequence[int] = ()
    ) -> None:
        """Store the messages about files that this transaction has changed."""
        if self._kinds:
            outbox.note(db, self._messages_from, self._kinds, changed, started)

    def messages(self, limit: int) -> list[Row]:
        """Return the messages that the service should publish next."""
        with self._lock:
            return outbox.waiting(self._db, limit)

    def tried(self, published: Sequence[int], failed: Sequence[int]) -> None:
        """Delete the published messages, and count a try of the others."""
        with self._change() as db:
            outbox.tried(db, published, failed)

    def drop_messages(self, keep_seconds: float) -> int:
        """Delete the messages that wait for longer than this time. Return their number."""
        with self._change() as db:
            return outbox.drop(db, time.time() - keep_seconds)

    # --- delegation -------------------------------------------------------------------------------

    def delegation(self, delegation_id: str) -> Row | None:
        """Return the request and the termination time of a delegation."""
        rows = self._all("SELECT * FROM delegation WHERE delegation_id = ?", delegation_id)
        return rows[0] if rows else None

    def delegate(self, delegation_id: str, request: str | None, until: float | None) -> None:
        """Store the request and the termination time of a delegation."""
        with self._change() as db:
            db.execute(
                "INSERT OR REPLACE INTO delegation VALUES (?, ?, ?)",
                (delegation_id, request, until),
            )

    def undelegate(self, delegation_id: str) -> bool:
        """Delete a delegation. Return false if there was none."""
        with self._change() as db:
            text = "DELETE FROM delegation WHERE delegation_id = ?"
            return bool(db.execute(text, (delegation_id,)).rowcount)


def _insert(db: sqlite3.Connection, table: str, row: Mapping[str, Any]) -> None:
    places = ", ".join("?" * len(row))
    # The names of the table and the columns are constants of this module.
    db.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({places})", tuple(row.values()))


def _where(filters: Mapping[str, Sequence[str]]) -> tuple[str, list[object]]:
    """Return the condition for filters other than states."""
    words: list[str] = ["1"]
    values: list[object] = []
    for column, allowed in filters.items():
        if column == "since":
            words.append("submit_time >= ?")
            values.append(float(allowed[0]))
        elif column not in ("job_state", "file_state"):
            words.append(f"{column} IN ({', '.join('?' * len(allowed))})")
            values.extend(allowed)
    return " AND ".join(words), values
