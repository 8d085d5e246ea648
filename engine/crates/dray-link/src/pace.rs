//! Limits the rate at which bytes pass, for one session and for sets of sessions that share a rate.
//!
//! The machine's gate decides when an object is read. This module then spreads the bytes of the
//! object over time, piece by piece. A shared rate outlives its sessions, so many short sessions
//! together also keep within the rate.
//!
//! Invariant owned here: the bytes that have passed a [`SharedRate`] never exceed rate x time plus
//! one piece for each stream. After a pause, a session catches up at most the bytes of a fifth of a
//! second.

use crate::clock::Clock;
use dray_core::lock::LockExt;
use dray_core::rate::BytesPerSecond;
use dray_sched::pace::Pacer;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of bytes in one piece. Smaller pieces would cost more calls and gain nothing.
const PIECE_MAX: u64 = 1 << 20;

/// Minimum number of bytes in one piece, even at a very low rate: each piece becomes a TLS record.
const PIECE_MIN: u64 = 16;

/// Number of pieces in a second, at the lowest rate that applies to the session.
const PIECE_PARTS: u64 = 50;

/// After a pause, a session may send the bytes of the last 1 / `BURST_PARTS` of a second at once.
/// Without this burst, a thread that wakes late on a busy host would keep the average rate below
/// the limit. The value is estimated, not measured.
const BURST_PARTS: u64 = 5;

/// Interval at which a waiting thread checks whether the session has ended.
const LOOK: Duration = Duration::from_millis(100);

/// Interval at which the thread of a long object reports that the object still moves.
const TOLD: Duration = Duration::from_secs(1);

/// Value of `SharedRate::rate` for "no limit". A limit of zero is never stored.
const NONE: u64 = 0;

/// A rate limit that several streams and sessions share.
#[derive(Debug)]
pub struct SharedRate {
    clock: Clock,
    /// Limit in bytes per second, or [`NONE`].
    rate: AtomicU64,
    pacer: Mutex<Pacer>,
}

impl SharedRate {
    /// Creates a limit of `rate` bytes per second, at least 1.
    #[must_use]
    pub fn new(rate: u64) -> Self {
        let limited = Self::unlimited();
        limited.set(Some(rate.max(1)));
        limited
    }

    fn unlimited() -> Self {
        Self {
            clock: Clock::start(),
            rate: AtomicU64::new(NONE),
            pacer: Mutex::new(Pacer::unlimited()),
        }
    }

    fn rate(&self) -> Option<u64> {
        Some(self.rate.load(Ordering::Acquire)).filter(|rate| *rate != NONE)
    }

    fn set(&self, rate: Option<u64>) {
        let mut pacer = self.pacer();
        let burst = rate.map_or(0, |rate| rate / BURST_PARTS);
        let is_new = pacer.rate().is_none();
        pacer.set_rate(rate.map(BytesPerSecond), burst, self.clock.now());
        if is_new {
            // A limit that was just set also applies to the first bytes, so there is no initial
            // burst.
            pacer.spend(burst);
        }
        pacer.forgive(burst);
        self.rate.store(rate.unwrap_or(NONE), Ordering::Release);
    }

    fn reserve(&self, bytes: u64) -> Duration {
        self.pacer().reserve(bytes, self.clock.now())
    }

    fn pacer(&self) -> MutexGuard<'_, Pacer> {
        self.pacer.lock_unpoisoned()
    }
}

/// All rate limits that a session shares with other sessions, and the number of bytes moved.
#[derive(Debug, Clone, Default)]
pub struct SharedRates {
    rates: Arc<[Arc<SharedRate>]>,
    moved: Arc<AtomicU64>,
}

impl FromIterator<Arc<SharedRate>> for SharedRates {
    fn from_iter<T: IntoIterator<Item = Arc<SharedRate>>>(rates: T) -> Self {
        Self {
            rates: rates.into_iter().collect(),
            moved: Arc::default(),
        }
    }
}

impl SharedRates {
    /// Returns true if there are no shared limits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rates.is_empty()
    }

    /// Returns the number of bytes that have passed at this end, including bytes of unfinished
    /// objects. A large object passes slowly at a low rate, and the calculation of shares must see
    /// its progress.
    #[must_use]
    pub fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    fn lowest(&self) -> Option<u64> {
        self.rates.iter().filter_map(|rate| rate.rate()).min()
    }

    fn reserve(&self, bytes: u64) -> Duration {
        let waits = self.rates.iter().map(|rate| rate.reserve(bytes));
        waits.max().unwrap_or_default()
    }

    /// Charges `bytes` received bytes and waits until the rates allow them. Returns false if
    /// `is_over` returns true before the end of the wait.
    #[must_use]
    pub fn came(&self, bytes: usize, is_over: impl Fn() -> bool) -> bool {
        self.moved.fetch_add(bytes as u64, Ordering::Relaxed);
        if self.is_empty() {
            return true;
        }
        let until = Instant::now() + self.reserve(bytes as u64);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            if is_over() {
                return false;
            }
            std::thread::sleep(left.min(LOOK));
        }
    }
}

/// Limits the rate between a source's buffers and its streams.
#[derive(Debug)]
pub struct Gate {
    own: SharedRate,
    shared: Mutex<SharedRates>,
    is_limited: AtomicBool,
    is_shut_down: Mutex<bool>,
    changed: Condvar,
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            own: SharedRate::unlimited(),
            shared: Mutex::default(),
            is_limited: AtomicBool::new(false),
            is_shut_down: Mutex::new(false),
            changed: Condvar::new(),
        }
    }
}

impl Gate {
    /// Sets the limit of this session in bytes per second. Zero does not change the limit here: the
    /// state machine of the source then sends no further object, and objects already on the streams
    /// continue at the previous rate.
    pub fn set_rate(&self, rate: Option<u64>) {
        if rate != Some(0) && rate != self.own.rate() {
            self.own.set(rate);
            self.note();
        }
    }

    /// Sets the limits that this session shares with other sessions.
    pub fn share(&self, rates: SharedRates) {
        *self.shared() = rates;
        self.note();
    }

    fn note(&self) {
        let is_limited = self.own.rate().is_some() || !self.shared().is_empty();
        self.is_limited.store(is_limited, Ordering::Release);
    }

    /// Ends all waits. After this call no bytes pass.
    pub fn shut_down(&self) {
        *self.is_shut_down() = true;
        self.changed.notify_all();
    }

    fn shared(&self) -> MutexGuard<'_, SharedRates> {
        self.shared.lock_unpoisoned()
    }

    fn is_shut_down(&self) -> MutexGuard<'_, bool> {
        let is_shut_down = self.is_shut_down.lock();
        is_shut_down.unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the next piece of the `left` bytes may pass. Returns the length of the piece and
    /// the length of the wait, or `None` after a shutdown.
    fn piece(&self, left: usize) -> Option<(usize, Duration)> {
        let shared = self.shared().clone();
        let lowest = shared.lowest().into_iter().chain(self.own.rate()).min();
        let Some(lowest) = lowest else {
            return Some((left, Duration::ZERO));
        };
        let piece = (lowest / PIECE_PARTS).clamp(PIECE_MIN, PIECE_MAX);
        let piece = usize::try_from(piece).map_or(left, |piece| piece.min(left));
        let wait = shared
            .reserve(piece as u64)
            .max(self.own.reserve(piece as u64));
        self.wait(wait).then_some((piece, wait))
    }

    fn wait(&self, wait: Duration) -> bool {
        let until = Instant::now() + wait;
        let mut is_shut_down = self.is_shut_down();
        loop {
            if *is_shut_down {
                return false;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            let waited = self.changed.wait_timeout(is_shut_down, left);
            is_shut_down = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Paces one object through a [`Gate`].
pub struct Pace<'a> {
    gate: &'a Gate,
    /// Called about every second while the object passes. The argument is the time that the object
    /// has waited at the gate since the last call.
    under_way: &'a dyn Fn(Duration),
    told: Instant,
    held: Duration,
}

impl<'a> Pace<'a> {
    /// Creates the pace of an object that begins to pass `gate`.
    #[must_use]
    pub fn new(gate: &'a Gate, under_way: &'a dyn Fn(Duration)) -> Self {
        Self {
            gate,
            under_way,
            told: Instant::now(),
            held: Duration::ZERO,
        }
    }

    /// Counts bytes that have passed, whether or not the sender called [`Self::piece`] for them.
    pub fn passed(&self, bytes: usize) {
        let shared = self.gate.shared();
        shared.moved.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Returns true if a limit is set, so the sender must call [`Self::piece`].
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.gate.is_limited.load(Ordering::Acquire)
    }

    /// Waits until the next piece of the `left` bytes may pass, and returns its length in bytes.
    /// Returns `None` if the session has ended.
    pub fn piece(&mut self, left: usize) -> Option<usize> {
        if self.told.elapsed() >= TOLD {
            self.told = Instant::now();
            (self.under_way)(self.take_held());
        }
        let (piece, waited) = self.gate.piece(left)?;
        self.held += waited;
        Some(piece)
    }

    /// Returns the time spent waiting since the last report, and resets it.
    pub fn take_held(&mut self) -> Duration {
        std::mem::take(&mut self.held)
    }

    /// Waits until the rates allow `bytes` bytes. Returns false if the session has ended.
    #[must_use]
    pub fn pass(&mut self, bytes: u64) -> bool {
        let mut left = usize::try_from(bytes).unwrap_or(usize::MAX);
        while left > 0 && self.is_limited() {
            let Some(piece) = self.piece(left) else {
                return false;
            };
            self.passed(piece);
            left -= piece;
        }
        self.passed(left);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::{Gate, Pace, SharedRate, SharedRates};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::{Duration, Instant};

    #[test]
    fn bytes_of_many_short_sessions_keep_to_a_shared_rate() {
        let rates: SharedRates = [Arc::new(SharedRate::new(1_000_000))].into_iter().collect();
        let began = Instant::now();
        let passed = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10 {
                        let gate = Gate::default();
                        gate.share(rates.clone());
                        assert!(Pace::new(&gate, &|_| {}).pass(10_000));
                        passed.fetch_add(10_000, Ordering::Relaxed);
                        let allowed = began.elapsed().as_micros() as u64 + 50_000 + 4 * 20_000;
                        assert!(passed.load(Ordering::Relaxed) <= allowed + 1);
                    }
                });
            }
        });
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(250), "{took:?}");
    }

    #[test]
    fn a_session_that_ends_lets_nobody_wait() {
        let gate = Arc::new(Gate::default());
        gate.set_rate(Some(1));
        let other = Arc::clone(&gate);
        let waits = std::thread::spawn(move || Pace::new(&other, &|_| {}).pass(1 << 30));
        std::thread::sleep(Duration::from_millis(20));
        gate.shut_down();
        assert!(!waits.join().expect("ran"));
    }

    #[test]
    fn without_a_rate_nothing_waits() {
        let gate = Gate::default();
        let mut pace = Pace::new(&gate, &|_| {});
        assert!(!pace.is_limited());
        assert_eq!(pace.piece(1 << 30), Some(1 << 30));
        gate.set_rate(Some(1_000));
        assert!(pace.is_limited());
        assert_eq!(pace.piece(1 << 30), Some(20));
        // A rate of zero holds the transfer: objects on the streams continue at the previous rate.
        gate.set_rate(Some(0));
        assert_eq!(pace.piece(1 << 30), Some(20));
        gate.set_rate(None);
        assert!(!pace.is_limited());
    }
}
