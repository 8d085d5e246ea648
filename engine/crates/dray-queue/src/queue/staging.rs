//! The table of staged copies: the transfer of each copy, and its lifetime.

use super::actor::Actor;
use super::quota::Quota;
use super::refused::Refused;
use super::row::{Row, SELECT};
use super::sqlite::sql;
use super::staged::{StagedRow, find, put, read};
use super::submit::{self, Promising, Submission, Submitted};
use super::tiers::{self, TierChange};
use super::{Queue, not_found, read_cursor};
use crate::clock;
use dray_api::Timestamp;
use dray_api::{ErrorParts, Staged, StagedList, StagedState, StagingQuery, State};
use dray_core::{End, Error, ErrorKind, Result, TransferId};
use rusqlite::{Connection, OptionalExtension};

/// Maximum number of rows that are read for one page of a list, if the list asks for a given state.
const LOOKED_AT_MAX: u32 = 10_000;

/// The table of staged copies.
#[derive(Debug, Clone, Copy)]
pub struct Staging<'q>(&'q Queue);

impl Queue {
    /// Returns the table of staged copies.
    #[must_use]
    pub const fn staging(&self) -> Staging<'_> {
        Staging(self)
    }
}

impl Queue {
    /// Submits a transfer, and stores the row of its staged copy and the `change` of a tier's
    /// version in the same transaction.
    ///
    /// # Errors
    /// The errors of [`Queue::submit`]. `AlreadyExists` if the id belongs to another staged copy.
    pub fn submit_staged(
        &self,
        submission: Submission,
        staged: StagedRow,
        change: Option<TierChange>,
    ) -> std::result::Result<Submitted, Refused> {
        self.submit_with(submission, Some(staged), change)
    }

    /// Submits a transfer in one transaction with `staged`, the row of its staged copy, and
    /// `change`, the change of a tier's version.
    pub(super) fn submit_with(
        &self,
        submission: Submission,
        staged: Option<StagedRow>,
        change: Option<TierChange>,
    ) -> std::result::Result<Submitted, Refused> {
        let limits = self.settings.limits();
        let taken = self.write(move |connection, effects| {
            let mut quota = Quota::count(connection, limits, submit::SUBMIT)?;
            let now = clock::now();
            let taken = submit::take(
                connection,
                effects,
                (submission, staged.as_ref()),
                &mut quota,
                Promising::Alone,
                now,
            );
            let taken = match taken {
                // The refused request left no row. Alternatives are searched after the write.
                Err(refused) if refused.untold.is_some() => return Ok(Err(refused)),
                taken => taken.map_err(|refused| refused.error)?,
            };
            if let Some(staged) = &staged
                && (taken.1 || find(connection, &staged.id)?.is_none())
            {
                put(connection, staged, now)?;
            }
            if let (true, Some(change)) = (taken.1, &change) {
                tiers::follow(connection, change, now)?;
            }
            Ok(Ok(taken))
        })?;
        let (row, is_new) = taken.map_err(|mut refused: Refused| {
            self.explain(&mut refused);
            refused
        })?;
        let mut transfer = self.view(row);
        transfer.attached = !is_new;
        self.asked_for(&transfer);
        Ok(Submitted { is_new, transfer })
    }
}

impl Queue {
    /// Deletes rows of copies that were evicted before `before`, if their transfer no longer
    /// exists.
    pub(super) fn forget_evicted(&self, before: Timestamp) -> Result<()> {
        const OLD: &str = "SELECT id FROM staging WHERE evicted_at IS NOT NULL
            AND evicted_at < ?1 AND NOT EXISTS
            (SELECT 1 FROM transfers t WHERE t.id = staging.id) LIMIT 500";
        let failed = sql("delete evicted entries");
        let before = before.as_ms();
        let is_any = self.read(|connection| {
            let found = connection.prepare_cached(OLD);
            let found = found.and_then(|mut statement| statement.exists([before]));
            found.map_err(&failed)
        })?;
        if !is_any {
            return Ok(());
        }
        self.write(move |connection, _| {
            let statement = format!("DELETE FROM staging WHERE id IN ({OLD})");
            connection
                .execute(&statement, [before])
                .map_err(sql("delete evicted entries"))?;
            Ok(())
        })
    }
}

impl Staging<'_> {
    /// Returns the staged copy `id`, with the state of the transfer that makes the copy.
    ///
    /// # Errors
    /// `NotFound` if the copy does not exist, or belongs to another owner.
    pub fn show(&self, caller: &Actor, id: &str) -> Result<(StagedRow, Staged)> {
        self.0.read(|connection| {
            let row = find(connection, id)?
                .filter(|row| caller.sees(&row.owner))
                .ok_or_else(|| not_found(id))?;
            let staged = view(connection, self.0, &row)?;
            Ok((row, staged))
        })
    }

    /// Returns a page of the staged copies that `caller` may see, newest first.
    ///
    /// # Errors
    /// `InvalidRequest` for an invalid cursor.
    pub fn list(&self, caller: &Actor, query: &StagingQuery) -> Result<StagedList> {
        let before = read_cursor(query.cursor.as_deref())?;
        let owner = (!caller.is_administrator).then_some(caller.owner.as_str());
        let failed = sql("list staging entries");
        self.0.read(|connection| {
            let mut statement = connection
                .prepare_cached(
                    "SELECT * FROM staging WHERE seq < ?1 AND (?2 IS NULL OR owner = ?2)
                     AND (?3 IS NULL OR application = ?3) ORDER BY seq DESC LIMIT ?4",
                )
                .map_err(&failed)?;
            let values = (before, owner, query.application.as_deref(), LOOKED_AT_MAX);
            let rows = statement.query_map(values, read).map_err(&failed)?;
            let mut list = StagedList {
                staging: Vec::new(),
                next: None,
            };
            let mut last = None;
            let mut looked_at = 0;
            for row in rows {
                let (row, seq) = row.map_err(&failed)?;
                if list.staging.len() == query.limit as usize {
                    list.next = last;
                    return Ok(list);
                }
                last = Some(seq.to_string());
                looked_at += 1;
                let staged = view(connection, self.0, &row)?;
                if query.state.is_none_or(|state| state == staged.state) {
                    list.staging.push(staged);
                }
            }
            if looked_at == LOOKED_AT_MAX {
                list.next = last;
            }
            Ok(list)
        })
    }

    /// Returns true if a transfer makes a staged copy.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn is_staging(&self, transfer: &TransferId) -> Result<bool> {
        let found = self
            .0
            .read(|connection| find(connection, transfer.as_str()))?;
        Ok(found.is_some())
    }

    /// Pins the fast copy until `until`. With `None`, removes its pin.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn pin(&self, id: &str, until: Option<Timestamp>) -> Result<()> {
        let id = id.to_owned();
        self.0.write(move |connection, _| {
            connection
                .execute(
                    "UPDATE staging SET pinned_until = ?2 WHERE id = ?1",
                    (id, until.map(Timestamp::as_ms)),
                )
                .map_err(sql("pin the staged copy"))?;
            Ok(())
        })
    }

    /// Records that the fast copy at `fast_path` was evicted, with all copies below that path.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn evicted(&self, fast_path: &str, at: Timestamp) -> Result<()> {
        let fast_path = fast_path.to_owned();
        self.0.write(move |connection, _| {
            // A path below the copy begins with the copy's path and a slash. The character after
            // the slash in byte order is `0`. So the range from `PATH/` up to, but without, `PATH0`
            // contains exactly the paths below the copy.
            connection
                .prepare_cached(
                    "UPDATE staging SET evicted_at = ?2
                     WHERE staged_at IS NOT NULL AND evicted_at IS NULL AND (fast_path = ?1
                     OR (fast_path >= ?1 || '/' AND fast_path < ?1 || '0'))",
                )
                .and_then(|mut statement| statement.execute((&fast_path, at.as_ms())))
                .map_err(sql("record the eviction"))?;
            Ok(())
        })
    }

    /// Returns existing copies whose lifetime and pin have ended at `now`, sorted by the end of the
    /// lifetime.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn expired(&self, now: Timestamp, limit: u32) -> Result<Vec<StagedRow>> {
        let failed = sql("look up copies with an expired lifetime");
        self.0.read(|connection| {
            let mut statement = connection
                .prepare_cached(
                    "SELECT * FROM staging WHERE expires_at IS NOT NULL AND evicted_at IS NULL
                     AND expires_at <= ?1 AND staged_at IS NOT NULL
                     AND (pinned_until IS NULL OR pinned_until <= ?1)
                     ORDER BY expires_at LIMIT ?2",
                )
                .map_err(&failed)?;
            let rows = statement
                .query_map((now.as_ms(), limit), read)
                .map_err(&failed)?;
            let rows = rows.map(|row| row.map(|(row, _)| row));
            rows.collect::<rusqlite::Result<_>>().map_err(&failed)
        })
    }

    /// Returns the reason why a fast copy at one of these paths must stay, if there is one: the
    /// copy is pinned, or is being staged.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn holds<'p>(
        &self,
        fast_paths: impl IntoIterator<Item = &'p str>,
        now: Timestamp,
    ) -> Result<Option<String>> {
        let failed = sql("look up pinned entries");
        self.0.read(|connection| {
            let mut statement = connection
                .prepare_cached(
                    "SELECT pinned_until FROM staging s WHERE fast_path = ?1
                     AND evicted_at IS NULL AND (pinned_until > ?2 OR EXISTS
                         (SELECT 1 FROM transfers t WHERE t.id = s.id
                          AND t.state IN ('queued', 'active', 'waiting', 'paused')))
                     ORDER BY pinned_until DESC LIMIT 1",
                )
                .map_err(&failed)?;
            for path in fast_paths {
                let found: Option<Option<i64>> = statement
                    .query_row((path, now.as_ms()), |row| row.get(0))
                    .optional()
                    .map_err(&failed)?;
                let until = found.map(|until| until.map(Timestamp::from_ms));
                if let Some(until) = until {
                    return Ok(Some(match until.filter(|until| *until > now) {
                        Some(until) => format!("the fast copy is pinned until {until}"),
                        None => "the fast copy is being staged".to_owned(),
                    }));
                }
            }
            Ok(None)
        })
    }
}

fn view(connection: &Connection, queue: &Queue, row: &StagedRow) -> Result<Staged> {
    let transfer = connection
        .prepare_cached(&format!("{SELECT} WHERE t.id = ?1"))
        .and_then(|mut statement| statement.query_row([&row.id], Row::read).optional())
        .map_err(sql("look up the transfer"))?;
    let transfer = transfer.map(|transfer| queue.view(transfer));
    let state = match transfer.as_ref().map(|transfer| transfer.state) {
        _ if row.evicted_at.is_some() => StagedState::Evicted,
        Some(State::Queued | State::Paused) => StagedState::Queued,
        Some(State::Active | State::Waiting) => StagedState::Moving,
        // The transfer may be deleted by now, so the row itself decides.
        _ if row.staged_at.is_some() => StagedState::Staged,
        _ => StagedState::Failed,
    };
    Ok(Staged {
        request: row.request.clone(),
        direction: row.direction,
        transfer: row.id.clone(),
        hit: row.is_hit,
        state,
        pinned_until: row.pinned_until,
        expires_at: row.expires_at,
        bytes: match &transfer {
            Some(transfer) if row.staged_at.is_none() => transfer.bytes.durable,
            _ => row.bytes,
        },
        error: transfer.and_then(|transfer| match transfer.state {
            State::Cancelled if state == StagedState::Failed => {
                Some(transfer.error.unwrap_or_else(cancelled))
            }
            _ => transfer.error,
        }),
    })
}

/// Returns the error of a copy whose transfer was cancelled.
fn cancelled() -> ErrorParts {
    let error = Error::new(ErrorKind::Cancelled, End::Here, "stage the copy");
    ErrorParts::from(
        &error
            .cause("the transfer of the staged copy was cancelled")
            .remedy("stage the file or folder again"),
    )
}
