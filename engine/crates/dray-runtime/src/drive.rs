//! The driver's side of a transfer with another host. The driver starts a session, and further
//! sessions after a lost connection, until the transfer ends. The command line and the endpoint
//! both use this module.
//!
//! Goals: the caller defines a transfer, observes it ([`Watch`]) and can change it while it runs
//! ([`Handle`]).
//!
//! Non-goals: the choice of the transfer to run, and retries of a transfer that was given up after
//! [`Task::retries`].

mod counts;
mod least;
mod tries;

use crate::assembly::{Buffers, Content, Threads, TransferPlan};
use crate::handle::{Handle, Live};
use crate::listing::Checkpoint;
use crate::local;
use crate::observe::{Observer, Unkept};
use crate::sink::{Asked, Destination};
use crate::source::Root;
use crate::tune::{self, Machine, Tuned, TunerResults};
use crate::{sink, source};
use counts::{Arrivals, Sent};
use dray_core::options::{Options, ResumeMode};
use dray_core::{End, Error, ErrorKind, Result, Status, StripeChoice, TraceContext, TransferId};
use dray_link::pool::Pool;
use dray_net::{Dial, Growth};
use dray_sched::tuner::Remembered;
use dray_session::{Event, Outcome, Progress};
use dray_store::Capabilities;
use dray_wire::message::{Connect, Limits, Role, Selection, optional};
use dray_wire::negotiate::Agreed;
use std::sync::Arc;
use std::time::Instant;
use tries::Tries;

/// Data and parameters of a transfer.
#[derive(Debug, Clone)]
pub struct Task {
    /// Name of the transfer.
    pub transfer: TransferId,
    /// Number of the first session of this task, from 1.
    pub first_session: u32,
    /// The selected entries, and their new name at the destination.
    pub selection: Selection,
    /// Options of the transfer.
    pub options: Options,
    /// Requirements on the content of a single file.
    pub content: Content,
    /// Total size of this end's buffers in bytes.
    pub pool_bytes: u64,
    /// Number of data streams.
    pub streams: StreamCount,
    /// Maximum and initial number of streams, if the number is tuned.
    pub tuning: Tuning,
    /// Number of threads of each storage target at this end.
    pub threads: Threads,
    /// True if the data streams are not encrypted.
    pub clear_data: bool,
    /// Maximum number of consecutive sessions that are lost without new durable data. After that
    /// the transfer is given up. Sessions that begin soon after the loss of a session that
    /// lasted long enough and made data durable do not count
    /// ([`dray_core::retry::RECONNECT_TIME`]). If 0, the driver never
    /// begins a second session.
    pub retries: u32,
    /// File that records the listing of a source at this end; `None` for a source at the other end,
    /// and if each session lists the source from the beginning.
    pub checkpoint: Option<Arc<Checkpoint>>,
}

/// Number of data streams of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamCount {
    /// Requests this number.
    Fixed(u16),
    /// Tuned while the transfer runs.
    Tuned,
}

/// Maximum and initial number of streams, if the number is tuned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// Maximum number of streams; the other end may grant fewer.
    pub streams_most: u16,
    /// Result of an earlier transfer between the same two ends.
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
    /// Returns the number of streams to request. A tuned transfer requests at most one stream for
    /// each buffer of this end: further streams would have no data to send.
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

/// Observer of a transfer across all its sessions.
pub trait Watch: Observer {
    /// Called when a session begins. Its counters start at zero.
    fn session(&self, number: u32) {
        let _ = number;
    }

    /// Called when the other end has accepted the session.
    fn connected(&self) {}

    /// Returns the span of the present session, which the other end gets.
    fn trace(&self) -> Option<TraceContext> {
        None
    }

    /// Called when a session was lost and a further session will be tried.
    fn trying_again(&self, error: Error) {
        let _ = error;
    }
}

/// Final state of a transfer.
#[derive(Debug, Clone)]
pub enum Ending {
    /// All entries were processed. Single files may have failed.
    Done {
        /// Number of files that failed.
        failed: u64,
    },
    /// A user stopped the transfer.
    Cancelled,
    /// The other end refused the transfer, another transfer holds the lease, or too few files were
    /// found.
    Refused(Error),
    /// The other end cannot be reached.
    Unreachable(Error),
    /// The transfer failed before all entries were processed.
    Interrupted(Error),
}

impl Ending {
    /// Returns the final state for a session's outcome. `failed` is the number of failed files that
    /// this end has counted.
    #[must_use]
    pub fn of(outcome: Outcome, failed: u64) -> Self {
        match outcome {
            Outcome::Done(totals) => Self::Done {
                failed: failed.max(totals.files_failed),
            },
            Outcome::Cancelled => Self::Cancelled,
            Outcome::Refused(error) => Self::Refused(error),
            // Repeating the same command is useless while another transfer holds the lease.
            Outcome::Failed(error)
                if matches!(error.kind, ErrorKind::LeaseLost | ErrorKind::LeaseHeld) =>
            {
                Self::Refused(error)
            }
            Outcome::Failed(error) => Self::Interrupted(error),
        }
    }
}

/// Result of a transfer.
#[derive(Debug, Clone)]
pub struct Ended {
    /// Final state of the transfer.
    pub ending: Ending,
    /// Counters of the last session. The bytes sent, the bytes read and the profile are sums over
    /// all sessions.
    pub progress: Progress,
    /// Tuned values, to start the next transfer between the same two ends.
    pub found: Option<Remembered>,
}

/// Pushes a local source to a remote sink. `to` is the remote destination folder, followed by the
/// names that will be written in it. `open` returns the roots to read. It is called once, for all
/// sessions.
///
/// # Errors
/// If the first session does not begin: the driver does not retry an end that was unreachable at
/// first.
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
    let found = TunerResults::new(task.tuning.known);
    let ended = sessions(task, handle, watch, |number| {
        let (dial, streams) = begins(task, dial, buffers, &found);
        let connect = connect(task, number, Role::Sink, to, (streams, watch.trace()));
        let dialled = dray_net::push(&dial, connect)?;
        watch.connected();
        check_stripes(&task.options, &dialled.agreed, Role::Sink)?;
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
        let setup = plan(task, buffers, limits, number)
            .source(roots.clone(), task.selection.clone(), task.threads)
            .continued(task.checkpoint.clone());
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

/// Returns the plan of a session that this end drives.
fn plan(task: &Task, buffers: Buffers, limits: Limits, number: u32) -> TransferPlan {
    let (options, content) = (task.options.clone(), task.content.clone());
    TransferPlan::new(options, content, buffers, limits, number).driving()
}

/// Returns the parameters to dial the next session, and the number of streams to request.
fn begins(task: &Task, dial: &Dial, buffers: Buffers, found: &TunerResults) -> (Dial, u16) {
    let mut dial = dial.clone();
    let streams = task.streams_most(buffers);
    if task.streams == StreamCount::Tuned {
        dial.streams_first = found.first(streams, &task.options);
    }
    (dial, streams)
}

/// Pulls a remote source to a local sink. `from` holds the remote paths to read. `open` opens the
/// destination again for each session.
///
/// # Errors
/// The errors of [`push`].
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
    let found = TunerResults::new(task.tuning.known);
    let ended = sessions(task, handle, watch, |number| {
        // Dial before the destination is opened: if the other end is unreachable, no file is
        // created at this end.
        let (mut dial, streams) = begins(task, dial, buffers, &found);
        let connect = connect(task, number, Role::Source, from, (streams, watch.trace()));
        dial.shared = handle.shared_rates();
        let dialled = dray_net::pull(&dial, connect, Arc::clone(&pool))?;
        watch.connected();
        check_stripes(&task.options, &dialled.agreed, Role::Source)?;
        let (destination, _) = open()?;
        let destination = destination.only(Asked::new(&task.selection, from)?);
        for notice in destination.notices() {
            watch.event(&Event::Notice(notice.clone()));
        }
        let limits = dialled.agreed.limits;
        handle.attach(Live::Sink(dialled.link.events_in.clone()));
        let growth = dialled.growth.clone();
        let setup = plan(task, buffers, limits, number).sink(destination, None, task.threads);
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

/// Returns an error if a session was lost before its first stream: such a session counts as not
/// begun.
fn had_streams(outcome: Outcome, growth: &Growth) -> Result<Outcome> {
    match outcome {
        Outcome::Failed(error) if is_lost(&error) && !growth.had_streams() => Err(error),
        other => Ok(other),
    }
}

/// Copies with both ends in this process.
///
/// # Errors
/// The errors of [`local::run`].
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

/// Returns a notice if the user chose to trust earlier data and the sink does not know that option.
/// An old sink always reads back the data of an earlier run.
fn unread_resume(options: &Options, agreed: &Agreed) -> Option<Error> {
    let is_unread = options.resume == ResumeMode::Trust && !agreed.has(optional::RESUME);
    is_unread.then(|| {
        Error::new(
            ErrorKind::Unsupported,
            End::Sink,
            "resume without reading the data back",
        )
        .cause(
            "the other host has an older version of dray, which always reads back the data of \
            earlier runs",
        )
        .remedy(
            "install the same version of dray at the other host, or run the command without \
                --resume trust",
        )
    })
}

/// Refuses stripes that a passive end of an earlier version would ignore. A passive sink must know
/// every choice of stripes. A passive source must know only [`StripeChoice::Source`].
fn check_stripes(options: &Options, agreed: &Agreed, passive: Role) -> Result<()> {
    let is_needed = match passive {
        Role::Sink => options.stripes.is_some(),
        Role::Source => options.stripes == Some(StripeChoice::Source),
    };
    if !is_needed || agreed.has(optional::STRIPES) {
        return Ok(());
    }
    let operation = "set the stripes of new files";
    Err(Error::new(ErrorKind::Unsupported, passive.end(), operation)
        .cause("the other host has an older version of dray, which cannot set stripes")
        .remedy("install the same version of dray at the other host, or omit the stripes"))
}

/// Returns the notice that the sink of this transfer discards all data.
fn nothing_kept() -> Event {
    let notice = Error::new(ErrorKind::Unsupported, End::Sink, "store the sent data");
    let notice = notice
        .cause("the destination is a null end, which discards all data")
        .remedy("to keep the data, use a folder as the destination");
    Event::Notice(notice)
}

/// Runs sessions until a session ends the transfer.
fn sessions(
    task: &Task,
    handle: &Handle,
    watch: &dyn Watch,
    mut session: impl FnMut(u32) -> Result<(Outcome, Progress)>,
) -> Result<Ended> {
    let mut tries = Tries::new(task.retries);
    let mut sums = Sent::default();
    let mut last = Progress::default();
    for number in task.first_session.. {
        tries.began(Instant::now());
        watch.session(number);
        let error = match session(number) {
            Ok((outcome, progress)) => {
                sums.add(&progress);
                tries.ended(&progress);
                last = progress;
                match outcome {
                    Outcome::Failed(error) if is_lost(&error) => error,
                    other => {
                        let ending = Ending::of(other, last.files_failed);
                        return Ok(sums.ended(ending, last));
                    }
                }
            }
            // The driver does not retry an end that was unreachable at first.
            Err(error) if number == task.first_session => return Err(error),
            Err(error) if is_lost(&error) || error.kind == ErrorKind::LeaseHeld => error,
            Err(error) => return Ok(sums.ended(Ending::Interrupted(error), last)),
        };
        if handle.is_stopped() {
            return Ok(sums.ended(Ending::Cancelled, last));
        }
        let Some(wait) = tries.next(error.kind, Instant::now(), draw()) else {
            return Ok(sums.ended(Ending::Interrupted(error), last));
        };
        if wait.is_reported {
            watch.trying_again(error.remedy("retrying; the transfer will resume"));
        }
        if !handle.sleep(wait.time) {
            return Ok(sums.ended(Ending::Cancelled, last));
        }
    }
    Ok(sums.ended(Ending::Cancelled, last))
}

/// Returns true if a further session may reach the other end again.
#[must_use]
pub fn is_lost(error: &Error) -> bool {
    error.status == Status::Temporary
        && matches!(
            error.kind,
            ErrorKind::Unreachable | ErrorKind::TimedOut | ErrorKind::Busy | ErrorKind::NoPlace
        )
}

/// Returns a random number that varies the delays. The number is too predictable for secrets.
fn draw() -> u32 {
    use std::hash::{BuildHasher, RandomState};
    // Take the upper half of a 64-bit hash.
    (RandomState::new().hash_one(0) >> 32) as u32
}

fn connect(
    task: &Task,
    number: u32,
    passive_role: Role,
    paths: &[Vec<u8>],
    (streams, trace): (u16, Option<TraceContext>),
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
        trace,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dray_wire::message::checksum_id;
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

    #[test]
    fn stripes_that_an_older_peer_would_ignore_are_refused() {
        let refused = |stripes: &str, passive, optional| {
            let agreed = Agreed {
                version: 1,
                mandatory: 0,
                optional,
                limits: Limits::default(),
                checksum: checksum_id::CRC32C_ADLER32,
            };
            let options = Options {
                stripes: stripes.parse().ok(),
                ..Options::default()
            };
            check_stripes(&options, &agreed, passive).map_err(|error| error.kind)
        };
        let before = OPTIONAL_KNOWN & !optional::STRIPES;
        let old = Err(ErrorKind::Unsupported);
        assert_eq!(refused("4", Role::Sink, before), old);
        assert_eq!(refused("source", Role::Sink, before), old);
        assert_eq!(refused("source", Role::Source, before), old);
        assert_eq!(refused("4", Role::Source, before), Ok(()));
        assert_eq!(refused("", Role::Sink, before), Ok(()));
        for passive in [Role::Sink, Role::Source] {
            assert_eq!(refused("source", passive, OPTIONAL_KNOWN), Ok(()));
        }
    }
}
