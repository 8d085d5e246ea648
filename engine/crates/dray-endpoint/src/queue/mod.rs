//! Transfers and where they stand, kept in SQLite.
//!
//! Purpose: what was submitted, what became of it, and the changes between; tickets and staged
//! files are kept beside them. Decisions are pure (`states`); what runs next is for the dispatcher.
//!
//! Not for: HTTP, sessions. All calls block, for a sync of the disk when they change something;
//! they are made from threads that may.
//!
//! Invariant owned here: what a caller was told is on the disk, and no two callers are told
//! different things of one transfer in an order that cannot be.

mod candidates;
mod change;
mod connections;
mod damage;
mod list;
mod live;
mod manifest;
mod promised;
mod purges;
mod quota;
mod row;
mod run;
mod schema;
mod staging;
mod states;
mod submit;
mod tickets;
mod writer;

pub use candidates::{CandidateQuery, Lines, QueuedTransfer};
pub use live::{Counters, FAILURES_MAX, Holds};
pub use manifest::Manifest;
pub use purges::{PurgeJob, PurgeReport};
pub use run::{Ending, Job, Ticked};
pub use staging::{StagedRow, Staging};
pub use states::{
    Command, EndKind, Standing, Step, Verdict, Wish, after_break, after_turned_away, next,
};
pub use submit::{Refused, Submission, Submitted};
pub use tickets::{TicketRow, TicketTable};
pub use writer::Commands;

use crate::access::Principal;
use crate::clock;
use crate::config::Config;
use crate::events::Hub;
use crate::promises::Promises;
use crate::tickets::shown_id;
use connections::Readers;
use dray_api::{EtaAnswer, RetryWish, Transfer};
use dray_core::lock::LockExt;
use dray_core::{End, Error, ErrorKind, Result, TransferId};
use live::Live;
use row::Row;
use rusqlite::Connection;
use rustix::fs::FlockOperation;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};
use writer::{Around, Effects, Writer};

/// The database's name in the state folder.
const DATABASE: &str = "queue.db";

/// Who holds the lock on this file has the queue.
const LOCK: &str = "lock";

/// Folder of the lists of files, there.
const TRANSFERS: &str = "transfers";

/// What the queue needs to know of the configuration.
#[derive(Debug, Clone)]
struct Rules {
    places: quota::Places,
    /// Tickets of one owner that are kept.
    tickets_of_owner: u64,
    retry: RetryWish,
    keep: Duration,
    keep_count: u64,
}

/// When somebody last asked for transfers that are bound to being asked for.
#[derive(Debug, Default)]
struct Asked {
    transfers: HashMap<String, Instant>,
    owners: HashMap<String, Instant>,
    /// Who is being asked for right now, by how many.
    open: HashMap<Whom, u32>,
}

/// For whom somebody asks.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Whom {
    Transfer(String),
    Owner(String),
}

/// See [`Queue::asking`].
#[derive(Debug)]
pub struct Asking {
    queue: Arc<Queue>,
    whom: Whom,
}

impl Drop for Asking {
    fn drop(&mut self) {
        let mut asked = self.queue.asked();
        if let Some(count) = asked.open.get_mut(&self.whom) {
            *count -= 1;
            if *count == 0 {
                asked.open.remove(&self.whom);
            }
        }
        let now = Instant::now();
        match &self.whom {
            // Only transfers that are bound to being asked for stand there.
            Whom::Transfer(id) => {
                if let Some(last) = asked.transfers.get_mut(id) {
                    *last = now;
                }
            }
            Whom::Owner(owner) => {
                asked.owners.insert(owner.clone(), now);
            }
        }
    }
}

/// The queue of one endpoint.
pub struct Queue {
    writer: Writer,
    readers: Arc<Readers>,
    live: Arc<Live>,
    promises: Arc<Promises>,
    hub: Arc<Hub>,
    commands: Arc<OnceLock<Arc<dyn Commands>>>,
    asked: Mutex<Asked>,
    opened: Instant,
    folder: PathBuf,
    rules: Rules,
    /// Last, so that it falls when all is written.
    _lock: File,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Queue({})", self.folder.display())
    }
}

impl Queue {
    /// Opens the queue in the state folder, and makes both when missing. One process at a time.
    ///
    /// # Errors
    /// Of the file system; `LogVersion` for one that a newer program wrote; `Busy` when another
    /// process has it.
    pub fn open(config: &Config, hub: Arc<Hub>) -> Result<Arc<Self>> {
        let folder = config.state.clone();
        let transfers = folder.join(TRANSFERS);
        make_private(&folder)?;
        make_private(&transfers)?;
        let lock = take_lock(&folder.join(LOCK))?;
        let path = folder.join(DATABASE);
        // Made here for its mode, which SQLite gives to the files beside it as well.
        damage::look_before(&path)?;
        private_file(&path)?;
        let connection = schema::open(&path)?;
        let live = Arc::new(Live::default());
        let commands = Arc::new(OnceLock::new());
        let flushed = Arc::clone(&live);
        let promises = Arc::new(Promises::new(config));
        let readers = Arc::new(Readers::open(path)?);
        let around = Around {
            readers: Arc::clone(&readers),
            hub: Arc::clone(&hub),
            commands: Arc::clone(&commands),
            flush: Box::new(move |connection| flushed.flush(connection)),
            promises: Arc::clone(&promises),
        };
        manifest::sweep(&connection, &transfers)?;
        promised::load(&connection, &promises)?;
        Ok(Arc::new(Self {
            writer: Writer::start(connection, around)?,
            readers,
            live,
            promises,
            hub,
            commands,
            asked: Mutex::default(),
            opened: Instant::now(),
            folder,
            rules: Rules {
                places: quota::Places {
                    all: config.limits.transfers_queued,
                    of_owner: config.limits.per_owner_queued,
                },
                tickets_of_owner: config.tickets.per_owner,
                retry: RetryWish {
                    tries: config.retry.tries,
                    interval_seconds: config.retry.interval_seconds,
                },
                keep: Duration::from_secs(u64::from(config.history.keep_days) * 86_400),
                keep_count: config.history.keep_count,
            },
            _lock: lock,
        }))
    }

    /// Who is told of what to do. Once; later calls change nothing.
    pub fn set_commands(&self, commands: Arc<dyn Commands>) {
        let _ = self.commands.set(commands);
    }

    /// Where what happens is told.
    #[must_use]
    pub const fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// One transfer, if `caller` may see it. Counts as asking for it.
    ///
    /// # Errors
    /// `NotFound`, another owner's as well.
    pub fn show(&self, caller: &Principal, id: &str) -> Result<Transfer> {
        let row = self.read(|connection| Row::find(connection, id))?;
        let row = row.filter(|row| caller.sees(&row.owner));
        let row = row.ok_or_else(|| not_found(id))?;
        let mut transfer = self.view(row);
        if transfer.promised {
            let eta = self.promises.eta(id, clock::now());
            transfer.eta_between = eta.map(|(early, late)| EtaAnswer { early, late });
        }
        self.asked_for(&transfer);
        Ok(transfer)
    }

    /// Whether a transfer of this id is known, whosever it is.
    ///
    /// # Errors
    /// Of the database.
    pub fn is_known(&self, id: &TransferId) -> Result<bool> {
        self.read(|connection| Ok(Row::find(connection, id.as_str())?.is_some()))
    }

    /// Somebody asks for a transfer, or for all of an owner's, for as long as this stands: an open
    /// long poll, a listener.
    #[must_use]
    pub fn asking(self: &Arc<Self>, transfer: Option<&str>, owner: &str) -> Asking {
        let whom = match transfer {
            Some(id) => Whom::Transfer(id.to_owned()),
            None => Whom::Owner(owner.to_owned()),
        };
        *self.asked().open.entry(whom.clone()).or_default() += 1;
        Asking {
            queue: Arc::clone(self),
            whom,
        }
    }

    fn asked(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock_unpoisoned()
    }

    /// Bytes sent by all transfers since the process began.
    #[must_use]
    pub fn bytes_sent(&self) -> u64 {
        self.live.bytes_sent()
    }

    fn asked_for(&self, transfer: &Transfer) {
        if transfer.request.bound_seconds.is_some() && !transfer.state.is_terminal() {
            let mut asked = self.asked.lock_unpoisoned();
            asked.transfers.insert(transfer.id.clone(), Instant::now());
        }
    }

    fn view(&self, row: Row) -> Transfer {
        let runs = self.live.lock();
        let run = runs.get(&row.id);
        let promise = self.promises.view(&row.id);
        row.view(run, promise, clock::now())
    }

    fn read<T>(&self, work: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        work(&self.readers.get())
    }

    fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection, &mut Effects) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.writer.write(work)
    }

    fn folder_of(&self, row: &Row) -> PathBuf {
        let name = manifest::folder_name(&row.id, row.number);
        self.folder.join(TRANSFERS).join(name)
    }
}

/// Makes a folder that nobody else may look into: it holds tickets.
fn make_private(folder: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|error| io("make the folder of the state", folder, &error))
}

/// Opens a file that nobody else may read; makes it when missing.
fn private_file(path: &Path) -> Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = OpenOptions::new();
    let opened = options.create(true).append(true).mode(0o600).open(path);
    opened.map_err(|error| io("open a file of the state", path, &error))
}

/// Two processes with one queue would each run every transfer.
fn take_lock(path: &Path) -> Result<File> {
    let operation = "lock the queue";
    let file = private_file(path)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::AGAIN) => Err(Error::new(ErrorKind::Busy, End::Here, operation)
            .cause(format!("another process has {}", path.display()))
            .remedy("stop it, or give this endpoint a state folder of its own")),
        Err(errno) => Err(io(operation, path, &errno.into())),
    }
}

fn io(operation: &str, path: &Path, error: &std::io::Error) -> Error {
    Error::new(error.kind().into(), End::Here, operation)
        .cause(format!("{}: {error}", path.display()))
        .remedy("look at `state` in the endpoint's configuration")
}

fn not_found(id: &str) -> Error {
    // Errors are written down.
    let cause = match shown_id(id) {
        Some(id) => format!("{id:?} does not exist, or belongs to another owner"),
        None => "the id in the path is not valid".to_owned(),
    };
    Error::new(ErrorKind::NotFound, End::Here, "find the transfer")
        .cause(cause)
        .remedy("list your transfers with GET /v1/transfers")
}

/// The next number of what is kept in an order.
fn next_seq(connection: &Connection) -> Result<i64> {
    connection
        .prepare_cached("UPDATE numbers SET value = value + 1 WHERE name = 'seq' RETURNING value")
        .and_then(|mut statement| statement.query_row([], |row| row.get(0)))
        .map_err(schema::sql("number the transfer"))
}

/// A cursor of a page that was given out here.
fn read_cursor(cursor: Option<&str>) -> Result<i64> {
    match cursor {
        None => Ok(i64::MAX),
        Some(text) => text.parse().map_err(|_| {
            Error::new(ErrorKind::InvalidRequest, End::Here, "read the cursor")
                .cause("it is not a cursor of this list")
                .remedy("give what `next` of the last page held, or leave it out")
        }),
    }
}

#[cfg(test)]
impl Queue {
    /// Does what no caller can, for tests of what goes wrong.
    pub(crate) fn execute(&self, statement: &str) {
        let statement = statement.to_owned();
        let done = self.write(move |connection, _| {
            let done = connection.execute_batch(&statement);
            done.map_err(schema::sql("do it"))
        });
        done.expect("done");
    }
}

#[cfg(test)]
mod tests;
