//! The table of replicas: copies of versions on the other roots of a tier's replication group.
//!
//! Invariant owned here: the row of a replica and the transfer that makes it are stored together.

use super::{TierChange, Tiers};
use crate::queue::Queue;
use crate::queue::refused::Refused;
use crate::queue::sqlite::sql;
use crate::queue::submit::{Submission, Submitted};
use dray_api::Timestamp;
use dray_core::Result;
use rusqlite::Connection;

/// A copy of a version on a root of the replication group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierReplica {
    /// Name of the tier.
    pub tier: String,
    /// Name of the application.
    pub application: String,
    /// Number of the version.
    pub version: u64,
    /// Name of the root.
    pub root: String,
    /// API path of the replica.
    pub path: String,
    /// Text that identifies the demotion whose contents the replica has.
    pub stamp: String,
    /// Id of the transfer that makes the replica, or that made it.
    pub transfer: Option<String>,
    /// Time at which the replica was durable; `None` before that.
    pub replicated_at: Option<Timestamp>,
    /// Error of the last transfer, if it failed.
    pub error: Option<String>,
}

impl TierReplica {
    /// Returns true if a transfer makes the replica at present.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.transfer.is_some() && self.replicated_at.is_none() && self.error.is_none()
    }
}

fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<TierReplica> {
    Ok(TierReplica {
        tier: row.get("tier")?,
        application: row.get("application")?,
        version: row.get("version")?,
        root: row.get("root")?,
        path: row.get("path")?,
        stamp: row.get("stamp")?,
        transfer: row.get("transfer")?,
        replicated_at: row
            .get::<_, Option<i64>>("replicated_at")?
            .map(Timestamp::from_ms),
        error: row.get("error")?,
    })
}

/// Stores a replica, and replaces an earlier row of the same version and root.
pub(super) fn put(connection: &Connection, one: &TierReplica) -> Result<()> {
    let values = rusqlite::params![
        one.tier,
        one.application,
        one.version,
        one.root,
        one.path,
        one.stamp,
        one.transfer,
        one.replicated_at.map(Timestamp::as_ms),
        one.error,
    ];
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO tier_replicas (tier, application, version, root, path, stamp,
             transfer, replicated_at, error) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )
        .and_then(|mut statement| statement.execute(values))
        .map(drop)
        .map_err(sql("keep a replica"))
}

/// Deletes the rows of the replicas of a version.
pub(super) fn forget(
    connection: &Connection,
    tier: &str,
    application: &str,
    version: u64,
) -> Result<()> {
    connection
        .prepare_cached(
            "DELETE FROM tier_replicas WHERE tier = ?1 AND application = ?2 AND version = ?3",
        )
        .and_then(|mut statement| statement.execute((tier, application, version)))
        .map(drop)
        .map_err(sql("forget the replicas of a version"))
}

impl Tiers<'_> {
    /// Returns all replicas of a tier.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn replicas(&self, tier: &str) -> Result<Vec<TierReplica>> {
        let failed = sql("list replicas");
        self.0.read(|connection| {
            let mut statement = connection
                .prepare_cached(
                    "SELECT * FROM tier_replicas WHERE tier = ?1
                     ORDER BY application, version DESC, root",
                )
                .map_err(&failed)?;
            let rows = statement.query_map([tier], read).map_err(&failed)?;
            rows.collect::<rusqlite::Result<_>>().map_err(&failed)
        })
    }

    /// Stores changed replicas in one transaction.
    ///
    /// # Errors
    /// Errors of the database. Nothing is changed then.
    pub fn change_replicas(&self, changed: Vec<TierReplica>) -> Result<()> {
        if changed.is_empty() {
            return Ok(());
        }
        self.0
            .write(move |connection, _| changed.iter().try_for_each(|one| put(connection, one)))
    }
}

impl Queue {
    /// Submits the transfer that makes a replica, and stores the row of the replica in the same
    /// transaction.
    ///
    /// # Errors
    /// The errors of [`Queue::submit`].
    pub fn submit_replica(
        &self,
        submission: Submission,
        replica: TierReplica,
    ) -> std::result::Result<Submitted, Refused> {
        self.submit_with(submission, None, Some(TierChange::Replicated(replica)))
    }
}
