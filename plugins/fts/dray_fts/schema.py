"""The tables of the service, and the changes of tables that an older service has made."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

__all__ = ["prepare"]

_FIRST = """
CREATE TABLE job (
    job_id TEXT PRIMARY KEY, owner TEXT NOT NULL, user_dn TEXT NOT NULL, vo_name TEXT NOT NULL,
    cred_id TEXT NOT NULL, job_type TEXT NOT NULL, job_state TEXT NOT NULL, reason TEXT,
    priority INTEGER NOT NULL, source_se TEXT, dest_se TEXT, params TEXT NOT NULL,
    job_metadata TEXT NOT NULL, digest TEXT NOT NULL, submit_time REAL NOT NULL, job_finished REAL
) WITHOUT ROWID;
CREATE INDEX job_by_owner ON job (owner, submit_time);
CREATE INDEX job_by_end ON job (job_finished);
CREATE TABLE file (
    file_id INTEGER PRIMARY KEY AUTOINCREMENT, job_id TEXT NOT NULL REFERENCES job,
    number INTEGER NOT NULL, file_index INTEGER NOT NULL, file_state TEXT NOT NULL, reason TEXT,
    source_surl TEXT NOT NULL, dest_surl TEXT NOT NULL, source_se TEXT NOT NULL,
    dest_se TEXT NOT NULL, source_endpoint TEXT NOT NULL, source_path TEXT NOT NULL,
    dest_endpoint TEXT NOT NULL, dest_path TEXT NOT NULL, checksum TEXT, content TEXT,
    user_filesize INTEGER, file_metadata TEXT NOT NULL, activity TEXT NOT NULL, scitag INTEGER,
    selection_strategy TEXT NOT NULL, start_time REAL, finish_time REAL, filesize INTEGER,
    transferred INTEGER, throughput REAL, queued_since REAL, due REAL NOT NULL DEFAULT 0,
    away_since REAL,
    pauses INTEGER NOT NULL DEFAULT 0, to_cancel INTEGER NOT NULL DEFAULT 0,
    to_change INTEGER NOT NULL DEFAULT 0, UNIQUE (job_id, number)
);
CREATE INDEX file_by_state ON file (file_state, due);
CREATE INDEX file_to_cancel ON file (to_cancel) WHERE to_cancel;
CREATE INDEX file_to_change ON file (to_change) WHERE to_change;
CREATE TABLE delegation (
    delegation_id TEXT PRIMARY KEY, request TEXT, termination_time REAL
) WITHOUT ROWID;
"""
_TAPE = """
ALTER TABLE file ADD COLUMN stages INTEGER NOT NULL DEFAULT 0;
ALTER TABLE file ADD COLUMN archives INTEGER NOT NULL DEFAULT 0;
ALTER TABLE file ADD COLUMN staging_metadata TEXT;
ALTER TABLE file ADD COLUMN stage_id TEXT;
ALTER TABLE file ADD COLUMN disk_path TEXT;
ALTER TABLE file ADD COLUMN staging_start REAL;
ALTER TABLE file ADD COLUMN staging_finished REAL;
ALTER TABLE file ADD COLUMN archive_start REAL;
ALTER TABLE file ADD COLUMN archive_finish REAL;
ALTER TABLE file ADD COLUMN to_release INTEGER NOT NULL DEFAULT 0;
CREATE INDEX file_to_release ON file (to_release) WHERE to_release;
"""
_LISTS = """
ALTER TABLE file ADD COLUMN deletes INTEGER NOT NULL DEFAULT 0;
CREATE INDEX job_by_state ON job (job_state, submit_time);
CREATE INDEX job_by_owner_state ON job (owner, job_state, submit_time);
CREATE INDEX job_by_time ON job (submit_time);
CREATE INDEX file_in_state ON file (file_state);
"""
#: The priority is in each file, so that an index has the waiting files in the order in which the
#: driver reads them. `due` is in the index, so that postponed files are passed over within it.
_QUEUES = """
DROP INDEX file_by_state;
DROP INDEX file_to_cancel;
DROP INDEX file_to_change;
DROP INDEX file_to_release;
ALTER TABLE file ADD COLUMN file_priority INTEGER NOT NULL DEFAULT 3;
ALTER TABLE file RENAME COLUMN queued_since TO queued_until;
UPDATE file SET
    file_priority = (SELECT priority FROM job WHERE job.job_id = file.job_id),
    queued_until = queued_until
        + (SELECT json_extract(params, '$.queue_seconds') FROM job WHERE job.job_id = file.job_id);
CREATE INDEX file_at_dest
    ON file (dest_endpoint, file_state, file_priority DESC, file_id, due);
CREATE INDEX file_at_source
    ON file (source_endpoint, file_state, file_priority DESC, file_id, due);
CREATE INDEX file_queued ON file (queued_until)
    WHERE file_state IN ('SUBMITTED', 'READY') AND queued_until IS NOT NULL;
CREATE INDEX file_to_cancel ON file (dest_endpoint, file_id) WHERE to_cancel;
CREATE INDEX file_to_change ON file (dest_endpoint, file_id) WHERE to_change;
CREATE INDEX file_to_release ON file (source_endpoint, file_id) WHERE to_release;
"""
_MESSAGES = """
CREATE TABLE message (
    message_id INTEGER PRIMARY KEY AUTOINCREMENT, created REAL NOT NULL,
    tries INTEGER NOT NULL DEFAULT 0, vo_name TEXT NOT NULL, body TEXT NOT NULL
);
CREATE INDEX message_by_tries ON message (tries, message_id);
CREATE INDEX message_by_time ON message (created);
"""
#: The metadata of a job may be large, and each file has messages. So a message refers to its file,
#: and `body` is the message without the metadata. A message of an older service is complete.
_REFERENCES = """
ALTER TABLE message ADD COLUMN file_id INTEGER REFERENCES file;
CREATE INDEX message_by_file ON message (file_id);
"""
#: The index has the messages in the order in which the service publishes them. In this order, the
#: kind `complete` is the first.
_KINDS = """
ALTER TABLE message ADD COLUMN kind TEXT NOT NULL DEFAULT 'complete';
DROP INDEX message_by_tries;
CREATE INDEX message_by_tries ON message (tries, kind, message_id);
"""
_STEPS = (_FIRST, _TAPE, _LISTS, _QUEUES, _MESSAGES, _REFERENCES, _KINDS)
"""The change from each version to the next. A step of a released version never changes."""


def prepare(db: sqlite3.Connection, path: Path) -> None:
    """Create the tables, or change them to the current version, one version per transaction.

    :raises sqlite3.Error: if a newer program wrote the database.
    """
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version > len(_STEPS):
        raise db.DatabaseError(
            f"{path} was written by a newer program: it has version {version}, but this program "
            f"supports versions up to {len(_STEPS)}"
        )
    for number in range(version, len(_STEPS)):
        db.executescript(f"BEGIN; {_STEPS[number]} PRAGMA user_version = {number + 1}; COMMIT;")
