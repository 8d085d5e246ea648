//! Writes the end of a session to the row of its transfer: the error, and the time of the next try.

use super::ending::Ending;
use super::live;
use super::row::Row;
use super::states::{Break, EndKind, Verdict, after_break, after_turned_away};
use dray_api::{RetryWish, Timestamp};
use dray_core::retry::may_reconnect_soon;
use dray_core::{Error, Status};
use std::time::Duration;

/// Remedy of an error after which the endpoint tries the transfer again.
const RETRIED: &str = "wait: the endpoint tries again automatically, and keeps the durable data";

/// Writes the end of a session to the row: the error, and the time of the next try. `lasted` is the
/// duration of the session. Returns the kind of end for the state machine.
pub(super) fn settle(
    row: &mut Row,
    ending: Ending,
    retry: RetryWish,
    lasted: Duration,
    now: Timestamp,
) -> EndKind {
    row.next_try_at = None;
    // An active transfer has an error only if it is being cancelled because of the error.
    let reason = row.error.take();
    let retry = row.request.retry.unwrap_or(retry);
    let kind = match ending {
        Ending::Done => EndKind::Done,
        Ending::Incomplete => EndKind::Incomplete,
        Ending::Stopped => EndKind::Stopped,
        Ending::Failed(error) => {
            row.error = Some(live::parts(&error));
            EndKind::Failed
        }
        Ending::Broken {
            error,
            has_progressed,
            source,
            is_whole,
        } => {
            let counters = &mut row.counters;
            let has_data = counters.bytes.durable > 0 || counters.files.done > 0;
            // The clock of the host may have been set back since then.
            let since = counters.interrupted_since;
            let since = since.filter(|since| has_data && *since <= now);
            let end = Break {
                status: error.status,
                is_lost: !is_whole && may_reconnect_soon(error.kind),
                has_progressed,
                lasted,
                interrupted_for: since.map(|since| now.since(since)),
            };
            let verdict = after_break(retry, row.tries_without_progress, end);
            row.source = source.unwrap_or(row.source);
            row.counters.interrupted_since.get_or_insert(now);
            judged(row, error, verdict, now)
        }
        Ending::TurnedAway { error, source } => {
            row.source = source.unwrap_or(row.source);
            let verdict = after_turned_away(retry, row.tries_without_progress);
            judged(row, error, verdict, now)
        }
    };
    if matches!(kind, EndKind::Again | EndKind::Stopped) && reason.is_some() {
        row.error = reason;
    }
    kind
}

/// Schedules the next try, or fails the transfer.
fn judged(row: &mut Row, error: Error, verdict: Verdict, now: Timestamp) -> EndKind {
    row.tries_without_progress = verdict.tries_without_progress;
    if verdict.is_tried {
        row.next_try_at = Some(now.after(verdict.wait));
        let remedy = match error.remedy.is_empty() {
            true => RETRIED.to_owned(),
            false => format!("{RETRIED}; if the error persists: {}", error.remedy),
        };
        row.error = Some(live::parts(&error.remedy(remedy)));
        return EndKind::Again;
    }
    let error = match error.status {
        Status::Temporary => error.status(Status::Exhausted),
        _ => error,
    };
    row.error = Some(live::parts(&error));
    EndKind::Failed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::tests::{id, request};
    use dray_core::retry::{RECONNECT_INTERVAL, RECONNECT_TIME};
    use dray_core::{End, ErrorKind};

    const INTERVAL: Duration = Duration::from_secs(10);

    fn broken(kind: ErrorKind, has_progressed: bool, is_whole: bool) -> Ending {
        Ending::Broken {
            error: Error::new(kind, End::Network, "send"),
            has_progressed,
            is_whole,
            source: None,
        }
    }

    /// Returns the wait after a session of this duration, which ends at `now`.
    fn wait(row: &mut Row, ending: Ending, lasted: Duration, now: Timestamp) -> Duration {
        let retry = RetryWish {
            tries: 3,
            interval_seconds: INTERVAL.as_secs(),
        };
        assert_eq!(settle(row, ending, retry, lasted, now), EndKind::Again);
        row.next_try_at.expect("it is tried again").since(now)
    }

    #[test]
    fn the_next_try_is_soon_after_the_loss_of_a_session_with_durable_data() {
        let start = Timestamp::from_ms(1_000_000);
        let mut row = Row::queued(&id("t"), 1, request("t"), start);
        let lost = |has_progressed| broken(ErrorKind::Unreachable, has_progressed, false);
        // The transfer has no durable data yet.
        assert_eq!(wait(&mut row, lost(false), INTERVAL, start), INTERVAL);
        assert_eq!(row.tries_without_progress, 1);
        row.counters.interrupted_since = None;
        row.counters.bytes.durable = 1;
        let soon = wait(&mut row, lost(true), RECONNECT_TIME, start);
        assert_eq!((soon, row.tries_without_progress), (RECONNECT_INTERVAL, 0));
        let mut now = start;
        for _ in 1..5 {
            now = now.after(RECONNECT_INTERVAL);
            let soon = wait(&mut row, lost(false), Duration::ZERO, now);
            assert_eq!((soon, row.tries_without_progress), (RECONNECT_INTERVAL, 0));
        }
        now = now.after(RECONNECT_INTERVAL);
        assert_eq!(wait(&mut row, lost(false), Duration::ZERO, now), INTERVAL);
        assert_eq!(row.tries_without_progress, 1);
        // The clock of the host was set back.
        let before = start.before(INTERVAL);
        assert_eq!(
            wait(&mut row, lost(false), Duration::ZERO, before),
            INTERVAL
        );
    }

    #[test]
    fn the_normal_wait_follows_other_ends() {
        let now = Timestamp::from_ms(1_000_000);
        let waits = |ending, lasted| {
            let mut row = Row::queued(&id("t"), 1, request("t"), now);
            row.counters.bytes.durable = 1;
            wait(&mut row, ending, lasted, now)
        };
        let short = RECONNECT_TIME / 2;
        assert_eq!(
            waits(broken(ErrorKind::Unreachable, true, false), short),
            INTERVAL
        );
        // A file of a complete session failed, for example because its storage was unreachable.
        for (kind, is_whole) in [(ErrorKind::Unreachable, true), (ErrorKind::Io, false)] {
            let ending = broken(kind, true, is_whole);
            assert_eq!(waits(ending, RECONNECT_TIME), INTERVAL, "{kind:?}");
        }
    }
}
