//! The sink's executor: inspects, writes, syncs, logs and publishes as the sink machine requests.

mod adopt;
mod asked;
mod begin;
mod begin_records;
mod cleanup;
mod commits;
mod compare;
mod continued;
mod destination;
mod doubtful;
mod file_lock;
mod files;
mod final_check;
mod find_logs;
mod folders;
mod handles;
mod inspect;
mod lease;
mod lease_watch;
mod log_file;
mod log_place;
mod names;
mod neighbours;
mod other_claims;
mod other_logs;
mod outlook;
mod prepare;
mod probe;
mod read_back;
mod request;
mod small_batch;
mod strays;
pub mod sweep;
mod sync;
mod tasks;
#[cfg(test)]
mod testing;
mod tidy;
mod touched;
mod verify;
mod write;

pub use asked::Asked;
pub use destination::Destination;
pub use final_check::FinalCheck;
pub use find_logs::{LogStep, about_folder};
pub use lease::host_name;
pub use log_file::StoredLog;
pub use outlook::{ExplainedFile, FileVerdict, Outlook, ReadLog, TransferLog};
pub use probe::{Peek, layout_of_new};
pub use request::DestinationRequest;

use crate::event_loop::{self, Executor};
use crate::observe::{Observer, TargetLoad};
use crate::target_pools::{TargetPools, Worker};
use crossbeam_channel::{Receiver, Sender, unbounded};
use dray_core::maps::HashMap;
use dray_core::{BufferId, End, Error, FileIndex, PeerId, RelPath, Result, TargetId};
use dray_link::batch::Batch;
use dray_link::clock::Clock;
use dray_link::link::{SinkEvent, SinkLink};
use dray_link::numa::stay_near_device;
use dray_link::open_file::OpenFile;
use dray_link::panic_guard::{caught, or_tell};
use dray_link::pool::Pool;
use dray_link::threads;
use dray_sched::blocking::WAITS_AFTER;
use dray_session::sink::{
    BlockKey, Config, Effect, Input, LogRecord, PublishItem, Sink, SyncGroup, SyncItem, WritePart,
};
use dray_session::{Event, Outcome, Progress};
use dray_store::StoreExt;
use dray_wire::message::{Message, Totals};
use file_lock::FileLocks;
use files::Space;
use std::sync::Arc;
use std::thread::Scope;
use std::time::Duration;
use sync::SyncPath;
use tasks::BackgroundTask;
use write::{WriteJob, WriteJobPart};

/// Number of threads that publish files and set attributes.
const CHORE_THREADS: usize = 2;

/// Number of threads that read files back. Reading a large file back may take hours. Other threads
/// publish files, so no final name waits for such a read.
const READ_BACK_THREADS: usize = 2;

/// Number of threads that begin partial files. Each file takes several calls to the store, and on
/// network storage a call may wait for a slow storage target. The value is estimated, not measured.
const PREPARE_THREADS: usize = 8;

/// Maximum number of files that one task publishes.
const PUBLISH_CHUNK: usize = 128;

/// Arguments of a sink's executor.
pub struct Setup {
    /// The destination, with its log and lease.
    pub destination: Destination,
    /// Configuration of the machine. `buffers` and `buffer_bytes` determine the size of the pool,
    /// and `writers` determines the number of writer threads.
    pub machine: Config,
}

/// Runs a sink on the calling thread until the session ends. The link's receivers fill `pool`.
pub fn run(
    setup: Setup,
    pool: &Pool,
    link: SinkLink,
    observer: &dyn Observer,
) -> (Outcome, Progress) {
    let _batch = Batch::begin();
    let mut config = setup.machine;
    config.claims.clone_from(&setup.destination.claims);
    let space = Space::new(
        setup.destination,
        config.options.clone(),
        config.buffer_bytes,
    );
    let writers = config.writers.first();
    let machine = Sink::new(config).logging_apart(space.logs_apart);
    let ran = caught("run the sink", || {
        conduct_all(&space, machine, writers, pool, link, observer)
    });
    space.clear_away();
    for notice in space.take_notices() {
        observer.event(&Event::Notice(notice));
    }
    let failed = |error: Error| (Outcome::Failed(error.at(End::Sink)), Progress::default());
    ran.and_then(|ended| ended).unwrap_or_else(failed)
}

/// Starts the threads and the executor, and waits for all of them.
fn conduct_all(
    space: &Space,
    machine: Sink,
    writers: u32,
    pool: &Pool,
    link: SinkLink,
    observer: &dyn Observer,
) -> Result<(Outcome, Progress)> {
    std::thread::scope(|scope| {
        let (control, broken) = ((link.control, link.close), link.events_in.clone());
        let control_out = event_loop::start_control(scope, control, End::Sink, move |error| {
            let _ = broken.send(SinkEvent::Broken(error));
        })?;
        // One thread inspects entries (`names`), because a folder must exist before its entries.
        // One thread executes syncs and writes log records (`log`), because these tasks must keep
        // their order too. A sync of the late group has a thread of its own (`late`), because it
        // waits for slow targets. With asynchronous logging, the other syncs have a thread of their
        // own too (`syncs`), and the first thread is only the logger. The sink machine limits the
        // number of groups that wait for the logger.
        let (names_out, names) = unbounded();
        let (begins_out, begins) = unbounded();
        let (log_out, log) = unbounded();
        let (late_out, late) = unbounded();
        let (syncs_out, syncs) = unbounded();
        let (chores_out, chores) = unbounded();
        let (reads_out, reads) = unbounded();
        let start = |jobs: &Receiver<BackgroundTask>| {
            let (jobs, events) = (jobs.clone(), link.events_in.clone());
            let change = move || {
                or_tell("change the destination", &events, SinkEvent::Broken, || {
                    tasks::run(&jobs, space, &events);
                });
            };
            threads::start(scope, change).map(drop)
        };
        let mut lanes = [&names, &log, &late]
            .into_iter()
            .chain(space.logs_apart.then_some(&syncs))
            .chain([&begins; PREPARE_THREADS])
            .chain([&chores; CHORE_THREADS])
            .chain([&reads; READ_BACK_THREADS]);
        lanes.try_for_each(start).inspect_err(|error| {
            let told = Message::GoAway(error.clone().at(End::Sink));
            let _ = control_out.send(told, End::Source);
        })?;
        let mut executor = SinkExecutor {
            scope,
            machine,
            space,
            pool,
            clock: Clock::start(),
            observer,
            events: link.events_in,
            control: control_out,
            names: names_out,
            begins: begins_out,
            log: log_out,
            late: late_out,
            syncs: syncs_out,
            chores: chores_out,
            reads: reads_out,
            writers: TargetPools::new(writers, threads::busy_max()),
            open: HashMap::default(),
            small: HashMap::default(),
            outcome: None,
        };
        // Pass the rates to the machine before all other events, because the source must know the
        // rate before it sends.
        let early: Vec<_> = link.events.try_iter().collect();
        let is_rate = |event: &_| matches!(event, SinkEvent::Input(Input::SetRate(_)));
        let (rates, others): (Vec<_>, Vec<_>) = early.into_iter().partition(is_rate);
        rates.into_iter().for_each(|event| executor.hand_in(event));
        executor.hand_in(SinkEvent::Input(Input::PeerUp(PeerId(0))));
        others.into_iter().for_each(|event| executor.hand_in(event));
        let outcome = event_loop::run(&mut executor, &link.events, observer);
        // Release all waiting threads after every outcome, because the scope joins them next.
        space.hurry();
        let progress = Progress {
            bytes_read_back: space.read_back.bytes(),
            ..space.commits.told(*executor.machine.progress())
        };
        Ok((outcome, progress))
    })
}

struct SinkExecutor<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    machine: Sink,
    space: &'scope Space,
    pool: &'env Pool,
    clock: Clock,
    observer: &'env dyn Observer,
    events: Sender<SinkEvent>,
    control: event_loop::Outbox,
    names: Sender<BackgroundTask>,
    begins: Sender<BackgroundTask>,
    log: Sender<BackgroundTask>,
    late: Sender<BackgroundTask>,
    syncs: Sender<BackgroundTask>,
    chores: Sender<BackgroundTask>,
    reads: Sender<BackgroundTask>,
    writers: TargetPools<WriteJob, Writers>,
    open: HashMap<FileIndex, Arc<OpenFile>>,
    /// Small files that are written and not published yet.
    small: HashMap<FileIndex, RelPath>,
    outcome: Option<Outcome>,
}

impl Executor for SinkExecutor<'_, '_> {
    type Event = SinkEvent;

    fn hand_in(&mut self, event: SinkEvent) {
        let now = self.clock.now();
        match event {
            SinkEvent::Input(input) => {
                let input = self.space.in_plain_words(input);
                if let Input::BlockArrived { head, .. } = &input {
                    self.observer.object(None, head);
                }
                if let Input::Published(results) = &input {
                    for (index, _) in results.iter().filter(|(_, result)| result.is_ok()) {
                        self.small.remove(index);
                    }
                }
                self.machine.handle(input, now);
            }
            SinkEvent::Broken(error) => {
                let error = about_folder(error.at(End::Sink), &self.space.words, LogStep::Use);
                let _ = self
                    .control
                    .send(Message::GoAway(error.clone()), End::Source);
                self.outcome = Some(Outcome::Failed(error));
            }
            SinkEvent::Prepared(index, result) => {
                let result = result.map(|file| {
                    self.open.insert(index, file);
                });
                let told = |error| about_folder(error, &self.space.words, LogStep::Use);
                let result = result.map_err(told);
                self.machine.handle(Input::Prepared(index, result), now);
            }
        }
        if self.machine.is_stopping() {
            self.space.hurry();
        }
    }

    fn carry_out(&mut self) {
        while let Some(effect) = self.machine.poll() {
            match effect {
                Effect::Message(peer, message) => self.send(peer, message),
                Effect::Write {
                    block,
                    buffer,
                    target,
                    parts,
                } => self.write_parts(block, buffer, target, parts),
                Effect::SetWriters(count) => self.writers.set_threads(count),
                Effect::Free(buffer) => self.pool.give(buffer),
                Effect::Sync(group, items) => self.sync(group, items),
                Effect::Log { group, records } => self.log(group, &records),
                Effect::Publish(items) => self.publish(items),
                Effect::Discard(index) => self.discard(index),
                Effect::CloseFile(index) => {
                    if let Some(open) = self.open.remove(&index) {
                        self.later(Lane::Log, BackgroundTask::Close(open));
                    }
                }
                Effect::StoreVerdict(totals) => self.store_verdict(&totals),
                Effect::Report(event) => self.observer.event(&event),
                Effect::End(outcome) => self.outcome = Some(outcome),
                other => self.begin_task(other),
            }
        }
    }

    fn outcome(&mut self) -> Option<Outcome> {
        self.outcome.take()
    }

    fn until_wake(&self) -> Option<Duration> {
        let wake = self.machine.next_wake();
        let wake = wake.map(|wake| wake.since(self.clock.now()));
        let look = self.writers.are_held_back().then_some(WAITS_AFTER);
        wake.into_iter().chain(look).min()
    }

    fn tick(&mut self) {
        self.machine.handle(Input::Tick, self.clock.now());
        // The writers of earlier objects may have begun to wait for the storage. Queued objects
        // then need further writers.
        self.with_writers(|writers, start| writers.start_more(start));
    }

    fn progress(&self) -> Progress {
        Progress {
            profile: self.machine.profile(self.clock.now()),
            bytes_read_back: self.space.read_back.bytes(),
            ..self.space.commits.told(*self.machine.progress())
        }
    }

    fn report(&self) {
        let loads = self.machine.loads(self.clock.now());
        let targets = TargetLoad::named(self.space.store.as_ref(), loads);
        self.observer.targets(End::Sink, &targets);
        if self.observer.wants_under_way(End::Sink) {
            let found = self.machine.under_way();
            self.observer.under_way(End::Sink, found);
        }
    }
}

impl SinkExecutor<'_, '_> {
    fn send(&mut self, peer: PeerId, message: Message) {
        if matches!(message, Message::Bye) {
            // This message is the session's last one. The peer may start again as soon as it gets
            // the message, and must not find the lease held while this end removes thousands of
            // small files. So remove the small files first.
            self.space.clear_small();
        }
        if let Some(error) = self.control.send(message, End::Source) {
            let now = self.clock.now();
            self.machine.handle(Input::PeerLost(peer, error), now);
        }
    }

    fn write_parts(
        &mut self,
        block: BlockKey,
        buffer: Option<BufferId>,
        target: TargetId,
        parts: Vec<WritePart>,
    ) {
        for part in &parts {
            if let Some((path, _)) = &part.small {
                self.small.insert(part.file, path.clone());
            }
        }
        let parts = parts.into_iter().map(|part| WriteJobPart {
            open: self.open.get(&part.file).cloned(),
            part,
        });
        let job = WriteJob {
            block,
            buffer,
            parts: parts.collect(),
        };
        self.write(target, job);
    }

    fn sync(&self, group: SyncGroup, items: Vec<SyncItem>) {
        let paths = items.into_iter().map(|item| match item {
            SyncItem::Partial(index) => SyncPath::Partial(Arc::clone(self.open_file(index))),
            SyncItem::Small(path) => SyncPath::Small(path),
            SyncItem::Published(path) => SyncPath::Published(path),
            SyncItem::Adopted(path) => SyncPath::Adopted(path),
        });
        let lane = match group {
            SyncGroup::Main if self.space.logs_apart => Lane::Syncs,
            SyncGroup::Main => Lane::Log,
            SyncGroup::Late => Lane::Late,
        };
        self.later(lane, BackgroundTask::Sync(group, paths.collect()));
    }

    fn log(&self, group: SyncGroup, records: &[LogRecord]) {
        let records = records.iter().map(|record| {
            let number = self.open_file(record.file).number;
            (number, record.range, record.sums)
        });
        self.later(Lane::Log, BackgroundTask::Log(group, records.collect()));
    }

    /// Returns the partial file of an entry whose ranges are synced or logged. If the file is
    /// missing, this function panics. If it skipped the file instead, the sink machine would
    /// acknowledge ranges that are not durable.
    fn open_file(&self, index: FileIndex) -> &Arc<OpenFile> {
        self.open
            .get(&index)
            .expect("the sink machine uses only files that it has opened and not closed")
    }

    fn publish(&mut self, items: Vec<PublishItem>) {
        // A small file without bytes was never written, so it is first seen here.
        let small = items.iter().filter(|item| item.small);
        self.small
            .extend(small.map(|item| (item.index, item.path.clone())));
        let mut items = items.into_iter().peekable();
        while items.peek().is_some() {
            let chunk = items.by_ref().take(PUBLISH_CHUNK);
            let chunk = chunk.map(|item| (self.open.get(&item.index).cloned(), item));
            let chunk = chunk.collect();
            self.later(Lane::Chores, BackgroundTask::Publish(chunk));
        }
    }

    fn discard(&mut self, index: FileIndex) {
        if let Some(open) = self.open.remove(&index) {
            self.later(Lane::Log, BackgroundTask::Discard(open));
        }
        if let Some(path) = self.small.remove(&index) {
            self.later(Lane::Chores, BackgroundTask::DiscardSmall(path));
        }
    }

    fn store_verdict(&mut self, totals: &Totals) {
        let in_place = self.space.store.check_place();
        let stored = in_place.and_then(|()| self.observer.store_verdict(totals));
        let stored = Input::VerdictStored(stored);
        self.machine.handle(stored, self.clock.now());
    }

    /// Passes an effect to a background task without further preparation.
    fn begin_task(&self, effect: Effect) {
        let open = |index| self.open.get(&index).cloned();
        let (lane, task) = match effect {
            Effect::Inspect(items) => (Lane::Names, BackgroundTask::Inspect(items)),
            Effect::Prepare {
                index,
                path,
                key,
                object_bytes,
                resume,
                stripes,
            } => {
                let task = BackgroundTask::Prepare {
                    index,
                    path,
                    key,
                    object_bytes,
                    resume,
                    stripes,
                };
                // A resumed file is read first, so the threads for reading prepare it.
                (if resume { Lane::Reads } else { Lane::Begins }, task)
            }
            Effect::ReadBack {
                index,
                path,
                size,
                small,
            } => {
                let task = BackgroundTask::ReadBack {
                    index,
                    path,
                    size,
                    small,
                    open: open(index),
                };
                (Lane::Reads, task)
            }
            Effect::CheckWritten { index, ranges } => {
                let open = open(index);
                let task = BackgroundTask::CheckWritten {
                    index,
                    ranges,
                    open,
                };
                (Lane::Reads, task)
            }
            Effect::SetDirectory {
                index,
                path,
                metadata,
            } => {
                let task = BackgroundTask::SetDirectory {
                    index,
                    path,
                    metadata,
                };
                (Lane::Chores, task)
            }
            Effect::SetAdopted {
                index,
                path,
                metadata,
            } => {
                let task = BackgroundTask::SetAdopted {
                    index,
                    path,
                    metadata,
                };
                (Lane::Chores, task)
            }
            Effect::FinishLog { keeps, is_listed } => {
                (Lane::Log, BackgroundTask::FinishLog { keeps, is_listed })
            }
            Effect::Purge => (Lane::Log, BackgroundTask::Purge),
            other => {
                unreachable!("the executor handles the effect {other:?} without a background task")
            }
        };
        self.later(lane, task);
    }

    fn later(&self, lane: Lane, chore: BackgroundTask) {
        let jobs = match lane {
            Lane::Names => &self.names,
            Lane::Begins => &self.begins,
            Lane::Log => &self.log,
            Lane::Late => &self.late,
            Lane::Syncs => &self.syncs,
            Lane::Chores => &self.chores,
            Lane::Reads => &self.reads,
        };
        // The threads live as long as this executor, so the channel is open.
        let _ = jobs.send(chore);
    }

    /// Passes an object to the writers of its target. Writers are started on demand.
    fn write(&mut self, target: TargetId, job: WriteJob) {
        let space = self.space;
        let share = || Writers {
            turns: Arc::new(FileLocks::new()),
            device: space.store.device_of(target),
        };
        self.with_writers(|writers, start| writers.give(target, job, share, start));
    }

    /// Calls `act` with the writers, and with the function that starts a writer.
    fn with_writers(
        &mut self,
        act: impl FnOnce(&mut TargetPools<WriteJob, Writers>, &StartWriter<'_>) -> Result<()>,
    ) {
        let (scope, pool, space, events) = (self.scope, self.pool, self.space, &self.events);
        let acted = act(&mut self.writers, &|worker, writers| {
            let (device, turns) = (writers.device, Arc::clone(&writers.turns));
            let events = events.clone();
            let write = move || {
                stay_near_device(device);
                or_tell("write the files", &events, SinkEvent::Broken, || {
                    write::run(&worker, &turns, pool, space, &events);
                });
            };
            threads::start(scope, write).map(drop)
        });
        if let Err(error) = acted {
            self.hand_in(SinkEvent::Broken(error));
        }
    }
}

type StartWriter<'a> = dyn Fn(Worker<WriteJob>, &Writers) -> Result<()> + 'a;

/// State shared by the writers of a target.
struct Writers {
    turns: Arc<FileLocks<FileIndex, WriteJob>>,
    device: Option<u64>,
}

enum Lane {
    Names,
    Begins,
    Log,
    Late,
    Syncs,
    Chores,
    Reads,
}
