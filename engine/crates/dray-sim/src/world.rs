//! A world: one destination, its sessions, virtual time, and its faults.

use crate::disk::{Disk, Node};
use crate::faults::{Coverage, FAULTS_MIN, Fault, Phase, Planned, plan};
use crate::mutants::Mutant;
use crate::session::Session;
use crate::sink_host::SinkHost;
use crate::source_host::SourceHost;
use crate::timing::Timing;
use crate::workload::{Setup, SourceFile, Tree, chance, metadata};
use dray_core::options::{Durability, Overwrite};
use dray_core::{PeerId, RelPath, Result, StreamId, Time};
use dray_sched::rng::Rng;
use dray_session::{sink, source};
use dray_wire::message::Message;
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

/// Number of events after which a session counts as hanging.
const EVENTS_MAX: u64 = 200_000;

/// Number of sessions after which a world counts as endless.
const SESSIONS_MAX: usize = 40;

/// Maximum number of rounds of one world; faults whose moment has not come by then are left out.
const ROUNDS_MAX: usize = 8;

/// The only source of a session.
pub const PEER: PeerId = PeerId(0);

/// A future event of a session.
#[derive(Debug)]
pub enum Event {
    /// An input of the source.
    Source(source::Input),
    /// An input of the sink.
    Sink(sink::Input),
    /// Control bytes arrive at the source.
    ControlToSource(Vec<u8>),
    /// Control bytes arrive at the sink.
    ControlToSink(Vec<u8>),
    /// The source's network card has sent a stream's first object.
    Transmitted(u32),
    /// An object arrives.
    Arrived(u32, Vec<u8>),
    /// An effect of the source is done.
    SourceDone(source::Effect),
    /// An effect of the sink is done; it began when the disk was at this change.
    SinkDone(Box<sink::Effect>, u64),
    /// The sink learns that a stream is dead.
    StreamLostAtSink(u32),
    /// A tick is due at the source.
    WakeSource,
    /// A tick is due at the sink.
    WakeSink,
}

struct Scheduled {
    at: Time,
    number: u64,
    session: usize,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Name of the checker.
    pub checker: &'static str,
    /// Details of the violation.
    pub detail: String,
}

/// Results of a seed.
#[derive(Debug)]
pub struct Report {
    /// The broken promise, if any.
    pub violation: Option<Violation>,
    /// Faults hit.
    pub coverage: Coverage,
    /// Number of sessions.
    pub sessions: usize,
    /// Number of events.
    pub events: u64,
    /// Trace, if requested.
    pub trace: Vec<String>,
}

/// A world.
pub struct World {
    /// Virtual time.
    pub now: Time,
    queue: BinaryHeap<Reverse<Scheduled>>,
    number: u64,
    /// Source of all random numbers.
    pub draw: Rng,
    /// Configuration.
    pub setup: Setup,
    /// The source's tree.
    pub tree: Tree,
    /// The sink's disk.
    pub disk: Rc<RefCell<Disk>>,
    /// Its sessions; all but the last few have ended.
    pub sessions: Vec<Session>,
    /// Boot number of the sink's host.
    pub boot: u64,
    /// Planted defect, if any.
    pub mutant: Option<Mutant>,
    /// Planned faults.
    pub plan: VecDeque<Planned>,
    /// Faults hit.
    pub coverage: Coverage,
    /// The first broken promise.
    pub violation: Option<Violation>,
    /// Trace, if requested.
    pub trace: Option<Vec<String>>,
    events: u64,
    /// Paths where a folder blocks a file.
    pub blocked: BTreeSet<RelPath>,
    /// True if faults of this round may cost more than pool and group.
    pub is_unbounded: bool,
    /// Inodes with corrupted bytes; no session can know before it reads them back.
    pub rotten: BTreeSet<u64>,
    /// First session of the round, and bytes it had to move.
    pub round: (usize, u64),
    /// The last read log, with the disk's change number.
    pub log_seen: Option<(u64, BTreeMap<RelPath, dray_core::SummedRanges>)>,
    /// True if the host crashed under durability none: all data may be lost.
    pub is_forgotten: bool,
    /// Number of kills to get a partial file to tamper with.
    pub kills_for_tampering: u32,
    /// True if the full disk was already counted as a fault.
    pub is_full_counted: bool,
    planned: usize,
    rounds: usize,
    /// Set if a session must begin while another runs.
    pub wants_takeover: bool,
    /// Service times, in timed worlds.
    pub timing: Option<Timing>,
}

impl World {
    /// Returns the world of a seed.
    ///
    /// # Errors
    /// Never: names are constants.
    pub fn new(seed: u64, mutant: Option<Mutant>, traces: bool) -> Result<Self> {
        let mut draw = Rng::new(seed ^ 0xd1ce_5eed);
        let mut setup = Setup::new(&mut draw);
        let tree = Tree::new(&mut draw, &setup)?;
        let plan = plan(seed, &mut draw);
        // Only verification can detect bit rot.
        setup.options.verify |= plan.iter().any(|planned| planned.fault == Fault::BitRot);
        let mut world = Self {
            mutant,
            plan,
            trace: traces.then(Vec::new),
            ..Self::plain(setup, tree, draw)
        };
        world.populate()?;
        Ok(world)
    }

    fn plain(setup: Setup, tree: Tree, draw: Rng) -> Self {
        Self {
            now: Time::ZERO,
            queue: BinaryHeap::new(),
            number: 0,
            setup,
            tree,
            disk: Rc::default(),
            sessions: Vec::new(),
            boot: 1,
            mutant: None,
            plan: VecDeque::new(),
            coverage: Coverage::default(),
            violation: None,
            trace: None,
            events: 0,
            blocked: BTreeSet::new(),
            is_unbounded: false,
            rotten: BTreeSet::new(),
            round: (0, 0),
            log_seen: None,
            planned: usize::MAX,
            rounds: 0,
            is_full_counted: false,
            kills_for_tampering: 0,
            is_forgotten: false,
            wants_takeover: false,
            timing: None,
            draw,
        }
    }

    /// Returns a world without faults, for this tree and with service times.
    #[must_use]
    pub fn timed(setup: Setup, tree: Tree, timing: Timing) -> Self {
        Self {
            timing: Some(timing),
            ..Self::plain(setup, tree, Rng::new(1))
        }
    }

    /// Makes entries at the destination before the first run.
    fn populate(&mut self) -> Result<()> {
        let files: Vec<_> = self
            .tree
            .files()
            .map(|(path, file)| (path.clone(), file.clone()))
            .collect();
        let mut disk = self.disk.borrow_mut();
        for (path, file) in files {
            if !path.parent().is_some_and(|folder| folder.is_root()) {
                continue;
            }
            match self.draw.below(24) {
                0 => {
                    let inode = disk.create()?;
                    disk.write(inode, 0, &file.bytes)?;
                    disk.put_name(&path, Node::File(inode, metadata(file.modified)))?;
                }
                1 => {
                    let inode = disk.create()?;
                    disk.write(inode, 0, b"older")?;
                    let modified = self.tree.tick();
                    let versions = self.tree.versions.entry(path.clone()).or_default();
                    versions.insert(modified, b"older".to_vec());
                    disk.put_name(&path, Node::File(inode, metadata(modified)))?;
                }
                2 => {
                    disk.put_name(&path, Node::Directory(metadata(file.modified)))?;
                    self.blocked.insert(path);
                }
                _ => {}
            }
        }
        disk.settle();
        Ok(())
    }

    /// Runs until the transfer is done and no fault is left, or a promise is broken.
    #[must_use]
    pub fn run(mut self) -> Report {
        self.begin_round();
        while self.violation.is_none() {
            if self.sessions.len() >= SESSIONS_MAX {
                self.violate("session_ends", "too many sessions".into());
                break;
            }
            // Corrupted data causes one more failure, when it is read back.
            let is_clean =
                self.plan.is_empty() && self.disk.borrow().fuse.is_none() && self.rotten.is_empty();
            self.is_forgotten = false;
            self.begin_session();
            self.run_sessions();
            if self.violation.is_some() {
                break;
            }
            let done = self.sessions.last().and_then(Session::done);
            if done.is_some() {
                self.rotten.clear();
            }
            let is_complete = done.is_some_and(|failed| failed <= self.blocked.len() as u64)
                && !std::mem::take(&mut self.is_forgotten);
            if is_complete {
                self.check_final();
                self.check_bound();
                self.plan_more();
                if self.plan.is_empty() {
                    break;
                }
                self.next_round();
            } else if is_clean && self.plan.is_empty() {
                let ends: Vec<_> = self
                    .sessions
                    .last()
                    .map(|s| (s.source_end.clone(), s.sink_end.clone()))
                    .into_iter()
                    .collect();
                self.violate("session_ends", format!("without a fault: {ends:?}"));
            }
        }
        Report {
            violation: self.violation,
            coverage: self.coverage,
            sessions: self.sessions.len(),
            events: self.events,
            trace: self.trace.unwrap_or_default(),
        }
    }

    /// Plans two certain faults for a world whose faults missed their moments: sessions with
    /// nothing to do end after a few events.
    fn plan_more(&mut self) {
        let is_thin = self.plan.is_empty() && self.coverage.total() < FAULTS_MIN;
        if !is_thin || self.rounds >= 2 * ROUNDS_MAX {
            return;
        }
        self.planned = usize::MAX;
        for fault in [Fault::ConnectionLost, Fault::StreamLost] {
            self.plan.push_back(Planned {
                fault,
                phase: Phase::Listing,
                after: self.draw.below(3),
            });
        }
    }

    /// Runs one session of a world without faults.
    ///
    /// # Errors
    /// The broken promise, if any, or that the session did not end.
    pub fn run_timed(mut self) -> std::result::Result<Option<Timing>, Violation> {
        self.begin_round();
        self.begin_session();
        self.run_sessions();
        if self.violation.is_none() && self.sessions.last().and_then(Session::done) != Some(0) {
            self.violate("session_ends", "not everything arrived".into());
        }
        match self.violation {
            Some(violation) => Err(violation),
            None => Ok(self.timing),
        }
    }

    fn begin_round(&mut self) {
        let disk = self.disk.borrow();
        // A file rewritten with the same bytes has another time, and is sent.
        let stands = |path: &RelPath, file: &SourceFile| match disk.look(path) {
            Some(Node::File(inode, attributes)) => {
                attributes.modified == file.modified && disk.bytes(*inode) == file.bytes
            }
            _ => false,
        };
        let always = self.setup.options.overwrite == Overwrite::Always;
        let needed = self
            .tree
            .files()
            .filter(|(path, file)| always || !stands(path, file))
            .map(|(_, file)| file.bytes.len() as u64)
            .sum();
        drop(disk);
        self.round = (self.sessions.len(), needed);
        self.is_unbounded = always;
    }

    /// Changes the source's tree, and begins another round of the same command.
    fn next_round(&mut self) {
        self.rounds += 1;
        if self.plan.len() >= self.planned {
            // Its moment does not come in this world.
            self.plan.pop_front();
        }
        if self.rounds > ROUNDS_MAX && self.planned != usize::MAX {
            self.plan.clear();
        }
        self.planned = self.plan.len();
        let files: Vec<_> = self
            .tree
            .files()
            .map(|(path, file)| (path.clone(), file.bytes.len() as u64))
            .collect();
        for (path, size) in files {
            if !chance(&mut self.draw, 60) {
                continue;
            }
            let size = size + self.draw.below(3);
            let (setup, draw) = (&self.setup, &mut self.draw);
            self.tree.put_file(draw, setup, &path, size, 0);
            let mut disk = self.disk.borrow_mut();
            if matches!(disk.look(&path), Some(Node::File(..)))
                && self.setup.options.overwrite == Overwrite::Never
            {
                let _ = disk.remove_name(&path);
            }
        }
        self.disk.borrow_mut().settle();
        self.begin_round();
    }

    /// Starts a session: the same request against the present destination.
    pub fn begin_session(&mut self) {
        if chance(&mut self.draw, 10) {
            // Another kind of store, or another configuration, than before.
            self.setup.ordered_window = match self.setup.ordered_window {
                Some(_) => None,
                None => Some(1 + self.draw.below(6) as u32),
            };
        }
        self.disk.borrow_mut().trouble = crate::disk::Trouble::default();
        self.tamper_if_planned();
        let number = self.sessions.len();
        let host = loop {
            let draw = Rng::new(self.draw.next());
            let host = SinkHost::open(
                &self.disk,
                &self.setup,
                number,
                self.boot,
                self.mutant,
                draw,
            );
            match host {
                Ok(host) => break host,
                Err(_) if self.disk.borrow().is_dead => self.crash_host(),
                Err(error) => {
                    self.violate("session_ends", format!("the sink cannot start: {error}"));
                    return;
                }
            }
        };
        let source_host = SourceHost::new(&self.tree, self.setup.buffers, self.setup.segments_max);
        let mut session = Session::new(&self.setup, source_host, host, self.draw.next());
        if let Some(Mutant::Machine(mutant)) = self.mutant {
            session.source.plant(mutant);
            session.sink.plant(mutant);
        }
        self.sessions.push(session);
        self.say(|| format!("session {number} begins"));
        for stream in 0..self.setup.streams {
            self.open_stream(number, Duration::from_micros(u64::from(stream) * 30));
        }
        self.after(
            number,
            Duration::ZERO,
            Event::Sink(sink::Input::PeerUp(PEER)),
        );
        let begins = Event::Source(source::Input::Tick);
        self.after(number, Duration::ZERO, begins);
    }

    /// Plans the start of a new stream after a delay.
    pub fn open_stream(&mut self, session: usize, wait: Duration) {
        let link = &mut self.sessions[session].link;
        let id = link.next_stream;
        link.next_stream += 1;
        link.streams.insert(id, crate::link::Stream::default());
        let up = Event::Source(source::Input::StreamUp(StreamId(id)));
        self.after(session, wait, up);
    }

    fn run_sessions(&mut self) {
        let first_event = self.events;
        while self.violation.is_none() {
            if self.sessions.iter().all(Session::is_over) {
                break;
            }
            let Some(Reverse(next)) = self.queue.pop() else {
                self.say_stuck();
                self.violate("session_ends", "nothing will ever happen again".into());
                break;
            };
            if self.events - first_event > EVENTS_MAX {
                self.say_stuck();
                self.violate("session_ends", "it never ends".into());
                break;
            }
            self.events += 1;
            self.now = self.now.max(next.at);
            self.happen(next.session, next.event);
            self.inject(next.session);
            if std::mem::take(&mut self.wants_takeover) {
                self.begin_session();
            }
        }
        self.queue.clear();
    }

    /// Adds both machines of the sessions that have not ended to the trace, for debugging.
    fn say_stuck(&mut self) {
        for at in 0..self.sessions.len() {
            if self.trace.is_some() && !self.sessions[at].is_over() {
                let session = &self.sessions[at];
                let words = format!("{at} {:#?}\n{:#?}", session.source, session.sink);
                self.say(|| words);
            }
        }
    }

    /// Plans an event after a delay.
    pub fn after(&mut self, session: usize, wait: Duration, event: Event) {
        self.at(session, self.now + wait, event);
    }

    /// Plans an event at a time.
    pub fn at(&mut self, session: usize, at: Time, event: Event) {
        self.number += 1;
        self.queue.push(Reverse(Scheduled {
            at,
            number: self.number,
            session,
            event,
        }));
    }

    /// Returns a random delay between `low` and `high` microseconds.
    pub fn delay(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_micros(low + self.draw.below(high - low))
    }

    /// Returns the arrival time of a control message sent now. A profile takes the shortest time
    /// and no random draw, so that it does not change later events.
    pub fn arrival(&mut self, message: &Message) -> Time {
        self.now
            + match message {
                Message::Profile(_) => Duration::from_micros(100),
                _ => self.delay(100, 1500),
            }
    }

    /// Records the first broken promise.
    pub fn violate(&mut self, checker: &'static str, detail: String) {
        self.say(|| format!("VIOLATION {checker}: {detail}"));
        if self.violation.is_none() {
            self.violation = Some(Violation { checker, detail });
        }
    }

    /// Adds a line to the trace, if there is one.
    pub fn say(&mut self, words: impl FnOnce() -> String) {
        let micros = self.now.as_nanos() / 1000;
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{micros:>9} {}", words()));
        }
    }

    /// Returns true under durability none: then a crash of the host may lose any data.
    #[must_use]
    pub fn is_weak(&self) -> bool {
        self.setup.options.durability == Durability::None
    }

    /// Counts a fault.
    pub fn hit(&mut self, session: usize, fault: Fault) {
        let phase = self.sessions[session].phase();
        self.say(|| format!("{session} FAULT {} while {phase:?}", fault.words()));
        self.coverage.hit(fault, phase);
        let is_bounded = matches!(
            fault,
            Fault::SinkCrash
                | Fault::SinkKill
                | Fault::SourceKill
                | Fault::ConnectionLost
                | Fault::StreamLost
                | Fault::CorruptPayload
                | Fault::CorruptHead
                | Fault::Duplicate
                | Fault::Stall
        );
        self.is_unbounded |= !is_bounded;
    }
}
