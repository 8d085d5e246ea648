//! Counts the commits of a session's object log, and their duration.

use dray_core::LogForm;
use dray_core::time::nanos;
use dray_session::Progress;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Number and total duration of the commits.
#[derive(Default)]
pub(super) struct Commits {
    /// Form of the log; `None` if the sink has no log in a store.
    form: Option<LogForm>,
    count: AtomicU64,
    nanos: AtomicU64,
}

impl Commits {
    /// Returns the counters of a log of this form.
    pub(super) fn of(form: Option<LogForm>) -> Self {
        Self {
            form,
            ..Self::default()
        }
    }

    /// Counts a commit that took `time`.
    pub(super) fn add(&self, time: Duration) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(nanos(time), Ordering::Relaxed);
    }

    /// Returns the sink's counters, completed with the commits.
    pub(super) fn told(&self, progress: Progress) -> Progress {
        Progress {
            log_form: self.form,
            log_commits: self.count.load(Ordering::Relaxed),
            log_time: Duration::from_nanos(self.nanos.load(Ordering::Relaxed)),
            ..progress
        }
    }
}
