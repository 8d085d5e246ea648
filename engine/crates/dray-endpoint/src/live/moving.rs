//! A session: its requested rates, its granted rate and its progress.

use super::totals::{SinkCounts, SinkTotals};
use super::under_way::Reports;
use dray_api::RateWish;
use dray_core::lock::LockExt;
use dray_core::{End, TransferId, plan};
use dray_runtime::handle::Handle;
use dray_runtime::observe::TargetLoad;
use dray_session::Progress;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Direction of a session's bytes, seen from this endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Way {
    /// This endpoint reads the bytes.
    Out,
    /// This endpoint writes the bytes.
    In,
    /// This endpoint reads and writes the bytes.
    Within,
}

impl Way {
    /// Returns the name of a session that this endpoint drives in this direction.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Out => "push",
            Self::In => "pull",
            Self::Within => "copy",
        }
    }
}

/// The current limit of a session's rate.
#[derive(Debug, Clone, Copy, Default)]
struct Gate {
    /// The rate granted last, in bytes per second. `None` means no limit.
    granted: Option<u64>,
    /// True if the gate is shut. A shut gate overrides the granted rate.
    is_held: bool,
}

/// A callback that runs once a session has moved a number of bytes.
type Alarm = Box<dyn FnOnce() + Send>;

/// A session that is running at this endpoint.
pub struct Moving {
    /// Number of the session, unique for the life of the process. The number is 0 before the
    /// session has a slot.
    pub(super) number: u64,
    /// The transfer.
    pub transfer: TransferId,
    /// Owner of the transfer.
    pub owner: String,
    /// Name or address of the other endpoint, if it is known. Empty for a transfer within this
    /// endpoint.
    pub peer: String,
    /// Direction of the bytes, seen from this endpoint.
    pub way: Way,
    /// True if this endpoint drives the session. Only then does this endpoint's queue have the
    /// transfer.
    pub is_own: bool,
    /// Id of the ticket that opened the session, if another end drives the session.
    pub ticket: Option<String>,
    /// Number of bytes that pass the pace gate as a unit: the size of one object.
    pub grain: u64,
    /// Roots of this endpoint that the session's bytes pass.
    pub roots: Vec<String>,
    /// API paths of a session that another end drives.
    pub paths: Vec<String>,
    /// The handle that controls the session.
    pub handle: Handle,
    wish: Mutex<RateWish>,
    /// Set when the transfer's request has changed since the last [`Moving::take_changed`].
    is_changed: AtomicBool,
    /// Number of bytes that have arrived or are durable.
    moved: AtomicU64,
    /// Number of bytes that were listed, without the bytes that earlier sessions have made durable.
    listed: AtomicU64,
    files_done: AtomicU64,
    files_listed: AtomicU64,
    gate: Mutex<Gate>,
    /// True if the other end has shut its gate.
    is_held_there: AtomicBool,
    /// Number of moved bytes at which `alarm` is called. `u64::MAX` means never.
    alarm_at: AtomicU64,
    alarm: Mutex<Option<Alarm>>,
    /// The last report of the storage targets of each end that runs here.
    targets: Mutex<Vec<(End, Vec<TargetLoad>)>>,
    /// Counters of the session's sink, if it runs here, at the last report.
    sink: Mutex<SinkCounts>,
    /// Counters of all sinks of this endpoint.
    pub(super) sinks: Arc<SinkTotals>,
    pub(super) reports: Reports,
}

impl Moving {
    /// Creates a session without a slot.
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
            paths: Vec::new(),
            listed: AtomicU64::new(0),
            files_done: AtomicU64::new(0),
            files_listed: AtomicU64::new(0),
            handle: Handle::default(),
            wish: Mutex::new(wish),
            is_changed: AtomicBool::new(false),
            moved: AtomicU64::new(0),
            gate: Mutex::default(),
            is_held_there: AtomicBool::new(false),
            alarm_at: AtomicU64::new(u64::MAX),
            alarm: Mutex::default(),
            targets: Mutex::default(),
            sink: Mutex::default(),
            sinks: Arc::default(),
            reports: Reports::default(),
        }
    }

    /// Returns the session's number, unique for the life of the process.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Returns the rates that the session requests.
    #[must_use]
    pub fn wish(&self) -> RateWish {
        *self.wish.lock_unpoisoned()
    }

    /// Changes the requested rates. They take effect in the next round of shares.
    pub fn set_wish(&self, wish: RateWish) {
        *self.wish.lock_unpoisoned() = wish;
    }

    /// Records that the transfer's request changed.
    pub fn changed(&self) {
        self.is_changed.store(true, Ordering::Release);
    }

    /// Returns true if the transfer's request has changed since the last call of this method.
    #[must_use]
    pub fn take_changed(&self) -> bool {
        self.is_changed.swap(false, Ordering::AcqRel)
    }

    /// Records the progress of the session.
    pub fn note(&self, progress: &Progress) {
        // Do not count sent bytes here. A source passes objects to its streams long before the pace
        // gate lets the bytes of these objects through. [`SharedRates`] counts sent bytes when they
        // pass the gate.
        let moved = progress
            .bytes_durable
            .saturating_sub(progress.bytes_resumed);
        self.moved.fetch_max(moved, Ordering::Relaxed);
        let listed = progress.bytes_listed.saturating_sub(progress.bytes_resumed);
        self.listed.fetch_max(listed, Ordering::Relaxed);
        self.files_done
            .fetch_max(progress.files_done, Ordering::Relaxed);
        self.files_listed
            .fetch_max(progress.files_listed, Ordering::Relaxed);
        self.is_held_there
            .store(progress.is_held_there, Ordering::Relaxed);
        self.note_sink(progress);
        self.ring();
    }

    /// Records the counters of the session's sink, if it runs here. Called with every report, and
    /// with the last counters of a session that this endpoint drives.
    pub fn note_sink(&self, progress: &Progress) {
        self.sinks.note(&self.sink, progress);
    }

    /// Records the state of the storage targets of an end.
    pub fn note_targets(&self, end: End, loads: &[TargetLoad]) {
        let mut targets = self.targets.lock_unpoisoned();
        targets.retain(|(other, _)| *other != end);
        targets.push((end, loads.to_vec()));
    }

    /// Returns the last reports of the storage targets.
    #[must_use]
    pub fn targets(&self) -> Vec<(End, Vec<TargetLoad>)> {
        self.targets.lock_unpoisoned().clone()
    }

    /// Returns the number of bytes that are listed so far, without the bytes of earlier sessions.
    #[must_use]
    pub fn listed(&self) -> u64 {
        self.listed.load(Ordering::Relaxed)
    }

    /// Returns the number of files that are at the destination.
    #[must_use]
    pub fn files_done(&self) -> u64 {
        self.files_done.load(Ordering::Relaxed)
    }

    /// Returns the number of files that are listed so far.
    #[must_use]
    pub fn files_listed(&self) -> u64 {
        self.files_listed.load(Ordering::Relaxed)
    }

    /// Records bytes that have just arrived.
    pub fn arrived(&self, bytes: u64) {
        self.moved.fetch_add(bytes, Ordering::Relaxed);
        self.ring();
    }

    /// Calls `alarm` once when the session has moved `bytes` bytes in all. Replaces an earlier
    /// alarm. The thread that moves the bytes calls `alarm`, so `alarm` must not block.
    pub fn call_at(&self, bytes: u64, alarm: impl FnOnce() + Send + 'static) {
        *self.alarm.lock_unpoisoned() = Some(Box::new(alarm));
        self.alarm_at.store(bytes, Ordering::Release);
        self.ring();
    }

    fn ring(&self) {
        if self.moved() < self.alarm_at.load(Ordering::Acquire) {
            return;
        }
        self.alarm_at.store(u64::MAX, Ordering::Release);
        let alarm = self.alarm.lock_unpoisoned().take();
        if let Some(alarm) = alarm {
            alarm();
        }
    }

    /// Returns the number of bytes that the session has moved.
    #[must_use]
    pub fn moved(&self) -> u64 {
        let passed = self.handle.shared_rates().moved();
        self.moved.load(Ordering::Relaxed).max(passed)
    }

    fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock_unpoisoned()
    }

    /// Returns the rate granted last, in bytes per second.
    #[must_use]
    pub fn granted(&self) -> Option<u64> {
        self.gate().granted
    }

    /// Grants a rate if it differs from the rate granted last. For a held session, the rate takes
    /// effect when the session resumes.
    pub fn grant(&self, rate: Option<u64>) {
        let mut gate = self.gate();
        if gate.granted != rate {
            gate.granted = rate;
            if !gate.is_held {
                self.handle.set_rate(rate);
            }
        }
    }

    /// Returns true if the session's gate is shut.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.gate().is_held
    }

    /// Returns true if either end holds the session. Such a session cannot use a share of the rate.
    #[must_use]
    pub fn is_still(&self) -> bool {
        self.is_held() || self.is_held_there.load(Ordering::Relaxed)
    }

    /// Shuts the session's pace gate if `is_held` is true, even in the middle of an object.
    /// Otherwise opens the gate to the rate that was granted last. The session keeps its
    /// connections, its partial files and its slot.
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
    fn an_amount_is_reported_once_when_it_is_reached() {
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
        // If the session has already moved the bytes, the alarm is called immediately. A later
        // alarm replaces an earlier one.
        moving.call_at(50, ring(&rung));
        assert_eq!(count(), 2);
        moving.call_at(200, ring(&rung));
        moving.call_at(1_000, ring(&rung));
        moving.arrived(200);
        assert_eq!(count(), 2);
    }

    #[test]
    fn a_rate_is_reported_only_when_it_changes() {
        let moving = moving();
        assert_eq!(moving.granted(), None);
        moving.grant(Some(5));
        assert_eq!(moving.granted(), Some(5));
        moving.grant(None);
        assert_eq!(moving.granted(), None);
    }
}
