//! Writes the end of a session to the row of its transfer: the error, and the time of the next try.

use super::ending::Ending;
use super::live;
use super::row::Row;
use super::states::{Break, EndKind, Verdict, after_break, after_turned_away};
use dray_api::{RetryWish, Timestamp};
use dray_core::{Error, ErrorKind, Status};

/// Remedy of an error after which the endpoint tries the transfer again.
const RETRIED: &str = "wait: the endpoint tries again automatically, and keeps the durable data";

/// Writes the end of a session to the row. Returns the kind of end for the state machine.
pub(super) fn settle(row: &mut Row, ending: Ending, retry: RetryWish, now: Timestamp) -> EndKind {
    row.next_try_at = None;
    // An active transfer has an error only if it is being cancelled because of the error.
    let reason = row.error.take();
    let kind = end_of(row, ending, retry, now);
    if matches!(kind, EndKind::Again | EndKind::Stopped) && reason.is_some() {
        row.error = reason;
    }
    kind
}

/// Writes the error of a session and the time of the next try to the row. Returns the kind of end.
fn end_of(row: &mut Row, ending: Ending, retry: RetryWish, now: Timestamp) -> EndKind {
    match ending {
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
            is_whole: _,
        } => {
            let retry = row.request.retry.unwrap_or(retry);
            let counters = &mut row.counters;
            let has_data = counters.bytes.durable > 0 || counters.files.done > 0;
            let since = counters.interrupted_since.filter(|_| has_data);
            let end = Break {
                status: error.status,
                is_lost: matches!(error.kind, ErrorKind::Unreachable | ErrorKind::TimedOut),
                has_progressed,
                interrupted_for: since.map(|since| now.since(since)),
            };
            let verdict = after_break(retry, row.tries_without_progress, end);
            row.source = source.unwrap_or(row.source);
            row.counters.interrupted_since.get_or_insert(now);
            judged(row, error, verdict, now)
        }
        Ending::TurnedAway { error, source } => {
            let retry = row.request.retry.unwrap_or(retry);
            row.source = source.unwrap_or(row.source);
            let verdict = after_turned_away(retry, row.tries_without_progress);
            judged(row, error, verdict, now)
        }
    }
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
