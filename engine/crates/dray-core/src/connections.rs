//! Which of several connections to one server carries a call: Mulconn's two policies, and the choice
//! between them.
//!
//! One connection is served by one thread at most servers, so one carries what a thread can serve and
//! several carry more (Mulconn, chapter 4: six times for writes, three times for reads). *Thread to
//! single* gives each thread a connection of its own: what a thread does to its file, one thread of the
//! server does, and nobody waits for the file's lock there. *Thread to multiple* gives each call the
//! next connection. Mulconn's rule is the first for writes and the second for reads.
//!
//! Ours begins with that rule and departs from it in four things. With fewer threads than connections
//! the first leaves connections idle, so the second is taken for writes too. A thread that waits for
//! each answer has one call open whatever the policy, so its calls are cut into pieces that go at once.
//! The next connection is the one with the least on it; one that is several times slower than the
//! others is left alone, but for a probe, as slow storage targets are. And what was chosen is compared
//! with its neighbours as it runs ([`Choice`]): locks of a server are nothing a client can see.
//!
//! Non-goals: sockets, waiting, opening: that is `dray_store::Connections`. It is here and not with the
//! other decisions because a store may use it, and stores see this crate only.
//!
//! Invariants: a connection never has more calls open than its depth; with one whose turn it is there is
//! always an answer, and every connection that is up is tried again and again.

mod choice;

use crate::Time;
use crate::time::nanos;
use std::collections::BTreeMap;
use std::time::Duration;

pub use choice::{Choice, Setting};

/// Most connections of one switchboard: a server's threads are shared with others (guess, revisit).
pub const CONNECTIONS_MAX: usize = 64;

/// Most threads that are told apart; beyond it the one that was seen least lately is forgotten.
const CALLERS_MAX: usize = 1024;

/// So many times slower than the median connection is slow, as of storage targets
/// (`dray_sched::congestion`).
const SLOW_TIMES: u64 = 3;

/// What one call weighs in the average of a connection, as of storage targets.
const WEIGHT: u64 = 4;

/// A connection that was passed over so often gets the next call, if it is free: what is known of it is
/// old (guess, revisit).
const PASSED_MAX: u32 = 64;

/// A call is not cut into smaller pieces: each costs a request (guess, revisit).
pub const PIECE_BYTES_MIN: u64 = 32 * 1024;

/// How long a connection that broke is left alone: at first, and at the most.
const DOWN_MIN: Duration = Duration::from_secs(1);
const DOWN_MAX: Duration = Duration::from_secs(30);

/// How threads and connections belong to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mapping {
    /// Each thread has a connection, and keeps it.
    ThreadToSingle,
    /// Each call takes the connection whose turn it is.
    ThreadToMultiple,
}

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From the server.
    Read,
    /// To the server.
    Write,
}

/// Calls of one kind. Each kind has a choice of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flow {
    /// Which way.
    pub direction: Direction,
    /// Whether a thread waits for the answer to one before it makes the next: a read that is needed now,
    /// a write that has to be durable. Else it has several open.
    pub waits: bool,
}

impl Flow {
    const COUNT: usize = 4;

    const fn index(self) -> usize {
        match (self.direction, self.waits) {
            (Direction::Read, true) => 0,
            (Direction::Read, false) => 1,
            (Direction::Write, true) => 2,
            (Direction::Write, false) => 3,
        }
    }
}

/// Who decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rule {
    /// The switchboard does.
    #[default]
    Automatic,
    /// Always this one, for measurements.
    Always(Mapping),
}

/// What is known of one connection.
#[derive(Debug, Clone, Default)]
struct Line {
    calls: u32,
    bytes: u64,
    /// Nanoseconds for 4 KiB, while it did nothing else.
    page: Option<u64>,
    /// When its last call ended.
    ended: Time,
    passed: u32,
    /// Broken, and not to be asked before; how often in a row.
    down: Option<(Time, u32)>,
}

/// A call that asks for a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// The thread that makes it, as it was told by [`Switchboard::enter`].
    pub caller: u64,
    /// Of which kind it is.
    pub flow: Flow,
    /// Bytes it is to move.
    pub bytes: u64,
    /// Into how many pieces it may be cut, each of at least [`PIECE_BYTES_MIN`].
    pub pieces_max: usize,
}

/// A call's place on a connection, until [`Switchboard::ended`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Which connection, from 0.
    pub connection: usize,
    /// Bytes it was taken for.
    pub bytes: u64,
    began: Time,
}

/// How a call came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It moved its bytes.
    Carried,
    /// It failed for a reason of its own: nothing is learned.
    Failed,
    /// The connection is broken: others are asked for a while.
    Broken,
}

#[derive(Debug, Clone, Copy)]
struct Caller {
    home: usize,
    seen: Time,
}

/// Which connection carries which call. The time is passed in.
#[derive(Debug)]
pub struct Switchboard {
    lines: Vec<Line>,
    depth: u32,
    rule: Rule,
    callers: BTreeMap<u64, Caller>,
    choices: [Choice; Flow::COUNT],
    /// Where the next turn begins.
    turn: usize,
}

impl Switchboard {
    /// One of `connections` (1 to [`CONNECTIONS_MAX`]), with at most `depth` calls open on each.
    #[must_use]
    pub fn new(connections: usize, depth: u32, rule: Rule) -> Self {
        let connections = connections.clamp(1, CONNECTIONS_MAX);
        let choice = |direction, waits| Choice::new(Flow { direction, waits }, connections);
        Self {
            lines: vec![Line::default(); connections],
            depth: depth.max(1),
            rule,
            callers: BTreeMap::new(),
            choices: [
                choice(Direction::Read, true),
                choice(Direction::Read, false),
                choice(Direction::Write, true),
                choice(Direction::Write, false),
            ],
            turn: 0,
        }
    }

    /// A thread comes with a call, and stays until [`Switchboard::leave`].
    pub fn enter(&mut self, caller: u64, flow: Flow, now: Time) {
        if self.callers.len() >= CALLERS_MAX && !self.callers.contains_key(&caller) {
            let oldest = self.callers.iter().min_by_key(|(_, known)| known.seen);
            if let Some(oldest) = oldest.map(|(caller, _)| *caller) {
                self.callers.remove(&oldest);
            }
        }
        match self.callers.get_mut(&caller) {
            Some(known) => known.seen = now,
            None => {
                let home = self.fewest_homes();
                self.callers.insert(caller, Caller { home, seen: now });
            }
        }
        self.choices[flow.index()].enter(caller, now);
    }

    /// The thread has gone: its call was answered, or taken if it does not wait.
    pub fn leave(&mut self, caller: u64, flow: Flow, now: Time) {
        self.choices[flow.index()].leave(caller, now);
    }

    /// What calls of a kind go by now.
    #[must_use]
    pub fn setting(&self, flow: Flow) -> Setting {
        match self.rule {
            Rule::Automatic => self.choices[flow.index()].setting(),
            Rule::Always(mapping) => Setting { mapping, pieces: 1 },
        }
    }

    /// Places for a call, one for each piece; empty when it has to wait until another ends. Pieces are
    /// never waited for one by one: two calls that hold a part each would wait for each other.
    pub fn take(&mut self, call: Call, now: Time) -> Vec<Place> {
        let Call {
            caller,
            flow,
            bytes,
            ..
        } = call;
        let pieces = self.setting(flow).pieces.min(call.pieces_max) as u64;
        let pieces = pieces.min(bytes / PIECE_BYTES_MIN);
        let up = (0..self.lines.len()).filter(|at| !self.is_down(*at, now));
        let free: u32 = up
            .map(|at| self.depth.saturating_sub(self.lines[at].calls))
            .sum();
        let pieces = pieces.min(u64::from(free)).max(1);
        let (each, rest) = (bytes / pieces, bytes % pieces);
        (0..pieces)
            .map_while(|piece| self.take_one(caller, flow, each + u64::from(piece < rest), now))
            .collect()
    }

    fn take_one(&mut self, caller: u64, flow: Flow, bytes: u64, now: Time) -> Option<Place> {
        let home = self.callers.get(&caller).map(|known| known.home);
        let at = match (self.setting(flow).mapping, home) {
            (Mapping::ThreadToSingle, Some(home)) if !self.is_shunned(home, now) => {
                (self.lines[home].calls < self.depth).then_some(home)
            }
            _ => self.next(bytes, now),
        }?;
        for line in &mut self.lines {
            line.passed = line.passed.saturating_add(1);
        }
        self.turn = (at + 1) % self.lines.len();
        let line = &mut self.lines[at];
        line.passed = 0;
        line.calls += 1;
        line.bytes = line.bytes.saturating_add(bytes);
        self.choices[flow.index()].took();
        Some(Place {
            connection: at,
            bytes,
            began: now,
        })
    }

    /// A call has ended; its place is free.
    pub fn ended(&mut self, place: Place, flow: Flow, outcome: Outcome, now: Time) {
        let line = &mut self.lines[place.connection];
        line.calls = line.calls.saturating_sub(1);
        line.bytes = line.bytes.saturating_sub(place.bytes);
        match outcome {
            Outcome::Carried => {
                line.learn(place, now);
                line.down = None;
            }
            Outcome::Failed => {}
            Outcome::Broken => self.broke(place.connection, now),
        }
        let moved = (outcome == Outcome::Carried).then_some(place.bytes);
        self.choices[flow.index()].ended(moved, now);
    }

    /// A connection could not be opened, or was lost: others are asked for a while.
    pub fn broke(&mut self, connection: usize, now: Time) {
        let line = &mut self.lines[connection];
        // Calls that were open when it broke end one after the other, and say it once.
        if line.down.is_some_and(|(until, _)| now < until) {
            return;
        }
        let times = line.down.map_or(0, |(_, times)| times);
        let wait = DOWN_MIN.saturating_mul(1 << times.min(5)).min(DOWN_MAX);
        line.down = Some((now + wait, times.saturating_add(1)));
        line.page = None;
    }

    /// Whether a connection is left alone because it broke.
    #[must_use]
    pub fn is_down(&self, connection: usize, now: Time) -> bool {
        let down = self.lines.get(connection).and_then(|line| line.down);
        down.is_some_and(|(until, _)| now < until)
    }

    /// How many connections there are.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.lines.len()
    }

    /// Threads that were seen, at most 1024.
    #[must_use]
    pub fn callers(&self) -> usize {
        self.callers.len()
    }

    fn fewest_homes(&self) -> usize {
        let mut homes = vec![0_usize; self.lines.len()];
        for caller in self.callers.values() {
            homes[caller.home] += 1;
        }
        (0..homes.len()).min_by_key(|at| homes[*at]).unwrap_or(0)
    }

    /// Whether a thread's own connection is not for it now. A slow one keeps a call at a time.
    fn is_shunned(&self, at: usize, now: Time) -> bool {
        let line = &self.lines[at];
        self.is_down(at, now) || (line.calls > 0 && line.slowness(self.usual()) > 1)
    }

    /// The connection with the least to wait for, in turn among equals.
    fn next(&self, bytes: u64, now: Time) -> Option<usize> {
        let usual = self.usual();
        let count = self.lines.len();
        let free = || {
            (0..count)
                .map(|step| (self.turn + step) % count)
                .filter(|at| self.lines[*at].calls < self.depth)
        };
        let up = || free().filter(|at| !self.is_down(*at, now));
        let probe =
            up().find(|at| self.lines[*at].calls == 0 && self.lines[*at].passed >= PASSED_MAX);
        let weight = |at: &usize| {
            let line = &self.lines[*at];
            let bytes = u128::from(line.bytes) + u128::from(bytes.max(1));
            bytes * u128::from(line.slowness(usual))
        };
        // Where all are down, the one that is down for the shortest time is tried: its error is the answer.
        let least_down = || {
            let is_any_up = (0..count).any(|at| !self.is_down(at, now));
            let until = |at: &usize| self.lines[*at].down.map(|(until, _)| until);
            if is_any_up {
                None
            } else {
                free().min_by_key(until)
            }
        };
        probe
            .or_else(|| up().min_by_key(weight))
            .or_else(least_down)
    }

    /// The median connection's time for 4 KiB: the lower middle of those that are known.
    fn usual(&self) -> Option<u64> {
        let mut pages: Vec<u64> = self.lines.iter().filter_map(|line| line.page).collect();
        pages.sort_unstable();
        let middle = pages.len().checked_sub(1)? / 2;
        pages.get(middle).copied()
    }
}

impl Line {
    fn learn(&mut self, place: Place, now: Time) {
        // Before its predecessor had ended it was not served.
        let took = nanos(now.since(place.began.max(self.ended)));
        self.ended = now;
        let page = u128::from(took) * 4096 / u128::from(place.bytes.max(1));
        let page = u64::try_from(page).unwrap_or(u64::MAX).max(1);
        self.page = Some(match self.page {
            Some(old) => old - old / WEIGHT + page / WEIGHT,
            None => page,
        });
    }

    /// How many times slower than usual, if that is slow; else 1.
    fn slowness(&self, usual: Option<u64>) -> u64 {
        let times = self.page.zip(usual).map(|(own, usual)| own / usual.max(1));
        times.filter(|times| *times >= SLOW_TIMES).unwrap_or(1)
    }
}

#[cfg(test)]
#[path = "connections_tests.rs"]
mod tests;
