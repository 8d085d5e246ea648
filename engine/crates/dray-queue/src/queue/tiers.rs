//! The table of versions on tiers. A version is one checkpoint of one application.
//!
//! Invariant owned here: each change of a version's state names the previous state, and is made
//! only if the row still has that state. So of two concurrent changes, only one is made.

mod replicas;

pub use replicas::TierReplica;

use super::sqlite::sql;
use super::{Queue, staged};
use crate::clock;
use dray_api::{TierVersionState, Timestamp};
use dray_core::{End, Error, ErrorKind, Result};
use rusqlite::{Connection, OptionalExtension};
use std::collections::BTreeMap;

/// A version on a tier: one checkpoint that an application has written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierVersion {
    /// Name of the tier.
    pub tier: String,
    /// Name of the application.
    pub application: String,
    /// Number of the version.
    pub version: u64,
    /// Owner of the copies.
    pub owner: String,
    /// API path of the fast copy.
    pub fast_path: String,
    /// API path of the slow copy.
    pub slow_path: String,
    /// True if the version is a folder, false if it is one file.
    pub is_folder: bool,
    /// Size in bytes.
    pub bytes: u64,
    /// Text that changes with the files of the fast copy: their number, sizes and times.
    pub stamp: String,
    /// State of the version.
    pub state: TierVersionState,
    /// Time at which the version was complete.
    pub written_at: Timestamp,
    /// Time at which the slow copy was durable.
    pub demoted_at: Option<Timestamp>,
    /// Time of the last write or restart.
    pub used_at: Timestamp,
    /// Declared seconds between failures of the application.
    pub mtbf_seconds: Option<u64>,
    /// Declared number of nodes of the application.
    pub nodes: Option<u32>,
    /// Declared seconds between two versions.
    pub period_seconds: Option<u64>,
    /// Id of the transfer that demotes the version, or restores its fast copy.
    pub transfer: Option<String>,
    /// Error of the last demotion, if it failed.
    pub error: Option<String>,
}

/// The observed restarts of an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restarts {
    /// Begin of the observation.
    pub since: Timestamp,
    /// Number of restarts.
    pub count: u64,
    /// Number of restarts that found their fast copy, so that nothing was copied.
    pub hits: u64,
}

/// The table of versions on tiers.
#[derive(Debug, Clone, Copy)]
pub struct Tiers<'q>(pub(super) &'q Queue);

impl Queue {
    /// Returns the table of versions on tiers.
    #[must_use]
    pub const fn tiers(&self) -> Tiers<'_> {
        Tiers(self)
    }
}

fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<TierVersion> {
    let moment = |column: &str| -> rusqlite::Result<Option<Timestamp>> {
        Ok(row.get::<_, Option<i64>>(column)?.map(Timestamp::from_ms))
    };
    let state: String = row.get("state")?;
    Ok(TierVersion {
        tier: row.get("tier")?,
        application: row.get("application")?,
        version: row.get("version")?,
        owner: row.get("owner")?,
        fast_path: row.get("fast_path")?,
        slow_path: row.get("slow_path")?,
        is_folder: row.get("is_folder")?,
        bytes: row.get("bytes")?,
        stamp: row.get("stamp")?,
        // Read an unknown state of a newer program as `Written`, so that nothing is deleted.
        state: TierVersionState::parse(&state).unwrap_or(TierVersionState::Written),
        written_at: moment("written_at")?.unwrap_or(Timestamp::from_ms(0)),
        demoted_at: moment("demoted_at")?,
        used_at: moment("used_at")?.unwrap_or(Timestamp::from_ms(0)),
        mtbf_seconds: row.get("mtbf_seconds")?,
        nodes: row.get("nodes")?,
        period_seconds: row.get("period_seconds")?,
        transfer: row.get("transfer")?,
        error: row.get("error")?,
    })
}

/// Stores a version, and replaces an earlier row of the same version.
pub(super) fn put(connection: &Connection, one: &TierVersion) -> Result<()> {
    let failed = sql("keep a version");
    let values = rusqlite::params![
        one.tier,
        one.application,
        one.version,
        one.owner,
        one.fast_path,
        one.slow_path,
        one.is_folder,
        one.bytes,
        one.stamp,
        one.state.word(),
        one.written_at.as_ms(),
        one.demoted_at.map(Timestamp::as_ms),
        one.used_at.as_ms(),
        one.mtbf_seconds,
        one.nodes,
        one.period_seconds,
        one.transfer,
        one.error,
    ];
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO tier_versions (tier, application, version, owner, fast_path,
             slow_path, is_folder, bytes, stamp, state, written_at, demoted_at, used_at,
             mtbf_seconds, nodes, period_seconds, transfer, error)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17,
             ?18)",
        )
        .and_then(|mut statement| statement.execute(values))
        .map_err(&failed)?;
    connection
        .prepare_cached(
            "INSERT OR IGNORE INTO tier_restarts (tier, application, since, count)
             VALUES (?1, ?2, ?3, 0)",
        )
        .and_then(|mut statement| {
            statement.execute((&one.tier, &one.application, one.written_at.as_ms()))
        })
        .map_err(failed)?;
    Ok(())
}

pub(super) fn find(connection: &Connection, one: &TierVersion) -> Result<Option<TierVersion>> {
    connection
        .prepare_cached(
            "SELECT * FROM tier_versions WHERE tier = ?1 AND application = ?2 AND version = ?3",
        )
        .and_then(|mut statement| {
            let key = (&one.tier, &one.application, one.version);
            statement.query_row(key, read).optional()
        })
        .map_err(sql("look up a version"))
}

/// Counts a restart of an application, and marks the version as used. `is_hit` is true if the fast
/// copy existed.
pub(super) fn restarted(
    connection: &Connection,
    one: &TierVersion,
    now: Timestamp,
    is_hit: bool,
) -> Result<()> {
    let failed = sql("count a restart");
    connection
        .prepare_cached(
            "UPDATE tier_versions SET used_at = ?4
             WHERE tier = ?1 AND application = ?2 AND version = ?3",
        )
        .and_then(|mut statement| {
            statement.execute((&one.tier, &one.application, one.version, now.as_ms()))
        })
        .map_err(&failed)?;
    connection
        .prepare_cached(
            "UPDATE tier_restarts SET count = count + 1, hits = hits + ?3
             WHERE tier = ?1 AND application = ?2",
        )
        .and_then(|mut statement| {
            statement.execute((&one.tier, &one.application, i64::from(is_hit)))
        })
        .map_err(failed)?;
    Ok(())
}

/// A change of the table that belongs to a submitted staging request.
#[derive(Debug, Clone)]
pub enum TierChange {
    /// The request demotes a version that the caller declares.
    Declared(TierVersion),
    /// The request restores the fast copy of a version.
    Restored(TierVersion),
    /// The request copies a version to a root of the replication group.
    Replicated(TierReplica),
}

/// Makes the change within the transaction that stores the transfer.
pub(super) fn follow(connection: &Connection, change: &TierChange, now: Timestamp) -> Result<()> {
    match change {
        TierChange::Declared(one) => put(connection, one),
        TierChange::Restored(one) => {
            put(connection, one)?;
            restarted(connection, one, now, false)
        }
        TierChange::Replicated(one) => replicas::put(connection, one),
    }
}

impl Tiers<'_> {
    /// Returns all versions of a tier, sorted by application. The newest version of each
    /// application comes first.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn versions(&self, tier: &str) -> Result<Vec<TierVersion>> {
        let failed = sql("list versions");
        self.0.read(|connection| {
            let mut statement = connection
                .prepare_cached(
                    "SELECT * FROM tier_versions WHERE tier = ?1
                     ORDER BY application, version DESC",
                )
                .map_err(&failed)?;
            let rows = statement.query_map([tier], read).map_err(&failed)?;
            rows.collect::<rusqlite::Result<_>>().map_err(&failed)
        })
    }

    /// Stores new and changed versions in one transaction. In each pair, `from` is the expected
    /// present state, or `None` for a version without a row. If the version is no longer in the
    /// state `from`, its row is not changed. Returns the number of stored versions.
    ///
    /// # Errors
    /// Errors of the database. Nothing is changed then.
    pub fn change(&self, changes: Vec<(Option<TierVersionState>, TierVersion)>) -> Result<usize> {
        if changes.is_empty() {
            return Ok(0);
        }
        self.0.write(move |connection, _| {
            let mut stored_count = 0;
            for (from, one) in &changes {
                let stored = find(connection, one)?;
                if stored.as_ref().map(|row| row.state) != *from {
                    continue;
                }
                // A caller has declared the version again, and another transfer demotes it.
                let is_other = |row: &TierVersion| row.transfer != one.transfer;
                if one.state == TierVersionState::Demoted
                    && *from == Some(TierVersionState::Demoting)
                    && stored.as_ref().is_some_and(is_other)
                {
                    continue;
                }
                // A restart may have used the version since the caller read the row.
                let used_at = stored.map_or(one.used_at, |row| row.used_at.max(one.used_at));
                put(
                    connection,
                    &TierVersion {
                        used_at,
                        ..one.clone()
                    },
                )?;
                stored_count += 1;
            }
            Ok(stored_count)
        })
    }

    /// Deletes the row of each version in `gone`, if the row still has the state given there.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn forget(&self, gone: Vec<TierVersion>) -> Result<()> {
        if gone.is_empty() {
            return Ok(());
        }
        self.0.write(move |connection, _| {
            for one in &gone {
                connection
                    .prepare_cached(
                        "DELETE FROM tier_versions
                         WHERE tier = ?1 AND application = ?2 AND version = ?3 AND state = ?4",
                    )
                    .and_then(|mut statement| {
                        let state = one.state.word();
                        statement.execute((&one.tier, &one.application, one.version, state))
                    })
                    .map_err(sql("forget a version"))?;
                if find(connection, one)?.is_none() {
                    replicas::forget(connection, &one.tier, &one.application, one.version)?;
                }
            }
            Ok(())
        })
    }

    /// Changes the state of all demoted versions that a deletion of `fast_path` affects to
    /// [`TierVersionState::Deleting`]: the version at this path, versions below it, and a version
    /// that contains it. Must be called before the deletion begins. If the endpoint is killed
    /// during the deletion, the state shows that the fast copies may be incomplete.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn deletion_begins(&self, fast_path: &str) -> Result<()> {
        let (from, to) = (TierVersionState::Demoted, TierVersionState::Deleting);
        self.change_state(fast_path, "length(fast_path)", from, to)
    }

    /// Changes the state of the versions whose fast copies were deleted to
    /// [`TierVersionState::Slow`]. Also clears the field `transfer`, because in the new state this
    /// field names only a transfer that restores the version.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn deletion_ended(&self, fast_path: &str) -> Result<()> {
        let (from, to) = (TierVersionState::Deleting, TierVersionState::Slow);
        self.change_state(fast_path, "-1", from, to)
    }

    /// Changes the state from `from` to `to` for the versions at `fast_path` and below it. `above`
    /// is an SQL number: with `length(fast_path)`, the change includes the versions whose folder
    /// contains the path. With -1, it excludes these versions.
    fn change_state(
        &self,
        fast_path: &str,
        above: &'static str,
        from: TierVersionState,
        to: TierVersionState,
    ) -> Result<()> {
        let path = fast_path.to_owned();
        self.0.write(move |connection, _| {
            connection
                .prepare_cached(&format!(
                    "UPDATE tier_versions SET state = ?3,
                         transfer = CASE ?3 WHEN 'slow' THEN NULL ELSE transfer END
                     WHERE state = ?2 AND (fast_path = ?1
                         OR substr(fast_path, 1, length(?1) + 1) = ?1 || '/'
                         OR substr(?1, 1, {above} + 1) = fast_path || '/')"
                ))
                .and_then(|mut statement| statement.execute((&path, from.word(), to.word())))
                .map(drop)
                .map_err(sql("change the state of versions"))
        })
    }

    /// Returns the observed restarts of the applications of a tier.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn restarts(&self, tier: &str) -> Result<BTreeMap<String, Restarts>> {
        let failed = sql("look up the restarts of applications");
        self.0.read(|connection| {
            let mut statement = connection
                .prepare_cached(
                    "SELECT application, since, count, hits FROM tier_restarts WHERE tier = ?1",
                )
                .map_err(&failed)?;
            let rows = statement.query_map([tier], |row| {
                let since = Timestamp::from_ms(row.get(1)?);
                Ok((
                    row.get(0)?,
                    Restarts {
                        since,
                        count: row.get(2)?,
                        hits: row.get(3)?,
                    },
                ))
            });
            let rows = rows.map_err(&failed)?;
            rows.collect::<rusqlite::Result<_>>().map_err(&failed)
        })
    }

    /// Stores the row of a staging request for a restart. The fast copy exists, so nothing is
    /// copied. The pin and the lifetime of the row apply to that fast copy.
    ///
    /// # Errors
    /// `AlreadyExists` if the id is in use, or if the fast copy is being deleted. Also errors of
    /// the database.
    pub fn hit(&self, version: TierVersion, staged: super::StagedRow) -> Result<()> {
        self.0.write(move |connection, _| {
            // A deletion may have begun since the caller read the row.
            let state = find(connection, &version)?.map(|row| row.state);
            if matches!(
                state,
                None | Some(TierVersionState::Deleting | TierVersionState::Slow)
            ) {
                return Err(
                    Error::new(ErrorKind::AlreadyExists, End::Here, "stage the version")
                        .cause("the fast copy of the version is being deleted")
                        .remedy(
                            "try again in some seconds; a transfer then copies the slow copy back",
                        ),
                );
            }
            staged::put_hit(connection, &staged, clock::now())?;
            restarted(connection, &version, clock::now(), true)
        })
    }

    /// Returns the pinned fast paths, each with the end of its pin.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn pins(&self, now: Timestamp) -> Result<BTreeMap<String, Timestamp>> {
        let failed = sql("list pins");
        self.0.read(|connection| {
            let mut statement = connection
                .prepare_cached(
                    "SELECT fast_path, MAX(pinned_until) FROM staging
                     WHERE pinned_until > ?1 AND evicted_at IS NULL GROUP BY fast_path",
                )
                .map_err(&failed)?;
            let rows = statement.query_map([now.as_ms()], |row| {
                Ok((row.get(0)?, Timestamp::from_ms(row.get(1)?)))
            });
            let rows = rows.map_err(&failed)?;
            rows.collect::<rusqlite::Result<_>>().map_err(&failed)
        })
    }
}
