//! Limits the rate of a whole store or of single targets. The limit makes a fast machine behave
//! like one with a slow disk, or leaves a part of the rate to other programs. The wrapper lets the
//! calling thread sleep.

use super::{Call, Hook, Operation};
use crate::store::Store;
use dray_core::lock::{LockExt, RwLockExt};
use dray_core::rate::BytesPerSecond;
use dray_core::{TargetId, units};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::time::{Duration, Instant};

/// Maximum burst after a pause, as time at the full rate. It is long enough that inexact sleeps do
/// not reduce the throughput. The value is estimated, not measured.
const BURST: Duration = Duration::from_millis(20);

/// Rate limits in bytes per second.
#[derive(Debug, Clone, Default)]
pub struct LimitOptions {
    /// Limit on the total rate of all targets.
    pub whole: Option<BytesPerSecond>,
    /// Limits on the rate of single targets.
    pub targets: TargetLimits,
}

/// Limits on the rates of storage targets. All stores that use clones of one value share its rates:
/// two concurrent sessions together do not exceed the rate of a target.
#[derive(Debug, Clone, Default)]
pub struct TargetLimits(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Buckets by target name.
    buckets: BTreeMap<String, Arc<Bucket>>,
    /// Time at which the first byte was moved.
    begin: OnceLock<Instant>,
}

impl TargetLimits {
    /// Returns the names of the limited targets.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.buckets.keys().map(String::as_str)
    }

    /// Returns true if no target has a limit.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.buckets.is_empty()
    }
}

impl FromIterator<(String, RateInTime)> for TargetLimits {
    fn from_iter<I: IntoIterator<Item = (String, RateInTime)>>(limits: I) -> Self {
        let bucket = |(name, rate)| (name, Arc::new(Bucket::new(rate)));
        Self(Arc::new(Shared {
            buckets: limits.into_iter().map(bucket).collect(),
            begin: OnceLock::new(),
        }))
    }
}

/// A rate that changes over time, as if other programs used the same target. Time starts when the
/// first byte of a store with these limits is moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateInTime {
    first: BytesPerSecond,
    /// Later rates in order. Each rate has the time at which it starts.
    later: Vec<(Duration, BytesPerSecond)>,
    /// Additional time of each call. It does not depend on the number of concurrent calls.
    each: Duration,
}

impl From<BytesPerSecond> for RateInTime {
    fn from(first: BytesPerSecond) -> Self {
        Self {
            first,
            later: Vec::new(),
            each: Duration::ZERO,
        }
    }
}

impl RateInTime {
    /// Parses `RATE[,RATE@SECONDS...][,+SECONDS]`. The first rate applies from the start. A later
    /// rate applies from the given number of seconds on. The number after the plus is the
    /// additional time of each read or write in seconds.
    ///
    /// # Errors
    /// A message with the reason.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let first = parts.next().unwrap_or_default();
        let mut read = Self::from(BytesPerSecond(units::rate(first)?));
        for part in parts {
            if let Some(each) = part.strip_prefix('+') {
                read.each = read_seconds(each)?;
                continue;
            }
            let (rate, seconds) = part.split_once('@').ok_or_else(|| {
                format!("{part:?} is not a change of the rate; write RATE@SECONDS")
            })?;
            let from = read_seconds(seconds)?;
            if read.later.last().is_some_and(|(last, _)| *last >= from) {
                return Err(format!(
                    "the time of the change {part:?} is not later than the time of the previous \
                        change"
                ));
            }
            read.later.push((from, BytesPerSecond(units::rate(rate)?)));
        }
        Ok(read)
    }

    /// Returns the rate at the time `after` since the start.
    fn at(&self, after: Duration) -> BytesPerSecond {
        let begun = self.later.iter().rfind(|(from, _)| *from <= after);
        let rate = begun.map_or(self.first, |(_, rate)| *rate);
        BytesPerSecond(rate.0.max(1))
    }
}

fn read_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok();
    let seconds = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| format!("{text:?} is not a number of seconds"))
}

/// A hook that limits rates.
pub struct Limit {
    whole: Option<Bucket>,
    targets: TargetLimits,
    /// Buckets by target number; `None` for a target without a limit.
    numbers: RwLock<HashMap<TargetId, Option<Arc<Bucket>>>>,
    store: Arc<dyn Store>,
}

impl Limit {
    /// Creates a hook with limits for `store`. `store` supplies the names of its targets.
    #[must_use]
    pub fn new(options: LimitOptions, store: Arc<dyn Store>) -> Self {
        Self {
            whole: options.whole.map(|rate| Bucket::new(rate.into())),
            targets: options.targets,
            numbers: RwLock::default(),
            store,
        }
    }

    fn bucket(&self, target: TargetId) -> Option<Arc<Bucket>> {
        {
            let numbers = self.numbers.read_unpoisoned();
            if let Some(known) = numbers.get(&target) {
                return known.clone();
            }
        }
        let targets = self.store.targets();
        let name = targets.into_iter().find(|known| known.id == target);
        let bucket = name.and_then(|known| self.targets.0.buckets.get(&known.name).cloned());
        let mut numbers = self.numbers.write_unpoisoned();
        numbers.insert(target, bucket.clone());
        bucket
    }
}

impl Hook for Limit {
    const WANTS_LAYOUT: bool = true;
    const DELAYS: bool = true;

    fn before(&self, call: &Call<'_>) -> dray_core::Result<()> {
        let is_data = matches!(
            call.operation,
            Operation::Read | Operation::ReadBack | Operation::Write | Operation::WriteSmall
        );
        if !is_data || call.range.is_empty() {
            return Ok(());
        }
        let target = call
            .layout
            .map(|layout| layout.target_at(call.range.offset));
        let of_target = target.and_then(|target| self.bucket(target));
        for bucket in [of_target.as_deref(), self.whole.as_ref()]
            .into_iter()
            .flatten()
        {
            let begin = *self.targets.0.begin.get_or_init(Instant::now);
            bucket.take(call.range.length, begin);
        }
        Ok(())
    }
}

/// A token bucket that stores a time instead of a number of tokens: the time until which the rate
/// is used up. Each take moves this time later by the time that its bytes need.
#[derive(Debug)]
struct Bucket {
    rate: RateInTime,
    even: Mutex<Instant>,
}

impl Bucket {
    fn new(rate: RateInTime) -> Self {
        Self {
            rate,
            even: Mutex::new(Instant::now()),
        }
    }

    /// Waits until `bytes` may be moved. Concurrent takes wait one after the other. Each take uses
    /// the rate that applies when its turn comes.
    fn take(&self, bytes: u64, begin: Instant) {
        let now = Instant::now();
        let go = {
            let mut even = self.even.lock_unpoisoned();
            let earliest = now.checked_sub(BURST).unwrap_or(now);
            let start = (*even).max(earliest);
            let rate = self.rate.at(start.saturating_duration_since(begin));
            *even = start + rate.time_for(bytes).unwrap_or_default();
            *even
        };
        // Sleep here until the rate permits these bytes, and not at the start of the next call.
        // Otherwise a single call of `take` could exceed the rate.
        std::thread::sleep(go.saturating_duration_since(now) + self.rate.each);
    }
}

#[cfg(test)]
mod tests {
    use super::{Bucket, RateInTime};
    use dray_core::rate::BytesPerSecond;
    use std::time::{Duration, Instant};

    #[test]
    fn many_threads_together_keep_the_rate() {
        let bucket = Bucket::new(BytesPerSecond(1_000_000).into());
        let started = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10).for_each(|_| bucket.take(5_000, started)));
            }
        });
        // 200 000 bytes at 1 MB/s take 200 ms, minus one burst of 20 ms.
        let took = started.elapsed();
        assert!(took >= Duration::from_millis(175), "{took:?}");
        assert!(took < Duration::from_secs(2), "{took:?}");
    }

    #[test]
    fn the_latency_of_concurrent_calls_overlaps() {
        let bucket = Bucket::new(RateInTime::parse("1GiB,+0.2").expect("good"));
        let started = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..2).for_each(|_| bucket.take(5_000, started)));
            }
        });
        let took = started.elapsed();
        assert!(took >= Duration::from_millis(400), "{took:?}");
        assert!(took < Duration::from_secs(3), "{took:?}");
    }

    #[test]
    fn a_rate_changes_when_it_is_time() {
        let rate = RateInTime::parse("4MB,400KB@0.5,2MB/s@1").expect("good");
        let at = |millis| rate.at(Duration::from_millis(millis)).0;
        assert_eq!(
            [0, 499, 500, 999].map(at),
            [4_000_000, 4_000_000, 400_000, 400_000]
        );
        assert_eq!([1000, 100_000].map(at), [2_000_000; 2]);
        for wrong in [
            "",
            "0",
            "1M,",
            "1M,2M",
            "1M,2M@x",
            "1M,2M@-1",
            "1M,2M@2,3M@2",
            "1M,0@1",
            "1M,+",
            "1M,+x",
            "1M,+-1",
        ] {
            assert!(RateInTime::parse(wrong).is_err(), "{wrong}");
        }
        // The first three takes need 0.1 s each, and the fourth take needs 1 s at the lower rate. A
        // burst may shorten the total time by 0.02 s.
        let bucket = Bucket::new(RateInTime::parse("1MB,100KB@0.2").expect("good"));
        let begin = Instant::now();
        (0..4).for_each(|_| bucket.take(100_000, begin));
        let took = begin.elapsed();
        assert!(took >= Duration::from_millis(1100), "{took:?}");
    }
}
