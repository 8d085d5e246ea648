//! At most so many bytes per second, for a whole store or for single targets: a slow disk on a fast
//! machine, or a share of a fast one. Waiting is this wrapper's job: the calling thread sleeps.

use super::{Call, Hook, Operation};
use crate::store::Store;
use dray_core::rate::BytesPerSecond;
use dray_core::{Result, TargetId};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Bytes that may go at once after a pause, as time at the full rate: long enough that a sleep's
/// coarseness costs no throughput (guess, revisit).
const BURST: Duration = Duration::from_millis(20);

/// Limits in bytes per second.
#[derive(Debug, Clone, Default)]
pub struct LimitOptions {
    /// Of everything together.
    pub whole: Option<BytesPerSecond>,
    /// Of single targets, by name.
    pub targets: BTreeMap<String, BytesPerSecond>,
}

/// The hook.
pub struct Limit {
    whole: Option<Bucket>,
    targets: BTreeMap<String, Arc<Bucket>>,
    /// What is known of numbers; `None` for a target without a limit.
    numbers: RwLock<HashMap<TargetId, Option<Arc<Bucket>>>>,
    store: Arc<dyn Store>,
}

impl Limit {
    /// Limits on `store`, which is asked for the names of targets.
    #[must_use]
    pub fn new(options: LimitOptions, store: Arc<dyn Store>) -> Self {
        let bucket = |(name, rate)| (name, Arc::new(Bucket::new(rate)));
        Self {
            whole: options.whole.map(Bucket::new),
            targets: options.targets.into_iter().map(bucket).collect(),
            numbers: RwLock::default(),
            store,
        }
    }

    fn bucket(&self, target: TargetId) -> Option<Arc<Bucket>> {
        {
            let numbers = self.numbers.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(known) = numbers.get(&target) {
                return known.clone();
            }
        }
        let targets = self.store.targets();
        let name = targets.into_iter().find(|known| known.id == target);
        let bucket = name.and_then(|known| self.targets.get(&known.name).cloned());
        let mut numbers = self.numbers.write().unwrap_or_else(PoisonError::into_inner);
        numbers.insert(target, bucket.clone());
        bucket
    }
}

impl Hook for Limit {
    const WANTS_LAYOUT: bool = true;

    fn before(&self, call: &Call<'_>) -> Result<()> {
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
            bucket.take(call.range.length);
        }
        Ok(())
    }
}

/// Bytes as time: each take moves the moment at which the bucket is even again.
struct Bucket {
    rate: BytesPerSecond,
    even: Mutex<Instant>,
}

impl Bucket {
    fn new(rate: BytesPerSecond) -> Self {
        Self {
            rate: BytesPerSecond(rate.0.max(1)),
            even: Mutex::new(Instant::now()),
        }
    }

    /// Waits until `bytes` may go. Those who come together wait one after the other.
    fn take(&self, bytes: u64) {
        let Some(cost) = self.rate.time_for(bytes) else {
            return;
        };
        let now = Instant::now();
        let go = {
            let mut even = self.even.lock().unwrap_or_else(PoisonError::into_inner);
            let earliest = now.checked_sub(BURST).unwrap_or(now);
            let start = (*even).max(earliest);
            *even = start + cost;
            *even
        };
        // The bytes' own time is waited for before they go, so that a single take cannot exceed the
        // rate either.
        std::thread::sleep(go.saturating_duration_since(now));
    }
}

#[cfg(test)]
mod tests {
    use super::Bucket;
    use dray_core::rate::BytesPerSecond;
    use std::time::{Duration, Instant};

    #[test]
    fn many_threads_together_keep_the_rate() {
        let bucket = Bucket::new(BytesPerSecond(1_000_000));
        let started = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10).for_each(|_| bucket.take(5_000)));
            }
        });
        // 200 000 bytes at 1 MB/s, less one burst.
        let took = started.elapsed();
        assert!(took >= Duration::from_millis(175), "{took:?}");
        assert!(took < Duration::from_secs(2), "{took:?}");
    }
}
