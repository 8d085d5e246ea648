//! The calls of the dispatcher: start transfers, and record their progress and their end.

use super::change::{apply, forget};
use super::ending::Ending;
use super::input::{SessionInput, TicketHolder};
use super::live::{self, Counters, Holds, Run};
use super::manifest::Manifest;
use super::purges::{PurgeJob, PurgeReport};
use super::row::{Row, SELECT, rows};
use super::settle::settle;
use super::sqlite::{json, sql};
use super::states::{Command, EndKind, Wish};
use super::submit::unasked;
use super::{Queue, not_found, promised, receipts};
use crate::clock;
use dray_api::{RateLimitAnswer, Request, Route, State, Timestamp};
use dray_core::lock::LockExt;
use dray_core::{End, Error, ErrorKind, RelPath, Result, TransferId};
use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Selects the earliest `next_try_at` of all waiting transfers. Without `INDEXED BY`, SQLite would
/// choose another index and read all waiting transfers.
pub(super) const NEXT_TRY: &str = "SELECT min(next_try_at)
    FROM transfers INDEXED BY transfers_next_try WHERE state = 'waiting'";

/// Condition for waiting transfers whose next try is due at the time `?1`.
pub(super) const IS_DUE: &str = "t.id IN (SELECT id
    FROM transfers INDEXED BY transfers_next_try WHERE state = 'waiting' AND next_try_at <= ?1)";

/// Maximum number of transfers that one call of [`Queue::tick`] deletes. The number is limited,
/// because other calls wait until the deletion is written.
const PRUNED_MAX: u32 = 500;

/// Time for which the tickets of an ended transfer are kept, so that a new attempt can use them.
/// Without renewal, most tickets expire after an hour. The value is an estimate.
const SECRETS_KEPT: Duration = Duration::from_secs(24 * 3_600);

/// Numbers of transfers that a tick changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ticked {
    /// Transfers that were queued because the time of their next try had come.
    pub due: usize,
    /// Transfers that were cancelled because no caller had asked about them.
    pub forsaken: usize,
    /// Transfers that were deleted.
    pub pruned: usize,
    /// Earliest time of the next try of a waiting transfer.
    pub next_try_at: Option<Timestamp>,
}

impl Queue {
    /// Makes a queued transfer active, if the transfer still has the version `version`. Returns
    /// `None` if the transfer has changed.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn begin(&self, id: &TransferId, version: u64) -> Result<Option<SessionInput>> {
        let wanted = id.to_string();
        let row = self.write(move |connection, effects| {
            let Some(mut row) = Row::find(connection, &wanted)? else {
                return Ok(None);
            };
            let is_queued = row.standing.state == State::Queued && !row.awaits_space();
            if row.version != version || !is_queued {
                return Ok(None);
            }
            let now = clock::now();
            row.tries = row.tries.saturating_add(1);
            row.started_at.get_or_insert(now);
            row.error = None;
            apply(connection, effects, &mut row, Command::Begin, now)?;
            Ok(Some(row))
        })?;
        let Some(row) = row else { return Ok(None) };
        let run = Run::new(
            row.owner.as_str().into(),
            row.version,
            row.counters,
            row.failures.clone(),
            row.notices.clone(),
        );
        self.live.lock().insert(row.id.clone(), run);
        SessionInput::next(row).map(Some)
    }

    /// Sets the counters of the running session, counted from the start of the session. The call is
    /// cheap: the counters stay in memory until the next flush, at most a second later.
    pub fn progress(&self, id: &TransferId, session: &Counters) {
        self.live
            .progress(&self.hub, id.as_str(), session, clock::now());
    }

    /// Records the granted rate of a running transfer in bytes per second, and the limit that
    /// determines this rate.
    pub fn granted(&self, id: &TransferId, rate: Option<u64>, limit: Option<RateLimitAnswer>) {
        self.live.granted(id.as_str(), rate, limit);
    }

    /// Returns the counters of the present attempt of a running transfer.
    #[must_use]
    pub fn counted(&self, id: &TransferId) -> Option<Counters> {
        let runs = self.live.lock();
        runs.get(id.as_str()).map(|run| run.counters)
    }

    /// Records that a running transfer is held, or resumes.
    pub fn held(&self, id: &TransferId, is_held: bool) {
        self.live
            .held(&self.hub, id.as_str(), is_held, clock::now());
    }

    /// Records that a transfer gives up its session for other transfers and will be queued again.
    /// Adds a notice to the transfer.
    pub fn lets_go(&self, id: &TransferId) {
        self.live.holds.release.fetch_add(1, Ordering::Relaxed);
        self.noticed(
            id,
            "the transfer gave up its session to other transfers and is queued again",
        );
    }

    /// Returns the number of transfers that are held now.
    #[must_use]
    pub fn held_now(&self) -> usize {
        self.live.held_now()
    }

    /// Returns the counts of holds since the process started.
    #[must_use]
    pub fn holds(&self) -> &Holds {
        &self.live.holds
    }

    /// Records that a file of a running transfer failed.
    pub fn file_failed(&self, id: &TransferId, path: &RelPath, error: &Error) {
        self.tally.file_failed(error.kind);
        self.live
            .file_failed(&self.hub, id.as_str(), path, error, clock::now());
    }

    /// Adds a notice to a running transfer, and publishes it.
    pub fn noticed(&self, id: &TransferId, notice: &str) {
        self.live
            .noticed(&self.hub, id.as_str(), notice, clock::now());
    }

    /// Returns the stop that a caller requested for a running transfer: a pause, a cancellation or
    /// a purge. The dispatcher calls this method before and after it creates a session, because a
    /// request may arrive in between.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn wish(&self, id: &TransferId) -> Result<Option<Wish>> {
        let row = self.read(|connection| Row::find(connection, id.as_str()))?;
        Ok(row.and_then(|row| row.standing.wish))
    }

    /// Returns the present request of a transfer, with its tickets. Used after
    /// [`super::Commands::changed`].
    ///
    /// # Errors
    /// Errors of the database.
    pub fn request(&self, id: &TransferId) -> Result<Option<Request>> {
        let row = self.read(|connection| Row::find(connection, id.as_str()))?;
        Ok(row.map(|row| row.whole_request()))
    }

    /// Returns the present request of a transfer, including the tickets, and the route of the
    /// transfer. Returns `None` if the transfer does not exist.
    ///
    /// # Errors
    /// Errors of the database; `InvalidRequest` if an older version of dray stored no route.
    pub fn request_and_route(&self, id: &TransferId) -> Result<Option<(Request, Route)>> {
        let row = self.read(|connection| Row::find(connection, id.as_str()))?;
        row.map(|row| Ok((row.whole_request(), row.route()?.clone())))
            .transpose()
    }

    /// Records the end of an active transfer's session. Returns the new state of the transfer, or
    /// `None` if the transfer was not active.
    ///
    /// # Errors
    /// Errors of the database. The transfer is still active then, so the caller must call this
    /// method again.
    pub fn ended(&self, id: &TransferId, ending: Ending) -> Result<Option<State>> {
        let wanted = id.to_string();
        let last = self.live.lock().get_mut(&wanted).map(super::live::Run::end);
        let (retry, kind, is_whole) = (self.settings.retry, ending.kind(), ending.is_whole());
        let state = self.write(move |connection, effects| {
            let Some(mut row) = Row::find(connection, &wanted)? else {
                return Ok(None);
            };
            if row.standing.state != State::Active {
                return Ok(None);
            }
            let settled = last.as_ref().and_then(|last| last.settled);
            let lasted = (last.as_ref()).map_or(Duration::ZERO, |last| last.lasted);
            if let Some(last) = last {
                (row.counters, row.failures, row.notices) =
                    (last.counters, last.failures, last.notices);
            }
            let now = clock::now();
            let kind = settle(&mut row, ending, retry, lasted, now);
            if kind == EndKind::Again {
                // The maxima stay: the next session counts as progress only if it exceeds them, so
                // a store that loses data in every session is not tried without limit.
                receipts::broke(connection, &row, row.error.as_ref(), now)?;
                promised::interrupted(&effects.promises, &row);
            } else if let Some(settled) = settled.filter(|_| is_whole) {
                row.counters = Counters {
                    interrupted_since: row.counters.interrupted_since,
                    ..settled
                };
            }
            apply(connection, effects, &mut row, Command::End(kind), now)?;
            Ok(Some((row.standing.state, row.counters)))
        })?;
        self.live.lock().remove(id.as_str());
        if let Some((state, counters)) = &state {
            self.tally.session_ended(kind, *state, counters);
        }
        Ok(state.map(|(state, _)| state))
    }

    /// Handles the transfers that were active or waiting when the last process ended: queues them,
    /// or applies the stop that a caller requested. Called once, before any transfer runs. Returns
    /// the number of transfers.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn requeue_interrupted(&self) -> Result<usize> {
        self.write(|connection, effects| {
            let statement = format!("{SELECT} WHERE t.state IN ('active', 'waiting')");
            let found = rows(connection, &statement, ())?;
            for mut row in found.iter().cloned() {
                let now = clock::now();
                if row.standing.state == State::Active {
                    receipts::broke(connection, &row, None, now)?;
                }
                apply(connection, effects, &mut row, Command::Interrupted, now)?;
            }
            Ok(found.len())
        })
    }

    /// Applies the changes that depend only on time; called at least once a second. Queues due
    /// transfers, cancels transfers that no caller has queried for their `bound_seconds`, and
    /// deletes old transfers.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn tick(&self, now: Timestamp) -> Result<Ticked> {
        let due = self.queue_due(now)?;
        self.release_held(now)?;
        self.promise_more()?;
        let forsaken = self.cancel_forsaken(now)?;
        let pruned = self.prune(now)?;
        self.forget_secrets(now)?;
        Ok(Ticked {
            due,
            forsaken,
            pruned,
            next_try_at: self.next_try_at()?,
        })
    }

    fn next_try_at(&self) -> Result<Option<Timestamp>> {
        let failed = sql("find the next try");
        let milliseconds: Option<i64> = self.read(|connection| {
            let found = connection.query_row(NEXT_TRY, (), |row| row.get(0));
            found.map_err(failed)
        })?;
        Ok(milliseconds.map(Timestamp::from_ms))
    }

    fn queue_due(&self, now: Timestamp) -> Result<usize> {
        let statement = format!("{SELECT} WHERE {IS_DUE} ORDER BY t.seq");
        let found = self.read(|connection| rows(connection, &statement, [now.as_ms()]))?;
        if found.is_empty() {
            return Ok(0);
        }
        let count = found.len();
        self.write(move |connection, effects| {
            for row in found {
                // Read the transfer again, because it may have changed.
                if let Some(mut row) = Row::find(connection, &row.id)? {
                    apply(connection, effects, &mut row, Command::Due, now)?;
                }
            }
            Ok(count)
        })
    }

    fn cancel_forsaken(&self, now: Timestamp) -> Result<usize> {
        let statement = format!(
            "{SELECT} WHERE t.bound_seconds IS NOT NULL
             AND t.state IN ('queued', 'active', 'waiting', 'paused')"
        );
        let bound = self.read(|connection| rows(connection, &statement, ()))?;
        {
            let transfers: HashSet<&str> = bound.iter().map(|row| row.id.as_str()).collect();
            let owners: HashSet<&str> = bound.iter().map(|row| row.owner.as_str()).collect();
            // Keep this lock only briefly: every request of a caller needs it.
            let mut asked = self.asked.lock_unpoisoned();
            (asked.transfers).retain(|id, _| transfers.contains(id.as_str()));
            (asked.owners).retain(|owner, _| owners.contains(owner.as_str()));
        }
        let is_forsaken = |row: &Row| {
            let bound = Duration::from_secs(row.request.bound_seconds.unwrap_or(u64::MAX));
            let is_cancelled = matches!(row.standing.wish, Some(Wish::Cancel | Wish::Purge));
            // A submission counts as a request about the transfer. But the queue records that
            // request only after the row is on the disk. So also compare the time of the
            // submission.
            let is_old = now.since(row.submitted_at) >= bound;
            !is_cancelled && is_old && unasked(self, &row.id, &row.owner) >= bound
        };
        let forsaken: Vec<_> = bound.into_iter().filter(is_forsaken).collect();
        if forsaken.is_empty() {
            return Ok(0);
        }
        self.write(move |connection, effects| {
            for row in &forsaken {
                let Some(mut row) = Row::find(connection, &row.id)? else {
                    continue;
                };
                if row.standing.state.is_terminal() {
                    continue;
                }
                row.error = Some(live::parts(&unattended(&row)));
                let command = Command::Cancel { purge: false };
                apply(connection, effects, &mut row, command, now)?;
            }
            Ok(forsaken.len())
        })
    }

    fn prune(&self, now: Timestamp) -> Result<usize> {
        let before = now.before(self.settings.keep).as_ms();
        let keep = i64::try_from(self.settings.keep_count).unwrap_or(i64::MAX);
        let failed = sql("delete old transfers");
        // Select the transfers that ended before `before`, and all ended transfers except the
        // newest `keep`.
        let old: Vec<String> = self.read(|connection| {
            let mut statement = connection
                .prepare_cached(
                    "SELECT id FROM transfers WHERE ended_at IS NOT NULL AND wish IS NULL
                     AND state IN ('done', 'incomplete', 'failed', 'cancelled')
                     AND (ended_at < ?1 OR ended_at < (SELECT ended_at FROM transfers
                          WHERE ended_at IS NOT NULL ORDER BY ended_at DESC LIMIT 1 OFFSET ?2 - 1))
                     ORDER BY ended_at LIMIT ?3",
                )
                .map_err(&failed)?;
            let ids = statement
                .query_map((before, keep.max(1), PRUNED_MAX), |row| row.get(0))
                .map_err(&failed)?;
            ids.collect::<rusqlite::Result<_>>().map_err(&failed)
        })?;
        self.forget_evicted(now.before(self.settings.keep))?;
        self.forget_tape(now.before(self.settings.keep))?;
        if old.is_empty() {
            return Ok(0);
        }
        let forgotten = self.write(move |connection, _| {
            let mut forgotten = Vec::with_capacity(old.len());
            for id in &old {
                // Read the transfer again, because it may have been retried.
                let row = Row::find(connection, id)?;
                if let Some(row) = row.filter(|row| row.standing.state.is_terminal()) {
                    forget(connection, &row)?;
                    forgotten.push(row);
                }
            }
            Ok(forgotten)
        })?;
        for row in &forgotten {
            self.remove_lists(row);
        }
        Ok(forgotten.len())
    }

    /// Deletes the tickets of transfers that ended more than [`SECRETS_KEPT`] ago, one page per
    /// call. Tickets are not renewed after the end of a transfer. A transfer that waits for its
    /// purge keeps its tickets until the purge.
    fn forget_secrets(&self, now: Timestamp) -> Result<()> {
        let failed = sql("delete tickets");
        let until = now.before(SECRETS_KEPT).as_ms();
        let found: Vec<String> = self.read(|connection| {
            let mut statement = connection
                .prepare_cached(
                    "SELECT id FROM transfers INDEXED BY transfers_secrets
                     WHERE ended_at <= ?1 AND wish IS NULL
                     AND instr(tickets, '\"ticket\":\"drt_') > 0 LIMIT ?2",
                )
                .map_err(&failed)?;
            let found = statement
                .query_map((until, PRUNED_MAX), |row| row.get(0))
                .map_err(&failed)?;
            found.collect::<rusqlite::Result<_>>().map_err(&failed)
        })?;
        if found.is_empty() {
            return Ok(());
        }
        self.write(move |connection, _| {
            for id in &found {
                let row = Row::find(connection, id)?;
                // Read the transfer again, because it may have been retried.
                let Some(mut row) = row.filter(|row| row.standing.state.is_terminal()) else {
                    continue;
                };
                for secret in &mut row.secrets {
                    secret.ticket = None;
                }
                row.write(connection)?;
            }
            Ok(())
        })
    }

    /// Returns cancelled transfers whose partial data must be removed.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn to_purge(&self, limit: u32) -> Result<Vec<PurgeJob>> {
        let statement = format!(
            "{SELECT} WHERE t.state = 'cancelled' AND t.wish IS NOT NULL ORDER BY t.seq LIMIT ?1"
        );
        let found = self.read(|connection| rows(connection, &statement, [limit]))?;
        let mut purges = Vec::with_capacity(found.len());
        for row in found {
            // An earlier attempt may have left partial data.
            let has_begun = row.started_at.is_some() || row.attempt > 1;
            let id = TransferId::new(row.id.as_str())?;
            match SessionInput::purging(row) {
                Ok(input) => purges.push(PurgeJob { has_begun, input }),
                // One invalid transfer must not stop the purges of the other transfers.
                Err(error) => {
                    let report = PurgeReport::kept(format!(
                        "the partial data of the transfer \
                        remains: {error}"
                    ));
                    self.purged(&id, Some(report))?;
                }
            }
        }
        Ok(purges)
    }

    /// Records that the purge of a cancelled transfer has ended, with its report.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn purged(&self, id: &TransferId, report: Option<PurgeReport>) -> Result<()> {
        let wanted = id.to_string();
        self.write(move |connection, effects| {
            let Some(mut row) = Row::find(connection, &wanted)? else {
                return Ok(());
            };
            if let Some(report) = report {
                row.note(report.notice);
                row.is_purged = report.is_purged;
            }
            apply(connection, effects, &mut row, Command::Purged, clock::now())?;
            Ok(())
        })
    }

    /// Returns a page of transfers that have not ended and have tickets. For the next page, pass
    /// the sequence number of the last transfer as `after`.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn with_tickets(&self, after: i64, limit: u32) -> Result<Vec<TicketHolder>> {
        let statement = format!(
            "{SELECT} WHERE t.state IN ('queued', 'active', 'waiting', 'paused')
             AND instr(t.tickets, 'drt_') > 0 AND t.seq > ?1 ORDER BY t.seq LIMIT ?2"
        );
        let found = self.read(|connection| rows(connection, &statement, (after, limit)))?;
        let found = found.into_iter().map(TicketHolder::new);
        found.collect()
    }

    /// Returns true if a transfer exists and has not ended.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn is_live(&self, id: &TransferId) -> Result<bool> {
        let row = self.read(|connection| Row::find(connection, id.as_str()))?;
        Ok(row.is_some_and(|row| !row.standing.state.is_terminal()))
    }

    /// Returns the transfers among `ids` that exist and have not ended.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn live_of<'i>(
        &self,
        ids: impl IntoIterator<Item = &'i TransferId>,
    ) -> Result<HashSet<String>> {
        let ids: Vec<&str> = ids.into_iter().map(TransferId::as_str).collect();
        let ids = json(&ids)?;
        let failed = sql("look up transfers");
        self.read(|connection| {
            let mut statement = connection
                .prepare_cached(
                    "SELECT id FROM transfers WHERE id IN (SELECT value FROM json_each(?1))
                     AND state IN ('queued', 'active', 'waiting', 'paused')",
                )
                .map_err(&failed)?;
            let found = statement
                .query_map([ids], |row| row.get(0))
                .map_err(&failed)?;
            found.collect::<rusqlite::Result<_>>().map_err(&failed)
        })
    }

    /// Opens the list of files of one attempt, to add outcomes.
    ///
    /// # Errors
    /// Errors of the file system; `NotFound` for an unknown transfer.
    pub fn manifest(&self, id: &TransferId, attempt: u32) -> Result<Manifest> {
        let row = self.read(|connection| Row::find(connection, id.as_str()))?;
        let row = row.ok_or_else(|| not_found(id.as_str()))?;
        Manifest::append(&self.folder_of(&row), attempt)
    }
}

/// Returns the error of a transfer that is cancelled because no caller asked about it.
fn unattended(row: &Row) -> Error {
    let seconds = row.request.bound_seconds.unwrap_or_default();
    Error::new(ErrorKind::Unattended, End::Here, "run the transfer")
        .cause(format!(
            "the last question was {seconds} seconds ago, the limit in `bound_seconds`"
        ))
        .remedy("submit the same transfer again to resume")
}
