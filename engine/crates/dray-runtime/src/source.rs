//! The source's executor: lists, reads and sends as the source machine requests.

mod list;
mod read;

use crate::event_loop::{self, Executor};
use crate::listing::Checkpoint;
use crate::observe::{Observer, TargetLoad};
use crate::target_pools::TargetPools;
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use dray_core::maps::HashMap;
use dray_core::options::Options;
use dray_core::{
    BlockId, BufferId, End, Error, ErrorKind, FileIndex, Name, RelPath, Result, StreamId, TargetId,
};
use dray_link::batch::Batch;
use dray_link::clock::Clock;
use dray_link::link::{BlockSender, SourceEvent, SourceLink};
use dray_link::numa::stay_near_device;
use dray_link::origin::Origin;
use dray_link::pace::{Gate, Pace};
use dray_link::panic_guard::{caught, or_tell};
use dray_link::pool::Pool;
use dray_link::threads;
use dray_session::source::{Config, Effect, Input, Source};
use dray_session::{Event, Outcome, Progress};
use dray_store::{Store, StoreExt};
use dray_wire::message::{BlockHead, Message, Selection};
use list::Listing;
use read::{ReadJob, ReadJobPart};
use std::sync::Arc;
use std::thread::Scope;
use std::time::Duration;

/// A path to read: a file, or a folder with all its contents.
#[derive(Clone)]
pub struct Root {
    /// The store that contains the path.
    pub store: Arc<dyn Store>,
    /// The path in the store.
    pub path: RelPath,
    /// Prefix of all paths of this store as callers write them: `/`, `/data/`, `https://host/`.
    pub top: Arc<str>,
    /// Name of the root in this transfer, if it differs from the name on disk. A followed link
    /// keeps the link's name.
    pub name: Option<Name>,
    /// True to read the contents of a folder without the folder itself.
    pub contents: bool,
}

/// Arguments of a source's executor.
pub struct Setup {
    /// The paths to read, in order.
    pub roots: Vec<Root>,
    /// The selection of entries below the roots.
    pub selection: Selection,
    /// The configuration of the source's state machine. Its `buffers` and `buffer_bytes` determine
    /// the size of the buffer pool.
    pub machine: Config,
    /// File that records the listing, so that a later session continues it; `None` to list from the
    /// beginning in each session.
    pub checkpoint: Option<Arc<Checkpoint>>,
}

impl Setup {
    /// Returns the same arguments with a checkpoint of the listing.
    #[must_use]
    pub fn continued(self, checkpoint: Option<Arc<Checkpoint>>) -> Self {
        Self { checkpoint, ..self }
    }
}

/// Runs a source on the calling thread until the session ends.
///
/// # Errors
/// If patterns are malformed, or if the buffers cannot be allocated. These errors occur before any
/// data moves. A root that cannot be listed is reported as a failed entry instead.
pub fn run(setup: Setup, link: SourceLink, observer: &dyn Observer) -> Result<(Outcome, Progress)> {
    let _batch = Batch::begin();
    let store = setup.roots.first().map(|root| Arc::clone(&root.store));
    let checkpoint = setup.checkpoint;
    let listing = Listing::new(setup.roots, &setup.selection, &setup.machine.options)?
        .continued(checkpoint.clone());
    let pool = match Pool::new(setup.machine.buffers, setup.machine.buffer_bytes) {
        Ok(pool) => pool,
        Err(error) => {
            let control = (link.control, link.close);
            return Err(event_loop::turn_away(control, error.at(End::Source)));
        }
    };
    let segments_max = setup.machine.segments_max as usize;
    let readers_most = setup.machine.readers.most();
    let machine = Source::new(setup.machine);
    let ran = caught("run the source", || {
        let bounds = (segments_max, readers_most);
        let from = (listing, store, checkpoint.clone());
        conduct_all(from, machine, bounds, &pool, link, observer)
    });
    if let (Some(checkpoint), Ok(Ok((Outcome::Done(_), _)))) = (&checkpoint, &ran) {
        checkpoint.finish();
    }
    let failed = |error: Error| (Outcome::Failed(error.at(End::Source)), Progress::default());
    Ok(ran.and_then(|ended| ended).unwrap_or_else(failed))
}

/// Starts the threads and the executor, and waits for all of them.
fn conduct_all(
    (listing, store, checkpoint): (Listing, Option<Arc<dyn Store>>, Option<Arc<Checkpoint>>),
    machine: Source,
    (segments_max, readers_most): (usize, u32),
    pool: &Pool,
    link: SourceLink,
    observer: &dyn Observer,
) -> Result<(Outcome, Progress)> {
    std::thread::scope(|scope| {
        let (control, broken) = ((link.control, link.close), link.events_in.clone());
        let control_out = event_loop::start_control(scope, control, End::Source, move |error| {
            let _ = broken.send(SourceEvent::Broken(error));
        })?;
        let (list_jobs, lister_jobs) = bounded::<u32>(1);
        let events = link.events_in.clone();
        let list = move || {
            or_tell("list the source", &events, SourceEvent::Broken, || {
                list::run(listing, &lister_jobs, &events);
            });
        };
        threads::start(scope, list).inspect_err(|error| {
            let told = Message::GoAway(error.clone().at(End::Source));
            let _ = control_out.send(told, End::Sink);
        })?;
        let mut executor = SourceExecutor {
            scope,
            machine,
            pool,
            clock: Clock::start(),
            observer,
            store,
            checkpoint,
            events: link.events_in,
            control: control_out,
            list_jobs,
            segments_max,
            // The machine limits the concurrent reads of each target. If there are more targets
            // than pools, the targets that share a pool have together the limit of a single target.
            readers: TargetPools::new(readers_most, threads::busy_max()),
            streams: HashMap::default(),
            gate: Arc::default(),
            origins: HashMap::default(),
            outcome: None,
        };
        // Set the rates before all other events. Otherwise the first bytes could exceed the limit.
        let early: Vec<_> = link.events.try_iter().collect();
        let (bounds, others): (Vec<_>, Vec<_>) = early.into_iter().partition(is_bound);
        bounds.into_iter().for_each(|event| executor.hand_in(event));
        // The machine can begin listing before the sink's first message arrives.
        executor.tick();
        others.into_iter().for_each(|event| executor.hand_in(event));
        let outcome = event_loop::run(&mut executor, &link.events, observer);
        let progress = *executor.machine.progress();
        Ok((outcome, progress))
    })
}

/// Returns true if the event sets a rate.
const fn is_bound(event: &SourceEvent) -> bool {
    matches!(
        event,
        SourceEvent::Shared(_) | SourceEvent::Input(Input::SetRate(_))
    )
}

/// Lists the entries that a transfer of these roots would announce. Moves no data.
///
/// # Errors
/// If patterns are malformed.
pub fn list_all(
    roots: Vec<Root>,
    selection: &Selection,
    options: &Options,
    each: impl FnMut(Vec<dray_session::source::Listed>, Vec<dray_session::Failure>),
) -> Result<()> {
    list::all(Listing::new(roots, selection, options)?, each);
    Ok(())
}

struct SourceExecutor<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    machine: Source,
    pool: &'env Pool,
    clock: Clock,
    observer: &'env dyn Observer,
    /// The store that names the targets. `None` if there is nothing to read.
    store: Option<Arc<dyn Store>>,
    checkpoint: Option<Arc<Checkpoint>>,
    events: Sender<SourceEvent>,
    control: event_loop::Outbox,
    list_jobs: Sender<u32>,
    segments_max: usize,
    /// Readers of each target, with the target's device.
    readers: TargetPools<ReadJob, Option<u64>>,
    streams: HashMap<StreamId, Stream>,
    /// Delays the bytes on the streams, to keep the rate limit.
    gate: Arc<Gate>,
    origins: HashMap<FileIndex, Arc<Origin>>,
    outcome: Option<Outcome>,
}

/// The channel of a stream's thread, and a function that cuts the stream.
struct Stream {
    jobs: Sender<StreamJob>,
    cut: Option<Box<dyn Fn() + Send>>,
}

enum StreamJob {
    Send {
        head: BlockHead,
        buffer: Option<BufferId>,
    },
    /// The stream was cut because of this error.
    GiveUp(Error),
}

impl Drop for SourceExecutor<'_, '_> {
    fn drop(&mut self) {
        // The pace may hold a stream's thread in the middle of an object. Release the thread,
        // because the scope joins it.
        self.gate.shut_down();
    }
}

impl Executor for SourceExecutor<'_, '_> {
    type Event = SourceEvent;

    fn hand_in(&mut self, event: SourceEvent) {
        let now = self.clock.now();
        match event {
            SourceEvent::Stream(stream, sender) => {
                let (jobs, stream_jobs) = unbounded();
                let cut = sender.cutter();
                self.streams.insert(stream, Stream { jobs, cut });
                let (pool, events) = (self.pool, self.events.clone());
                let gate = Arc::clone(&self.gate);
                let started = threads::start(self.scope, move || {
                    or_tell("send objects", &events, SourceEvent::Broken, || {
                        run_stream(stream, sender, &stream_jobs, pool, (&gate, &events));
                    });
                });
                if let Err(error) = started {
                    // The failed start dropped the sender, which closed the stream. The other
                    // streams continue.
                    self.streams.remove(&stream);
                    if self.streams.is_empty() {
                        self.hand_in(SourceEvent::Broken(error));
                    }
                    return;
                }
                self.machine.handle(Input::StreamUp(stream), now);
            }
            SourceEvent::Left(stream, error) => self.give_up(stream, error),
            SourceEvent::Shared(rates) => self.gate.share(rates),
            SourceEvent::Broken(error) => {
                let error = error.at(End::Source);
                let _ = self.control.send(Message::GoAway(error.clone()), End::Sink);
                self.outcome = Some(Outcome::Failed(error));
            }
            SourceEvent::Input(input) => {
                match &input {
                    Input::StreamLost(stream) => drop(self.streams.remove(stream)),
                    Input::ReadDone { outcome, .. } => self.forget_changed(&outcome.failed),
                    _ => {}
                }
                self.machine.handle(input, now);
            }
            SourceEvent::Listed {
                entries,
                origins,
                failed,
                finished,
            } => {
                self.origins.extend(origins);
                if let Some(checkpoint) = &self.checkpoint {
                    let notices = checkpoint.take_notices().into_iter();
                    notices.for_each(|notice| self.observer.event(&Event::Notice(notice)));
                }
                self.observer.listed(&entries);
                self.machine.handle(
                    Input::Listed {
                        entries,
                        failed,
                        finished,
                    },
                    now,
                );
            }
        }
    }

    fn carry_out(&mut self) {
        self.gate.set_rate(self.machine.rate());
        while let Some(effect) = self.machine.poll() {
            match effect {
                Effect::List { max } => {
                    // This never blocks: the machine waits for the answer before it sends another
                    // request.
                    let _ = self.list_jobs.send(max);
                }
                Effect::Message(message) => {
                    if let Some(error) = self.control.send(message, End::Sink) {
                        self.machine
                            .handle(Input::PeerLost(error), self.clock.now());
                    }
                }
                Effect::Read {
                    block,
                    buffer,
                    target,
                    parts,
                } => {
                    let parts: Vec<ReadJobPart> = parts
                        .into_iter()
                        .filter_map(|part| {
                            let origin = Arc::clone(self.origins.get(&part.file)?);
                            Some(ReadJobPart { origin, part })
                        })
                        .collect();
                    let job = ReadJob {
                        block,
                        buffer,
                        parts,
                    };
                    self.read(target, job);
                }
                Effect::Send {
                    stream,
                    buffer,
                    head,
                } => {
                    self.observer.object(Some(stream), &head);
                    self.tell_stream(stream, StreamJob::Send { head, buffer });
                }
                Effect::GiveUp(stream, error) => self.give_up(stream, error),
                Effect::CloseFile(index) => {
                    self.origins.remove(&index);
                }
                Effect::Report(event) => self.observer.event(&event),
                Effect::StoreVerdict(totals) => {
                    let stored = Input::VerdictStored(self.observer.store_verdict(&totals));
                    self.machine.handle(stored, self.clock.now());
                }
                Effect::End(outcome) => self.outcome = Some(outcome),
            }
        }
    }

    fn outcome(&mut self) -> Option<Outcome> {
        self.outcome.take()
    }

    fn until_wake(&self) -> Option<Duration> {
        let wake = self.machine.next_wake()?;
        Some(wake.since(self.clock.now()))
    }

    fn tick(&mut self) {
        self.machine.handle(Input::Tick, self.clock.now());
    }

    fn progress(&self) -> Progress {
        Progress {
            profile: self.machine.profile(self.clock.now()),
            ..*self.machine.progress()
        }
    }

    fn report(&self) {
        if let Some(store) = &self.store {
            let loads = self.machine.loads(self.clock.now());
            let targets = TargetLoad::named(store.as_ref(), loads);
            self.observer.targets(End::Source, &targets);
        }
        if self.observer.wants_under_way(End::Source) {
            let found = self.machine.under_way();
            self.observer.under_way(End::Source, found);
        }
    }
}

impl SourceExecutor<'_, '_> {
    /// Discards the recorded folders of files that are not as listed. The next session lists these
    /// folders again.
    fn forget_changed(&self, failed: &[(FileIndex, Error)]) {
        let Some(checkpoint) = &self.checkpoint else {
            return;
        };
        for (index, error) in failed {
            let is_changed = matches!(
                error.kind,
                ErrorKind::SourceChanged | ErrorKind::NotFound | ErrorKind::ShortRead
            );
            let origin = self.origins.get(index).filter(|_| is_changed);
            if let Some(folder) = origin.and_then(|origin| origin.path.parent()) {
                checkpoint.forget(&folder);
            }
        }
    }

    fn give_up(&mut self, stream: StreamId, error: Error) {
        // Cut the stream, because its thread may wait for a socket that accepts no bytes.
        let known = self.streams.get(&stream);
        if let Some(cut) = known.and_then(|known| known.cut.as_ref()) {
            cut();
        }
        self.tell_stream(stream, StreamJob::GiveUp(error));
    }

    fn tell_stream(&mut self, stream: StreamId, job: StreamJob) {
        if let Some(known) = self.streams.get(&stream) {
            // If the stream's thread has ended, it has already reported that to the event channel.
            let _ = known.jobs.send(job);
        }
    }

    /// Passes a read to the readers of its target. Readers are started on demand.
    fn read(&mut self, target: TargetId, job: ReadJob) {
        let store = job.parts.first().map(|part| Arc::clone(&part.origin.store));
        let device = || store.and_then(|store| store.device_of(target));
        let (scope, pool, events) = (self.scope, self.pool, &self.events);
        let segments_max = self.segments_max;
        let given = self.readers.give(target, job, device, |worker, device| {
            let (device, events) = (*device, events.clone());
            let read = move || {
                stay_near_device(device);
                or_tell("read the files", &events, SourceEvent::Broken, || {
                    read::run(&worker, pool, segments_max, &events);
                });
            };
            threads::start(scope, read).map(drop)
        });
        if let Err(error) = given {
            self.hand_in(SourceEvent::Broken(error));
        }
    }
}

fn run_stream(
    stream: StreamId,
    mut sender: Box<dyn BlockSender>,
    jobs: &Receiver<StreamJob>,
    pool: &Pool,
    (gate, events): (&Gate, &Sender<SourceEvent>),
) {
    let tell = |input| {
        let _ = events.send(SourceEvent::Input(input));
    };
    for job in jobs {
        let (head, buffer) = match job {
            StreamJob::Send { head, buffer } => (head, buffer),
            StreamJob::GiveUp(error) => {
                sender.give_up(&error);
                tell(Input::StreamLost(stream));
                return;
            }
        };
        let block: BlockId = head.id;
        let mut guard = buffer.and_then(|id| pool.buffer(id));
        let held = |time: Duration| {
            if !time.is_zero() {
                tell(Input::Held(time));
            }
        };
        let under_way = |time| {
            held(time);
            tell(Input::UnderWay(stream));
        };
        let mut pace = Pace::new(gate, &under_way);
        let result = sender.send(&head, guard.as_deref_mut(), &mut pace);
        drop(guard);
        held(pace.take_held());
        if result.is_err() {
            tell(Input::StreamLost(stream));
            return;
        }
        tell(Input::Sent { block });
    }
}
