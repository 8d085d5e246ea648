//! Simulates threads that call a server over several connections, in virtual time. One server
//! thread serves each connection at a fixed rate and locks the file of a write. The tests check
//! that the setting chosen by the switchboard has as much throughput as the better one of Mulconn's
//! two policies.

use dray_core::Time;
use dray_core::connections::{Call, Direction, Flow, Mapping, Outcome, Place, Rule, Switchboard};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Duration;

const CALL_BYTES: u64 = 256 * 1024;
/// Rate of a connection, in bytes per second.
const RATE: f64 = 8.0 * 1024.0 * 1024.0;
/// Fraction of the service time of a write during which its file is locked.
const LOCKED: f64 = 0.25;
/// Seconds to make a write durable while its file is locked.
const DURABLE: f64 = 0.002;
const DEPTH: u32 = 4;
/// Seconds that are measured.
const SECONDS: f64 = 10.0;
/// Seconds before the measurement, in which the switchboard can find a better setting.
const BEFORE: f64 = 5.0;

#[derive(Debug, Clone, Copy)]
struct Case {
    flow: Flow,
    threads: usize,
    connections: usize,
    /// Factor by which the first connection is slower than the others.
    slow: f64,
    /// True if all threads write to one file.
    is_shared: bool,
    /// Fraction of the service time of a write during which its file is locked.
    locked: f64,
}

#[derive(Debug, Clone, Copy)]
struct Request {
    caller: usize,
    place: Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// A request on this connection locks its file.
    Locks(usize),
    /// A request on this connection is answered.
    Answers(usize),
}

struct World {
    case: Case,
    board: Switchboard,
    now: Time,
    events: BinaryHeap<Reverse<(Time, What)>>,
    queues: Vec<VecDeque<Request>>,
    /// For each file: the connection that holds the lock, and the connections that wait for it.
    locks: BTreeMap<usize, VecDeque<usize>>,
    /// Callers without a slot, in order of arrival.
    waiting: VecDeque<usize>,
    /// Number of pieces that have not ended, for each caller.
    open: Vec<usize>,
    carried: u64,
}

fn seconds(length: f64) -> Duration {
    Duration::from_secs_f64(length)
}

impl World {
    fn new(case: Case, rule: Rule) -> Self {
        Self {
            case,
            board: Switchboard::new(case.connections, DEPTH, rule),
            now: Time::ZERO,
            events: BinaryHeap::new(),
            queues: vec![VecDeque::new(); case.connections],
            locks: BTreeMap::new(),
            waiting: VecDeque::new(),
            open: vec![0; case.threads],
            carried: 0,
        }
    }

    fn is_write(&self) -> bool {
        self.case.flow.direction == Direction::Write
    }

    fn rate(&self, connection: usize) -> f64 {
        if connection == 0 {
            RATE / self.case.slow
        } else {
            RATE
        }
    }

    fn at(&mut self, length: f64, what: What) {
        self.events
            .push(Reverse((self.now + seconds(length), what)));
    }

    fn comes(&mut self, caller: usize) {
        self.board.enter(caller as u64, self.case.flow, self.now);
        self.waiting.push_back(caller);
    }

    /// Gives slots to waiting callers in order of arrival.
    fn seat(&mut self) {
        let mut is_done = false;
        while !is_done {
            let before = std::mem::take(&mut self.waiting);
            let count = before.len();
            let left = before.into_iter().filter(|caller| !self.begins(*caller));
            let left: VecDeque<usize> = left.collect();
            is_done = left.len() == count;
            let again = std::mem::replace(&mut self.waiting, left);
            self.waiting.extend(again);
        }
    }

    fn begins(&mut self, caller: usize) -> bool {
        let flow = self.case.flow;
        let call = Call {
            caller: caller as u64,
            flow,
            bytes: CALL_BYTES,
            pieces_max: usize::MAX,
        };
        let places = self.board.take(call, self.now);
        if places.is_empty() {
            return false;
        }
        for place in places {
            self.open[caller] += 1;
            let queue = &mut self.queues[place.connection];
            queue.push_back(Request { caller, place });
            if queue.len() == 1 {
                self.serve(place.connection);
            }
        }
        if !flow.waits {
            self.board.leave(caller as u64, flow, self.now);
            self.comes(caller);
        }
        true
    }

    fn serve(&mut self, connection: usize) {
        let Some(request) = self.queues[connection].front() else {
            return;
        };
        let length = request.place.bytes as f64 / self.rate(connection);
        if self.is_write() {
            self.at(length * (1.0 - self.case.locked), What::Locks(connection));
        } else {
            self.at(length, What::Answers(connection));
        }
    }

    fn file(&self, connection: usize) -> usize {
        let caller = self.queues[connection]
            .front()
            .map_or(0, |request| request.caller);
        if self.case.is_shared { 0 } else { caller }
    }

    fn locks(&mut self, connection: usize) {
        let queue = self.locks.entry(self.file(connection)).or_default();
        queue.push_back(connection);
        if queue.len() == 1 {
            self.holds(connection);
        }
    }

    fn holds(&mut self, connection: usize) {
        let bytes = self.queues[connection]
            .front()
            .map_or(0, |request| request.place.bytes);
        let durable = if self.case.flow.waits { DURABLE } else { 0.0 };
        let length = bytes as f64 / self.rate(connection) * self.case.locked + durable;
        self.at(length, What::Answers(connection));
    }

    fn answers(&mut self, connection: usize) {
        if self.is_write() {
            let file = self.file(connection);
            let queue = self.locks.get_mut(&file).expect("it is held");
            queue.pop_front();
            if let Some(next) = queue.front().copied() {
                self.holds(next);
            }
        }
        let request = self.queues[connection].pop_front().expect("it was served");
        if self.now > Time::ZERO + seconds(BEFORE) {
            self.carried += request.place.bytes;
        }
        let flow = self.case.flow;
        self.board
            .ended(request.place, flow, Outcome::Carried, self.now);
        self.serve(connection);
        self.open[request.caller] -= 1;
        if flow.waits && self.open[request.caller] == 0 {
            self.board.leave(request.caller as u64, flow, self.now);
            self.comes(request.caller);
        }
        self.seat();
    }

    /// Returns the throughput of all threads as a multiple of the rate of one connection.
    fn run(mut self) -> f64 {
        for caller in 0..self.case.threads {
            self.comes(caller);
        }
        self.seat();
        let end = Time::ZERO + seconds(BEFORE + SECONDS);
        while let Some(Reverse((now, what))) = self.events.pop() {
            if now > end {
                break;
            }
            self.now = now;
            match what {
                What::Locks(connection) => self.locks(connection),
                What::Answers(connection) => self.answers(connection),
            }
        }
        self.carried as f64 / SECONDS / RATE
    }
}

fn cases() -> Vec<Case> {
    let mut found = Vec::new();
    for direction in [Direction::Read, Direction::Write] {
        for waits in [true, false] {
            for threads in [1, 2, 16] {
                for connections in [1, 2, 4, 8] {
                    found.push(Case {
                        flow: Flow { direction, waits },
                        threads,
                        connections,
                        slow: 1.0,
                        is_shared: false,
                        locked: LOCKED,
                    });
                }
            }
        }
    }
    found
}

fn single(case: Case) -> f64 {
    World::new(case, Rule::Always(Mapping::ThreadToSingle)).run()
}

fn multiple(case: Case) -> f64 {
    World::new(case, Rule::Always(Mapping::ThreadToMultiple)).run()
}

fn chosen(case: Case) -> f64 {
    World::new(case, Rule::Automatic).run()
}

#[test]
fn what_is_chosen_carries_what_the_better_policy_does() {
    for mut case in cases() {
        for (is_shared, locked) in [(false, LOCKED), (true, LOCKED), (false, 1.0), (true, 1.0)] {
            case = Case {
                is_shared,
                locked,
                ..case
            };
            let better = single(case).max(multiple(case));
            let ours = chosen(case);
            assert!(ours >= 0.97 * better, "{case:?}: {ours:.2} and {better:.2}");
        }
    }
}

#[test]
fn several_connections_carry_several_times_as_much_where_nothing_but_they_bounds() {
    for case in cases() {
        let ours = chosen(case);
        let most = case.connections as f64;
        // With fewer threads than connections, the locks of the files may limit the throughput of
        // writes, so demand no minimum.
        let is_bound = case.flow.direction == Direction::Write && case.threads < case.connections;
        let wanted = if is_bound { 0.0 } else { 0.75 * most };
        assert!(ours >= wanted, "{case:?}: {ours:.2} of {most}");
        assert!(ours <= 1.01 * most, "{case:?}: {ours:.2} of {most}");
    }
}

#[test]
fn a_slow_connection_is_left_alone_and_costs_little() {
    for case in cases().into_iter().filter(|case| case.connections == 4) {
        let slow = Case { slow: 10.0, ..case };
        let ours = chosen(slow);
        let better = single(slow).max(multiple(slow));
        assert!(ours >= 0.95 * better, "{slow:?}: {ours:.2} and {better:.2}");
        // Check only reads. A slow connection that writes holds the lock of a file for long, and
        // the other connections wait for the lock.
        if case.flow.direction == Direction::Read {
            let without = Case {
                connections: 3,
                ..case
            };
            let rest = multiple(without);
            assert!(
                ours >= 0.85 * rest,
                "{slow:?}: {ours:.2} and {rest:.2} without it"
            );
        }
    }
}
