//! Receipts: the attempts whose receipt must be written, and the chain of written receipts.
//!
//! The transaction that ends an attempt also stores the data of its receipt (`receipts_due`). So a
//! crash after the end loses no receipt, and neither a new attempt nor the deletion of the transfer
//! changes the data. The endpoint writes the receipts one after the other, and then records them
//! (`receipts`). The newest recorded receipt is the end of the chain.

use super::actor::Actor;
use super::manifest;
use super::row::{Row, to_sql, unjson};
use super::sqlite::{json, sql};
use super::{Queue, TRANSFERS, not_found};
use crate::clock;
use crate::promises::View;
use dray_api::{ErrorParts, Event, EventKind, ReceiptReference, Timestamp, Transfer};
use dray_core::lock::LockExt;
use dray_core::{End, Error, ErrorKind, Result, TransferId};
use rusqlite::{Connection, OptionalExtension};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Maximum number of broken sessions that a receipt names. `tries` counts all sessions.
const BREAKS_MAX: u32 = 100;

/// Maximum number of receipts that are read or recorded at once.
pub const RECEIPTS_MAX: u32 = 64;

/// A session that broke off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokenSession {
    /// Number of the session within its attempt.
    pub number: u32,
    /// Time of the break.
    pub at: Timestamp,
    /// Kind of the error, or `interrupted` if the endpoint's process ended.
    pub kind: String,
    /// The error in words.
    pub message: String,
}

/// An ended attempt whose receipt is not written yet.
#[derive(Debug, Clone)]
pub struct DueReceipt {
    /// Number of the attempt. No other attempt of any transfer ever has this number.
    pub run: i64,
    /// File with the outcomes of the attempt's files. It may not exist.
    pub list: PathBuf,
    /// The transfer at the end of the attempt.
    pub transfer: Transfer,
    /// The sessions that broke off.
    pub breaks: Vec<BrokenSession>,
}

/// A page of ended attempts.
#[derive(Debug, Default)]
pub struct DuePage {
    /// The attempts, the oldest first.
    pub receipts: Vec<DueReceipt>,
    /// The attempts whose stored data cannot be read.
    pub unreadable: Vec<(i64, Error)>,
    /// Number of the last attempt of the page; `None` if there are no further attempts.
    pub last: Option<i64>,
}

/// A written receipt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenReceipt {
    /// Number of the attempt.
    pub run: i64,
    /// Sequence number and id of the receipt.
    pub receipt: ReceiptReference,
    /// Time at which the receipt was written.
    pub issued_at: Timestamp,
}

/// The receipt of a transfer's last attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReceiptState {
    /// The receipt is written.
    Written(ReceiptReference),
    /// The attempt has ended, and the receipt is not written yet.
    Due,
    /// There is no receipt.
    Missing,
}

#[derive(Serialize, Deserialize)]
struct Ended {
    transfer: Transfer,
    breaks: Vec<BrokenSession>,
}

/// Wakes the thread that writes receipts.
#[derive(Debug, Default)]
pub(super) struct Signal {
    is_due: Mutex<bool>,
    due: Condvar,
}

impl Signal {
    pub(super) fn notify(&self) {
        *self.is_due.lock_unpoisoned() = true;
        self.due.notify_all();
    }

    fn wait(&self, wait: Duration) {
        let mut is_due = self.is_due.lock_unpoisoned();
        if !*is_due {
            let waited = self.due.wait_timeout(is_due, wait);
            is_due = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *is_due = false;
    }
}

/// Records that a session of an attempt broke off.
pub(super) fn broke(
    connection: &Connection,
    row: &Row,
    error: Option<&ErrorParts>,
    now: Timestamp,
) -> Result<()> {
    if row.tries > BREAKS_MAX {
        return Ok(());
    }
    let (kind, message) = match error {
        Some(error) => (error.kind.as_str(), error.message.as_str()),
        None => (
            "interrupted",
            "the process of the endpoint ended during the session",
        ),
    };
    connection
        .prepare_cached("INSERT OR REPLACE INTO breaks VALUES (?1, ?2, ?3, ?4, ?5)")
        .and_then(|mut statement| {
            statement.execute((row.seq, row.tries, now.as_ms(), kind, message))
        })
        .map_err(sql("record the end of a session"))?;
    Ok(())
}

/// Stores the data of the receipt of an attempt that has just ended.
pub(super) fn ended(connection: &Connection, row: &Row, is_kept: bool) -> Result<()> {
    let failed = sql("store the data of the receipt");
    let breaks = breaks(connection, row.seq).map_err(&failed)?;
    connection
        .prepare_cached("DELETE FROM breaks WHERE run = ?1")
        .and_then(|mut statement| statement.execute([row.seq]))
        .map_err(&failed)?;
    if !is_kept {
        return Ok(());
    }
    let transfer = row.clone().view(None, View::default(), clock::now());
    let ended = json(&Ended { transfer, breaks })?;
    let folder = manifest::folder_name(&row.id, row.number);
    connection
        .prepare_cached("INSERT OR REPLACE INTO receipts_due VALUES (?1, ?2, ?3)")
        .and_then(|mut statement| statement.execute((row.seq, folder, ended)))
        .map_err(&failed)?;
    Ok(())
}

fn breaks(connection: &Connection, run: i64) -> rusqlite::Result<Vec<BrokenSession>> {
    let mut statement =
        connection.prepare_cached("SELECT try, at, kind, message FROM breaks WHERE run = ?1")?;
    let found = statement.query_map([run], |row| {
        Ok(BrokenSession {
            number: row.get(0)?,
            at: Timestamp::from_ms(row.get(1)?),
            kind: row.get(2)?,
            message: row.get(3)?,
        })
    })?;
    found.collect()
}

/// Deletes the data of receipts that are due, because no thread will write them. Without this data,
/// the lists of files of deleted transfers can be removed.
pub(super) fn give_up(connection: &Connection) -> Result<()> {
    connection
        .execute_batch("DELETE FROM receipts_due")
        .map_err(sql("delete the data of receipts"))
}

/// Returns true if the lists of files in a folder are still needed for a receipt.
pub(super) fn needs_folder(connection: &Connection, folder: &str) -> Result<bool> {
    connection
        .prepare_cached("SELECT 1 FROM receipts_due WHERE folder = ?1")
        .and_then(|mut statement| statement.exists([folder]))
        .map_err(sql("look up the receipts that are due"))
}

fn unreadable(folder: &str, error: &rusqlite::Error) -> Error {
    Error::new(ErrorKind::InvalidRequest, End::Here, "write the receipt")
        .cause(format!(
            "the stored data of the attempt in {folder} cannot be read: {error}"
        ))
        .remedy("restore the state folder from a backup, or report this error")
}

fn last(connection: &Connection) -> rusqlite::Result<Option<ReceiptReference>> {
    let mut statement = connection
        .prepare_cached("SELECT sequence, id FROM receipts ORDER BY sequence DESC LIMIT 1")?;
    let found = statement.query_row([], |row| {
        Ok(ReceiptReference {
            sequence: row.get(0)?,
            id: row.get(1)?,
        })
    });
    found.optional()
}

impl Queue {
    /// Waits until an attempt ends, but at most `wait`.
    pub fn await_receipts(&self, wait: Duration) {
        self.due.wait(wait);
    }

    /// Ends a wait of [`Queue::await_receipts`].
    pub fn end_await_receipts(&self) {
        self.due.notify();
    }

    /// Returns ended attempts whose receipt is not written yet: those with numbers above `after`, the
    /// oldest first, at most [`RECEIPTS_MAX`].
    ///
    /// # Errors
    /// Errors of the database.
    pub fn receipts_due(&self, after: i64) -> Result<DuePage> {
        let failed = sql("look up the receipts that are due");
        let lists = self.folder.join(TRANSFERS);
        let rows: Vec<(i64, String, String)> = self.read(|connection| {
            let mut statement = connection
                .prepare_cached(
                    "SELECT run, folder, ended FROM receipts_due WHERE run > ?1
                     ORDER BY run LIMIT ?2",
                )
                .map_err(&failed)?;
            let read = statement.query_map((after, RECEIPTS_MAX), |row| {
                // Damaged text must not make the other rows unreadable.
                let text = |at: usize| -> rusqlite::Result<String> {
                    Ok(String::from_utf8_lossy(row.get_ref(at)?.as_bytes()?).into_owned())
                };
                Ok((row.get(0)?, text(1)?, text(2)?))
            });
            read.and_then(Iterator::collect).map_err(&failed)
        })?;
        let mut page = DuePage {
            last: rows.last().map(|(run, ..)| *run),
            ..DuePage::default()
        };
        for (run, folder, ended) in rows {
            match unjson::<Ended>(&ended) {
                Ok(Ended { transfer, breaks }) => page.receipts.push(DueReceipt {
                    run,
                    list: manifest::path_of(&lists.join(folder), transfer.attempt),
                    transfer,
                    breaks,
                }),
                Err(error) => page.unreadable.push((run, unreadable(&folder, &error))),
            }
        }
        Ok(page)
    }

    /// Publishes that the receipt of an attempt cannot be written. The owner of the transfer gets the
    /// event, if the transfer still exists.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn receipt_failed(&self, run: i64, error: &Error) -> Result<()> {
        let found: Option<(String, String)> = self.read(|connection| {
            connection
                .prepare_cached("SELECT id, owner FROM transfers WHERE seq = ?1")
                .and_then(|mut statement| {
                    let found = statement.query_row([run], |row| Ok((row.get(0)?, row.get(1)?)));
                    found.optional()
                })
                .map_err(sql("look up the transfer of a receipt"))
        })?;
        if let Some((id, owner)) = found {
            let event = Event {
                transfer: Some(id),
                notice: Some(format!("the receipt cannot be written: {error}")),
                ..Event::new(EventKind::Notice, clock::now())
            };
            self.hub.publish(Some(owner.as_str().into()), event);
        }
        Ok(())
    }

    /// Returns the newest recorded receipt.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn last_receipt(&self) -> Result<Option<ReceiptReference>> {
        self.read(|connection| last(connection).map_err(sql("look up the last receipt")))
    }

    /// Records written receipts, in the order of their sequence numbers. Removes the lists of files
    /// of deleted transfers, which were kept for their receipts.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn receipts_written(&self, written: Vec<WrittenReceipt>) -> Result<()> {
        let unused = self.write(move |connection, _| {
            let failed = sql("record the receipts");
            let mut unused = Vec::new();
            for one in &written {
                let folder = record(connection, one).map_err(&failed)?;
                if let Some(folder) = folder {
                    unused.push(folder);
                }
            }
            Ok(unused)
        })?;
        for folder in unused {
            manifest::remove(&self.folder.join(TRANSFERS).join(folder));
        }
        Ok(())
    }

    /// Deletes the records of receipts that were removed because of a limit: those with sequence
    /// numbers up to `sequence`, except the newest receipt.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn receipts_removed(&self, sequence: u64) -> Result<()> {
        self.write(move |connection, _| {
            connection
                .prepare_cached(
                    "DELETE FROM receipts WHERE sequence <= ?1
                     AND sequence < (SELECT MAX(sequence) FROM receipts)",
                )
                .and_then(|mut statement| statement.execute([sequence]))
                .map_err(sql("delete the records of old receipts"))?;
            Ok(())
        })
    }

    /// Returns the highest sequence number up to which all receipts were written before `before`. A
    /// receipt that was written while the clock of the host was slow does not make the younger
    /// receipts before it old.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn receipts_before(&self, before: Timestamp) -> Result<Option<u64>> {
        self.read(|connection| {
            connection
                .prepare_cached(
                    "SELECT MAX(sequence) FROM receipts WHERE sequence < COALESCE(
                        (SELECT MIN(sequence) FROM receipts WHERE issued_at >= ?1),
                        9223372036854775807)",
                )
                .and_then(|mut statement| statement.query_row([before.as_ms()], |row| row.get(0)))
                .map_err(sql("look up old receipts"))
        })
    }

    /// Returns the receipt of a transfer's last attempt.
    ///
    /// # Errors
    /// `NotFound` if the transfer does not exist, or belongs to another owner.
    pub fn receipt_of(&self, caller: &Actor, id: &str) -> Result<ReceiptState> {
        self.read(|connection| {
            let find = || {
                let row = Row::find(connection, id)?.filter(|row| caller.sees(&row.owner));
                row.ok_or_else(|| not_found(id))
            };
            let row = find()?;
            if let Some(receipt) = row.receipt {
                return Ok(ReceiptState::Written(receipt));
            }
            let is_due = connection
                .prepare_cached("SELECT 1 FROM receipts_due WHERE run = ?1")
                .and_then(|mut statement| statement.exists([row.seq]))
                .map_err(sql("look up the receipts that are due"))?;
            if is_due {
                return Ok(ReceiptState::Due);
            }
            // The receipt may have been written after the first statement.
            Ok(match find()?.receipt {
                Some(receipt) => ReceiptState::Written(receipt),
                None => ReceiptState::Missing,
            })
        })
    }

    /// Removes the lists of files of a deleted transfer, unless a receipt still needs the lists.
    pub(super) fn remove_lists(&self, row: &Row) {
        let folder = manifest::folder_name(&row.id, row.number);
        // After an error the lists stay, and the next start removes them.
        if let Ok(false) = self.read(|connection| needs_folder(connection, &folder)) {
            manifest::remove(&self.folder_of(row));
        }
    }
}

/// Records one receipt. Returns the folder of its list if no row and no other receipt needs it.
fn record(connection: &Connection, written: &WrittenReceipt) -> rusqlite::Result<Option<String>> {
    let receipt = &written.receipt;
    connection
        .prepare_cached("INSERT INTO receipts VALUES (?1, ?2, ?3, ?4)")?
        .execute((
            receipt.sequence,
            written.run,
            &receipt.id,
            written.issued_at.as_ms(),
        ))?;
    let due: Option<(String, String)> = connection
        .prepare_cached("DELETE FROM receipts_due WHERE run = ?1 RETURNING folder, ended")?
        .query_row([written.run], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((folder, ended)) = due else {
        return Ok(None);
    };
    let id = unjson::<Ended>(&ended)?.transfer.id;
    let row = TransferId::new(id.as_str())
        .and_then(|id| Row::find(connection, id.as_str()))
        .map_err(to_sql)?;
    let is_row = row.is_some_and(|row| manifest::folder_name(&row.id, row.number) == folder);
    let is_needed = is_row || needs_folder(connection, &folder).map_err(to_sql)?;
    Ok((!is_needed).then_some(folder))
}
