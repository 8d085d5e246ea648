//! What a leaf of the tree of shares can use, as it shows in what it moves.

use dray_core::Time;
use dray_core::rate::BytesPerSecond;
use std::collections::VecDeque;
use std::time::Duration;

/// What is looked at: long enough for some objects at the rates that matter, short enough that who
/// wakes has their share within a second. Three rounds of 200 ms.
const WINDOW: Duration = Duration::from_millis(600);

/// Rounds shorter than this are put together, so that a burst of changes to the tree, each with a
/// round of its own, does not shorten the memory. Twelve make a window.
const SAMPLE: Duration = Duration::from_millis(50);

/// Samples a window holds at the most.
const SAMPLES_MAX: usize = 16;

/// For so long a leaf that has moved something is taken to be slow, not idle: it has two objects in the
/// time that it stood still. Who was slower before is slower now, so four times as long as it stood
/// still before its last object, within reason. An end that is limited elsewhere (by the other end,
/// a disk) would else be throttled here between any two of its objects. Guesses, revisit.
const STILL: Duration = Duration::from_secs(2);
const STILL_GAPS: u32 = 4;
const GAP_MAX: Duration = Duration::from_secs(30);

/// What an idle leaf is granted, so that the first object that comes can pass: it is seen, and the
/// leaf gets its share in the next round. Small: idle ones keep it from the others. Guess, revisit.
const PROBE: BytesPerSecond = BytesPerSecond(64 * 1024);

#[derive(Debug, Clone, Copy)]
struct Sample {
    length: Duration,
    granted: u64,
    moved: u64,
}

/// Tells a leaf that is limited by its grant from one that is limited by itself.
///
/// The first wants as much as it gets. The second is given what it moves, a quarter more, and two
/// objects a window: if it then moves all of that, it is limited by its grant. Rates that are small
/// against objects are coarse, one object or none in a round; the two objects are more than that
/// coarseness. Between two objects that are further apart, the window is that far.
#[derive(Debug, Clone)]
pub struct Demand {
    /// Bytes that pass the gate as one: an object.
    grain: u64,
    samples: VecDeque<Sample>,
    last: Option<(Time, u64)>,
    /// Bytes granted since something moved.
    idle: u64,
    /// When something moved last.
    moved_at: Option<Time>,
    /// How long nothing had moved before.
    gap: Duration,
}

impl Demand {
    /// For a leaf that moves `grain_bytes`, an object, at once.
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

    /// Looks at one round: `granted` is the rate in force since the last call, `moved` all bytes
    /// ever moved. Returns what the leaf can use; `None` for as much as it gets. To be called once
    /// a round, every 200 ms or so.
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
        // One object may overdraw the gate, so one object's worth of grant may pass without any
        // movement; two objects' worth may not, but where there is nothing to move.
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
