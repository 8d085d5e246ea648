//! Counters of the sinks of all sessions since the process started.

use dray_core::lock::LockExt;
use dray_session::Progress;
use std::sync::Mutex;
use std::time::Duration;

/// Counters of one sink, or the sums of all sinks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SinkCounts {
    /// Number of objects that arrived with bytes that differ from their checksums.
    pub objects_corrupt: u64,
    /// Number of commits of object logs.
    pub log_commits: u64,
    /// Total duration of these commits.
    pub log_time: Duration,
}

impl SinkCounts {
    const fn of(progress: &Progress) -> Self {
        Self {
            objects_corrupt: progress.objects_corrupt,
            log_commits: progress.log_commits,
            log_time: progress.log_time,
        }
    }

    /// Returns the counts since an earlier report. A transfer may have several sessions one after
    /// the other, and the counters of each session begin at zero.
    fn since(self, earlier: Self) -> Self {
        let is_same = self.objects_corrupt >= earlier.objects_corrupt
            && self.log_commits >= earlier.log_commits
            && self.log_time >= earlier.log_time;
        let before = if is_same { earlier } else { Self::default() };
        Self {
            objects_corrupt: self.objects_corrupt - before.objects_corrupt,
            log_commits: self.log_commits - before.log_commits,
            log_time: self.log_time.saturating_sub(before.log_time),
        }
    }

    fn add(&mut self, more: Self) {
        self.objects_corrupt += more.objects_corrupt;
        self.log_commits += more.log_commits;
        self.log_time += more.log_time;
    }
}

/// The sums of all sinks.
#[derive(Debug, Default)]
pub(super) struct SinkTotals(Mutex<SinkCounts>);

impl SinkTotals {
    /// Returns the sums.
    #[must_use]
    pub(super) fn read(&self) -> SinkCounts {
        *self.0.lock_unpoisoned()
    }

    /// Adds a report of a session. `last` holds the session's last report.
    pub(super) fn note(&self, last: &Mutex<SinkCounts>, progress: &Progress) {
        let now = SinkCounts::of(progress);
        let mut last = last.lock_unpoisoned();
        let more = now.since(*last);
        *last = now;
        drop(last);
        if more != SinkCounts::default() {
            self.0.lock_unpoisoned().add(more);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{SinkCounts, SinkTotals};
    use dray_session::Progress;
    use std::sync::Mutex;
    use std::time::Duration;

    #[test]
    fn reports_of_sessions_are_added_once() {
        let (totals, last) = (SinkTotals::default(), Mutex::default());
        let report = |objects_corrupt, log_commits, millis| {
            let log_time = Duration::from_millis(millis);
            let progress = Progress {
                objects_corrupt,
                log_commits,
                log_time,
                ..Progress::default()
            };
            totals.note(&last, &progress);
        };
        report(1, 2, 30);
        report(1, 2, 30);
        report(1, 4, 70);
        // The next session of the same transfer begins at zero.
        report(0, 1, 5);
        let sums = SinkCounts {
            objects_corrupt: 1,
            log_commits: 5,
            log_time: Duration::from_millis(75),
        };
        assert_eq!(totals.read(), sums);
    }
}
