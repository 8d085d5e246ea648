//! Finds the bottleneck of a session, as far as the driving end can see it. The tuner changes only
//! settings that can help against that bottleneck.

use dray_core::profile::{Stage, Times};
use dray_sched::tuner::Bottleneck;
use dray_session::Progress;
use dray_wire::message::Role;
use std::time::Duration;

/// Smoothing interval of the measured rate. Objects finish in bursts, so the rate of a single
/// sample would vary too much. The value is estimated, not measured.
const SMOOTH: Duration = Duration::from_secs(5);

/// Fraction of the permitted rate above which the rate limit counts as the bottleneck. The fraction
/// is less than 1, because the permitted rate may change during the measurement. The value is
/// estimated, not measured.
const OF_RATE: f64 = 0.8;

/// Measurements since the last sample.
pub(super) struct Interval {
    /// Bytes transferred, including those of unfinished objects.
    pub(super) bytes: u64,
    /// Time since the last sample.
    pub(super) took: Duration,
    /// Permitted bytes per second at this end.
    pub(super) rate: Option<u64>,
}

/// Finds the bottleneck of one session.
pub(super) struct BottleneckFinder {
    /// Role of this end.
    role: Role,
    own: Times,
    other: Times,
    /// True if the rate limit was the longest stage in the other end's last report.
    is_rate_there: bool,
    /// Smoothed throughput in bytes per second.
    speed: Option<f64>,
}

impl BottleneckFinder {
    /// Returns a finder for a new session.
    pub(super) fn new(role: Role) -> Self {
        Self {
            role,
            own: Times::default(),
            other: Times::default(),
            is_rate_there: false,
            speed: None,
        }
    }

    /// Returns the main bottleneck at this end since the last call. Returns `None` in two cases:
    /// - A source waited for credit. Either the sink is slow, or answers have a long round trip.
    /// - A sink waited for objects. Either the source is slow, or the network.
    pub(super) fn look(&mut self, progress: &Progress, seen: &Interval) -> Option<Bottleneck> {
        let profile = &progress.profile;
        let (own, other) = match self.role {
            Role::Source => (profile.source, profile.sink),
            Role::Sink => (profile.sink, profile.source),
        };
        let since = own.since(&self.own);
        self.own = own;
        self.hear(other);
        let is_rate = self.is_at_its_rate(seen) || self.is_rate_there;
        let resumed = progress
            .bytes_resumed
            .saturating_add(progress.bytes_written);
        let is_at_the_end = progress.listing_done && resumed >= progress.bytes_listed;
        if is_rate || progress.is_held_there || is_at_the_end {
            return Some(Bottleneck::Other);
        }
        match longest(&since)? {
            Stage::Network => Some(Bottleneck::Network),
            Stage::Read => Some(Bottleneck::Read),
            Stage::Write | Stage::Sync => Some(Bottleneck::Write),
            Stage::Credit | Stage::Arrival => None,
            _ => Some(Bottleneck::Other),
        }
    }

    /// Records the stage times of the other end. The other end reports them every ten seconds,
    /// which is not often enough for most bottlenecks. So these reports only show whether a rate
    /// limit is the bottleneck at the other end. Such a limit lasts longer than ten seconds, and a
    /// sink cannot detect a limit at the source in any other way.
    fn hear(&mut self, other: Times) {
        let told = other.since(&self.other);
        if !told.is_empty() {
            self.other = other;
            self.is_rate_there = longest(&told) == Some(Stage::Rate);
        }
    }

    /// Returns true if the session moves at its permitted rate. In this case no other stage limits
    /// the session.
    fn is_at_its_rate(&mut self, seen: &Interval) -> bool {
        let part = (seen.took.as_secs_f64() / SMOOTH.as_secs_f64()).min(1.0);
        let now = seen.bytes as f64 / seen.took.as_secs_f64().max(1e-9);
        let before = self.speed.unwrap_or(now);
        let speed = before + (now - before) * part;
        self.speed = Some(speed);
        seen.rate.is_some_and(|rate| speed >= OF_RATE * rate as f64)
    }
}

fn longest(times: &Times) -> Option<Stage> {
    let longest = times.iter().max_by_key(|(_, time)| *time);
    longest.map(|(stage, _)| stage)
}

#[cfg(test)]
mod tests {
    use super::{BottleneckFinder, Interval};
    use dray_core::profile::Stage;
    use dray_sched::tuner::Bottleneck;
    use dray_session::Progress;
    use dray_wire::message::Role;
    use std::time::Duration;

    const STEP: Duration = Duration::from_millis(250);

    /// Returns an interval in which `bytes` moved, without a rate limit.
    const fn moved(bytes: u64) -> Interval {
        Interval {
            bytes,
            took: STEP,
            rate: None,
        }
    }

    fn source(progress: &mut Progress, stage: Stage) {
        progress.profile.source.add(stage, STEP);
    }

    #[test]
    fn the_longest_recent_wait_is_the_bottleneck() {
        let mut held = BottleneckFinder::new(Role::Source);
        let mut progress = Progress::default();
        for (stage, wanted) in [
            (Stage::Network, Some(Bottleneck::Network)),
            (Stage::Read, Some(Bottleneck::Read)),
            (Stage::Credit, None),
            (Stage::Rate, Some(Bottleneck::Other)),
            (Stage::List, Some(Bottleneck::Other)),
            (Stage::Network, Some(Bottleneck::Network)),
        ] {
            source(&mut progress, stage);
            assert_eq!(held.look(&progress, &moved(1_000)), wanted, "{stage:?}");
        }
        progress.is_held_there = true;
        source(&mut progress, Stage::Network);
        assert_eq!(
            held.look(&progress, &moved(0)),
            Some(Bottleneck::Other),
            "the other end holds it"
        );
    }

    #[test]
    fn the_rate_is_the_bottleneck_only_if_it_is_reached() {
        let mut held = BottleneckFinder::new(Role::Sink);
        let mut progress = Progress::default();
        let mut look = |bytes, rate| {
            progress.profile.sink.add(Stage::Arrival, STEP);
            let seen = Interval {
                rate,
                ..moved(bytes)
            };
            held.look(&progress, &seen)
        };
        // 40 kB/s of a permitted 100 kB/s: the network or the source is the bottleneck.
        for _ in 0..20 {
            assert_eq!(look(10_000, Some(100_000)), None);
        }
        // The permitted rate falls to the measured rate: the rate limit is the bottleneck.
        assert_eq!(look(10_000, Some(45_000)), Some(Bottleneck::Other));
        // Objects finish in bursts, but the smoothed rate still reaches the limit.
        for lump in [0, 20_000, 0, 0, 30_000] {
            assert_eq!(look(lump, Some(45_000)), Some(Bottleneck::Other));
        }
        assert_eq!(look(10_000, Some(0)), Some(Bottleneck::Other), "it is held");
        assert_eq!(look(10_000, None), None);
    }

    #[test]
    fn a_gate_at_the_other_end_is_heard_of() {
        let mut held = BottleneckFinder::new(Role::Sink);
        let mut progress = Progress::default();
        let mut look = |progress: &mut Progress| {
            progress.profile.sink.add(Stage::Arrival, STEP);
            held.look(progress, &moved(10_000))
        };
        assert_eq!(look(&mut progress), None);
        progress.profile.source.add(Stage::Rate, 40 * STEP);
        for _ in 0..30 {
            // The source's last report counts until it reports another stage.
            assert_eq!(look(&mut progress), Some(Bottleneck::Other));
        }
        progress.profile.source.add(Stage::Network, 40 * STEP);
        assert_eq!(look(&mut progress), None);
    }
}
