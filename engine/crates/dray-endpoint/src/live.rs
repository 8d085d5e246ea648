//! What moves at this endpoint right now, whoever drives it: who, with whom, how fast, in how much
//! memory.
//!
//! Invariant owned here: the memory of all sessions together never exceeds the configured bound, and
//! a session that finds its place free always finds its least memory free too.

use dray_core::rate::Class;
use dray_core::{End, Error, ErrorKind, Result, TransferId, plan};
use dray_runtime::drive::Handle;
use dray_session::Progress;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Of what is free beyond every place's least part, a newcomer gets one in so many: the first of
/// many gets a lot, the last still gets its part (guess, revisit).
const EXTRA_PART: u64 = 8;

/// Which way the bytes go, seen from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Way {
    /// They are read here.
    Out,
    /// They are written here.
    In,
    /// Both.
    Within,
}

/// What a session may take of the rate, changeable while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wish {
    /// Its part of what is shared by weight.
    pub weight: u32,
    /// Bytes per second before others get more than theirs.
    pub rate_min: Option<u64>,
    /// Bytes per second at the most.
    pub rate_max: Option<u64>,
    /// Who comes first when something is spare.
    pub class: Class,
}

impl Default for Wish {
    fn default() -> Self {
        Self {
            weight: 100,
            rate_min: None,
            rate_max: None,
            class: Class::Background,
        }
    }
}

/// What a session may take now.
#[derive(Debug, Clone, Copy, Default)]
struct Gate {
    /// Bytes per second it was given last; `None` for no limit.
    granted: Option<u64>,
    /// Whether it is shut, whatever was given.
    is_held: bool,
}

/// Somebody who wants to know of an amount.
type Alarm = Box<dyn FnOnce() + Send>;

/// One session.
pub struct Moving {
    /// Which session it is: no other of this process has or had this number. 0 before it has a seat.
    number: u64,
    /// The transfer.
    pub transfer: TransferId,
    /// Whom it belongs to.
    pub owner: String,
    /// The other endpoint, as far as it is known by name or address; empty within this one.
    pub peer: String,
    /// Which way the bytes go.
    pub way: Way,
    /// Whether this endpoint drives it; else it stands in no queue here.
    pub is_own: bool,
    /// The ticket that a driver showed for it, if another drives it.
    pub ticket: Option<String>,
    /// Bytes that pass a gate as one: an object of it.
    pub grain: u64,
    /// Roots of this endpoint that its bytes pass.
    pub roots: Vec<String>,
    /// Changes it.
    pub handle: Handle,
    wish: Mutex<Wish>,
    /// Whether its request was changed since somebody looked.
    is_changed: AtomicBool,
    /// Bytes that have been sent or have arrived.
    moved: AtomicU64,
    gate: Mutex<Gate>,
    /// Whether the other end has shut its own.
    is_held_there: AtomicBool,
    /// Bytes at which `alarm` is called; `u64::MAX` for never.
    alarm_at: AtomicU64,
    alarm: Mutex<Option<Alarm>>,
}

impl Moving {
    /// A session that begins.
    #[must_use]
    pub fn new(transfer: TransferId, owner: String, peer: String, way: Way, wish: Wish) -> Self {
        Self {
            number: 0,
            transfer,
            owner,
            peer,
            way,
            is_own: false,
            ticket: None,
            grain: plan::OBJECT_BYTES_DEFAULT,
            roots: Vec::new(),
            handle: Handle::default(),
            wish: Mutex::new(wish),
            is_changed: AtomicBool::new(false),
            moved: AtomicU64::new(0),
            gate: Mutex::default(),
            is_held_there: AtomicBool::new(false),
            alarm_at: AtomicU64::new(u64::MAX),
            alarm: Mutex::default(),
        }
    }

    /// Which session it is: no other of this process has or had this number.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// What it may take.
    #[must_use]
    pub fn wish(&self) -> Wish {
        *self.wish.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what it may take; in force when the shares are next given out.
    pub fn set_wish(&self, wish: Wish) {
        *self.wish.lock().unwrap_or_else(PoisonError::into_inner) = wish;
    }

    /// Its request was changed.
    pub fn changed(&self) {
        self.is_changed.store(true, Ordering::Release);
    }

    /// Whether it was changed since this was asked last.
    #[must_use]
    pub fn take_changed(&self) -> bool {
        self.is_changed.swap(false, Ordering::AcqRel)
    }

    /// Notes how far it is.
    pub fn note(&self, progress: &Progress) {
        // A source counts what it sends, a sink what is safe and what an object brought.
        let moved = progress.bytes_sent.max(
            progress
                .bytes_durable
                .saturating_sub(progress.bytes_resumed),
        );
        self.moved.fetch_max(moved, Ordering::Relaxed);
        self.is_held_there
            .store(progress.is_held_there, Ordering::Relaxed);
        self.ring();
    }

    /// Notes bytes that have just arrived.
    pub fn arrived(&self, bytes: u64) {
        self.moved.fetch_add(bytes, Ordering::Relaxed);
        self.ring();
    }

    /// Calls `alarm`, once, as soon as so many bytes have moved in all; in the place of an earlier
    /// one. It is called from the thread that moves them: it must not block.
    pub fn call_at(&self, bytes: u64, alarm: impl FnOnce() + Send + 'static) {
        *self.alarm.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(alarm));
        self.alarm_at.store(bytes, Ordering::Release);
        self.ring();
    }

    fn ring(&self) {
        if self.moved() < self.alarm_at.load(Ordering::Acquire) {
            return;
        }
        self.alarm_at.store(u64::MAX, Ordering::Release);
        let alarm = self
            .alarm
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(alarm) = alarm {
            alarm();
        }
    }

    /// Bytes that have moved.
    #[must_use]
    pub fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes per second it was given last.
    #[must_use]
    pub fn granted(&self) -> Option<u64> {
        self.gate().granted
    }

    /// Gives it a rate, if it is another than before; in force when it is not held.
    pub fn grant(&self, rate: Option<u64>) {
        let mut gate = self.gate();
        if gate.granted != rate {
            gate.granted = rate;
            if !gate.is_held {
                self.handle.set_rate(rate);
            }
        }
    }

    /// Whether its gate is shut.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.gate().is_held
    }

    /// Shuts its gate within an object, or opens it to what it was given last. It keeps its session,
    /// its partial files and its place.
    pub fn hold(&self, is_held: bool) {
        let mut gate = self.gate();
        if gate.is_held != is_held {
            gate.is_held = is_held;
            self.handle
                .set_rate(if is_held { Some(0) } else { gate.granted });
        }
    }
}

/// Bounds on what moves at once.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Bytes of all buffers.
    pub memory: u64,
    /// Sessions at once, this endpoint's own and others'.
    pub sessions: u32,
    /// Of these, as many as this endpoint may drive: the rest is kept for those that others drive.
    pub own: u32,
    /// Sessions of one owner.
    pub per_owner: u32,
    /// Of these, as many as this endpoint may drive.
    pub own_of_owner: u32,
}

/// Why there is no place for one more session that this endpoint would drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lack {
    /// Its owner has as many as one may have.
    OfOwner,
    /// There is none for anybody.
    InAll,
}

#[derive(Default)]
struct Table {
    next: u64,
    memory: u64,
    sessions: BTreeMap<u64, (Arc<Moving>, u64)>,
}

/// All sessions.
#[derive(Clone)]
pub struct Live(Arc<(Bounds, Mutex<Table>)>);

/// A session's place; given back when dropped.
pub struct Seat {
    live: Live,
    /// What sits here.
    pub moving: Arc<Moving>,
    /// Bytes it may use for buffers.
    pub memory: u64,
}

impl Live {
    /// Nothing moves.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        Self(Arc::new((bounds, Mutex::default())))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.1.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a session in.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] when there is no place, or the owner has as many as one may have.
    pub fn enter(&self, mut moving: Moving) -> Result<Seat> {
        let bounds = self.0.0;
        let mut table = self.table();
        let busy = |cause: String| {
            Error::new(ErrorKind::Busy, End::Here, "begin a session")
                .cause(cause)
                .remedy("try again later")
        };
        match table.lack(&bounds, &moving.owner, moving.is_own) {
            None => {}
            Some(Lack::InAll) => {
                let count = table.sessions.len();
                return Err(busy(format!("{count} sessions run already")));
            }
            Some(Lack::OfOwner) => {
                let owner = &moving.owner;
                let count = table.count(|other| other.owner == *owner);
                return Err(busy(format!("{count} sessions of {owner} run already")));
            }
        }
        let count = u32::try_from(table.sessions.len()).unwrap_or(u32::MAX);
        let memory = share(&bounds, count, table.memory);
        table.next += 1;
        let number = table.next;
        moving.number = number;
        table.memory += memory;
        let moving = Arc::new(moving);
        table.sessions.insert(number, (Arc::clone(&moving), memory));
        Ok(Seat {
            live: self.clone(),
            moving,
            memory,
        })
    }

    /// What moves now.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Moving>> {
        let table = self.table();
        table
            .sessions
            .values()
            .map(|(moving, _)| Arc::clone(moving))
            .collect()
    }

    /// Why there is no place for one more that this endpoint would drive for this owner; `None` when
    /// there is.
    #[must_use]
    pub fn lack(&self, owner: &str) -> Option<Lack> {
        self.table().lack(&self.0.0, owner, true)
    }

    /// What moves now and is held at neither end: who may use a share.
    #[must_use]
    pub fn flowing(&self) -> Vec<Arc<Moving>> {
        let mut all = self.all();
        all.retain(|moving| !moving.is_held() && !moving.is_held_there.load(Ordering::Relaxed));
        all
    }

    /// Sessions under a ticket.
    #[must_use]
    pub fn of_ticket(&self, ticket: &str) -> Vec<Arc<Moving>> {
        let mut all = self.all();
        all.retain(|moving| moving.ticket.as_deref() == Some(ticket));
        all
    }

    /// Bytes of buffers given out.
    #[cfg(test)]
    fn memory(&self) -> u64 {
        self.table().memory
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut table = self.live.table();
        if let Some((_, memory)) = table.sessions.remove(&self.moving.number) {
            table.memory -= memory;
        }
    }
}

impl Table {
    fn count(&self, is_counted: impl Fn(&Moving) -> bool) -> usize {
        let sessions = self.sessions.values();
        sessions.filter(|(moving, _)| is_counted(moving)).count()
    }

    fn lack(&self, bounds: &Bounds, owner: &str, is_own: bool) -> Option<Lack> {
        let is_full = |most: u32, of: &dyn Fn(&Moving) -> bool| self.count(of) >= most as usize;
        let is_owners = |other: &Moving| other.owner == owner;
        let is_owner_full = is_full(bounds.per_owner, &is_owners)
            || is_own
                && is_full(bounds.own_of_owner, &|other| {
                    is_owners(other) && other.is_own
                });
        // First: a stranger's session that makes room would leave none to this owner.
        if is_owner_full {
            return Some(Lack::OfOwner);
        }
        let is_full_in_all = is_full(bounds.sessions, &|_| true)
            || is_own && is_full(bounds.own, &|other| other.is_own);
        is_full_in_all.then_some(Lack::InAll)
    }
}

impl Bounds {
    /// With places for `active` transfers that this endpoint drives beside as many that others do, and
    /// for `of_owner` of one owner. What is promised may take a quarter more, out of those of others:
    /// the rest of these stays theirs, so that two endpoints with all they can drive to each other
    /// always have places for each other.
    #[must_use]
    pub fn for_active(memory: u64, active: u32, of_owner: u32) -> Self {
        let own = |active: u32| active.saturating_add(active.div_ceil(4));
        // Of one alone a quarter more would be all there is.
        let all = |active: u32| active.saturating_mul(2).max(own(active).saturating_add(1));
        let (active, of_owner) = (active.max(1), of_owner.max(1));
        Self {
            memory,
            sessions: all(active),
            own: own(active),
            per_owner: all(of_owner),
            own_of_owner: own(of_owner),
        }
    }

    /// Bytes that every session gets at the least: four fifths of the memory are kept for that.
    #[must_use]
    pub fn least(&self) -> u64 {
        let places = u64::from(self.sessions.max(1));
        self.memory / (5 * places) * 4
    }
}

/// Memory for one more session when `count` have `used` bytes.
fn share(bounds: &Bounds, count: u32, used: u64) -> u64 {
    let places = u64::from(bounds.sessions.max(1));
    let least = bounds.least();
    let kept = least * places.saturating_sub(u64::from(count));
    let extra = bounds.memory.saturating_sub(used).saturating_sub(kept);
    least + extra / EXTRA_PART
}

#[cfg(test)]
mod tests {
    use super::{Bounds, Lack, Live, Moving, Way, Wish, share};
    use dray_core::{ErrorKind, TransferId};

    fn moving(owner: &str) -> Moving {
        let transfer = TransferId::new("t").expect("an id");
        Moving::new(
            transfer,
            owner.to_owned(),
            String::new(),
            Way::In,
            Wish::default(),
        )
    }

    fn bounds(memory: u64, sessions: u32, per_owner: u32) -> Bounds {
        Bounds {
            memory,
            sessions,
            own: sessions,
            per_owner,
            own_of_owner: per_owner,
        }
    }

    fn own(owner: &str) -> Moving {
        Moving {
            is_own: true,
            ..moving(owner)
        }
    }

    #[test]
    fn what_is_driven_here_leaves_places_to_those_who_drive_elsewhere() {
        for active in [1, 2, 3, 4, 50, 10_000] {
            let bounds = Bounds::for_active(1 << 40, active, active);
            assert!(bounds.own > active, "a promise begins beside all others");
            assert!(bounds.own < bounds.sessions && bounds.own_of_owner < bounds.per_owner);
            assert!(bounds.sessions >= 2 * active);
        }
        // Two of an owner, and four in all; one more each for what is promised.
        let live = Live::new(Bounds::for_active(1 << 30, 4, 2));
        let mut seats: Vec<_> = (0..3)
            .map(|_| live.enter(own("a")).expect("room"))
            .collect();
        assert_eq!(live.lack("a"), Some(Lack::OfOwner));
        assert!(live.enter(own("a")).is_err());
        // What another end drives for the same owner finds its place.
        seats.push(live.enter(moving("a")).expect("room"));
        assert!(live.enter(moving("a")).is_err(), "four of an owner in all");
        assert_eq!(live.lack("b"), None);
        seats.extend((0..2).map(|_| live.enter(own("b")).expect("room")));
        assert_eq!(live.lack("c"), Some(Lack::InAll));
        assert!(live.enter(own("c")).is_err());
        seats.extend((0..2).map(|_| live.enter(moving("c")).expect("room")));
        assert!(live.enter(moving("d")).is_err(), "all eight are taken");
        seats.truncate(1);
        assert_eq!(live.lack("a"), None);
    }

    #[test]
    fn memory_is_enough_for_every_place_and_never_more_than_there_is() {
        for sessions in [1, 2, 7, 100, 1000] {
            let bounds = bounds(1 << 30, sessions, u32::MAX);
            let mut used = 0;
            for count in 0..sessions {
                let memory = share(&bounds, count, used);
                assert!(memory >= bounds.least());
                used += memory;
                assert!(used <= bounds.memory, "{sessions} {count} {used}");
            }
        }
    }

    #[test]
    fn places_are_bounded_in_all_and_for_each_owner_and_given_back() {
        let live = Live::new(bounds(1 << 20, 3, 2));
        let first = live.enter(moving("a")).expect("room");
        let second = live.enter(moving("a")).expect("room");
        let error = live
            .enter(moving("a"))
            .err()
            .expect("too many of one owner");
        assert_eq!(error.kind, ErrorKind::Busy);
        assert_eq!(live.lack("a"), Some(Lack::OfOwner));
        let third = live.enter(moving("b")).expect("room");
        assert!(live.enter(moving("c")).is_err(), "full");
        assert_eq!(live.lack("c"), Some(Lack::InAll));
        drop((first, second));
        assert!(live.enter(moving("a")).is_ok());
        drop(third);
        assert_eq!((live.all().len(), live.memory()), (0, 0));
    }

    #[test]
    fn a_number_is_of_one_session_for_ever() {
        let live = Live::new(bounds(1 << 20, 3, 3));
        let stays = live.enter(moving("a")).expect("room");
        let mut seen = std::collections::BTreeSet::from([0, stays.moving.number()]);
        for _ in 0..100 {
            let seat = live.enter(moving("a")).expect("room");
            assert!(seen.insert(seat.moving.number()), "{seen:?}");
        }
    }

    #[test]
    fn what_is_held_takes_no_part_in_the_shares_and_goes_on_with_what_it_had() {
        let live = Live::new(bounds(1 << 20, 3, 3));
        let seat = live.enter(moving("a")).expect("room");
        let other = live.enter(moving("b")).expect("room");
        seat.moving.grant(Some(7));
        assert_eq!(seat.moving.handle.rate(), Some(Some(7)));
        seat.moving.hold(true);
        assert_eq!(seat.moving.handle.rate(), Some(Some(0)));
        let numbers = |all: Vec<std::sync::Arc<Moving>>| -> Vec<u64> {
            all.iter().map(|moving| moving.number()).collect()
        };
        assert_eq!(numbers(live.flowing()), [other.moving.number()]);
        assert_eq!(live.all().len(), 2, "it keeps its place");
        // What the other end holds is as still.
        let mut progress = dray_session::Progress {
            is_held_there: true,
            ..dray_session::Progress::default()
        };
        other.moving.note(&progress);
        assert_eq!(numbers(live.flowing()), [0; 0]);
        progress.is_held_there = false;
        other.moving.note(&progress);
        assert_eq!(numbers(live.flowing()), [other.moving.number()]);
        // What is given meanwhile waits for it.
        seat.moving.grant(None);
        assert_eq!(seat.moving.handle.rate(), Some(Some(0)));
        seat.moving.grant(Some(9));
        seat.moving.hold(false);
        assert_eq!(seat.moving.handle.rate(), Some(Some(9)));
        assert_eq!(live.flowing().len(), 2);
    }

    #[test]
    fn an_amount_is_told_of_once_when_it_is_reached() {
        let moving = moving("a");
        let rung = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
        let ring = |rung: &std::sync::Arc<std::sync::atomic::AtomicU64>| {
            let rung = std::sync::Arc::clone(rung);
            move || {
                rung.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        };
        let count = || rung.load(std::sync::atomic::Ordering::Relaxed);
        moving.call_at(10, ring(&rung));
        moving.arrived(9);
        assert_eq!(count(), 0);
        moving.arrived(1);
        moving.arrived(100);
        assert_eq!(count(), 1);
        // What has been reached already is told at once; a later wish takes an earlier one's place.
        moving.call_at(50, ring(&rung));
        assert_eq!(count(), 2);
        moving.call_at(200, ring(&rung));
        moving.call_at(1_000, ring(&rung));
        moving.arrived(200);
        assert_eq!(count(), 2);
    }

    #[test]
    fn a_rate_is_told_only_when_it_changes() {
        let moving = moving("a");
        assert_eq!(moving.granted(), None);
        moving.grant(Some(5));
        assert_eq!(moving.granted(), Some(5));
        moving.grant(None);
        assert_eq!(moving.granted(), None);
    }
}
