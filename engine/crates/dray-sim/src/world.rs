//! A world: one destination, all sessions that write to it, the virtual time, and the faults.

use crate::disk::{Node, SharedDisk};
use crate::event::{Event, Scheduled};
use crate::faults::{Coverage, FAULTS_MIN, Fault, Phase, Planned, plan};
use crate::mutants::Mutant;
use crate::session::Session;
use crate::sink_host::SinkHost;
use crate::source_host::SourceHost;
use crate::timing::Timing;
use crate::workload::{Setup, SourceFile, Tree, chance, metadata};
use dray_core::options::{Durability, Overwrite};
use dray_core::{LogForm, PeerId, RelPath, Result, StreamId, Time};
use dray_sched::rng::Rng;
use dray_session::{sink, source};
use dray_wire::message::Message;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::time::Duration;

/// Maximum number of events in a session. A session with more events counts as hanging.
const EVENTS_MAX: u64 = 200_000;

/// Maximum number of sessions in a world with few faults. A world with more sessions counts as
/// endless.
const SESSIONS_MAX: usize = 40;

/// Number of sessions that each fault above [`FAULTS_MIN`] adds to [`SESSIONS_MAX`].
const SESSIONS_PER_FAULT: u64 = 4;

/// Maximum number of rounds in a world. A round repeats the same command until all files have
/// arrived. Planned faults that have not occurred after the last round are dropped.
const ROUNDS_MAX: usize = 8;

/// Peer id of the single source of a session.
pub const PEER: PeerId = PeerId(0);

/// A violation of one of the promises in docs/design, which a checker has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Name of the checker that found the violation.
    pub checker: &'static str,
    /// Details of the violation.
    pub detail: String,
}

/// Options of a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct RunOptions {
    /// Planted defect, if any.
    pub mutant: Option<Mutant>,
    /// True if the report must contain a trace.
    pub traces: bool,
    /// Number of faults that must occur. `None` for three to six planned faults, of which at least
    /// [`FAULTS_MIN`] must occur.
    pub faults: Option<u64>,
}

/// Results of running one seed.
#[derive(Debug)]
pub struct Report {
    /// Form of the log.
    pub log_form: LogForm,
    /// The broken promise, if any.
    pub violation: Option<Violation>,
    /// Faults that occurred.
    pub coverage: Coverage,
    /// Number of sessions.
    pub sessions: usize,
    /// Number of events.
    pub events: u64,
    /// Trace of the run. Empty unless it was requested.
    pub trace: Vec<String>,
}

/// A simulated destination, with all sessions that write to it and all planned faults.
pub struct World {
    /// Virtual time.
    pub now: Time,
    queue: BinaryHeap<Reverse<Scheduled>>,
    number: u64,
    /// Generator of all random numbers.
    pub draw: Rng,
    /// Configuration.
    pub setup: Setup,
    /// The source's tree.
    pub tree: Tree,
    /// The sink's disk.
    pub disk: SharedDisk,
    /// All sessions so far. All but the last few have ended.
    pub sessions: Vec<Session>,
    /// Number of times that the sink's host has booted.
    pub boot: u64,
    /// Planted defect, if any.
    pub mutant: Option<Mutant>,
    /// Faults that have not occurred yet.
    pub plan: VecDeque<Planned>,
    /// Faults that occurred.
    pub coverage: Coverage,
    /// The first broken promise.
    pub violation: Option<Violation>,
    /// Trace of the run, if requested.
    pub trace: Option<Vec<String>>,
    events: u64,
    /// Paths at which a folder exists where a file is expected.
    pub blocked: BTreeSet<RelPath>,
    /// True if a fault of this round may cause more bytes to be sent again than the pool and the
    /// sync group contain. A round is one request of the transfer, until all its files have
    /// arrived.
    pub is_unbounded: bool,
    /// Inodes with corrupted bytes. No session can detect the corruption before it reads the bytes
    /// back.
    pub rotten: BTreeSet<u64>,
    /// First session of the round, and the number of bytes that the round had to move.
    pub round: (usize, u64),
    /// Content of the log when it was last read, with the number of the latest disk change at that
    /// time.
    pub log_seen: Option<(u64, BTreeMap<RelPath, dray_core::SummedRanges>)>,
    /// True if the host has crashed with durability none, so that all data may be lost.
    pub is_forgotten: bool,
    /// Number of times that the sink was killed to leave a partial file for [`Fault::Tampered`].
    pub kills_for_tampering: u32,
    /// True if the full disk has already been counted as a fault.
    pub is_full_counted: bool,
    /// Number of faults that must occur.
    faults_min: u64,
    planned: usize,
    rounds: usize,
    /// True if another session must begin while this one runs.
    pub wants_takeover: bool,
    /// Service times. `None` for a world with random delays.
    pub timing: Option<Timing>,
}

impl World {
    /// Creates the world of a seed.
    ///
    /// # Errors
    /// Never: all names that this function builds are valid.
    pub fn new(seed: u64, options: &RunOptions) -> Result<Self> {
        let (mutant, faults) = (options.mutant, options.faults);
        let mut draw = Rng::new(seed ^ 0xd1ce_5eed);
        let mut setup = Setup::new(&mut draw);
        if let Some(mechanism) = mutant.and_then(Mutant::mechanism) {
            setup.log_form.mechanism = mechanism;
        }
        let tree = Tree::new(&mut draw, &setup)?;
        let plan = plan(seed, faults, &mut draw);
        // Enable verification if bit rot is planned, because only verification can detect it.
        setup.options.verify |= plan.iter().any(|planned| planned.fault == Fault::BitRot);
        let mut world = Self {
            mutant,
            plan,
            faults_min: faults.unwrap_or(FAULTS_MIN).max(FAULTS_MIN),
            trace: options.traces.then(Vec::new),
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
            disk: SharedDisk::default(),
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
            faults_min: FAULTS_MIN,
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

    /// Creates a world without faults, with this tree and with service times.
    #[must_use]
    pub fn timed(setup: Setup, tree: Tree, timing: Timing) -> Self {
        Self {
            timing: Some(timing),
            ..Self::plain(setup, tree, Rng::new(1))
        }
    }

    /// Creates entries at the destination before the first run.
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

    /// Runs sessions until the transfer is done and all planned faults have occurred, or until a
    /// checker finds a violation.
    #[must_use]
    pub fn run(mut self) -> Report {
        self.begin_round();
        while self.violation.is_none() {
            let more = SESSIONS_PER_FAULT * (self.faults_min - FAULTS_MIN);
            if self.sessions.len() >= SESSIONS_MAX + more as usize {
                self.violate("session_ends", "too many sessions".into());
                break;
            }
            // A corrupted inode causes one more failure, when a session reads the file back. So a
            // session is clean only if no inode is corrupted.
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
                self.violate(
                    "session_ends",
                    format!("a session failed without a fault: {ends:?}"),
                );
            }
        }
        Report {
            violation: self.violation,
            log_form: self.setup.log_form,
            coverage: self.coverage,
            sessions: self.sessions.len(),
            events: self.events,
            trace: self.trace.unwrap_or_default(),
        }
    }

    /// Plans more faults if too few have occurred. This happens if the planned faults miss their
    /// phases, because a session without work ends after a few events.
    fn plan_more(&mut self) {
        let missing = self.faults_min.saturating_sub(self.coverage.total());
        if !self.plan.is_empty() || missing == 0 || self.rounds >= 2 * ROUNDS_MAX {
            return;
        }
        self.planned = usize::MAX;
        if missing > 2 && self.rounds < ROUNDS_MAX {
            let seed = self.draw.next();
            self.plan = plan(seed, Some(missing), &mut self.draw);
            let has_rot = self
                .plan
                .iter()
                .any(|planned| planned.fault == Fault::BitRot);
            self.setup.options.verify |= has_rot;
            return;
        }
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
    /// The first broken promise of docs/design, or a violation which says that the session did not
    /// end.
    pub fn run_timed(mut self) -> std::result::Result<Option<Timing>, Violation> {
        self.begin_round();
        self.begin_session();
        self.run_sessions();
        if self.violation.is_none() && self.sessions.last().and_then(Session::done) != Some(0) {
            self.violate(
                "session_ends",
                "some files did not arrive at the destination".into(),
            );
        }
        match self.violation {
            Some(violation) => Err(violation),
            None => Ok(self.timing),
        }
    }

    fn begin_round(&mut self) {
        let disk = self.disk.borrow();
        // A file that was rewritten with equal bytes has a different time, so it is sent again.
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

    /// Changes the tree of the source, and begins another round of the same command.
    fn next_round(&mut self) {
        self.rounds += 1;
        if self.plan.len() >= self.planned {
            // No session reaches the phase for which the fault was planned, so drop it.
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

    /// Starts a session with the same request and the current destination.
    pub fn begin_session(&mut self) {
        if chance(&mut self.draw, 10) {
            // Change the kind of the sink's store, so that a session resumes the files of a
            // different store.
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

    /// Schedules a new stream after a delay.
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
                self.violate(
                    "session_ends",
                    "the run stopped, because neither end has a pending event".into(),
                );
                break;
            };
            if self.events - first_event > EVENTS_MAX {
                self.say_stuck();
                self.violate(
                    "session_ends",
                    "the run did not end before the step limit".into(),
                );
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

    /// Adds the state of both machines of each running session to the trace.
    fn say_stuck(&mut self) {
        for at in 0..self.sessions.len() {
            if self.trace.is_some() && !self.sessions[at].is_over() {
                let session = &self.sessions[at];
                let words = format!("{at} {:#?}\n{:#?}", session.source, session.sink);
                self.say(|| words);
            }
        }
    }

    /// Schedules an event after a delay.
    pub fn after(&mut self, session: usize, wait: Duration, event: Event) {
        self.at(session, self.now + wait, event);
    }

    /// Schedules an event at a time.
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

    /// Returns the arrival time of a control message that is sent now. A profile has a fixed delay
    /// and uses no random number, so that a profile changes no later event.
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

    /// Returns true for durability none, with which a crash of the host may lose any data.
    #[must_use]
    pub fn is_weak(&self) -> bool {
        self.setup.options.durability == Durability::None
    }

    /// Counts a fault in the current phase of the session.
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
