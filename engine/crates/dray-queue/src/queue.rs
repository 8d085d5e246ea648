//! Stores transfers and their states in SQLite.
//!
//! Purpose: stores the submitted requests, their changes and their outcomes. Tickets and staged
//! copies are stored in the same database. Pure functions (`states`) decide about states. The
//! dispatcher, and not this module, chooses the transfer that runs next.
//!
//! Non-goals: HTTP, sessions. All calls block, and calls that change something wait for a sync of
//! the disk. Callers therefore use threads that may block.
//!
//! Invariant of this module: when a caller gets an answer, the change is on the disk. All callers
//! see the changes of one transfer in the same order.

mod actor;
mod candidates;
mod change;
mod claims;
mod connections;
mod damage;
mod ending;
mod input;
mod list;
mod live;
mod manifest;
mod promised;
mod purges;
mod quota;
mod receipts;
mod refused;
mod restart;
mod routes;
mod row;
mod run;
mod schema;
mod settings;
mod settle;
mod space;
mod sqlite;
mod staged;
mod staging;
mod states;
mod submit;
mod tally;
mod tape;
mod tickets;
mod tiers;
mod write;
mod writer;
mod writes;

pub use actor::Actor;
pub use candidates::{CandidateQuery, QueuedTransfer};
pub use claims::{ClaimRow, StagedIn, WaitReason};
pub use ending::Ending;
pub use input::{SessionInput, TicketHolder};
pub use live::{Counters, FAILURES_MAX, Holds};
pub use manifest::Manifest;
pub use purges::{PurgeJob, PurgeReport};
pub use receipts::{
    BrokenSession, DuePage, DueReceipt, RECEIPTS_MAX, ReceiptState, WrittenReceipt,
};
pub use refused::Refused;
pub use restart::FailedAtStart;
pub use run::Ticked;
pub use settings::{IsOwn, Settings};
pub use space::SpaceClaim;
pub use staged::StagedRow;
pub use staging::Staging;
pub use states::{
    Command, EndKind, Standing, Step, Verdict, Wish, after_break, after_turned_away, next,
};
pub use submit::{Submission, Submitted};
pub use tally::{ByKind, Tally};
pub use tape::{Tape, TapeFile, TapeJob, TapeRequest};
pub use tickets::{TicketClaim, TicketRow, TicketTable};
pub use tiers::{Restarts, TierChange, TierReplica, TierVersion, Tiers};
pub use writer::Commands;
pub use writes::TierWrite;

use crate::clock;
use crate::events::Hub;
use crate::promises::Promises;
use connections::Readers;
use dray_api::shown_id;
use dray_api::{EtaAnswer, Transfer};
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
use std::time::Instant;
use writer::{Context, Effects, Writer};

/// The database's name in the state folder.
const DATABASE: &str = "queue.db";

/// The lock file. The process that holds a lock on this file owns the queue.
const LOCK: &str = "lock";

/// Folder in the state folder that contains the lists of files.
const TRANSFERS: &str = "transfers";

/// Times of the last requests about transfers with `bound_seconds`. If no caller asks about such a
/// transfer for `bound_seconds`, the queue cancels it.
#[derive(Debug, Default)]
struct Asked {
    transfers: HashMap<String, Instant>,
    owners: HashMap<String, Instant>,
    /// Number of open requests, such as long polls, by their subject.
    open: HashMap<Whom, u32>,
}

/// The subject of a request: one transfer, or all transfers of an owner.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Whom {
    Transfer(String),
    Owner(String),
}

/// An open request about transfers; see [`Queue::asking`].
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
            // `transfers` contains only transfers with `bound_seconds`.
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
    tally: Arc<Tally>,
    promises: Arc<Promises>,
    hub: Arc<Hub>,
    commands: Arc<OnceLock<Arc<dyn Commands>>>,
    asked: Mutex<Asked>,
    waits: claims::Waits,
    closed: claims::ClosedRoots,
    due: Arc<receipts::Signal>,
    opened: Instant,
    folder: PathBuf,
    settings: Settings,
    /// Declared last: fields are dropped in order, so the lock is released after all writes.
    _lock: File,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Queue({})", self.folder.display())
    }
}

impl Queue {
    /// Opens the queue in the state folder. Creates the folder and the queue if they do not exist.
    /// Only one process may have the queue open.
    ///
    /// # Errors
    /// Errors of the file system. `LogVersion` if a newer program wrote the queue. `Busy` if
    /// another process has the queue open.
    pub fn open(settings: Settings, hub: Arc<Hub>) -> Result<Arc<Self>> {
        let folder = settings.state.clone();
        let transfers = folder.join(TRANSFERS);
        make_private(&folder)?;
        make_private(&transfers)?;
        let lock = take_lock(&folder.join(LOCK))?;
        let path = folder.join(DATABASE);
        // Create the database file here, so that no other user can read it. SQLite gives the same
        // mode to its log files.
        damage::look_before(&path)?;
        private_file(&path)?;
        let mut connection = schema::open(&path)?;
        routes::resolve(&mut connection, &path, |address| (settings.is_own)(address))?;
        let live = Arc::new(Live::default());
        let commands = Arc::new(OnceLock::new());
        let flushed = Arc::clone(&live);
        let tally = Arc::new(Tally::default());
        let promises = Arc::new(Promises::new(&settings.promises));
        let readers = Arc::new(Readers::open(path)?);
        let due = Arc::new(receipts::Signal::default());
        let context = Context {
            readers: Arc::clone(&readers),
            hub: Arc::clone(&hub),
            commands: Arc::clone(&commands),
            flush: Box::new(move |connection| flushed.flush(connection)),
            promises: Arc::clone(&promises),
            tally: Arc::clone(&tally),
            due: settings.keeps_receipts.then(|| Arc::clone(&due)),
        };
        if !settings.keeps_receipts {
            receipts::give_up(&connection)?;
        }
        let is_needed = |folder: &str| receipts::needs_folder(&connection, folder);
        manifest::sweep(&connection, &transfers, is_needed)?;
        promised::load(&connection, &promises)?;
        Ok(Arc::new(Self {
            writer: Writer::start(connection, context)?,
            readers,
            live,
            tally,
            promises,
            hub,
            commands,
            asked: Mutex::default(),
            waits: claims::Waits::default(),
            closed: claims::ClosedRoots::default(),
            due,
            opened: Instant::now(),
            folder,
            settings,
            _lock: lock,
        }))
    }

    /// Sets the receiver of commands. Only the first call has an effect.
    pub fn set_commands(&self, commands: Arc<dyn Commands>) {
        let _ = self.commands.set(commands);
    }

    /// Returns the hub that publishes events.
    #[must_use]
    pub const fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// Returns one transfer, if `caller` may see it. Counts as a request about the transfer.
    ///
    /// # Errors
    /// `NotFound` if the transfer does not exist, or belongs to another owner.
    pub fn show(&self, caller: &Actor, id: &str) -> Result<Transfer> {
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

    /// Returns true if any owner has a transfer with this id.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn is_known(&self, id: &TransferId) -> Result<bool> {
        self.read(|connection| Ok(Row::find(connection, id.as_str())?.is_some()))
    }

    /// Returns a value that counts, until it is dropped, as a request about a transfer, or about
    /// all transfers of an owner. A long poll or a listener holds the value while it is open.
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

    /// Returns the counters of ended transfers and failures since the process started.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Returns the bytes that all transfers have sent since the process started.
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
        let space = self.waits.view(&row);
        let runs = self.live.lock();
        let run = runs.get(&row.id);
        let promise = self.promises.view(&row.id);
        let mut transfer = row.view(run, promise, clock::now());
        transfer.space = space;
        transfer
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

/// Creates a folder that no other user may read, because the queue contains tickets.
fn make_private(folder: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|error| io("create the endpoint's state folder", folder, &error))
}

/// Opens a file that no other user may read. Creates the file if it does not exist.
fn private_file(path: &Path) -> Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = OpenOptions::new();
    let opened = options.create(true).append(true).mode(0o600).open(path);
    opened.map_err(|error| io("open a file in the endpoint's state folder", path, &error))
}

/// Locks the queue. Two processes with the same queue would both run every transfer.
fn take_lock(path: &Path) -> Result<File> {
    let operation = "lock the queue";
    let file = private_file(path)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::AGAIN) => Err(Error::new(ErrorKind::Busy, End::Here, operation)
            .cause(format!("another process has locked {}", path.display()))
            .remedy(
                "stop the other process, or configure a separate state folder for this endpoint",
            )),
        Err(errno) => Err(io(operation, path, &errno.into())),
    }
}

fn io(operation: &str, path: &Path, error: &std::io::Error) -> Error {
    Error::new(error.kind().into(), End::Here, operation)
        .cause(format!("{}: {error}", path.display()))
        .remedy("check `state` in the endpoint's configuration")
}

fn not_found(id: &str) -> Error {
    // The error is logged, and a log must not contain arbitrary text of a caller.
    let cause = match shown_id(id) {
        Some(id) => format!("the transfer {id:?} does not exist, or belongs to another owner"),
        None => "the id in the URL is not valid".to_owned(),
    };
    Error::new(ErrorKind::NotFound, End::Here, "find the transfer")
        .cause(cause)
        .remedy("list your transfers with GET /v1/transfers")
}

fn next_seq(connection: &Connection) -> Result<i64> {
    connection
        .prepare_cached("UPDATE numbers SET value = value + 1 WHERE name = 'seq' RETURNING value")
        .and_then(|mut statement| statement.query_row([], |row| row.get(0)))
        .map_err(sqlite::sql("assign a number to the transfer"))
}

/// Parses the cursor of a page.
fn read_cursor(cursor: Option<&str>) -> Result<i64> {
    match cursor {
        None => Ok(i64::MAX),
        Some(text) => text.parse().map_err(|_| {
            Error::new(ErrorKind::InvalidRequest, End::Here, "read the cursor")
                .cause("the cursor does not belong to this list")
                .remedy(
                    "use the value `next` from the previous page as the cursor, or omit the cursor",
                )
        }),
    }
}

#[cfg(test)]
mod tests;
