//! The tables of tape requests: each request stages several files, and each file has one row.
//!
//! A file of a request becomes a staged copy with the id [`TapeFile::copy`]. The row of the file
//! can outlive the transfer of this copy. So when the transfer ends, its result is stored as the
//! state in the file's row.
//!
//! Invariant owned here: once a file has a final state, the state never changes.

mod follow;

use super::actor::Actor;
use super::sqlite::sql;
use super::staged;
use super::{Queue, StagedRow, next_seq};
use crate::clock;
use dray_api::{TapeFileState as At, Timestamp};
use dray_core::{End, Error, ErrorKind, Result};
use rusqlite::{Connection, OptionalExtension};

/// Maximum number of files of one owner that have not ended. The value is estimated, not measured.
const LIVE_FILES_MAX: u64 = 100_000;

/// Maximum number of requests that one call of [`Queue::forget_tape`] deletes.
const FORGOTTEN_MAX: u32 = 100;

/// A request that stages files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TapeRequest {
    /// Id of the request.
    pub id: String,
    /// Owner of the request.
    pub owner: String,
    /// Principal of the caller.
    pub principal: String,
    /// Time at which the endpoint received the request.
    pub created_at: Timestamp,
}

/// A file of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TapeFile {
    /// Path as the caller has written it, without doubled slashes. Unique within the request.
    pub path: String,
    /// Id of the staged copy, and of its transfer. Each file has its own id.
    pub copy: String,
    /// API path of the slow copy. Empty if `path` is invalid.
    pub slow_path: String,
    /// API path of the fast copy. Empty if `path` is invalid.
    pub fast_path: String,
    /// Activity that the caller gave for this endpoint.
    pub activity: Option<String>,
    /// Priority that the caller gave for this endpoint.
    pub priority: Option<u8>,
    /// Seconds for which the complete fast copy is pinned.
    pub lifetime_seconds: u64,
    /// State of the file.
    pub state: At,
    /// Time at which the transfer started.
    pub started_at: Option<Timestamp>,
    /// Time at which the file reached its last state.
    pub finished_at: Option<Timestamp>,
    /// Error of a failed file.
    pub error: Option<String>,
}

/// A file that has no transfer yet, with its request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TapeJob {
    /// The request of the file.
    pub request: TapeRequest,
    /// The file.
    pub file: TapeFile,
}

/// The tables of tape requests.
#[derive(Debug, Clone, Copy)]
pub struct Tape<'q>(&'q Queue);

impl Queue {
    /// Returns the tables of tape requests.
    #[must_use]
    pub const fn tape(&self) -> Tape<'_> {
        Tape(self)
    }

    /// Deletes requests all of whose files ended before `before`.
    pub(super) fn forget_tape(&self, before: Timestamp) -> Result<()> {
        const OLD: &str = "SELECT id FROM tape_requests r WHERE created_at < ?1 AND NOT EXISTS
            (SELECT 1 FROM tape_files f WHERE f.request = r.id
             AND (f.finished_at IS NULL OR f.finished_at >= ?1)) LIMIT ?2";
        let values = (before.as_ms(), FORGOTTEN_MAX);
        let is_any = self.read(|connection| {
            let found = connection.prepare_cached(OLD);
            let found = found.and_then(|mut statement| statement.exists(values));
            found.map_err(sql("delete old tape requests"))
        })?;
        if !is_any {
            return Ok(());
        }
        self.write(move |connection, _| {
            let failed = sql("delete old tape requests");
            forget_hits(connection, &format!("SELECT id FROM ({OLD})"), values)?;
            let statement = format!("DELETE FROM tape_requests WHERE id IN ({OLD})");
            connection.execute(&statement, values).map_err(failed)?;
            Ok(())
        })
    }
}

/// Deletes the rows of fast copies that existed before they were requested and that do not expire.
/// The row of any other copy is deleted after the copy is evicted, but these copies are never
/// evicted. Rows with a pin that has not ended are kept. `requests` is the SQL that selects the ids
/// of the requests.
fn forget_hits(
    connection: &Connection,
    requests: &str,
    values: impl rusqlite::Params,
) -> Result<()> {
    let now = clock::now().as_ms();
    let statement = format!(
        "DELETE FROM staging WHERE hit = 1 AND expires_at IS NULL
         AND COALESCE(pinned_until, 0) <= {now}
         AND id IN (SELECT copy FROM tape_files WHERE request IN ({requests}))"
    );
    connection
        .execute(&statement, values)
        .map_err(sql("delete entries of tape requests"))?;
    Ok(())
}

fn moment(row: &rusqlite::Row<'_>, column: &str) -> rusqlite::Result<Option<Timestamp>> {
    Ok(row.get::<_, Option<i64>>(column)?.map(Timestamp::from_ms))
}

fn read_request(row: &rusqlite::Row<'_>) -> rusqlite::Result<TapeRequest> {
    Ok(TapeRequest {
        id: row.get("id")?,
        owner: row.get("owner")?,
        principal: row.get("principal")?,
        created_at: Timestamp::from_ms(row.get("created_at")?),
    })
}

fn read_file(row: &rusqlite::Row<'_>) -> rusqlite::Result<TapeFile> {
    let state: String = row.get("state")?;
    Ok(TapeFile {
        path: row.get("path")?,
        copy: row.get("copy")?,
        slow_path: row.get("slow_path")?,
        fast_path: row.get("fast_path")?,
        activity: row.get("activity")?,
        priority: row.get("priority")?,
        lifetime_seconds: row.get("lifetime_seconds")?,
        state: At::parse(&state).unwrap_or(At::Failed),
        started_at: moment(row, "started_at")?,
        finished_at: moment(row, "finished_at")?,
        error: row.get("error")?,
    })
}

fn put_file(connection: &Connection, request: &str, file: &TapeFile) -> Result<()> {
    let values = rusqlite::params![
        request,
        file.path,
        file.copy,
        file.slow_path,
        file.fast_path,
        file.activity,
        file.priority,
        file.lifetime_seconds,
        file.state.word(),
        file.started_at.map(Timestamp::as_ms),
        file.finished_at.map(Timestamp::as_ms),
        file.error,
    ];
    connection
        .prepare_cached(
            "INSERT INTO tape_files (request, path, copy, slow_path, fast_path, activity,
             priority, lifetime_seconds, state, started_at, finished_at, error)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
        )
        .and_then(|mut statement| statement.execute(values))
        .map_err(sql("store a file of a tape request"))?;
    Ok(())
}

fn end_file(
    connection: &Connection,
    copy: &str,
    state: At,
    error: Option<&str>,
    started_at: Option<Timestamp>,
    now: Timestamp,
) -> Result<bool> {
    let values = rusqlite::params![
        copy,
        state.word(),
        error,
        started_at.map(Timestamp::as_ms),
        now.as_ms(),
    ];
    let changed = connection
        .prepare_cached(
            "UPDATE tape_files SET state = ?2, error = ?3, finished_at = ?5,
             started_at = COALESCE(?4, started_at) WHERE copy = ?1 AND finished_at IS NULL",
        )
        .and_then(|mut statement| statement.execute(values))
        .map_err(sql("store the state of a file"))?;
    Ok(changed > 0)
}

fn no_request(id: &str) -> Error {
    let cause = match dray_api::shown_id(id) {
        Some(id) => format!("the tape request {id:?} does not exist, or belongs to another owner"),
        None => "the id in the URL is not valid".to_owned(),
    };
    Error::new(ErrorKind::NotFound, End::Here, "find the tape request")
        .cause(cause)
        .remedy("stage the files again with POST /v1/tape/stage")
}

impl Tape<'_> {
    /// Stores a request with its files.
    ///
    /// # Errors
    /// `Busy` if the owner has too many files that have not ended. Nothing is stored then.
    pub fn submit(&self, request: TapeRequest, files: Vec<TapeFile>) -> Result<()> {
        self.0.write(move |connection, _| {
            let live: u64 = connection
                .prepare_cached(
                    "SELECT COUNT(*) FROM tape_files f JOIN tape_requests r ON r.id = f.request
                     WHERE f.finished_at IS NULL AND r.owner = ?1",
                )
                .and_then(|mut statement| statement.query_row([&request.owner], |row| row.get(0)))
                .map_err(sql("count the files of tape requests"))?;
            if live + files.len() as u64 > LIVE_FILES_MAX {
                let cause = format!(
                    "{live} files of {} are being staged; at most {LIVE_FILES_MAX} are allowed",
                    request.owner
                );
                return Err(Error::new(ErrorKind::Busy, End::Here, "stage the files")
                    .cause(cause)
                    .remedy("wait until some of these files are staged"));
            }
            let values = (
                &request.id,
                next_seq(connection)?,
                &request.owner,
                &request.principal,
                request.created_at.as_ms(),
            );
            connection
                .prepare_cached(
                    "INSERT INTO tape_requests (id, seq, owner, principal, created_at)
                     VALUES (?1, ?2, ?3, ?4, ?5)",
                )
                .and_then(|mut statement| statement.execute(values))
                .map_err(sql("store the tape request"))?;
            for file in &files {
                put_file(connection, &request.id, file)?;
            }
            Ok(())
        })
    }

    /// Returns a request and its files, sorted by path. If the transfer of a file has started, the
    /// file is `Started`. If the transfer is queued, the file is `Submitted`.
    ///
    /// # Errors
    /// `NotFound` if the request does not exist, or belongs to another owner.
    pub fn show(&self, caller: &Actor, id: &str) -> Result<(TapeRequest, Vec<TapeFile>)> {
        let failed = sql("look up the tape request");
        self.0.read(|connection| {
            let found = connection
                .prepare_cached("SELECT * FROM tape_requests WHERE id = ?1")
                .and_then(|mut statement| statement.query_row([id], read_request).optional())
                .map_err(&failed)?;
            let request = found
                .filter(|request| caller.sees(&request.owner))
                .ok_or_else(|| no_request(id))?;
            let mut statement = connection
                .prepare_cached(
                    "SELECT f.request, f.path, f.copy, f.slow_path, f.fast_path, f.activity,
                     f.priority, f.lifetime_seconds, f.finished_at, f.error,
                     COALESCE(f.started_at, t.started_at) AS started_at,
                     CASE WHEN f.state = 'STARTED' AND t.started_at IS NULL THEN 'SUBMITTED'
                         ELSE f.state END AS state
                     FROM tape_files f LEFT JOIN transfers t
                     ON t.id = f.copy AND f.finished_at IS NULL
                     WHERE f.request = ?1 ORDER BY f.path",
                )
                .map_err(&failed)?;
            let files = statement.query_map([id], read_file).map_err(&failed)?;
            let files = files.collect::<rusqlite::Result<_>>().map_err(&failed)?;
            Ok((request, files))
        })
    }

    /// Returns the files with these paths in all requests of an owner.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn files_of(&self, owner: &str, paths: &[String]) -> Result<Vec<TapeFile>> {
        let failed = sql("look up files of tape requests");
        self.0.read(|connection| {
            let mut statement = connection
                .prepare_cached(
                    "SELECT f.* FROM tape_files f JOIN tape_requests r ON r.id = f.request
                     WHERE f.path = ?1 AND r.owner = ?2",
                )
                .map_err(&failed)?;
            let mut files = Vec::new();
            for path in paths {
                let rows = statement
                    .query_map((path, owner), read_file)
                    .map_err(&failed)?;
                for file in rows {
                    files.push(file.map_err(&failed)?);
                }
            }
            Ok(files)
        })
    }

    /// Returns files without a transfer, those of the oldest requests first. An owner can have at
    /// most `most` files with a transfer. So for each owner, the result has at most as many files
    /// as `most` exceeds the number of the owner's files with a transfer.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn jobs(&self, most: u32) -> Result<Vec<TapeJob>> {
        let failed = sql("look up files to stage");
        self.0.read(|connection| {
            let mut owners = connection
                .prepare_cached(
                    "SELECT r.owner, SUM(f.state = 'STARTED') FROM tape_files f
                     JOIN tape_requests r ON r.id = f.request
                     WHERE f.finished_at IS NULL GROUP BY r.owner
                     HAVING SUM(f.state = 'SUBMITTED') > 0",
                )
                .map_err(&failed)?;
            let owners = owners
                .query_map([], |row| {
                    Ok((row.get::<_, String>(0)?, row.get::<_, u32>(1)?))
                })
                .map_err(&failed)?;
            let mut statement = connection
                .prepare_cached(
                    "SELECT r.*, f.* FROM tape_files f JOIN tape_requests r ON r.id = f.request
                     WHERE f.finished_at IS NULL AND f.state = 'SUBMITTED' AND r.owner = ?1
                     ORDER BY r.seq, f.path LIMIT ?2",
                )
                .map_err(&failed)?;
            let mut jobs = Vec::new();
            for owner in owners {
                let (owner, started) = owner.map_err(&failed)?;
                let limit = most.saturating_sub(started);
                let rows = statement
                    .query_map((owner, limit), |row| {
                        Ok(TapeJob {
                            request: read_request(row)?,
                            file: read_file(row)?,
                        })
                    })
                    .map_err(&failed)?;
                for job in rows {
                    jobs.push(job.map_err(&failed)?);
                }
            }
            Ok(jobs)
        })
    }

    /// Returns true if a transfer other than that of `copy` is making the fast copy at `fast_path`.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn is_arriving(&self, fast_path: &str, copy: &str) -> Result<bool> {
        self.0.read(|connection| {
            connection
                .prepare_cached(
                    "SELECT 1 FROM staging s JOIN transfers t ON t.id = s.id
                     WHERE s.fast_path = ?1 AND s.id <> ?2 AND t.ended_at IS NULL",
                )
                .and_then(|mut statement| statement.exists((fast_path, copy)))
                .map_err(sql("look up a staged copy"))
        })
    }

    /// Returns true if a stage-in request with a lifetime has made the fast copy at `fast_path`,
    /// and the fast copy is not evicted.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn is_staged_in(&self, fast_path: &str) -> Result<bool> {
        self.0.read(|connection| {
            connection
                .prepare_cached(
                    "SELECT 1 FROM staging WHERE fast_path = ?1 AND direction = 'in'
                     AND staged_at IS NOT NULL AND evicted_at IS NULL AND expires_at IS NOT NULL",
                )
                .and_then(|mut statement| statement.exists([fast_path]))
                .map_err(sql("look up a staged copy"))
        })
    }

    /// Records for each of these staged copies that its transfer exists: the state of its file
    /// becomes `STARTED`. Returns the copies whose files had already ended, so that their states
    /// did not change.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn started(&self, copies: Vec<String>) -> Result<Vec<String>> {
        if copies.is_empty() {
            return Ok(copies);
        }
        self.0.write(move |connection, _| {
            let mut ended = Vec::new();
            for copy in copies {
                let changed = connection
                    .prepare_cached(
                        "UPDATE tape_files SET state = 'STARTED'
                         WHERE copy = ?1 AND finished_at IS NULL",
                    )
                    .and_then(|mut statement| statement.execute([&copy]))
                    .map_err(sql("store the state of a file"))?;
                if changed == 0 {
                    ended.push(copy);
                }
            }
            Ok(ended)
        })
    }

    /// Records the final state of the file whose fast copy has the id `copy`, unless the file
    /// already has a final state. Returns true if the state was recorded.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn end(&self, copy: &str, state: At, error: Option<String>) -> Result<bool> {
        let copy = copy.to_owned();
        self.0.write(move |connection, _| {
            end_file(
                connection,
                &copy,
                state,
                error.as_deref(),
                None,
                clock::now(),
            )
        })
    }

    /// Records that the files of these copies are cancelled. Returns the copies whose files had not
    /// ended before.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn cancelled(&self, copies: Vec<String>) -> Result<Vec<String>> {
        if copies.is_empty() {
            return Ok(copies);
        }
        self.0.write(move |connection, _| {
            let mut cancelled = Vec::new();
            for copy in copies {
                if end_file(connection, &copy, At::Cancelled, None, None, clock::now())? {
                    cancelled.push(copy);
                }
            }
            Ok(cancelled)
        })
    }

    /// Records that a file needs no transfer, because its fast copy exists. Stores `row`, which
    /// pins the fast copy.
    ///
    /// # Errors
    /// `AlreadyExists` if the id of the copy is in use. Also errors of the database.
    pub fn hit(&self, row: StagedRow) -> Result<()> {
        self.0.write(move |connection, _| {
            let now = clock::now();
            if end_file(connection, &row.id, At::Completed, None, Some(now), now)? {
                staged::put_hit(connection, &row, now)?;
            }
            Ok(())
        })
    }

    /// Removes the pins of copies. A copy with a lifetime also expires now.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn release(&self, copies: Vec<String>) -> Result<()> {
        self.0.write(move |connection, _| {
            let now = clock::now().as_ms();
            for copy in copies {
                connection
                    .prepare_cached(
                        "UPDATE staging SET pinned_until = NULL,
                         expires_at = CASE WHEN expires_at > ?2 THEN ?2 ELSE expires_at END
                         WHERE id = ?1 AND staged_at IS NOT NULL",
                    )
                    .and_then(|mut statement| statement.execute((copy, now)))
                    .map_err(sql("release the staged copy"))?;
            }
            Ok(())
        })
    }

    /// Deletes a request and its files. Staged copies are kept.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn delete(&self, id: &str) -> Result<()> {
        let id = id.to_owned();
        self.0.write(move |connection, _| {
            forget_hits(connection, "?1", [&id])?;
            connection
                .execute("DELETE FROM tape_requests WHERE id = ?1", [id])
                .map_err(sql("delete the tape request"))?;
            Ok(())
        })
    }
}
