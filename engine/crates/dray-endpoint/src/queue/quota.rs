//! How many transfers may still be taken, in all and of one owner.

use super::schema::sql;
use dray_core::{End, Error, ErrorKind, Result};
use rusqlite::Connection;
use std::collections::HashMap;

/// How many transfers that are not ended there may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places {
    /// In all.
    pub(super) all: u64,
    /// Of one owner: else one of them closes the queue for everybody.
    pub(super) of_owner: u64,
}

/// What is left of them within one write.
#[derive(Debug)]
pub(super) struct Room {
    places: Places,
    /// What the place is for.
    operation: &'static str,
    live: u64,
    of_owners: HashMap<String, u64>,
}

impl Room {
    pub(super) fn look(
        connection: &Connection,
        places: Places,
        operation: &'static str,
    ) -> Result<Self> {
        Ok(Self {
            places,
            operation,
            live: count(
                connection,
                "SELECT COUNT(*) FROM transfers WHERE ended_at IS NULL",
                (),
            )?,
            of_owners: HashMap::new(),
        })
    }

    /// Takes a place for a transfer of `owner`.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] when there is none.
    pub(super) fn take(&mut self, connection: &Connection, owner: &str) -> Result<()> {
        let operation = self.operation;
        let full = |cause: String, limit: &str| {
            Error::new(ErrorKind::Busy, End::Here, operation)
                .cause(cause)
                .remedy(format!(
                    "try again when some have ended, or ask for a higher limits.{limit}"
                ))
        };
        if self.live >= self.places.all {
            return Err(full("the queue is full".to_owned(), "transfers_queued"));
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
        if *of_owner >= self.places.of_owner {
            let cause =
                format!("{of_owner} transfers of {owner} have not ended, which is the limit");
            return Err(full(cause, "per_owner_queued"));
        }
        *of_owner += 1;
        self.live += 1;
        Ok(())
    }

    /// Gives back what was taken for one that was refused after all.
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
