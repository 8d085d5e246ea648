//! The rate of a transfer over a window of time, and the time since its bytes last moved.

use dray_core::profile::{Profile, Times};
use dray_session::Progress;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Number of seconds without moved bytes after which a transfer counts as silent. The sink usually
/// makes a sync group durable in less time.
const SILENT_SECONDS: u64 = 10;

/// Time over which a rate is measured. It spans several sync groups, and is short enough to show a
/// change.
const WINDOW: Duration = Duration::from_secs(10);

/// Measures the time since bytes last moved.
#[derive(Default)]
pub(super) struct Silence {
    last: Option<(Instant, u64)>,
    seconds: u64,
}

impl Silence {
    /// Counts the time from the last call at which a counter had changed.
    pub(super) fn observe(&mut self, now: Instant, progress: &Progress) {
        let parts = [
            progress.bytes_durable,
            progress.bytes_sent,
            progress.bytes_read,
            progress.bytes_written,
            progress.files_done,
            progress.files_failed,
            progress.files_listed,
        ];
        let sum = parts.iter().fold(0u64, |sum, part| sum.wrapping_add(*part));
        match self.last {
            Some((since, before)) if before == sum => {
                self.seconds = now.saturating_duration_since(since).as_secs();
            }
            _ => (self.last, self.seconds) = (Some((now, sum)), 0),
        }
    }

    /// Returns the number of seconds without a change, if the transfer counts as silent.
    pub(super) fn seconds(&self) -> Option<u64> {
        Some(self.seconds).filter(|seconds| *seconds >= SILENT_SECONDS)
    }
}

/// A rate over a moving window of time.
#[derive(Default)]
pub(super) struct Rate {
    samples: VecDeque<(Instant, u64, Profile)>,
}

impl Rate {
    /// Adds a sample: the bytes moved so far, and the times that each end spent in each stage.
    pub(super) fn add(&mut self, now: Instant, bytes: u64, profile: Profile) {
        let last = self.samples.back();
        if last.is_some_and(|(_, last, _)| *last > bytes) {
            // The counters restart from zero with each new try.
            self.samples.clear();
        }
        self.samples.push_back((now, bytes, profile));
        while self.samples.len() > 2
            && self
                .samples
                .front()
                .is_some_and(|(then, ..)| now.saturating_duration_since(*then) > WINDOW)
        {
            self.samples.pop_front();
        }
    }

    /// Returns the times that each end spent in each stage during the window. If an end has
    /// reported no time in the window, its times since the start are returned.
    pub(super) fn profile(&self) -> Profile {
        let ends = (self.samples.front(), self.samples.back());
        let (Some((.., from)), Some((.., to))) = ends else {
            return Profile::default();
        };
        let of_late = |from: &Times, to: &Times| match to.since(from) {
            none if none.is_empty() => *to,
            some => some,
        };
        Profile {
            source: of_late(&from.source, &to.source),
            sink: of_late(&from.sink, &to.sink),
        }
    }

    /// Returns the mean rate over the window in bytes per second.
    pub(super) fn bytes_per_second(&self) -> u64 {
        let (Some((start, from, _)), Some((end, to, _))) =
            (self.samples.front(), self.samples.back())
        else {
            return 0;
        };
        let seconds = end.saturating_duration_since(*start).as_secs_f64();
        if seconds > 0.0 {
            (to.saturating_sub(*from) as f64 / seconds) as u64
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Rate, Silence, WINDOW};
    use dray_core::profile::{Profile, Stage};
    use dray_session::Progress;
    use std::time::{Duration, Instant};

    #[test]
    fn rates_follow_the_window() {
        let (mut rate, start) = (Rate::default(), Instant::now());
        assert_eq!(rate.bytes_per_second(), 0);
        rate.add(start, 0, Profile::default());
        rate.add(start + Duration::from_secs(1), 100, Profile::default());
        assert_eq!(rate.bytes_per_second(), 100);
        for second in 2..60 {
            rate.add(start + Duration::from_secs(second), 100, Profile::default());
        }
        assert_eq!(rate.bytes_per_second(), 0, "nothing moved for {WINDOW:?}");
        rate.add(start + Duration::from_secs(60), 7, Profile::default());
        assert_eq!(rate.bytes_per_second(), 0, "a new attempt");
    }

    #[test]
    fn a_stalled_transfer_is_silent_until_it_moves() {
        let (mut silence, start) = (Silence::default(), Instant::now());
        let mut progress = Progress::default();
        let at = |seconds| start + Duration::from_secs(seconds);
        silence.observe(at(0), &progress);
        silence.observe(at(9), &progress);
        assert_eq!(silence.seconds(), None);
        silence.observe(at(10), &progress);
        assert_eq!(silence.seconds(), Some(10));
        progress.bytes_sent = 1;
        silence.observe(at(11), &progress);
        assert_eq!(silence.seconds(), None);
    }

    #[test]
    fn the_bottleneck_is_that_of_the_recent_window() {
        let (mut rate, start) = (Rate::default(), Instant::now());
        let mut profile = Profile::default();
        for second in 0..60 {
            let stage = match second {
                0..30 => Stage::Read,
                _ => Stage::Network,
            };
            profile.source.add(stage, Duration::from_secs(1));
            rate.add(start + Duration::from_secs(second), second, profile);
        }
        assert_eq!(rate.profile().bottleneck(), Some(Stage::Network));
        assert_eq!(rate.profile().source.of(Stage::Read), Duration::ZERO);
        // The other end reports its times less often than this end.
        profile.sink.add(Stage::Write, Duration::from_secs(50));
        profile.source.add(Stage::Credit, Duration::from_secs(50));
        for second in 60..80 {
            rate.add(start + Duration::from_secs(second), second, profile);
        }
        assert_eq!(rate.profile().sink, profile.sink, "all that is known of it");
    }
}
