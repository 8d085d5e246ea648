//! Pools of connections to one server. A pool opens connections on demand and assigns calls to
//! them.
//!
//! [`dray_core::connections`] chooses the connection for a call. This module opens connections,
//! waits for free ones, and counts calls. A store requests a [`Lease`] for each call, or [`Part`]s
//! of a call if it can send the parts concurrently. The store makes the call itself, and reports
//! the outcome. Waiting threads are served in order of arrival.
//!
//! This module does not know the kind of connection, and it does not retry. The caller handles a
//! failed call.
//!
//! Invariants: the pool never exceeds the maximum number of connections or the depth of a
//! connection. The pool never returns a broken connection to a caller.

use dray_core::connections::{Call, Flow, Outcome, Place, Rule, Setting, Switchboard};
use dray_core::lock::LockExt;
use dray_core::time::nanos;
use dray_core::{Result, Time};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Number of connections, their depth and the rule that assigns calls to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionOptions {
    /// Maximum number of connections, 1 to [`dray_core::connections::CONNECTIONS_MAX`].
    pub most: usize,
    /// Maximum number of concurrent calls on a connection. Set 1 if each call must wait for the
    /// answer to the previous call.
    pub depth: u32,
    /// Rule by which calls are assigned to connections.
    pub rule: Rule,
}

/// Counters of one slot. They cover all connections that were opened in this slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Carried {
    /// Number of calls, and of pieces of calls, that succeeded.
    pub calls: u64,
    /// Number of bytes that the successful calls moved.
    pub bytes: u64,
    /// Number of connections opened.
    pub opened: u64,
    /// Number of connections that broke or could not be opened.
    pub broken: u64,
}

/// Connections of type `C` to one server. All clones of this value share one pool.
pub struct Connections<C> {
    shared: Arc<PoolState<C>>,
}

type Open<C> = dyn Fn(usize) -> Result<C> + Send + Sync;

struct PoolState<C> {
    state: Mutex<State<C>>,
    /// Signals a change of `state` to waiting threads.
    changed: Condvar,
    open: Box<Open<C>>,
    began: Instant,
}

struct State<C> {
    board: Switchboard,
    slots: Vec<Slot<C>>,
    /// Calls that wait for a connection, by ticket, in order of arrival.
    waiting: VecDeque<(u64, Call)>,
    /// Places on connections that were assigned to waiting calls, by ticket.
    seated: BTreeMap<u64, Vec<Place>>,
    next_ticket: u64,
}

struct Slot<C> {
    state: SlotState<C>,
    /// Number of times that a connection was opened or broke in this slot. A report with an older
    /// number refers to an earlier connection and is ignored.
    generation: u64,
    carried: Carried,
}

enum SlotState<C> {
    Closed,
    Opening,
    Open(Arc<C>),
}

/// One piece of a call.
#[derive(Debug)]
pub struct Part<C> {
    /// Offset of the piece in the call, in bytes.
    pub offset: u64,
    /// Length of the piece in bytes.
    pub bytes: u64,
    /// Connection on which the piece is sent.
    pub lease: Lease<C>,
}

/// A connection for one call. A lease that is dropped without a report counts as a call that
/// failed, but not because of the connection.
pub struct Lease<C> {
    connection: Arc<C>,
    held: LeasedSlot<C>,
    /// Keeps the calling thread registered until the last piece of its call is dropped.
    _stay: Option<Arc<Stay<C>>>,
}

/// A slot of a connection. Dropping this value returns the slot to the switchboard.
struct LeasedSlot<C> {
    shared: Arc<PoolState<C>>,
    place: Place,
    /// Generation of the connection in the slot; `None` until a connection is open.
    generation: Option<u64>,
    flow: Flow,
    outcome: Outcome,
}

/// A connection that this thread is opening while other threads wait for the connection. If this
/// value is dropped before [`Opening::done`], for example in a panic, the pool records that the
/// connection could not be opened.
struct Opening<'a, C> {
    shared: &'a PoolState<C>,
    at: usize,
    is_open: bool,
}

/// Registration of a thread that is in a call. Dropping this value ends the registration.
struct Stay<C> {
    shared: Arc<PoolState<C>>,
    caller: u64,
    flow: Flow,
}

impl<C> Lease<C> {
    /// Returns the number of the connection, from 0.
    #[must_use]
    pub fn number(&self) -> usize {
        self.held.place.connection
    }

    /// Reports that the call moved its bytes.
    pub fn carried(mut self) {
        self.held.outcome = Outcome::Carried;
    }

    /// Reports that the connection is lost. The connection closes after the last running call on
    /// it. A later call opens another connection in the same slot.
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

impl<C> Drop for LeasedSlot<C> {
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
                // A later report about this connection has an old generation and is ignored.
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
        // Close the connection outside the lock, because closing may take long.
        drop(lost);
    }
}

impl<C> Opening<'_, C> {
    /// Stores the connection in its slot and returns it with its generation.
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

/// Returns a number for the calling thread. The thread numbers of the system are not used, because
/// the system reuses them.
fn caller() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static OWN: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    OWN.with(|own| *own)
}

impl<C> PoolState<C> {
    fn now(&self) -> Time {
        Time::from_nanos(nanos(self.began.elapsed()))
    }

    fn lock(&self) -> MutexGuard<'_, State<C>> {
        self.state.lock_unpoisoned()
    }
}

impl<C> State<C> {
    /// Assigns slots to waiting calls in order of arrival. Skips a call that must use its own
    /// connection while that connection is busy.
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

    /// Returns true if a connection is open or being opened.
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
    /// Creates a pool that opens connections with `open`. The argument of `open` is the number of
    /// the slot, counted from 0.
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
            shared: Arc::new(PoolState {
                state: Mutex::new(state),
                changed: Condvar::new(),
                open: Box::new(open),
                began: Instant::now(),
            }),
        }
    }

    /// Waits for a connection for a call that moves `bytes` bytes, and returns the connection.
    ///
    /// # Errors
    /// The error of `open` if no connection is open and none can be opened.
    pub fn lease(&self, flow: Flow, bytes: u64) -> Result<Lease<C>> {
        let mut leases = self.leases(flow, bytes, 1)?;
        Ok(leases
            .pop()
            .expect("a call that has a connection slot also has a connection"))
    }

    /// Waits for a connection for a call that moves `bytes` bytes. If further connections are free,
    /// the call is cut into pieces that can be sent concurrently, one on each connection. Returns
    /// one or more pieces in order. Together they cover all bytes of the call.
    ///
    /// # Errors
    /// The errors of [`Connections::lease`].
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

    /// Returns the counters of each slot.
    #[must_use]
    pub fn carried(&self) -> Vec<Carried> {
        let state = self.shared.lock();
        state.slots.iter().map(|slot| slot.carried).collect()
    }

    /// Returns the current setting for calls of this kind.
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
            // The [`Switchboard`] now avoids the connection that could not be opened. Retry while
            // other connections may work.
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

    /// Returns leases for a call. If one of the connections cannot be opened, all slots of the call
    /// are freed.
    fn connect(&self, call: Call, stay: &Arc<Stay<C>>) -> Result<Vec<Lease<C>>> {
        let held = self
            .wait_for_places(call)
            .into_iter()
            .map(|place| LeasedSlot {
                shared: self.shared.clone(),
                place,
                generation: None,
                flow: call.flow,
                outcome: Outcome::Failed,
            });
        let held: Vec<LeasedSlot<C>> = held.collect();
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

    /// Returns an open connection. The first thread opens the connection, and the other threads
    /// wait for it.
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
mod tests;
