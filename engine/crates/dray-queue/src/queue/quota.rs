//! Limits of the number of transfers, in total and per owner.

use super::sqlite::sql;
use dray_core::{End, Error, ErrorKind, Result};
use rusqlite::Connection;
use std::collections::HashMap;

/// Maximum numbers of transfers that have not ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Maximum number of transfers of all owners.
    pub(super) all: u64,
    /// Maximum number of transfers of one owner, so that one owner cannot fill the queue.
    pub(super) of_owner: u64,
}

/// The remaining quota within one write.
#[derive(Debug)]
pub(super) struct Quota {
    limits: Limits,
    /// The operation that error messages name.
    operation: &'static str,
    live: u64,
    of_owners: HashMap<String, u64>,
}

impl Quota {
    pub(super) fn count(
        connection: &Connection,
        limits: Limits,
        operation: &'static str,
    ) -> Result<Self> {
        Ok(Self {
            limits,
            operation,
            live: count(
                connection,
                "SELECT COUNT(*) FROM transfers WHERE ended_at IS NULL",
                (),
            )?,
            of_owners: HashMap::new(),
        })
    }

    /// Counts a transfer of `owner` against the limit of all owners and the limit of this owner.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] if one of the two limits is reached.
    pub(super) fn take(&mut self, connection: &Connection, owner: &str) -> Result<()> {
        let operation = self.operation;
        let full = |cause: String, limit: &str| {
            Error::new(ErrorKind::Busy, End::Here, operation)
                .cause(cause)
                .remedy(format!(
                    "try again when some transfers have ended, or ask the administrator for a \
                        higher `limits.{limit}`"
                ))
        };
        if self.live >= self.limits.all {
            let cause = format!("{} transfers have not ended, which is the limit", self.live);
            return Err(full(cause, "transfers_queued"));
        }
        let of_owner = match self.of_owners.get_mut(owner) {
            Some(known) => known,
            None => {
                let live = count(
                    connection,
                    "SELECT COUNT(*) FROM transfers WHERE owner = ?1 AND ended_at IS NULL",
                    [owner],
                )?;
                self.of_owners.entry(owner.to_owned()).or_insert(live)
            }
        };
        if *of_owner >= self.limits.of_owner {
            let cause =
                format!("{of_owner} transfers of {owner} have not ended, which is the limit");
            return Err(full(cause, "per_owner_queued"));
        }
        *of_owner += 1;
        self.live += 1;
        Ok(())
    }

    /// Returns the quota of a transfer that was refused after it was counted.
    pub(super) fn give_back(&mut self, owner: &str) {
        self.live = self.live.saturating_sub(1);
        if let Some(live) = self.of_owners.get_mut(owner) {
            *live = live.saturating_sub(1);
        }
    }
}

fn count(connection: &Connection, query: &str, of: impl rusqlite::Params) -> Result<u64> {
    connection
        .prepare_cached(query)
        .and_then(|mut statement| statement.query_row(of, |row| row.get(0)))
        .map_err(sql("count the transfers"))
}
