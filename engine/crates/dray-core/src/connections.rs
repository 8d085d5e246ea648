//! Assigns calls to several connections to one server. Implements the two policies of the published
//! system Mulconn (docs/design/throughput.md), and the choice between them.
//!
//! Most servers use one thread per connection. So several connections can have more throughput than
//! one connection (Mulconn, chapter 4: six times for writes, three times for reads). With the
//! policy *thread to single*, each client thread has its own connection. A single server thread
//! then does all operations of that client thread, so no other server thread waits for the lock of
//! the file. With the policy *thread to multiple*, each call uses the next connection. Mulconn uses
//! *thread to single* for writes and *thread to multiple* for reads.
//!
//! The switchboard starts with Mulconn's rule and differs from it in four points:
//!
//! - If there are fewer threads than connections, *thread to single* would leave connections idle.
//!   In this case writes use *thread to multiple*, as reads do.
//! - A thread that waits for each answer has only one open call under either policy. The calls of
//!   such a thread are cut into pieces, and the pieces use several connections concurrently.
//! - The next connection is the connection with the least load. A connection several times slower
//!   than the median is used only for probes. dray treats slow storage targets in the same way.
//! - The switchboard compares the current setting with similar settings at run time ([`Choice`]),
//!   because a client cannot see the locks of a server.
//!
//! This module does not use sockets, wait, or open connections (`dray_store::connections` does).
//! The module is in this crate because stores use it, and stores may depend only on this crate.
//!
//! Invariants:
//!
//! - A connection never has more open calls than its depth.
//! - A call gets a connection if the policy permits a connection that has capacity.
//! - A slow connection is still used from time to time, unless it is down. So its measured time
//!   stays up to date.

mod choice;

use crate::Time;
use crate::time::nanos;
use std::collections::BTreeMap;
use std::time::Duration;

pub use choice::{Choice, Setting};

/// Maximum number of connections of one switchboard; a higher number is reduced to it. The limit
/// leaves threads of the server to other clients. The value is estimated, not measured.
pub const CONNECTIONS_MAX: usize = 64;

/// Maximum number of threads that the switchboard distinguishes. Beyond the limit it forgets the
/// thread seen least recently.
const CALLERS_MAX: usize = 1024;

/// A connection is slow if it takes at least this multiple of the median time. Storage targets use
/// the same limit (`dray_sched::congestion`).
const SLOW_TIMES: u64 = 3;

/// Each call contributes 1/`WEIGHT` to the moving average of the times of its connection. The
/// averages of storage targets use the same weight.
const WEIGHT: u64 = 4;

/// Number of calls for which a free connection may be passed over. After this number of calls, the
/// connection gets the next call, because the time that was measured for this connection is out of
/// date. The value is estimated, not measured.
const PASSED_MAX: u32 = 64;

/// Minimum number of bytes in a piece of a call, because each piece costs one request. The value is
/// estimated, not measured.
pub const PIECE_BYTES_MIN: u64 = 32 * 1024;

/// Time for which a connection is not used after its first failure. The time doubles with each
/// consecutive failure, up to [`DOWN_MAX`].
const DOWN_MIN: Duration = Duration::from_secs(1);
/// Maximum time for which a broken connection is not used.
const DOWN_MAX: Duration = Duration::from_secs(30);

/// Mapping of threads to connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mapping {
    /// Each thread has its own connection for all its calls.
    ThreadToSingle,
    /// Each call takes the next connection.
    ThreadToMultiple,
}

/// Direction in which a call moves bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From the server to the client.
    Read,
    /// From the client to the server.
    Write,
}

/// Kind of calls. The switchboard chooses a setting for each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flow {
    /// Direction of the calls.
    pub direction: Direction,
    /// True if a thread waits for each answer before its next call. Examples are a read that is
    /// needed now, and a write that must be durable. False if a thread can have several open calls.
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

/// Says who chooses the mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rule {
    /// The switchboard chooses the mapping.
    #[default]
    Automatic,
    /// The mapping is fixed. Used for measurements.
    Always(Mapping),
}

#[derive(Debug, Clone, Default)]
struct Line {
    calls: u32,
    bytes: u64,
    /// Average nanoseconds per 4 KiB. The time that a call waits behind earlier calls is not
    /// counted.
    page: Option<u64>,
    /// End of the last call on this connection.
    ended: Time,
    passed: u32,
    /// Set while the connection is broken: the end of the pause before the next try, and the number
    /// of consecutive failures.
    down: Option<(Time, u32)>,
}

/// A call that needs a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// The calling thread, as passed to [`Switchboard::enter`].
    pub caller: u64,
    /// Kind of this call.
    pub flow: Flow,
    /// Number of bytes that the call moves.
    pub bytes: u64,
    /// Maximum number of pieces. Each piece has at least [`PIECE_BYTES_MIN`] bytes.
    pub pieces_max: usize,
}

/// A slot for a call on one connection. [`Switchboard::ended`] frees the slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Index of the connection, from 0.
    pub connection: usize,
    /// Number of bytes that move in this slot.
    pub bytes: u64,
    began: Time,
}

/// Result of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The call moved its bytes.
    Carried,
    /// The call failed, but not because of the connection. The switchboard records no measurement.
    Failed,
    /// The connection is broken. The switchboard does not use it for the time [`DOWN_MIN`] or
    /// longer.
    Broken,
}

#[derive(Debug, Clone, Copy)]
struct Caller {
    home: usize,
    seen: Time,
}

/// Assigns calls to connections. The caller passes the current time as an argument.
#[derive(Debug)]
pub struct Switchboard {
    lines: Vec<Line>,
    depth: u32,
    rule: Rule,
    callers: BTreeMap<u64, Caller>,
    choices: [Choice; Flow::COUNT],
    /// Index of the connection at which the next search starts.
    turn: usize,
}

impl Switchboard {
    /// Creates a switchboard for `connections` (1 to [`CONNECTIONS_MAX`]), with at most `depth`
    /// open calls on each.
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

    /// Records that a thread starts a call. The thread counts as active until
    /// [`Switchboard::leave`].
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

    /// Records that a thread is no longer in a call. The call was answered, or, for a thread that
    /// does not wait for answers, accepted.
    pub fn leave(&mut self, caller: u64, flow: Flow, now: Time) {
        self.choices[flow.index()].leave(caller, now);
    }

    /// Returns the current setting for calls of one kind.
    #[must_use]
    pub fn setting(&self, flow: Flow) -> Setting {
        match self.rule {
            Rule::Automatic => self.choices[flow.index()].setting(),
            Rule::Always(mapping) => Setting { mapping, pieces: 1 },
        }
    }

    /// Takes one slot for each piece of a call. Returns an empty list if the call must wait until
    /// another call ends. A call takes all its slots in one step. Otherwise two calls that each
    /// hold some slots could wait forever for the slots of the other call.
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

    /// Records the end of a call and frees its slot.
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

    /// Records that a connection was lost or could not be opened. The switchboard does not use the
    /// connection for at least the time `DOWN_MIN`.
    pub fn broke(&mut self, connection: usize, now: Time) {
        let line = &mut self.lines[connection];
        // Calls that were open when the connection broke fail one after the other. Count these
        // calls as one failure of the connection.
        if line.down.is_some_and(|(until, _)| now < until) {
            return;
        }
        let times = line.down.map_or(0, |(_, times)| times);
        let wait = DOWN_MIN.saturating_mul(1 << times.min(5)).min(DOWN_MAX);
        line.down = Some((now + wait, times.saturating_add(1)));
        line.page = None;
    }

    /// Returns true if a connection is not used because it broke.
    #[must_use]
    pub fn is_down(&self, connection: usize, now: Time) -> bool {
        let down = self.lines.get(connection).and_then(|line| line.down);
        down.is_some_and(|(until, _)| now < until)
    }

    /// Returns the number of connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.lines.len()
    }

    /// Returns the number of threads that the switchboard knows, at most 1024.
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

    /// Returns true if a thread must not use its own connection now. A slow connection gets one
    /// call at a time.
    fn is_shunned(&self, at: usize, now: Time) -> bool {
        let line = &self.lines[at];
        self.is_down(at, now) || (line.calls > 0 && line.slowness(self.usual()) > 1)
    }

    /// Returns the connection with the shortest wait. Connections with equal waits are used in
    /// turn.
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
        // If all connections are down, use the connection whose pause ends first. The caller then
        // gets the error of that connection.
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

    /// Returns the nanoseconds per 4 KiB of the median connection. For an even number of measured
    /// connections, this is the lower of the two middle values.
    fn usual(&self) -> Option<u64> {
        let mut pages: Vec<u64> = self.lines.iter().filter_map(|line| line.page).collect();
        pages.sort_unstable();
        let middle = pages.len().checked_sub(1)? / 2;
        pages.get(middle).copied()
    }
}

impl Line {
    fn learn(&mut self, place: Place, now: Time) {
        // The server did not start this call before the previous call on the connection ended.
        let took = nanos(now.since(place.began.max(self.ended)));
        self.ended = now;
        let page = u128::from(took) * 4096 / u128::from(place.bytes.max(1));
        let page = u64::try_from(page).unwrap_or(u64::MAX).max(1);
        self.page = Some(match self.page {
            Some(old) => old - old / WEIGHT + page / WEIGHT,
            None => page,
        });
    }

    /// Returns how many times the median this connection's time per page is, if the connection is
    /// slow. Otherwise returns 1.
    fn slowness(&self, usual: Option<u64>) -> u64 {
        let times = self.page.zip(usual).map(|(own, usual)| own / usual.max(1));
        times.filter(|times| *times >= SLOW_TIMES).unwrap_or(1)
    }
}

#[cfg(test)]
mod tests;
