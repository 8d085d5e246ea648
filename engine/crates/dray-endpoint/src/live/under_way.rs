//! The unclosed files of a session, which the session reports only if somebody asks.

use super::{Moving, Way};
use dray_core::End;
use dray_session::UnderWay;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// Maximum time that a caller waits for a report. A session reports several times a second, unless
/// it is still preparing its storage.
const REPORT_TIME: Duration = Duration::from_secs(1);

/// The last report of the unclosed files.
pub(super) struct Reports {
    is_wanted: AtomicBool,
    last: watch::Sender<Option<Arc<UnderWay>>>,
}

impl Default for Reports {
    fn default() -> Self {
        Self {
            is_wanted: AtomicBool::new(false),
            last: watch::Sender::new(None),
        }
    }
}

impl Moving {
    /// Returns the end whose report counts. A sink knows more about its files than a source.
    const fn reporting_end(&self) -> End {
        match self.way {
            Way::Out => End::Source,
            Way::In | Way::Within => End::Sink,
        }
    }

    /// Returns true if somebody waits for a report of `end`. The next call returns false, until
    /// somebody asks again.
    #[must_use]
    pub fn takes_under_way(&self, end: End) -> bool {
        end == self.reporting_end() && self.reports.is_wanted.swap(false, Ordering::AcqRel)
    }

    /// Records the unclosed files of `end`.
    pub fn note_under_way(&self, end: End, found: UnderWay) {
        if end == self.reporting_end() {
            self.reports.last.send_replace(Some(Arc::new(found)));
        }
    }

    /// Asks the session for its unclosed files, and waits for the report. Returns the last report
    /// if no new one arrives in time, and `None` if there is none.
    pub async fn under_way(&self) -> Option<Arc<UnderWay>> {
        let mut last = self.reports.last.subscribe();
        self.reports.is_wanted.store(true, Ordering::Release);
        // If no report arrives in time, return the previous one.
        let _ = tokio::time::timeout(REPORT_TIME, last.changed()).await;
        last.borrow().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::{Moving, Way};
    use dray_api::RateWish;
    use dray_core::{End, TransferId};
    use dray_session::UnderWay;
    use std::sync::Arc;

    #[tokio::test]
    async fn a_session_reports_its_files_only_when_somebody_asks() {
        let id = TransferId::new("t").expect("an id");
        let (owner, peer) = ("a".to_owned(), String::new());
        let moving = Moving::new(id, owner, peer, Way::Within, RateWish::default());
        let moving = Arc::new(moving);
        assert!(!moving.takes_under_way(End::Sink), "nobody has asked");
        let other = Arc::clone(&moving);
        let asking = tokio::spawn(async move { other.under_way().await });
        tokio::task::yield_now().await;
        assert!(!moving.takes_under_way(End::Source), "the sink knows more");
        assert!(moving.takes_under_way(End::Sink));
        assert!(!moving.takes_under_way(End::Sink), "one report is enough");
        let report = |files_more| UnderWay {
            files_more,
            ..UnderWay::default()
        };
        moving.note_under_way(End::Source, report(1));
        moving.note_under_way(End::Sink, report(2));
        let found = asking.await.expect("ran").expect("a report");
        assert_eq!(found.files_more, 2);
        // A session that hangs does not hold up the caller for long.
        assert_eq!(moving.under_way().await.expect("the old one").files_more, 2);
    }
}
