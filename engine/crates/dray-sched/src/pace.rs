//! The pace gate. An object passes the gate before it is read, so no object is read before it may
//! be sent.
//!
//! A rate of zero shuts the gate until another rate is set.

use dray_core::Time;
use dray_core::rate::BytesPerSecond;
use std::time::Duration;

/// A token bucket that allows `rate` bytes per second on average, and at most `burst` bytes at one
/// time.
#[derive(Debug, Clone)]
pub struct Pacer {
    rate: Option<BytesPerSecond>,
    burst: u64,
    /// Number of bytes that may pass now. Negative after an object that was larger than the number
    /// of bytes in the bucket.
    tokens: i128,
    filled: Time,
}

impl Pacer {
    /// Creates a gate without a rate limit.
    #[must_use]
    pub const fn unlimited() -> Self {
        Self {
            rate: None,
            burst: 0,
            tokens: 0,
            filled: Time::ZERO,
        }
    }

    /// Creates a gate with a limit of `rate` and a full bucket of `burst` bytes.
    #[must_use]
    pub const fn limited(rate: BytesPerSecond, burst: u64, now: Time) -> Self {
        Self {
            rate: Some(rate),
            burst,
            tokens: burst as i128,
            filled: now,
        }
    }

    /// Changes the limit from now on. `None` removes the limit.
    pub fn set_rate(&mut self, rate: Option<BytesPerSecond>, burst: u64, now: Time) {
        self.fill(now);
        if self.rate.is_none() {
            self.tokens = i128::from(burst);
        }
        self.rate = rate;
        self.burst = burst;
        self.tokens = self.tokens.min(i128::from(burst));
    }

    /// Returns the current rate limit.
    #[must_use]
    pub const fn rate(&self) -> Option<BytesPerSecond> {
        self.rate
    }

    /// Returns true if the gate is shut, because the rate is zero.
    #[must_use]
    pub fn is_shut(&self) -> bool {
        self.rate == Some(BytesPerSecond(0))
    }

    /// Returns the time at which an object may pass. `None` means now. An object may pass if the
    /// bucket holds at least one byte, so one object may overdraw the bucket. The total number of
    /// bytes passed never exceeds rate x time + burst + one object.
    pub fn wait_until(&mut self, now: Time) -> Option<Time> {
        let rate = self.rate?;
        self.fill(now);
        // While the gate is shut, tokens in the bucket do not let an object pass.
        if self.tokens > 0 && !self.is_shut() {
            return None;
        }
        let debt = u64::try_from(1 - self.tokens).unwrap_or(u64::MAX);
        let wait = rate.time_for(debt).unwrap_or(Duration::from_secs(3600));
        Some(now + wait)
    }

    /// Charges `bytes` and returns the time that the caller must wait before the bytes pass. If
    /// callers keep to their waits, bytes pass in the order of the calls. The number of bytes
    /// passed then never exceeds rate x time + burst + the largest `bytes`. The caller must check
    /// for a shut gate itself.
    pub fn reserve(&mut self, bytes: u64, now: Time) -> Duration {
        let Some(rate) = self.rate else {
            return Duration::ZERO;
        };
        self.fill(now);
        let debt = u64::try_from(-self.tokens).unwrap_or(0);
        self.spend(bytes);
        let wait = rate.time_for(debt).unwrap_or(Duration::from_secs(3600));
        match debt {
            0 => Duration::ZERO,
            _ => wait,
        }
    }

    /// Reduces the debt to `bytes`. Bytes that passed at a higher rate then do not delay a lower
    /// rate for long.
    pub fn forgive(&mut self, bytes: u64) {
        self.tokens = self.tokens.max(-i128::from(bytes));
    }

    /// Charges `bytes` that pass now.
    pub fn spend(&mut self, bytes: u64) {
        if self.rate.is_some() {
            self.tokens -= i128::from(bytes);
        }
    }

    fn fill(&mut self, now: Time) {
        let Some(rate) = self.rate.filter(|rate| rate.0 > 0) else {
            // While the gate has no limit or is shut, no tokens accumulate.
            self.filled = now;
            return;
        };
        let nanos = now.since(self.filled).as_nanos();
        let new = nanos * u128::from(rate.0) / 1_000_000_000;
        if new > 0 {
            // Only whole bytes are added. The rest of the time counts for the next call.
            let used = new * 1_000_000_000 / u128::from(rate.0).max(1);
            self.filled = self.filled
                + Duration::from_nanos(u64::try_from(used.min(nanos)).unwrap_or(u64::MAX));
            let new = i128::try_from(new).unwrap_or(i128::MAX);
            self.tokens = self.tokens.saturating_add(new).min(i128::from(self.burst));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Pacer;
    use dray_core::Time;
    use dray_core::rate::BytesPerSecond;
    use proptest::prelude::*;
    use std::time::Duration;

    proptest! {
        #[test]
        fn integral_never_exceeds_rate_and_burst_and_one_object(
            rate in 1_000..1_000_000_000u64,
            object in 1..2_000_000u64,
            steps in prop::collection::vec(0..20_000_000u64, 1..200),
        ) {
            let burst = 100_000;
            let mut pacer = Pacer::limited(BytesPerSecond(rate), burst, Time::ZERO);
            let (mut now, mut sent) = (Time::ZERO, 0u128);
            for step in steps {
                now = now + Duration::from_nanos(step);
                if pacer.wait_until(now).is_none() {
                    pacer.spend(object);
                    sent += u128::from(object);
                }
                let allowed = u128::from(now.as_nanos()) * u128::from(rate) / 1_000_000_000;
                prop_assert!(sent <= allowed + u128::from(burst + object));
            }
        }

        #[test]
        fn reserved_bytes_pass_in_order_and_never_above_the_rate(
            rate in 1_000..1_000_000_000u64,
            pieces in prop::collection::vec((1..100_000u64, 0..5_000_000u64), 1..200),
        ) {
            let burst = rate / 20;
            let mut pacer = Pacer::limited(BytesPerSecond(rate), burst, Time::ZERO);
            let (mut now, mut last, mut passed) = (Time::ZERO, Time::ZERO, 0u128);
            for (bytes, step) in pieces {
                now = now + Duration::from_nanos(step);
                let at = now + pacer.reserve(bytes, now);
                prop_assert!(at >= last);
                last = at;
                passed += u128::from(bytes);
                let allowed = u128::from(at.as_nanos() + 1) * u128::from(rate) / 1_000_000_000;
                prop_assert!(passed <= allowed + u128::from(burst + bytes) + 1);
            }
        }

        #[test]
        fn the_stated_wait_is_enough_and_the_rate_is_reached(rate in 1_000..1_000_000_000u64) {
            let mut pacer = Pacer::limited(BytesPerSecond(rate), 1, Time::ZERO);
            let mut now = Time::ZERO;
            for _ in 0..100 {
                if let Some(then) = pacer.wait_until(now) {
                    prop_assert!(then > now);
                    now = then;
                    prop_assert!(pacer.wait_until(now).is_none());
                }
                pacer.spend(1000);
            }
            let ideal = 99_000.0 / rate as f64;
            let took = now.as_nanos() as f64 / 1e9;
            prop_assert!(took <= ideal * 1.01 + 1e-6, "took {took}, ideal {ideal}");
        }
    }

    #[test]
    fn a_rate_of_zero_shuts_the_gate_and_saves_nothing_for_later() {
        let seconds = |count| Time::ZERO + Duration::from_secs(count);
        for before in [None, Some(BytesPerSecond(1_000))] {
            let mut pacer = Pacer::unlimited();
            pacer.set_rate(before, 100, Time::ZERO);
            // The bucket is full, but nothing may pass while the rate is zero.
            pacer.set_rate(Some(BytesPerSecond(0)), 100, Time::ZERO);
            assert!(pacer.is_shut());
            for at in [0, 1, 3_600, 1_000_000] {
                assert!(pacer.wait_until(seconds(at)).is_some(), "{before:?} {at}");
            }
            pacer.set_rate(Some(BytesPerSecond(10)), 10_000, seconds(1_000_000));
            pacer.spend(100);
            assert!(pacer.wait_until(seconds(1_000_000)).is_some(), "{before:?}");
            pacer.set_rate(None, 0, seconds(1_000_000));
            assert!(pacer.wait_until(seconds(1_000_000)).is_none());
        }
    }

    #[test]
    fn rates_change_live() {
        let mut pacer = Pacer::unlimited();
        assert!(pacer.wait_until(Time::ZERO).is_none());
        pacer.set_rate(Some(BytesPerSecond(10)), 5, Time::ZERO);
        pacer.spend(15);
        assert_eq!(
            pacer.wait_until(Time::ZERO),
            Some(Time::ZERO + Duration::from_millis(1100))
        );
        pacer.set_rate(None, 0, Time::ZERO);
        assert!(pacer.wait_until(Time::ZERO).is_none());
    }
}
