//! The connections to the queue's database: one connection that writes and several that read.
//!
//! Invariant: if a lock of the database is stuck, all connections are closed and opened again.
//! SQLite's file locks belong to the process, so a stuck lock is released only when the process
//! closes its last connection to the database.

use super::{schema, sqlite};
use dray_core::Result;
use dray_core::lock::LockExt;
use rusqlite::{Connection, ErrorCode};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

/// Number of reading connections. Several lists are read concurrently, also during writes.
const READERS: usize = 4;

/// Number of consecutive writes that find the database locked before the lock counts as stuck. Each
/// write waits for `BUSY_WAIT` first.
const BUSY_MAX: u32 = 2;

pub(super) struct Readers {
    path: PathBuf,
    all: Vec<Mutex<Connection>>,
    turn: AtomicUsize,
}

impl Readers {
    pub(super) fn open(path: PathBuf) -> Result<Self> {
        let all = (0..READERS).map(|_| schema::open_reader(&path).map(Mutex::new));
        Ok(Self {
            all: all.collect::<Result<_>>()?,
            path,
            turn: AtomicUsize::new(0),
        })
    }

    /// Returns a free connection. Waits if all connections are in use.
    pub(super) fn get(&self) -> MutexGuard<'_, Connection> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let mut order = (0..READERS).map(|at| &self.all[(turn + at) % READERS]);
        match order.find_map(|reader| reader.try_lock().ok()) {
            Some(reader) => reader,
            None => self.all[turn % READERS].lock_unpoisoned(),
        }
    }

    /// Closes all connections and opens them again.
    ///
    /// # Errors
    /// If a connection cannot be opened. In that case `writer` and some readers are connected to an
    /// empty database. The caller must call this method again before any other use.
    pub(super) fn reopen(&self, writer: &mut Connection) -> Result<()> {
        let failed = sqlite::sql("open the queue again");
        let mut readers: Vec<_> = self.all.iter().map(LockExt::lock_unpoisoned).collect();
        *writer = Connection::open_in_memory().map_err(&failed)?;
        for reader in &mut readers {
            **reader = Connection::open_in_memory().map_err(&failed)?;
        }
        *writer = schema::open_again(&self.path)?;
        for reader in &mut readers {
            **reader = schema::open_reader(&self.path)?;
        }
        Ok(())
    }
}

/// Detects a stuck lock of the database, by the failed starts of writes.
#[derive(Default)]
pub(super) struct Stuck {
    busy: u32,
    is_stuck: bool,
}

impl Stuck {
    /// Records whether a write could start.
    pub(super) fn note(&mut self, begun: &rusqlite::Result<()>) {
        let code = begun.as_ref().err().map(rusqlite::Error::sqlite_error_code);
        match code.flatten() {
            Some(ErrorCode::FileLockingProtocolFailed) => self.is_stuck = true,
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                self.busy += 1;
                self.is_stuck |= self.busy >= BUSY_MAX;
            }
            _ => self.busy = 0,
        }
    }

    pub(super) const fn is_stuck(&self) -> bool {
        self.is_stuck
    }
}

#[cfg(test)]
mod tests {
    use super::{Readers, Stuck};
    use crate::queue::schema;
    use rusqlite::Connection;

    #[test]
    fn a_lock_that_is_stuck_is_found_and_ends_when_all_is_opened_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("queue.db");
        let mut writer = schema::open(&path).expect("made");
        let readers = Readers::open(path.clone()).expect("opened");
        writer.execute_batch("BEGIN IMMEDIATE").expect("begun");
        let other = Connection::open(&path).expect("opened");
        let mut stuck = Stuck::default();
        for _ in 0..2 {
            assert!(!stuck.is_stuck());
            stuck.note(&other.execute_batch("BEGIN IMMEDIATE"));
        }
        assert!(stuck.is_stuck());
        readers.reopen(&mut writer).expect("opened again");
        other
            .execute_batch("BEGIN IMMEDIATE; COMMIT")
            .expect("free");
        writer
            .execute_batch("BEGIN IMMEDIATE; COMMIT")
            .expect("free");
        let rows = "SELECT count(*) FROM transfers";
        let count: u64 = readers
            .get()
            .query_row(rows, [], |row| row.get(0))
            .expect("read");
        assert_eq!(count, 0);
    }

    #[test]
    fn a_database_that_is_busy_once_is_not_stuck() {
        let busy = || {
            let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
            Err(rusqlite::Error::SqliteFailure(code, None))
        };
        let mut stuck = Stuck::default();
        for begun in [busy(), Ok(()), busy()] {
            stuck.note(&begun);
        }
        assert!(!stuck.is_stuck());
    }
}
