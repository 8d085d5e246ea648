//! Functions that several kinds of writes share.

use super::live::Counters;
use super::row::Row;
use super::states::Standing;
use super::{Effects, next_seq, staged};
use dray_api::{Event, EventKind, State, Timestamp};
use dray_core::Result;
use rusqlite::Connection;

/// Resets the row of an ended transfer for a new attempt.
pub(super) fn renew(connection: &Connection, row: &mut Row, now: Timestamp) -> Result<()> {
    row.seq = next_seq(connection)?;
    row.standing = Standing::of(State::Queued);
    row.version += 1;
    row.attempt = row.attempt.saturating_add(1);
    (row.tries, row.tries_without_progress, row.source) = (0, 0, 0);
    row.submitted_at = now;
    (row.started_at, row.ended_at, row.next_try_at) = (None, None, None);
    row.error = None;
    row.failures.clear();
    row.notices.clear();
    row.is_purged = false;
    row.counters = Counters::default();
    row.receipt = None;
    staged::begins_anew(connection, &row.id)
}

/// Adds an event about the transfer's new state.
pub(super) fn told(effects: &mut Effects, row: &Row, now: Timestamp) {
    let event = Event {
        transfer: Some(row.id.clone()),
        state: Some(row.standing.state),
        version: Some(row.version),
        error: row.error.clone(),
        ..Event::new(EventKind::State, now)
    };
    effects.events.push((row.owner.as_str().into(), event));
}
