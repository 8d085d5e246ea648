//! The driver's side of a transfer with another host: a session, and further ones after a lost
//! connection, until it ends. The command line and the endpoint both come through here.
//!
//! Goals: whoever runs a transfer says what and where, hears what happens ([`Watch`]) and can change
//! its mind meanwhile ([`Handle`]).
//!
//! Non-goals: which transfer runs, and when a lost one is tried again after its session's own tries.

mod counts;

use crate::link::{SinkEvent, SourceEvent};
use crate::local;
use crate::net::{self, Dial, Growth};
use crate::null::Unkept;
use crate::observe::Observer;
use crate::pool::Pool;
use crate::prepare::{self, Buffers, Content};
use crate::sink::Destination;
use crate::source::Root;
use crate::tune::{self, Machine, Tuned};
use crate::{sink, source};
use counts::{Arrivals, Sent};
use crossbeam_channel::Sender;
use dray_core::options::Options;
use dray_core::retry::{RetryPolicy, Verdict};
use dray_core::{End, Error, ErrorKind, Result, Status, TransferId};
use dray_session::{Event, Outcome, Progress};
use dray_store::Capabilities;
use dray_wire::message::{Connect, Role, Selection};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Waits between sessions: doubling from the first to the last, 50 to 100 % of each.
const BACKOFF: Duration = Duration::from_secs(1);
/// See [`BACKOFF`].
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// What moves, and how.
#[derive(Debug, Clone)]
pub struct Task {
    /// The transfer's name.
    pub transfer: TransferId,
    /// Number of its first session, from 1.
    pub first_session: u32,
    /// Which of it, and its new name.
    pub selection: Selection,
    /// How.
    pub options: Options,
    /// What the one file must be.
    pub content: Content,
    /// Bytes of this end's buffers.
    pub pool_bytes: u64,
    /// Data streams.
    pub streams: StreamCount,
    /// Whether data runs in clear.
    pub clear_data: bool,
    /// Sessions in a row that may be lost without anything new being safe, before it is given up.
    pub retries: u32,
}

/// How many data streams a transfer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamCount {
    /// So many are asked for.
    Fixed(u16),
    /// Found while it runs.
    Tuned,
}

/// Somebody who watches a transfer over all its sessions.
pub trait Watch: Observer {
    /// A session begins: counters start anew.
    fn session(&self, number: u32) {
        let _ = number;
    }

    /// A session was lost, and another will be tried.
    fn trying_again(&self, error: Error) {
        let _ = error;
    }
}

/// How a transfer ended.
#[derive(Debug, Clone)]
pub enum Ending {
    /// Everything was dealt with; so many files failed.
    Done {
        /// Files that failed.
        failed: u64,
    },
    /// Somebody stopped it.
    Cancelled,
    /// Nothing moved.
    Refused(Error),
    /// There is no way to the other end.
    Unreachable(Error),
    /// Broken off.
    Interrupted(Error),
}

impl Ending {
    /// How a session ended. `failed` is what this end has counted.
    #[must_use]
    pub fn of(outcome: Outcome, failed: u64) -> Self {
        match outcome {
            Outcome::Done(totals) => Self::Done {
                failed: failed.max(totals.files_failed),
            },
            Outcome::Cancelled => Self::Cancelled,
            Outcome::Refused(error) => Self::Refused(error),
            // Running the same command again would meet the new holder.
            Outcome::Failed(error)
                if matches!(error.kind, ErrorKind::LeaseLost | ErrorKind::LeaseHeld) =>
            {
                Self::Refused(error)
            }
            Outcome::Failed(error) => Self::Interrupted(error),
        }
    }
}

/// What came of it.
#[derive(Debug, Clone)]
pub struct Ended {
    /// How it ended.
    pub ending: Ending,
    /// Counters of the last session; what was sent and read, and where the time went, of all.
    pub progress: Progress,
}

/// A running session's ear.
#[derive(Clone)]
enum Live {
    Source(Sender<SourceEvent>),
    Sink(Sender<SinkEvent>),
}

#[derive(Default)]
struct Wishes {
    /// Whether it is to stop, and then whether partial data go too.
    stop: Option<bool>,
    /// The rate, once somebody has said one.
    rate: Option<Option<u64>>,
    live: Option<Live>,
}

/// Changes a running transfer from another thread.
#[derive(Clone, Default)]
pub struct Handle(Arc<(Mutex<Wishes>, Condvar)>);

impl Handle {
    fn wishes(&self) -> MutexGuard<'_, Wishes> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks to stop; what is safe stays safe, unless `purge`.
    pub fn cancel(&self, purge: bool) {
        let mut wishes = self.wishes();
        wishes.stop = Some(purge);
        if let Some(live) = &wishes.live {
            live.cancel(purge);
        }
        self.0.1.notify_all();
    }

    /// Ends the session that runs now, keeping what is safe; the other end hears why. No
    /// cancellation: a driver may come again, unless the error tells it not to.
    pub fn leave(&self, error: Error) {
        match &self.wishes().live {
            Some(Live::Source(events)) => {
                let leave = dray_session::source::Input::Leave(error);
                let _ = events.send(SourceEvent::Input(leave));
            }
            Some(Live::Sink(events)) => {
                let leave = dray_session::sink::Input::Leave(error);
                let _ = events.send(SinkEvent::Input(leave));
            }
            None => {}
        }
    }

    /// Bytes per second from now on; `None` lifts the limit, 0 stops it within an object and keeps the
    /// session.
    pub fn set_rate(&self, rate: Option<u64>) {
        let mut wishes = self.wishes();
        wishes.rate = Some(rate);
        if let Some(live) = &wishes.live {
            live.set_rate(rate);
        }
    }

    /// What was said last of its rate, if anything was.
    #[must_use]
    pub fn rate(&self) -> Option<Option<u64>> {
        self.wishes().rate
    }

    /// Whether somebody asked to stop.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.wishes().stop.is_some()
    }

    /// A session's conductor listens: it hears what was wished before it began.
    fn attach(&self, live: Live) {
        let mut wishes = self.wishes();
        if let Some(rate) = wishes.rate {
            live.set_rate(rate);
        }
        if let Some(purge) = wishes.stop {
            live.cancel(purge);
        }
        wishes.live = Some(live);
    }

    /// The same for a copy on this host.
    pub fn attach_local(&self, stopper: &local::Stopper) {
        self.attach(Live::Source(stopper.events().clone()));
    }

    /// The same for a session that another host drives and this end reads for.
    pub fn attach_source(&self, events: &Sender<SourceEvent>) {
        self.attach(Live::Source(events.clone()));
    }

    /// The same where this end writes.
    pub fn attach_sink(&self, events: &Sender<SinkEvent>) {
        self.attach(Live::Sink(events.clone()));
    }

    /// Waits; false when somebody asked to stop.
    fn sleep(&self, wait: Duration) -> bool {
        let until = Instant::now() + wait;
        let mut wishes = self.wishes();
        while wishes.stop.is_none() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            let waited = self.0.1.wait_timeout(wishes, left);
            wishes = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        false
    }
}

impl Live {
    fn cancel(&self, purge: bool) {
        // A conductor that has ended does not listen.
        match self {
            Self::Source(events) => {
                let cancel = dray_session::source::Input::Cancel { purge };
                let _ = events.send(SourceEvent::Input(cancel));
            }
            Self::Sink(events) => {
                let cancel = dray_session::sink::Input::Cancel { purge };
                let _ = events.send(SinkEvent::Input(cancel));
            }
        }
    }

    fn set_rate(&self, rate: Option<u64>) {
        match self {
            Self::Source(events) => {
                let set = dray_session::source::Input::SetRate(rate);
                let _ = events.send(SourceEvent::Input(set));
            }
            Self::Sink(events) => {
                let set = dray_session::sink::Input::SetRate(rate);
                let _ = events.send(SinkEvent::Input(set));
            }
        }
    }
}

/// Local source, remote sink. `to` is the destination folder there, then what will be written in it;
/// `open` gives what to read, once for all sessions.
///
/// # Errors
/// When the first session does not begin; whoever cannot be reached at the first try is not there.
pub fn push(
    task: &Task,
    dial: &Dial,
    to: &[Vec<u8>],
    open: impl FnOnce() -> Result<Vec<Root>>,
    handle: &Handle,
    watch: &dyn Watch,
) -> Result<Ended> {
    let roots = open()?;
    let buffers = Buffers::new(task.pool_bytes, task.options.object_bytes);
    let mut dial = dial.clone();
    let found = tune::Found::default();
    if task.streams == StreamCount::Tuned {
        dial.streams_first = tune::STREAMS_FIRST;
    }
    sessions(task, handle, watch, |number| {
        let dialled = net::push(&dial, connect(task, number, Role::Sink, to))?;
        let keeps_nothing = dialled.agreed.keeps_nothing();
        let events = dialled.link.events_in.clone();
        let growth = dialled.growth.clone();
        handle.attach(Live::Source(events.clone()));
        let limits = dialled.agreed.limits;
        let setup = source::Setup {
            roots: roots.clone(),
            selection: task.selection.clone(),
            machine: dray_session::source::Config {
                is_driver: true,
                ..prepare::source_config(task.options.clone(), buffers, &limits, number)
            },
        };
        let unkept = Unkept(watch);
        let told: &dyn Observer = match keeps_nothing {
            true => {
                watch.event(&nothing_kept());
                &unkept
            }
            false => watch,
        };
        let (outcome, progress) = match task.streams {
            StreamCount::Fixed(_) => source::run(setup, dialled.link, told)?,
            StreamCount::Tuned => {
                let ways = (Machine::Source(events), dialled.growth);
                let granted = dialled.streams;
                let tuned = Tuned::new(told, &task.options, ways, granted, &found);
                source::run(setup, dialled.link, &tuned)?
            }
        };
        let outcome = had_streams(outcome, &growth)?;
        Ok(match keeps_nothing {
            true => (outcome, Unkept::of(&progress)),
            false => (outcome, progress),
        })
    })
}

/// Remote source, local sink. `from` is what to read there; `open` gives the destination, for each
/// session anew.
///
/// # Errors
/// As [`push`].
pub fn pull(
    task: &Task,
    dial: &Dial,
    from: &[Vec<u8>],
    open: impl Fn() -> Result<(Destination, Capabilities)>,
    handle: &Handle,
    watch: &dyn Watch,
) -> Result<Ended> {
    let buffers = Buffers::new(task.pool_bytes, task.options.object_bytes);
    let pool = Arc::new(Pool::new(buffers.count, buffers.bytes));
    let mut dial = dial.clone();
    let found = tune::Found::default();
    if task.streams == StreamCount::Tuned {
        dial.streams_first = tune::STREAMS_FIRST;
    }
    sessions(task, handle, watch, |number| {
        // The other end first: without it nothing is made here.
        let connect = connect(task, number, Role::Source, from);
        let dialled = net::pull(&dial, connect, Arc::clone(&pool))?;
        let (destination, can) = open()?;
        for notice in destination.notices() {
            watch.event(&Event::Notice(notice.clone()));
        }
        let limits = dialled.agreed.limits;
        handle.attach(Live::Sink(dialled.link.events_in.clone()));
        let growth = dialled.growth.clone();
        let ends = (can, None);
        let (options, content) = (task.options.clone(), &task.content);
        let setup = sink::Setup {
            destination,
            machine: prepare::sink_config(options, content, buffers, &limits, ends, number),
            writers_per_target: prepare::THREADS_PER_TARGET,
        };
        if setup.destination.keeps_nothing() {
            watch.event(&nothing_kept());
            let unkept = Unkept(watch);
            let arrivals = Arrivals::new(&unkept);
            let (outcome, progress) = sink::run(setup, &pool, dialled.link, &arrivals);
            let outcome = had_streams(outcome, &growth)?;
            return Ok((outcome, Unkept::of(&arrivals.complete(progress))));
        }
        let ways = match task.streams {
            StreamCount::Fixed(_) => None,
            StreamCount::Tuned => {
                let machine = Machine::Sink(dialled.link.events_in.clone());
                Some((machine, dialled.growth))
            }
        };
        let granted = dialled.streams;
        let tuned = ways.map(|ways| Tuned::new(watch, &task.options, ways, granted, &found));
        let told: &dyn Observer = match &tuned {
            Some(tuned) => tuned,
            None => watch,
        };
        let arrivals = Arrivals::new(told);
        let (outcome, progress) = sink::run(setup, &pool, dialled.link, &arrivals);
        let outcome = had_streams(outcome, &growth)?;
        Ok((outcome, arrivals.complete(progress)))
    })
}

/// A session that was lost before any stream of it was there has not begun.
fn had_streams(outcome: Outcome, growth: &Growth) -> Result<Outcome> {
    match outcome {
        Outcome::Failed(error) if is_lost(&error) && !growth.had_streams() => Err(error),
        other => Ok(other),
    }
}

/// Both ends in this process.
///
/// # Errors
/// As [`local::run`].
pub fn copy(
    source: source::Setup,
    sink: sink::Setup,
    handle: &Handle,
    watch: &dyn Watch,
) -> Result<Ended> {
    for notice in sink.destination.notices() {
        watch.event(&Event::Notice(notice.clone()));
    }
    let started = |stopper| handle.attach_local(&stopper);
    let (outcome, progress) = match sink.destination.keeps_nothing() {
        false => local::run(source, sink, watch, started)?.into_outcome(),
        true => {
            watch.event(&nothing_kept());
            let ends = local::run(source, sink, &Unkept(watch), started)?;
            let (outcome, progress) = ends.into_outcome();
            (outcome, Unkept::of(&progress))
        }
    };
    Ok(Ended {
        ending: Ending::of(outcome, progress.files_failed),
        progress,
    })
}

/// What is said before anything moves to where nothing is kept.
fn nothing_kept() -> Event {
    let notice = Error::new(ErrorKind::Unsupported, End::Sink, "keep what is sent");
    let notice = notice
        .cause("it is a null end: what is sent is dropped, and nothing of it is safe")
        .remedy("name a folder to have it kept");
    Event::Notice(notice)
}

/// Runs session after session until one comes to an end.
fn sessions(
    task: &Task,
    handle: &Handle,
    watch: &dyn Watch,
    mut session: impl FnMut(u32) -> Result<(Outcome, Progress)>,
) -> Result<Ended> {
    let policy = RetryPolicy {
        attempts_max: task.retries.saturating_add(1),
        backoff: BACKOFF,
        backoff_max: BACKOFF_MAX,
    };
    let mut sums = Sent::default();
    let mut last = Progress::default();
    // Tries since more was safe than ever before: a transfer of a week may meet any number of faults.
    let (mut tries, mut most_safe) = (0, (0, 0));
    for number in task.first_session.. {
        tries += 1;
        watch.session(number);
        let error = match session(number) {
            Ok((outcome, progress)) => {
                sums.add(&progress);
                let safe = (progress.bytes_durable, progress.files_done);
                if safe.0 > most_safe.0 || safe.1 > most_safe.1 {
                    tries = 1;
                    most_safe = (safe.0.max(most_safe.0), safe.1.max(most_safe.1));
                }
                last = progress;
                match outcome {
                    Outcome::Failed(error) if is_lost(&error) => error,
                    other => {
                        let ending = Ending::of(other, last.files_failed);
                        return Ok(sums.ended(ending, last));
                    }
                }
            }
            // Whoever cannot be reached at the first try is not there.
            Err(error) if number == task.first_session => return Err(error),
            Err(error) if is_lost(&error) || error.kind == ErrorKind::LeaseHeld => error,
            Err(error) => return Ok(sums.ended(Ending::Interrupted(error), last)),
        };
        if handle.is_stopped() {
            return Ok(sums.ended(Ending::Cancelled, last));
        }
        let Verdict::RetryAfter(wait) = policy.verdict(Status::Temporary, tries, draw()) else {
            return Ok(sums.ended(Ending::Interrupted(error), last));
        };
        watch.trying_again(error.remedy("going on from what is safe"));
        if !handle.sleep(wait) {
            return Ok(sums.ended(Ending::Cancelled, last));
        }
    }
    Ok(sums.ended(Ending::Cancelled, last))
}

/// Whether another session may find the other end again.
#[must_use]
pub fn is_lost(error: &Error) -> bool {
    error.status == Status::Temporary
        && matches!(
            error.kind,
            ErrorKind::Unreachable | ErrorKind::TimedOut | ErrorKind::Busy | ErrorKind::NoPlace
        )
}

/// Spreads waits; not for secrets.
fn draw() -> u32 {
    use std::hash::{BuildHasher, RandomState};
    // The upper half of 64 mixed bits.
    (RandomState::new().hash_one(0) >> 32) as u32
}

fn connect(task: &Task, number: u32, passive_role: Role, paths: &[Vec<u8>]) -> Connect {
    Connect {
        transfer: task.transfer.clone(),
        attempt: number,
        passive_role,
        paths: paths.to_vec(),
        selection: task.selection.clone(),
        options: task.options.clone(),
        demanded: task.content.demanded,
        streams: match task.streams {
            StreamCount::Fixed(count) => count,
            StreamCount::Tuned => tune::STREAMS_MOST,
        },
        clear_data: task.clear_data,
        addresses: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::Handle;
    use crate::link::SourceEvent;
    use dray_session::source::Input;
    use std::time::{Duration, Instant};

    #[test]
    fn wishes_from_before_a_session_reach_it() {
        let handle = Handle::default();
        handle.set_rate(Some(7));
        handle.cancel(true);
        let (events_in, events) = crossbeam_channel::unbounded();
        handle.attach_source(&events_in);
        let heard: Vec<_> = events.try_iter().collect();
        assert!(matches!(
            heard.as_slice(),
            [
                SourceEvent::Input(Input::SetRate(Some(7))),
                SourceEvent::Input(Input::Cancel { purge: true })
            ]
        ));
    }

    #[test]
    fn a_stop_ends_a_wait() {
        let handle = Handle::default();
        let other = handle.clone();
        let began = Instant::now();
        let stopper = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            other.cancel(false);
        });
        assert!(!handle.sleep(Duration::from_secs(60)));
        assert!(began.elapsed() < Duration::from_secs(30));
        stopper.join().expect("ran");
    }
}
