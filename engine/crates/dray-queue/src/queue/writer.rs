//! The writing thread. It groups waiting writes into one transaction, so that many callers share
//! one sync of the disk. Each write has its own savepoint: if it fails, the other writes stay.

use super::connections::{Readers, Stuck};
use super::receipts::Signal;
use super::sqlite::sql;
use super::tally::Tally;
use crate::events::Hub;
use crate::promises::Promises;
use dray_api::{Event, State};
use dray_core::{End, Error, ErrorKind, Result, TransferId};
use dray_link::threads::refused;
use rusqlite::Connection;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::Wish;

/// Maximum number of waiting writes. Further writes are refused until the number is lower.
const WAITING_MAX: usize = 4_096;

/// Maximum number of writes in one transaction.
const GROUP_MAX: usize = 256;

/// Interval between two writes of the counters of running transfers.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);

/// Commands to the dispatcher. The writing thread calls these methods, so they must neither block
/// nor write to the queue.
pub trait Commands: Send + Sync {
    /// Wakes the dispatcher, because a transfer may be ready to run.
    fn wake(&self);

    /// Stops a running transfer, because a caller requested this stop.
    fn stop(&self, id: &TransferId, wish: Wish);

    /// Reports that the parameters of a running transfer have changed.
    fn changed(&self, id: &TransferId);

    /// Reports that the partial data of a cancelled transfer must be removed
    /// ([`super::Queue::to_purge`]).
    fn purge(&self);
}

/// The effects that a write has after it is committed.
pub(super) struct Effects {
    /// The promises. Unlike the other effects, they are changed within the write itself.
    pub(super) promises: Arc<Promises>,
    pub(super) events: Vec<(Arc<str>, Event)>,
    pub(super) is_woken: bool,
    pub(super) has_purges: bool,
    pub(super) stops: Vec<(TransferId, Wish)>,
    pub(super) changes: Vec<TransferId>,
    /// The states in which transfers ended.
    pub(super) ended: Vec<State>,
    /// True if ended attempts get receipts.
    pub(super) keeps_receipts: bool,
}

type Reply = Box<dyn FnOnce(Result<()>) + Send>;
/// Executes one write. If there is no transaction, the function executes nothing and fails. Returns
/// true if the write must be kept, and a function that sends the reply.
type Write = Box<dyn FnOnce(Option<(&Connection, &mut Effects)>) -> (bool, Reply) + Send>;

pub(super) struct Writer {
    sender: Option<SyncSender<Write>>,
    thread: Option<JoinHandle<()>>,
}

/// Writes the counters to the database.
type Flush = Box<dyn Fn(&Connection) -> Result<()> + Send>;

pub(super) struct Context {
    pub(super) readers: Arc<Readers>,
    pub(super) hub: Arc<Hub>,
    pub(super) commands: Arc<OnceLock<Arc<dyn Commands>>>,
    pub(super) flush: Flush,
    pub(super) promises: Arc<Promises>,
    pub(super) tally: Arc<Tally>,
    /// Wakes the thread that writes receipts. `None` if ended attempts get no receipts.
    pub(super) due: Option<Arc<Signal>>,
}

impl Writer {
    pub(super) fn start(connection: Connection, context: Context) -> Result<Self> {
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let thread = std::thread::Builder::new()
            .name("queue".to_owned())
            .spawn(move || run(connection, &receiver, &context))
            .map_err(|error| refused(&error))?;
        Ok(Self {
            sender: Some(sender),
            thread: Some(thread),
        })
    }

    /// Executes `work` on the writing thread. Returns when the change is on the disk.
    pub(super) fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection, &mut Effects) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let stopped = || {
            Error::new(ErrorKind::Busy, End::Here, "write to the queue")
                .cause("the endpoint is stopping")
                .remedy("try again when the endpoint is running again")
        };
        let (answer, answered) = sync_channel(1);
        let job: Write = Box::new(move |transaction| {
            let broken = || {
                Err(Error::new(
                    ErrorKind::Internal,
                    End::Here,
                    "write to the queue",
                ))
            };
            // Catch panics: a defect in one write must not end the writing thread.
            let work = move || match transaction {
                Some((connection, effects)) => work(connection, effects),
                None => broken(),
            };
            let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| broken());
            let is_kept = result.is_ok();
            let reply: Reply = Box::new(move |committed| {
                // The caller may no longer wait for the answer.
                let _ = answer.send(committed.and(result));
            });
            (is_kept, reply)
        });
        let sender = self.sender.as_ref().ok_or_else(stopped)?;
        sender.try_send(job).map_err(|error| match error {
            TrySendError::Full(_) => Error::new(ErrorKind::Busy, End::Here, "write to the queue")
                .cause(format!(
                    "{WAITING_MAX} other writes are already waiting, which is the limit"
                ))
                .remedy("try again in a moment"),
            TrySendError::Disconnected(_) => stopped(),
        })?;
        answered.recv().map_err(|_| stopped())?
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            // The thread ends after it has executed all submitted writes.
            let _ = thread.join();
        }
    }
}

fn run(mut connection: Connection, jobs: &Receiver<Write>, context: &Context) {
    let mut stuck = Stuck::default();
    let mut flushed = Instant::now();
    let mut is_open = true;
    // True if the promises in memory agree with the rows.
    let mut is_promised = true;
    while is_open {
        let wait = FLUSH_INTERVAL.saturating_sub(flushed.elapsed());
        let mut group = Vec::new();
        match jobs.recv_timeout(wait) {
            Ok(job) => {
                group.push(job);
                group.extend(jobs.try_iter().take(GROUP_MAX - 1));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => is_open = false,
        }
        let is_due = flushed.elapsed() >= FLUSH_INTERVAL || !is_open;
        if is_due {
            flushed = Instant::now();
        }
        if group.is_empty() && !is_due {
            continue;
        }
        if stuck.is_stuck() {
            tracing::error!("a lock of the queue's database is stuck; opening the database again");
            if let Err(error) = context.readers.reopen(&mut connection) {
                refuse(group, &error);
                continue;
            }
            stuck = Stuck::default();
            is_promised = false;
        }
        let connection = &connection;
        if !is_promised {
            is_promised = promise_as_written(connection, context);
        }
        let write = || write_group(connection, group, is_due, context, &mut stuck);
        let written = catch_unwind(AssertUnwindSafe(write));
        if let Ok(is_as_written) = written {
            is_promised &= is_as_written;
        } else {
            // A panic occurred outside the individual writes. The waiting callers get an error, and
            // the next group is written normally.
            tracing::error!("a write to the queue failed because of a defect in dray");
            // If the group was committed, the rollback fails, which is harmless.
            let _ = connection.execute_batch("ROLLBACK");
            is_promised = promise_as_written(connection, context);
        }
    }
}

/// Writes one group. Returns true if the promises in memory agree with the rows afterwards.
fn write_group(
    connection: &Connection,
    group: Vec<Write>,
    is_due: bool,
    context: &Context,
    stuck: &mut Stuck,
) -> bool {
    let mut is_promised = true;
    let failed = sql("write to the queue");
    let mut replies = Vec::with_capacity(group.len());
    let mut effects = Effects::new(&context.promises, context.due.is_some());
    let mut is_promised_else = false;
    let begun = connection.execute_batch("BEGIN IMMEDIATE");
    stuck.note(&begun);
    let mut written = begun.map_err(&failed);
    if written.is_ok() && is_due {
        // Ignore errors: counters that cannot be written now are written in the next round.
        let _ = savepoint(connection, || (context.flush)(connection));
    }
    for job in group {
        if written.is_err() {
            // An earlier step of this group has failed, so no further write of the group is
            // executed. All callers of the group get the error of that step.
            replies.push(job(None).1);
            continue;
        }
        let mut own = Effects::new(&context.promises, context.due.is_some());
        context.promises.mark();
        let opened = connection.execute_batch("SAVEPOINT job").map_err(&failed);
        let (is_kept, reply) = job(Some((connection, &mut own)));
        let closed = opened.and_then(|()| {
            let end = if is_kept {
                "RELEASE job"
            } else {
                "ROLLBACK TO job; RELEASE job"
            };
            connection.execute_batch(end).map_err(&failed)
        });
        let is_touched = context.promises.is_touched();
        is_promised_else |= is_touched;
        if is_kept {
            effects.join(own);
        } else if is_touched {
            is_promised &= promise_as_written(connection, context);
        }
        written = closed;
        replies.push(reply);
    }
    if written.is_ok() {
        written = connection.execute_batch("COMMIT").map_err(&failed);
    }
    if written.is_err() {
        // If BEGIN failed, the rollback fails too, which is harmless.
        let _ = connection.execute_batch("ROLLBACK");
        if is_promised_else {
            is_promised = promise_as_written(connection, context);
        }
    } else {
        effects.tell(context);
    }
    for reply in replies {
        reply(written.clone());
    }
    is_promised
}

fn refuse(group: Vec<Write>, error: &Error) {
    for job in group {
        job(None).1(Err(error.clone()));
    }
}

/// Loads the promises again after a write was rolled back. Returns true if that succeeded.
fn promise_as_written(connection: &Connection, context: &Context) -> bool {
    let loaded = super::promised::load(connection, &context.promises);
    if let Err(error) = &loaded {
        tracing::error!("cannot read the promises again: {error}");
    }
    loaded.is_ok()
}

fn savepoint(connection: &Connection, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let failed = sql("store the counters");
    connection
        .execute_batch("SAVEPOINT part")
        .map_err(&failed)?;
    let done = work();
    let end = match &done {
        Ok(()) => "RELEASE part",
        Err(_) => "ROLLBACK TO part; RELEASE part",
    };
    connection.execute_batch(end).map_err(&failed)?;
    done
}

impl Effects {
    pub(super) fn new(promises: &Arc<Promises>, keeps_receipts: bool) -> Self {
        Self {
            promises: Arc::clone(promises),
            keeps_receipts,
            events: Vec::new(),
            is_woken: false,
            has_purges: false,
            stops: Vec::new(),
            changes: Vec::new(),
            ended: Vec::new(),
        }
    }

    fn join(&mut self, other: Self) {
        self.events.extend(other.events);
        self.stops.extend(other.stops);
        self.changes.extend(other.changes);
        self.ended.extend(other.ended);
        self.is_woken |= other.is_woken;
        self.has_purges |= other.has_purges;
    }

    /// Publishes the effects of a committed write. A listener must not receive an event that a
    /// crash could still undo.
    fn tell(self, context: &Context) {
        if let Some(due) = context.due.as_ref().filter(|_| !self.ended.is_empty()) {
            due.notify();
        }
        for state in self.ended {
            context.tally.transfer_ended(state);
        }
        for (owner, event) in self.events {
            context.hub.publish(Some(owner), event);
        }
        let Some(commands) = context.commands.get() else {
            return;
        };
        for (id, wish) in &self.stops {
            commands.stop(id, *wish);
        }
        for id in &self.changes {
            commands.changed(id);
        }
        if self.is_woken {
            commands.wake();
        }
        if self.has_purges {
            commands.purge();
        }
    }
}
