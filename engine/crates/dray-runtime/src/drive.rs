//! The driver's side of a transfer with another host: a session, and further ones after a lost
//! connection, until it ends. The command line and the endpoint both come through here.
//!
//! Goals: whoever runs a transfer says what and where, hears what happens ([`Watch`]) and can change
//! its mind meanwhile ([`Handle`]).
//!
//! Non-goals: which transfer runs, and when a lost one is tried again after its session's own tries.

mod counts;
mod handle;
mod least;

pub use handle::Handle;

use crate::assembly::{Buffers, Content, Threads, sink_config, source_config};
use crate::local;
use crate::net::{self, Dial, Growth};
use crate::observe::{Observer, Unkept};
use crate::pool::Pool;
use crate::sink::{Asked, Destination};
use crate::source::Root;
use crate::tune::{self, Found, Machine, Tuned};
use crate::{sink, source};
use counts::{Arrivals, Sent};
use dray_core::options::{Options, ResumeMode};
use dray_core::retry::{RetryPolicy, Verdict};
use dray_core::{End, Error, ErrorKind, Result, Status, TransferId};
use dray_sched::tuner::Remembered;
use dray_session::{Event, Outcome, Progress};
use dray_store::Capabilities;
use dray_wire::message::{Connect, Role, Selection, optional};
use dray_wire::negotiate::Agreed;
use handle::Live;
use std::sync::Arc;
use std::time::Duration;

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
    /// Where their number is found while it runs.
    pub tuning: Tuning,
    /// Threads of each storage target at this end.
    pub threads: Threads,
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

/// What the number of streams is found within, and from where on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// At the most so many; the other end may grant fewer.
    pub streams_most: u16,
    /// What an earlier transfer between the same two found.
    pub known: Option<Remembered>,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            streams_most: tune::STREAMS_MOST,
            known: None,
        }
    }
}

impl Task {
    /// So many streams are asked for. Of a tuned transfer no more than there are buffers here: others would
    /// have nothing to carry.
    fn streams_most(&self, buffers: Buffers) -> u16 {
        match self.streams {
            StreamCount::Fixed(count) => count,
            StreamCount::Tuned => {
                let buffers = u16::try_from(buffers.count).unwrap_or(u16::MAX);
                self.tuning
                    .streams_most
                    .clamp(1, tune::STREAMS_MOST)
                    .min(buffers)
            }
        }
    }
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
    /// What the next transfer between the same two may begin with.
    pub found: Option<Remembered>,
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
    let found = Found::new(task.tuning.known);
    let ended = sessions(task, handle, watch, |number| {
        let (dial, streams) = begins(task, dial, buffers, &found);
        let dialled = net::push(&dial, connect(task, number, Role::Sink, to, streams))?;
        if number == task.first_session
            && let Some(notice) = unread_resume(&task.options, &dialled.agreed)
        {
            watch.event(&Event::Notice(notice));
        }
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
                readers: task.threads.readers(buffers),
                ..source_config(task.options.clone(), buffers, &limits, number)
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
                let session = tune::Session {
                    machine: Machine::Source(events),
                    growth: dialled.growth,
                    granted: dialled.streams,
                    handle,
                    options: &task.options,
                };
                let tuned = Tuned::new(told, session, &found);
                let ran = source::run(setup, dialled.link, &tuned);
                tuned.finish();
                ran?
            }
        };
        let outcome = had_streams(outcome, &growth)?;
        Ok(match keeps_nothing {
            true => (outcome, Unkept::of(&progress)),
            false => (outcome, progress),
        })
    })?;
    Ok(Ended {
        found: found.kept(),
        ..ended
    })
}

/// How the next session is dialled, and how many streams it asks for.
fn begins(task: &Task, dial: &Dial, buffers: Buffers, found: &Found) -> (Dial, u16) {
    let mut dial = dial.clone();
    let streams = task.streams_most(buffers);
    if task.streams == StreamCount::Tuned {
        dial.streams_first = found.first(streams, &task.options);
    }
    (dial, streams)
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
    let pool = Arc::new(Pool::new(buffers.count, buffers.bytes)?);
    let found = Found::new(task.tuning.known);
    let ended = sessions(task, handle, watch, |number| {
        // The other end first: without it nothing is made here.
        let (mut dial, streams) = begins(task, dial, buffers, &found);
        let connect = connect(task, number, Role::Source, from, streams);
        dial.shared = handle.shared_rates();
        let dialled = net::pull(&dial, connect, Arc::clone(&pool))?;
        let (destination, can) = open()?;
        let destination = destination.only(Asked::new(&task.selection, from)?);
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
            machine: dray_session::sink::Config {
                writers: task.threads.writers(&can, buffers),
                is_driver: true,
                ..sink_config(options, content, buffers, &limits, ends, number)
            },
        };
        if setup.destination.keeps_nothing() {
            watch.event(&nothing_kept());
            let unkept = Unkept(watch);
            let arrivals = Arrivals::new(&unkept);
            let (outcome, progress) = sink::run(setup, &pool, dialled.link, &arrivals);
            let outcome = had_streams(outcome, &growth)?;
            return Ok((outcome, Unkept::of(&arrivals.complete(progress))));
        }
        let tuned = (task.streams == StreamCount::Tuned).then(|| {
            let session = tune::Session {
                machine: Machine::Sink(dialled.link.events_in.clone()),
                growth: dialled.growth,
                granted: dialled.streams,
                handle,
                options: &task.options,
            };
            Tuned::new(watch, session, &found)
        });
        let told: &dyn Observer = match &tuned {
            Some(tuned) => tuned,
            None => watch,
        };
        let arrivals = Arrivals::new(told);
        let (outcome, progress) = sink::run(setup, &pool, dialled.link, &arrivals);
        let progress = arrivals.complete(progress);
        if let Some(tuned) = tuned {
            tuned.finish();
        }
        Ok((had_streams(outcome, &growth)?, progress))
    })?;
    Ok(Ended {
        found: found.kept(),
        ..ended
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
        found: None,
    })
}

/// A sink of before reads back what an earlier run wrote, whatever is asked for.
fn unread_resume(options: &Options, agreed: &Agreed) -> Option<Error> {
    let is_unread = options.resume == ResumeMode::Trust && !agreed.has(optional::RESUME);
    is_unread.then(|| {
        Error::new(
            ErrorKind::Unsupported,
            End::Sink,
            "resume without reading back",
        )
        .cause("its dray is older and reads back what an earlier run wrote")
        .remedy("install this version there, or leave out --resume trust")
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
        watch.trying_again(error.remedy("retrying; the transfer will resume"));
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

fn connect(
    task: &Task,
    number: u32,
    passive_role: Role,
    paths: &[Vec<u8>],
    streams: u16,
) -> Connect {
    Connect {
        transfer: task.transfer.clone(),
        attempt: number,
        passive_role,
        paths: paths.to_vec(),
        selection: task.selection.clone(),
        options: task.options.clone(),
        demanded: task.content.demanded,
        streams,
        clear_data: task.clear_data,
        addresses: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dray_wire::message::{Limits, checksum_id};
    use dray_wire::negotiate::OPTIONAL_KNOWN;

    #[test]
    fn a_sink_that_cannot_trust_is_reported() {
        let said = |resume, optional| {
            let agreed = Agreed {
                version: 1,
                mandatory: 0,
                optional,
                limits: Limits::default(),
                checksum: checksum_id::CRC32C_ADLER32,
            };
            let options = Options {
                resume,
                ..Options::default()
            };
            unread_resume(&options, &agreed).map(|notice| notice.kind)
        };
        let before = OPTIONAL_KNOWN & !optional::RESUME;
        assert_eq!(
            said(ResumeMode::Trust, before),
            Some(ErrorKind::Unsupported)
        );
        assert_eq!(said(ResumeMode::Trust, OPTIONAL_KNOWN), None);
        assert_eq!(said(ResumeMode::Verify, before), None);
    }
}
