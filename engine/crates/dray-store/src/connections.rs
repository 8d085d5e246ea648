//! Several connections to one server, opened as they are needed, and which of them carries a call.
//!
//! [`dray_core::connections`] decides; here is what opens, waits and counts. A store asks for a
//! [`Lease`] for each call, or for [`Part`]s of it where it can send them at once, uses the connection
//! from the thread it is on, and says how it went. A thread that has to wait is served in its turn.
//!
//! Non-goals: what a connection is, and trying again: a call that failed is the caller's.
//!
//! Invariants: never more connections than said, and never more calls on one than its depth; a
//! connection that broke is not handed out again.

use dray_core::connections::{Call, Flow, Outcome, Place, Rule, Setting, Switchboard};
use dray_core::time::nanos;
use dray_core::{Result, Time};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// How many, and how they are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionOptions {
    /// Connections at most, 1 to [`dray_core::connections::CONNECTIONS_MAX`].
    pub most: usize,
    /// Calls that may be open on one at a time: 1 where an answer comes before the next call.
    pub depth: u32,
    /// Who decides which carries what.
    pub rule: Rule,
}

/// What one connection has carried, since the first was opened in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Carried {
    /// Calls, and pieces of calls, that ended well.
    pub calls: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How often it was opened.
    pub opened: u64,
    /// How often it broke, or could not be opened.
    pub broken: u64,
}

/// Connections of type `C` to one server. A clone is the same pool.
pub struct Connections<C> {
    shared: Arc<Shared<C>>,
}

type Open<C> = dyn Fn(usize) -> Result<C> + Send + Sync;

struct Shared<C> {
    state: Mutex<State<C>>,
    /// Something has changed for those that wait.
    changed: Condvar,
    open: Box<Open<C>>,
    began: Instant,
}

struct State<C> {
    board: Switchboard,
    slots: Vec<Slot<C>>,
    /// Calls that have no place yet, in order; and the places of those that have them now.
    waiting: VecDeque<(u64, Call)>,
    seated: BTreeMap<u64, Vec<Place>>,
    next_ticket: u64,
}

struct Slot<C> {
    state: SlotState<C>,
    /// Of connections that had this place: which is meant when one is said to be broken.
    generation: u64,
    carried: Carried,
}

enum SlotState<C> {
    Closed,
    Opening,
    Open(Arc<C>),
}

/// A piece of a call.
#[derive(Debug)]
pub struct Part<C> {
    /// Where in the call it begins.
    pub offset: u64,
    /// How long it is.
    pub bytes: u64,
    /// The connection that carries it.
    pub lease: Lease<C>,
}

/// A connection for one call. Dropped without a word, the call has failed for a reason that is not the
/// connection's.
pub struct Lease<C> {
    connection: Arc<C>,
    held: Held<C>,
    /// Of a thread that waits: it is gone with its last piece.
    _stay: Option<Arc<Stay<C>>>,
}

/// A place that is given back.
struct Held<C> {
    shared: Arc<Shared<C>>,
    place: Place,
    /// Of the connection in it, once there is one.
    generation: Option<u64>,
    flow: Flow,
    outcome: Outcome,
}

/// A connection that is being opened, and others wait for. Dropped without one, also by a panic, it could
/// not be opened.
struct Opening<'a, C> {
    shared: &'a Shared<C>,
    at: usize,
    is_open: bool,
}

/// A thread that is in a call.
struct Stay<C> {
    shared: Arc<Shared<C>>,
    caller: u64,
    flow: Flow,
}

impl<C> Lease<C> {
    /// Which connection it is, from 0.
    #[must_use]
    pub fn number(&self) -> usize {
        self.held.place.connection
    }

    /// The call moved its bytes.
    pub fn carried(mut self) {
        self.held.outcome = Outcome::Carried;
    }

    /// The connection is lost: it is closed when its last call is, and another is opened in its place.
    pub fn broken(mut self) {
        self.held.outcome = Outcome::Broken;
    }
}

impl<C> Deref for Lease<C> {
    type Target = C;

    fn deref(&self) -> &C {
        &self.connection
    }
}

impl<C> fmt::Debug for Lease<C> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Lease")
            .field("place", &self.held.place)
            .finish_non_exhaustive()
    }
}

impl<C> fmt::Debug for Connections<C> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Connections").finish_non_exhaustive()
    }
}

impl<C> Drop for Held<C> {
    fn drop(&mut self) {
        let now = self.shared.now();
        let mut state = self.shared.lock();
        let slot = &mut state.slots[self.place.connection];
        let mut lost = None;
        match (self.outcome, self.generation) {
            (Outcome::Carried, _) => {
                slot.carried.calls += 1;
                slot.carried.bytes += self.place.bytes;
            }
            (Outcome::Broken, Some(generation)) if slot.generation == generation => {
                // Another is in its place when this is said once more, or none.
                slot.generation += 1;
                slot.carried.broken += 1;
                lost = Some(std::mem::replace(&mut slot.state, SlotState::Closed));
            }
            (Outcome::Broken, Some(_)) => self.outcome = Outcome::Failed,
            _ => {}
        }
        state.board.ended(self.place, self.flow, self.outcome, now);
        state.seat(now);
        drop(state);
        self.shared.changed.notify_all();
        // Closing may take a while, and is not waited for with the lock.
        drop(lost);
    }
}

impl<C> Opening<'_, C> {
    /// The connection, and which of its place's it is.
    fn done(mut self, connection: C) -> (Arc<C>, u64) {
        let connection = Arc::new(connection);
        let mut state = self.shared.lock();
        let slot = &mut state.slots[self.at];
        slot.state = SlotState::Open(connection.clone());
        slot.generation += 1;
        slot.carried.opened += 1;
        self.is_open = true;
        (connection, slot.generation)
    }
}

impl<C> Drop for Opening<'_, C> {
    fn drop(&mut self) {
        if !self.is_open {
            let mut state = self.shared.lock();
            let slot = &mut state.slots[self.at];
            slot.state = SlotState::Closed;
            slot.carried.broken += 1;
        }
        self.shared.changed.notify_all();
    }
}

impl<C> Drop for Stay<C> {
    fn drop(&mut self) {
        let now = self.shared.now();
        let mut state = self.shared.lock();
        state.board.leave(self.caller, self.flow, now);
    }
}

/// The calling thread's number: those of the system are used again.
fn caller() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static OWN: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    OWN.with(|own| *own)
}

impl<C> Shared<C> {
    fn now(&self) -> Time {
        Time::from_nanos(nanos(self.began.elapsed()))
    }

    fn lock(&self) -> MutexGuard<'_, State<C>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C> State<C> {
    /// Gives places to those that wait, in order; one that waits for its own connection is passed over.
    fn seat(&mut self, now: Time) {
        let waiting = std::mem::take(&mut self.waiting);
        for (ticket, call) in waiting {
            let places = self.board.take(call, now);
            if places.is_empty() {
                self.waiting.push_back((ticket, call));
            } else {
                self.seated.insert(ticket, places);
            }
        }
    }

    /// Whether a connection is there, or may be.
    fn is_any_open(&self) -> bool {
        let is_closed = |slot: &Slot<C>| matches!(slot.state, SlotState::Closed);
        !self.slots.iter().all(is_closed)
    }
}

impl<C> Clone for Connections<C> {
    fn clone(&self) -> Self {
        let shared = self.shared.clone();
        Self { shared }
    }
}

impl<C: Send + Sync> Connections<C> {
    /// A pool that opens its connections by `open`, which is told which one, from 0.
    #[must_use]
    pub fn new(
        options: &ConnectionOptions,
        open: impl Fn(usize) -> Result<C> + Send + Sync + 'static,
    ) -> Self {
        let board = Switchboard::new(options.most, options.depth, options.rule);
        let slot = |_| Slot {
            state: SlotState::Closed,
            generation: 0,
            carried: Carried::default(),
        };
        let state = State {
            slots: (0..board.connections()).map(slot).collect(),
            board,
            waiting: VecDeque::new(),
            seated: BTreeMap::new(),
            next_ticket: 0,
        };
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(state),
                changed: Condvar::new(),
                open: Box::new(open),
                began: Instant::now(),
            }),
        }
    }

    /// A connection for a call of `bytes`, waited for.
    ///
    /// # Errors
    /// That of `open`, where no connection is open and none can be.
    pub fn lease(&self, flow: Flow, bytes: u64) -> Result<Lease<C>> {
        let mut leases = self.leases(flow, bytes, 1)?;
        Ok(leases.pop().expect("a call that was seated has a place"))
    }

    /// Connections for a call of `bytes` that may be cut into pieces, which go at once: one part or more,
    /// in order, that are the whole of it together. The first is waited for, and no other.
    ///
    /// # Errors
    /// As [`Connections::lease`].
    pub fn lease_parts(&self, flow: Flow, bytes: u64) -> Result<Vec<Part<C>>> {
        let leases = self.leases(flow, bytes, usize::MAX)?;
        let mut offset = 0;
        let part = |lease: Lease<C>| {
            let part = Part {
                offset,
                bytes: lease.held.place.bytes,
                lease,
            };
            offset += part.bytes;
            part
        };
        Ok(leases.into_iter().map(part).collect())
    }

    /// What each connection has carried.
    #[must_use]
    pub fn carried(&self) -> Vec<Carried> {
        let state = self.shared.lock();
        state.slots.iter().map(|slot| slot.carried).collect()
    }

    /// What calls of a kind go by now.
    #[must_use]
    pub fn setting(&self, flow: Flow) -> Setting {
        self.shared.lock().board.setting(flow)
    }

    fn leases(&self, flow: Flow, bytes: u64, pieces_max: usize) -> Result<Vec<Lease<C>>> {
        let call = Call {
            caller: caller(),
            flow,
            bytes,
            pieces_max,
        };
        let now = self.shared.now();
        self.shared.lock().board.enter(call.caller, flow, now);
        let stay = Arc::new(Stay {
            shared: self.shared.clone(),
            caller: call.caller,
            flow,
        });
        let mut tries = 0;
        loop {
            tries += 1;
            let failed = match self.connect(call, &stay) {
                Ok(leases) => return Ok(leases),
                Err(error) => error,
            };
            // One that cannot be opened is left alone, and others carry its calls, where there are any.
            let state = self.shared.lock();
            if tries > state.slots.len() || !state.is_any_open() {
                return Err(failed);
            }
        }
    }

    fn wait_for_places(&self, call: Call) -> Vec<Place> {
        let mut state = self.shared.lock();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.waiting.push_back((ticket, call));
        state.seat(self.shared.now());
        loop {
            if let Some(places) = state.seated.remove(&ticket) {
                return places;
            }
            let changed = self.shared.changed.wait(state);
            state = changed.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Leases for a call. When one of its connections cannot be opened, all of its places are given back.
    fn connect(&self, call: Call, stay: &Arc<Stay<C>>) -> Result<Vec<Lease<C>>> {
        let held = self.wait_for_places(call).into_iter().map(|place| Held {
            shared: self.shared.clone(),
            place,
            generation: None,
            flow: call.flow,
            outcome: Outcome::Failed,
        });
        let held: Vec<Held<C>> = held.collect();
        held.into_iter()
            .map(|mut held| {
                let opened = self.connection(held.place.connection);
                let (connection, generation) = opened.inspect_err(|_| {
                    held.outcome = Outcome::Broken;
                })?;
                held.generation = Some(generation);
                Ok(Lease {
                    connection,
                    held,
                    _stay: call.flow.waits.then(|| stay.clone()),
                })
            })
            .collect()
    }

    /// An open connection: opened by whoever comes first, the others wait for that one.
    fn connection(&self, at: usize) -> Result<(Arc<C>, u64)> {
        let mut state = self.shared.lock();
        loop {
            let slot = &mut state.slots[at];
            match &slot.state {
                SlotState::Open(connection) => return Ok((connection.clone(), slot.generation)),
                SlotState::Opening => {
                    let changed = self.shared.changed.wait(state);
                    state = changed.unwrap_or_else(PoisonError::into_inner);
                }
                SlotState::Closed => {
                    slot.state = SlotState::Opening;
                    break;
                }
            }
        }
        drop(state);
        let opening = Opening {
            shared: &self.shared,
            at,
            is_open: false,
        };
        Ok(opening.done((self.shared.open)(at)?))
    }
}

#[cfg(test)]
#[path = "connections_tests.rs"]
mod tests;
