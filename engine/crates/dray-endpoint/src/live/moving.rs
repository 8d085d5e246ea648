//! One session: what it wants, what it was given, and how far it is.

use dray_core::rate::Class;
use dray_core::{TransferId, plan};
use dray_runtime::drive::Handle;
use dray_session::Progress;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

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
pub struct RateWish {
    /// Its part of what is shared by weight.
    pub weight: u32,
    /// Bytes per second before others get more than theirs.
    pub rate_min: Option<u64>,
    /// Bytes per second at the most.
    pub rate_max: Option<u64>,
    /// Who comes first when something is spare.
    pub class: Class,
}

impl Default for RateWish {
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
    pub(super) number: u64,
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
    wish: Mutex<RateWish>,
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
    pub fn new(
        transfer: TransferId,
        owner: String,
        peer: String,
        way: Way,
        wish: RateWish,
    ) -> Self {
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
    pub fn wish(&self) -> RateWish {
        *self.wish.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what it may take; in force when the shares are next given out.
    pub fn set_wish(&self, wish: RateWish) {
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
        // Sent bytes count piece by piece, as they pass (`SharedRates`): a source hands objects to
        // its streams long before their bytes may pass.
        let moved = progress
            .bytes_durable
            .saturating_sub(progress.bytes_resumed);
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
        let passed = self.handle.shared_rates().moved();
        self.moved.load(Ordering::Relaxed).max(passed)
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

    /// Whether it is held at either end: then a share is of no use to it.
    #[must_use]
    pub fn is_still(&self) -> bool {
        self.is_held() || self.is_held_there.load(Ordering::Relaxed)
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

#[cfg(test)]
mod tests {
    use super::{Moving, RateWish, Way};
    use dray_core::TransferId;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn moving() -> Moving {
        let transfer = TransferId::new("t").expect("an id");
        Moving::new(
            transfer,
            "a".to_owned(),
            String::new(),
            Way::In,
            RateWish::default(),
        )
    }

    #[test]
    fn an_amount_is_told_of_once_when_it_is_reached() {
        let moving = moving();
        let rung = Arc::new(AtomicU64::new(0));
        let ring = |rung: &Arc<AtomicU64>| {
            let rung = Arc::clone(rung);
            move || {
                rung.fetch_add(1, Ordering::Relaxed);
            }
        };
        let count = || rung.load(Ordering::Relaxed);
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
        let moving = moving();
        assert_eq!(moving.granted(), None);
        moving.grant(Some(5));
        assert_eq!(moving.granted(), Some(5));
        moving.grant(None);
        assert_eq!(moving.granted(), None);
    }
}
