//! What the dispatcher does with the queue: takes what may run, tells how it goes, how it ended.

use super::change::{apply, forget};
use super::live::{self, Counters, Holds, Run};
use super::manifest::{self, Manifest};
use super::purges::{PurgeJob, PurgeReport};
use super::row::{Row, SELECT};
use super::schema::sql;
use super::states::{Command, EndKind, Verdict, Wish, after_break, after_turned_away};
use super::submit::unasked;
use super::{Queue, RetryWish, not_found};
use crate::clock;
use dray_api::{Request, State, Timestamp};
use dray_core::lock::LockExt;
use dray_core::{Error, RelPath, Result, Status, TransferId};
use rusqlite::Connection;
use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Transfers that one call of [`Queue::tick`] forgets at the most: the others' calls wait for it.
const PRUNED_MAX: u32 = 500;

/// So long the tickets that came with a transfer are kept after its end, for a new attempt. Most are
/// good for an hour when nobody renews them. Guess, revisit.
const SECRETS_KEPT: Duration = Duration::from_secs(24 * 3_600);

/// A transfer that runs.
#[derive(Debug, Clone)]
pub struct Job {
    /// Its id.
    pub id: TransferId,
    /// Its version.
    pub version: u64,
    /// Whose it is.
    pub owner: String,
    /// Who submitted it.
    pub principal: String,
    /// Which attempt; names its list of files.
    pub attempt: u32,
    /// Which session of it, from 1.
    pub tries: u32,
    /// Which of the sources to begin with.
    pub source: u32,
    /// As patched, with its tickets.
    pub request: Request,
    /// What it did in earlier sessions of this attempt.
    pub counters: Counters,
}

/// How a session ended.
#[derive(Debug, Clone)]
pub enum Ending {
    /// All of it is safe.
    Done,
    /// Some files failed, the others are safe.
    Incomplete,
    /// It will not be tried again.
    Failed(Error),
    /// It broke off. Whether it is tried again follows from the error's status and from how often
    /// that happened.
    Broken {
        /// Why.
        error: Error,
        /// Whether anything new was made safe.
        has_progressed: bool,
        /// The source to begin with next time.
        source: Option<u32>,
    },
    /// The other end had no place for a session: that says nothing of this transfer.
    TurnedAway {
        /// In its words.
        error: Error,
        /// The source to begin with next time.
        source: Option<u32>,
    },
    /// It was stopped: as somebody wished, or because the endpoint ends.
    Stopped,
}

/// What a tick did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ticked {
    /// Transfers whose time to be tried again has come.
    pub due: usize,
    /// Transfers nobody asked for.
    pub forsaken: usize,
    /// Transfers that were forgotten.
    pub pruned: usize,
}

impl Queue {
    /// Makes a queued transfer active, if it is still of that version; `None` when it was changed
    /// meanwhile.
    ///
    /// # Errors
    /// Of the database.
    pub fn begin(&self, id: &TransferId, version: u64) -> Result<Option<Job>> {
        let wanted = id.to_string();
        let row = self.write(move |connection, effects| {
            let Some(mut row) = Row::find(connection, &wanted)? else {
                return Ok(None);
            };
            if row.version != version || row.standing.state != State::Queued {
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
        Ok(Some(Job {
            id: id.clone(),
            version: row.version,
            attempt: row.attempt,
            tries: row.tries,
            source: row.source,
            request: row.whole_request(),
            counters: row.counters,
            owner: row.owner,
            principal: row.principal,
        }))
    }

    /// The counters of the session that runs, counted from its beginning. Cheap: in memory until
    /// the next second.
    pub fn progress(&self, id: &TransferId, session: &Counters) {
        self.live
            .progress(&self.hub, id.as_str(), session, clock::now());
    }

    /// What a running transfer may use, in bytes per second.
    pub fn granted(&self, id: &TransferId, rate: Option<u64>) {
        self.live.granted(id.as_str(), rate);
    }

    /// What a running transfer has counted so far, in this attempt.
    #[must_use]
    pub fn counted(&self, id: &TransferId) -> Option<Counters> {
        let runs = self.live.lock();
        runs.get(id.as_str()).map(|run| run.counters)
    }

    /// A running transfer is held, or goes on.
    pub fn held(&self, id: &TransferId, is_held: bool) {
        self.live
            .held(&self.hub, id.as_str(), is_held, clock::now());
    }

    /// A transfer has given up its session to others, and is about to be queued again: it hears why.
    pub fn lets_go(&self, id: &TransferId) {
        self.live.holds.release.fetch_add(1, Ordering::Relaxed);
        self.noticed(
            id,
            "it gave up its session to other transfers and is queued again",
        );
    }

    /// Transfers that are held now.
    #[must_use]
    pub fn held_now(&self) -> usize {
        self.live.held_now()
    }

    /// What was held since the process began.
    #[must_use]
    pub fn holds(&self) -> &Holds {
        &self.live.holds
    }

    /// A file of a running transfer failed.
    pub fn file_failed(&self, id: &TransferId, path: &RelPath, error: &Error) {
        self.live
            .file_failed(&self.hub, id.as_str(), path, error, clock::now());
    }

    /// Something of a running transfer deserves a word.
    pub fn noticed(&self, id: &TransferId, notice: &str) {
        self.live
            .noticed(&self.hub, id.as_str(), notice, clock::now());
    }

    /// What is wished of a running transfer: asked before and after a session is made, since the
    /// wish may come in between.
    ///
    /// # Errors
    /// Of the database.
    pub fn wish(&self, id: &TransferId) -> Result<Option<Wish>> {
        let row = self.read(|connection| Row::find(connection, id.as_str()))?;
        Ok(row.and_then(|row| row.standing.wish))
    }

    /// The request of a transfer as it is now, with its tickets: after
    /// [`super::Commands::changed`].
    ///
    /// # Errors
    /// Of the database.
    pub fn request(&self, id: &TransferId) -> Result<Option<Request>> {
        let row = self.read(|connection| Row::find(connection, id.as_str()))?;
        Ok(row.map(|row| row.whole_request()))
    }

    /// The session of an active transfer ended. Says where the transfer stands now; `None` when it
    /// was not active.
    ///
    /// # Errors
    /// Of the database; the transfer is still active then: call it again.
    pub fn ended(&self, id: &TransferId, ending: Ending) -> Result<Option<State>> {
        let wanted = id.to_string();
        let last = self.live.lock().get_mut(&wanted).map(super::live::Run::end);
        let retry = self.rules.retry;
        let state = self.write(move |connection, effects| {
            let Some(mut row) = Row::find(connection, &wanted)? else {
                return Ok(None);
            };
            if row.standing.state != State::Active {
                return Ok(None);
            }
            if let Some((counters, failures, notices)) = last {
                (row.counters, row.failures, row.notices) = (counters, failures, notices);
            }
            let now = clock::now();
            let kind = settle(&mut row, ending, retry, now);
            apply(connection, effects, &mut row, Command::End(kind), now)?;
            Ok(Some(row.standing.state))
        })?;
        self.live.lock().remove(id.as_str());
        Ok(state)
    }

    /// What was active or waiting when the process went is queued again, or what was wished of it.
    /// Once, before anything runs. Says how many.
    ///
    /// # Errors
    /// Of the database.
    pub fn requeue_interrupted(&self) -> Result<usize> {
        self.write(|connection, effects| {
            let statement = format!("{SELECT} WHERE t.state IN ('active', 'waiting')");
            let found = rows(connection, &statement, ())?;
            for mut row in found.iter().cloned() {
                let now = clock::now();
                apply(connection, effects, &mut row, Command::Interrupted, now)?;
            }
            Ok(found.len())
        })
    }

    /// What time alone does, each second or so: transfers whose time has come are queued, those
    /// that nobody asked for are cancelled, old ones are forgotten.
    ///
    /// # Errors
    /// Of the database.
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
        })
    }

    fn queue_due(&self, now: Timestamp) -> Result<usize> {
        let statement = format!("{SELECT} WHERE t.state = 'waiting' AND t.next_try_at <= ?1");
        let found = self.read(|connection| rows(connection, &statement, [now.as_ms()]))?;
        if found.is_empty() {
            return Ok(0);
        }
        let count = found.len();
        self.write(move |connection, effects| {
            for row in found {
                // It may have been changed since it was read.
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
            // Callers wait for this lock, and answer nobody meanwhile.
            let mut asked = self.asked.lock_unpoisoned();
            (asked.transfers).retain(|id, _| transfers.contains(id.as_str()));
            (asked.owners).retain(|owner, _| owners.contains(owner.as_str()));
        }
        let is_forsaken = |row: &Row| {
            let bound = Duration::from_secs(row.request.bound_seconds.unwrap_or(u64::MAX));
            let is_cancelled = matches!(row.standing.wish, Some(Wish::Cancel | Wish::Purge));
            // Whoever submits it asks: that is noted only after it is on the disk.
            let is_old = now.since(row.submitted_at) >= bound;
            !is_cancelled && is_old && unasked(self, &row.id, &row.owner) >= bound
        };
        let forsaken: Vec<_> = bound.into_iter().filter(is_forsaken).collect();
        if forsaken.is_empty() {
            return Ok(0);
        }
        let notice = |row: &Row| {
            let seconds = row.request.bound_seconds.unwrap_or_default();
            format!("no caller has asked about it for {seconds} seconds")
        };
        for row in &forsaken {
            // At its end a running transfer replaces the notices of its row by its own.
            self.live.noted(&row.id, &notice(row));
        }
        self.write(move |connection, effects| {
            for row in &forsaken {
                let Some(mut row) = Row::find(connection, &row.id)? else {
                    continue;
                };
                if row.standing.state.is_terminal() {
                    continue;
                }
                row.note(notice(&row));
                let command = Command::Cancel { purge: false };
                apply(connection, effects, &mut row, command, now)?;
            }
            Ok(forsaken.len())
        })
    }

    fn prune(&self, now: Timestamp) -> Result<usize> {
        let before = now.before(self.rules.keep).as_ms();
        let keep = i64::try_from(self.rules.keep_count).unwrap_or(i64::MAX);
        let failed = sql("forget old transfers");
        // Those past their days, and the oldest of what are too many.
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
        self.forget_evicted(now.before(self.rules.keep))?;
        if old.is_empty() {
            return Ok(0);
        }
        let forgotten = self.write(move |connection, _| {
            let mut forgotten = Vec::with_capacity(old.len());
            for id in &old {
                // It may have been retried since it was looked for.
                let row = Row::find(connection, id)?;
                if let Some(row) = row.filter(|row| row.standing.state.is_terminal()) {
                    forget(connection, &row)?;
                    forgotten.push(row);
                }
            }
            Ok(forgotten)
        })?;
        for row in &forgotten {
            manifest::remove(&self.folder_of(row));
        }
        Ok(forgotten.len())
    }

    /// Forgets the tickets of what has ended long ago, so many in a call. Nobody has renewed them since.
    /// What is still to be purged elsewhere keeps its own until it is.
    fn forget_secrets(&self, now: Timestamp) -> Result<()> {
        let failed = sql("forget tickets");
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
                // It may have been retried since it was looked for.
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

    /// Cancelled transfers whose partial data shall be removed.
    ///
    /// # Errors
    /// Of the database.
    pub fn to_purge(&self, limit: u32) -> Result<Vec<PurgeJob>> {
        let statement = format!(
            "{SELECT} WHERE t.state = 'cancelled' AND t.wish IS NOT NULL ORDER BY t.seq LIMIT ?1"
        );
        let found = self.read(|connection| rows(connection, &statement, [limit]))?;
        let purges = found.into_iter().map(|row| {
            Ok(PurgeJob {
                request: row.whole_request(),
                // An earlier attempt may have left something.
                has_begun: row.started_at.is_some() || row.attempt > 1,
                id: TransferId::new(row.id)?,
                owner: row.owner,
            })
        });
        purges.collect()
    }

    /// The partial data of a cancelled transfer is gone, or cannot be removed, as `notice` says.
    ///
    /// # Errors
    /// Of the database.
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

    /// A page of transfers that are not ended and hold tickets, with them, by number; the next page
    /// is behind the last number.
    ///
    /// # Errors
    /// Of the database.
    pub fn with_tickets(&self, after: i64, limit: u32) -> Result<Vec<(i64, TransferId, Request)>> {
        let statement = format!(
            "{SELECT} WHERE t.state IN ('queued', 'active', 'waiting', 'paused')
             AND instr(t.tickets, 'drt_') > 0 AND t.seq > ?1 ORDER BY t.seq LIMIT ?2"
        );
        let found = self.read(|connection| rows(connection, &statement, (after, limit)))?;
        let found = found.into_iter().map(|row| {
            Ok((
                row.seq,
                TransferId::new(row.id.as_str())?,
                row.whole_request(),
            ))
        });
        found.collect()
    }

    /// Whether a transfer is known and not ended.
    ///
    /// # Errors
    /// Of the database.
    pub fn is_live(&self, id: &TransferId) -> Result<bool> {
        let row = self.read(|connection| Row::find(connection, id.as_str()))?;
        Ok(row.is_some_and(|row| !row.standing.state.is_terminal()))
    }

    /// Those of these transfers that are known and not ended.
    ///
    /// # Errors
    /// Of the database.
    pub fn live_of<'i>(
        &self,
        ids: impl IntoIterator<Item = &'i TransferId>,
    ) -> Result<HashSet<String>> {
        let ids: Vec<&str> = ids.into_iter().map(TransferId::as_str).collect();
        let ids = super::row::json(&ids)?;
        let failed = sql("look transfers up");
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

    /// Where the outcomes of files of one attempt are written.
    ///
    /// # Errors
    /// Of the file system; `NotFound` for a transfer that is not known.
    pub fn manifest(&self, id: &TransferId, attempt: u32) -> Result<Manifest> {
        let row = self.read(|connection| Row::find(connection, id.as_str()))?;
        let row = row.ok_or_else(|| not_found(id.as_str()))?;
        Manifest::append(&self.folder_of(&row), attempt)
    }
}

pub(super) fn rows(
    connection: &Connection,
    statement: &str,
    values: impl rusqlite::Params,
) -> Result<Vec<Row>> {
    let failed = sql("read the queue");
    let mut statement = connection.prepare_cached(statement).map_err(&failed)?;
    let rows = statement.query_map(values, Row::read).map_err(&failed)?;
    rows.collect::<rusqlite::Result<_>>().map_err(&failed)
}

/// Writes an ending into the row; says what it means for its state.
fn settle(row: &mut Row, ending: Ending, retry: RetryWish, now: Timestamp) -> EndKind {
    row.next_try_at = None;
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
        } => {
            let retry = row.request.retry.unwrap_or(retry);
            let verdict = after_break(retry, row.barren, error.status, has_progressed);
            row.source = source.unwrap_or(row.source);
            judged(row, error, verdict, retry, now)
        }
        Ending::TurnedAway { error, source } => {
            let retry = row.request.retry.unwrap_or(retry);
            row.source = source.unwrap_or(row.source);
            let verdict = after_turned_away(retry, row.barren);
            judged(row, error, verdict, retry, now)
        }
    }
}

/// Tried again, or given up.
fn judged(
    row: &mut Row,
    error: Error,
    verdict: Verdict,
    retry: RetryWish,
    now: Timestamp,
) -> EndKind {
    row.barren = verdict.barren;
    if verdict.is_tried {
        let wait = Duration::from_secs(retry.interval_seconds);
        row.next_try_at = Some(now.after(wait));
        row.error = Some(live::parts(&error));
        return EndKind::Again;
    }
    let error = match error.status {
        Status::Temporary => error.status(Status::Exhausted),
        _ => error,
    };
    row.error = Some(live::parts(&error));
    EndKind::Failed
}
