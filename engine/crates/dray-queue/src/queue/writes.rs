//! The table of write jobs of tiers.
//!
//! Invariant owned here: each change of a job names the job's previous state, and is made only if
//! the row still has that state. The end of a job is stored in one transaction with the row of its
//! version.

use super::sqlite::sql;
use super::tiers::{self, TierVersion, Tiers};
use super::{next_seq, not_found, read_cursor};
use dray_api::{TierVersionState, Timestamp, WritePlacement, WriteQuery, WriteState};
use dray_core::{End, Error, ErrorKind, Result};
use rusqlite::{Connection, OptionalExtension};

/// A write job of an application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierWrite {
    /// Id of the job.
    pub id: String,
    /// Name of the tier.
    pub tier: String,
    /// Name of the application.
    pub application: String,
    /// Number of the version.
    pub version: u64,
    /// Owner of the job and of the version.
    pub owner: String,
    /// API path of the version in a fast root.
    pub fast_path: String,
    /// API path of the version in the slow root.
    pub slow_path: String,
    /// Root that the application writes to.
    pub placement: WritePlacement,
    /// State of the job.
    pub state: WriteState,
    /// Size of the version in bytes, as requested.
    pub bytes: u64,
    /// Declared number of files.
    pub files: Option<u32>,
    /// Declared seconds between two versions.
    pub period_seconds: Option<u64>,
    /// Declared seconds between failures of the application.
    pub mtbf_seconds: Option<u64>,
    /// Declared number of nodes of the application.
    pub nodes: Option<u32>,
    /// Duration of the lease in seconds.
    pub lease_seconds: u64,
    /// Time of the request.
    pub submitted_at: Timestamp,
    /// Time from which the application may write.
    pub granted_at: Option<Timestamp>,
    /// End of the lease.
    pub expires_at: Option<Timestamp>,
    /// Time of the end.
    pub ended_at: Option<Timestamp>,
}

fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<TierWrite> {
    let moment = |column: &str| -> rusqlite::Result<Option<Timestamp>> {
        Ok(row.get::<_, Option<i64>>(column)?.map(Timestamp::from_ms))
    };
    let (state, placement): (String, String) = (row.get("state")?, row.get("placement")?);
    Ok(TierWrite {
        id: row.get("id")?,
        tier: row.get("tier")?,
        application: row.get("application")?,
        version: row.get("version")?,
        owner: row.get("owner")?,
        fast_path: row.get("fast_path")?,
        slow_path: row.get("slow_path")?,
        placement: match placement.as_str() {
            "slow" => WritePlacement::Slow,
            _ => WritePlacement::Fast,
        },
        // Read an unknown state of a newer program as `Expired`, so that the job is not served.
        state: WriteState::parse(&state).unwrap_or(WriteState::Expired),
        bytes: row.get("bytes")?,
        files: row.get("files")?,
        period_seconds: row.get("period_seconds")?,
        mtbf_seconds: row.get("mtbf_seconds")?,
        nodes: row.get("nodes")?,
        lease_seconds: row.get("lease_seconds")?,
        submitted_at: moment("submitted_at")?.unwrap_or(Timestamp::from_ms(0)),
        granted_at: moment("granted_at")?,
        expires_at: moment("expires_at")?,
        ended_at: moment("ended_at")?,
    })
}

fn find(connection: &Connection, id: &str) -> Result<Option<TierWrite>> {
    connection
        .prepare_cached("SELECT * FROM tier_writes WHERE id = ?1")
        .and_then(|mut statement| statement.query_row([id], read).optional())
        .map_err(sql("look up a write job"))
}

fn insert(connection: &Connection, one: &TierWrite) -> Result<()> {
    let values = rusqlite::params![
        one.id,
        next_seq(connection)?,
        one.tier,
        one.application,
        one.version,
        one.owner,
        one.fast_path,
        one.slow_path,
        one.placement.word(),
        one.state.word(),
        one.bytes,
        one.files,
        one.period_seconds,
        one.mtbf_seconds,
        one.nodes,
        one.lease_seconds,
        one.submitted_at.as_ms(),
        one.granted_at.map(Timestamp::as_ms),
        one.expires_at.map(Timestamp::as_ms),
        one.ended_at.map(Timestamp::as_ms),
    ];
    connection
        .prepare_cached(
            "INSERT INTO tier_writes (id, seq, tier, application, version, owner, fast_path,
             slow_path, placement, state, bytes, files, period_seconds, mtbf_seconds, nodes,
             lease_seconds, submitted_at, granted_at, expires_at, ended_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17,
             ?18, ?19, ?20)",
        )
        .and_then(|mut statement| statement.execute(values))
        .map_err(sql("store a write job"))?;
    Ok(())
}

/// Changes the state and the times of a job if the job is still in the state `from`. Returns true
/// if the job was changed.
fn update(connection: &Connection, from: WriteState, one: &TierWrite) -> Result<bool> {
    let changed = connection
        .prepare_cached(
            "UPDATE tier_writes SET state = ?3, granted_at = ?4, expires_at = ?5, ended_at = ?6
             WHERE id = ?1 AND state = ?2",
        )
        .and_then(|mut statement| {
            statement.execute((
                &one.id,
                from.word(),
                one.state.word(),
                one.granted_at.map(Timestamp::as_ms),
                one.expires_at.map(Timestamp::as_ms),
                one.ended_at.map(Timestamp::as_ms),
            ))
        })
        .map_err(sql("change a write job"))?;
    Ok(changed == 1)
}

fn refused(cause: &str, remedy: &str) -> Error {
    Error::new(ErrorKind::AlreadyExists, End::Here, "write a version")
        .cause(cause)
        .remedy(remedy)
}

impl Tiers<'_> {
    /// Stores a new write job and returns it. If a job with the same id, owner and version exists,
    /// returns that job instead.
    ///
    /// # Errors
    /// `AlreadyExists` if the id belongs to another job, or if the version has a job that has not
    /// ended. Errors of the database.
    pub fn submit_write(&self, job: TierWrite) -> Result<TierWrite> {
        self.0.write(move |connection, _| {
            if let Some(known) = find(connection, &job.id)? {
                let of = |job: &TierWrite| {
                    let named = (job.tier.clone(), job.application.clone(), job.owner.clone());
                    (named, job.version, job.bytes)
                };
                return match of(&known) == of(&job) {
                    true => Ok(known),
                    false => Err(refused(
                        "another write job has the requested id",
                        "choose another id",
                    )),
                };
            }
            let is_written = connection
                .prepare_cached(
                    "SELECT 1 FROM tier_writes WHERE tier = ?1 AND application = ?2
                     AND version = ?3 AND ended_at IS NULL",
                )
                .and_then(|mut statement| {
                    statement.exists((&job.tier, &job.application, job.version))
                })
                .map_err(sql("look up the write jobs of a version"))?;
            if is_written {
                let cause = "another write job of this version has not ended";
                return Err(refused(
                    cause,
                    "complete or delete the other write job, or wait until it expires",
                ));
            }
            insert(connection, &job)?;
            Ok(job)
        })
    }

    /// Returns the write jobs of a tier that have not ended, the oldest first.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn writes(&self, tier: &str) -> Result<Vec<TierWrite>> {
        let failed = sql("list write jobs");
        self.0.read(|connection| {
            let mut statement = connection
                .prepare_cached(
                    "SELECT * FROM tier_writes WHERE tier = ?1 AND ended_at IS NULL ORDER BY seq",
                )
                .map_err(&failed)?;
            let rows = statement.query_map([tier], read).map_err(&failed)?;
            rows.collect::<rusqlite::Result<_>>().map_err(&failed)
        })
    }

    /// Returns a page of the write jobs of a tier, the newest first, and the cursor of the next
    /// page. The page contains only the jobs that `caller` may see.
    ///
    /// # Errors
    /// `InvalidRequest` for an invalid cursor. Errors of the database.
    pub fn list_writes(
        &self,
        caller: &super::Actor,
        tier: &str,
        query: &WriteQuery,
    ) -> Result<(Vec<TierWrite>, Option<String>)> {
        let before = read_cursor(query.cursor.as_deref())?;
        let owner = (!caller.is_administrator).then_some(caller.owner.as_str());
        let state = query.state.map(WriteState::word);
        let application = query.application.as_deref();
        let more = u64::from(query.limit) + 1;
        let failed = sql("list write jobs");
        let mut found: Vec<(TierWrite, i64)> = self.0.read(|connection| {
            let mut statement = connection
                .prepare_cached(
                    "SELECT * FROM tier_writes WHERE tier = ?1 AND seq < ?2
                     AND (?3 IS NULL OR owner = ?3) AND (?4 IS NULL OR state = ?4)
                     AND (?5 IS NULL OR application = ?5) ORDER BY seq DESC LIMIT ?6",
                )
                .map_err(&failed)?;
            let values = (tier, before, owner, state, application, more);
            let rows = statement
                .query_map(values, |row| Ok((read(row)?, row.get("seq")?)))
                .map_err(&failed)?;
            rows.collect::<rusqlite::Result<_>>().map_err(&failed)
        })?;
        let has_more = found.len() > query.limit as usize;
        found.truncate(query.limit as usize);
        let last = found.last().filter(|_| has_more);
        let next = last.map(|(_, seq)| seq.to_string());
        Ok((found.into_iter().map(|(job, _)| job).collect(), next))
    }

    /// Returns a write job that `caller` may see.
    ///
    /// # Errors
    /// `NotFound`. Errors of the database.
    pub fn write_job(&self, caller: &super::Actor, id: &str) -> Result<TierWrite> {
        let found = self.0.read(|connection| find(connection, id))?;
        found
            .filter(|job| caller.sees(&job.owner))
            .ok_or_else(|| not_found(id))
    }

    /// Changes the state and the times of jobs that are still in the given states.
    ///
    /// # Errors
    /// Errors of the database. Nothing is changed then.
    pub fn change_writes(&self, changes: Vec<(WriteState, TierWrite)>) -> Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        self.0.write(move |connection, _| {
            for (from, one) in &changes {
                update(connection, *from, one)?;
            }
            Ok(())
        })
    }

    /// Ends a granted job, and stores the row of its version in the same transaction. `from` is the
    /// state of the version's row, or `None` for a version without a row.
    ///
    /// # Errors
    /// `AlreadyExists` if the job is no longer granted, or if the version is no longer in the state
    /// `from`. Errors of the database.
    pub fn complete_write(
        &self,
        job: TierWrite,
        from: Option<TierVersionState>,
        version: TierVersion,
    ) -> Result<()> {
        self.0.write(move |connection, _| {
            let stored = tiers::find(connection, &version)?;
            if stored.map(|row| row.state) != from {
                let cause = "the state of the version changed during the call";
                return Err(refused(
                    cause,
                    "repeat the call that completes the write job",
                ));
            }
            if !update(connection, WriteState::Granted, &job)? {
                let cause = "the write job is no longer granted";
                return Err(refused(cause, "request a new write job"));
            }
            tiers::put(connection, &version)
        })
    }

    /// Deletes jobs that ended before `before`.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn forget_writes(&self, before: Timestamp) -> Result<()> {
        let before = before.as_ms();
        let is_any = self.0.read(|connection| {
            connection
                .prepare_cached("SELECT 1 FROM tier_writes WHERE ended_at < ?1")
                .and_then(|mut statement| statement.exists([before]))
                .map_err(sql("look up old write jobs"))
        })?;
        if !is_any {
            return Ok(());
        }
        self.0.write(move |connection, _| {
            connection
                .prepare_cached("DELETE FROM tier_writes WHERE ended_at < ?1")
                .and_then(|mut statement| statement.execute([before]))
                .map_err(sql("delete old write jobs"))?;
            Ok(())
        })
    }
}
