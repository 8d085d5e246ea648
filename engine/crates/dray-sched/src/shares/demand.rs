//! Demand of a leaf in the tree of shares, derived from the bytes that the leaf moves.

use dray_core::Time;
use dray_core::rate::BytesPerSecond;
use std::collections::VecDeque;
use std::time::Duration;

/// Length of the observation window: three rounds of 200 ms. The window is long enough for several
/// objects at common rates. The window is also short enough: a leaf that becomes active gets its
/// share within a second.
const WINDOW: Duration = Duration::from_millis(600);

/// Minimum length of a sample. Shorter rounds are merged. Otherwise a burst of changes to the tree,
/// each with its own round, would shorten the window. Twelve samples make a window.
const SAMPLE: Duration = Duration::from_millis(50);

/// Maximum number of samples in a window.
const SAMPLES_MAX: usize = 16;

/// A leaf that has moved bytes within this time counts as slow, not as idle. A slow leaf is granted
/// two objects per pause. With a shorter time, this end would throttle a leaf between two of its
/// objects, although the other end or a disk limits the leaf. The value is an estimate.
const STILL: Duration = Duration::from_secs(2);
/// The time is at least this many times the last pause, because a leaf with long pauses stays slow.
const STILL_GAPS: u32 = 4;
/// A longer pause counts as this long.
const GAP_MAX: Duration = Duration::from_secs(30);

/// Rate that an idle leaf is granted, so that its first object can pass. The tree then sees that
/// the leaf is active, and the leaf gets its share in the next round. The rate is small because it
/// is taken from the active leaves. The value is an estimate.
const PROBE: BytesPerSecond = BytesPerSecond(64 * 1024);

#[derive(Debug, Clone, Copy)]
struct Sample {
    length: Duration,
    granted: u64,
    moved: u64,
}

/// Distinguishes a leaf that is limited by its grant from a leaf with a lower demand.
///
/// A leaf that is limited by its grant can use any grant. A leaf with a lower demand is granted its
/// measured rate, plus a quarter, plus two objects per window. If the leaf then moves all bytes of
/// this grant, it is limited by its grant. The two objects are needed because at low rates a leaf
/// moves one object or none between two calls of [`Demand::observe`]. If the pause between two
/// objects is longer than the window, the pause counts as the window.
#[derive(Debug, Clone)]
pub struct Demand {
    /// Number of bytes that pass the gate together: the size of an object.
    grain: u64,
    samples: VecDeque<Sample>,
    last: Option<(Time, u64)>,
    /// Number of bytes granted since bytes last moved.
    idle: u64,
    /// Time at which bytes last moved.
    moved_at: Option<Time>,
    /// Length of the pause before bytes last moved.
    gap: Duration,
}

impl Demand {
    /// Creates the demand of a leaf whose objects have `grain_bytes` bytes.
    #[must_use]
    pub fn new(grain_bytes: u64) -> Self {
        Self {
            grain: grain_bytes.max(1),
            samples: VecDeque::new(),
            last: None,
            idle: 0,
            moved_at: None,
            gap: Duration::ZERO,
        }
    }

    /// Records what the leaf has moved up to `now`. `granted` is the rate that the leaf was granted
    /// since the last call. `moved` is the total number of bytes that the leaf has moved. Returns
    /// the maximum rate that the leaf can use; `None` means no known limit. Call this once in each
    /// round of the tree, about every 200 ms.
    pub fn observe(
        &mut self,
        now: Time,
        granted: Option<BytesPerSecond>,
        moved: u64,
    ) -> Option<BytesPerSecond> {
        let (then, before) = self.last.replace((now, moved))?;
        if moved > before
            && let Some(at) = self.moved_at.replace(now)
        {
            self.gap = now.since(at).min(GAP_MAX);
        }
        let Some(granted) = granted else {
            self.samples.clear();
            self.idle = 0;
            return None;
        };
        let length = now.since(then);
        let sample = Sample {
            length,
            granted: bytes_in(granted, length),
            moved: moved.saturating_sub(before),
        };
        self.idle = if sample.moved == 0 {
            self.idle.saturating_add(sample.granted)
        } else {
            0
        };
        self.push(sample);
        self.judge(now)
    }

    fn push(&mut self, sample: Sample) {
        match self.samples.back_mut() {
            Some(last) if last.length < SAMPLE => {
                last.length += sample.length;
                last.granted = last.granted.saturating_add(sample.granted);
                last.moved = last.moved.saturating_add(sample.moved);
            }
            _ => self.samples.push_back(sample),
        }
        while self.samples.len() > SAMPLES_MAX
            || (self.samples.len() > 1 && self.span().saturating_sub(self.first()) >= WINDOW)
        {
            self.samples.pop_front();
        }
    }

    fn first(&self) -> Duration {
        self.samples
            .front()
            .map_or(Duration::ZERO, |sample| sample.length)
    }

    fn span(&self) -> Duration {
        self.samples.iter().map(|sample| sample.length).sum()
    }

    fn sum(&self, part: fn(&Sample) -> u64) -> u64 {
        (self.samples.iter()).fold(0, |sum, sample| sum.saturating_add(part(sample)))
    }

    fn judge(&self, now: Time) -> Option<BytesPerSecond> {
        let granted = self.sum(|sample| sample.granted);
        let moved = self.sum(|sample| sample.moved);
        let span = self.span();
        if moved >= granted - granted / 10 || span < WINDOW {
            return None;
        }
        let still = self.moved_at.map(|at| now.since(at));
        let is_still = still.is_none_or(|still| still >= STILL.max(self.gap * STILL_GAPS));
        // One object may overdraw the gate. So a leaf that is granted the bytes of one object may
        // move nothing. A leaf that is granted the bytes of two objects and moves nothing has
        // nothing to move.
        if self.idle >= self.grain.saturating_mul(2) && moved == 0 && is_still {
            return Some(PROBE);
        }
        let span = match still {
            Some(still) if moved == 0 => span.max(still),
            _ => span,
        };
        let nanos = span.as_nanos().max(1);
        let rate = u128::from(moved) * 1_000_000_000 / nanos;
        let spare = u128::from(self.grain) * 2_000_000_000 / nanos;
        let bound = rate + rate / 4 + spare;
        let bound = u64::try_from(bound).unwrap_or(u64::MAX);
        Some(BytesPerSecond(bound.max(PROBE.0)))
    }
}

fn bytes_in(rate: BytesPerSecond, length: Duration) -> u64 {
    let bytes = u128::from(rate.0) * length.as_nanos() / 1_000_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
